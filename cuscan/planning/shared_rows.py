"""How the rows of a block lie in shared memory (shared_rows.cuh)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from cuscan.planning.accesses import flags
from cuscan.planning.assemble import round_up
from cuscan.planning.config import Target
from cuscan.planning.hardware import SHARED_RESERVED
from cuscan.planning.tuning import STRETCH_BYTES, VECTOR_BYTES, blocks_per_sm
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension
from cuscan.specs import new_tuple

_SECTOR = 32  # bytes, of which the place of an array's rows is a multiple
_MARGIN = 32  # bytes before and after the rows of an array, which threads may read
_REST = 2 * _MARGIN + _SECTOR  # bytes of an array beside its rows
_GAP, _WIDER = 64, 1.25  # bytes, and times the bytes of a row: gaps that are loaded
_STEP = 16 * 1024  # a multiple of which is a block's shared memory: few kernels


class Rows(NamedTuple):
    """How an array's rows lie in shared memory: `RowsOfArray` in shared_rows.cuh."""

    row_bytes: int
    pitch: int
    together: bool
    gap: int  # bytes behind every `stretch` rows
    stretch: int

    def bytes_of(self, rows: int) -> int:
        """Return the bytes of so many rows, with margins."""
        nbytes = rows * self.pitch + rows // self.stretch * self.gap
        return round_up(max(nbytes, self.row_bytes), _SECTOR) + _REST


def rows_of(
    others: Sequence[Dimension], strides: Sequence[int], row_bytes: int, *, dense: bool, stretches: bool = False
) -> Rows:
    """Return how an array's rows lie in shared memory, given its strides along the batch axes `others`.

    Small gaps between rows are loaded, but never stored. With `dense`, only rows without gaps are together. With
    `stretches`, a small gap may lie behind the rows of the first axis.
    """
    if not any(strides):
        return new_tuple(Rows, (row_bytes, 0, False, 0, 1))
    pitch = step = strides[0]
    together, gap, stretch = row_bytes <= pitch <= (row_bytes if dense else _reach(row_bytes)), 0, 1
    for dim, stride in zip(others, strides, strict=True):
        if stretches and stretch == 1 and dim is not others[0]:
            gap, stretch = stride - step, others[0].size
            together &= step <= stride <= _reach(step)
            step = stride
        together &= stride == step
        step *= dim.size
    if not together:
        pitch, gap, stretch = round_up(row_bytes, VECTOR_BYTES) + VECTOR_BYTES, 0, 1
    return new_tuple(Rows, (row_bytes, pitch, together, gap, stretch))


def _reach(nbytes: int) -> float:
    """Return how far from so many bytes the next ones may begin for the gap between them to be loaded."""
    return max(nbytes + _GAP, nbytes * _WIDER)


def fitting_rows(staged: Collection[Rows], nbytes: int) -> int:
    """Return how many rows fit in so many bytes of shared memory."""
    pitches = 0.0
    for of_array in staged:
        nbytes -= of_array.bytes_of(0)
        pitches += of_array.pitch + of_array.gap / of_array.stretch
    return int((nbytes - _SECTOR) / max(pitches, 1))


def place_rows(
    kind: CallKind, staged: Mapping[int, Rows], rows_of_block: int, run: int, stretch: int
) -> tuple[tuple[int, ...], int]:
    """Return where a block's rows of arrays, by number, lie in shared memory: array after array.

    The rows of a block belong to one run of `run` rows, and have gaps behind every `stretch` rows, if any.

    Returns:
        The words of struct RowsGeometry, and the bytes of all rows.
    """
    beside, end = [rows_of_block, run, -(-run // rows_of_block), stretch], _SECTOR  # after the barrier
    for i in range(flags(kind).stop):
        rows = staged.get(i)
        if rows is None:
            beside += 0, 0, 0, 0
            continue
        beside += end + _MARGIN, rows.pitch, rows.together, rows.gap
        end += rows.bytes_of(rows_of_block)
    return tuple(beside), end


def residency_of(family: str, kind: CallKind, nbytes: int, block: int, target: Target) -> tuple[int, int]:
    """Return the shared memory of blocks of `block` threads, and how many of them fit on a multiprocessor.

    `nbytes` are those of a block's rows. The shared memory is a multiple of _STEP bytes if that fits.
    """
    room = target.shared_bytes - SHARED_RESERVED
    shared = min(round_up(max(STRETCH_BYTES, nbytes), _STEP), max(room, nbytes))
    fitting = target.shared_bytes // (shared + SHARED_RESERVED)
    return shared, max(min(blocks_per_sm(family, max(kind.sizes), block), fitting), 1)
