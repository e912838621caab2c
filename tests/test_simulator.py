"""The simulator's checks: device code with a mistake that only one of them can notice, and its message."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import simulator
from selection import covering
from simulator import (
    CODE,
    HEADERS,
    WATCHED,
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
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

Array = np.ndarray[Any, Any]

# One shape for each way in which a launch admits the next one, with its axis and the SMs.
SHAPES = {
    "rows": ((37, 100), -1, 4),
    "thread-rows": ((150, 27), -1, 4),
    "staged-rows": ((37, 123), -1, 4),
    "cluster": ((3, 2300), -1, 4),
    "tiles": ((3, 1700), -1, 4),
    "tiles-few": ((3, 1500), -1, 4),
    "panels": ((2, 700, 9), 1, 4),
    "panels-kept": ((12, 700, 9), 1, 1),
    "panels-shared": ((2, 2700, 9), 1, 4),
    "strips": ((2, 700, 12), 1, 4),
    "strips-own": ((300, 128), 0, 1),
    "whole-rows": ((3, 700, 37), 1, 4),
}
# Blocks share these scans, and take tickets.
SHARED = ("tiles", "tiles-few", "panels-shared", "strips", "whole-rows")
OFTEN = ("tiles", "panels", "panels-shared")  # the default run has these, too


def integers(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-999, 999, shape).astype(np.int32)


def value_of(family: str, seed: int = 0) -> Array:
    value = integers(SHAPES[family][0], seed)
    return value[..., ::-1] if family.startswith("panels") else value


def planned(family: str, value: Array | None = None, **call: Any) -> Simulation:
    _, axis, sms = SHAPES[family]
    value = value_of(family) if value is None else value
    with small_units():
        target = Target(90, sms, cluster=16 if family == "cluster" else 0)
        return prepare(value, axis=axis, dtype="int32", target=target, **call)


def expect_notice(pattern: str, simulation: Simulation, code: DeviceCode, seeds: int = 2) -> None:
    with pytest.raises(SimulationError, match=pattern):
        for seed in range(seeds):
            simulation.run(seed, code=code)


# ---- accesses beyond an array --------------------------------------------------------------------

ONE_BY_ONE = "        if (i < count) vector.item[i] = *advance<kAccess>(item, step, i);"


@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.full)])
def test_plain_reads_beyond_an_array(reverse: bool) -> None:
    """No result depends on them. With every other seed the array lies at the other end of its pages."""
    broken = CODE.broken("vectors.cuh", ONE_BY_ONE, ONE_BY_ONE.replace("if (i < count) ", ""))
    value = integers((1, 202))[:, ::2]
    simulation = planned("rows", value, reverse=reverse)
    where = "before the first" if reverse else "behind the end"
    expect_notice(f"touches 1 bytes from .* {where} of array 0", simulation, broken)


def test_vectors_read_beyond_an_array() -> None:
    """They end within 16 bytes of the array's end, where its page ends as well."""
    old = "if (kAccess == Access::kVector && count >= kItems) return load_whole"
    broken = CODE.broken("vectors.cuh", old, old.replace("count >= kItems", "count > 0"))
    expect_notice("touches 16 bytes from .* before the end of array 0", planned("rows", integers((1, 99))), broken)


@pytest.mark.full  # it takes all the time that a thread may take
def test_a_thread_that_works_without_end() -> None:
    endless = ONE_BY_ONE.replace("(i < count)", "(i < count) for (volatile bool on = true; on;)")
    broken = CODE.broken("vectors.cuh", ONE_BY_ONE, endless)
    expect_notice("hang: it works for more than 5 seconds", planned("rows", integers((1, 202))[:, ::2]), broken, 1)


def test_a_division_by_zero() -> None:
    """A GPU does not notice it."""
    broken = CODE.broken("vectors.cuh", ONE_BY_ONE, ONE_BY_ONE.replace("(i < count)", "(i / (count - count) < count)"))
    expect_notice("divides by zero", planned("rows", integers((1, 202))[:, ::2]), broken, 1)


def test_one_element_behind_the_end() -> None:
    """There may be canaries, so only a watched kernel notices the access."""
    broken = WATCHED.broken("vectors.cuh", ONE_BY_ONE, ONE_BY_ONE.replace("i < count", "i <= count"))
    simulation = planned("rows", integers((1, 205))[:, ::2])
    expect_notice("touches 4 bytes from .* behind the end of array 0", simulation, broken)


# ---- aligned accesses ----------------------------------------------------------------------------


def test_a_misaligned_access() -> None:
    """A CPU does not notice it; a watched kernel does."""
    unit = "constexpr int kUnit = kAligned < kMany ? kAligned : kMany;"
    broken = WATCHED.broken("kernels/thread_rows.cuh", unit, "constexpr int kUnit = kMany;")
    expect_notice("misaligned access at an address that is .* in .*vectors.cuh, line", planned("thread-rows"), broken)


