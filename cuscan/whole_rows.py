"""Narrow rows of columns without gaps, scanned along another axis in tiles of whole rows (whole_rows.cuh)."""

from __future__ import annotations

from typing import NamedTuple

from cuscan.assemble import batch_of, product, state_bytes
from cuscan.dtypes import DTYPES
from cuscan.layout import Dimension, Layout
from cuscan.order import LANES, PAIRED_SECTION
from cuscan.request import ScanRequest
from cuscan.strips import dense_columns
from cuscan.tuning import COLUMNS, STRIP_TILE_BYTES, VECTOR_BYTES

SLICES = 10  # of 32 columns that a row has, at most: a block has two warps for each
GROUP_PARTS = (8, 16)  # whose total is published together: those of a unit at least, and of a strip a few groups
BATCH = 2  # tiles that a block takes at a time, where there are enough for all blocks
LEAST_ROWS = 16  # of a tile
ABREAST = 32  # short strips that take turns
MOST_WARPS = 32  # of a block
STAGES = 8  # tiles that a block holds in shared memory, at most
AHEAD = 2  # tiles that a block has on their way, at most
FOLDERS = 3  # warps, at most
FINISHERS = 4
LOOKS = 16  # of a lane, at totals of one word, which travel together; of two words half as many
TEAMS = 2  # that seek in long strips, in turns: each walks down all of the strip
ENTRIES = 2  # lanes of a column that look at the groups of long strips
_STAGE_REST = 128  # bytes of a stage beside its arrays, at most
_REST = 128  # of a block


class WholeRows(NamedTuple):
    """What the kernel takes."""

    column: Dimension
    batch: tuple[Dimension, ...]
    parts: int
    words: int  # of totals of parts, and of groups
    constants: dict[str, int]
    block: int
    shared_bytes: int


def whole_rows_of(request: ScanRequest, layout: Layout, room: int, slots: int) -> WholeRows | None:
    """A scan of one value to one result that can take its place; else None."""
    if request.mask or request.segments or request.include_initial or (len(request.values), len(request.results)) != (1, 1):
        return None
    sizes = [spec.dtype.itemsize for spec in (*request.values, *request.results)]
    column = dense_columns(layout, sizes)
    if column is None or sizes[0] != sizes[1] or not LANES < column.size <= SLICES * LANES:
        return None
    batch = batch_of(layout, tuple(d for d in layout.others if d is not column))
    if not _alike(layout, batch):
        return None
    rows = COLUMNS.unit
    while rows > LEAST_ROWS and rows * column.size * sizes[0] > STRIP_TILE_BYTES + VECTOR_BYTES * LANES:
        rows //= 2
    if layout.axis.size < 2 * COLUMNS.unit:
        return None
    strips, tiles = product(batch), -(-layout.axis.size // rows)
    taken = BATCH if rows < COLUMNS.unit and strips * tiles >= BATCH * slots else 1
    of_unit, parts = COLUMNS.unit // (rows * taken), -(-tiles // taken)
    state = state_bytes(request, DTYPES[request.result.dtype.accumulator], DTYPES["int64"])
    carry = state_bytes(request, DTYPES[request.carry], DTYPES["int64"])
    window = _looks(carry)
    group_parts = next((n for n in GROUP_PARTS if parts <= n * (window + 1)), GROUP_PARTS[-1])
    group_parts = max(group_parts, of_unit)
    groups = -(-parts // group_parts)
    long = groups > window + 1
    levels = (group_parts // of_unit).bit_length() - 1
    slices = -(-column.size // LANES)
    entries, teams = (ENTRIES, TEAMS) if long else (1, 1)
    seekers = -(-column.size // (LANES // entries))
    each = window // 2 if long else window
    # Values of a GroupWalk::Place: a level for each doubling of a section's windows, and what is before them.
    places = 5
    of_part = column.size * max(levels * carry, 1)
    rest = _REST + of_part + (teams * places * carry * (column.size + 1) if long else 0)
    stage = rows * column.size * sizes[0] + column.size * 2 * state + _STAGE_REST
    stages = min((room - rest) // (stage + -(-of_part // taken)), STAGES)
    if stages < 3:
        return None
    folders, finishers = min(slices, FOLDERS), min(slices, FINISHERS)
    words = _even(strips * parts * column.size * -(-state // 4)) + strips * groups * column.size * -(-carry // 4)
    constants = {
        "Columns": column.size,
        "Rows": rows,
        "Folders": folders,
        "Finishers": finishers,
        "Batch": taken,
        "GroupParts": group_parts,
        "Looks": _looks(state),
        "Teams": teams,
        "Entries": entries,
        "Each": each,
        "Long": int(long),
        "Abreast": 1 if long else ABREAST,
        "Stages": stages,
        "Ahead": AHEAD,
        "Back": int(layout.axis.strides[0] < 0),
    }
    warps = (2 + folders + finishers + slices + teams * seekers)
    if warps > MOST_WARPS:
        return None
    return WholeRows(column, batch, strips * parts, words, constants, warps * LANES, stages * stage + -(-stages // taken) * of_part + rest - of_part)


def _alike(layout: Layout, batch: tuple[Dimension, ...]) -> bool:
    """Whether all rows of the result are as far from a multiple of 16 bytes as those of the value."""
    value, result = layout.arrays[:2]
    assert value and result
    steps = [(value.address + layout.offsets[0], result.address + layout.offsets[1])]
    steps += [dim.strides[:2] for dim in batch]
    return all((a - b) % VECTOR_BYTES == 0 for a, b in steps)


def _looks(nbytes: int) -> int:
    """Of a lane, at totals of so many bytes, that travel together."""
    words = -(-nbytes // 4)
    return LOOKS // words if words <= 2 else LOOKS // 8


def _even(words: int) -> int:
    return -(-words // 2) * 2
