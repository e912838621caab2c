"""Narrow rows of columns without gaps, scanned along another axis in tiles of whole rows (whole_rows.cuh)."""

from __future__ import annotations

from typing import NamedTuple

from cuscan.assemble import batch_of, power_of_two, product, state_bytes
from cuscan.dtypes import DTYPES
from cuscan.layout import Dimension, Layout
from cuscan.order import LANES, PAIRED_SECTION
from cuscan.request import ScanRequest
from cuscan.strips import dense_columns
from cuscan.tuning import COLUMNS, VECTOR_BYTES, WHOLE_COLUMNS, WHOLE_TILE_BYTES

LEAST_UNITS = 2  # of a strip
ROWS = (16, 128)  # of a tile, at least and at most
BATCH = 2  # tiles of a part, where there are enough for all blocks
GROUP_PARTS = (8, 16)  # whose total is published: as few as leave a strip one window of groups, or most
ABREAST = 32  # strips of one window that take turns
STAGES = (3, 14)  # tiles that a block holds in shared memory, at least and at most
AHEAD = 2  # tiles that a block has on their way, at most
MOST_WARPS = 32  # of a block
FOLDERS = 4  # warps, at most
FINISHERS = 4  # for each tile of a part where these are quickly there: of elements smaller than a word, or short rows
TEAM_BYTES = 160
LOOK_WORDS = 16  # of totals that a lane looks at together, at most
PART_LOOKS = (4, 8)  # at totals of parts, at most; where there are several windows of groups
ENTRIES = 2  # lanes of a column that look at groups, where there are several windows, and not many columns
ENTRY_SLICES = 5
QUICK_BYTES = 512  # of a row: up to there faster than strips, but of bytes, where there is a tile for each block
_STAGE_REST = 128  # bytes of a stage beside its arrays, at most
_REST = 128  # of a block, at most


class WholeRows(NamedTuple):
    """What the kernel takes."""

    column: Dimension
    batch: tuple[Dimension, ...]
    quick: bool  # faster than strips
    parts: int
    words: int  # of totals of parts, and of groups
    constants: dict[str, int]
    block: int
    shared_bytes: int


def whole_rows_of(request: ScanRequest, layout: Layout, room: int, slots: int) -> WholeRows | None:
    """A scan of one value to one result that can take its place, with nothing beside them; else None."""
    column = _column(request, layout)
    if column is None or layout.axis.size < LEAST_UNITS * COLUMNS.unit:
        return None
    batch = batch_of(layout, tuple(d for d in layout.others if d is not column))
    if not _alike(layout, batch):
        return None
    row_bytes = column.size * request.result.dtype.itemsize
    least, rows = ROWS
    while rows > least and rows * row_bytes > WHOLE_TILE_BYTES:
        rows //= 2
    strips, tiles = product(batch), -(-layout.axis.size // rows)
    taken = BATCH if strips * tiles >= BATCH * slots else 1
    of_unit, parts = COLUMNS.unit // (rows * taken), -(-tiles // taken)

    state = state_bytes(request, DTYPES[request.result.dtype.accumulator], DTYPES["int64"])
    carry = state_bytes(request, DTYPES[request.carry], DTYPES["int64"])
    state_words, carry_words = -(-state // 4), -(-carry // 4)
    looks = _looks(carry_words)
    # A strip with one window of groups: its last one is nobody's business.
    few = next((n for n in GROUP_PARTS if parts <= n * (looks + 1)), max(GROUP_PARTS))
    group_parts = max(few, of_unit)
    groups, slices = -(-parts // group_parts), -(-column.size // LANES)
    long = groups > looks + 1
    entries = ENTRIES if long and slices <= ENTRY_SLICES else 1
    each = looks // 2 if long else looks
    seekers = -(-column.size // (LANES // entries))
    teams = taken if row_bytes < TEAM_BYTES or row_bytes < 4 * column.size else 1
    folders, finishers = min(slices, FOLDERS), teams * min(slices, FINISHERS)
    warps = 2 + folders + finishers + slices + seekers
    # Values of GroupWalk::Place: one for each doubling of a section's windows, and two for what is before them.
    walk = (PAIRED_SECTION * of_unit // (entries * each * group_parts)).bit_length() + 1 if long else 0
    units = column.size * max((group_parts // of_unit).bit_length() - 1, 1) * carry
    stage = rows * row_bytes + 2 * column.size * state + _STAGE_REST
    rest = _REST + units + walk * carry * (column.size + 1)
    stages = min((room - rest) // (stage + -(-units // taken)), STAGES[1])
    if stages < STAGES[0] or warps > MOST_WARPS:
        return None
    constants = {
        "Columns": column.size,
        "Rows": rows,
        "Batch": taken,
        "GroupParts": group_parts,
        "Long": int(long),
        "Abreast": 1 if long else ABREAST,
        "Folders": folders,
        "Finishers": finishers,
        "Looks": min(_looks(state_words), PART_LOOKS[long]),
        "Entries": entries,
        "Each": each,
        "Stages": stages,
        "Ahead": AHEAD,
        "Back": int(layout.axis.strides[0] < 0),
    }
    words = strips * column.size * (parts * state_words + groups * carry_words) + 1  # the second table begins evenly
    shared_bytes = stages * stage + -(-stages // taken) * units + rest - units
    quick = 2 * column.size <= row_bytes <= QUICK_BYTES and strips * tiles >= slots
    return WholeRows(column, batch, quick, strips * parts, words, constants, warps * LANES, shared_bytes)


def _column(request: ScanRequest, layout: Layout) -> Dimension | None:
    """The columns beside the scanned axis, if there are neither many nor few, and they lie so that tiles can."""
    if request.mask or request.segments or request.include_initial or len(request.values) + len(request.results) > 2:
        return None
    if request.values[0].dtype.itemsize != request.result.dtype.itemsize:
        return None
    column = dense_columns(layout, [request.result.dtype.itemsize] * 2)
    return column if column and column.size in WHOLE_COLUMNS else None


def _alike(layout: Layout, batch: tuple[Dimension, ...]) -> bool:
    """Whether each row of the result is as far from a multiple of 16 bytes as that of the value."""
    value, result = layout.arrays[:2]
    assert value and result
    steps = [(value.address + layout.offsets[0], result.address + layout.offsets[1])]
    steps += [(dim.strides[0], dim.strides[1]) for dim in batch]
    return all((a - b) % VECTOR_BYTES == 0 for a, b in steps)


def _looks(words: int) -> int:
    """Totals of so many words that a lane looks at together, at most."""
    return power_of_two(max(LOOK_WORDS // words, 2), down=True)
