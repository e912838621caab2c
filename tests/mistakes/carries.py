"""Mistakes in what carries do, which calls with carries notice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from carry_cases import BACKWARDS, LEADING, MAX, named, products, totals
from draws import Array, drawn, draws, steps, tied
from feature_cases import Case
from operator_examples import MATRIX_PRODUCT

from cuscan.operators import LINEAR_RECURRENCE
from mistakes import Kind, Mistake

FLOATS = {"draw": tied("float32", nan=0.003)}


def lowest(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """Low numbers, which change no carry."""
    return (np.full(shape, -1000, np.float32),)


def zeros(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """Zeros of both signs; no number is larger."""
    return (rng.choice(np.array([0.0, -0.0, -1.0], np.float32), shape),)


CALLS: dict[str, Case] = {
    "carry-rows": named("rows", "", call=BACKWARDS),
    "carry-rows-leading": named("rows", "leading", call=LEADING),
    "carry-cluster": named("cluster", "", shape=(3, 2500)),  # rows end in the second warp of a unit
    "carry-tiles": named("tiles-shared", "", shape=(3, 2000)),
    "carry-tiles-total": totals("tiles-shared"),
    "carry-tiles-total-long": replace(totals("tiles-shared"), shape=(2, 40 * 512), shared_bytes=24 << 10),
    "carry-tiles-zeros": replace(totals("tiles-shared"), op="max", draw=zeros),
    "carry-tiles-masked": named("tiles-shared", "", masked=True),
    "carry-tiles-states": named("tiles-shared", "", MATRIX_PRODUCT.operator(), "total", draw=drawn(MATRIX_PRODUCT)),
    "carry-cluster-total": replace(totals("cluster"), shape=(3, 2500)),
    "carry-tiles-offsets": named("tiles-shared", "", segments="offsets-each"),
    "carry-tiles-keys": named("tiles-shared", "", segments="keys-full", call=BACKWARDS),
    "carry-tiles-index": named("tiles-shared", "", MAX, **FLOATS),
    "carry-tiles-index-reverse": named("tiles-shared", "", MAX, call=BACKWARDS, **FLOATS),
    "carry-tiles-carried": named("tiles-shared", "", MAX, call=BACKWARDS, draw=lowest, shape=(16, 600)),
    "carry-tiles-bytes": named("tiles-shared", "", draw=draws("int8"), call={"dtype": "int8"}),
    "carry-recurrence": named("tiles-shared", "", LINEAR_RECURRENCE, draw=steps()),
    "carry-panels": products("panels-shared"),
    "carry-panels-first-run": named("panels-shared", "", shape=(2, 2085, 9)),
    "carry-panels-kept": products("panels-kept"),
    "carry-panels-keys": named("panels-shared", "", segments="keys", shape=(2, 2100, 8)),
    "carry-panels-leading": named("panels-shared", "", call=LEADING, shape=(2, 2048, 9)),
    "carry-panels-index": named("panels-shared", "", MAX, **FLOATS),
    "carry-strips": named("strips", ""),
    "carry-strips-own": named("strips-own-parts", ""),
    "carry-strips-pairs": named("strips-pairs", ""),
    "carry-strips-leading": named("strips", "leading", call=LEADING, shape=(2, 40 * 256 + 5, 12)),
    "carry-strips-pairs-leading": named("strips-pairs", "leading", call=LEADING, shape=(2 * 4096 - 1, 2)),
    "carry-whole-rows": named("whole-rows", ""),
}

ELEMENTS, TILE, SHARE, STARTS = "elements.cuh", "warp_tile.cuh", "panel_share.cuh", "kernels/segment_starts.cuh"
STRIPS, STRIP_TILE, WHOLE = (
    "kernels/strips.cuh",
    "strip_tile.cuh",
    "kernels/whole_rows.cuh",
)
MISTAKES = (
    Mistake(
        "carry-without-what-precedes",
        Kind.LOST,
        "carry-cluster",
        ELEMENTS,
        "join<CarryOp>(has_before, before,",
        "join<CarryOp>(false, before,",
    ),
    Mistake(
        "carry-of-the-first-field",
        Kind.PLACE,
        "carry-recurrence",
        ELEMENTS,
        "row.array[Arrays<Config>::kCarryIn + kField]",
        "row.array[Arrays<Config>::kCarryIn]",
    ),
    Mistake(
        "elements-not-counted",
        Kind.LOST,
        "carry-tiles-index",
        ELEMENTS,
        "*out = counted(row) + count;",
        "*out = count;",
    ),
    Mistake("positions-from-0", Kind.LOST, "carry-tiles-index", TILE, "items.index += Element::counted(row);", ";"),
    Mistake(
        "positions-of-columns-from-0",
        Kind.LOST,
        "carry-panels-index",
        SHARE,
        "items.index += Element::counted(tile.row(place, column_of(0)));",
        ";",
    ),
    Mistake(
        "positions-do-not-move-up",
        Kind.LOST,
        "carry-tiles-index-reverse",
        ELEMENTS,
        "if (state.index >= 0) state.index += geometry.elements();",
        ";",
    ),
    Mistake(
        "nowhere-moves-up",
        Kind.MEANING,
        "carry-tiles-carried",
        ELEMENTS,
        "if (state.index >= 0) state.index +=",
        "state.index +=",
    ),
    Mistake(
        "key-of-another-place",
        Kind.PLACE,
        "carry-tiles-keys",
        ELEMENTS,
        "(count - 1 - position) * geometry",
        "(0 - position) * geometry",
    ),
    Mistake(
        "key-of-columns-of-another-place",
        Kind.PLACE,
        "carry-panels-keys",
        ELEMENTS,
        "(count - 1 - position) * geometry",
        "(count - 1) * geometry",
    ),
    Mistake(
        "last-key-not-compared",
        Kind.MEANING,
        "carry-tiles-keys",
        TILE,
        "if (!has_earlier) before =",
        "if (false) before =",
    ),
    Mistake(
        "last-key-of-columns-not-compared",
        Kind.MEANING,
        "carry-panels-keys",
        SHARE,
        "(!is_first || Element::kCarriesIn)",
        "!is_first",
    ),
    Mistake(
        "last-key-of-column-0",
        Kind.PLACE,
        "carry-panels-keys",
        SHARE,
        "tile.row(place, column_of(slot)).array[Numbers::kCarryOut - 1]",
        "place.first.array[Numbers::kCarryOut - 1]",
    ),
    Mistake(
        "empty-first-segment-takes-nothing",
        Kind.MEANING,
        "carry-tiles-offsets",
        STARTS,
        "entry(1) == 0)",
        "entry(1) == 1)",
    ),
    Mistake("last-but-one", Kind.BOUND, "carry-rows", TILE, "if (i <= own) sum", "if (i < own) sum"),
    Mistake(
        "last-of-results",
        Kind.BOUND,
        "carry-rows-leading",
        TILE,
        "int(geometry.elements() - 1 - first), vector",
        "int(geometry.axis.size - 1 - first), vector",
    ),
    Mistake(
        "without-vectors-before",
        Kind.LOST,
        "carry-tiles",
        TILE,
        "join<Op>(vector > 0 || lane > 0 || i > 0, sum",
        "join<Op>(i > 0, sum",
    ),
    Mistake(
        "of-another-vector",
        Kind.PLACE,
        "carry-tiles-masked",
        TILE,
        "keep.template from<kItems>(vector * kItems)",
        "keep.template from<kItems>(0)",
    ),
    Mistake(
        "total-without-vectors-before",
        Kind.LOST,
        "carry-tiles-total",
        TILE,
        "if (kVectors == 1 || vector == 0) return lanes;",
        "return lanes;",
    ),
    Mistake("total-of-another-vector", Kind.PLACE, "carry-tiles-total", TILE, "r % kTogether));", "0));"),
    Mistake(
        "totals-the-other-way",
        Kind.ORDER,
        "carry-tiles-states",
        "scans.cuh",
        "Op::combine(convert<Total>(choose(is_later, other, own)), convert<Total>(choose(is_later, own, other)))",
        "Op::combine(convert<Total>(choose(is_later, own, other)), convert<Total>(choose(is_later, other, own)))",
    ),
    Mistake(
        "totals-of-a-cluster-elsewhere",
        Kind.PLACE,
        "carry-cluster-total",
        "kernels/cluster.cuh",
        "lane == (units - 1) / kUnits;",
        "lane == 0;",
    ),
    Mistake(
        "ring-laps-the-look-back-warp",
        Kind.WAIT,
        "carry-tiles-total-long",
        "kernels/tiles.cuh",
        "if (kLooksBackBeside && lane == 0) shared.empty[k % kStages].arrive();",
        "",
    ),
    Mistake(
        "without-warps-before",
        Kind.LOST,
        "carry-tiles",
        "kernels/tiles.cuh",
        "join<Op>(warp_in_group > 0, part.before, of_warp)",
        "of_warp",
    ),
    Mistake(
        "before-it-is-known",
        Kind.WAIT,
        "carry-tiles-total",
        "kernels/tiles.cuh",
        "known.wait_together(k / kRing);",
        ";",
    ),
    Mistake(
        "totals-without-look-back",
        Kind.LOST,
        "carry-tiles-total",
        "kernels/tiles.cuh",
        "(geometry.elements() - 1) / Shared::kElements) return false;",
        "0) return false;",
    ),
    Mistake(
        "without-warps-of-a-cluster",
        Kind.LOST,
        "carry-cluster",
        "kernels/cluster.cuh",
        "join<typename Element::Op>(warp_in_unit > 0, before, of_warp)",
        "of_warp",
    ),
    Mistake(
        "without-runs-before",
        Kind.LOST,
        "carry-panels-first-run",
        SHARE,
        "join<Op>(has_left || s > 0, sum",
        "join<Op>(s > 0, sum",
    ),
    Mistake("a-step-too-few", Kind.BOUND, "carry-panels-kept", SHARE, "if (s <= last) sum", "if (s < last) sum"),
    Mistake(
        "columns-of-results",
        Kind.BOUND,
        "carry-panels-leading",
        SHARE,
        "const int64 last = tile.geometry.elements() - 1 - first();",
        "const int64 last = tile.geometry.axis.size - 1 - first();",
    ),
    Mistake(
        "rows-of-results",
        Kind.BOUND,
        "carry-strips-leading",
        STRIP_TILE,
        "geometry.elements() - 1 - row;",
        "geometry.axis.size - 1 - row;",
    ),
    Mistake(
        "values-of-a-result-behind-them",
        Kind.BOUND,
        "carry-strips-leading",
        STRIP_TILE,
        "clamp(geometry.elements() - position, kRows)",
        "clamp(geometry.axis.size - position, kRows)",
    ),
    Mistake(
        "the-earlier-one-of-two-zeros",
        Kind.MEANING,
        "carry-tiles-zeros",
        "operators.cuh",
        "return target::larger_or_nan(earlier, later);",
        "return earlier >= later || earlier != earlier ? earlier : later;",
    ),
    Mistake(
        "a-row-s-end-gone-before-it-is-read-again",
        Kind.WAIT,
        "carry-tiles-total-long",
        "kernels/tiles.cuh",
        " && !Tile::has_end(geometry, first);",
        ";",
    ),
    Mistake(
        "of-the-first-unit-of-a-tile",
        Kind.PLACE,
        "carry-strips-pairs",
        STRIPS,
        "place.unit == last_row(now) / (Layout::kRows / kUnits)",
        "place.unit == 0",
    ),
    Mistake(
        "after-the-unit",
        Kind.PLACE,
        "carry-strips-own",
        STRIPS,
        "stage.behind[column] = carry.before(unit);",
        "stage.behind[column] = carry.before(0);",
    ),
    Mistake(
        "without-runs-before",
        Kind.LOST,
        "carry-strips",
        STRIP_TILE,
        "join<Op>(has_before || s > 0, sum, share",
        "join<Op>(s > 0, sum, share",
    ),
    Mistake(
        "without-shares-before",
        Kind.LOST,
        "carry-whole-rows",
        WHOLE,
        "join<Op>(!is_first || s > 0, sum, run",
        "join<Op>(s > 0, sum, run",
    ),
    Mistake(
        "packed-sums-have-no-high-bits",
        Kind.MEANING,
        "carry-tiles-bytes",
        "packed.cuh",
        " && Config::CarryOut::kCount == 0",
        "",
    ),
)


# Six schedules, since a race does not show in every one.
CASES = {name: replace(case, seeds=6).check for name, case in CALLS.items()}
