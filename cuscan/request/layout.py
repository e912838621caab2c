"""The memory layout of a request: axes and strides in scan direction, and the defined order that follows."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cuscan.kept import MOST
from cuscan.order import BYTES_TO_WORDS, COLUMNS, CONTIGUOUS, SECTOR, TILE_BYTES, TOTALS_BYTES, Order
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.specs import ArraySpec, new_tuple


class Dimension(NamedTuple):
    """An axis of the scan: its size, and its stride in bytes in every array (`Dimension` in geometry.cuh)."""

    size: int
    strides: tuple[int, ...]


class Layout(NamedTuple):
    """The axes of a request, with all strides in scan direction.

    `arrays` are the request's arrays in the order of the kernel's arguments; `offsets` are the bytes from their
    addresses to scan position 0. `others` are the axes other than the scanned one, the result's fastest first; axes
    that one stride can walk are merged. `contiguous`: no other axis of the result has a smaller stride.
    """

    arrays: tuple[ArraySpec | None, ...]
    axis: Dimension
    others: tuple[Dimension, ...]
    offsets: tuple[int, ...]
    contiguous: bool


def layout_of(request: ScanRequest) -> Layout:
    """Return the layout of a request."""
    kind, shape, axis, values, results, mask, segments, row_initial, last, carry_in, carry_out = request
    flags = segments.array if segments is not None and segments.kind != "offsets" else None
    arrays = (*values, *results, mask, flags, row_initial, last, *carry_in, *carry_out)
    first = len(values)  # the first result
    still = (0,) * len(shape)
    strides: list[Sequence[int]] = []
    alike: Any = None  # the previous array: most have equal strides
    for spec in arrays:
        if spec is None:
            strides.append(still)
            continue
        if alike is None or spec.strides != alike.strides or spec.dtype is not alike.dtype:
            itemsize, alike = spec.dtype.itemsize, spec
            steps = [step * itemsize for step in spec.strides]
        strides.append(steps)
    columns = list(zip(*strides))  # noqa: B905  # strict=True takes 0.6 us
    size, along = shape[axis], columns[axis]
    extra = int(kind.include_initial)
    offsets = (0,) * len(arrays)
    if kind.reverse:
        # max: an array without elements may have no address to count back from.
        places = [max(size - 1, 0)] * len(arrays)
        places[first : first + len(results)] = [max(size - 1 + extra, 0)] * len(results)
        offsets = tuple(map(operator.mul, places, along))
        along = tuple([-step for step in along])
    others = [new_tuple(Dimension, (n, columns[a])) for a, n in enumerate(shape) if n > 1 and a != axis]
    if len(others) > 1:
        others.sort(key=lambda dim: abs(dim.strides[first]))  # strides differ, because results do not overlap
        others = merged(others)
    # others[0] is the fastest.
    contiguous = size + extra == 1 or not others or abs(along[first]) <= abs(others[0].strides[first])
    line = new_tuple(Dimension, (size + extra, along))
    return new_tuple(Layout, (arrays, line, tuple(others), offsets, contiguous))


def merged(dims: list[Dimension]) -> list[Dimension]:
    """Merge neighbouring axes that one stride can walk in every array. The fastest axes come first."""
    found = dims[:1]
    for dim in dims[1:]:
        size, strides = found[-1]
        # The first array mostly decides.
        if dim.strides[0] == size * strides[0] and dim.strides == tuple([size * stride for stride in strides]):
            found[-1] = Dimension(size * dim.size, strides)
        else:
            found.append(dim)
    return found


def order_of(request: ScanRequest) -> Order:
    """Return the defined order of a request's scan (order.py)."""
    layout = layout_of(request)
    return order_along(request.kind, layout) if runs_along(request, layout) else COLUMNS


def order_along(kind: CallKind, layout: Layout) -> Order:
    """Return the order of a scan along a contiguous axis.

    Values that do not change along the axis, such as the decay of a moving average, do not count, unless no value
    changes.
    """
    moving = tuple([step != 0 for step in layout.axis.strides[: len(kind.values)]])
    element, widest, state, widens = _bytes_of(kind, moving)
    order = CONTIGUOUS[widest]
    if widens and BYTES_TO_WORDS.vectors * state <= TOTALS_BYTES:
        order = BYTES_TO_WORDS
    while order.vectors > 1 and (order.unit * element > TILE_BYTES or order.vectors * state > TOTALS_BYTES):
        order = replace(order, vectors=order.vectors // 2)
    while order.unit * element > TILE_BYTES:  # more than eight fields
        order = replace(order, warps=order.warps // 2)
    return order


class _Bytes(NamedTuple):
    """What the order along a contiguous axis depends on, in bytes.

    `element`: of all values of an element that count. `widest`: of the widest of these and the results. `state`: of a
    state without segments and padding; a position counts as 8 bytes, whatever the length. `widens`: whether the values
    are bytes, and the results of 8 bytes.
    """

    element: int
    widest: int
    state: int
    widens: bool


@functools.lru_cache(MOST)
def _bytes_of(kind: CallKind, moving: tuple[bool, ...]) -> _Bytes:
    """Return the `_Bytes` of a kind of call, given which of its values change along the axis."""
    count = len(kind.values)
    values = tuple(itertools.compress(kind.sizes, moving)) or kind.sizes[:count]
    sizes = values + kind.sizes[count:]
    state = kind.op.states.dtype(kind.results[0].accumulator)
    nbytes = sum([state[name].itemsize for name in state.names]) if state.names else state.itemsize
    return _Bytes(sum(values), max(sizes), nbytes, sizes == (1, 8))


def runs_along(request: ScanRequest, layout: Layout) -> bool:
    """Return whether a scan runs along the contiguous axis of results and values, or of results if lines are few."""
    if layout.axis.size == 1:
        return True
    if not layout.contiguous:
        return False
    count = len(request.values)
    number = _whole_value(count, layout) if count > 1 else 0
    item, step = request.values[number].dtype.itemsize, abs(layout.axis.strides[number])
    if step in (0, item):
        return True
    return all([abs(d.strides[number]) != item for d in layout.others]) or _are_few(layout.others, item)


def _whole_value(count: int, layout: Layout) -> int:
    """Return the number of the first of `count` values that is broadcast along no axis; 0 if there is none."""
    for number in range(count):
        if layout.axis.strides[number] and all([d.strides[number] for d in layout.others]):
            return number
    return 0


def _are_few(lines: tuple[Dimension, ...], item: int) -> bool:
    """Return whether one element of each line takes less than a memory sector."""
    return math.prod([d.size for d in lines]) * item < SECTOR
