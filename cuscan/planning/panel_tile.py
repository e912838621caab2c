"""Tiles of the panels family in shared memory: where their arrays lie, and their size (panel_tile.cuh)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cuscan.order import COLUMNS, PAIRED_SECTION, SECTOR
from cuscan.planning.assemble import even_part, round_up
from cuscan.planning.crossing import Sides
from cuscan.planning.gaps import Gaps, reach
from cuscan.planning.hardware import WORD_BYTES
from cuscan.planning.tuning import LINE_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

RUN = COLUMNS.items  # steps
FINDERS = 32  # threads of the block's last warp, which locates tiles ahead of the others
PIECE = 16  # bytes of one copy
DENSE = 8  # in the packed axis order: the bit from which the number of axes in a segment follows
IN_BULK = 1 << 11  # the same: bulk copies move the array
SPLIT = 1 << 12  # the same: each thread row's steps are a segment, with a gap before the next
PACKED = 1 << 13  # the same: columns lie side by side
RECIPROCAL_BITS = 20  # as in struct Pieces
MEETING = 4  # most threads that meet in a bank, by the columns of a batch row; with more, there are gaps between rows
MEETING_BYTES = 64  # of such a row, least
LANES = 32  # lanes of the warp that combines the totals of a column's thread rows
WIDE_STATE = 8  # bytes of a state, beyond which a thread takes twice the registers
SECTION_LEVELS = (PAIRED_SECTION - 1).bit_length()  # levels of units in a section


class Shape(NamedTuple):
    """The shape of a tile: thread rows, columns, batch rows; the total steps (height) and columns (width)."""

    rows: int
    columns: int
    outers: int
    height: int
    width: int


class Share(NamedTuple):
    """A thread's share of a tile, and the block; the same for all calls of a kind except for a few cases."""

    state: int  # bytes of a state
    carry: int  # bytes of a carry
    widest: int  # bytes of the widest item
    pack: int  # adjacent columns that a thread accesses as a vector
    steps: int  # per run
    runs: int  # per thread
    slots: int  # columns per thread
    height: int  # steps per thread, in all runs
    columns: int  # per tile, at most
    of_unit: int  # thread rows per unit
    many: int  # thread rows whose totals one lane takes
    per_sm: int  # blocks per SM
    threads: int  # worker threads per block, without FINDERS

    def beside(self, rows: int) -> int:
        """Return the most columns of a tile with so many thread rows; leftover threads have no columns."""
        return self.threads // rows * self.slots

    def tile(self, rows: int, columns: int, outers: int) -> Shape:
        return new_tuple(Shape, (rows, columns, outers, self.height * rows, columns * outers))


class PanelScan(NamedTuple):
    """The inputs of the choice of a tile's shape."""

    length: int  # steps of the axis
    column: Dimension
    batch: tuple[Dimension, ...]
    share: Share
    most: int  # columns of a tile, at most
    sides: Sides | None  # if tiles span batch rows wherever these lie in memory
    lacking: int  # bytes that the last column lacks, if columns are words (on_words.py)
    gaps: Gaps | None = None  # between columns, if these are several rows


# The axes of a tile (PanelAxis). If columns are those of several rows, COLUMN is from row to row, and INNER along one.
STEP, COLUMN, OUTER, INNER = range(4)
_COLUMNS, _COLUMNS_OF_ROWS = [COLUMN], [INNER, COLUMN]
THREAD_ROW = 3  # among the pitches: from a thread row to the next


_DIRECT = (-1, *(0,) * 8)  # the words of an array that is not in shared memory


