"""Mistakes in panels whose columns have gaps (planning/gaps.py)."""

from __future__ import annotations

from feature_cases import Case
from test_simulated_gaps import WAYS, check_initial_values_with_gaps, with_gaps

from mistakes import Kind, Mistake

TILE, SHARE = "panel_tile.cuh", "panel_share.cuh"
CALLS = (Case("gaps", "add", draw=with_gaps(), units=None, **WAYS["whole"]),)
MISTAKES = (
    Mistake(
        "columns-without-the-gaps-between-them",
        Kind.BOUND,
        "gaps",
        TILE,
        "geometry.gaps_before(place.columns - 1) *",
        "0 *",
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
)
CASES = {case.name: case.check for case in CALLS} | {"gaps-initial": check_initial_values_with_gaps}
