"""The arrays of a case, filled with numbers whose scans can be checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cuscan.bench.calls import CALLS
from cuscan.bench.cases import Case
from cuscan.bench.fills import Fill
from cuscan.bench.layouts import DENSE, Layout, Shape, touched_bytes
from cuscan.bench.machine import Array, Machine
from cuscan.bench.segments import KINDS, make_segments, segments_shape
from cuscan.dtypes import DTYPES, INEXACT, DType
from cuscan.interop.numpy import numpy_dtype
from cuscan.request.carry import carry_fields

CHUNK = 1 << 26  # elements filled at a time
ALIGNMENT = 256  # bytes; alignment of memory from GPU libraries
MISSING = 1 / 16  # share of elements that are NaN if the scan skips NaN


class Buffers(NamedTuple):
    """The arrays that one run reads and writes."""

    values: tuple[Array, ...]
    outs: tuple[Array, ...]
    mask: Array | None = None
    segments: Array | None = None
    carry: tuple[Array, ...] = ()
    behind: tuple[Array, ...] = ()  # the outgoing carry

    @property
    def x(self) -> Array:
        """The elements of a scan of one array."""
        return self.values[0]

    @property
    def out(self) -> Array:
        """The result, or the first of several."""
        return self.outs[0]

    def each(self, change: Callable[[Array], Array]) -> Buffers:
        """Return buffers with `change` applied to every array."""
        mask, segments = (None if array is None else change(array) for array in (self.mask, self.segments))
        values, outs, carry, behind = (
            tuple(map(change, arrays)) for arrays in (self.values, self.outs, self.carry, self.behind)
        )
        return Buffers(values, outs, mask, segments, carry, behind)

    def arrays(self) -> Iterator[Array]:
        """Iterate over all present arrays."""
        yield from (*self.values, *self.outs, *self.carry, *self.behind)
        yield from (array for array in (self.mask, self.segments) if array is not None)

    def spoil(self) -> None:
        """Clear the results, so that none passes for the next run's."""
        for out in self.outs:
            (out.view(np.uint16) if out.dtype.name == "bfloat16" else out).fill(0)

    @property
    def nbytes(self) -> int:
        """Bytes that the scan must read and write."""
        return sum(map(touched_bytes, self.arrays()))


# Makes the memory of an array, from the number of elements, their dtype, and the fill.
Memory = Callable[[int, DType, Fill | None], Array]


def make_buffers(case: Case, machine: Machine, seed: int = 0) -> Buffers:
    """Allocate and fill the arrays of one run."""

    def memory(count: int, dtype: DType, fill: Fill | None) -> Array:
        if fill is None:
            return machine.xp.empty(count, numpy_dtype(dtype))
        return _filled(count, dtype, fill, machine, seed)

    made = _arrange(case, machine.xp, memory)
    if not case.segments:
        return made
    segments = make_segments(machine.xp, case.segments, case.split, case.shape, case.axis, full=case.full_reset)
    return made._replace(segments=segments)


def untouched_buffers(case: Case) -> Buffers:
    """Return buffers with the same shapes, strides and alignment, but without memory behind them."""

    def memory(count: int, dtype: DType, fill: Fill | None) -> Array:
        room = np.zeros(2 * ALIGNMENT, np.uint8)
        room = room[-room.ctypes.data % ALIGNMENT :][: dtype.itemsize].view(numpy_dtype(dtype))
        return np.lib.stride_tricks.as_strided(room, (count,), (dtype.itemsize,))

    made = _arrange(case, np, memory)
    if not case.segments:
        return made
    shape = segments_shape(case.segments, case.split, case.shape, case.axis, full=case.full_reset)
    return made._replace(segments=memory(math.prod(shape), DTYPES[KINDS[case.segments]], None).reshape(shape))


def _arrange(case: Case, xp: Any, memory: Memory) -> Buffers:
    def laid(layout: Layout, shape: Shape, dtype: DType, fill: Fill | None = None) -> Array:
        return layout.of(shape, xp, lambda count: memory(count, dtype, fill))

    call_fills = CALLS[case.op].fills
    if case.skipna:
        call_fills = tuple(map(_with_nan, call_fills))
    layouts = [case.view if case.decay == "full" else _decay_layout(case), *[case.view] * len(call_fills)]
    inputs = zip(layouts, case.input_dtypes, call_fills, strict=False)
    values = tuple(laid(layout, case.shape, dtype, fill) for layout, dtype, fill in inputs)
    results = () if case.fresh or case.carry == "total" else case.operator.results(case.result_dtype)
    outs = tuple(laid(case.result_layout, case.result_shape, dtype) for dtype in results)
    mask = laid(DENSE, case.shape, DTYPES["bool"], _mask) if case.masked else None
    carry: tuple[Array, ...] = ()
    if case.carry == "in and out":  # one element per field
        fields = carry_fields(case.operator, case.result_dtype, None)
        count = math.prod(case.lines)
        filled = (memory(count, field.dtype, fill) for field, fill in zip(fields, call_fills, strict=True))
        carry = tuple(field.reshape(case.lines) for field in filled)
    return Buffers(values, outs, mask, None, carry)


def _decay_layout(case: Case) -> Layout:
    """Return the layout of decays: one number for each row, or one for all."""
    axis, ndim = case.axis % len(case.shape), len(case.shape)
    return Layout(steps=tuple(int(case.decay == "broadcast" and a != axis) for a in range(ndim)))


def _mask(xp: Any, u: Array, dtype: DType) -> Array:
    """Choose every second element on average, by a bit of u that is nearly independent of its size."""
    return xp.floor(u * xp.float32(1 << 20)).astype(xp.int32) % 2 == 0


def _with_nan(fill: Fill) -> Fill:
    """Return a fill with occasional NaN."""

    def filled(xp: Any, u: Array, dtype: DType) -> Array:
        values = fill(xp, u, dtype)
        if dtype.kind not in INEXACT:
            return values
        scaled = u * xp.float32(1 << 12)
        return xp.where(scaled - xp.floor(scaled) < MISSING, xp.asarray(np.nan, values.dtype), values)

    return filled


def _filled(count: int, dtype: DType, fill: Fill, machine: Machine, seed: int) -> Array:
    array = machine.xp.empty(count, numpy_dtype(dtype))
    flat = array.view(machine.xp.uint16) if dtype.name == "bfloat16" else array
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        values = fill(machine.xp, machine.uniform(part.size, seed + start), dtype)
        if dtype.name == "bfloat16":
            values = (values.astype(machine.xp.float32).view(machine.xp.uint32) >> 16).astype(machine.xp.uint16)
        part[...] = values.astype(part.dtype, copy=False)
    return array
