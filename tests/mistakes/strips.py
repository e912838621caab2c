"""Mistakes in strips: rows that begin anywhere, tiles that overlap or are parts of units, values that do not vary."""

from __future__ import annotations

from dataclasses import replace

from draws import draws, steps
from feature_cases import Case
from simulator import DeviceCode, most_walks, small_sections, small_spans
from turned_cases import CASES as TURNED

from cuscan.operators import LINEAR_RECURRENCE
from mistakes import Kind, Mistake

CALLS = (
    Case(
        "strips-of-parts",
        "add",
        (19 * 256 + 70, 40),
        0,
        3,
        draw=draws("float32"),
        units=None,
        call={"dtype": "float64"},
    ),
    Case("strips-of-words", LINEAR_RECURRENCE, (530, 513), 0, 24, draw=steps(), units=None),
    Case("strips-overlapping", "add", (530, 513), 0, 24, units=None),
    Case("strips-of-halves", "add", (2, 530, 515), 1, 40, draw=draws("bfloat16"), units=None),
    Case("strips-in-place", "add", (3000, 513), 0, 24, carry="both", in_place=0, units=None),
    Case("strips-still", LINEAR_RECURRENCE, (2, 700, 12), 1, draw=steps(decay="channel")),
    Case("strips-still-wide", LINEAR_RECURRENCE, (700, 52), 0, draw=steps(decay="channel")),
    Case(
        "strips-flat-odd",
        "add",
        (3, 2051, 31),
        1,
        draw=draws("bfloat16"),
        units=None,
        initial=0.5,
        call={"include_initial": True},
    ),
    Case(
        "strips-flat-wide", "add", (2, 2051, 39), 1, draw=draws("bfloat16"), units=None, call={"include_initial": True}
    ),
    Case("strips-flat-back", "add", (2, 4101, 13), 1, draw=draws("bfloat16"), units=None, call={"reverse": True}),
    Case("strips-last-tile", "add", (6 * 1024 + 101, 8), 0, 1, draw=draws("float32"), units=None),
    Case(
        "strips-last-row",
        "add",
        (6 * 1024 + 36, 8),
        0,
        1,
        draw=draws("float32"),
        units=None,
        initial=0.5,
        call={"include_initial": True},
    ),
    Case(
        "strips-first-rows", "add", (6 * 1024 + 101, 8), 0, 1, draw=draws("float32"), units=None, call={"reverse": True}
    ),
    Case("strips-by-turns", "add", (2, 5190, 8), 1, 3, draw=draws("float16"), units=None),
    Case("strips-of-whole-rows", "add", (8200, 3), 0, 2, draw=draws("bfloat16"), units=None, call={"reverse": True}),
    Case("strips-still-apart", LINEAR_RECURRENCE, (530, 513), 0, 24, draw=steps(decay="channel"), units=None),
)


def check_spans(code: DeviceCode) -> None:
    """Check a chain of several spans of spans."""
    with most_walks(1), small_spans():
        call = {"include_initial": True}  # otherwise these are whole rows
        Case("spans", "add", (40 * 512 + 7, 17), 0, units=None, seeds=3, initial=1.5, call=call).check(code)


def check_sections(code: DeviceCode) -> None:
    """Check a chain of three sections, whose highest nodes are fewer than a span."""
    with most_walks(1), small_spans(1), small_sections(code, units=128) as small:
        Case("sections", "add", (140 * 512 + 7, 12), 0, units=None, seeds=2, initial=1.5).check(small)


def check_passes(code: DeviceCode) -> None:
    """Check a chain of three sections without nodes."""
    with most_walks(1), small_sections(code) as small:
        Case("passes", "add", (100 * 512 + 7, 12), 0, units=None, seeds=2, initial=1.5).check(small)


def check_walks(code: DeviceCode) -> None:
    """Check blocks of some six batches each, and four walks of two warps."""
    with small_spans(8):
        Case("walks", "add", (24 * 1024, 5), 0, 2, draw=draws("float16"), units=None, seeds=4, initial=1.5).check(code)


