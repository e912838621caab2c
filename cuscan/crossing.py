"""Results that lie in another order than values: along which axis a scan runs, and which others its tiles have."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from cuscan.layout import Dimension, Layout
from cuscan.request import ScanRequest

SECTOR = 32  # bytes that memory moves at a time
LINES = 576  # columns of a tile, all rows of the batch together, of an axis of 32 steps or more
STEPS = 32


class Axes(NamedTuple):
    """The columns and the batch of a scan in panels."""

    others: tuple[Dimension, ...]
    crosses: (
        bool  # the first axis of the batch is in the tiles, since columns alone would not do for results and values
    )
    along: int  # bytes of an element of the results or the values, if these are neighbours along the scanned axis


def runs_along(request: ScanRequest, layout: Layout) -> bool:
    """Whether a scan runs along the contiguous axis: that of results and values, or of one of them.

    Then the other may have faster axes, but they take less than a sector.
    """
    if layout.axis.size == 1:
        return True
    values = layout.axis.strides[0]
    if layout.contiguous:
        item = request.values[0].dtype.itemsize
        wide = any(abs(d.strides[0]) == item and d.size * item >= SECTOR for d in layout.others)
        return values == 0 or abs(values) == item or not wide
    if abs(values) != request.values[0].dtype.itemsize:
        return False
    number = len(request.values)
    step = abs(layout.axis.strides[number])
    faster = [d.size for d in layout.others if abs(d.strides[number]) < step]
    return math.prod(faster) * request.results[0].dtype.itemsize < SECTOR


def tile_axes(request: ScanRequest, layout: Layout) -> Axes:
    """The axes of tiles, so that memory moves few bytes beside those of the results and the values.

    By default columns are along the fastest axis of the results. Where values have another one, that pair of axes is
    taken that wastes least.
    """
    others, axis = layout.others, layout.axis
    items = {0: request.values[0].dtype.itemsize, len(request.values): request.results[0].dtype.itemsize}
    fast = [
        next((d for d in (axis, *others) if abs(d.strides[number]) == item and d.size > 1), None)
        for number, item in items.items()
    ]
    if fast[0] is None or fast[0] is fast[1]:
        return Axes(others, False, 0)
    along = min((item for item, of in zip(items.values(), fast, strict=True) if of is axis), default=0)
    if len(others) == 1:
        return Axes(others, False, along)

    def waste(pair: tuple[Dimension, ...]) -> float:
        columns, outers = sides(pair[0].size, pair[1].size, lines)
        extents = (min(axis.size, STEPS), columns, outers)
        moved = sum(
            item * (1 + SECTOR / _segment((axis, *pair), extents, number, item)) for number, item in items.items()
        )
        return moved * max(lines / 2 / (columns * outers), 1)

    lines = LINES * max(STEPS // axis.size, 1)
    pairs = sorted(itertools.permutations(others, 2), key=lambda pair: (pair[0] is not fast[1], pair[0] is not fast[0]))
    column, outer = min(pairs, key=waste)
    rest = tuple(d for d in others if d is not column and d is not outer)
    return Axes((column, outer, *rest), True, along)


def _segment(axes: tuple[Dimension, ...], extents: tuple[int, ...], number: int, item: int) -> int:
    """The bytes of a tile of such extents that an array has without gaps."""
    segment = item
    for axis, extent in sorted(zip(axes, extents, strict=True), key=lambda each: abs(each[0].strides[number])):
        if extent > 1 and abs(axis.strides[number]) != segment:
            break
        segment *= extent
        if extent < axis.size:
            break
    return segment


def sides(columns: int, outers: int, lines: int) -> tuple[int, int]:
    """A part of so many columns and rows of the batch: of `lines` at most, about as many of both, or all of few."""
    side = math.isqrt(lines)
    if outers <= side + side // 2:
        return max(min(columns, lines // outers), 1), min(outers, lines)
    wide = columns if columns <= side + side // 2 else side // 8 * 8 or side
    return wide, lines // wide
