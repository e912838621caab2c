"""A tile of panels in shared memory: where its arrays lie there, and how much it takes (panel_tile.cuh)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from cuscan.assemble import power_of_two, round_up
from cuscan.layout import Dimension, Layout
from cuscan.order import PAIRED_SECTION
from cuscan.request import ScanRequest
from cuscan.tuning import COLUMNS, LINE_BYTES, LINE_WORDS

RUN = COLUMNS.items  # steps
FINDERS = 32  # threads: the last warp of a block finds the tiles
PIECE = 16  # bytes that move at a time
STORED_FROM = 32  # bytes: pieces of results begin with sectors
RECIPROCAL_BITS = 20
WIDE_STATE = 8  # bytes, beyond which a thread takes twice the registers
SECTION_LEVELS = (PAIRED_SECTION - 1).bit_length()


@dataclass(frozen=True)
class Shape:
    """Of a tile: steps of a run, runs and columns of a thread; rows of threads; columns, and rows of the batch."""

    steps: int
    runs: int
    slots: int
    rows: int
    columns: int
    outers: int

    @property
    def height(self) -> int:
        return self.steps * self.runs * self.rows

    @property
    def width(self) -> int:
        return self.columns * self.outers

    @property
    def units(self) -> int:
        return max(self.height // COLUMNS.unit, 1)


@dataclass(frozen=True)
class PanelScan:
    """What shapes depend on: the axes; bytes of a state, the widest element, and registers for an element."""

    length: int
    column: Dimension
    batch: tuple[Dimension, ...]
    state: int
    carry: int
    widest: int
    values: int
    counts: bool  # each column has positions of its own
    pack: int  # columns that a thread takes as a vector
    crosses: bool  # tiles have many rows of the batch, wherever these lie
    along: int  # bytes of an element of the arrays that are contiguous along the axis, or 0
    per_sm: int  # blocks
    threads: int  # of a block, beside those that find tiles

    @property
    def wide(self) -> bool:
        return self.state > WIDE_STATE

    @property
    def share(self) -> tuple[int, int, int]:
        """Of a thread: steps of a run, runs, and columns; as many as it has registers for."""
        elements = 8 if self.wide else 16 if max(self.widest, self.values) >= 8 else 32
        steps = min(power_of_two(self.length), RUN)
        runs = max(min(power_of_two(-(-self.length // steps)), elements // steps // self.pack), 1)
        return steps, runs, 1 if self.counts else max(elements // (steps * runs), self.pack)


STEP, COLUMN, OUTER = range(3)  # the axes of a tile (PanelAxis)


class _Array(NamedTuple):
    """How an array of a tile lies in shared memory: the first words of `PanelArray`; bytes, of all and of a segment."""

    region: int
    pitches: tuple[int, int, int]
    order: int
    nbytes: int = 0
    segment: int = 0


_DIRECT = _Array(-1, (0, 0, 0), 0)


def smaller(shape: Shape, pack: int) -> Shape:
    """A tile of fewer rows of the batch, then of fewer steps, then of fewer columns."""
    if shape.outers > 1:
        return replace(shape, outers=shape.outers * 3 // 4)
    if shape.rows > 1:
        return replace(shape, rows=shape.rows // 2)
    assert shape.columns > pack, "no GPU has so little shared memory"
    return replace(shape, columns=max(shape.columns * 3 // 4 // pack, 1) * pack)


def tile_words(
    request: ScanRequest, layout: Layout, scan: PanelScan, shape: Shape, chain: str
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The words that say where things are in shared memory, those of each array, and the bytes of all.

    `chain`: whether tiles precede tiles, which one block has ("kept") or many ("shared"); or nothing.
    """
    tiled = len(request.values) + len(request.results) + 2
    at = round_up(256 + 32 * len(layout.arrays) + 168 * tiled, LINE_BYTES)  # panel_header of panels.cuh
    words: list[int] = []
    for i in range(tiled):
        array = _array(request, layout, scan, shape, i)
        words += at if array.nbytes else -1, *array.pitches, array.order, *_pieces(request, i, array, scan.threads)
        at += round_up(array.nbytes + 2 * PIECE, LINE_BYTES) if array.nbytes else 0
    exchange, levels = at, 0
    if shape.rows > 1 or chain == "shared":
        at += round_up(shape.rows * (shape.width | 1) * scan.state, PIECE)
    carries = at
    parts, units = (max(ratio, 1).bit_length() - 1 for ratio in (COLUMNS.unit // shape.height, shape.units))
    if chain:
        blocks = -(-scan.length // max(COLUMNS.unit, shape.height))
        levels = SECTION_LEVELS - units
        if chain == "kept":
            levels = min(blocks.bit_length(), levels)
        at += shape.width * ((1 + levels + (1 << units)) * scan.carry + parts * scan.state)
    return (exchange, carries, levels, parts, units), tuple(words), at


def packed(request: ScanRequest, layout: Layout, column: Dimension, batch: tuple[Dimension, ...], nbytes: int) -> int:
    """How many neighbouring columns a thread loads as one vector: up to `nbytes`, if all arrays are aligned to it."""
    tiled = layout.arrays[: len(request.values) + len(request.results) + 2]
    narrow = min(spec.dtype.itemsize for spec in request.values)
    widest = max(spec.dtype.itemsize for spec in tiled if spec)
    pack = min(max(nbytes // narrow, 1), max(PIECE // widest, 1))
    while pack > 1 and not _aligned(request, layout, column, batch, pack):
        pack //= 2
    return pack


def _aligned(request: ScanRequest, layout: Layout, column: Dimension, batch: tuple[Dimension, ...], pack: int) -> bool:
    """Whether every column whose number is a multiple of `pack` begins at a multiple of so many elements."""
    for number, spec in enumerate(layout.arrays[: len(request.values) + len(request.results) + 2]):
        if spec is None or column.strides[number] != spec.dtype.itemsize:
            continue
        strides = (dimension.strides[number] for dimension in (layout.axis, *batch))
        steps = (spec.address, layout.offsets[number], *strides)
        if any(step % (pack * spec.dtype.itemsize) for step in steps):
            return False
    return column.size % pack == 0


def table_words(scan: PanelScan, panels: int, slots: int) -> int:
    """Words of the workspace: a counter for each panel, and a slot for each tile and column (PanelTable)."""
    words = -(-max(scan.state, scan.carry) // 4)
    return round_up(panels, LINE_WORDS) + slots * (round_up(words, 2) if words > 1 else 1)


def _array(request: ScanRequest, layout: Layout, scan: PanelScan, shape: Shape, number: int) -> _Array:
    """A value, a result, the mask or the segments; its region is counted later.

    Its fastest axis, whichever of the tile's that is, makes segments; so do the next ones that follow without gaps.
    """
    spec, is_result = layout.arrays[number], _is_result(request, number)
    if spec is None or (is_result and request.only_carry):
        return _DIRECT
    item, axes = spec.dtype.itemsize, (layout.axis, scan.column, scan.batch[0])
    strides = [abs(dimension.strides[number]) for dimension in axes]
    sizes = (scan.length - (request.include_initial and not is_result), scan.column.size, scan.batch[0].size)
    extents = (min(shape.height, sizes[STEP]), shape.columns, shape.outers)
    fastest = next((a for a in (COLUMN, STEP, OUTER) if strides[a] == item and extents[a] > 1), COLUMN)
    order = sorted(range(3), key=lambda a: (a != fastest, extents[a] == 1, strides[a]))
    if strides[fastest] != item or not _can_move(axes, number, extents):
        return _DIRECT
    pitches, segment, end, dense = [0, 0, 0], item, item, 0  # the segment so far, and the end of what has a place
    for i, a in enumerate(order):
        if dense == i and strides[a] == segment and all(extents[b] == sizes[b] for b in order[:i]):
            pitches[a], segment, dense = segment, segment * extents[a], i + 1
            end = segment
        else:
            pitches[a] = _pitch(strides[a], end, sideways=fastest != COLUMN)
            end += (extents[a] - 1) * pitches[a]
    if fastest != COLUMN and segment < PIECE:
        return _DIRECT
    if axes[STEP].strides[number] < 0:
        pitches[STEP] = -pitches[STEP]
    word = sum(a << 2 * i for i, a in enumerate((*order, dense)))
    return _Array(0, (pitches[0], pitches[1], pitches[2]), word, end, segment)


def _can_move(axes: tuple[Dimension, ...], number: int, extents: tuple[int, ...]) -> bool:
    """Whether an array's segments follow each other upwards. Steps may go down, and rows of the batch be the same."""
    step, column, outer = (axis.strides[number] for axis in axes)
    if step == 0 or extents[STEP] == 0:
        return False
    return (column > 0 or extents[COLUMN] == 1) and (outer >= 0 or extents[OUTER] == 1)


def _is_result(request: ScanRequest, number: int) -> bool:
    behind = len(request.values)
    return behind <= number < behind + len(request.results)


def _pieces(request: ScanRequest, number: int, array: _Array, threads: int) -> tuple[int, int, int]:
    """Threads side by side, segments at once, and the reciprocal of the former (struct Pieces)."""
    begins = STORED_FROM if _is_result(request, number) else PIECE
    across = min((array.segment + 2 * begins - 2) // begins * (begins // PIECE), threads)
    return (across, threads // across, -(-(1 << RECIPROCAL_BITS) // across)) if array.nbytes else (0, 0, 0)


def _pitch(stride: int, nbytes: int, *, sideways: bool) -> int:
    """The least step in shared memory that keeps places apart, as far beyond a multiple of 16 as `stride`.

    Where threads side by side are not neighbours there, it is an odd number of pieces, so that they meet in few banks.
    """
    least = nbytes + PIECE - 1
    pitch = least + (stride - least) % PIECE
    return pitch + PIECE if sideways and pitch // PIECE % 2 == 0 else pitch
