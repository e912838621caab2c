"""Panels of columns: the tiles that blocks take through shared memory (panels.cuh), wherever their rows begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cuscan.assemble import batch_of, index_dtype, power_of_two, product, round_up, state_bytes
from cuscan.config import Target
from cuscan.dtypes import DTYPES
from cuscan.layout import Dimension, Layout
from cuscan.order import PAIRED_SECTION
from cuscan.request import ScanRequest
from cuscan.tuning import COLUMNS, LINE_BYTES, LINE_WORDS

THREADS = {False: 256, True: 384}  # of a block; where blocks share panels, tiles are higher
BLOCKS_PER_SM = {False: 3, True: 2}  # that have registers enough
WIDE_STATE = 8  # bytes, beyond which there is one block less
RUN = COLUMNS.items  # steps
PIECE = 16  # bytes that move at a time
SECTOR = 32  # bytes that memory stores at a time
SHARED_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
HEADER = LINE_BYTES  # struct PanelShared
LEAST_BYTES = 128  # of a row of a panel that a block has for itself
SHARED_BYTES = 256  # of a row of one that blocks share
WHOLE_BYTES = 512  # of a row that is not divided then
IDLE = 0.75  # the share of blocks that must have panels, or else they share these
SECTION_LEVELS = (PAIRED_SECTION - 1).bit_length()


class _Array(NamedTuple):
    """How an array of a tile lies in shared memory: the words of `PanelArray`, and its bytes."""

    region: int
    pitch: int
    outer_pitch: int
    flat: int
    nbytes: int = 0


DIRECT = _Array(-1, 0, 0, 0)


@dataclass(frozen=True)
class Panels:
    """How blocks take panels: what the compiler gets, what is an argument, and the blocks."""

    batch: tuple[Dimension, ...]
    column: Dimension
    constants: dict[str, int]
    beside: tuple[int, ...]
    block: int
    blocks_per_sm: int
    shared_bytes: int
    number: int
    tiles: int  # of a panel
    words: int  # of the workspace, where blocks share panels

    @property
    def shared(self) -> bool:
        return self.words > 0


@dataclass(frozen=True)
class _Shape:
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


@dataclass(frozen=True)
class _Scan:
    """What shapes depend on: the axes, bytes of states, of the widest element and of all values of an element."""

    length: int
    column: Dimension
    batch: tuple[Dimension, ...]
    state: int
    carry: int
    widest: int
    values: int
    counts: bool  # each column has positions of its own

    @property
    def wide(self) -> bool:
        return self.state > WIDE_STATE

    @property
    def share(self) -> tuple[int, int, int]:
        """Of a thread: steps of a run, runs, and columns; as many as it has registers for."""
        elements = 16 if self.widest >= 4 else 32
        if self.wide or self.values >= 8:
            elements = 8
        steps = min(power_of_two(self.length), RUN)
        runs = 1 if self.length <= RUN or elements <= RUN else 2
        return steps, runs, 1 if self.counts else max(elements // (steps * runs), 1)


def panels_of(request: ScanRequest, layout: Layout, target: Target) -> Panels:
    """Panels for a scan along another axis than the contiguous one."""
    state, carry = (
        state_bytes(request, DTYPES[of], DTYPES[index_dtype(request)])
        for of in (request.result.dtype.accumulator, request.carry)
    )
    scan = _Scan(
        layout.axis.size,
        layout.others[0],
        batch_of(layout, layout.others[1:]),
        state,
        carry,
        max(spec.dtype.itemsize for spec in (*request.values, *request.results)),
        sum(spec.dtype.itemsize for spec in request.values),
        request.op.indexed and bool(request.carry_in) and not request.reverse,
    )
    blocks = target.sm_count * (BLOCKS_PER_SM[False] - scan.wide)
    own, shared = _own_shape(scan, blocks), _shared_shape(scan)
    number = -(-scan.column.size // own.columns) * product(scan.batch)
    shares = number < IDLE * blocks and scan.length > max(own.height, shared.height)
    return _panels(request, layout, target, scan, shared if shares else own, shares)


def _panels(request: ScanRequest, layout: Layout, target: Target, scan: _Scan, shape: _Shape, shared: bool) -> Panels:
    """Panels of tiles of a shape, or a narrower one if that takes too much shared memory."""
    blocks_per_sm = BLOCKS_PER_SM[shared] - scan.wide
    room = (target.shared_bytes // blocks_per_sm - SHARED_RESERVED) // LINE_BYTES * LINE_BYTES
    chain = "shared" if shared else "kept" if scan.length > shape.height else ""
    while True:
        words, nbytes = _place(scan, shape, chain, _arrays(request, layout, scan, shape))
        if nbytes <= room:
            break
        shape = _narrower(shape)
    panels, row_blocks = -(-scan.column.size // shape.columns), -(-scan.batch[0].size // shape.outers)
    number, tiles = panels * row_blocks * product(scan.batch[1:]), -(-scan.length // shape.height)
    steps, runs, slots = scan.share
    constants = {"Threads": THREADS[shared], "Steps": steps, "Runs": runs, "Slots": slots, "Kept": int(chain == "kept")}
    return Panels(
        scan.batch,
        scan.column,
        constants,
        (shape.columns, shape.outers, panels, row_blocks, shape.rows, *words),
        THREADS[shared],
        blocks_per_sm,
        room,
        number,
        tiles,
        _table_words(scan, number, number * shape.width * tiles) if shared else 0,
    )


def _own_shape(scan: _Scan, blocks: int) -> _Shape:
    """The widest tile that leaves enough panels for all blocks, and as high as the threads of a block allow."""
    steps, runs, slots = scan.share
    most, outer, size = THREADS[False] * slots, product(scan.batch), scan.column.size
    # As many panels as fill the last wave of blocks too.
    waves = -(-(-(-size // most) * outer) // blocks)
    panels = max(waves * blocks // outer, 1)
    columns = max(-(-size // panels), -(-LEAST_BYTES // scan.widest))
    columns = min(_whole_sectors(scan, columns), most, size)
    rows = 1
    while 2 * rows * steps * runs <= COLUMNS.unit and 2 * rows * columns <= most and rows * steps * runs < scan.length:
        rows *= 2
    outers = 1
    if columns == size and scan.length <= rows * steps * runs:
        outers = max(min(most // rows // columns, scan.batch[0].size, -(-outer // blocks)), 1)
    return _Shape(steps, runs, slots, rows, columns, outers)


def _shared_shape(scan: _Scan) -> _Shape:
    """A tile as high as may be of rows that are just wide enough."""
    steps, runs, slots = scan.share
    most, size = THREADS[True] * slots, scan.column.size
    columns = min(size, most)
    if size * scan.widest > WHOLE_BYTES:
        panels = -(-size * scan.widest // SHARED_BYTES)
        columns = min(_whole_sectors(scan, -(-size // panels)), most)
    rows = 1
    while 2 * rows * steps * runs <= COLUMNS.unit and 2 * rows * columns <= most:
        rows *= 2
    return _Shape(steps, runs, slots, rows, columns, 1)


def _whole_sectors(scan: _Scan, columns: int) -> int:
    """As many columns or some more: panels begin with sectors if rows do."""
    return round_up(columns, max(SECTOR // scan.widest, 1))


def _table_words(scan: _Scan, panels: int, slots: int) -> int:
    """Words of the workspace: a counter for each panel, and a slot for each tile and column (PanelTable)."""
    words = -(-max(scan.state, scan.carry) // 4)
    return round_up(panels, LINE_WORDS) + slots * (round_up(words, 2) if words > 1 else 1)


def _narrower(shape: _Shape) -> _Shape:
    if shape.outers > 1:
        return _Shape(shape.steps, shape.runs, shape.slots, shape.rows, shape.columns, shape.outers * 3 // 4)
    return _Shape(shape.steps, shape.runs, shape.slots, shape.rows, max(shape.columns * 3 // 4, 1), 1)


def _arrays(request: ScanRequest, layout: Layout, scan: _Scan, shape: _Shape) -> list[_Array]:
    """Values, results, mask and segments of a tile; regions are counted later."""
    values, results = len(request.values), len(request.results)
    column, batch = scan.column, scan.batch
    arrays = []
    for i, spec in enumerate(layout.arrays[: values + results + 2]):
        if (
            spec is None
            or column.strides[i] != spec.dtype.itemsize
            or (request.only_carry and values <= i < values + results)
        ):
            arrays.append(DIRECT)
            continue
        size, along, across = spec.dtype.itemsize, layout.axis.strides[i], batch[0].strides[i]
        steps = min(shape.height, layout.axis.size)
        row = shape.columns * size
        dense = shape.columns == column.size and abs(along) == row
        if dense and shape.outers > 1 and across == layout.axis.size * row:
            arrays.append(_Array(0, along, across, 2, shape.outers * steps * row))
        elif dense and across >= 0:
            outer = _pitch(across, steps * row)
            arrays.append(_Array(0, along, outer, 1, (shape.outers - 1) * outer + steps * row))
        elif shape.outers == 1 and along != 0:
            pitch = _pitch(abs(along), row)
            arrays.append(_Array(0, pitch if along > 0 else -pitch, 0, 0, (steps - 1) * pitch + row))
        else:
            arrays.append(DIRECT)
    return arrays


def _pitch(stride: int, nbytes: int) -> int:
    """The least step in shared memory that keeps places apart, as far beyond a multiple of 16 as `stride`."""
    least = nbytes + PIECE - 1
    return least + (stride - least) % PIECE


def _place(scan: _Scan, shape: _Shape, chain: str, arrays: list[_Array]) -> tuple[tuple[int, ...], int]:
    """The words that say where things are in shared memory, and the bytes of all."""
    at = HEADER
    words: list[int] = []
    for array in arrays:
        if array is DIRECT:
            words += array[:4]
            continue
        words += array._replace(region=at)[:4]
        at += round_up(array.nbytes + 2 * PIECE, LINE_BYTES)
    exchange, levels = at, 0
    if shape.rows > 1 or chain == "shared":
        at += round_up(shape.rows * (shape.width | 1) * scan.state, PIECE)
    carries = at
    if chain:
        units = -(-scan.length // COLUMNS.unit)
        levels = SECTION_LEVELS if chain == "shared" else min(units, PAIRED_SECTION - 1).bit_length()
        parts = (COLUMNS.unit // shape.height).bit_length() - 1
        at += shape.width * ((2 + levels) * scan.carry + parts * scan.state)
    return (exchange, carries, levels, *words), at
