"""The axes of tiles of columns, where results may lie in another order than values."""

from __future__ import annotations

import itertools
import math

from cuscan.order import SECTOR
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout

LINES = 576  # columns of a tile, all rows of the batch together, of an axis of 32 steps or more
STEPS = 32
MOST_ROWS = 128  # of threads above each other, which have 32 steps each


def tile_axes(request: ScanRequest, layout: Layout) -> tuple[tuple[Dimension, ...], bool, int]:
    """The axes of tiles, so that memory moves few bytes beside those of the results and the values.

    The columns, and then the batch; whether tiles have many rows of the batch, too, as columns alone would not do for
    results and values; and the bytes of an element of the results or the values, if these are neighbours along the
    scanned axis.

    By default columns are along the fastest axis of the results. Where values have another one, those axes are taken
    that waste least: one for columns, or that and one for rows of the batch.
    """
    others, axis = layout.others, layout.axis
    sizes, values = request.kind.sizes, len(request.values)
    fast = _fastest(axis, others, 0, sizes[0])
    # No two axes of a result are as fast.
    if fast is None or abs(fast.strides[values]) == sizes[values]:
        return others, False, 0
    fast_of_result = _fastest(axis, others, values, sizes[values])
    items = {0: sizes[0], values: sizes[values]}
    along = min(
        (item for item, of in zip(items.values(), (fast, fast_of_result), strict=True) if of is axis), default=0
    )
    lines = LINES * max(STEPS // axis.size, 1)

    def waste(taken: tuple[Dimension, ...]) -> float:
        columns, outers = sides(taken[0].size, taken[1].size if len(taken) > 1 else 1, lines)
        extents = (min(axis.size, STEPS), columns, outers)[: 1 + len(taken)]
        segments = [(item, _segment((axis, *taken), extents, number, item)) for number, item in items.items()]
        moved = sum([item * (1 + SECTOR / segment) for item, segment in segments])
        return moved * max(lines / 2 / (columns * outers * min(-(-axis.size // STEPS), MOST_ROWS)), 1)

    taken = min((*itertools.permutations(others, 1), *itertools.permutations(others, 2)), key=waste)
    rest = tuple(d for d in others if all(d is not each for each in taken))
    return (*taken, *rest), len(taken) > 1, along


def _fastest(axis: Dimension, others: tuple[Dimension, ...], number: int, item: int) -> Dimension | None:
    """The axis along which an array has neighbours: the scanned one, or another."""
    if abs(axis.strides[number]) == item and axis.size > 1:
        return axis
    for other in others:
        if abs(other.strides[number]) == item:
            return other
    return None


def _segment(axes: tuple[Dimension, ...], extents: tuple[int, ...], number: int, item: int) -> int:
    """The bytes of a tile of such extents that an array has without gaps."""
    steps = [abs(axis.strides[number]) for axis in axes]
    segment = item
    if item not in steps:
        return segment
    for a in sorted(range(len(axes)), key=steps.__getitem__):
        if extents[a] > 1 and steps[a] != segment:
            break
        segment *= extents[a]
        if extents[a] < axes[a].size:
            break
    return segment


def sides(columns: int, outers: int, lines: int) -> tuple[int, int]:
    """A part of so many columns and rows of the batch: of `lines` at most, about as many of both, or all of few."""
    side = math.isqrt(lines)
    if outers <= side + side // 2:
        return max(min(columns, lines // outers), 1), min(outers, lines)
    wide = columns if columns <= side + side // 2 else side // 8 * 8 or side
    return wide, lines // wide
