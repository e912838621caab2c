"""Plans of the panels family: tiles of columns with any alignment, through shared memory (panels.cuh)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cuscan.kept import MOST
from cuscan.order import COLUMNS, SECTOR
from cuscan.planning.assemble import (
    assemble,
    batch_of,
    check_tickets,
    even_part,
    index_dtype,
    power_of_two,
    product,
    round_up,
    state_bytes,
)
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.crossing import Sides, tile_axes
from cuscan.planning.hardware import BULK_ARCH, SHARED_RESERVED
from cuscan.planning.panel_tile import (
    FINDERS,
    LANES,
    RUN,
    WIDE_STATE,
    PanelScan,
    Shape,
    Share,
    aligned_columns,
    keeps_carries,
    smaller,
    tile_words,
)
from cuscan.planning.tuning import LINE_BYTES
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple


class Blocks(NamedTuple):
    """Blocks per SM, worker threads per block, and bytes of adjacent columns that a thread loads at once."""

    per_sm: int
    threads: int
    vector: int


MANY = Blocks(2, 288, 8)  # for panels of a single tile
LARGE = Blocks(1, 576, 4)  # one block per panel: wide rows use memory bandwidth best
SHARING = Blocks(2, 288, 4)  # several blocks per panel: one works while the other waits for totals
WIDE = Blocks(1, 448, 8)  # for states that take twice the registers
REGISTER = 4  # bytes
WORD_BYTES = 4  # bytes of a carry that a word of the workspace holds, beside the epoch
LONGEST = 64  # steps of an axis, beyond which a thread's share is constant: it has no more elements
LEAST_BYTES = 128  # bytes of a panel's row, at least, with one block per panel
SHARED_BYTES = 256  # bytes of a row of threads, at least, with several blocks per panel, if a tile can be as wide
WHOLE_BYTES = 512  # bytes of a row, up to which blocks share whole rows
BULK_BYTES = 256  # of a segment that one thread copies in bulk, at least, with one block per panel
SHARED_BULK_BYTES = 1024  # the same with several blocks per panel: whole rows of memory
CHUNK_BYTES = 128 * 1024  # bytes of values per chunk; most are read twice, and the cache holds those of all blocks
TOTAL_BYTES = 32 * 1024  # bytes of the totals of a chunk's thread rows, at most, unless a unit has more
TILES = 4  # per block that shares panels, at least, if tiles can be as low as a unit
FEWEST = 1  # chunks per block; fewer save no time
CHUNK_TIME, END_TIME = 0.6, 0.5  # the total of a chunk, in times of a tile; the end of a scan, in times of a chunk
WHOLE_ROWS = 1.3  # blocks share whole rows if this takes less than so many times as long as parts of rows
LOWER, LARGER = 1.15, 1.2  # lower tiles, and large blocks, are chosen if others have so many times their capacity
BUSY = 0.85  # average fraction of busy blocks per wave that suffices
ABREAST = 12  # panels side by side before those of the next rows of the batch, if tiles span both: 12 x 12 fill a GPU
MOST_ROWS = 10  # thread rows, at most, of a tile that holds a whole axis with one run per row
WASTE = 1.25  # steps of the tiles that such a tile replaces, at least, as a multiple of the axis
TOGETHER = 5  # thread rows that a warp reads at once, from which on gaps between them pay
IDLE = 0.6  # fraction of blocks that must have a panel of their own; below it, blocks share panels
NARROW_BYTES = 160  # bytes of a row, if columns fill several panels; below it, blocks share wider panels


class Panels(NamedTuple):
    """How blocks take panels: compile-time constants, geometry words (`beside`), and the launch."""

    batch: tuple[Dimension, ...]
    column: Dimension
    constants: dict[str, int]
    beside: tuple[int, ...]
    block: int  # threads
    blocks_per_sm: int
    shared_bytes: int
    number: int  # of panels
    chunks: int  # per panel, if blocks share panels
    words: int  # 64-bit workspace words; 0 unless blocks share panels


def plan_panels(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan:
    """Return the plan for columns of any alignment."""
    panels = _panels_of(request, layout, target)
    batch, column, constants, beside, block, blocks_per_sm, shared_bytes, number, chunks, words = panels
    shared = words > 0
    turns = number * chunks if shared else number
    if shared:
        check_tickets(turns)
    accesses = [
        Access.NONE if spec is None else Access.NUMBER if spec.is_number else Access.STRIDED for spec in layout.arrays
    ]
    return assemble(
        request,
        layout,
        "panels",
        batch=batch,
        column=column,
        accesses=tuple(accesses),
        items=1,
        constants=constants,
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=min(turns, target.sm_count * blocks_per_sm),
        shared_bytes=shared_bytes,
        tickets=shared,
        words=words,
        beside=beside,
    )


def _panels_of(request: ScanRequest, layout: Layout, target: Target) -> Panels:
    """Return panels for a scan along an axis that is not the contiguous one of the results or of the values."""
    kind, index, length = request.kind, index_dtype(request), layout.axis.size
    numbers = sum([spec.is_number for spec in request.values])
    longest = min(power_of_two(length), LONGEST)
    elements, _ = _elements_of(kind, numbers, index, longest)
    column, others, sides, steps = tile_axes(request, layout, LARGE.threads * elements)
    batch = batch_of(layout, others)
    counts = kind.op.indexed and bool(request.carry_in) and not kind.reverse
    aligned = 1 if counts else aligned_columns(request, layout, column, batch)

    def scan_of(blocks: Blocks) -> PanelScan:
        share = _share_of(kind, numbers, index, blocks, longest, aligned, counts)
        return new_tuple(PanelScan, (length, column, batch, share, _most(share, steps), sides))

    if length <= COLUMNS.unit and not sides:  # otherwise fewer blocks of more columns have longer segments
        scan = scan_of(MANY)
        shape = _own_shape(scan, target)
        if length <= shape.height and not _is_worth_a_large_block(scan, shape, scan_of(LARGE), target):
            return _panels(request, layout, target, scan, shape)
    scan = scan_of(LARGE)
    shape = _own_shape(scan, target)
    rows, tiles = -(-length // RUN), -(-length // shape.height)
    if tiles > 1 and tiles * shape.height >= WASTE * length and rows <= MOST_ROWS and not (sides or steps):
        share = _share_of(kind, numbers, index, MANY, RUN, aligned, counts)
        most = max(share.beside(rows) // share.pack, 1) * share.pack
        whole = new_tuple(PanelScan, (length, column, batch, share, most, sides))
        panels = _panels(request, layout, target, whole, _run_shape(whole, target, rows))
        if not panels.constants["Kept"]:  # otherwise the tile does not fit in shared memory
            return panels
    row = shape.columns * scan.share.widest
    narrow = row < NARROW_BYTES and shape.columns < column.size and not (sides or steps)
    few = _panels_of_shape(scan, shape) < IDLE * target.sm_count * scan.share.per_sm
    if length > shape.height and (few or narrow):
        sharing = scan_of(SHARING)
        shared = _shared_shape(request, layout, target, sharing, _in_bulk(target, shares=True))
        if length > max(shared.height, COLUMNS.unit):  # otherwise a panel has one chunk
            return _panels(request, layout, target, sharing, shared, shares=True)
    return _panels(request, layout, target, scan, shape)


@functools.lru_cache(MOST)
def _elements_of(kind: CallKind, numbers: int, index: str, length: int) -> tuple[int, int]:
    """Return the elements of a thread, and the columns whose items share registers (parameters as in `_share_of`).

    There are as many as fit in a thread's registers: a tile of fewer takes nearly as long.
    """
    state, widest = state_bytes(kind, index)[0], max(kind.sizes)
    registers = max(sum([max(dtype.itemsize, REGISTER) for dtype in kind.values[numbers:]]), REGISTER)
    if state > WIDE_STATE:
        elements = 16 if registers <= 4 * REGISTER else 8
    else:
        elements = 16 if max(widest, registers) >= 2 * REGISTER else 32
    together = 1
    # Not with segments: 64 and more segment starts per thread gave wrong bits on a GPU, for an unknown reason.
    if state <= registers and not kind.segments and length >= RUN:
        together = max(REGISTER // widest, 1)
    return elements * together, together


@functools.lru_cache(MOST)
def _share_of(
    kind: CallKind, numbers: int, index: str, blocks: Blocks, length: int, aligned: int, counts: bool
) -> Share:
    """Return a thread's share of an axis of `length` steps, a power of two up to `LONGEST`.

    The first `numbers` values are numbers. `aligned` is the number of adjacent columns that are aligned as a group.
    With `counts` each column has positions of its own.
    """
    state, carry = state_bytes(kind, index)
    wide, sizes, widest = state > WIDE_STATE, [dtype.itemsize for dtype in kind.values], max(kind.sizes)
    elements, together = _elements_of(kind, numbers, index, length)
    per_sm, threads, vector = WIDE if wide else blocks
    pack = 1 if wide else min(aligned, max(vector // min(sizes), 1))
    together = max(pack, together)
    steps = min(length, RUN)
    runs = max(min(length // steps, elements // steps // together), 1)
    slots, height = 1 if counts else max(elements // (steps * runs), together), steps * runs
    thread = state, carry, widest, pack, steps, runs, slots, height
    return Share(*thread, threads * slots, COLUMNS.unit // height, 4 if state <= 8 else 2, per_sm, threads)


def _panels(
    request: ScanRequest, layout: Layout, target: Target, scan: PanelScan, shape: Shape, *, shares: bool = False
) -> Panels:
    """Return panels of tiles of the given shape, or with more rows of threads where these fill chunks.

    If they do not fit in shared memory, first chunks get smaller. Then the gaps between what thread rows read go. Then
    tiles get smaller.
    """
    share = scan.share
    room, in_bulk = _room(target, share), _in_bulk(target, shares=shares)
    # Bulk copies alone move what lies between gaps.
    split = shares and in_bulk > 0 and TOGETHER * shape.width * share.widest <= LINE_BYTES
    fewer = 0  # levels of a chunk, for it to fit
    while True:
        number, least = _panels_of_shape(scan, shape), max(shape.rows, share.of_unit)
        chunk = max(_chunk(request, target, scan, shape, number).rows >> fewer, least) if shares else 0
        filled = _filled(scan, shape, chunk)
        if filled is not shape:
            words = tile_words(request, layout, scan, filled, chunk, in_bulk, split)
            if words[-1] <= room:
                return _with_tile(scan, filled, chunk, number, room, words)
            if shares:  # then chunks have tiles of fewer thread rows
                chunk = max(_chunk(request, target, scan, shape, number, shape.rows).rows >> fewer, least)
        words = tile_words(request, layout, scan, shape, chunk, in_bulk, split)
        if words[-1] <= room:
            return _with_tile(scan, shape, chunk, number, room, words)
        if chunk > least:
            fewer += 1
        elif split:
            fewer, split = 0, False
        else:
            shape, fewer = smaller(scan, shape, shares=shares), 0


def _room(target: Target, share: Share) -> int:
    """Return the bytes of a block's shared memory."""
    return (target.shared_bytes // share.per_sm - SHARED_RESERVED) // LINE_BYTES * LINE_BYTES


def _in_bulk(target: Target, *, shares: bool) -> int:
    """Return the bytes of a segment that one thread copies in bulk, at least; 0 if none does."""
    return 0 if target.arch < BULK_ARCH else SHARED_BULK_BYTES if shares else BULK_BYTES


def _with_tile(
    scan: PanelScan, tile: Shape, chunk: int, number: int, room: int, words: tuple[tuple[int, ...], list[int], int]
) -> Panels:
    """Return `number` panels of tiles with the given words (`tile_words`); blocks share them by chunks, if any."""
    length, column, batch, share, *_ = scan
    (rows, columns, outers, height, width), (places, arrays, _) = tile, words
    keeps = not chunk and keeps_carries(scan, tile)
    assert width <= share.beside(rows) and columns % share.pack == 0
    assert not keeps or height & height - 1 == 0, "tiles that keep carries are nodes of the tree, or have some"
    constants = {
        "Threads": share.threads + FINDERS,
        "Steps": share.steps,
        "Runs": share.runs,
        "Slots": share.slots,
        "Kept": int(keeps),
        "Units": int(chunk > 0 or height >= 2 * COLUMNS.unit),
        "Pack": share.pack,
        "Many": share.many,
    }
    stack, _, _, kept, parts, _ = places
    levels = (chunk // stack).bit_length() - 1 if chunk else parts + kept
    panels, row_blocks = -(-column.size // columns), -(-batch[0].size // outers)
    abreast = min(panels, ABREAST) if scan.sides else panels
    assert panels * row_blocks < 1 << 32, "no GPU has so much memory"
    turns = (-(-stack // share.many) - 1).bit_length()
    steps, of_chunk = (chunk * share.height, -(-chunk // rows)) if chunk else (length, 1)
    chunks = -(-length // steps)
    tiles = (chunks - 1) * of_chunk + -(-(length - (chunks - 1) * steps) // height)
    return Panels(
        batch,
        column,
        constants,
        (columns, outers, panels, row_blocks, abreast, rows, *places, levels, of_chunk, turns, number, tiles, *arrays),
        share.threads + FINDERS,
        share.per_sm,
        room,
        number,
        chunks,
        number * width * chunks * -(-share.carry // WORD_BYTES) if chunk else 0,
    )


class _Chunk(NamedTuple):
    """The thread rows of a chunk, and the time of the scan, in times of a tile."""

    rows: int
    time: float


def _chunk(
    request: ScanRequest, target: Target, scan: PanelScan, shape: Shape, panels: int, fitting: int = 0
) -> _Chunk:
    """Return the chunk with which a scan takes the least time, where tiles have at most `fitting` thread rows.

    By default that is as many as there are threads for. A chunk has a unit or more, and at most what the cache and
    shared memory may keep.
    """
    share, blocks = scan.share, target.sm_count * scan.share.per_sm
    values = shape.width * share.height * sum(dtype.itemsize for dtype in request.kind.values)
    totals = shape.width * share.state
    fitting = fitting or share.threads // -(-shape.width // share.slots)
    rows = best = max(shape.rows, share.of_unit)
    least = 0.0
    while True:
        chunks = panels * -(-scan.length // (rows * share.height))
        time = (max(chunks / blocks, FEWEST) + END_TIME) * (-(-rows // fitting) + CHUNK_TIME)
        if not least or time < least:
            best, least = rows, time
        rows *= 2
        if rows * values > CHUNK_BYTES or rows * totals > TOTAL_BYTES:
            return new_tuple(_Chunk, (best, least))


def _filled(scan: PanelScan, shape: Shape, chunk: int) -> Shape:
    """Return a tile with thread rows for all threads if chunks then have fewer tiles; otherwise `shape`."""
    share, rows = scan.share, min(chunk, -(-scan.length // scan.share.height))
    tiles = -(-rows // (share.threads // -(-shape.width // share.slots)))
    if tiles * shape.rows >= rows:
        return shape
    return share.tile(-(-rows // tiles), shape.columns, shape.outers)


def _panels_of_shape(scan: PanelScan, shape: Shape) -> int:
    """Return the number of panels."""
    return -(-scan.column.size // shape.columns) * -(-scan.batch[0].size // shape.outers) * product(scan.batch[1:])


def _crossing_shape(scan: PanelScan, sides: Sides, lines: int, blocks: int) -> Shape:
    """Return a tile of at most `lines` lines that spans two axes; of fewer lines, if that keeps blocks busy."""
    share, beyond = scan.share, product(scan.batch[1:])
    least, pack = (SECTOR // share.widest) ** 2, share.pack
    busiest, best = 0.0, (1, 1)
    while True:
        columns, outers = sides.of(lines, pack)
        number = -(-scan.column.size // columns) * -(-scan.batch[0].size // outers) * beyond
        busy = number / round_up(number, blocks)
        if busy > busiest:
            busiest, best = busy, (columns, outers)
        lines = lines * 7 // 8
        if busy > BUSY or lines < least:
            break
    columns, outers = best
    return share.tile(_rows(scan, columns * outers), columns, outers)


def _own_columns(scan: PanelScan, blocks: int) -> int:
    """Return the most columns of a tile that leave enough panels for all blocks."""
    _, (size, _), batch, share, most, _ = scan
    outer = product(batch)
    # Enough panels to fill the last wave of blocks, too.
    waves = -(-(-(-size // most) * outer) // blocks)
    panels = waves * blocks // outer or 1
    return min(_whole_sectors(share, max(-(-size // panels), -(-LEAST_BYTES // share.widest))), most, size)


def _own_shape(scan: PanelScan, target: Target) -> Shape:
    """Return the widest tile that leaves enough panels for all blocks, as high as a block's threads allow.

    It is lower, with more batch rows, if that leaves fewer threads idle.
    """
    _, (size, _), batch, share, most, sides = scan
    blocks = target.sm_count * share.per_sm
    if sides:
        return _crossing_shape(scan, sides, most, blocks)
    columns = _own_columns(scan, blocks)
    outers, rows = 1, _rows(scan, columns)
    if columns == size:
        together = most // min(rows, share.of_unit) // columns
        if together > 1:
            outers = min(together, batch[0].size, -(-product(batch) // blocks))
            rows = _rows(scan, columns * outers)
    best = share.tile(rows, columns, outers)
    if columns < size or _panels_of_shape(scan, best) <= blocks:
        return best
    least = _capacity(scan, best, target) / LOWER
    while rows > 1 and share.beside(rows // 2) <= most and share.height * rows < 2 * scan.length:
        rows //= 2
        outers = max(min(share.beside(rows) // columns, batch[0].size, -(-product(batch) // blocks)), 1)
        lower = share.tile(rows, columns, outers)
        capacity = _capacity(scan, lower, target)
        if capacity < least:
            best, least = lower, capacity
    return best


def _is_worth_a_large_block(scan: PanelScan, shape: Shape, large: PanelScan, target: Target) -> bool:
    """Return whether large blocks, too, take the whole axis at once, and leave fewer threads idle."""
    if _panels_of_shape(scan, shape) <= target.sm_count * scan.share.per_sm:
        return False
    capacity, other = _capacity(scan, shape, target), _own_shape(large, target)
    return scan.length <= other.height and LARGER * _capacity(large, other, target) < capacity


def _capacity(scan: PanelScan, shape: Shape, target: Target) -> int:
    """Return how many elements all threads could hold in all rounds of tiles: the more, the longer these take."""
    share, blocks = scan.share, target.sm_count * scan.share.per_sm
    rounds = -(-_panels_of_shape(scan, shape) // blocks)
    return rounds * blocks * -(-scan.length // shape.height) * share.columns * share.height


def _run_shape(scan: PanelScan, target: Target, rows: int) -> Shape:
    """Return the widest tile of so many thread rows that leaves enough panels for all blocks."""
    _, (size, _), batch, share, most, _ = scan
    blocks = target.sm_count * share.per_sm
    columns = _own_columns(scan, blocks)
    outers = min(most // columns, batch[0].size, -(-product(batch) // blocks)) if columns == size else 1
    return share.tile(rows, columns, max(outers, 1))


def _shared_shape(request: ScanRequest, layout: Layout, target: Target, scan: PanelScan, in_bulk: int) -> Shape:
    """Return a tile as wide as the threads of a row, in panels of equal width, and as high as possible.

    It is lower if there would be fewer than `TILES` tiles per block, but not lower than a unit. It has whole rows, or
    several batch rows, where these are faster.
    """
    length, (size, _), batch, share, most, sides = scan
    if sides:
        return _crossing_shape(scan, sides, min(most, 2 * (SECTOR // share.widest) ** 2), 1)  # a sector by two
    columns = min(size, most)
    if size * share.widest > WHOLE_BYTES:  # panels of equal width, which fill the rows of threads
        rows = share.of_unit
        while rows > 1 and share.beside(rows) * share.widest < SHARED_BYTES:
            rows //= 2
        fitting = min(share.beside(rows), most)
        columns = min(_whole_sectors(share, -(-size // -(-size // fitting))), fitting)
        whole = _whole_rows_shape(request, layout, target, scan, in_bulk)
        if whole is not None:
            cut = share.tile(_rows(scan, columns), columns, 1)
            times = [_chunk(request, target, scan, shape, _panels_of_shape(scan, shape)).time for shape in (whole, cut)]
            if times[0] < WHOLE_ROWS * times[1]:
                return whole
    rows, outers = _rows(scan, columns), 1
    lines, tiles = -(-size // columns) * product(batch), TILES * target.sm_count * share.per_sm
    if columns == size and _batch_is_closer(batch[0], layout.axis):
        outers = even_part(batch[0].size, min(max(SHARED_BYTES // (columns * share.widest), 1), batch[0].size))
        rows = _rows(scan, columns * outers)
    while rows > share.of_unit and -(-lines // outers) * -(-length // (rows * share.height)) < tiles:
        rows //= 2
    if columns == size:
        fitting = min(most // rows, share.beside(rows)) // columns
        outers = max(min(fitting, batch[0].size), outers)
    lines = -(-lines // outers)
    while columns * outers <= share.beside(2 * rows) and lines * (length // (2 * rows * share.height)) >= tiles:
        rows *= 2
    return share.tile(rows, columns, outers)


def _whole_rows_shape(
    request: ScanRequest, layout: Layout, target: Target, scan: PanelScan, in_bulk: int
) -> Shape | None:
    """Return a tile of whole rows with as many thread rows as fit, at most a unit.

    There is none if rows have gaps or do not fit, or without bulk copies.
    """
    size, share, sizes = scan.column.size, scan.share, request.kind.sizes
    for item, column, step in zip(sizes, scan.column.strides, layout.axis.strides, strict=False):
        if column != item or abs(step) != size * item:
            return None
    rows = share.of_unit
    while rows and size > min(share.beside(rows), scan.most):
        rows //= 2
    if not rows or not in_bulk:
        return None
    shape = share.tile(rows, size, 1)
    fits = tile_words(request, layout, scan, shape, share.of_unit, in_bulk, False)[-1] <= _room(target, share)
    return shape if fits else None


def _batch_is_closer(batch: Dimension, axis: Dimension) -> bool:
    """Return whether neighbours in the batch lie closer than neighbouring steps, in each array."""
    return batch.size > 1 and all(
        [abs(row) < abs(step) for row, step in zip(batch.strides, axis.strides, strict=True) if step]
    )


def _most(share: Share, steps: int) -> int:
    """Return the most columns of a tile with at least `steps` steps."""
    rows = 1
    while rows * share.height < steps:
        rows *= 2
    return max(share.columns // rows // share.pack, 1) * share.pack


def _rows(scan: PanelScan, columns: int) -> int:
    """Return the most thread rows that fit a tile of so many columns: a power of two."""
    share = scan.share
    fitting, wanted = share.columns // columns or 1, -(-scan.length // share.height)
    rows = min(1 << fitting.bit_length() - 1, 1 << (wanted - 1).bit_length(), LANES * share.many)
    return rows if columns <= share.beside(rows) else rows // 2


def _whole_sectors(share: Share, columns: int) -> int:
    """Return `columns`, rounded up so that panels begin at sector boundaries if rows do."""
    sector = SECTOR // share.widest or 1
    return -(-columns // sector) * sector
