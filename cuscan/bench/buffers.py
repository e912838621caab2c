"""The arrays of a case, filled with numbers whose scans can be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cuscan.bench.calls import CALLS
from cuscan.bench.cases import VIEWS, Case, Shape, touched_bytes
from cuscan.bench.fills import Fill
from cuscan.bench.machine import Array, Machine
from cuscan.bench.segments import KINDS, make_segments, segments_shape
from cuscan.dtypes import DTYPES, INEXACT, DType
from cuscan.interop.numpy import numpy_dtype

CHUNK = 1 << 26  # elements filled at a time
ALIGNMENT = 256  # bytes; of the memory that GPU libraries hand out
MISSING = 1 / 16  # of the elements are NaN where NaN is skipped


class Buffers(NamedTuple):
    """What one run reads and writes."""

    values: tuple[Array, ...]
    outs: tuple[Array, ...]
    mask: Array | None = None
    segments: Array | None = None

    @property
    def x(self) -> Array:
        """The elements of a scan of one array."""
        return self.values[0]

    @property
    def out(self) -> Array:
        """The result; the first, if there are several."""
        return self.outs[0]

    def each(self, change: Callable[[Array], Array]) -> Buffers:
        """The same arrays, seen in another way."""
        mask, segments = (None if array is None else change(array) for array in (self.mask, self.segments))
        return Buffers(tuple(map(change, self.values)), tuple(map(change, self.outs)), mask, segments)

    def arrays(self) -> Iterator[Array]:
        """All that there are."""
        yield from (*self.values, *self.outs)
        yield from (array for array in (self.mask, self.segments) if array is not None)

    def spoil(self) -> None:
        """Clear the results, so that none is taken for the next run's."""
        for out in self.outs:
            (out.view(np.uint16) if out.dtype.name == "bfloat16" else out).fill(0)

    @property
    def nbytes(self) -> int:
        """Bytes that the scan must read and write."""
        return sum(map(touched_bytes, self.arrays()))


# How the memory of an array is made: its shape, its dtype, and with what it is filled.
Memory = Callable[[Shape, DType, Fill | None], Array]


def make_buffers(case: Case, machine: Machine, seed: int = 0) -> Buffers:
    """Allocate and fill the arrays of one run."""

    def memory(shape: Shape, dtype: DType, fill: Fill | None) -> Array:
        if fill is None:
            return machine.xp.empty(shape, numpy_dtype(dtype))
        return _filled(shape, dtype, fill, machine, seed)

    made = _arrange(case, machine.xp, memory)
    if not case.segments:
        return made
    return made._replace(segments=make_segments(machine.xp, case.segments, case.split, case.shape, case.axis))


def untouched_buffers(case: Case) -> Buffers:
    """The same arrays with no memory behind them, for what depends on shapes, strides and alignment alone."""

    def memory(shape: Shape, dtype: DType, fill: Fill | None) -> Array:
        itemsize, strides = dtype.itemsize, []
        for size in reversed(shape):
            strides.append(itemsize)
            itemsize *= size
        room = np.empty(2 * ALIGNMENT, np.uint8)
        room = room[-room.ctypes.data % ALIGNMENT :][: dtype.itemsize].view(numpy_dtype(dtype))
        return np.lib.stride_tricks.as_strided(room, shape, strides[::-1])

    made = _arrange(case, np, memory)
    if not case.segments:
        return made
    shape = segments_shape(case.segments, case.split, case.shape, case.axis)
    return made._replace(segments=memory(shape, DTYPES[KINDS[case.segments]], None))


def _arrange(case: Case, xp: Any, memory: Memory) -> Buffers:
    view = VIEWS[case.view]

    def viewed(shape: Shape, dtype: DType, fill: Fill | None = None) -> Array:
        return view.take(xp, memory(view.memory(shape), dtype, fill), shape)

    first_fills = CALLS[case.op].fills
    if case.skipna:
        first_fills = tuple(map(_with_nan, first_fills))
    values = tuple(viewed(case.shape, *pair) for pair in zip(case.input_dtypes, first_fills, strict=True))
    result = viewed if view.result_alike else lambda shape, dtype: memory(shape, dtype, None)
    outs = tuple(result(case.result_shape, dtype) for dtype in case.operator.results(case.result_dtype))
    mask = memory(case.shape, DTYPES["bool"], _mask) if case.masked else None
    return Buffers(values, outs, mask)


def _mask(xp: Any, u: Array, dtype: DType) -> Array:
    """Every second element, by a bit of u that says little of its size."""
    return xp.floor(u * xp.float32(1 << 20)).astype(xp.int32) % 2 == 0


def _with_nan(fill: Fill) -> Fill:
    """A fill with NaN here and there."""

    def filled(xp: Any, u: Array, dtype: DType) -> Array:
        values = fill(xp, u, dtype)
        if dtype.kind not in INEXACT:
            return values
        scaled = u * xp.float32(1 << 12)
        return xp.where(scaled - xp.floor(scaled) < MISSING, xp.asarray(np.nan, values.dtype), values)

    return filled


def _filled(shape: Shape, dtype: DType, fill: Fill, machine: Machine, seed: int) -> Array:
    array = machine.xp.empty(shape, numpy_dtype(dtype))
    flat = array.reshape(-1)
    if dtype.name == "bfloat16":
        flat = flat.view(machine.xp.uint16)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        values = fill(machine.xp, machine.uniform(part.size, seed + start), dtype)
        if dtype.name == "bfloat16":
            values = (values.astype(machine.xp.float32).view(machine.xp.uint32) >> 16).astype(machine.xp.uint16)
        part[...] = values.astype(part.dtype, copy=False)
    return array
