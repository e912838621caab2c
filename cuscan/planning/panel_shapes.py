"""Shapes of tiles of the panels family, and of the chunks by which blocks share panels (panels.cuh).

A tile takes about as long however many of its threads have elements. So shapes leave few threads idle, and few blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cuscan.order import COLUMNS, SECTOR
from cuscan.planning.assemble import even_part, product, round_up
from cuscan.planning.config import Target
from cuscan.planning.crossing import Sides
from cuscan.planning.hardware import SHARED_RESERVED
from cuscan.planning.panel_tile import LANES, PanelScan, Shape, Share, lower_rows, smaller, tile_words
from cuscan.planning.tuning import LINE_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

LEAST_BYTES = 128  # bytes of a panel's row, at least, with one block per panel
SHARED_BYTES = 256  # bytes of a row of threads, at least, with several blocks per panel, if a tile can be as wide
WHOLE_BYTES = 512  # bytes of a row, up to which blocks share whole rows
CHUNK_BYTES = 128 * 1024  # bytes of values per chunk; most are read twice, and the cache holds those of all blocks
TOTAL_BYTES = 32 * 1024  # bytes of the totals of a chunk's thread rows, at most, unless a unit has more
TILES = 4  # per block that shares panels, at least, if tiles can be as low as a unit
FEWEST = 1  # chunks per block; fewer save no time
CHUNK_TIME, END_TIME = 0.6, 0.5  # the total of a chunk, in times of a tile; the end of a scan, in times of a chunk
WHOLE_ROWS = 1.3  # blocks share whole rows if this takes less than so many times as long as parts of rows
# Lower tiles, large blocks, and threads of a single run are chosen if others have so many times their capacity.
LOWER, LARGER = 1.15, 1.2
# A tile takes as long as its own elements, FIXED times those that it can hold, and SEGMENT elements for each segment
# that moves by itself. Memory takes MEMORY times as long for an element, if all blocks load.
FIXED, SEGMENT, MEMORY = 0.45, 70, 1.66
FASTER = 1.1  # another tile is chosen if this one takes so many times as long
WIDE_BYTES = 256  # of a part of a row, least
PANELS = 4  # numbers of panels side by side that are tried, from the fewest on
SPARSE = 3  # blocks share panels if all threads could hold so many times the elements
BUSY = 0.85  # average fraction of busy blocks per wave that suffices


def room_of(target: Target, share: Share) -> int:
    """Return the bytes of a block's shared memory."""
    return (target.shared_bytes // share.per_sm - SHARED_RESERVED) // LINE_BYTES * LINE_BYTES


class Chunk(NamedTuple):
    """The thread rows of a chunk, and the time of the scan, in times of a tile."""

    rows: int
    time: float


def chunk_of(
    request: ScanRequest, target: Target, scan: PanelScan, shape: Shape, panels: int, fitting: int = 0
) -> Chunk:
    """Return the chunk with which a scan takes the least time, where tiles have at most `fitting` thread rows.

    By default that is as many as there are threads for. A chunk has a unit or more, and at most what the cache and
    shared memory may keep.
    """
    share, blocks = scan.share, target.sm_count * scan.share.per_sm
    values = shape.width * share.height * sum(dtype.itemsize for dtype in request.kind.values)
    totals = shape.width * share.state
    fitting = fitting or _most_rows(share, shape)
    rows = best = max(shape.rows, share.of_unit)
    least = 0.0
    while True:
        chunks = panels * -(-scan.length // (rows * share.height))
        time = (max(chunks / blocks, FEWEST) + END_TIME) * (-(-rows // fitting) + CHUNK_TIME)
        if not least or time < least:
            best, least = rows, time
        rows *= 2
        if rows * values > CHUNK_BYTES or rows * totals > TOTAL_BYTES:
            return new_tuple(Chunk, (best, least))


def _most_rows(share: Share, shape: Shape) -> int:
    """Return the thread rows for which a block has threads."""
    return share.threads // -(-shape.width // share.slots)


def filled_shape(scan: PanelScan, shape: Shape, chunk: int) -> Shape:
    """Return a tile with thread rows for all threads if chunks then have fewer tiles; otherwise `shape`."""
    share, rows = scan.share, min(chunk, -(-scan.length // scan.share.height))
    tiles = -(-rows // _most_rows(share, shape))
    if tiles * shape.rows >= rows:
        return shape
    return share.tile(-(-rows // tiles), shape.columns, shape.outers)


def panels_of_shape(scan: PanelScan, shape: Shape) -> int:
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
    _, (size, _), batch, share, most, *_ = scan
    outer = product(batch)
    # Enough panels to fill the last wave of blocks, too.
    waves = -(-(-(-size // most) * outer) // blocks)
    panels = waves * blocks // outer or 1
    return min(_whole_sectors(share, max(-(-size // panels), -(-LEAST_BYTES // share.widest))), most, size)


def narrower_shape(scan: PanelScan, shape: Shape, target: Target, fraction: float) -> Shape:
    """Return a tile of at most a fraction of the columns, of which there are enough for all blocks again."""
    share = scan.share
    most = max(int(shape.columns * fraction) // share.pack, 1) * share.pack
    columns = _own_columns(scan._replace(most=most), target.sm_count * share.per_sm)
    return share.tile(shape.rows, columns, shape.outers)


def own_shape(scan: PanelScan, target: Target) -> Shape:
    """Return the widest tile that leaves enough panels for all blocks, as high as a block's threads allow.

    It is lower, with more batch rows, if that leaves fewer threads idle.
    """
    _, (size, _), batch, share, most, sides, *_ = scan
    blocks = target.sm_count * share.per_sm
    if sides:
        return _crossing_shape(scan, sides, most, blocks)
    columns = _own_columns(scan, blocks)
    outers, rows = 1, _rows(scan, columns)
    if columns == size:
        at_most = min(rows, share.of_unit)
        together = min(most // at_most, share.beside(at_most)) // columns
        if together > 1:
            outers = min(together, batch[0].size, -(-product(batch) // blocks))
            rows = _rows(scan, columns * outers)
    best = share.tile(rows, columns, outers)
    if columns < size or panels_of_shape(scan, best) <= blocks:
        return best
    least = _capacity(scan, best, target) / LOWER
    while rows > 1 and share.beside(lower_rows(rows)) <= most and share.height * rows < 2 * scan.length:
        rows = lower_rows(rows)
        outers = max(min(share.beside(rows) // columns, batch[0].size, -(-product(batch) // blocks)), 1)
        lower = share.tile(rows, columns, outers)
        capacity = _capacity(scan, lower, target)
        if capacity < least:
            best, least = lower, capacity
    return best


def faster_shape(scan: PanelScan, shape: Shape, target: Target, turned: float, fits: Callable[[Shape], bool]) -> Shape:
    """Return another tile that fits and takes less time, if blocks keep carries from tile to tile; else `shape`.

    `turned` is the fraction of values and results that are contiguous along the steps.
    """
    if scan.sides or shape.height >= scan.length:
        return shape
    time_of, memory = _clock(scan, target, turned)
    if time_of(shape) <= FASTER * memory:
        return shape
    while not fits(shape):
        shape = smaller(scan, shape, shares=False)
    best, least = shape, time_of(shape) / FASTER
    for other in _shapes(scan, target.sm_count * scan.share.per_sm):
        time = time_of(other)
        if time < least and fits(other):
            best, least = other, time
    return best


def _shapes(scan: PanelScan, blocks: int) -> Iterator[Shape]:
    """Yield tiles of any height, in panels of equal width, whose rows have `WIDE_BYTES` or more if rows are cut."""
    _, (size, _), batch, share, most, *_ = scan
    most_rows, number, sector = LANES * share.many, product(batch), SECTOR // share.widest or 1
    needed = -(-scan.length // share.height)
    rows_of_tiles = [1 << i for i in range(most_rows.bit_length()) if 1 << i < 2 * needed]
    if scan.length <= COLUMNS.unit and needed <= most_rows:  # the highest one holds the whole axis, and keeps no carry
        rows_of_tiles[-1] = needed
    for rows in rows_of_tiles:
        fitting = min(share.beside(rows), most)
        if fitting >= size:
            yield share.tile(rows, size, max(min(fitting // size, batch[0].size, -(-number // blocks)), 1))
        fitting -= fitting % sector
        if fitting * share.widest < WIDE_BYTES:
            continue
        fewest = max(-(-size // fitting), 2)
        in_waves = round_up(fewest * number, blocks) // number  # as many as whole waves have
        for panels in (*range(fewest, fewest + PANELS), in_waves):
            columns = min(_whole_sectors(share, -(-size // panels)), size)
            if columns * share.widest >= WIDE_BYTES:
                yield share.tile(rows, columns, 1)


def times_of_memory(scan: PanelScan, shape: Shape, target: Target, turned: float) -> float:
    """Return how many times as long as memory a scan takes."""
    time_of, memory = _clock(scan, target, turned)
    return time_of(shape) / memory


def _clock(scan: PanelScan, target: Target, turned: float) -> tuple[Callable[[Shape], float], float]:
    """Return a function from a tile's shape to the time of a scan, and memory's time, in times of a tile's element."""
    length, (size, _), batch, share, *_ = scan
    blocks, rows, beyond = target.sm_count * share.per_sm, batch[0].size, product(batch[1:])
    memory = MEMORY * (length * size * rows * beyond) / blocks
    full = FIXED * share.columns * share.height

    def time_of(shape: Shape) -> float:
        _, columns, outers, height, width = shape
        steps = min(height, length)
        panels = -(-size // columns) * -(-rows // outers) * beyond
        tiles = -(-panels // blocks) * -(-length // height)  # of a block
        segments = (1 - turned) * outers * (1 if columns == size else steps) + turned * width
        return max(tiles * (full + SEGMENT * segments + width * steps), memory)

    return time_of, memory


def is_worth_a_large_block(scan: PanelScan, shape: Shape, large: PanelScan, target: Target) -> bool:
    """Return whether large blocks, too, take the whole axis at once, and leave fewer threads idle."""
    if panels_of_shape(scan, shape) <= target.sm_count * scan.share.per_sm:
        return False
    capacity, other = _capacity(scan, shape, target), own_shape(large, target)
    return scan.length <= other.height and LARGER * _capacity(large, other, target) < capacity


def is_fuller(scan: PanelScan, shape: Shape, other: PanelScan, other_shape: Shape, target: Target) -> bool:
    """Return whether a tile leaves fewer threads idle than another one."""
    return LARGER * _capacity(scan, shape, target) <= _capacity(other, other_shape, target)


def is_sparse(scan: PanelScan, shape: Shape, target: Target) -> bool:
    """Return whether two thirds of the threads stay idle, or more: then two passes by all blocks take less time."""
    elements = scan.length * scan.column.size * product(scan.batch)
    return SPARSE * elements < _capacity(scan, shape, target)


def _capacity(scan: PanelScan, shape: Shape, target: Target) -> int:
    """Return how many elements all threads could hold in all rounds of tiles: the more, the longer these take."""
    share, blocks = scan.share, target.sm_count * scan.share.per_sm
    rounds = -(-panels_of_shape(scan, shape) // blocks)
    return rounds * blocks * -(-scan.length // shape.height) * share.columns * share.height


def run_shape(scan: PanelScan, target: Target, rows: int) -> Shape:
    """Return the widest tile of so many thread rows that leaves enough panels for all blocks."""
    _, (size, _), batch, share, most, *_ = scan
    blocks = target.sm_count * share.per_sm
    columns = _own_columns(scan, blocks)
    outers = min(most // columns, batch[0].size, -(-product(batch) // blocks)) if columns == size else 1
    return share.tile(rows, columns, max(outers, 1))


def shared_shape(request: ScanRequest, layout: Layout, target: Target, scan: PanelScan, in_bulk: int) -> Shape:
    """Return a tile as wide as the threads of a row, in panels of equal width, and as high as possible.

    It is lower if there would be fewer than `TILES` tiles per block, but not lower than a unit. It has whole rows, or
    several batch rows, where these are faster.
    """
    length, (size, _), batch, share, most, sides, *_ = scan
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
            of_whole, of_cut = (chunk_of(request, target, scan, it, panels_of_shape(scan, it)) for it in (whole, cut))
            if of_whole.time < WHOLE_ROWS * of_cut.time:
                return whole
    rows, outers = _rows(scan, columns), 1
    lines, tiles = -(-size // columns) * product(batch), TILES * target.sm_count * share.per_sm
    if columns == size and batch_is_closer(batch[0], layout.axis):
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
    fits = tile_words(request, layout, scan, shape, share.of_unit, in_bulk, False).nbytes <= room_of(target, share)
    return shape if fits else None


def batch_is_closer(batch: Dimension, axis: Dimension) -> bool:
    """Return whether neighbours in the batch lie closer than neighbouring steps, in each array."""
    return batch.size > 1 and all(
        [abs(row) < abs(step) for row, step in zip(batch.strides, axis.strides, strict=True) if step]
    )


def most_columns(share: Share, steps: int) -> int:
    """Return the most columns of a tile with at least `steps` steps."""
    rows = 1
    while rows * share.height < steps:
        rows *= 2
    return max(share.columns // rows // share.pack, 1) * share.pack


def _rows(scan: PanelScan, columns: int) -> int:
    """Return the most thread rows that fit a tile of so many columns, and that the axis needs.

    That is a power of two, unless a tile of one axis holds all of it and keeps no carries.
    """
    share = scan.share
    fitting, wanted = share.columns // columns or 1, -(-scan.length // share.height)
    whole = scan.length <= COLUMNS.unit and not scan.sides
    if whole and wanted <= min(fitting, LANES * share.many) and columns <= share.beside(wanted):
        return wanted
    rows = min(1 << fitting.bit_length() - 1, 1 << (wanted - 1).bit_length(), LANES * share.many)
    return rows if columns <= share.beside(rows) else rows // 2


def _whole_sectors(share: Share, columns: int) -> int:
    """Return `columns`, rounded up so that panels begin at sector boundaries if rows do."""
    sector = SECTOR // share.widest or 1
    return -(-columns // sector) * sector
