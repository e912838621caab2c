"""Plans of the whole_rows family: tiles of whole rows of columns without gaps (whole_rows.cuh)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cuscan.kept import MOST
from cuscan.order import COLUMNS, LANES, PAIRED_SECTION
from cuscan.planning.accesses import accesses_of
from cuscan.planning.assemble import assemble, batch_of, power_of_two, product, round_up, state_bytes
from cuscan.planning.config import ScanPlan, Target
from cuscan.planning.hardware import WORD_BYTES
from cuscan.planning.staged_flags import NO_FLAGS, Flags, staged_flags, with_flags
from cuscan.planning.tuning import LINE_BYTES, LINE_WORDS, VECTOR_BYTES, WHOLE_COLUMNS, WHOLE_TILE_BYTES
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout

LEAST_UNITS = 2  # least units per strip
ROWS = (16, 128, 256)  # rows per tile: least, most, and of rows so short that this tile has at most NARROW_BYTES
NARROW_BYTES = 21 * 1024
BATCH = 2  # tiles per part if there are enough for all blocks
GROUP_PARTS = (8, 16)  # parts per published total: as few as leave a strip one window of groups, or the most
ABREAST = 32  # strips of one window that take turns
STAGES = (3, 14)  # tiles in a block's shared memory: least and most
AHEAD = (2, 51 * 1024)  # tiles that a block loads ahead: so many, or as many as have these bytes
MOST_WARPS = 32  # most warps of a block
REDUCE_WARPS = 4  # most reduce warps
SHARE_ROWS = 64  # most rows of a column per thread
STORE_WARPS = 4  # most store warps; for elements smaller than a word, per tile of a part
LOOK_WORDS = 16  # most words of totals that a lane looks at together
PART_LOOKS = (4, 16)  # most looks at totals of parts: with one window of groups, with several
ENTRIES = 2  # lanes of a column that look at groups if there are several windows, of at most ENTRY_COLUMNS columns
ENTRY_COLUMNS = 160
WINDOW_GROUP = 16  # windows of a section whose totals are stored together (SectionCarry)
LEAST_COLUMNS = 16  # of short rows, or with flags
QUICK_COLUMNS, MOST_QUICK = 17, 184  # least and most columns with which they are faster than strips of aligned rows
WIDE_CARRY, WIDE_COLUMNS = 8, 6  # the least with wider carries, in bytes, and without flags, as strips then spill
LEAST_ROW_BYTES = 28  # least bytes of a row of fewer than LEAST_COLUMNS columns: tiles have few rows
WASTE = 1.5  # rows of all parts, at most, as a multiple of the axis
QUICK_BYTES = 512  # of a row: up to here faster than strips if there is a tile for each block, but for bytes
_STAGE_REST = 128  # most bytes of a stage beside its arrays
_REST = 256  # most bytes of a block beside its stages


class WholeRows(NamedTuple):
    """How blocks take parts of whole rows."""

    column: Dimension
    batch: tuple[Dimension, ...]
    flags: tuple[Flags, Flags]
    quick: bool  # whether this is faster than strips
    parts: int
    words: int  # of the totals of parts and of groups
    constants: dict[str, int]
    block: int
    shared_bytes: int


def whole_rows_of(request: ScanRequest, layout: Layout, column: Dimension, room: int, slots: int) -> WholeRows | None:
    """Return how blocks take a scan of one value to one result that can take its place, or None.

    `column`: the columns, which are dense.
    """
    row_bytes = column.size * request.result.dtype.itemsize
    if column.size > WHOLE_COLUMNS or (column.size < LEAST_COLUMNS and row_bytes < LEAST_ROW_BYTES):
        return None
    if layout.axis.size < LEAST_UNITS * COLUMNS.unit:
        return None
    op, carry = request.kind.op, state_bytes(request.kind)[1]
    # Blocks combine many totals of others: a user's operator or exponentials of float64 may take longer than all else.
    is_slow = op.costly or (not op.exact and carry > WIDE_CARRY)
    if is_slow or not _is_one_to_one(request) or layout.axis.strides[0] == 0:
        return None
    batch = batch_of(layout, tuple(d for d in layout.others if d is not column))
    flags = staged_flags(request, layout, column, flat=True)
    if flags is None or (flags != NO_FLAGS and column.size < LEAST_COLUMNS) or not _alike(layout, batch):
        return None
    rows = _rows(row_bytes)
    strips, tiles = product(batch), -(-layout.axis.size // rows)
    taken = BATCH if strips * tiles >= BATCH * slots else 1
    parts = -(-tiles // taken)
    if parts * taken * rows > WASTE * layout.axis.size:
        return None
    chain = _chain(request.kind, column.size, parts, rows * taken)
    made = _block(request.kind, flags, room, column.size, rows, taken, chain, layout.axis.strides[0] < 0)
    if made is None:
        return None
    column_words = parts * chain.part_words + -(-parts // chain.group_parts) * chain.carry_words
    words = strips * round_up(column.size, LINE_WORDS) * column_words
    least = WIDE_COLUMNS if carry > WIDE_CARRY and flags == NO_FLAGS else QUICK_COLUMNS
    narrow = least <= column.size <= MOST_QUICK and 2 * column.size <= row_bytes <= QUICK_BYTES
    quick = narrow and strips * tiles >= slots
    return WholeRows(column, batch, flags, quick, strips * parts, words, *made)


@functools.lru_cache(MOST)
def _block(
    kind: CallKind,
    flags: tuple[Flags, Flags],
    room: int,
    columns: int,
    rows: int,
    taken: int,
    chain: _Chain,
    back: bool,
) -> tuple[dict[str, int], int, int] | None:
    """Return the constants of a block, its threads and its bytes of shared memory, or None if that is too little."""
    state, carry = state_bytes(kind)
    row_bytes = columns * kind.results[0].itemsize
    shares = max(rows // SHARE_ROWS, 1)
    slices, share_slices = -(-columns // LANES), -(-columns * shares // LANES)
    reduce_warps, store_warps = min(share_slices, REDUCE_WARPS), min(share_slices, STORE_WARPS)
    if row_bytes < WORD_BYTES * columns:
        store_warps *= taken
    look_back_warps = -(-columns // (LANES // chain.entries))
    warps = 2 + reduce_warps + store_warps + slices + look_back_warps

    totals = (1 + shares) * columns * state
    beside = round_up(sum([array.bytes_of(rows, columns, flat=True) for array in flags]), LINE_BYTES)
    stage = round_up(rows * row_bytes + beside + totals + LINE_BYTES + _STAGE_REST, LINE_BYTES)
    nodes = columns * chain.node_levels * carry
    rest = _REST + (columns + 1 if chain.long else 1) * chain.place_values * carry
    shared_bytes = {n: n * stage + -(-n // taken) * nodes + rest for n in range(STAGES[0], STAGES[1] + 1)}
    stages = max((n for n, size in shared_bytes.items() if size <= room), default=0)
    if stages == 0 or warps > MOST_WARPS:
        return None
    constants = {
        "Columns": columns,
        "Rows": rows,
        "Shares": shares,
        "Batch": taken,
        "GroupParts": chain.group_parts,
        "Long": int(chain.long),
        "Abreast": 1 if chain.long else ABREAST,
        "ReduceWarps": reduce_warps,
        "StoreWarps": store_warps,
        "Looks": min(_looks(chain.part_words), PART_LOOKS[chain.long]),
        "Entries": chain.entries,
        "Each": chain.each,
        "Stages": stages,
        "Ahead": min(max(AHEAD[0], AHEAD[1] // (rows * row_bytes)), stages - 1),
        "Back": int(back),
    }
    return constants, warps * LANES, shared_bytes[stages]


def _rows(row_bytes: int) -> int:
    """Return the number of rows per tile."""
    least, rows, most = ROWS
    if most * row_bytes <= NARROW_BYTES:
        return most
    while rows > least and rows * row_bytes > WHOLE_TILE_BYTES:
        rows //= 2
    return rows


class _Chain(NamedTuple):
    """How blocks share strips."""

    group_parts: int
    long: bool  # whether there are several windows of groups
    entries: int  # lanes of a column that look at groups
    each: int  # groups of a window that a lane looks at
    part_words: int  # of the total of a part
    carry_words: int  # of the total of a group
    node_levels: int  # values of WholeRowsLayout::Nodes
    place_values: int  # of GroupWalk::Place


def _chain(kind: CallKind, columns: int, parts: int, part_rows: int) -> _Chain:
    state, carry = state_bytes(kind)
    of_unit = max(COLUMNS.unit // part_rows, 1)  # parts per unit; one if a part has units
    units = max(part_rows // COLUMNS.unit, 1)  # units per part; one if a unit has parts
    carry_words = -(-carry // WORD_BYTES)
    part_words = carry_words if units > 1 else -(-state // WORD_BYTES)
    looks = _looks(carry_words)
    # With one window of groups, no block reads the last one of a strip.
    few = next((n for n in GROUP_PARTS if parts <= n * (looks + 1)), max(GROUP_PARTS))
    group_parts = max(few, of_unit)
    groups, nodes = -(-parts // group_parts), group_parts // of_unit
    long = groups > looks + 1
    entries = ENTRIES if long and columns <= ENTRY_COLUMNS else 1
    each = looks // 2 if long else looks
    # A value for each doubling of a section's windows, two for what precedes them; a fold of one takes a value too.
    windows = PAIRED_SECTION // (entries * each * nodes * units)
    place_values = windows.bit_length() + 1 + (windows <= WINDOW_GROUP)
    node_levels = max(nodes.bit_length() - 1, 1)
    return _Chain(group_parts, long, entries, each, part_words, carry_words, node_levels, place_values)


def _is_one_to_one(request: ScanRequest) -> bool:
    """Return whether a scan has one value, one result of its size, and no leading element."""
    kind = request.kind
    return len(kind.values) == len(kind.results) == 1 and kind.sizes[0] == kind.sizes[1] and not kind.include_initial


def _alike(layout: Layout, batch: tuple[Dimension, ...]) -> bool:
    """Return whether each row of the result is as far from a multiple of 16 bytes as the same row of the value."""
    value, result = layout.arrays[:2]
    assert value and result
    steps = [(value.address + layout.offsets[0], result.address + layout.offsets[1])]
    steps += [(dim.strides[0], dim.strides[1]) for dim in batch]
    return all((a - b) % VECTOR_BYTES == 0 for a, b in steps)


def _looks(words: int) -> int:
    """Return the most totals of `words` words that a lane looks at together."""
    return power_of_two(max(LOOK_WORDS // words, 2), down=True)


def plan_whole_rows(request: ScanRequest, layout: Layout, target: Target, whole: WholeRows) -> ScanPlan:
    """Return the plan for whole rows."""
    return assemble(
        request,
        layout,
        "whole_rows",
        batch=whole.batch,
        column=whole.column,
        accesses=with_flags(accesses_of(layout, whole.column, [layout.axis, *whole.batch], 1), 2, whole.flags),
        items=1,
        constants=whole.constants,
        block=whole.block,
        blocks_per_sm=1,
        grid=min(whole.parts, target.sm_count),
        shared_bytes=whole.shared_bytes,
        units=-(-layout.axis.size // COLUMNS.unit),
        tickets=True,
        words=whole.words,
    )
