"""The axes of panel tiles when results and values may differ in memory order."""

from __future__ import annotations

import itertools
import math

from cuscan.order import SECTOR
from cuscan.planning.assemble import even_part
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout

LINES = 576  # columns of a tile, over all its batch rows, for an axis of 32 steps or more
STEPS = 32  # steps per thread
MOST_ROWS = 128  # rows of threads in a tile


def tile_axes(request: ScanRequest, layout: Layout) -> tuple[tuple[Dimension, ...], bool, int]:
    """Choose the axes of tiles so that partly used memory sectors waste little bandwidth.

    By default columns run along the results' fastest axis. If the values have another fastest axis, the choice is the
    one with the least waste: one axis for columns, or one for columns and one for batch rows.

    Returns:
        The column axis followed by the batch axes; whether tiles also span the first batch axis, because columns alone
        are inefficient for results and values; and the item size in bytes of the results or values that are contiguous
        along the scanned axis (the smaller one if both are), or 0.
    """
    others, axis = layout.others, layout.axis
    sizes, values = request.kind.sizes, len(request.values)
    fast = _fastest(axis, others, 0, sizes[0])
    # No two axes of a result have equal strides.
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
    """Return the axis along which an array is contiguous, the scanned one first; None if there is none."""
    if abs(axis.strides[number]) == item and axis.size > 1:
        return axis
    for other in others:
        if abs(other.strides[number]) == item:
            return other
    return None


def _segment(axes: tuple[Dimension, ...], extents: tuple[int, ...], number: int, item: int) -> int:
    """Return the bytes of an array that are contiguous in memory within a tile of the given extents."""
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
    """Return the columns and batch rows of a tile with at most `lines` lines.

    The tile is roughly square, but takes all columns or all batch rows if there are only few.
    """
    side = math.isqrt(lines)
    if outers <= side + side // 2:
        return even_part(columns, max(lines // outers, 1)), min(outers, lines)
    wide = columns if columns <= side + side // 2 else side // 8 * 8 or side
    return wide, even_part(outers, lines // wide)