KERNEL, TILE, ROWS, BATCHES = "kernels/strips.cuh", "strip_tile.cuh", "tile_rows.cuh", "batches.cuh"
MISTAKES = (
    Mistake(
        "earlier-parts-of-the-unit-left-out",
        Kind.LOST,
        "strips-of-parts",
        KERNEL,
        "place, part > 0, before)",
        "place, false, before)",
    ),
    Mistake(
        "a-unit-of-its-last-part",
        Kind.LOST,
        "strips-of-parts",
        KERNEL,
        "parts.push(part, total(",
        "parts.push(0, total(",
    ),
    Mistake(
        "tiles-counted-for-units",
        Kind.PLACE,
        "strips-of-parts",
        KERNEL,
        "turn.unit % kBatch / kParts",
        "turn.unit % kBatch",
    ),
    Mistake(
        "units-beyond-the-row",
        Kind.BOUND,
        "strips-of-words",
        ROWS,
        "row >= kStep || at >= left * kSize) return;",
        "row >= kStep) return; left = kColumns;",
    ),
    Mistake("units-that-lie-apart", Kind.PLACE, "strips-of-words", ROWS, "lane % kOfRow * kUnit", "lane % kOfRow"),
    Mistake("pieces-behind-the-array", Kind.BOUND, "strips-of-halves", ROWS, " && bottom + kPiece <= end", ""),
    Mistake(
        "rows-at-one-distance",
        Kind.PLACE,
        "strips-of-halves",
        ROWS,
        "kLeast + int((uint32(along) - uint32(kLeast)) % kPiece)",
        "kLeast",
    ),
    Mistake(
        "the-first-row-of-the-batch-for-all-strips",
        Kind.PLACE,
        "strips-of-halves",
        KERNEL,
        "{turn, strip / side_by_side, ",
        "{turn, 0, ",
    ),
    Mistake("rows-from-a-piece-on", Kind.PLACE, "strips-of-halves", ROWS, "return beyond(first) + row", "return row"),
    Mistake(
        "no-sector-ends-in-the-halo",
        Kind.LOST,
        "strips-overlapping",
        ROWS,
        "kOwnBytes + up_to<kSector>(of_row + kOwnBytes)",
        "kOwnBytes",
    ),
    Mistake(
        "what-precedes-the-first-sector",
        Kind.LOST,
        "strips-overlapping",
        ROWS,
        "left >= kColumns && !edges.first",
        "left >= kColumns",
    ),
    Mistake(
        "what-follows-the-last-sector",
        Kind.LOST,
        "strips-overlapping",
        ROWS,
        "left >= kColumns && !edges.first",
        "!edges.first",
    ),
    Mistake("more-than-a-part", Kind.BOUND, "strips-overlapping", ROWS, "low - at, high - at)", "low - at, kPiece)"),
    Mistake("results-for-values-of-the-halo", Kind.STALE, "strips-in-place", KERNEL, "return !found;", "return true;"),
    Mistake(
        "carries-of-the-halo",
        Kind.STALE,
        "strips-in-place",
        TILE,
        "c < column + kAcross && c < own()",
        "c < column + kAcross && c < width",
    ),
    Mistake(
        "parts-of-warps-side-by-side",
        Kind.WAIT,
        "strips-flat-odd",
        TILE,
        "!Config::kInPlace ? part * kPiece",
        "!Config::kInPlace ? 0",
    ),
    Mistake(
        "flat-rows-from-a-piece-on",
        Kind.PLACE,
        "strips-flat-odd",
        TILE,
        "(char*)buffer.item + beyond<T>(array)",
        "(char*)buffer.item",
    ),
    Mistake(
        "a-piece-behind-the-array",
        Kind.BOUND,
        "strips-flat-back",
        TILE,
        "first + stretch.bytes() <= begin + span.end",
        "true",
    ),
    Mistake(
        "columns-of-the-next-strip",
        Kind.STALE,
        "strips-flat-wide",
        KERNEL,
        "own < last ? own : last",
        "own",
    ),
    Mistake(
        "results-behind-the-last-row",
        Kind.BOUND,
        "strips-last-tile",
        TILE,
        "store_rows(clamp(rows - first, kTaken))",
        "store_rows(kTaken)",
    ),
    Mistake(
        "stored-before-all-is-written",
        Kind.WAIT,
        "strips-overlapping",
        KERNEL,
        "target::sync_warp();\n                tile.store(results",
        "tile.store(results",
    ),
    Mistake(
        "stored-in-bulk-before-all-is-written",
        Kind.WAIT,
        "strips-flat-odd",
        KERNEL,
        "target::sync_warp();\n                tile.store_together(",
        "tile.store_together(",
    ),
    Mistake(
        "results-of-half-a-part",
        Kind.LOST,
        "strips-last-tile",
        TILE,
        "store_rows(clamp(rows - first, kTaken))",
        "store_rows(clamp(rows - first, kTaken / 2))",
    ),
    Mistake(
        "a-row-behind-the-last-value",
        Kind.BOUND,
        "strips-last-row",
        TILE,
        "from = stretch<T>(decltype(k)::value, value_rows())",
        "from = stretch<T>(decltype(k)::value, rows)",
    ),
    Mistake(
        "the-first-rows-at-the-beginning",
        Kind.PLACE,
        "strips-first-rows",
        TILE,
        "values.at(k).item + from.place(), from",
        "values.at(k).item, from",
    ),
    Mistake(
        "no-rows-behind-the-strip",
        Kind.LOST,
        "strips-last-tile",
        KERNEL,
        "stage.turn.rows = rows(stage.turn)",
        "stage.turn.rows = now.rows",
    ),
    Mistake("the-last-items-of-a-part", Kind.LOST, "strips-flat-odd", TILE, "i < count - (tail - head)", "i < head"),
    Mistake(
        "results-as-far-apart-as-decays",
        Kind.PLACE,
        "strips-still-apart",
        TILE,
        "of_array<T>(kReplaced)",
        "of_array<T>(0)",
    ),
    Mistake("one-decay-for-all-columns", Kind.PLACE, "strips-still", TILE, "value, column + c);", "value, column);"),
    Mistake(
        "decays-of-columns-that-do-not-exist",
        Kind.BOUND,
        "strips-still-wide",
        TILE,
        "(column < width ? column : width - 1)",
        "column",
    ),
    Mistake(
        "a-copy-of-values-that-do-not-move",
        Kind.WAIT,
        "strips-still",
        TILE,
        "if (together && !kStandsStill<Operand>)",
        "if (together)",
    ),
    Mistake(
        "the-total-of-a-span-without-its-last-batch",
        Kind.LOST,
        "strips-spans-of-spans",
        BATCHES,
        "- (all - 1), all);",
        "- (all - 1), all - 1);",
    ),
    Mistake(
        "a-walk-down-batches-not-spans",
        Kind.PLACE,
        "strips-spans-of-spans",
        BATCHES,
        "look(of_level(batches, number, level), chain, first",
        "look(batches, chain, first",
    ),
    Mistake(
        "the-place-for-the-span",
        Kind.PLACE,
        "strips-spans-of-spans",
        BATCHES,
        "first = node_of(batch, level) - place;",
        "first = place;",
    ),
    Mistake(
        "found-before-it-is-there",
        Kind.WAIT,
        "strips-spans-of-spans",
        BATCHES,
        "        if constexpr (kWarps > 1)\n            target::barrier_sync(barrier_, kWarps * target::kWarp);\n"
        "        else\n            target::sync_warp();\n        return carry;",
        "        return carry;",
    ),
    Mistake(
        "one-place-for-all-warps-results",
        Kind.STALE,
        "results-in-flat-tiles",
        TILE,
        "first / kTaken * Turned<T, kTaken>::kBytes",
        "0",
    ),
    Mistake(
        "columns-that-do-not-exist",
        Kind.BOUND,
        "results",
        TILE,
        "columns = clamp(width - first_column, Layout::kWarpColumns)",
        "columns = Layout::kWarpColumns",
    ),
    Mistake(
        "steps-turned-by-the-column",
        Kind.PLACE,
        "reverse-of-values",
        TILE,
        "item[s][c] = along[c][place<kSteps>(s)]",
        "item[s][c] = along[c][s]",
    ),
    Mistake(
        "rows-of-a-part-from-the-first-on",
        Kind.PLACE,
        "reverse",
        TILE,
        "place<kTaken>(row - first, kRunRows)",
        "row - first",
    ),
    Mistake(
        "the-last-rows-of-a-column-as-a-whole-tile",
        Kind.BOUND,
        "reverse",
        TILE,
        "if (kAlongBack && rows < kTaken)",
        "if (false)",
    ),
    Mistake(
        "columns-that-end-in-a-piece",
        Kind.LOST,
        "results-that-end-in-a-piece",
        ROWS,
        "kTight && (kEndsInPiece || own % kPiece == 0)",
        "kTight",
    ),
    Mistake(
        "a-piece-behind-the-last-column",
        Kind.BOUND,
        "values-that-end-in-a-piece",
        ROWS,
        "if (kEndsInPiece || (top",
        "if (kTight || (top",
    ),
    Mistake(
        "a-row-of-more-pieces-than-threads",
        Kind.LOST,
        "values-in-flat-tiles",
        ROWS,
        "const int at = (piece + thread % kAbreast) * kPiece - beyond(here);",
        "const int at = thread % kAbreast * kPiece - beyond(here);",
    ),
    Mistake(
        "earlier-sections-left-out", Kind.LOST, "strips-sections", BATCHES, "chain, batch / kBatches);", "chain, 0);"
    ),
    Mistake(
        "a-section-of-whole-spans", Kind.PLACE, "strips-sections", BATCHES, "kTop == kSpan || level", "true || level"
    ),
    Mistake(
        "sections-from-the-first-on",
        Kind.PLACE,
        "strips-sections",
        BATCHES,
        "sections.entry(section_, chain)",
        "sections.entry(0, chain)",
    ),
    Mistake(
        "sections-where-spans-end",
        Kind.PLACE,
        "strips-sections",
        BATCHES,
        "level == kLevels ? batch / kBatches : batch",
        "batch",
    ),
    Mistake(
        "earlier-spans-left-out",
        Kind.LOST,
        "strips-spans-of-spans",
        BATCHES,
        "kHasInitial || node_of(batch, level + 1) > 0, before",
        "false, before",
    ),
    Mistake("only-one-walk-ends", Kind.WAIT, "strips-walks", KERNEL, "(kWalks - 1) * int(kBatch) + 1", "1"),
    Mistake(
        "vectors-begin-with-rows",
        Kind.PLACE,
        "strips-of-whole-rows",
        "flat_tile.cuh",
        "vector * (kWhole ? kItems : kColumns)",
        "vector * kColumns",
    ),
    Mistake(
        "the-last-step-is-not-the-first-in-memory",
        Kind.ORDER,
        "strips-of-whole-rows",
        "flat_tile.cuh",
        "(kBack ? kSteps - 1 - step : step)",
        "step",
    ),
    Mistake("only-one-group-ends", Kind.WAIT, "strips-by-turns", KERNEL, "kWalkEnds > kGroups", "true"),
    Mistake("both-groups-begin-with-the-first-tile", Kind.LOST, "strips-by-turns", KERNEL, "store_warp / kWarps", "0"),
    Mistake("both-groups-take-every-tile", Kind.WAIT, "strips-by-turns", KERNEL, "k += kGroups", "++k"),
    Mistake(
        "a-tile-is-free-for-both-groups",
        Kind.WAIT,
        "strips-by-turns",
        KERNEL,
        "free.init(kWarps",
        "free.init(kStoreWarps",
    ),
    Mistake("every-walk-takes-every-batch", Kind.WAIT, "strips-walks", KERNEL, "k += kWalks * kBatch", "k += kBatch"),
    Mistake("one-exchange-for-all-walks", Kind.PLACE, "strips-walks", KERNEL, "exchange[index]", "exchange[scan_warp]"),
    Mistake(
        "one-barrier-for-all-walks",
        Kind.WAIT,
        "strips-walks",
        KERNEL,
        "look_back_warp, kLookingBack + index",
        "look_back_warp, kLookingBack",
    ),
    Mistake(
        "a-walk-ends-in-a-stage-in-use",
        Kind.WAIT,
        "strips-walks",
        KERNEL,
        "Stage& stage = free_stage(k);\n        stage.turn",
        "Stage& stage = this->stage(k);\n        stage.turn",
    ),
)

CASES = {case.name: replace(case, seeds=3).check for case in CALLS} | {
    "strips-spans-of-spans": check_spans,
    "strips-sections": check_sections,
    "strips-passes": check_passes,
    "strips-walks": check_walks,
}
CASES |= {case.name: case.check for case in TURNED}
