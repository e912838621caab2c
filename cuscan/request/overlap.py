"""Overlap checks: whether arrays share memory, from shapes, strides and addresses alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuscan.errors import ScanValueError
from cuscan.interop.view import ArrayKind
from cuscan.request.call import BESIDE

Place = tuple[ArrayKind, int]  # an array's kind and address


Near = tuple[int, int, int, int]


def find_near(read: int, kinds: Sequence[ArrayKind]) -> tuple[Near, ...]:
    """Return the pairs of arrays that may overlap, each with a range of distances.

    The first `read` arrays are inputs, the others those of `out`. A pair (one, other, lowest, highest) may overlap only
    if the address of `one` minus that of `other` is strictly between `lowest` and `highest`.
    """
    near = []
    for other in range(read, len(kinds)):
        first, last = kinds[other].start, kinds[other].end
        for one in range(other):
            lowest, highest = kinds[one].start, kinds[one].end
            if first < last and lowest < highest:
                near.append((one, other, first - highest, last - lowest))
    return tuple(near)


def check_overlap(roles: tuple[str, ...], kinds: Sequence[ArrayKind], pointers: Sequence[int]) -> None:
    """Raise `ScanValueError` if an `out` shares memory with an input, unless it is `x` itself, or with another `out`.

    `kinds` and `pointers` are those of the inputs, in the order of `roles`, followed by those of `out`.
    """
    for one, other, lowest, highest in find_near(len(roles), kinds):
        if lowest < pointers[one] - pointers[other] < highest:
            places = (kinds[one], pointers[one]), (kinds[other], pointers[other])
            if one < len(roles):
                _check_pair(roles[one], *places)
            elif _overlap(*places):
                raise ScanValueError("the arrays of out overlap; they must share no memory")


def _check_pair(name: str, value: Place, out: Place) -> None:
    """Check two arrays whose address ranges intersect; they need not have a common element."""
    is_value = name not in BESIDE
    if not (is_value and _same_elements(value, out)) and _overlap(value, out):
        rule = f" in part; it must be {name} itself" if is_value else "; it must be another array"
        raise ScanValueError(f"out overlaps {name}{rule} or share no memory with it")


def _same_elements(value: Place, out: Place) -> bool:
    """Return whether two arrays have the same addresses at every index."""
    (one, start), (other, other_start) = value, out
    if start != other_start or one.shape != other.shape or one.dtype.itemsize != other.dtype.itemsize:
        return False
    return all(s == t for s, t, n in zip(one.strides, other.strides, other.shape, strict=True) if n > 1)


class _Addresses:
    """The addresses of an array as a NumPy array interface; its memory is never read."""

    def __init__(self, place: Place) -> None:
        kind, pointer = place
        size = kind.dtype.itemsize
        self.__array_interface__ = {
            "shape": kind.shape,
            "strides": tuple(s * size for s in kind.strides),
            "data": (pointer, True),
            "typestr": f"|V{size}",
            "version": 3,
        }


def _overlap(one: Place, other: Place) -> bool:
    """Return whether two arrays have a byte in common; True if that is too expensive to decide."""
    try:
        arrays = np.asarray(_Addresses(one)), np.asarray(_Addresses(other))
        return bool(np.shares_memory(*arrays, max_work=1_000_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
