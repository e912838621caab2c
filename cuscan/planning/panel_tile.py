"""A tile of panels in shared memory: where its arrays lie there, and how much it takes (panel_tile.cuh)."""

from __future__ import annotations

from typing import Any, NamedTuple

from cuscan.order import COLUMNS, PAIRED_SECTION
from cuscan.planning.assemble import round_up
from cuscan.planning.tuning import LINE_BYTES, LINE_WORDS
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

RUN = COLUMNS.items  # steps
FINDERS = 32  # threads: the last warp of a block finds the tiles
PIECE = 16  # bytes that move at a time
STORED_FROM = 32  # bytes: pieces of results begin with sectors
RECIPROCAL_BITS = 20
LANES = 32  # of a warp, which takes what the rows of threads of a column add up to
WIDE_STATE = 8  # bytes, beyond which a thread takes twice the registers
SECTION_LEVELS = (PAIRED_SECTION - 1).bit_length()


class Shape(NamedTuple):
    """Of a tile: rows of threads; columns, and rows of the batch; the steps and the columns that these make."""

    rows: int
    columns: int
    outers: int
    height: int
    width: int


class Share(NamedTuple):
    """What a thread has of a tile, and what a block is; the same for all calls of a kind but for a few cases."""

    state: int  # bytes
    carry: int
    widest: int
    pack: int  # columns that a thread takes as a vector
    steps: int  # of a run
    runs: int
    slots: int  # columns of a thread
    height: int  # steps of all runs
    columns: int  # of a tile, at most
    of_unit: int  # rows of threads that have a unit
    many: int  # rows of threads whose totals a lane takes
    per_sm: int  # blocks
    threads: int  # of a block, beside those that find tiles

    def beside(self, rows: int) -> int:
        """The columns of a tile of so many rows of threads: threads that are left over have none."""
        return self.threads // rows * self.slots

    def tile(self, rows: int, columns: int, outers: int) -> Shape:
        return new_tuple(Shape, (rows, columns, outers, self.height * rows, columns * outers))


class PanelScan(NamedTuple):
    """What shapes depend on."""

    length: int
    column: Dimension
    batch: tuple[Dimension, ...]
    share: Share
    most: int  # columns of a tile
    crosses: bool  # tiles have many rows of the batch, wherever these lie


STEP, COLUMN, OUTER = range(3)  # the axes of a tile (PanelAxis)
_ORDERS = ((STEP, COLUMN, OUTER), (COLUMN, STEP, OUTER), (OUTER, STEP, COLUMN))  # each first


_DIRECT = (-1, *(0,) * 7)  # the words of an array that does not lie there