def smaller(scan: PanelScan, shape: Shape, *, shares: bool) -> Shape:
    """Return a smaller tile. If it spans two axes, both sides are shorter.

    Otherwise, or if these can be no shorter: fewer of the batch rows if it has several, else fewer steps, in a power of
    two of thread rows, else fewer columns. Fewer columns come before fewer steps where blocks share panels and the tile
    is no higher than a unit, of which totals are kept.
    """
    (rows, columns, outers, _, _), share = shape, scan.share
    if scan.sides and columns * outers > share.pack:
        fewer, fewer_outers = scan.sides.of(max(columns * outers * 3 // 4, share.pack), share.pack)
        if fewer * fewer_outers < columns * outers:
            return share.tile(rows, fewer, fewer_outers)
    narrower = shares and outers == 1 and rows <= share.of_unit
    if not (narrower and columns > share.pack):
        if outers > 1:
            return share.tile(rows, columns, even_part(scan.batch[0].size, outers * 3 // 4))
        if rows > 1:
            return share.tile(lower_rows(rows), columns, outers)
    assert columns > share.pack, "no GPU has so little shared memory"
    fewer = even_part(scan.column.size, columns * 3 // 4)
    return share.tile(rows, max(fewer // share.pack, 1) * share.pack, outers)


def lower_rows(rows: int) -> int:
    """Return the largest power of two below a number of thread rows."""
    return 1 << (rows - 1).bit_length() - 1


def parts_of(height: int) -> int:
    """Return log2 of the number of tiles of this height in a unit; 0 if a tile has a unit or more."""
    return max(COLUMNS.unit // height, 1).bit_length() - 1


class TileWords(NamedTuple):
    """The layout of a tile in shared memory: words of the geometry, those of each array, and its total bytes.

    `gaps`: the words of struct ColumnGaps, if columns are those of several rows.
    """

    places: tuple[int, ...]
    arrays: list[int]
    nbytes: int
    gaps: tuple[int, ...]


def tile_words(
    request: ScanRequest, layout: Layout, scan: PanelScan, shape: Shape, chunk: int, in_bulk: int, split: bool
) -> TileWords:
    """Return the layout of a tile in shared memory.

    Blocks share panels by chunks of `chunk` thread rows, a power of two, or take whole panels (0). A warp scans the
    totals of a tile or, if there are chunks, of at most LANES * many thread rows at once. Bulk copies move segments
    of at least `in_bulk` bytes, unless this is 0. With `split`, there are gaps where thread rows would otherwise read
    the same banks.
    """
    kind, (rows, columns, outers, height, width) = request.kind, shape
    first, behind = len(kind.values), len(kind.sizes)  # the range of the results
    every = scan.gaps.every if scan.gaps else 1  # columns of a row
    sizes = scan.column.size // every, scan.batch[0].size, every
    steps_down, steps_across, steps_beyond = layout.axis.strides, scan.column.strides, scan.batch[0].strides
    at = 280 + 32 * len(layout.arrays) + 3 * (104 if scan.gaps else 88) * (behind + 2)  # panel_header of panels.cuh
    at = round_up(at, LINE_BYTES)
    words: list[int] = []
    in_tile = [0] * len(layout.arrays)
    alike: Any = None  # the key of the previous array: most are equal
    gapped = False  # whether the previous array's segments have gaps
    array = None
    for i in range(behind + 2):
        spec, is_result = layout.arrays[i], first <= i < behind
        if spec is None or (is_result and kind.only_carry):
            words += _DIRECT
            continue
        size, length = spec.dtype.itemsize, scan.length - (kind.include_initial and not is_result)
        gap = scan.gaps.nbytes[i] if scan.gaps else 0
        key = size, steps_down[i], steps_across[i], steps_beyond[i], length, gap
        if key != alike or (is_result and gapped):
            across = steps_across[i]
            strides: tuple[int, ...] = (steps_down[i], every * across + gap, steps_beyond[i])
            extents: tuple[int, ...] = (min(height, length), -(-columns // every), outers)
            if scan.gaps:
                strides, extents = (*strides, across), (*extents, every)
            split_rows, of_thread = rows if split else 1, scan.share.height
            array = _array(
                size,
                strides,
                (length, *sizes),
                extents,
                in_bulk,
                split_rows,
                of_thread,
                scan.lacking,
                gaps=not is_result,
            )
            alike, gapped = key, array is not None and array.gaps
        if array is None:
            words += _DIRECT
            continue
        begins = SECTOR if is_result else PIECE  # stores begin at sectors
        pieces = _pieces(array.segment, array.segments, begins, scan.share.threads)
        words += at, *array.pitches, array.order, *pieces
        in_tile[i] = array.between_rows
        at += round_up(array.nbytes + 2 * (SECTOR if array.order & IN_BULK else PIECE), LINE_BYTES)
    exchange, levels, stack = at, 0, min(chunk, LANES * scan.share.many) or rows
    if chunk or rows > 1:
        at += round_up((chunk or rows) * (width | 1) * scan.share.state, PIECE)
    carries, height = at, stack * scan.share.height
    parts, units = parts_of(height), max(height // COLUMNS.unit, 1).bit_length() - 1
    if chunk or keeps_carries(scan, shape):
        blocks = -(-scan.length // max(COLUMNS.unit, height))
        levels = min(blocks.bit_length(), SECTION_LEVELS - units)
        before = chunk * scan.share.height // COLUMNS.unit or 1 << units  # units of a chunk, or of a tile
        before += chunk // stack if units else 0  # and stacks
        at += width * ((1 + levels + before) * scan.share.carry + parts * scan.share.state)
    gaps = (*scan.gaps.words(), *in_tile) if scan.gaps else ()
    return new_tuple(TileWords, ((stack, exchange, carries, levels, parts, units), words, at, gaps))


def keeps_carries(scan: PanelScan, shape: Shape) -> bool:
    """Return whether a block that has a panel of its own keeps carries between its tiles, or between units of one."""
    return scan.length > min(shape.height, COLUMNS.unit)


def aligned_columns(
    request: ScanRequest, layout: Layout, column: Dimension, batch: tuple[Dimension, ...], gaps: Gaps | None
) -> int:
    """Return the largest power of two, within a piece, such that groups of so many columns are aligned everywhere."""
    number_of = gaps.every if gaps else column.size
    aligned, widest = number_of & -number_of, 1
    if aligned == 1:
        return 1
    for number, spec in enumerate(layout.arrays[: len(request.kind.sizes) + 2]):
        if spec is None:
            continue
        size = spec.dtype.itemsize
        widest = max(widest, size)
        if column.strides[number] == size:
            steps = PIECE * size | spec.address | layout.offsets[number] | layout.axis.strides[number]
            for dimension in batch:
                steps |= dimension.strides[number]
            if gaps:
                steps |= gaps.nbytes[number]
            aligned = min(aligned, (steps & -steps) // size)  # the lowest set bit divides all of them
    return max(min(aligned, PIECE // widest), 1)


class _Array(NamedTuple):
    """How an array lies in shared memory.

    `pitches`: in bytes, of steps, columns, batch rows and thread rows. `order`: of axes (`PanelArray`). `segment`:
    bytes of one; `gaps`: whether segments have gaps. `between_rows`: bytes of the gap between rows of columns in the
    tile, if columns are those of several rows.
    """

    pitches: tuple[int, ...]
    order: int
    nbytes: int
    segment: int
    segments: int
    gaps: bool
    between_rows: int


def _array(
    item: int,
    strides: tuple[int, ...],
    sizes: tuple[int, ...],
    extents: tuple[int, ...],
    in_bulk: int,
    rows: int,
    steps_of_thread: int,
    lacking: int,
    *,
    gaps: bool,
) -> _Array | None:
    """Return how an array with items of `item` bytes lies in shared memory; None if threads access it in global memory.

    Of each axis, the arguments have the stride, the size and what a tile spans; of INNER, too, if columns are those of
    several rows. The last column lacks `lacking` bytes. A segment is what the tile has of
    the array's fastest axis, and of the next axes as long as they follow without gaps or, with `gaps`, with small ones;
    but not of batch rows whose threads would meet in a bank. Where these are the columns and then the steps, and there
    are several of `rows` thread rows, a segment is what one of these reads, and there are gaps between them.
    """
    steps, of_rows = [abs(stride) for stride in strides], len(strides) > len((STEP, COLUMN, OUTER))
    columns, of_columns = (INNER, _COLUMNS_OF_ROWS) if of_rows else (COLUMN, _COLUMNS)  # the first axis; all axes
    fastest = columns
    if steps[columns] != item or extents[columns] == 1:
        most = reach(item, gaps)
        near = [a for a in (STEP, OUTER, COLUMN, columns) if extents[a] > 1 and item <= steps[a] <= most]
        if near:
            fastest = min(near, key=steps.__getitem__)
        elif steps[columns] != item:
            return None
    # Segments must ascend in memory. Only steps may descend, and batch rows may be broadcast.
    if strides[STEP] == 0 or extents[STEP] == 0:
        return None
    if (strides[COLUMN] <= 0 and extents[COLUMN] != 1) or (strides[OUTER] < 0 and extents[OUTER] != 1):
        return None
    if of_rows and strides[INNER] <= 0:
        return None
    order = sorted(range(len(strides)), key=lambda a: (a != fastest, extents[a] == 1, steps[a]))
    pitches, segment, dense = [0] * 4, item, 0  # bytes of the segment so far, and its axes
    gap = steps[fastest] - item  # moves together with a segment's last item, too
    end, segments = item + gap, 1  # bytes of the array so far, and its segments
    whole = True  # whether the segment covers the full size of each of its axes
    split, gapped = 0, False
    for a in order:
        meets = a == OUTER and fastest == columns and dense == len(of_columns) + 1
        meets = meets and _meet(steps[a], extents[COLUMN] * (extents[INNER] if of_rows else 1))
        follows = whole and not meets and segment <= steps[a] <= reach(segment, gaps)
        gapped = gapped or (follows and steps[a] != segment)
        if a == STEP and follows and rows > 1 and order[:dense] == of_columns:  # the segment has columns alone
            split = _split_row(steps[a], steps_of_thread)
        if split and a == STEP:
            pitches[a] = steps[a]
            segment, segments = steps[a] * steps_of_thread, rows
            dense, whole, end = dense + 1, False, round_up((rows - 1) * split, SECTOR) + segment
        elif follows:
            pitches[a] = steps[a]
            segment += (extents[a] - 1) * steps[a]
            if a == COLUMN and extents[a] == sizes[a]:
                segment -= lacking
            end = segment + gap
            dense, whole = dense + 1, extents[a] == sizes[a]
        else:
            whole, segments = False, segments * extents[a]
            # The smallest pitch without overlap whose offset modulo 16 bytes, or 32 for bulk copies, equals the
            # stride's in global memory. If adjacent threads do not access adjacent memory, it spans an odd number of
            # pieces, to avoid bank conflicts.
            modulus = SECTOR if fastest == columns and 0 < in_bulk <= segment else PIECE
            least = end + modulus - 1
            pitch = least + (steps[a] - least) % modulus
            if (meets or fastest != columns) and pitch // PIECE % 2 == 0:
                pitch += PIECE
            pitches[a] = pitch
            end += (extents[a] - 1) * pitch
    if fastest != columns and segment < PIECE:
        return None
    between_rows = 0
    if of_rows:
        # The device reads the axes of segments, of groups of these and of sets of groups, in this order.
        order[dense:] = sorted(order[dense:], key=lambda a: -extents[a])
        between_rows = pitches[COLUMN] - extents[INNER] * pitches[INNER]
        pitches[COLUMN] = pitches[INNER]
    pitches[THREAD_ROW] = split or steps_of_thread * pitches[STEP]
    if strides[STEP] < 0:
        pitches[STEP], pitches[THREAD_ROW] = -pitches[STEP], -pitches[THREAD_ROW]
    moves = SPLIT | IN_BULK if split else IN_BULK if 0 < in_bulk <= segment else 0
    if fastest == columns and pitches[COLUMN] == item:
        moves |= PACKED
    packed = order[0] | order[1] << 2 | order[2] << 4 | dense << DENSE | moves
    if of_rows:
        packed |= order[3] << 6
    return new_tuple(_Array, (tuple(pitches), packed, end, segment + gap, segments, gapped, between_rows))


def _meet(row: int, columns: int) -> bool:
    """Return whether many threads that read neighbouring batch rows, of `row` bytes and few columns, meet in a bank."""
    return row >= MEETING_BYTES and math.gcd(row // WORD_BYTES, LANES) > MEETING * columns


def _split_row(step: int, steps: int) -> int:
    """Return the bytes from a thread row of so many steps of `step` bytes to the next, or 0 without a gap.

    Without one, rows often begin at multiples of a line, so that all rows that a warp reads are in the same banks.
    """
    row = steps * step
    gap = (round_up(step, PIECE) - row) % LINE_BYTES
    return row + gap if gap and row % PIECE == 0 else 0


def _pieces(segment: int, segments: int, begins: int, threads: int) -> tuple[int, int, int]:
    """Return the threads across a segment, the segments at once, and the reciprocal of the former (struct Pieces).

    The number of pieces per thread minimises the steps to move all segments: one per piece and one per segment. But
    the threads across a segment cover at least a line of memory.
    """
    reach, together = segment + begins - 1, begins // PIECE
    least, best = 0, 0
    for pieces in range(1, 9):
        across = min(-(-reach // (pieces * begins)) * together, threads)
        if best and across < LINE_BYTES // PIECE:
            break
        turns = -(-segments // (threads // across))
        cost = turns * (-(-reach // (across * PIECE)) + 1)
        if not best or cost < least:
            least, best = cost, across
        if turns == 1:  # fewer threads would take longer
            break
    return best, threads // best, -(-(1 << RECIPROCAL_BITS) // best)
