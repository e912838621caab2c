"""Mistakes in panels, which scans of intervals notice, under many schedules."""

from __future__ import annotations

from mistakes import Check, Kind, Mistake

CASES: dict[str, Check] = {}  # those of kernels.py

CARRY, TILE, SHARE, KERNEL = "panel_carry.cuh", "panel_tile.cuh", "panel_share.cuh", "kernels/panels.cuh"
MISTAKES = (
    Mistake("the-tile-is-not-waited-for", Kind.WAIT, "panels-kept", KERNEL, "shared.arrived.wait(k);", ""),
    Mistake(
        "the-next-tile-comes-too-early",
        Kind.WAIT,
        "panels-kept",
        KERNEL,
        "target::sync_block();  // all have read: the next tile may come",
        "",
    ),
    Mistake(
        "rows-of-threads-scanned-too-early",
        Kind.WAIT,
        "panels",
        KERNEL,
        "target::sync_block();\n                scan_rows(now, here);",
        "scan_rows(now, here);",
    ),
    Mistake(
        "finished-before-rows-are-scanned",
        Kind.WAIT,
        "panels",
        KERNEL,
        "scan_rows(now, here);\n                target::sync_block();",
        "scan_rows(now, here);",
    ),
    Mistake(
        "results-stored-too-early",
        Kind.WAIT,
        "panels-whole",
        KERNEL,
        "target::sync_block();  // all results are there",
        "",
    ),
    Mistake(
        "a-turn-before-it-is-there",
        Kind.WAIT,
        "panels",
        KERNEL,
        "shared.turn = turn;\n            target::sync_block();",
        "shared.turn = turn;",
    ),
    Mistake(
        "rows-before-forgotten",
        Kind.LOST,
        "panels-kept",
        KERNEL,
        "row > 0 || this->has_left(now)",
        "this->has_left(now)",
    ),
    Mistake("tiles-before-forgotten", Kind.LOST, "panels-kept", KERNEL, "row > 0 || this->has_left(now)", "row > 0"),
    Mistake(
        "the-first-row-of-the-batch",
        Kind.PLACE,
        "panels",
        KERNEL,
        "uint64(geometry.batch[0].size) + outer)",
        "uint64(geometry.batch[0].size))",
    ),
    Mistake(
        "a-panel-begins-with-the-next",
        Kind.PLACE,
        "panels-wide",
        KERNEL,
        "int64(panel) * geometry.columns",
        "int64(panel + 1) * geometry.columns",
    ),
    Mistake("columns-of-another-panel-published", Kind.PLACE, "panels", KERNEL, "now.strip * width()", "0"),
    Mistake(
        "published-before-it-is-complete",
        Kind.WAIT,
        "panels",
        CARRY,
        "complete == tree.levels() ? all : complete;",
        "0;",
    ),
    Mistake(
        "folded-before-others-have-looked",
        Kind.WAIT,
        "panels",
        CARRY,
        "target::sync_warp();\n        if (exists && lane == 0) this->fold",
        "if (exists && lane == 0) this->fold",
    ),
    Mistake(
        "climbed-before-others-have-looked",
        Kind.WAIT,
        "panels",
        CARRY,
        "target::sync_warp();\n        if (exists && lane == 0) {",
        "if (exists && lane == 0) {",
    ),
    Mistake(
        "published-without-what-it-ends",
        Kind.LOST,
        "panels",
        CARRY,
        "while (level < levels() && number >> level & 1) ++level;",
        "",
    ),
    Mistake(
        "the-tile-behind-the-block",
        Kind.PLACE,
        "panels",
        CARRY,
        "begin + (1u << level) - 1",
        "begin + (1u << level) - 2",
    ),
    Mistake("blocks-not-waited-for", Kind.WAIT, "panels", CARRY, "while (!Tagged<T>::ready(", "if (!Tagged<T>::ready("),
    Mistake(
        "units-folded-once",
        Kind.LOST,
        "panels-kept",
        CARRY,
        "if (!tree.has_parts(number)) this->fold",
        "if (number == 0) this->fold",
    ),
    Mistake(
        "smaller-blocks-first",
        Kind.ORDER,
        "panels-kept",
        CARRY,
        "all = join<CarryOp>(has_any, all, unit(level, column));",
        "all = join<CarryOp>(has_any, unit(level, column), all);",
    ),
    Mistake(
        "parts-swapped",
        Kind.ORDER,
        "panels-kept",
        CARRY,
        "total = Op::combine(part(level, column), total);",
        "total = Op::combine(total, part(level, column));",
    ),
    Mistake(
        "units-of-parts",
        Kind.PLACE,
        "panels-kept",
        CARRY,
        "(2 + level - tree.part_levels) * columns",
        "(2 + level) * columns",
    ),
    Mistake(
        "loads-beyond-the-array", Kind.BOUND, "panels-whole", TILE, "if (at >= lowest && at + 16 <= end)", "if (true)"
    ),
    Mistake(
        "stores-beyond-the-row",
        Kind.BOUND,
        "panels-wide",
        TILE,
        "if (at >= begin && at + 16 <= begin + pieces.bytes)",
        "if (true)",
    ),
    Mistake(
        "the-last-pieces-forgotten",
        Kind.BOUND,
        "panels-wide",
        TILE,
        "(bytes + 2 * kLine - 2) / kLine * kOfLine",
        "bytes / kLine * kOfLine",
    ),
    Mistake(
        "pieces-of-the-first-row", Kind.PLACE, "panels-wide", TILE, "int(beyond) + int(segment) * pitch", "int(beyond)"
    ),
    Mistake("every-row-begins-with-a-piece", Kind.PLACE, "panels-wide", TILE, "% 16 - back", "* 0 - back"),
    Mistake(
        "results-beyond-the-end", Kind.BOUND, "panels-whole", SHARE, "exists(slot) ? results - begin : 0;", "kSteps;"
    ),
    Mistake(
        "the-first-run-forgotten",
        Kind.LOST,
        "panels-sums",
        SHARE,
        "if (run + 1 < kRuns) runs.push(run, of_run(slot, run));\n            store_run",
        "store_run",
    ),
    Mistake(
        "slots-side-by-side",
        Kind.PLACE,
        "panels-sums",
        SHARE,
        "const int at = column + slot * apart;",
        "const int at = column + slot;",
    ),
)
