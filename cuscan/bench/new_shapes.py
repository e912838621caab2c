"""The cost of a call with a new shape: host time, and the number of kernels that a kind of call needs."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.check import check
from cuscan.bench.kernel import plan_of, request_of
from cuscan.bench.layouts import Layout
from cuscan.bench.machine import Machine, Run
from cuscan.bench.ours import run_cuscan
from cuscan.bench.timing import Timing
from cuscan.planning import make_plan
from cuscan.planning.config import Config, Target

Record = dict[str, Any]
Sizes = Callable[[Callable[[int], int]], tuple[int, ...]]

CALLS = 1500  # whose kernels are counted
TIMED = 300  # calls of new shapes
FILLING = 10_000  # further calls before the second timing
ELEMENTS = 1 << 20  # limit of an array, so that a call never waits for the GPU
ROOM = ELEMENTS + (1 << 18)  # elements of memory, so that strides and alignments can vary
CHECKED = 50  # interval of calls at which to check the result and wait for the GPU
ANY_GPU = Target(90, 132)  # the target for counting kernels without a GPU

# The kinds of call: their axis, and their sizes, given a function that draws a size up to a limit.
KINDS: dict[str, tuple[int, Sizes]] = {
    "(T,)": (0, lambda size: (size(ELEMENTS),)),
    "(B, T)": (1, lambda size: (size(1 << 8), size(1 << 12))),
    "(B, T, D) axis 1": (1, lambda size: (size(1 << 4), size(1 << 8), size(1 << 8))),
    "(N, k) axis 0": (0, lambda size: (size(1 << 14), size(1 << 6))),
}


def draw(kind: str) -> Iterator[Case]:
    """Draw calls of a kind, each with a shape, layout or alignment that is new; the same calls every time."""
    axis, sizes = KINDS[kind]
    uniform = random.Random(kind).random
    seen = set()
    while True:
        shape = sizes(lambda most: max(int(most ** uniform()), 2))
        gap, shift = (int(8 * uniform()) if uniform() < 0.3 else 0 for _ in range(2))
        case = Case(shape, axis=axis, view=Layout(behind=(*[0] * (len(shape) - 1), gap), shift=shift))
        if case not in seen:
            seen.add(case)
            yield case


def counted(kind: str, target: Target, *, general: bool = False) -> dict[Config, Case]:
    """Return the kernels of the first calls, or general ones, each with the first case that needs it."""
    kernels: dict[Config, Case] = {}
    for case in islice(draw(kind), CALLS):
        kernels.setdefault(make_plan(request_of(case), target, general=general).config, case)
    return kernels


def shapes(case: Case, machine: Machine, peers: Sequence[str], record: Record) -> Iterator[tuple[str, Record]]:
    """Fill a record with the host time of calls of new shapes with loaded kernels, before and after many others."""
    target = machine.target or ANY_GPU
    yield "kernels", record
    kernels = counted(case.label, target)
    memory = machine.uniform(ROOM, 0), machine.xp.empty(ROOM, "float32")
    for each in kernels.values():
        _run(each, machine, memory)[0]()
    known = (each for each in islice(draw(case.label), CALLS, None) if plan_of(each, target).config in kernels)
    yield "new", record
    new = list(islice(known, TIMED))
    times = _times(new, machine, memory)
    again = _times(new, machine, memory)
    yield "filling", record
    for each in islice(known, FILLING):
        _run(each, machine, memory)[0]()
    yield "after", record
    after = _times(list(islice(known, TIMED)), machine, memory)
    record |= {"calls": CALLS, "kernels": len(kernels), "general": len(counted(case.label, target, general=True))}
    record |= {"time": _json(times), "again": _json(again), "after": _json(after), "filling": FILLING}


def _run(case: Case, machine: Machine, memory: tuple[Any, Any]) -> tuple[Run, Buffers]:
    x, out = (
        layout.of(case.shape, machine.xp, lambda count, room=room: room[:count])  # type: ignore[misc]
        for layout, room in zip((case.view, case.result_layout), memory, strict=True)
    )
    buffers = Buffers((x,), (out,))
    return run_cuscan(case, buffers), buffers


def _times(cases: Sequence[Case], machine: Machine, memory: tuple[Any, Any]) -> list[float]:
    """Return the host's microseconds for one call of each case."""
    times = []
    for number, case in enumerate(cases):
        run, buffers = _run(case, machine, memory)
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
        if number % CHECKED == 0:
            check(case, machine.xp, buffers)
            machine.synchronize()
    return times


def _json(times: list[float]) -> dict[str, float]:
    p99 = statistics.quantiles(times, n=100, method="inclusive")[-1]
    return {**Timing(tuple(times), 1).as_json(), "p99_us": round(p99, 3)}