VIEWS: dict[str, Callable[[Array], Array]] = {
    "from the second on": lambda x: x[..., 1:],
    "but the last": lambda x: x[..., :-1],
    "mirrored": lambda x: x[..., ::-1],
    "every third": lambda x: x[..., ::3],
}
ROWS = [((n, length), -1) for n, length in ((3000, 7), (900, 12), (500, 60), (500, 63), (40, 2000), (2, 9001))]
ACROSS = [((n, columns), 0) for n, columns in ((5000, 2), (2100, 7), (3000, 34), (700, 259), (2, 9001))]
ANYWHERE = covering(
    itertools.product(VIEWS, [*ROWS, *ACROSS, ((30, 21, 6), 1)], ("int16", "uint8", "float64"), (False, True)),
    lambda view, shape, dtype, reverse: ((view, shape[1] < 0, reverse), shape, (dtype, view)),
)


@pytest.mark.parametrize(("view", "shape", "dtype", "reverse"), ANYWHERE)
def test_no_access_is_misaligned(view: str, shape: tuple[Any, int], dtype: str, reverse: bool) -> None:
    """Values and a mask that begin anywhere; results that are dense, and that begin anywhere."""
    sizes, axis = shape
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    value, mask = VIEWS[view](numbers.astype(dtype)), VIEWS[view](numbers % 3 > 0)
    expected = cuscan.scan(value, axis=axis, dtype=dtype, mask=mask, reverse=reverse)
    for out in (None, VIEWS[view](np.zeros(sizes, dtype))):
        simulation = prepare(value, axis=axis, dtype=dtype, mask=mask, reverse=reverse, out=out, target=Target(90, 2))
        assert_same(simulation.run(code=WATCHED), expected)


# ---- launches that overlap -----------------------------------------------------------------------


def check_overlapping(family: str, code: DeviceCode, seeds: int, epoch: int = 0) -> None:
    axis = SHAPES[family][1]
    values = [value_of(family, seed) for seed in range(3)]
    simulations = [planned(family, value) for value in values]
    assert simulations[0].plan.config.grid == (family in SHARED)
    for seed in range(seeds):
        workspace = new_workspace(simulations[0].plan.workspace_bytes, epoch=epoch)
        launched = run_overlapping(simulations, seed, workspace=workspace, code=code, resident=24)
        for value, (result,) in zip(values, launched, strict=True):
            assert_same(result, cuscan.scan(value, axis=axis, dtype="int32"))


@pytest.mark.parametrize("family", [f if f in OFTEN else pytest.param(f, marks=pytest.mark.full) for f in SHAPES])
def test_launches_overlap(family: str) -> None:
    """These are watched kernels, whose stores also become visible late."""
    check_overlapping(family, WATCHED, seeds=3, epoch=2**32 - 3)


def test_tags_wrap_while_launches_overlap() -> None:
    for epoch in range(2**32 - 4, 2**32 - 1):  # the last epoch is that of the third, the second and the first launch
        check_overlapping("tiles", WATCHED, seeds=2, epoch=epoch)


@pytest.mark.parametrize(
    ("family", "header"),
    [
        ("rows", "kernels/rows.cuh"),
        pytest.param("cluster", "kernels/cluster.cuh", marks=pytest.mark.full),
        pytest.param("panels", "kernels/panels.cuh", marks=pytest.mark.full),
        pytest.param("panels-shared", "kernels/panels.cuh", marks=pytest.mark.full),
        pytest.param("whole-rows", "kernels/whole_rows.cuh", marks=pytest.mark.full),
    ],
)
def test_no_wait_for_the_launch_before(family: str, header: str) -> None:
    """The launch before ends at turn 3000, long after a block that does not wait has read its first values."""
    old = {
        "panels": "{\n            target::wait_for_previous_kernel();",
        "panels-shared": "if constexpr (Config::kGrid) target::wait_for_previous_kernel();",
    }.get(family, "target::wait_for_previous_kernel();")
    broken = CODE.broken(header, old, old.replace("target::wait_for_previous_kernel();", ";"))
    with pytest.raises(AssertionError):
        for seed in range(6):
            simulation = planned(family)
            assert_same(simulation.run(seed, code=broken, first_turn=3000), simulation.run(seed))


