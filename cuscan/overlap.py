"""Whether arrays share memory: from shapes, strides and addresses alone."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np

from cuscan.errors import ScanValueError

if TYPE_CHECKING:
    from cuscan.interop.view import ArrayView
    from cuscan.request import Operands


def check_overlap(operands: Operands) -> None:
    """Refuse an `out` that shares memory with an input, other than being `x` itself, or with another `out`."""
    outs = operands.outs or ()
    for out in outs:
        for value in operands.values:
            if _may_overlap(value, out):
                sizes = zip(out.strides, value.strides, out.shape, strict=False)
                same_items = (
                    out.shape == value.shape
                    and out.dtype.itemsize == value.dtype.itemsize
                    and all(one == other for one, other, size in sizes if size > 1)
                )
                if not (out.pointer == value.pointer and same_items) and _overlap(value, out):
                    raise ScanValueError("out overlaps x in part; it must be x itself or share no memory with it")
        for name, view in operands.others():
            if _may_overlap(view, out) and _overlap(view, out):
                raise ScanValueError(f"out overlaps {name}; they must share no memory")
    for one, other in itertools.combinations(outs, 2):
        if _may_overlap(one, other) and _overlap(one, other):
            raise ScanValueError("the arrays of out overlap; they must share no memory")


@functools.lru_cache(maxsize=4096)
def _span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """From an array's address to the first byte that it covers, and to the one behind its last."""
    if 0 in shape:
        return 0, 0
    steps = [s * (n - 1) * itemsize for s, n in zip(strides, shape, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + itemsize


def _may_overlap(one: ArrayView, other: ArrayView) -> bool:
    """Whether two arrays cover a common stretch of memory; they need not have an element there."""
    low, high = _span(one.shape, one.strides, one.dtype.itemsize)
    other_low, other_high = _span(other.shape, other.strides, other.dtype.itemsize)
    return one.pointer + low < other.pointer + other_high and other.pointer + other_low < one.pointer + high


class _Addresses:
    """The addresses of an array in NumPy's terms; its memory is never read."""

    def __init__(self, view: ArrayView) -> None:
        size = view.dtype.itemsize
        self.__array_interface__ = {
            "shape": view.shape,
            "strides": tuple(s * size for s in view.strides),
            "data": (view.pointer, True),
            "typestr": f"|V{size}",
            "version": 3,
        }


def _overlap(one: ArrayView, other: ArrayView) -> bool:
    """Whether two arrays have a byte in common; True where that is too hard to tell."""
    try:
        arrays = np.asarray(_Addresses(one)), np.asarray(_Addresses(other))
        return bool(np.shares_memory(*arrays, max_work=1_000_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
