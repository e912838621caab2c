"""Masks and segment starts in shared memory, beside the values of a tile (staged_flags.cuh)."""

from __future__ import annotations

from typing import NamedTuple

from cuscan.planning.accesses import flags, goes_back
from cuscan.planning.assemble import round_up
from cuscan.planning.config import Access
from cuscan.planning.tuning import VECTOR_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout

_WORD = 4  # bytes


class Flags(NamedTuple):
    """How flags lie in a tile: an item of `size` bytes for each element; or, without, a bit or a byte for each row."""

    access: Access
    size: int = 0
    bits: bool = False

    @property
    def present(self) -> bool:
        return self.bits or self.access is not Access.NONE

    def bytes_of(self, rows: int, columns: int, *, flat: bool) -> int:
        """Return the bytes of a tile, of whole rows of the arrays if `flat`."""
        of_row = columns * self.size or 1
        if not self.present:
            return 0
        gap = VECTOR_BYTES - 1
        if self.size and not flat:
            return round_up(rows * (of_row + 2 * gap), VECTOR_BYTES)
        stretch = -(-rows // 32) * _WORD if self.bits else rows * of_row
        return round_up(round_up(stretch + gap, VECTOR_BYTES) + _WORD, VECTOR_BYTES)


NO_FLAGS = (Flags(Access.NONE), Flags(Access.NONE))


def staged_flags(request: ScanRequest, layout: Layout, column: Dimension, *, flat: bool) -> tuple[Flags, Flags] | None:
    """Return how the mask and the segment starts lie in tiles of `column`; None if they cannot lie there.

    Flags are contiguous across columns, or hold for all columns and are contiguous along the axis. If tiles are
    `flat`, of whole rows without gaps, so are the flags of elements. Keys cannot lie there: the first one of a tile is
    compared with the one before the tile.
    """
    segments = request.segments
    if segments is None and request.mask is None:
        return NO_FLAGS
    if segments is not None and segments.kind == "keys":
        return None
    along = -column.size if goes_back(layout, len(request.kind.sizes)) else column.size  # items from row to row
    found = []
    for number in flags(request.kind):
        spec, step, across = layout.arrays[number], layout.axis.strides[number], column.strides[number]
        if spec is None:
            found.append(Flags(Access.NONE))
        elif across == 0 and abs(step) == spec.dtype.itemsize == 1:
            found.append(Flags(Access.BROADCAST))
        elif across == spec.dtype.itemsize and (not flat or step == along * across):
            found.append(Flags(Access.VECTOR, across))
        else:
            return None
    mask, starts = found
    return mask, Flags(Access.NONE, bits=True) if segments is not None and segments.kind == "offsets" else starts


def with_flags(accesses: tuple[Access, ...], arrays: int, of: tuple[Flags, Flags]) -> tuple[Access, ...]:
    """Return the accesses of all arrays with those of the flags, which follow `arrays` values and results."""
    if of == NO_FLAGS:
        return accesses
    return (*accesses[:arrays], *[flags.access for flags in of], *accesses[arrays + 2 :])
