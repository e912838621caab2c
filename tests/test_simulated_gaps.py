"""Columns with gaps (planning/gaps.py): short rows of columns, and the rows beside them, as one axis of a panel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simulator
from draws import NUMBERS, Array, Draw, draws, steps
from feature_cases import Case, twin
from simulator import CODE, DeviceCode, assert_same, prepare

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
