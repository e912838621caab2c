"""Mistakes in what carries do, put there on purpose, each with a call of the simulated kernels that must notice it."""

from __future__ import annotations

import numpy as np
from feature_cases import Array, Case, draws
from test_broken_features import Mistake
from test_simulated_carry import MAX, NARROW, named, products, totals
from test_simulated_features import tied
from test_simulated_recurrence import steps

from cuscan.operators import LINEAR_RECURRENCE

BACKWARDS, LEADING = {"reverse": True}, {"include_initial": True}
FLOATS = {"draw": tied("float32", nan=0.003)}


def lowest(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """Nothing beside any carry."""
    return (np.full(shape, -1000, np.float32),)


# Calls that work, by name.
CASES: dict[str, Case] = {
    "rows": named("rows", "", call=BACKWARDS),
    "rows-leading": named("rows", "leading", call=LEADING),
    "cluster": named("cluster", "", shape=(3, 2500)),  # which end in the second warp of a unit, as these do
    "tiles": named("tiles-shared", "", shape=(3, 2000)),
    "tiles-total": totals("tiles-shared"),
    "tiles-offsets": named("tiles-shared", "", segments="offsets-each"),
    "tiles-keys": named("tiles-shared", "", segments="keys-full", call=BACKWARDS),
    "tiles-index": named("tiles-shared", "", MAX, **FLOATS),
    "tiles-index-reverse": named("tiles-shared", "", MAX, call=BACKWARDS, **FLOATS),
    "tiles-carried": named("tiles-shared", "", MAX, call=BACKWARDS, draw=lowest, shape=(16, 600)),
    "tiles-bytes": named("tiles-shared", "", draw=draws("int8"), call={"dtype": "int8"}),
    "recurrence": named("tiles-shared", "", LINEAR_RECURRENCE, draw=steps()),
    "columns": products("columns-shared"),
    "columns-own": products("columns-own"),
    "columns-keys": named("columns-shared", "", segments="keys", shape=(2, 700, 8)),
    "columns-leading": named("columns-shared", "", call=LEADING, shape=(2, 256, 9)),
    "columns-index": named("columns-shared", "", MAX, **FLOATS),
    "strips": named("strips", ""),
    "strips-own": named("strips-own-parts", ""),
    "strips-pairs": named("strips-pairs", ""),
    "whole-rows": named("whole-rows", ""),
}
assert NARROW.keys() >= {"strips", "strips-own-parts", "strips-pairs", "whole-rows"}

ELEMENTS, TILE, SHARE, STARTS = "elements.cuh", "warp_tile.cuh", "column_share.cuh", "kernels/segment_starts.cuh"
COLUMNS, STRIPS, STRIP_TILE, WHOLE = (
    "kernels/columns.cuh",
    "kernels/strips.cuh",
    "strip_tile.cuh",
    "kernels/whole_rows.cuh",
)
MISTAKES = (
    Mistake(
        "carry-without-what-precedes",
        "cluster",
        ELEMENTS,
        "join<CarryOp>(has_before, before,",
        "join<CarryOp>(false, before,",
    ),
    Mistake(
        "carry-of-the-first-field",
        "recurrence",
        ELEMENTS,
        "row.array[Arrays<Config>::kCarryIn + kField]",
        "row.array[Arrays<Config>::kCarryIn]",
    ),
    Mistake("elements-not-counted", "tiles-index", ELEMENTS, "*out = counted(row) + count;", "*out = count;"),
    Mistake("positions-from-0", "tiles-index", TILE, "items.index += Element::counted(row);", ";"),
    Mistake(
        "positions-of-columns-from-0",
        "columns-index",
        SHARE,
        "items.index += Element::counted(width > 0 ? at : row);",
        "",
    ),
    Mistake(
        "positions-do-not-move-up",
        "tiles-index-reverse",
        ELEMENTS,
        "if (state.index >= 0) state.index += geometry.elements();",
        ";",
    ),
    Mistake("nowhere-moves-up", "tiles-carried", ELEMENTS, "if (state.index >= 0) state.index +=", "state.index +="),
    Mistake(
        "key-of-another-place", "tiles-keys", ELEMENTS, "(count - 1 - position) * geometry", "(0 - position) * geometry"
    ),
    Mistake(
        "key-of-columns-of-another-place",
        "columns-keys",
        ELEMENTS,
        "(count - 1 - position) * geometry",
        "(count - 1) * geometry",
    ),
    Mistake("last-key-not-compared", "tiles-keys", TILE, "if (!has_earlier) before =", "if (false) before ="),
    Mistake(
        "last-key-of-columns-not-compared", "columns-keys", SHARE, "change && first + s == 0 && s < steps", "false"
    ),
    Mistake(
        "last-key-of-column-0",
        "columns-keys",
        SHARE,
        "geometry.column.stride[Numbers::kCarryOut - 1], width)",
        "0, width)",
    ),
    Mistake("empty-first-segment-takes-nothing", "tiles-offsets", STARTS, "entry(1) == 0)", "entry(1) == 1)"),
    Mistake("last-but-one", "rows", TILE, "if (i <= own) sum", "if (i < own) sum"),
    Mistake(
        "last-of-results", "rows-leading", TILE, "geometry.elements() - 1 - first;", "geometry.axis.size - 1 - first;"
    ),
    Mistake("without-vectors-before", "tiles", TILE, "join<Op>(r > 0 || lane > 0 || i > 0, sum", "join<Op>(i > 0, sum"),
    Mistake(
        "without-warps-before",
        "tiles",
        "kernels/tiles.cuh",
        "join<Op>(warp_in_group > 0, part.before, of_warp)",
        "of_warp",
    ),
    Mistake("before-it-is-known", "tiles", "kernels/tiles.cuh", "known.wait_together(k / kRing);", ";"),
    Mistake(
        "totals-without-look-back",
        "tiles-total",
        "kernels/tiles.cuh",
        "(geometry.elements() - 1) / Shared::kElements) return false;",
        "0) return false;",
    ),
    Mistake(
        "without-warps-of-a-cluster",
        "cluster",
        "kernels/cluster.cuh",
        "join<typename Element::Op>(warp_in_unit > 0, before, of_warp)",
        "of_warp",
    ),
    Mistake("without-chunks-before", "columns", COLUMNS, "geometry, chunk > 0, [&]", "geometry, false, [&]"),
    Mistake("of-another-chunk", "columns-own", COLUMNS, "my_chunk == int(last) / kSteps)", "my_chunk == 0)"),
    Mistake(
        "columns-of-results",
        "columns-leading",
        SHARE,
        "left - 1 - Config::kIncludesInitial;\n        if (last < 0 || last >= kSteps)",
        "left - 1;\n        if (last < 0 || last >= kSteps)",
    ),
    Mistake(
        "of-the-first-unit-of-a-tile",
        "strips-pairs",
        STRIPS,
        "place.unit == last_row(now) / (Layout::kRows / kUnits)",
        "place.unit == 0",
    ),
    Mistake(
        "after-the-unit",
        "strips-own",
        STRIPS,
        "stage.behind[column] = carry.before(unit);",
        "stage.behind[column] = carry.before(0);",
    ),
    Mistake(
        "without-runs-before",
        "strips",
        STRIP_TILE,
        "join<Op>(has_before || s > 0, sum, share",
        "join<Op>(s > 0, sum, share",
    ),
    Mistake(
        "without-shares-before",
        "whole-rows",
        WHOLE,
        "join<Op>(!is_first || s > 0, sum, run",
        "join<Op>(s > 0, sum, run",
    ),
    Mistake("packed-sums-have-no-high-bits", "tiles-bytes", "packed.cuh", " && Config::CarryOut::kCount == 0", ""),
)
