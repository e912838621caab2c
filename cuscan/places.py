"""Where the arrays of a call can lie in memory: all that tells its kernels apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from cuscan.dtypes import DType
from cuscan.interop.numpy import LIBRARY
from cuscan.interop.view import ArrayKind, ArrayView, Device
from cuscan.planning.tuning import VECTOR_BYTES

GPU = Device("cuda", 0)
_MOST_SORTED = 4  # axes that are tried in all orders; of more, each is the fastest once


class Place(NamedTuple):
    """Where arrays lie, counted in their elements."""

    value: int = 0  # from a boundary of 16 bytes to the first element of x
    result: int = 0  # the same of the result
    beside: int = 0  # the same of a mask, and of what says where segments start
    gap: int = 0  # behind each row
    every: int = 1  # from an element of x to its neighbour
    result_gap: int | None = None  # behind each row of the result; None: as behind the others
    order: tuple[int, ...] | None = None  # the axes, the slowest first; None: as they come
    result_order: tuple[int, ...] | None = None  # the same of the result
    apart: tuple[int, ...] = ()  # axes that no stride walks together with the next slower one
    still: int | None = None  # the number of an array that is the same all along the scanned axis
    beside_gap: int = 0  # behind each row of what lies beside x
    beside_order: tuple[int, ...] | None = None  # the axes of that; None: as those of x


# For shapes that are tried with many others.
FEW = (Place(), Place(1, 1, 1), Place(0, 1), Place(gap=1), Place(gap=4), Place(every=2))


class Arrays(NamedTuple):
    """The arrays of a call: how many are read; bytes of an element of x, of the result, and of what lies beside x.

    None of what is not there.
    """

    read: int
    value: int
    result: int
    beside: int


def places_of_rows(length: int, arrays: Arrays, *, few: bool = False) -> Iterator[Place]:
    """All ways in which rows of a length can lie: any alignment of the first one and of the others.

    If x is strided, or its gaps are not those of the result, both are aligned or not at all. With `few`, what lies
    beside x has few alignments in any case.
    """
    gaps = {0, 1, 2, 4, *(-length % multiple for multiple in (2, 4, 8, 16)), _far(length)}
    besides, shifts = _besides(length, arrays.beside, few=few), (_shifts(arrays.value), _shifts(arrays.result))
    for value, result, (beside, beside_gap), gap, every in itertools.product(*shifts, besides, sorted(gaps), (1, -1)):
        yield Place(value, result, beside, gap, every, beside_gap=beside_gap)
    few_gaps = sorted({0, 1, -length % 16, _far(length)})
    for value, result, (beside, beside_gap), gap, every, result_gap in itertools.product(
        (0, 1), (0, 1), besides, few_gaps, (1, -1, 2), (0, 1)
    ):
        yield Place(value, result, beside, gap, every, result_gap, beside_gap=beside_gap)


def _besides(length: int, itemsize: int, *, few: bool) -> list[tuple[int, int]]:
    """From a boundary of 16 bytes to what lies beside x, and the gaps behind its rows: any alignment, or a few."""
    if not itemsize:
        return [(0, 0)]
    shifts, gaps = _shifts(itemsize), {1, 2, *(-length % multiple for multiple in (2, 4, 8))}
    if few:
        shifts, gaps = shifts[:2], set()
    gaps |= {-length % (VECTOR_BYTES // itemsize or 1), _far(length)}
    return [*((shift, 0) for shift in shifts), *((0, gap) for gap in sorted(gaps - {0}))]


def places_of(shape: tuple[int, ...], arrays: Arrays) -> Iterator[Place]:
    """All ways in which arrays of a shape can lie: in any order of axes, with gaps behind any of them."""
    axes = tuple(range(len(shape)))
    for order in _orders(axes):
        between = order[1:-1]  # a row has gaps of its own, and nothing lies behind the slowest axis
        for apart in itertools.chain(*(itertools.combinations(between, n) for n in range(len(between) + 1))):
            for still in (None, *range(arrays.read)):
                few = bool(apart) or still is not None  # then rows are not dense, and vectors aligned or not
                for place in places_of_rows(shape[order[-1]], arrays, few=few):
                    yield place._replace(order=order, result_order=order, apart=apart, still=still)
            # What lies beside x may lie across its rows.
            across = _across(order) if arrays.beside and not apart else []
            for beside_order in across:
                for place in places_of_rows(shape[order[-1]], arrays._replace(beside=0)):
                    yield place._replace(order=order, result_order=order, apart=apart, beside_order=beside_order)
            for of_beside in (None, *across):
                yield from _places_of_results(shape, arrays, order, Place(apart=apart, beside_order=of_beside))


def _places_of_results(shape: tuple[int, ...], arrays: Arrays, order: tuple[int, ...], there: Place) -> Iterator[Place]:
    """Ways in which results can lie in any order of axes, beside an x whose axes have this order."""
    gaps = {0, -shape[order[-1]] % VECTOR_BYTES, _far(shape[order[-1]])}
    beside_gaps = {0, -shape[(there.beside_order or order)[-1]] % VECTOR_BYTES if arrays.beside else 0}
    values, results = _few_shifts(arrays)
    for result_order in _orders(order):
        result_gaps = _aligning(shape[result_order[-1]])
        for value, result, gap, result_gap, beside_gap, every in itertools.product(
            values, results, gaps, result_gaps, beside_gaps, (1, -1)
        ):
            yield there._replace(
                value=value,
                result=result,
                gap=gap,
                every=every,
                order=order,
                result_gap=result_gap,
                result_order=result_order,
                beside_gap=beside_gap,
            )


def _across(order: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Orders of axes whose fastest one is each of the others."""
    return [(*order[:a], *order[a + 1 :], order[a]) for a in range(len(order) - 1)]