@pytest.mark.parametrize(
    ("family", "header", "old", "new"),
    [
        (
            "tiles",
            "kernels/tiles.cuh",
            "        const uint32 share = this->share();\n        const bool early",
            "        target::allow_next_kernel();\n        const uint32 share = this->share();\n"
            "        const bool early",
        ),
        pytest.param(
            *("tiles", "workspace.cuh", "ticket.number + 1 != tickets ||", "ticket.number != 0 ||"),
            marks=pytest.mark.full,
        ),
        (
            "panels-shared",
            "kernels/panels.cuh",
            "        if constexpr (!Config::kGrid) {\n            target::wait",
            "        if constexpr (Config::kGrid) target::allow_next_kernel();\n"
            "        if constexpr (!Config::kGrid) {\n            target::wait",
        ),
        pytest.param(
            *(
                "tiles",
                "workspace.cuh",
                "if (!epochs_wrap(epoch)) target::allow_next_kernel();",
                "target::allow_next_kernel();",
            ),
            marks=pytest.mark.full,
        ),
    ],
    ids=[
        "admitted-before-tickets-are-taken",
        "renewed-with-the-first-ticket",
        "admitted-after-the-first-ticket",
        "admitted-while-tags-wrap",
    ],
)
def test_tickets_of_two_launches_mixed(family: str, header: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        check_overlapping(family, CODE.broken(header, old, new), seeds=6, epoch=2**32 - 3)


# ---- memory order ------------------------------------------------------------------------------

# In place of the family rows: a block writes data for another one, and signals it. `result` is that of the first row.
MESSAGE = """
#pragma once
#include "../elements.cuh"
#include "../workspace.cuh"
namespace cuscan {
template <class Config>
void rows(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial&,
          const Geometry<Config>&) {
    target::wait_for_previous_kernel();
    int32* const result = (int32*)origin.array[1];
    uint64* const words = workspace->words();
    int32* const data = (int32*)(words + 1);
    const int thread = target::thread_index();
    if (target::block_index() == 0) {
        %s
    } else if (target::block_index() == 1 && thread == 0) {
        while (target::load_relaxed(words) == 0) target::pause();
        result[0] = data[0], result[1] = data[1];
    }
}
}  // namespace cuscan
"""
ALONE = "if (thread == 0) data[0] = 7, data[1] = 8, %s target::store_relaxed(words, 1);"
TOGETHER = (
    "if (thread < 2) data[thread] = 7 + thread; %s if (thread == 0) target::fence(), target::store_relaxed(words, 1);"
)


def messages(sender: str) -> set[tuple[int, int]]:
    """The data that arrive, under some schedules."""
    simulation = planned("rows")
    code = DeviceCode({**HEADERS, "kernels/rows.cuh": MESSAGE % sender}, watched=True)
    return {
        tuple(simulation.run(seed, code=code, workspace=new_workspace(256), resident=3)[0, :2].tolist())
        for seed in range(30)
    }


def test_stores_before_a_fence_are_seen() -> None:
    assert messages(ALONE % "target::fence(),") == {(7, 8)}
    assert messages(TOGETHER % "target::sync_warp();") == {(7, 8)}


def test_stores_without_a_fence_are_seen_late_and_in_any_order() -> None:
    seen = messages(ALONE % "")
    assert {first == 7 for first, _ in seen} == {second == 8 for _, second in seen} == {False, True}
    assert len(seen) > 2
    assert len(messages(TOGETHER % "target::ballot(true);")) > 1


@pytest.mark.parametrize(
    ("why", "epoch"),
    [("the next launch may take tickets as soon as it is allowed to start", 0), ("as in renew_after", 2**32 - 3)],
    ids=["when-all-are-taken", "when-tags-wrap"],
)
def test_tickets_renewed_without_a_fence(why: str, epoch: int) -> None:
    """The next launch may already be admitted, and take its tickets."""
    broken = ("workspace.cuh", f"        target::fence();  // {why}\n", "")
    check_overlapping("tiles", CODE.broken(*broken), seeds=6, epoch=epoch)
    with pytest.raises(AssertionError):
        check_overlapping("tiles", WATCHED.broken(*broken), seeds=6, epoch=epoch)


# ---- bulk copies to global memory ------------------------------------------------------------------


def test_a_source_is_written_anew_before_it_was_read() -> None:
    broken = CODE.broken("kernels/whole_rows.cuh", "                target::wait_for_bulk_stores();\n", "")
    with pytest.raises(AssertionError):
        check_overlapping("whole-rows", broken, seeds=6)


UNFENCED = {
    "whole-rows": ("kernels/whole_rows.cuh", "stage.finished.arrive();", (3, 700, 37)),
    "panels-kept": ("kernels/panels.cuh", "sync_workers();  // all results are written", (2, 40, 201)),
}


@pytest.mark.parametrize("family", UNFENCED)
def test_a_source_is_read_before_its_writers_fence(family: str) -> None:
    header, written, shape = UNFENCED[family]
    (fenced,) = re.findall(rf"target::fence_before_copies\(\);\s+{re.escape(written)}", HEADERS[header])
    broken = WATCHED.broken(header, fenced, written)
    expect_notice("wrote without fence_before_copies", planned(family, integers(shape)), broken)
