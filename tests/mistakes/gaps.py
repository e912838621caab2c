"""Mistakes in panels whose columns have gaps (planning/gaps.py), and in short rows with gaps (shared_rows.cuh)."""

from __future__ import annotations

import functools

from feature_cases import Case
from test_simulated_gaps import WAYS, Turned, check_initial_values_with_gaps, with_gaps
from test_simulated_stretches import PARTS, check_results

from mistakes import Kind, Mistake

TILE, SHARE, PANELS, ROWS = "panel_tile.cuh", "panel_share.cuh", "kernels/panels.cuh", "shared_rows.cuh"
CALLS = (Case("gaps", "add", draw=with_gaps(), units=None, **WAYS["whole"]),)
THREE_AXES = Turned("whole", (3, 2, 0, 1), (2, 0, 1, 3), "int64", "mask", (3, 0, 2, 1))  # panels of a part of the rows
MISTAKES = (
    Mistake(
        "columns-without-the-gaps-between-them",
        Kind.BOUND,
        "gaps",
        TILE,
        "return geometry.columns_of_row() * column + gap;",
        "return geometry.columns_of_row() * column;",
    ),
    Mistake("columns-without-the-gaps-before-them", Kind.PLACE, "gaps", SHARE, " + at.gaps * gap;", ";"),
    Mistake(
        "a-gap-one-column-early",
        Kind.PLACE,
        "gaps",
        TILE,
        "uint64(column) * uint64(reciprocal)",
        "uint64(column + 1) * uint64(reciprocal)",
    ),
    Mistake("initial-values-without-gaps", Kind.PLACE, "gaps-initial", TILE, "gaps * geometry.gap(a);", "0;"),
    Mistake(
        "columns-as-far-apart-in-a-tile-as-in-memory",
        Kind.PLACE,
        "three-axes",
        SHARE,
        "tile.geometry.gap_in_tile(array)}",
        "int(tile.geometry.gap(array))}",
    ),
    Mistake(
        "a-panel-without-the-gaps-before-it",
        Kind.PLACE,
        "three-axes",
        PANELS,
        "in.panel * geometry.gaps_before(int(geometry.columns))",
        "0 * geometry.gaps_before(int(geometry.columns))",
    ),
    Mistake(
        "sets-of-groups-side-by-side",
        Kind.PLACE,
        "three-axes",
        TILE,
        "group / of_set * gap; }",
        "group / of_set * 0 * gap; }",
    ),
    Mistake(
        "edges-where-sets-of-groups-begin-are-left-out",
        Kind.LOST,
        "three-axes",
        TILE,
        " | uint64(this->gap_behind_set());",
        ";",
    ),
    Mistake(
        "one-set-of-groups",
        Kind.LOST,
        "three-axes",
        TILE,
        "all.of_set * (has(2) ? extent(set) : 1);",
        "all.of_set;",
    ),
    Mistake(
        "rows-without-the-gaps-behind-stretches",
        Kind.PLACE,
        "short-stretches",
        ROWS,
        "if (!Config::kTogether || rows.gap == 0) return bytes;",
        "if (bytes >= 0) return bytes;",
    ),
    Mistake(
        "gaps-counted-from-the-second-row",
        Kind.PLACE,
        "short-stretches",
        ROWS,
        "int(uint32(number) / uint32(geometry.stretch))",
        "int(uint32(number + 1) / uint32(geometry.stretch))",
    ),
    Mistake(
        "gaps-behind-stretches-of-results-written",
        Kind.BOUND,
        "short-stretches",
        ROWS,
        "(have_gaps || rows.gap != 0)",
        "have_gaps",
    ),
    Mistake(
        "gaps-between-results-written",
        Kind.BOUND,
        "short-rows",
        ROWS,
        "(have_gaps || rows.gap != 0)",
        "(rows.gap != 0)",
    ),
    Mistake(
        "rows-of-results-as-stretches",
        Kind.BOUND,
        "short-rows-in-stretches",
        ROWS,
        "have_gaps ? 1 : int(geometry.stretch)",
        "int(geometry.stretch)",
    ),
)
CASES = {case.name: case.check for case in CALLS} | {
    "gaps-initial": check_initial_values_with_gaps,
    "three-axes": THREE_AXES.check,
    **{f"short-{name}": functools.partial(check_results, name=name) for name in PARTS},
}
