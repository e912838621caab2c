"""Columns with gaps (planning/gaps.py): short rows of columns, and the rows beside them, as one axis of a panel."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import simulator
from draws import NUMBERS, Array, Draw, arrays_of, draws, in_order, steps
from feature_cases import Case, twin
from selection import covering, each, pairs
from simulator import CODE, DeviceCode, Simulation, assert_same, prepare

import cuscan
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


def with_gaps(draw: Draw = NUMBERS, before: int = 0, behind: int = 1) -> Draw:
    """Rows of the values lack so many of their columns."""

    def drawn(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
        wide = draw(rng, (*shape[:-1], before + shape[-1] + behind), axis)
        return tuple(
            value[..., before : before + shape[-1]] if value.shape[-1] > shape[-1] else value for value in wide
        )

    return drawn


# A tile with the whole axis; tiles of a block's own; chunks that blocks share.
WAYS: dict[str, dict[str, Any]] = {
    "whole": {"shape": (70, 5, 6, 6), "axis": 1},
    "kept": {"shape": (9, 700, 4, 7), "axis": 1, "sms": 1},
    "shared": {"shape": (2, 2100, 3, 5), "axis": 1},
}
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"call": {"reverse": True, "exclusive": True}, "draw": with_gaps(behind=0, before=2)},
    "halves": {"draw": with_gaps(draws("float16"))},
    "pairs": {"draw": with_gaps(draws("float16"), behind=2)},
    "doubles": {"draw": with_gaps(draws("float64")), "initial": 1.5, "call": {"include_initial": True}},
    "wide-gaps": {"draw": with_gaps(behind=8)},
    "masked": {"masked": True},
    "reset": {"segments": "reset"},
    "keys": {"segments": "keys-full"},
    "offsets": {"segments": "offsets"},
    "rows": {"initial": "rows"},
    "carry": {"carry": "both"},
    "total": {"carry": "total"},
    "indices": {"op": INDEXED["max", "first"], "carry": "out"},
    "recurrence": {"op": LINEAR_RECURRENCE, "draw": with_gaps(steps())},
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("way", WAYS)
def test_columns_with_gaps(way: str, call: str) -> None:
    fields = {"op": "add", "draw": with_gaps(), "units": None, **WAYS[way], **CALLS[call]}
    case = Case(f"gaps-{way}-{call}", **fields)
    simulation, _ = case.prepare()
    constants = dict(simulation.plan.config.constants)
    assert simulation.plan.config.family == "panels" and constants["Gaps"]
    assert (way == "kept") == constants["Kept"] and (way == "shared") == simulation.plan.config.grid
    case.check()


@pytest.mark.parametrize("kind", ["mask", "reset", "keys"])
def test_flags_with_gaps_of_their_own(kind: str) -> None:
    rng = np.random.default_rng(0)
    value = rng.standard_normal((70, 5, 6, 6)).astype(np.float32)
    flags = rng.integers(0, 2, (70, 5, 6, 8)).astype(np.int16 if kind == "keys" else bool)[..., 1:-1]
    simulation = prepare(value, "add", axis=1, target=Target(90, 4, cluster=0), **{kind: flags})
    assert dict(simulation.plan.config.constants)["Gaps"]
    for seed in (1, 2):
        for result, wanted in zip(simulation.run_all(seed), twin(simulation, None), strict=True):
            assert_same(result, wanted)


def check_initial_values_with_gaps(code: DeviceCode) -> None:
    rng = np.random.default_rng(0)
    value, initial = (rng.standard_normal(shape).astype(np.float32)[..., 1:] for shape in ((70, 5, 6, 7), (70, 6, 9)))
    initial = initial[..., :6]
    simulation = prepare(value, "add", axis=1, initial=initial, target=Target(90, 4, cluster=0))
    assert dict(simulation.plan.config.constants)["Gaps"]
    for result, wanted in zip(simulation.run_all(1, code=code), twin(simulation, None), strict=True):
        assert_same(result, wanted)


def test_initial_values_with_gaps_of_their_own() -> None:
    check_initial_values_with_gaps(CODE)


@pytest.mark.parametrize("arch", [75, 80])
def test_columns_with_gaps_without_bulk_copies(arch: int) -> None:
    for way in WAYS.values():
        case = Case("gaps-older", "add", draw=with_gaps(), units=None, arch=arch, **way)
        assert dict(case.prepare()[0].plan.config.constants)["Gaps"]
        replace(case, seeds=1).check()


# ---- three axes beside the steps ------------------------------------------------------------------------------------

# Sizes and SMs with which a tile has a whole axis, blocks keep carries, or share panels.
SIZES = {
    "full": ((512, 3, 5, 21), 1),  # as many steps as tiles have
    "whole": ((37, 4, 5, 23), 4),
    "split": ((3000, 2, 2, 5), 32),  # so narrow that segments of thread rows lie apart
    "kept": ((1100, 3, 5, 21), 1),
    "shared": ((2600, 2, 9, 3), 32),
    "short": ((3, 6, 50, 7), 4),
}
ORDERS = tuple(itertools.permutations(range(4)))
FLAGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"reverse": True, "exclusive": True},
    "leading": {"include_initial": True, "initial": 3},
    "mask": {"mask": bool},
    "reset": {"reset": bool},
    "keys": {"keys": np.int16},
    "carry": {"return_carry": True},
}


@dataclass(frozen=True)
class Turned:
    """A scan along axis 0 whose values and results have different orders of axes in memory; flags have their own."""

    sizes: str
    values: tuple[int, ...]
    results: tuple[int, ...]
    dtype: str
    flag: str
    flags: tuple[int, ...] = (0, 1, 2, 3)  # the order of their axes

    def facets(self) -> Iterable[Hashable]:
        return each(self.sizes, self.values, self.results, self.dtype, self.flag)

    def pairs(self) -> Iterable[Hashable]:
        return pairs(self.sizes, self.values, self.results, self.dtype, self.flag)

    def prepare(self, out: Array) -> tuple[Simulation, dict[str, Any]]:
        """The launch, and what the call passes beside `out`."""
        (shape, sms), rng = SIZES[self.sizes], np.random.default_rng(3)
        keywords = {"axis": 0, "dtype": self.dtype, **FLAGS[self.flag]}
        for name in ("mask", "reset", "keys"):
            if name in keywords:
                flags = in_order(self.flags, shape, keywords[name])
                flags[...] = rng.integers(0, 2, shape)
                keywords[name] = flags
        value = in_order(self.values, shape, self.dtype)
        value[...] = rng.integers(0, 9, shape)
        with mock.patch.multiple("cuscan.planning.crossing", WASTEFUL=0, NARROWEST=2):
            return prepare(value, target=Target(90, sms, cluster=0), out=out, **keywords), {"x": value, **keywords}

    def check(self, code: DeviceCode = CODE) -> None:
        simulation, given = self.prepare(self.out())
        expected = arrays_of(cuscan.scan(**given, out=self.out()))
        for got, one in zip(arrays_of(simulation.run(1, code=code)), expected, strict=True):
            assert_same(got, one)

    def out(self) -> Array:
        """An array for the results."""
        shape = SIZES[self.sizes][0]
        return in_order(self.results, (shape[0] + (self.flag == "leading"), *shape[1:]), self.dtype)

    def spans_three_axes(self) -> bool:
        """Whether its tiles do."""
        config = self.prepare(self.out())[0].plan.config
        return config.family == "panels" and bool(dict(config.constants)["Gaps"])


@pytest.mark.parametrize("results", [(1, 3, 2, 0), (2, 1, 3, 0), (3, 2, 1, 0)])
@pytest.mark.parametrize("values", [(0, 1, 2, 3), (0, 2, 3, 1)])
def test_tiles_of_three_axes_without_elements(values: tuple[int, ...], results: tuple[int, ...]) -> None:
    """The last tile of a panel has the result of all elements alone."""
    case = Turned("full", values, results, "float32", "leading")
    assert case.spans_three_axes()
    case.check()


def turned() -> list[Turned]:
    """Scans whose tiles span three axes beside the steps."""
    rng = random.Random(1)
    chosen = itertools.product(SIZES, ORDERS, ORDERS, ("float32", "uint8", "float16", "int64"), FLAGS)
    some = rng.sample([one for one in chosen if one[1] != one[2]], 450)
    always = Turned("split", (2, 3, 0, 1), (3, 0, 1, 2), "uint8", "plain")  # rows are closer than columns of one
    drawn = [Turned(*one, flags=rng.choice(ORDERS)) for one in some]
    return [case for case in (always, *drawn) if case.spans_three_axes()]


@pytest.mark.parametrize("case", covering(turned(), Turned.facets, Turned.pairs))
def test_tiles_of_three_axes(case: Turned) -> None:
    case.check()
