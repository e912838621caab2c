"""Linear recurrences in the simulated kernels, compared bit for bit with NumPy in the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simulator
from draws import Draw, odd_steps, steps
from feature_cases import FAMILIES, SHORT, TURNS, UNITS, Case, of_family
from selection import covering, facets_of, pairs_of
from simulator import prepare, small_units

from cuscan.operators import LINEAR_RECURRENCE
from cuscan.planning.config import Access, Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


def recurrence(family: str, name: str, draw: Draw, **fields: Any) -> Case:
    return of_family(family, name, LINEAR_RECURRENCE, draw=draw, **fields)


def every_form() -> list[Case]:
    """Decays, carries in and out, and segments, in both directions."""
    last = {"return_last": True}
    backwards = {"return_last": True, "reverse": True}
    return [
        case
        for family in FAMILIES
        for case in (
            recurrence(family, "plain", steps()),
            recurrence(family, "scalar", steps(decay="scalar"), initial=0.5),
            recurrence(family, "channel", steps(decay="channel"), initial="rows", call=last),
            recurrence(family, "in-time", steps(decay="time"), initial="rows", call={"reverse": True}),
            recurrence(family, "backwards", steps(), initial="rows", call=backwards),
            recurrence(family, "reset", steps(), segments="reset", initial="rows", call=last),
            recurrence(family, "reset-all", steps(), segments="reset-all", initial="rows", call=last),
            recurrence(family, "reset-backwards", steps(), segments="reset", initial="rows", call=backwards),
            recurrence(family, "offsets", steps(), segments="offsets-empty", initial="rows", call=last),
            recurrence(family, "offsets-edges", steps(), segments="offsets", initial="rows", call=last),
            recurrence(family, "offsets-backwards", steps(), segments="offsets", initial="rows", call=backwards),
            recurrence(family, "keys", steps(decay="scalar"), segments="keys"),
            recurrence(family, "keys-channel", steps(decay="channel"), segments="keys-full", initial=-2.0, call=last),
        )
    ]


def every_dtype() -> list[Case]:
    names = ("float16", "bfloat16", "float64", "complex64", "complex128")
    pairs = [(dtype, dtype) for dtype in names]
    pairs += [("bfloat16", "float32"), ("float32", "bfloat16"), ("complex64", "float32"), ("float64", "int32")]
    call = {"return_last": True}
    return [
        recurrence(family, f"{dtype}-by-{decay}", steps(dtype, decay_dtype=decay), initial="rows", call=call)
        for family in SHORT
        for dtype, decay in pairs
    ] + [
        recurrence(family, f"{dtype}-in-segments", steps(dtype, "scalar"), segments="reset", initial="rows", call=call)
        for family in SHORT
        for dtype in names
    ]


def odd_decays() -> list[Case]:
    """Decays that are not finite, or the mark of a restart."""
    return [
        recurrence(
            family, f"odd-{dtype}-by-{decays}", odd_steps(dtype, decays), segments=segments, initial="rows", call=call
        )
        for family in SHORT
        for dtype, decays, segments, call in (
            ("float32", "", "reset", {"return_last": True}),
            ("float64", "", "reset", {}),
            ("float32", "float64", "reset", {}),
            ("complex64", "", "offsets", {"reverse": True}),
            ("bfloat16", "float16", "reset", {"exclusive": True}),
            ("float32", "", "", {}),
        )
    ]


def in_place() -> list[Case]:
    """The result overwrites b, or a."""
    return [
        recurrence(family, f"over-{name}", steps(), in_place=i, call={"reverse": name == "b"}, segments=segments)
        for family in FAMILIES
        for i, name, segments in ((1, "b", ""), (0, "a", "keys"))
    ]


def before() -> list[Case]:
    """Exclusive recurrences, and recurrences with the total in segments, as derivatives use them."""
    exclusive, total = {"exclusive": True, "reverse": True}, {"exclusive": True, "include_initial": True}
    return [recurrence(family, "before", steps(), initial="rows", call=exclusive) for family in FAMILIES] + [
        recurrence(family, "before-in-segments", steps(), segments="reset", initial="rows", call=total)
        for family in SHORT
    ]


def lengths() -> list[Case]:
    """Lengths around the borders of units, and chains of many units, with the last states."""
    call = {"return_last": True}
    short = [1, 2, 4, 5, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1024, 1025, 33 * 512]
    return [
        Case(f"{n}-elements", LINEAR_RECURRENCE, (2, n), draw=steps(), initial="rows", call=call) for n in short
    ] + [
        Case(f"{n}-steps-of-columns", LINEAR_RECURRENCE, (n, 3), 0, draw=steps(), initial="rows", call=call)
        for n in (1, 7, 8, 9, 255, 256, 257, 513, 33 * 256)
    ]


CASES = [*every_form(), *every_dtype(), *odd_decays(), *in_place(), *before(), *lengths(), TURNS]


@pytest.mark.parametrize(
    "case", covering(CASES, lambda case: facets_of(case, FAMILIES), lambda case: pairs_of(case, FAMILIES))
)
def test_recurrence(case: Case) -> None:
    case.check()


def test_groups_take_turns() -> None:
    constants = dict(TURNS.prepare()[0].plan.config.constants)
    assert (constants["Groups"], constants["Stages"]) == (3, 7)


# ---- decays that do not vary along the axis ------------------------------------------------------

STRIPS: dict[str, dict[str, Any]] = {
    "flat": {"shape": (2, 700, 12), "axis": 1},
    "pairs": {"shape": (4500, 2), "axis": 0},
    "wide": {"shape": (700, 52), "axis": 0},
    "own": {"shape": (300, 128), "axis": 0, "sms": 1},
}


def still(way: str, name: str, decay: str, dtype: str = "float32", **fields: Any) -> Case:
    fields = {"seeds": 1, "units": None, **STRIPS[way], **fields}
    return Case(f"{way}-{name}", LINEAR_RECURRENCE, draw=steps(dtype, decay), **fields)


def decays_that_stand_still() -> list[Case]:
    last, backwards = {"return_last": True}, {"return_last": True, "reverse": True}
    return [
        still("flat", "number", "scalar", call=last, initial="rows"),
        still("flat", "number-backwards", "scalar", call=backwards, initial=0.5),
        still("flat", "columns-backwards", "channel", "float16", call=backwards, initial="rows"),
        still("pairs", "columns", "channel", "float64", masked=True),
        still("wide", "columns", "channel", call=last, initial="rows"),
        still("wide", "columns-backwards", "channel", call=backwards),
        still("wide", "number", "scalar", masked=True),
        still("own", "number-backwards", "scalar", call=backwards, initial="rows"),
        still("own", "columns", "channel", call=last),
    ]


@pytest.mark.parametrize("case", decays_that_stand_still(), ids=lambda case: case.name)
def test_strips_read_decays_that_stand_still_from_memory(case: Case) -> None:
    config, way = case.prepare()[0].plan.config, case.name.partition("-")[0]
    constants = dict(config.constants)
    assert (config.family, config.grid) == ("strips", way != "own")
    assert constants["Flat"] == (way in ("flat", "pairs"))
    assert constants["Back"] == (constants["Flat"] and case.call.get("reverse", False))
    assert config.values[0].access is Access.BROADCAST or config.values[0].by_value
    case.check()


@pytest.mark.parametrize("way", STRIPS)
def test_decays_that_hold_for_all_columns_vary_along_the_axis(way: str) -> None:
    """They lie along the axis, and tiles have them once for each column."""
    case = still(way, "in-time", "time", call={"return_last": True})
    config = case.prepare()[0].plan.config
    if way == "own":
        assert config.family == "panels"
    else:
        assert (config.family, config.values[0].access) == ("strips", Access.ALONG)
    case.check()


@pytest.mark.parametrize("way", ["flat", "pairs", "wide"])
def test_a_mask_that_lies_against_the_order_of_the_values(way: str) -> None:
    """In a reversed scan it runs forwards. The decay, which is one number, has no order."""
    case = still(way, "flipped-mask", "scalar")
    mask = np.random.default_rng(7).random(case.shape) < 0.7
    replace(case, call={"mask": np.flip(mask, case.axis), "reverse": True}).check()


@pytest.mark.parametrize("family", ["tile-a-row", "tiles-shared", "panels-shared"])
def test_chunks_continue_a_sequence(family: str) -> None:
    """The carry out of one chunk is the carry in of the next: integers, so that no order matters."""
    case = of_family(family, "", LINEAR_RECURRENCE)
    rng = np.random.default_rng(3)
    a, b = rng.choice([-1.0, 0, 1], (2, *case.shape), p=[0.49, 0.02, 0.49]).astype(np.float32)
    state, n = np.zeros(np.delete(case.shape, case.axis), np.float32), case.shape[case.axis]
    h, expected = np.zeros_like(state), np.empty_like(b)
    for t in range(n):
        place = (slice(None),) * (case.axis % b.ndim) + (t,)
        h = a[place] * h + b[place]
        expected[place] = h
    for first, end in ((0, 300), (300, n)):
        cut = (slice(None),) * (case.axis % b.ndim) + (slice(first, end),)
        with small_units(*UNITS):
            call = {
                "axis": case.axis,
                "initial": state,
                "return_last": True,
                "target": Target(case.arch, case.sms, cluster=case.cluster),
            }
            result, state = prepare((a[cut], b[cut]), LINEAR_RECURRENCE, **call).run()
        np.testing.assert_array_equal(result, expected[cut])
    np.testing.assert_array_equal(state, h)
