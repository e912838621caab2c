"""What is measured, in groups: those of the matrix (`matrix.py`), and those that are drawn or swept."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterable

from benchmarks import cliffs, sample, tasks
from benchmarks.matrix import CELLS
from cuscan.bench.cases import Case
from cuscan.bench.new_shapes import ANY_GPU
from cuscan.bench.new_shapes import KINDS as KINDS_OF_CALL
from cuscan.planning.config import Target


@dataclasses.dataclass(frozen=True)
class Scope:
    """What drawn groups depend on: seeds, cases for each of them, the GPU, and whether arrays are small."""

    seeds: tuple[int, ...] = (0,)
    count: int = sample.CASES
    target: Target = ANY_GPU
    limit: int | None = None  # elements of an array, for a quick look


@dataclasses.dataclass(frozen=True)
class Group:
    """A part of what is measured: its heading, what its numbers mean, and its cells, which may be drawn at random."""

    title: str
    meaning: str
    cells: Callable[..., Iterable[Case]]
    drawn: bool = False


def _sample(scope: Scope) -> Iterable[Case]:
    moved = sample.MOVED if scope.limit is None else (scope.limit // 16, scope.limit)
    for seed in scope.seeds:
        yield from sample.sample(seed, scope.count, moved)


def _shapes(scope: Scope) -> Iterable[Case]:
    return (Case((1000,), how="shapes", label=kind) for kind in KINDS_OF_CALL)


def _tasks(scope: Scope) -> Iterable[Case]:
    return _shrunk(tasks.cases(), scope.limit)


def _cliffs(scope: Scope) -> Iterable[Case]:
    return _shrunk(cliffs.cliffs(scope.target), scope.limit)


def _shrunk(found: Iterable[Case], limit: int | None) -> Iterable[Case]:
    if limit is None:
        return found
    return (dataclasses.replace(case, shape=shrink(case.shape, limit)) for case in found)


_OF_COPY = "Time of a copy of the same bytes / time of the scan; in no cache."

GROUPS = {
    "uses": Group("What people scan", f"{_OF_COPY} The least that every shape must reach.", CELLS["uses"]),
    "rows": Group("(32768, 32768) along the rows", _OF_COPY, CELLS["rows"]),
    "long": Group("One long row", _OF_COPY, CELLS["long"]),
    "items": Group("Small and promoted items", _OF_COPY, CELLS["items"]),
    "lengths": Group("1 GiB in rows of any length", _OF_COPY, CELLS["lengths"]),
    "few": Group("A few long rows", _OF_COPY, CELLS["few"]),
    "axes": Group(
        "Other axes", f"{_OF_COPY} Where fewer than 64 MiB move, copy speed plus 6 us is required.", CELLS["axes"]
    ),
    "views": Group("Views", f"{_OF_COPY} The bytes are those that memory must move, in sectors of 32.", CELLS["views"]),
    "operators": Group("Other operators, skipped and leading elements", _OF_COPY, CELLS["operators"]),
    "recurrence": Group("Linear recurrences", f"{_OF_COPY} Both a and b are arrays.", CELLS["recurrence"]),
    "segments": Group("Segments", f"{_OF_COPY} The bytes of offsets, resets and keys count.", CELLS["segments"]),
    "carry": Group(
        "Carries and totals",
        "Time of what is measured beside it, in turn / time of the call: of the same scan without a carry, and beside "
        "totals of a kernel that only reads. Each call allocates the carry that it returns.",
        CELLS["carry"],
    ),
    "small": Group(
        "Small inputs",
        "GPU time of one scan in a replayed CUDA graph of 32 that follow one another, inputs in the cache as they are "
        "in practice: over the better of CUB's and torch's.",
        CELLS["small"],
    ),
    "host": Group(
        "Time to queue one call", "Host time on a small input over that of the library's own call.", CELLS["host"]
    ),
    "first": Group(
        "The first call of a process",
        "Milliseconds of the first scan, kernels on disk, beyond those of the first CuPy elementwise kernel.",
        CELLS["first"],
    ),
    "training": Group(
        "Training",
        "A layer: forward and backward of h[t] = a[t] h[t - 1] + (1 - a[t]) x[t], gated, over the best peer's time; "
        "torch's is that of `associative_scan`, not compiled. A backward: its GPU time over that of the forward scan. "
        "The host: over torch's time for its sum, forward and backward.",
        CELLS["training"],
    ),
    "programs": Group(
        "Programs of JAX",
        "The host: its time for each scan in a program, over 20 us. The GPU: the time of a scan in `jax.jit` over that "
        "of the eager scan of CuPy. Training: value and gradient of a gated recurrence over the best way of `jax.lax`.",
        CELLS["programs"],
    ),
    "sample": Group(
        "Random scans",
        "Time of a copy of the bytes that must move, plus 4 us / time of the scan. Where a view has gaps, the copy "
        "reads that very layout.",
        _sample,
        drawn=True,
    ),
    "tasks": Group(
        "Everyday tasks",
        "Scans that people have, in their sizes: time of a copy of the bytes that must move, plus 4 us / time of the "
        "scan.",
        _tasks,
        drawn=True,
    ),
    "shapes": Group(
        "New shapes",
        "Host time of a call whose shape, strides or alignment was never seen, its kernel being there; the same calls "
        "again; calls of other new shapes after so many more; and the kernels that random calls need.",
        _shapes,
        drawn=True,
    ),
    "cliffs": Group(
        "Thresholds",
        "Neighbouring sizes that get different kernels: how much the share of copy speed changes between them.",
        _cliffs,
        drawn=True,
    ),
}


MATRIX = [name for name, group in GROUPS.items() if not group.drawn]


def cases(groups: Iterable[str], scope: Scope = Scope()) -> list[Case]:
    """The cases of some groups; with a limit, shrunk to so many elements, without floors."""
    found: list[Case] = []
    for name in groups:
        group = GROUPS[name]
        own = group.cells(scope) if group.drawn else _limited(group.cells(), scope.limit)
        found += [dataclasses.replace(case, group=name) for case in own]
    return list({(case.group, case.name): case for case in found}.values())


def _limited(found: Iterable[Case], limit: int | None) -> Iterable[Case]:
    if limit is None:
        return found
    small = [dataclasses.replace(case, shape=shrink(case.shape, limit), must=None, aim=None) for case in found]
    return [dataclasses.replace(case, peers=(*(case.peers or ()), "numpy")) for case in small]


def runnable(case: Case, *, on_gpu: bool) -> bool:
    """Whether the library of a case's call is here."""
    library = case.call.partition(".")[0]
    return not library or (importlib.util.find_spec(library) is not None and (on_gpu or library != "cupy"))


def shrink(shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """The shape with its largest axis halved until it has no more than `limit` elements."""
    sizes = list(shape)
    while math.prod(sizes) > limit:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        sizes[largest] = -(-sizes[largest] // 2)
    return tuple(sizes)
