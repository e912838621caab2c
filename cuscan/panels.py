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
from cuscan.tuning import COLUMNS, LINE_BYTES

THREADS = 256  # of a block
WIDE_STATE = 8  # bytes, beyond which fewer blocks have registers enough
BLOCKS_PER_SM = {False: 4, True: 2}  # of states that are wide
RUN = COLUMNS.items  # steps
PIECE = 16  # bytes that move at a time
SECTOR = 32  # bytes that memory stores at a time
SHARED_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
HEADER = LINE_BYTES  # a barrier
MOST_ROWS = 16  # of threads
LEAST_BYTES = 64  # of a row of a panel
IDLE = 0.75  # the share of blocks that must have panels, or else they share these


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
    words: tuple[int, ...]
    shared_bytes: int
    blocks_per_sm: int
    number: int


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


def panels_of(request: ScanRequest, layout: Layout, target: Target) -> Panels | None:
    """Panels for a scan along another axis than the contiguous one; None where they are too few for all blocks."""
    state, carry = (
        state_bytes(request, DTYPES[of], DTYPES[index_dtype(request)])
        for of in (request.result.dtype.accumulator, request.carry)
    )
    wide = state > WIDE_STATE
    room = target.shared_bytes // BLOCKS_PER_SM[wide] - SHARED_RESERVED
    blocks = target.sm_count * BLOCKS_PER_SM[wide]
    column, batch = layout.others[0], batch_of(layout, layout.others[1:])
    length = layout.axis.size
    shape = _first_shape(request, state, length, column, batch, blocks)
    while shape.columns > 1 or shape.outers > 1:
        kept = length > shape.height
        arrays = _arrays(request, layout, shape, column, batch)
        words, nbytes = _place(shape, kept, arrays, length, state, carry)
        if nbytes <= room:
            break
        shape = _narrower(shape)
    else:
        return None
    panels, row_blocks = -(-column.size // shape.columns), -(-batch[0].size // shape.outers)
    number = panels * row_blocks * product(batch[1:])
    if kept and number < IDLE * blocks:
        return None
    return Panels(
        batch,
        column,
        {"Threads": THREADS, "Steps": shape.steps, "Runs": shape.runs, "Slots": shape.slots, "Kept": int(kept)},
        (shape.columns, shape.outers, panels, row_blocks, shape.rows, *words),
        round_up(room, LINE_BYTES) - LINE_BYTES if room % LINE_BYTES else room,
        BLOCKS_PER_SM[wide],
        number,
    )


def _first_shape(
    request: ScanRequest, state: int, length: int, column: Dimension, batch: tuple[Dimension, ...], blocks: int
) -> _Shape:
    """The widest tile that leaves enough of them for all blocks, and as high as the threads of a block allow."""
    widest = max(spec.dtype.itemsize for spec in (*request.values, *request.results))
    values = sum(spec.dtype.itemsize for spec in request.values)
    elements = _elements(state, values, widest)
    counts = request.op.indexed and bool(request.carry_in) and not request.reverse  # then each column has its own
    steps = min(power_of_two(length), RUN)
    runs = 1 if length <= RUN or elements <= RUN else 2
    slots = 1 if counts else max(elements // (steps * runs), 1)
    most, outer = THREADS * slots, product(batch)
    # As many panels as fill the last wave of blocks too.
    waves = -(-(-(-column.size // most) * outer) // blocks)
    panels = max(waves * blocks // outer, 1)
    columns = max(-(-column.size // panels), -(-LEAST_BYTES // widest))
    columns = min(round_up(columns, max(SECTOR // widest, 1)), most, column.size)  # whole sectors, where rows begin there
    rows = 1
    while rows < MOST_ROWS and 2 * rows * columns <= most and rows * steps * runs < length:
        rows *= 2
    outers = 1
    if columns == column.size and length <= rows * steps * runs:
        outers = max(min(most // rows // columns, batch[0].size, -(-outer // blocks)), 1)
    return _Shape(steps, runs, slots, rows, columns, outers)


def _elements(state: int, values: int, widest: int) -> int:
    """Of a thread, as many as it has registers for."""
    if state > WIDE_STATE or values >= 8:
        return 8
    return 16 if widest >= 4 else 32 if widest == 2 else 64


def _narrower(shape: _Shape) -> _Shape:
    if shape.outers > 1:
        return _Shape(shape.steps, shape.runs, shape.slots, shape.rows, shape.columns, shape.outers * 3 // 4)
    return _Shape(shape.steps, shape.runs, shape.slots, shape.rows, max(shape.columns * 3 // 4, 1), 1)


def _arrays(
    request: ScanRequest, layout: Layout, shape: _Shape, column: Dimension, batch: tuple[Dimension, ...]
) -> list[_Array]:
    """Values, results, mask and segments of a tile; regions are counted later."""
    values, results = len(request.values), len(request.results)
    arrays = []
    for i, spec in enumerate(layout.arrays[: values + results + 2]):
        if spec is None or column.strides[i] != spec.dtype.itemsize or (request.only_carry and values <= i < values + results):
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


def _place(
    shape: _Shape, kept: bool, arrays: list[_Array], length: int, state: int, carry: int
) -> tuple[tuple[int, ...], int]:
    """The words that say where things are in shared memory, and the bytes of all."""
    at, words = HEADER, []
    for array in arrays:
        if array is DIRECT:
            words += array[:4]
            continue
        words += array._replace(region=at)[:4]
        at += round_up(array.nbytes + 2 * PIECE, LINE_BYTES)
    exchange = at
    if shape.rows > 1:
        at += round_up(shape.rows * (shape.width | 1) * state, PIECE)
    carries, levels = at, 0
    if kept:
        units = -(-length // COLUMNS.unit)
        levels = min(units, PAIRED_SECTION - 1).bit_length()
        parts = (COLUMNS.unit // shape.height).bit_length() - 1
        at += shape.width * ((2 + levels) * carry + parts * state)
    return (exchange, carries, levels, *words), at
