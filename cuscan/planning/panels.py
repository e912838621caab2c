"""Plans of the panels family: tiles of columns with any alignment, through shared memory (panels.cuh)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cuscan.kept import MOST
from cuscan.order import COLUMNS
from cuscan.planning.assemble import assemble, batch_of, check_tickets, index_dtype, power_of_two, state_bytes
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.crossing import tile_axes
from cuscan.planning.gaps import Gaps, with_gaps
from cuscan.planning.hardware import BULK_ARCH
from cuscan.planning.on_words import are_words, on_words
from cuscan.planning.panel_shapes import (
    batch_is_closer,
    chunk_of,
    faster_shape,
    filled_shape,
    is_fuller,
    is_sparse,
    is_worth_a_large_block,
    most_columns,
    narrower_shape,
    own_shape,
    panels_of_shape,
    room_of,
    run_shape,
    shared_shape,
    times_of_memory,
)
from cuscan.planning.panel_tile import (
    FINDERS,
    RUN,
    WIDE_STATE,
    PanelScan,
    Shape,
    Share,
    TileWords,
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
NARROW = Blocks(3, 128, 8)  # the same where blocks share panels of narrow rows: two work while the third one waits
REGISTER, HALF = 4, 2  # bytes
WIDEST_BYTES = 256  # of a thread's part of the widest array, at most, if items share registers
# Elements of a thread by segments, at most, if items share registers, as each may start one: with 64 elements of 8-byte
# states three kernels of NVRTC 13.0 gave wrong bits on a GPU, for an unknown reason.
MOST_STARTS = 32
WORD_BYTES = 4  # bytes of a carry that a word of the workspace holds, beside the epoch
LONGEST = 64  # steps of an axis, beyond which a thread's share is constant: it has no more elements
BULK_BYTES = 256  # of a segment that one thread copies in bulk, at least, with one block per panel
SHARED_BULK_BYTES = 1024  # the same with several blocks per panel: whole rows of memory
ABREAST = 12  # panels side by side before those of the next rows of the batch, if tiles span both: 12 x 12 fill a GPU
MOST_ROWS = 10  # thread rows, at most, of a tile that holds a whole axis with one run per row
# Such a tile replaces one that has so many times its steps, or several that have so many times those of the axis.
WASTE = 1.25
TOGETHER = 5  # thread rows that a warp reads at once, from which on gaps between them pay
IDLE = 0.6  # fraction of blocks that must have a panel of their own; below it, blocks share panels
# Bytes of a narrow row. If such rows of several panels lie side by side in memory, blocks share wider panels.
NARROW_BYTES = 160


class Panels(NamedTuple):
    """How blocks take panels: compile-time constants, geometry words (`beside`), and the launch."""

    batch: tuple[Dimension, ...]
    column: Dimension
    columns: int  # of a tile
    of_row: int  # columns of a row, if there are gaps between rows; otherwise 1
    constants: dict[str, int]
    beside: tuple[int, ...]
    block: int  # threads
    blocks_per_sm: int
    shared_bytes: int
    number: int  # of panels
    chunks: int  # per panel, if blocks share panels
    words: int  # 64-bit workspace words; 0 unless blocks share panels


def plan_panels(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan:
    """Return the plan for columns of any alignment, on words if that is possible."""
    plan = _plan(request, layout, target, None)
    assert plan
    return plan


def own_panels(request: ScanRequest, layout: Layout, target: Target, slowest: float) -> ScanPlan | None:
    """Return a plan whose blocks have panels of their own, or None if it takes more than `slowest` times memory's time.

    A model estimates both times; a tile of a whole axis counts as fast.
    """
    return _plan(request, layout, target, slowest)


def _plan(request: ScanRequest, layout: Layout, target: Target, slowest: float | None) -> ScanPlan | None:
    """Return the plan; with `slowest`, None if blocks would share panels, or a scan takes longer (`own_panels`)."""
    on = on_words(request, layout)
    request, layout, lacking = on[:3] if on else (request, layout, 0)
    panels = None if on else _panels_with_gaps(request, layout, target, slowest)
    panels = panels or _panels_of(request, layout, target, lacking, slowest=slowest)
    if panels and panels.columns % panels.of_row:  # tiles that fit in shared memory would cut rows
        panels = _panels_of(request, layout, target, lacking, third=False, slowest=slowest)
    if panels is None:
        return None
    batch, column, _, _, constants, beside, block, blocks_per_sm, shared_bytes, number, chunks, words = panels
    shared = words > 0
    turns = number * chunks if shared else number
    if shared:
        check_tickets(turns)
    accesses = [
        Access.NONE if spec is None else Access.NUMBER if spec.is_number else Access.STRIDED for spec in layout.arrays
    ]
    for i, step in enumerate(layout.axis.strides[: len(request.values)]):
        if step == 0 and accesses[i] is Access.STRIDED:
            accesses[i] = Access.PER_LINE
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


def _panels_with_gaps(request: ScanRequest, layout: Layout, target: Target, slowest: float | None) -> Panels | None:
    """Return panels of columns with gaps, if there are some, and a tile has all of them."""
    found = with_gaps(request, layout)
    if found is None:
        return None
    panels = _panels_of(request, found[0], target, 0, found[1], slowest=slowest)
    return panels if panels and panels.columns == panels.column.size else None


def _panels_of(
    request: ScanRequest,
    layout: Layout,
    target: Target,
    lacking: int,
    gaps: Gaps | None = None,
    *,
    third: bool = True,
    slowest: float | None,
) -> Panels | None:
    """Return panels for a scan along an axis that is not the contiguous one of the results or of the values.

    `lacking`: bytes that the last word of a row lacks, if columns are words. `gaps`: between columns. `third`: whether
    tiles may span a third axis. `slowest`: as for `_plan`.
    """
    kind, index, length, words = request.kind, index_dtype(request), layout.axis.size, are_words(request.kind)
    still = _still(layout, len(kind.values))
    longest = min(power_of_two(length), LONGEST)
    crossing = _held_by(kind, still, index, longest, True)  # tiles of one axis may then hold more
    third = third and not (words or gaps)
    column, others, sides, steps, of_rows = tile_axes(request, layout, LARGE.threads * crossing.elements, third=third)
    elsewhere = column is not layout.others[0]
    if (words and elsewhere) or (gaps and (sides or elsewhere)):
        column, others, sides, steps = layout.others[0], layout.others[1:], None, 0
    gaps = gaps or of_rows
    batch = batch_of(layout, others)
    counts = kind.op.indexed and bool(request.carry_in) and not kind.reverse
    aligned = 1 if counts or words else aligned_columns(request, layout, column, batch, gaps)
    held = crossing if sides else _held_by(kind, still, index, longest, False)

    def scan_of(blocks: Blocks) -> PanelScan:
        share = _share_of(kind, still, held, index, blocks, longest, aligned, counts)
        return new_tuple(PanelScan, (length, column, batch, share, most_columns(share, steps), sides, lacking, gaps))

    rows = -(-length // RUN)
    few_rows = rows <= MOST_ROWS and not (sides or steps)

    def in_runs() -> tuple[PanelScan, Shape]:
        """Return a tile of the whole axis, a run to a thread."""
        share = _share_of(kind, still, held, index, MANY, RUN, aligned, counts)
        most = max(share.beside(rows) // share.pack, 1) * share.pack
        whole = new_tuple(PanelScan, (length, column, batch, share, most, sides, lacking, gaps))
        return whole, run_shape(whole, target, rows)

    def whole_axis(scan: PanelScan, shape: Shape) -> Panels | None:
        """Return panels of tiles of the whole axis, if these fit in shared memory."""
        panels = _panels(request, layout, target, scan, shape)
        return None if panels.constants["Kept"] else panels

    if length <= COLUMNS.unit and not sides:  # otherwise fewer blocks of more columns have longer segments
        scan = scan_of(MANY)
        shape = own_shape(scan, target)
        if length <= shape.height and not is_worth_a_large_block(scan, shape, scan_of(LARGE), target):
            panels = None
            # Not of columns that share registers: a thread then has eight.
            if few_rows and held.together == 1 and shape.height >= WASTE * rows * RUN:
                other = in_runs()
                panels = whole_axis(*other) if is_fuller(*other, scan, shape, target) else None
            panels = panels or whole_axis(scan, shape)
            if panels:
                return panels
    scan = scan_of(LARGE)
    room = room_of(target, scan.share)
    known: dict[Shape, TileWords] = {}

    def nbytes_of(shape: Shape) -> int:
        if shape not in known:
            known[shape] = tile_words(request, layout, scan, shape, 0, _in_bulk(target, shares=False), False)
        return known[shape].nbytes

    shape = own_shape(scan, target)
    if length > shape.height and shape.rows == 1 and shape.columns < column.size and not sides:
        nbytes = nbytes_of(shape)
        if nbytes > room:
            shape = narrower_shape(scan, shape, target, room / nbytes)
    tiles = -(-length // shape.height)
    # A tile with two rows of threads is faster than a fuller one.
    is_empty = shape.rows == 1 and shape.height >= WASTE * rows * RUN
    if few_rows and (is_empty if tiles == 1 else tiles * shape.height >= WASTE * length):
        panels = whole_axis(*in_runs())
        if panels:
            return panels
    narrow = shape.width * scan.share.widest < NARROW_BYTES and not (sides or steps)
    narrow = narrow and (
        shape.columns < column.size or (shape.outers < batch[0].size and batch_is_closer(batch[0], layout.axis))
    )
    few = panels_of_shape(scan, shape) < IDLE * target.sm_count * scan.share.per_sm or is_sparse(scan, shape, target)
    if length > shape.height and (few or narrow):
        if slowest is not None:
            return None
        of_narrow_rows = column.size * scan.share.widest <= NARROW_BYTES and not sides
        is_wide = state_bytes(kind, index)[0] > WIDE_STATE
        sharing = scan_of(NARROW if is_wide and of_narrow_rows else SHARING)
        shared = shared_shape(request, layout, target, sharing, _in_bulk(target, shares=True))
        if length > max(shared.height, COLUMNS.unit):  # otherwise a panel has one chunk
            return _panels(request, layout, target, sharing, shared, shares=True)

    along = [abs(step) == size for size, step in zip(kind.sizes, layout.axis.strides, strict=False)]
    turned = sum(along) / len(along)
    shape = faster_shape(scan, shape, target, turned, lambda other: nbytes_of(other) <= room)
    if slowest is not None:
        while nbytes_of(shape) > room:
            shape = smaller(scan, shape, shares=False)
        if times_of_memory(scan, shape, target, turned) > slowest:
            return None
    return _panels(request, layout, target, scan, shape, known=known)


class Held(NamedTuple):
    """What a thread holds in registers: a number of elements; the columns whose items share registers."""

    elements: int
    together: int


def _still(layout: Layout, values: int) -> int:
    """Return how many of the values, from the first on, do not vary along the axis."""
    for i, step in enumerate(layout.axis.strides[:values]):
        if step:
            return i
    return values


def _moving(kind: CallKind, still: int) -> tuple[int, ...]:
    """Return the sizes of the values but for the first `still`; those of a register if there are no others."""
    return kind.sizes[still : len(kind.values)] or (REGISTER,)


@functools.lru_cache(MOST)
def _held_by(kind: CallKind, still: int, index: str, length: int, crossing: bool) -> Held:
    """Return what a thread holds of an axis of `length` steps, a power of two up to `LONGEST`.

    A thread holds as many elements as fit in its registers, because a tile of fewer takes nearly as long. Tiles of two
    axes (`crossing`) hold fewer: their sides would get no longer. The first `still` values do not vary along the axis.
    Halves share registers in pairs where states are wider, too; four bytes to a register would be slower there.
    """
    state, sizes, widest = state_bytes(kind, index)[0], _moving(kind, still), max(kind.sizes[still:])
    of_values = max(sizes)
    registers = sum([max(size, REGISTER) for size in sizes])
    if state > WIDE_STATE:
        elements = 16 if registers <= 4 * REGISTER else 8
    else:
        is_narrow = of_values < REGISTER and not crossing
        elements = 16 if (registers if is_narrow else max(widest, registers)) >= 2 * REGISTER else 32
    together = 1
    if state <= (max(registers, WIDE_STATE) if of_values == HALF else registers) and length >= RUN:
        together = max(REGISTER // (widest if crossing else of_values), 1)
    of_column = min(elements, WIDEST_BYTES // (together * widest))
    if together == 1 or (kind.segments and (crossing or of_column * together > MOST_STARTS)):
        return new_tuple(Held, (elements, 1))
    return new_tuple(Held, (of_column * together, together))


@functools.lru_cache(MOST)
def _share_of(
    kind: CallKind, still: int, held: Held, index: str, blocks: Blocks, length: int, aligned: int, counts: bool
) -> Share:
    """Return a thread's share of an axis of `length` steps, a power of two up to `LONGEST`.

    The first `still` values do not vary along the axis. `aligned` is the number of adjacent columns that are aligned as
    a group. With `counts` each column has positions of its own.
    """
    state, carry = state_bytes(kind, index)
    wide, sizes, widest = state > WIDE_STATE, _moving(kind, still), max(kind.sizes[still:])
    elements, together = held
    per_sm, threads, vector = WIDE if wide and blocks is not NARROW else blocks
    pack = 1 if wide else min(aligned, max(vector // min(sizes), 1))
    steps, together = min(length, RUN), max(pack, together)
    filled = REGISTER // max(sizes)
    # The compiler keeps each byte of a half-filled register in one of its own. Scans by segments have enough of them.
    if together > 1 and steps * filled <= elements and not kind.segments:
        together = max(together, filled)
    runs = max(min(length // steps, elements // steps // together), 1)
    slots, height = 1 if counts else max(elements // (steps * runs), together), steps * runs
    thread = state, carry, widest, pack, steps, runs, slots, height
    return Share(*thread, threads * slots, COLUMNS.unit // height, 4 if state <= 8 else 2, per_sm, threads)


def _panels(
    request: ScanRequest,
    layout: Layout,
    target: Target,
    scan: PanelScan,
    shape: Shape,
    *,
    shares: bool = False,
    known: dict[Shape, TileWords] | None = None,
) -> Panels:
    """Return panels of tiles of the given shape, or with more rows of threads where these fill chunks.

    `known`: words of tiles of some shapes, if blocks do not share panels.

    If they do not fit in shared memory, first chunks get smaller. Then the gaps between what thread rows read go. Then
    tiles get smaller.
    """
    share = scan.share
    room, in_bulk = room_of(target, share), _in_bulk(target, shares=shares)
    # Bulk copies alone move what lies between gaps.
    split = shares and in_bulk > 0 and TOGETHER * shape.width * share.widest <= LINE_BYTES
    fewer = 0  # levels of a chunk, for it to fit
    while True:
        number, least = panels_of_shape(scan, shape), max(shape.rows, share.of_unit)
        chunk = max(chunk_of(request, target, scan, shape, number).rows >> fewer, least) if shares else 0
        filled = filled_shape(scan, shape, chunk)
        if filled is not shape:
            words = tile_words(request, layout, scan, filled, chunk, in_bulk, split)
            if words.nbytes <= room:
                return _with_tile(scan, filled, chunk, number, room, words)
            if shares:  # then chunks have tiles of fewer thread rows
                chunk = max(chunk_of(request, target, scan, shape, number, shape.rows).rows >> fewer, least)
        found = known.get(shape) if known else None
        words = found or tile_words(request, layout, scan, shape, chunk, in_bulk, split)
        if words.nbytes <= room:
            return _with_tile(scan, shape, chunk, number, room, words)
        if chunk > least:
            fewer += 1
        elif split:
            fewer, split = 0, False
        else:
            shape, fewer = smaller(scan, shape, shares=shares), 0


def _in_bulk(target: Target, *, shares: bool) -> int:
    """Return the bytes of a segment that one thread copies in bulk, at least; 0 if none does."""
    return 0 if target.arch < BULK_ARCH else SHARED_BULK_BYTES if shares else BULK_BYTES


def _with_tile(scan: PanelScan, tile: Shape, chunk: int, number: int, room: int, words: TileWords) -> Panels:
    """Return `number` panels of tiles with the given words (`tile_words`); blocks share them by chunks, if any."""
    length, column, batch, share, _, _, lacking, gaps = scan
    (rows, columns, outers, height, width), (places, arrays, _, of_gaps) = tile, words
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
        "Gaps": int(gaps is not None),
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
    of_tile = columns, outers, panels, row_blocks, abreast, rows
    return Panels(
        batch,
        column,
        columns,
        gaps.every if gaps else 1,
        constants,
        (*of_gaps, *of_tile, *places, levels, of_chunk, turns, number, tiles, lacking, *arrays),
        share.threads + FINDERS,
        share.per_sm,
        room,
        number,
        chunks,
        number * width * chunks * -(-share.carry // WORD_BYTES) if chunk else 0,
    )
