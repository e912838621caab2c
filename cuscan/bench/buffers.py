"""The arrays of a case, filled with numbers whose scans can be checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuscan.bench.cases import VIEWS, Case, Shape, touched_bytes
from cuscan.bench.machine import Array, Machine
from cuscan.dtypes import DTYPES, DType, Kind
from cuscan.interop.numpy import numpy_dtype

CHUNK = 1 << 26  # elements filled at a time
ALIGNMENT = 256  # bytes; of the memory that GPU libraries hand out


class Buffers(NamedTuple):
    """What one run reads and writes."""

    x: Array
    mask: Array | None
    out: Array

    def each(self, change: Callable[[Array], Array]) -> Buffers:
        """The same arrays, seen in another way."""
        return Buffers(change(self.x), None if self.mask is None else change(self.mask), change(self.out))

    def spoil(self) -> None:
        """Clear the result, so that none is taken for the next run's."""
        (self.out.view(np.uint16) if self.out.dtype.name == "bfloat16" else self.out).fill(0)

    @property
    def nbytes(self) -> int:
        """Bytes that the scan must read and write."""
        return sum(touched_bytes(array) for array in self if array is not None)


def make_buffers(case: Case, machine: Machine, seed: int = 0) -> Buffers:
    """Allocate and fill the arrays of one run."""

    def memory(shape: Shape, dtype: DType, role: str) -> Array:
        if role == "out":
            return machine.xp.empty(shape, numpy_dtype(dtype))
        return _filled(shape, dtype, case.op, machine, seed + (role == "mask"))

    return _arrange(case, machine.xp, memory)


def untouched_buffers(case: Case) -> Buffers:
    """The same arrays with no memory behind them, for what depends on shapes, strides and alignment alone."""

    def memory(shape: Shape, dtype: DType, role: str) -> Array:
        itemsize, strides = dtype.itemsize, []
        for size in reversed(shape):
            strides.append(itemsize)
            itemsize *= size
        room = np.empty(2 * ALIGNMENT, np.uint8)
        room = room[-room.ctypes.data % ALIGNMENT :][: dtype.itemsize].view(numpy_dtype(dtype))
        return np.lib.stride_tricks.as_strided(room, shape, strides[::-1])

    return _arrange(case, np, memory)


def _arrange(case: Case, xp: Any, memory: Callable[[Shape, DType, str], Array]) -> Buffers:
    view = VIEWS[case.view]
    x = view.take(xp, memory(view.memory(case.shape), DTYPES[case.dtype], "x"), case.shape)
    mask = memory(case.shape, DTYPES["bool"], "mask") if case.masked else None
    if not view.result_alike:
        return Buffers(x, mask, memory(case.shape, case.result_dtype, "out"))
    return Buffers(x, mask, view.take(xp, memory(view.memory(case.shape), case.result_dtype, "out"), case.shape))


def _filled(shape: tuple[int, ...], dtype: DType, op: str, machine: Machine, seed: int) -> Array:
    array = machine.xp.empty(shape, numpy_dtype(dtype))
    flat = array.reshape(-1)
    if dtype.name == "bfloat16":
        flat = flat.view(machine.xp.uint16)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        values = _values(machine.xp, machine.uniform(part.size, seed + start), dtype, op)
        part[...] = values.astype(part.dtype, copy=False)
    return array


def _values(xp: Any, u: Array, dtype: DType, op: str) -> Array:
    """Numbers of a dtype from uniform ones: of both signs, small, and exactly 1 or -1 for products of floats."""
    if dtype.kind is Kind.BOOL:
        return u < 0.5
    if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
        integers = xp.floor(u * 16).astype(xp.int32)
        return integers - 8 if dtype.kind is Kind.SIGNED else integers
    if op == "mul":
        u = xp.where(u < 0.5, -1, 1).astype(xp.float32)
    elif dtype.itemsize == 2:
        u = (u - 0.5) / 4  # long sums stay below the largest float16
    else:
        u = 2 * u - 1
    if dtype.name == "bfloat16":
        return (u.view(xp.uint32) >> 16).astype(xp.uint16)
    return u