def turned_places(arrays: Arrays) -> Iterator[Place]:
    """Ways in which arrays of two axes can lie if the neighbours of x are not those of the result."""
    values, results = _few_shifts(arrays)
    for orders in itertools.permutations(((0, 1), (1, 0))):
        there = Place(order=orders[0], result_order=orders[1])
        for value, result in itertools.product(values, results):
            yield there._replace(value=value, result=result)
        for value, result in itertools.product((0, values[-1]), (0, results[-1])):
            for gap, result_gap in ((0, 4), (4, 0), (4, 4), (1, 1)):
                yield there._replace(value=value, result=result, gap=gap, result_gap=result_gap)


def _aligning(length: int) -> set[int]:
    """Gaps behind rows: none; those that align rows to 4 or 16 elements; and small ones, which align them to fewer."""
    return {0, 1, 4, -length % 4, -length % 16}


def _few_shifts(arrays: Arrays) -> Iterator[list[int]]:
    """Elements from a boundary of 16 bytes to x and to the result: aligned, or to up to 4 bytes."""
    sizes = arrays.value, arrays.result or 4  # there may be no result
    return ([0, *(n for n in (1, 2, 4) if n * size <= max(size, 4))] for size in sizes)


def _far(length: int) -> int:
    """A gap that is not loaded with rows of a length, and after which none of them is aligned."""
    return length + 65


def _orders(axes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(axes) <= _MOST_SORTED:
        return itertools.permutations(axes)
    return ((*axes[:a], *axes[a + 1 :], axes[a]) for a in axes)


def _shifts(itemsize: int) -> list[int]:
    """Elements from a boundary of 16 bytes: two, if possible, for each power of two that divides their bytes."""
    room = VECTOR_BYTES // (itemsize or VECTOR_BYTES)
    steps = [step for step in (1, 2, 4, 8) if step < room]
    return sorted({0, *steps, *(room - step for step in steps)})


def view_at(
    shape: tuple[int, ...], dtype: DType, shift: int = 0, place: Place = FEW[0], still: int | None = None
) -> ArrayView:
    """An array without memory, so many elements from a boundary of 16 bytes; it stands still along an axis, if any."""
    strides, step, gap = [0] * len(shape), place.every, place.gap
    for axis in reversed(range(len(shape)) if place.order is None else place.order):
        strides[axis] = step
        step, gap = abs(step) * (shape[axis] + (axis in place.apart)) + gap, 0
    if still is not None:
        strides[still] = 0
    return ArrayView(None, ArrayKind(LIBRARY, dtype, shape, tuple(strides), GPU), shift * dtype.itemsize)
