"""Mistakes in runs that come from global memory and go there in aligned pieces, wherever rows begin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from draws import Draw, draws
from feature_cases import Case

from mistakes import Kind, Mistake
from mistakes.features import BACKWARDS, UPRIGHT


def cut(draw: Draw) -> Draw:
    """The array without the first three elements of each row: rows have gaps, and it may begin anywhere."""
    return lambda rng, shape, axis: tuple(x[..., 3:] for x in draw(rng, (*shape[:-1], shape[-1] + 3), axis))


def upright(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[np.ndarray, ...]:
    return (np.sort(rng.integers(0, 9999, shape, np.int16), axis),)


HALVES = {"draw": draws("int16"), "segments": "reset"}
# Rows of a cluster: part of a warp tile, whole ones, whole vectors; results that are as wide as values, and wider ones.
SHORT = {"cluster": 4, "units": (2, 1)}
CALLS = {
    "pieces": Case("", "add", (7, 279), draw=cut(draws("int16")), segments="reset", call={"dtype": "int16"}, **SHORT),
    "pieces-full": Case("", "add", (7, 512), draw=cut(draws("int16")), in_place=0, call={"dtype": "int16"}, **SHORT),
    "pieces-long": Case(
        "", "add", (5, 768), draw=cut(draws("int16")), segments="reset", call={"dtype": "int16"}, cluster=4
    ),
    "pieces-back": Case("", "add", (5, 757), **HALVES, call={"dtype": "int16", **BACKWARDS}, cluster=4),
    "pieces-wide": Case("", "add", (5, 701), **HALVES),
    "pieces-upright": Case("", UPRIGHT, (7, 283), draw=cut(upright), **SHORT),
}

SHIFTED, TILE = "shifted.cuh", "warp_tile.cuh"
MISTAKES = (
    Mistake("pieces-of-another-place", Kind.PLACE, "pieces", SHIFTED, "(item, 0, -beyond), 0", "(item, 0, 0), 0"),
    Mistake(
        "pieces-not-counted-from-the-end", Kind.PLACE, "pieces-back", SHIFTED, "0 - (address + ", "0 - (address - "
    ),
    Mistake("the-piece-of-the-same-lane", Kind.PLACE, "pieces-full", SHIFTED, "(piece, (lane + 1)", "(piece, lane"),
    Mistake(
        "next-piece-of-the-same-vector",
        Kind.PLACE,
        "pieces-long",
        SHIFTED,
        "lane == target::kWarp - 1 ? other : next",
        "next",
    ),
    Mistake("the-last-lane-keeps-its-piece", Kind.STALE, "pieces-long", SHIFTED, "        other = next;\n", ""),
    Mistake("the-first-lane-keeps-its-run", Kind.STALE, "pieces-wide", SHIFTED, "        other = own;\n", ""),
    Mistake("run-before-of-the-same-vector", Kind.PLACE, "pieces-wide", SHIFTED, "lane == 0 ? other : own", "own"),
    Mistake("halves-of-a-run-swapped", Kind.ORDER, "pieces-wide", SHIFTED, "moved(before, run,", "moved(run, before,"),
    Mistake("first-piece-stored-whole", Kind.BOUND, "pieces-wide", SHIFTED, "lane > 0 || !is_first_vector", "true"),
    Mistake("elements-behind-the-last-stored", Kind.BOUND, "pieces", SHIFTED, "i - beyond < count)", "true)"),
    Mistake("last-elements-not-stored", Kind.LOST, "pieces-wide", SHIFTED, "if (lane == 0) put", "if (false) put"),
    Mistake("what-is-behind-the-end-finished", Kind.BOUND, "pieces", SHIFTED, "count < 0 ? count : 0, true", "0, true"),
    Mistake(
        "results-end-at-the-last-run", Kind.BOUND, "pieces", TILE, "kElements + kItems) - kItems - r", "kElements) - r"
    ),
    Mistake(
        "pieces-behind-the-end-not-loaded", Kind.LOST, "pieces", TILE, "count(r) + runs.beyond > 0", "count(r) > 0"
    ),
    Mistake(
        "the-piece-behind-a-row-not-loaded",
        Kind.LOST,
        "pieces-long",
        TILE,
        "if (lane == target::kWarp - 1 && runs.beyond > 0",
        "if (false",
    ),
    Mistake(
        "what-lies-between-rows-taken", Kind.BOUND, "pieces-upright", TILE, "if (i >= count(r)) run", "if (false) run"
    ),
    Mistake("pieces-before-an-array", Kind.BOUND, "pieces", TILE, "lowest >= span.lowest && ", ""),
    Mistake(
        "pieces-behind-an-array",
        Kind.BOUND,
        "pieces-long",
        TILE,
        " && highest + int64(sizeof(Value)) <= span.end",
        "",
    ),
)

# At least four schedules, since a race does not show in every one.
CASES = {name: replace(case, seeds=max(case.seeds, 4)).check for name, case in CALLS.items()}
