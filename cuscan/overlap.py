"""Whether arrays share memory: from shapes, strides and addresses alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from cuscan.call import BESIDE
from cuscan.errors import ScanValueError

if TYPE_CHECKING:
    from cuscan.call import Operands
    from cuscan.interop.view import ArrayView


def check_overlap(operands: Operands) -> None:
    """Refuse an `out` that shares memory with an input, other than being `x` itself, or with another `out`."""
    outs = operands.outs or ()
    for out in outs:
        pointer, kind = out.pointer, out.kind
        start, end = pointer + kind.first, pointer + kind.last
        for view in operands.views:
            pointer, kind = view.pointer, view.kind
            if start < pointer + kind.last and pointer + kind.first < end:
                _check_pair(operands.roles[operands.views.index(view)], view, out)
    if len(outs) < 2:
        return
    for one, other in itertools.combinations(outs, 2):
        if _overlap(one, other):
            raise ScanValueError("the arrays of out overlap; they must share no memory")


def _check_pair(name: str, view: ArrayView, out: ArrayView) -> None:
    """Check two arrays that cover a common stretch of memory; they need not have an element there."""
    is_value = name not in BESIDE
    if not (is_value and _same_elements(view, out)) and _overlap(view, out):
        rule = f" in part; it must be {name} itself" if is_value else "; it must be another array"
        raise ScanValueError(f"out overlaps {name}{rule} or share no memory with it")


def _same_elements(value: ArrayView, out: ArrayView) -> bool:
    """Whether two arrays have the same element at every place."""
    if value.pointer == out.pointer and value.kind is out.kind:
        return True
    if value.pointer != out.pointer or value.shape != out.shape or value.dtype.itemsize != out.dtype.itemsize:
        return False
    return all(s == t for s, t, n in zip(value.strides, out.strides, out.shape, strict=True) if n > 1)


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
