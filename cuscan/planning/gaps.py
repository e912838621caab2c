"""Columns with gaps: short rows of columns, and the rows beside them, as one axis (ColumnGaps in panel_tile.cuh).

Rows of `x[..., :-1]` have a gap behind them, and those of its results have none. So these axes cannot merge, though one
stretch of memory contains them: a tile moves values together with the gaps. Where arrays differ in memory order, rows
may also lie far apart in some of them, and a tile spans a third axis beside the steps.
"""

from __future__ import annotations

from typing import NamedTuple

from cuscan.order import SECTOR
from cuscan.planning.tuning import LINE_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

RECIPROCAL_BITS = 28  # as in struct ColumnGaps
APART = 1.25  # values move with the gaps along an axis if they lie at most so many times as far apart as without,
SPARSE = 4  # or, with gaps of at most a sector, which moves anyway, at most so many times


def reach(segment: int, gaps: bool) -> float:
    """Return how far from a segment's beginning the next one may begin to move together with it, in bytes."""
    return max(APART * segment, min(SPARSE * segment, segment + SECTOR)) if gaps else segment


class Gaps(NamedTuple):
    """Gaps between columns: the columns from gap to gap, and the bytes of a gap in each array, perhaps negative."""

    every: int
    nbytes: tuple[int, ...]

    def words(self) -> tuple[int, ...]:
        """Return the words of struct ColumnGaps, but for the gaps in the tile."""
        return (self.every, (1 << RECIPROCAL_BITS) // self.every + 1, *self.nbytes)


def rows_as_one(columns: Dimension, rows: Dimension) -> tuple[Dimension, Gaps]:
    """Return the axis of the columns of all rows, and its gaps."""
    nbytes = tuple([far - columns.size * near for near, far in zip(columns.strides, rows.strides, strict=True)])
    one = new_tuple(Dimension, (columns.size * rows.size, columns.strides))
    return one, new_tuple(Gaps, (columns.size, nbytes))


def with_gaps(request: ScanRequest, layout: Layout) -> tuple[Layout, Gaps] | None:
    """Return the layout whose columns are those of several rows, with gaps between these; None if it has no such gaps.

    Values and flags have small gaps, results none. Rows are shorter than a line of memory.
    """
    if len(layout.others) < 2:
        return None
    columns, rows, *rest = layout.others
    first, behind = len(request.values), len(request.kind.sizes)
    if columns.size * max(request.kind.sizes) >= LINE_BYTES:
        return None
    one, gaps = rows_as_one(columns, rows)
    for i, gap in enumerate(gaps.nbytes[: behind + 2]):
        spec = layout.arrays[i]
        if gap == 0 or spec is None:
            continue
        row = columns.size * columns.strides[i]
        is_result, lies_beside = first <= i < behind, columns.strides[i] == spec.dtype.itemsize
        if is_result or not lies_beside or not 0 < gap <= reach(row, gaps=True) - row:
            return None
    if not any(gaps.nbytes[: behind + 2]):
        return None
    return layout._replace(others=(one, *rest)), gaps
