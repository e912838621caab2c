"""Short rows with gaps between them, and others behind stretches of rows (thread_rows): values, flags and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simulator
from draws import Array
from feature_cases import twin
from simulator import CODE, DeviceCode, Memory, Simulation, assert_same, prepare

from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

EVERY = slice(None)
# Shape of the array, and the part of it that is scanned, along the last axis.
PARTS: dict[str, tuple[tuple[int, ...], tuple[slice, ...]]] = {
    "stretches": ((400, 4, 5), (EVERY, slice(-1))),
    "stretches-of-a-batch": ((3, 150, 41, 2), (EVERY, slice(1, -1), slice(1, -1))),
    "rows": ((900, 9), (EVERY, slice(1, -2))),
    "rows-in-stretches": ((300, 4, 10), (EVERY, slice(-1), slice(-3))),
}


def part(array: Array, name: str) -> Array:
    return array[PARTS[name][1]]


def drawn(name: str, dtype: str) -> Array:
    return part(np.random.default_rng(0).integers(0, 9, PARTS[name][0]).astype(dtype), name)


def result_of(name: str, dtype: str, shift: int = 0) -> Array:
    """An array of results with the same gaps, that begins some bytes beyond a multiple of 256."""
    shape = PARTS[name][0]
    strides = np.empty(shape, dtype).strides
    return part(Memory.empty(shape, strides, np.dtype(dtype), shift).array, name)


def check(simulation: Simulation, code: DeviceCode = CODE, seeds: int = 2) -> None:
    assert simulation.plan.config.family == "thread_rows"
    for seed in range(seeds):
        for result, wanted in zip(simulation.run_all(seed, code=code), twin(simulation, None), strict=True):
            assert_same(result, wanted)


def planned(name: str, of: str = "float32", op: Any = "add", *, arch: int = 90, **call: Any) -> Simulation:
    values = tuple(drawn(name, of) for _ in range(2 if op is LINEAR_RECURRENCE else 1))
    return prepare(values if len(values) > 1 else values[0], op, axis=-1, target=Target(arch, 4), **call)


@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize("name", ["stretches", "stretches-of-a-batch", "rows-in-stretches"])
def test_values_in_stretches(name: str, arch: int) -> None:
    """Gaps move with the values. Blocks have several stretches."""
    for dtype in ("uint8", "float32"):
        simulation = planned(name, dtype, arch=arch, dtype=dtype)
        rows = drawn(name, dtype)[..., 0].size
        assert simulation.plan.grid <= rows // 100
        check(simulation)


def check_results(code: DeviceCode, name: str) -> None:
    for dtype in ("float32", "float16"):
        check(planned(name, dtype, out=result_of(name, dtype, 4)), code)


@pytest.mark.parametrize("name", ["stretches", "rows", "rows-in-stretches"])
def test_results_with_gaps(name: str) -> None:
    """No byte between results changes."""
    check_results(CODE, name)


def test_units_that_end_behind_a_row() -> None:
    """Threads write two results at a time, of rows of seven. Their gaps are checked above."""
    name = "rows-in-stretches"
    simulation = planned(name, "float16", out=result_of(name, "float16", 4))
    assert dict(simulation.plan.config.constants)["ResultUnit"] == 2


@pytest.mark.parametrize("name", ["rows", "rows-in-stretches"])
@pytest.mark.parametrize("reverse", [False, True])
def test_in_place(name: str, reverse: bool) -> None:
    value = drawn(name, "float16")
    check(prepare(value, axis=-1, out=value, reverse=reverse, exclusive=True, target=Target(90, 4)))


@pytest.mark.parametrize("kind", ["mask", "reset", "keys"])
def test_flags_in_stretches(kind: str) -> None:
    name = "rows-in-stretches"
    check(planned(name, **{kind: drawn(name, "int16" if kind == "keys" else "bool")}), seeds=1)
    check(planned(name, **{kind: np.ascontiguousarray(drawn(name, "int16" if kind == "keys" else "bool"))}), seeds=1)


@pytest.mark.parametrize("op", [LINEAR_RECURRENCE, INDEXED["max", "first"]], ids=["recurrence", "indices"])
def test_several_arrays(op: Any) -> None:
    check(planned("stretches", op=op, reverse=True))
