"""Linear recurrences in the simulated kernels, bit for bit against NumPy's way through the same order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import simulator
from feature_cases import FAMILIES, SHORT, UNITS, Array, Case, Draw, build_selected, of_family
from simulator import prepare, small_units

from cuscan.config import Target
from cuscan.operators import LINEAR_RECURRENCE

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


def steps(dtype: str = "float32", decay: str = "full", decay_dtype: str = "") -> Draw:
    """a and b. `decay` says where a is as large as b: in all axes, in none, in all but the scanned one, in it."""

    def one(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, low: float) -> Array:
        value = np.where(rng.random(shape) < 0.01, 0, rng.uniform(low, 1, shape))
        if dtype.startswith("complex"):
            value = value * np.exp(1j * rng.uniform(0, 2 * np.pi, shape))
        return value.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def draw(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
        along = [a == axis % len(shape) for a in range(len(shape))]
        kept = {"full": [True] * len(shape), "scalar": [False] * len(shape), "channel": [not a for a in along]}
        there = kept.get(decay, along)
        narrow = tuple(n if keep else 1 for n, keep in zip(shape, there, strict=True))
        return one(rng, narrow, decay_dtype or dtype, 0.9), one(rng, shape, dtype, -1)

    return draw


def recurrence(family: str, name: str, draw: Draw, **fields: Any) -> Case:
    return of_family(family, name, LINEAR_RECURRENCE, draw=draw, **fields)


def every_form() -> list[Case]:
    """Decays, carries in and out, and segments in each direction."""
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


def in_place() -> list[Case]:
    """The result over b, or over a."""
    return [
        recurrence(family, f"over-{name}", steps(), in_place=i, call={"reverse": name == "b"}, segments=segments)
        for family in FAMILIES
        for i, name, segments in ((1, "b", ""), (0, "a", "keys"))
    ]


def before() -> list[Case]:
    """Exclusive ones, with and without the total: what derivatives ask for."""
    total = {"exclusive": True, "include_initial": True}
    return [
        recurrence(family, "before-in-segments", steps(), segments="reset", initial="rows", call=total)
        for family in SHORT
    ]


def before_everywhere() -> list[Case]:
    call = {"exclusive": True, "reverse": True}
    return [recurrence(family, "before", steps(), initial="rows", call=call) for family in FAMILIES]


def lengths() -> list[Case]:
    """Around the borders of units, and chains of many; with the last state of each."""
    call = {"return_last": True}
    short = [1, 2, 4, 5, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1024, 1025, 33 * 512]
    return [
        Case(f"{n}-elements", LINEAR_RECURRENCE, (2, n), draw=steps(), initial="rows", call=call) for n in short
    ] + [
        Case(f"{n}-steps-of-columns", LINEAR_RECURRENCE, (n, 3), 0, draw=steps(), initial="rows", call=call)
        for n in (1, 7, 8, 9, 255, 256, 257, 513, 33 * 256)
    ]


# Tiles of one block that many groups take in turn: 60 of them, for three groups and seven stages.
TURNS = Case("rows-of-one-tile", LINEAR_RECURRENCE, (60, 4096), sms=1, draw=steps(), units=None, seeds=3)

CASES = [*every_form(), *every_dtype(), *in_place(), *before(), *lengths(), TURNS]


@pytest.fixture(scope="module", autouse=True)
def compiled(request: pytest.FixtureRequest) -> None:
    """The kernels, compiled side by side."""
    build_selected(request)


@pytest.mark.full
@pytest.mark.parametrize("case", before_everywhere(), ids=lambda case: case.name)
def test_what_precedes_each_step(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recurrence(case: Case) -> None:
    case.check()


def test_groups_take_turns() -> None:
    constants = dict(TURNS.prepare()[0].plan.config.constants)
    assert (constants["Groups"], constants["Stages"]) == (3, 7)


@pytest.mark.parametrize("family", ["tile-a-row", "tiles-shared", "columns-shared"])
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
