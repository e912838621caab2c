"""Columns with gaps: short rows of columns, and the rows beside them, as one axis (ColumnGaps in panel_tile.cuh).

Rows of `x[..., :-1]` have a gap behind them, and those of its results have none. So these axes cannot merge, though one
stretch of memory contains them. A tile of columns with gaps moves values together with the gaps.
"""

from __future__ import annotations

from typing import NamedTuple

from cuscan.planning.crossing import reach
from cuscan.planning.tuning import LINE_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

RECIPROCAL_BITS = 28  # as in struct ColumnGaps


class Gaps(NamedTuple):
    """Gaps between columns: the columns from gap to gap, and the bytes of a gap in each array."""

    every: int
    nbytes: tuple[int, ...]

    def words(self) -> tuple[int, ...]:
        """Return the words of struct ColumnGaps."""
        return (self.every, (1 << RECIPROCAL_BITS) // self.every + 1, *self.nbytes)


def with_gaps(request: ScanRequest, layout: Layout) -> tuple[Layout, Gaps] | None:
    """Return the layout whose columns are those of several rows, with gaps between these; None if it has no such gaps.

    Values and flags have small gaps, results none. Rows are shorter than a line of memory.
    """
    if len(layout.others) < 2:
        return None
    (columns, across), (rows, beyond), *rest = layout.others
    first, behind = len(request.values), len(request.kind.sizes)
    if columns * max(request.kind.sizes) >= LINE_BYTES:
        return None
    nbytes = tuple([far - columns * near for near, far in zip(across, beyond, strict=True)])
    for i, gap in enumerate(nbytes[: behind + 2]):
        spec = layout.arrays[i]
        if gap == 0 or spec is None:
            continue
        row = columns * across[i]
        is_result, lies_beside = first <= i < behind, across[i] == spec.dtype.itemsize
        if is_result or not lies_beside or not 0 < gap <= reach(row, gaps=True) - row:
            return None
    if not any(nbytes[: behind + 2]):
        return None
    one = new_tuple(Dimension, (columns * rows, across))
    return layout._replace(others=(one, *rest)), new_tuple(Gaps, (columns, nbytes))
