"""What the simulator sees: device code with a mistake that only one of its eyes can notice, and what that one says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simulator
from simulator import (
    CODE,
    DeviceCode,
    Simulation,
    SimulationError,
    assert_same,
    new_workspace,
    prepare,
    run_overlapping,
    small_units,
)

import cuscan
from cuscan.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

Array = np.ndarray[Any, Any]

# One shape for each way of a launch to admit the next one, with its axis and the SMs.
SHAPES = {
    "rows": ((37, 100), -1, 4),
    "tiles": ((3, 1700), -1, 4),
    "columns": ((2, 700, 9), 1, 4),
    "strips": ((2, 700, 12), 1, 4),
    "strips-own": ((300, 128), 0, 1),
    "whole-rows": ((3, 700, 37), 1, 4),
}


def integers(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-999, 999, shape).astype(np.int32)


def value_of(family: str, seed: int = 0) -> Array:
    value = integers(SHAPES[family][0], seed)
    return value[..., ::-1] if family == "columns" else value


def planned(family: str, value: Array | None = None, **call: Any) -> Simulation:
    _, axis, sms = SHAPES[family]
    value = value_of(family) if value is None else value
    with small_units():
        return prepare(value, axis=axis, dtype="int32", target=Target(90, sms, cluster=0), **call)


def expect_notice(pattern: str, simulation: Simulation, code: DeviceCode, seeds: int = 2) -> None:
    with pytest.raises(SimulationError, match=pattern):
        for seed in range(seeds):
            simulation.run(seed, code=code)


# ---- accesses beyond an array --------------------------------------------------------------------

ONE_BY_ONE = "        if (i < count) vector.item[i] = *advance<kAccess>(item, step, i);"


@pytest.mark.parametrize("reverse", [False, True])
def test_plain_reads_beyond_an_array(reverse: bool) -> None:
    """Nothing that is stored depends on them. Every other seed has the array at the other end of its pages."""
    broken = CODE.broken("vectors.cuh", ONE_BY_ONE, ONE_BY_ONE.replace("if (i < count) ", ""))
    value = integers((1, 202))[:, ::2]
    simulation = planned("rows", value, reverse=reverse)
    where = "before the first" if reverse else "behind the end"
    expect_notice(f"touches 1 bytes from .* {where} of array 0", simulation, broken)


def test_vectors_read_beyond_an_array() -> None:
    """They end within 16 bytes of the array's end, where its page ends, too."""
    old = "if (kAccess == Access::kVector && count >= kItems) return load_whole"
    broken = CODE.broken("vectors.cuh", old, old.replace("count >= kItems", "count > 0"))
    expect_notice("touches 16 bytes from .* before the end of array 0", planned("rows", integers((1, 99))), broken)


# ---- launches that overlap -----------------------------------------------------------------------


def check_overlapping(family: str, code: DeviceCode, seeds: int, epoch: int = 0) -> None:
    axis = SHAPES[family][1]
    values = [value_of(family, seed) for seed in range(3)]
    simulations = [planned(family, value) for value in values]
    for seed in range(seeds):
        workspace = new_workspace(simulations[0].plan.workspace_bytes, epoch=epoch)
        launched = run_overlapping(simulations, seed, workspace=workspace, code=code, resident=24)
        for value, (result,) in zip(values, launched, strict=True):
            assert_same(result, cuscan.scan(value, axis=axis, dtype="int32"))


@pytest.mark.parametrize("family", SHAPES)
def test_launches_overlap(family: str) -> None:
    check_overlapping(family, CODE, seeds=3)


def test_tags_wrap_while_launches_overlap() -> None:
    for epoch in range(2**32 - 4, 2**32 - 1):  # the tag of the third, the second and the first launch is the last
        check_overlapping("tiles", CODE, seeds=1, epoch=epoch)


@pytest.mark.parametrize(
    ("family", "header"),
    [("rows", "kernels/rows.cuh"), ("whole-rows", "kernels/whole_rows.cuh"), ("columns", "kernels/columns.cuh")],
)
def test_no_wait_for_the_launch_before(family: str, header: str) -> None:
    broken = CODE.broken(header, "target::await_predecessors();", "")
    with pytest.raises(AssertionError):
        for seed in range(6):
            simulation = planned(family)
            assert_same(simulation.run(seed, code=broken, first_turn=300), simulation.run(seed))


@pytest.mark.parametrize(
    ("family", "header", "old", "new"),
    [
        (
            "tiles",
            "kernels/tiles.cuh",
            "        const uint32 share = this->share();\n        const bool early",
            "        target::admit_successor();\n        const uint32 share = this->share();\n        const bool early",
        ),
        ("tiles", "workspace.cuh", "ticket.number + 1 != tickets ||", "ticket.number != 0 ||"),
        ("tiles", "workspace.cuh", "if (!tags_wrap(tag)) target::admit_successor();", "target::admit_successor();"),
    ],
    ids=["admitted-before-tickets-are-taken", "renewed-with-the-first-ticket", "admitted-while-tags-wrap"],
)
def test_tickets_of_two_launches_mixed(family: str, header: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        check_overlapping(family, CODE.broken(header, old, new), seeds=6, epoch=2**32 - 3)
