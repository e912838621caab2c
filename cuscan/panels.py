"""Panels of columns: which tiles blocks take through shared memory (panels.cuh), wherever their rows begin."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cuscan.assemble import batch_of, index_dtype, power_of_two, product, round_up, state_bytes
from cuscan.config import Target
from cuscan.crossing import SECTOR, sides, tile_axes
from cuscan.kept import MOST
from cuscan.layout import Dimension, Layout
from cuscan.panel_tile import (
    FINDERS,
    LANES,
    RUN,
    WIDE_STATE,
    PanelScan,
    Shape,
    aligned_columns,
    parts_of,
    share_of,
    smaller,
    table_words,
    tile_words,
)
from cuscan.request import CallKind, ScanRequest
from cuscan.tuning import COLUMNS, LINE_BYTES


class Blocks(NamedTuple):
    """Blocks on an SM, worker threads of a block, bytes of neighbouring columns that a thread loads at once."""

    per_sm: int
    threads: int
    vector: int


MANY = Blocks(2, 288, 8)  # for panels of a single tile
LARGE = Blocks(1, 576, 4)  # where one block takes all tiles of a panel: wide rows use memory best
SHARING = Blocks(2, 288, 4)  # where blocks share a panel: while one waits for totals the other works
WIDE = Blocks(1, 448, 8)  # where a state takes twice the registers
REGISTER = 4  # bytes
SHARED_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
LEAST_BYTES = 128  # of a row of a panel that a block has for itself
SHARED_BYTES = 256  # of a row of one that blocks share
SIDE_BYTES = 128  # of a tile along its steps, where results or values are contiguous along them
WHOLE_BYTES = 512  # of a row that is not divided then
CHUNK_BYTES = 128 * 1024  # of values that a block takes twice, where blocks share panels: the cache holds those of all
CHUNKS = 4  # of each block, if chunks can be as small
BUSY = 0.85  # of blocks, on the average of waves, is enough
IDLE = 0.75  # the share of blocks that must have panels, or else they share these


class Panels(NamedTuple):
    """How blocks take panels: what the compiler gets, what is an argument, and the blocks."""

    batch: tuple[Dimension, ...]
    column: Dimension
    constants: dict[str, int]
    beside: tuple[int, ...]
    block: int
    blocks_per_sm: int
    shared_bytes: int
    number: int
    chunks: int  # of a panel, where blocks share panels
    words: int  # of the workspace, where blocks share panels

    @property
    def shared(self) -> bool:
        return self.words > 0


def panels_of(request: ScanRequest, layout: Layout, target: Target) -> Panels:
    """Panels for a scan along another axis than the contiguous one, of the results or of the values."""
    kind = request.kind
    state, carry, widest, narrowest, held = _elements_of(kind, index_dtype(request))
    (column, *others), crosses, along = tile_axes(request, layout)
    batch = batch_of(layout, tuple(others))
    counts = kind.op.indexed and bool(request.carry_in) and not kind.reverse
    wide, length = state > WIDE_STATE, layout.axis.size
    aligned = 1 if wide or counts else aligned_columns(request, layout, column, batch)

    def scan_of(blocks: Blocks) -> PanelScan:
        per_sm, threads, vector = WIDE if wide else blocks
        pack = min(aligned, max(vector // narrowest, 1))
        elements = held if power_of_two(length) >= RUN and blocks is not SHARING else min(held, 32)
        share = share_of(length, elements, max(pack, elements // 64 * REGISTER // narrowest), counts=counts)
        steps = share[0] * share[1]
        most = _most(length, steps, threads * share[2], along)
        of_kind = state, carry, widest, pack, share, steps
        return PanelScan(length, column, batch, *of_kind, crosses, along, per_sm, threads, most)

    if length <= COLUMNS.unit and not crosses:  # or else fewer blocks of more columns have longer segments
        scan = scan_of(MANY)
        shape = _own_shape(scan, target)
        if length <= shape.height:
            return _panels(request, layout, target, scan, shape)
    scan = scan_of(LARGE)
    shape = _own_shape(scan, target)
    if _panels_of_shape(scan, shape) < IDLE * target.sm_count * scan.per_sm and length > shape.height:
        sharing = scan_of(SHARING)
        shared = _shared_shape(sharing, CHUNKS * target.sm_count * sharing.per_sm)
        if length > shared.height:
            return _panels(request, layout, target, sharing, shared, shares=True)
    return _panels(request, layout, target, scan, shape)


class _Elements(NamedTuple):
    """Bytes of states, of the widest and the narrowest element; elements that a thread has registers for."""

    state: int
    carry: int
    widest: int
    narrowest: int  # of the values
    held: int


@functools.lru_cache(MOST)
def _elements_of(kind: CallKind, index: str) -> _Elements:
    state, carry = state_bytes(kind, index)
    sizes = [dtype.itemsize for dtype in kind.values]
    widest = max(*sizes, *[dtype.itemsize for dtype in kind.results])
    registers = sum([max(size, REGISTER) for size in sizes])
    held = 8 if state > WIDE_STATE else 16 if max(widest, registers) >= 8 else 32
    if widest < REGISTER == registers and state <= REGISTER:
        held = 64  # which share registers
    return _Elements(state, carry, widest, min(sizes), held)


def _panels(
    request: ScanRequest, layout: Layout, target: Target, scan: PanelScan, shape: Shape, *, shares: bool = False
) -> Panels:
    """Panels of tiles of a shape, or a smaller one if that takes too much shared memory."""
    room = (target.shared_bytes // scan.per_sm - SHARED_RESERVED) // LINE_BYTES * LINE_BYTES
    while True:
        chain = "shared" if shares else "kept" if scan.length > min(shape.height, COLUMNS.unit) else ""
        places, arrays, nbytes = tile_words(request, layout, scan, shape, chain)
        if nbytes <= room:
            break
        shape = smaller(scan, shape)
    panels, row_blocks = -(-scan.column.size // shape.columns), -(-scan.batch[0].size // shape.outers)
    number, tiles = panels * row_blocks * product(scan.batch[1:]), -(-scan.length // shape.height)
    steps, runs, slots = scan.share
    constants = {
        "Threads": scan.threads + FINDERS,
        "Steps": steps,
        "Runs": runs,
        "Slots": slots,
        "Kept": int(chain == "kept"),
        "Units": int(shape.units > 1),
        "Pack": scan.pack,
        "Many": scan.many,
    }
    _, _, kept, parts, _ = places
    levels = _chunk_levels(request, target, scan, shape, number, tiles) if shares else parts + kept
    chunks = -(-tiles >> levels)
    return Panels(
        scan.batch,
        scan.column,
        constants,
        (
            *(shape.columns, shape.outers, panels, row_blocks, shape.rows, *places, levels),
            *((-(-shape.rows // scan.many) - 1).bit_length(), number, tiles, *arrays),
        ),
        scan.threads + FINDERS,
        scan.per_sm,
        room,
        number,
        chunks,
        table_words(scan, number, number * shape.width * chunks) if shares else 0,
    )


def _chunk_levels(request: ScanRequest, target: Target, scan: PanelScan, shape: Shape, panels: int, tiles: int) -> int:
    """Levels of the tiles that a block takes at a time: a unit, or as many as the cache keeps until they come again."""
    levels = least = parts_of(shape.height)
    taken = shape.width * shape.height * sum(dtype.itemsize for dtype in request.kind.values)
    while taken << levels + 1 <= CHUNK_BYTES:
        levels += 1
    while levels > least and panels * (tiles >> levels) < CHUNKS * target.sm_count * scan.per_sm:
        levels -= 1
    return levels


def _panels_of_shape(scan: PanelScan, shape: Shape) -> int:
    """How many panels there are."""
    return -(-scan.column.size // shape.columns) * -(-scan.batch[0].size // shape.outers) * product(scan.batch[1:])


def _crossing_shape(scan: PanelScan, lines: int, blocks: int) -> Shape:
    """A tile of so many lines at most, of columns and of rows of the batch alike; fewer, if that keeps blocks busy."""
    least, beyond = (SECTOR // scan.widest) ** 2, product(scan.batch[1:])
    busiest, best = 0.0, (1, 1)
    while True:
        columns, outers = sides(scan.column.size, scan.batch[0].size, lines)
        columns = max(columns // scan.pack, 1) * scan.pack
        number = -(-scan.column.size // columns) * -(-scan.batch[0].size // outers) * beyond
        busy = number / round_up(number, blocks)
        if busy > busiest:
            busiest, best = busy, (columns, outers)
        lines = lines * 7 // 8
        if busy > BUSY or lines < least:
            break
    columns, outers = best
    return scan.shape(_rows(scan, columns * outers), columns, outers)


def _own_shape(scan: PanelScan, target: Target) -> Shape:
    """The widest tile that leaves enough panels for all blocks, and as high as the threads of a block allow."""
    blocks, most = target.sm_count * scan.per_sm, scan.most
    if scan.crosses:
        return _crossing_shape(scan, most, blocks)
    outer, size = product(scan.batch), scan.column.size
    # As many panels as fill the last wave of blocks too.
    waves = -(-(-(-size // most) * outer) // blocks)
    panels = waves * blocks // outer or 1
    columns = max(-(-size // panels), -(-LEAST_BYTES // scan.widest))
    columns = min(_whole_sectors(scan, columns), most, size)
    outers, rows = 1, _rows(scan, columns)
    if columns == size:
        together = most // min(rows, scan.of_unit) // columns
        if together > 1:
            outers = min(together, scan.batch[0].size, -(-outer // blocks))
            rows = _rows(scan, columns * outers)
    return scan.shape(rows, columns, outers)


def _shared_shape(scan: PanelScan, tiles: int) -> Shape:
    """A tile of rows that are just wide enough, as high as may be; but there are so many, if units are."""
    most, size = scan.most, scan.column.size
    if scan.crosses:
        return _crossing_shape(scan, min(most, (SECTOR // scan.widest) ** 2), 1)
    columns = min(size, most)
    if size * scan.widest > WHOLE_BYTES:
        panels = -(-size * scan.widest // SHARED_BYTES)
        columns = min(_whole_sectors(scan, -(-size // panels)), most)
    rows = _rows(scan, columns)
    lines = -(-size // columns) * product(scan.batch)
    while rows > scan.of_unit and lines * -(-scan.length // (rows * scan.steps)) < tiles:
        rows //= 2
    outers = max(min(most // rows // columns, scan.batch[0].size), 1) if columns == size else 1
    return scan.shape(rows, columns, outers)


def _most(length: int, steps: int, columns: int, along: int) -> int:
    """The columns of a tile, at most: fewer where arrays are contiguous along its steps, of which it has more then.

    Threads have so many steps each, and of one row of them so many columns.
    """
    rows = 1
    while along and rows * steps < min(length, SIDE_BYTES // along):
        rows *= 2
    return columns // rows


def _rows(scan: PanelScan, columns: int) -> int:
    """As many rows of threads as fit: a power of two."""
    fitting = power_of_two(scan.threads * scan.share[2] // columns or 1, down=True)
    return min(fitting, power_of_two(-(-scan.length // scan.steps)), LANES * scan.many)


def _whole_sectors(scan: PanelScan, columns: int) -> int:
    """As many columns or some more: panels begin with sectors if rows do."""
    return round_up(columns, max(SECTOR // scan.widest, 1))