def smaller(share: Share, shape: Shape) -> Shape:
    """A tile of fewer rows of the batch, then of fewer steps, then of fewer columns."""
    rows, columns, outers, _, _ = shape
    if outers > 1:
        return share.tile(rows, columns, outers * 3 // 4)
    if rows > 1:
        return share.tile(rows // 2, columns, outers)
    assert columns > share.pack, "no GPU has so little shared memory"
    return share.tile(rows, max(columns * 3 // 4 // share.pack, 1) * share.pack, outers)


def parts_of(height: int) -> int:
    """Levels of the tiles, of such a height, that make a unit."""
    return max(COLUMNS.unit // height, 1).bit_length() - 1


def tile_words(
    request: ScanRequest, layout: Layout, scan: PanelScan, shape: Shape, chain: str
) -> tuple[tuple[int, ...], list[int], int]:
    """The words that say where things are in shared memory, those of each array, and the bytes of all.

    `chain`: whether tiles precede tiles, which one block has ("kept") or many ("shared"); or nothing.
    """
    kind, (rows, columns, outers, height, width) = request.kind, shape
    first, behind = len(kind.values), len(kind.sizes)  # of the results
    sizes = scan.column.size, scan.batch[0].size
    steps_down, steps_across, steps_beyond = layout.axis.strides, scan.column.strides, scan.batch[0].strides
    at = round_up(280 + 32 * len(layout.arrays) + 240 * (behind + 2), LINE_BYTES)  # panel_header of panels.cuh
    words: list[int] = []
    alike: Any = None  # what the array before depends on: most are alike
    array = None
    for i in range(behind + 2):
        spec, is_result = layout.arrays[i], first <= i < behind
        if spec is None or (is_result and kind.only_carry):
            words += _DIRECT
            continue
        size, length = spec.dtype.itemsize, scan.length - (kind.include_initial and not is_result)
        key = size, steps_down[i], steps_across[i], steps_beyond[i], length
        taken = min(height, length)
        if key != alike:
            array, alike = _array(size, key[1:4], (length, *sizes), (taken, columns, outers)), key
        if array is None:
            words += _DIRECT
            continue
        pitches, order, nbytes, segment = array
        segments, begins = taken * width * size // segment, STORED_FROM if is_result else PIECE
        words += at, *pitches, order, *_pieces(segment, segments, begins, scan.share.threads)
        at += round_up(nbytes + 2 * PIECE, LINE_BYTES)
    exchange, levels = at, 0
    if rows > 1 or chain == "shared":
        at += round_up(rows * (width | 1) * scan.share.state, PIECE)
    carries = at
    parts, units = parts_of(height), max(height // COLUMNS.unit, 1).bit_length() - 1
    if chain:
        blocks = -(-scan.length // max(COLUMNS.unit, height))
        levels = SECTION_LEVELS - units
        if chain == "kept":
            levels = min(blocks.bit_length(), levels)
        at += width * ((1 + levels + (1 << units)) * scan.share.carry + parts * scan.share.state)
    return (exchange, carries, levels, parts, units), words, at


def aligned_columns(request: ScanRequest, layout: Layout, column: Dimension, batch: tuple[Dimension, ...]) -> int:
    """The most neighbouring columns, a power of two, of which every so many-th is aligned to them in all arrays."""
    aligned, widest = column.size & -column.size, 1
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
            aligned = min(aligned, (steps & -steps) // size)  # their lowest bit divides them all
    return max(min(aligned, PIECE // widest), 1)


def table_words(carry: int, panels: int, slots: int) -> int:
    """Words of the workspace: a counter for each panel, and a total for each chunk and column (TotalsTable)."""
    return round_up(panels, LINE_WORDS) + slots * -(-carry // 4)


def _array(
    item: int, strides: tuple[int, int, int], sizes: tuple[int, int, int], extents: tuple[int, int, int]
) -> tuple[list[int], int, int, int] | None:
    """An array of elements of so many bytes, of which a tile has `extents`; None if it does not lie there.

    Its fastest axis, whichever of the tile's that is, makes segments; so do the next ones that follow without gaps.
    How it lies in shared memory: its pitches and its order (`PanelArray`); bytes, of all and of a segment.
    """
    steps = abs(strides[STEP]), abs(strides[COLUMN]), abs(strides[OUTER])
    fastest = COLUMN
    if steps[COLUMN] != item or extents[COLUMN] == 1:
        for a in (STEP, OUTER):
            if steps[a] == item and extents[a] > 1:
                fastest = a
                break
        if steps[fastest] != item:
            return None
    # Segments follow each other upwards. Steps may go down, and rows of the batch be the same.
    if strides[STEP] == 0 or extents[STEP] == 0:
        return None
    if (strides[COLUMN] <= 0 and extents[COLUMN] != 1) or (strides[OUTER] < 0 and extents[OUTER] != 1):
        return None
    order = _ORDERS[fastest]
    _, one, other = order
    if (extents[one] == 1, steps[one]) > (extents[other] == 1, steps[other]):
        order = fastest, other, one
    pitches, segment, end, dense = [0, 0, 0], item, item, 0  # the segment so far, and the end of what has a place
    whole = True  # whether it has all of the axes that it has
    for a in order:
        if whole and steps[a] == segment:
            pitches[a] = segment
            segment = end = segment * extents[a]
            dense, whole = dense + 1, extents[a] == sizes[a]
        else:
            whole = False
            # The least step that keeps places apart, as far beyond a multiple of 16 as in memory. Where threads side by
            # side are not neighbours there, it is an odd number of pieces, so that they meet in few banks.
            least = end + PIECE - 1
            pitch = least + (steps[a] - least) % PIECE
            if fastest != COLUMN and pitch // PIECE % 2 == 0:
                pitch += PIECE
            pitches[a] = pitch
            end += (extents[a] - 1) * pitch
    if fastest != COLUMN and segment < PIECE:
        return None
    if strides[STEP] < 0:
        pitches[STEP] = -pitches[STEP]
    return pitches, order[0] | order[1] << 2 | order[2] << 4 | dense << 6, end, segment


def _pieces(segment: int, segments: int, begins: int, threads: int) -> tuple[int, int, int]:
    """Threads side by side, segments at once, and the reciprocal of the former (struct Pieces).

    A thread takes as many pieces of a segment as have all segments moved soonest: each costs a step, a segment another.
    But threads side by side take a line of memory at least.
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
        if turns == 1:  # fewer threads take longer
            break
    return best, threads // best, -(-(1 << RECIPROCAL_BITS) // best)
