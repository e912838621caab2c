"""Plans of the strips family: tiles of columns; arrays are contiguous across these, or some along them (strips.cuh)."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import NamedTuple

from cuscan.order import COLUMNS, LANES
from cuscan.planning.accesses import STILL, accesses_of, goes_back
from cuscan.planning.assemble import (
    assemble,
    batch_of,
    check_tickets,
    index_dtype,
    power_of_two,
    product,
    round_up,
    state_bytes,
)
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import WORD_BYTES
from cuscan.planning.staged_flags import NO_FLAGS, Flags, staged_flags, with_flags
from cuscan.planning.strip_tile import (
    FEW_LOOKS,
    WARPS,
    Batches,
    Lying,
    StripTile,
    block_of_strips,
    in_units,
    words_of_strips,
)
from cuscan.planning.tuning import (
    LINE_BYTES,
    STRIP_BYTES,
    STRIP_BYTES_OF_TWO,
    STRIP_TILE_BYTES,
    VECTOR_BYTES,
    idles,
)
from cuscan.planning.walks import FEW_COLUMNS
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

MOST_PARTS = 4  # most tiles of a unit where blocks share strips
MOST_UNITS = 16  # most units of a tile
WALKS = 4  # most walks of a block, which take turns: a walk takes longer than a small tile
BATCH = 2  # tiles, or units of several tiles, per ticket if there are enough for all blocks
BATCH_OF_PARTS = 12  # units per block that are enough where a unit has several tiles
# Blocks with strips of their own drift apart. Neighbouring strips share the lines between them, unless rows begin on
# lines. In arrays of more bytes than these (values and results, twice the cache) such a line then moves twice. Panels,
# which are wider, have fewer such lines.
CACHED_BYTES = 112 << 20
BATCHES_IN_STAGES = 2  # least batches of tiles in a block's stages: while one waits for its prefix, the next one loads
# Most tiles that a block loads ahead where blocks share strips: so many (one if many blocks share many columns), or, if
# that is more, as many as hold these bytes of values. There is always a stage more.
AHEAD, AHEAD_BYTES = 2, 48 << 10
BULK_TILES = 6  # tiles per block from which on bulk stores pay; with fewer, they delay the last tile
ALONG = Access.ALONG
NONE_LIE = Lying((), VECTOR_BYTES, False)
FLAT_COLUMNS = 128  # most columns of strips of whole rows
FLAT_PARTS = 2  # most tiles of a unit of such strips, if rows have more columns than a warp has lanes
FLAT_ALIGNED = (VECTOR_BYTES, 4, 1)  # bytes to which rows without gaps are aligned together, the most first
ALIGNED = (VECTOR_BYTES, 4, 1)  # bytes to which parts of rows are aligned, the most first
SECTOR_BYTES = 32
OVERLAPPING = 1.3  # times as many strips, at most, if they overlap
OVERLAPPING_ITEMS = 1.45  # the same where results would otherwise leave in pieces and what lies between them
MOSTLY_WRITTEN = 2  # bytes of results for each of values, beyond which strips of wide items overlap
# Tiles of a strip, least, if there are strips for all blocks, and rows are not aligned, arrays lie along, or blocks
# would drift apart; of a flat strip, least, if its tiles begin anywhere, or have columns for several scan warps; of a
# block's own strip whose results lie along, more than these.
LONG, LONG_FLAT, LONG_ALONG = 4, 8, 2
ALONG_BYTES = 512  # of the widest result, in a tile of such a strip, if there are strips that are narrower and higher
# Blocks share such strips even if there are enough for each to have its own, unless panels of a block's own take at
# most so many times as long as memory; the same where arrays lie along.
SLOW, SLOW_ALONG = 1.25, 1.5
FULL = 0.75  # of the columns of strips, least, if they overlap, or not even words of rows are aligned
NARROW_BYTES = 64  # of a strip's row, least, if rows are not aligned to 16 bytes
FEW_STRIPS, FEW_MASKED = 32, 2  # most strips per block with segments, and with a mask: with more, panels are faster
# All tiles of a strip together, at most, in times the steps of the axis, where there are strips for all blocks: of flat
# strips, and of those with flags. With flags, panels are faster than a block's own strips, but strips that blocks share
# are faster still, where items have at most so many bytes.
WASTE, NARROW_ITEM = 1.25, 4
MOST_CARRY = 24  # bytes of a carry, with more of which blocks do not share strips: warps spill registers
SEVERAL_CARRY = 16  # the same for strips of whole rows, if they have several scan warps
WIDE_VALUE = 8  # bytes of a value: if states are wider than it, warps spill registers


class Strips(NamedTuple):
    """How blocks take strips, alone or together."""

    column: Dimension
    batch: tuple[Dimension, ...]
    accesses: tuple[Access, ...]
    tile: StripTile
    number: int  # of strips
    batches: int  # per strip; one if a block has it alone
    words: int  # of the workspace
    constants: dict[str, int]
    block: int
    shared_bytes: int
    rival: float = 0  # panels of a block's own are faster if they take at most so many times memory's time; 0: never

    @property
    def are_quick(self) -> bool:
        """Whether neither whole rows nor flat strips of several scan warps are faster."""
        several_warps = self.tile.flat and self.tile.columns > LANES
        return self.tile.aligned == VECTOR_BYTES and not (self.rival or several_warps)


def strips_of(
    request: ScanRequest, layout: Layout, dense: Dimension | None, room: int, slots: int, looks: int
) -> Strips | None:
    """Return the strips of a scan of columns, or None."""
    if request.kind.op.indexed and request.carry_in:  # positions from another number on in each column
        return None
    kind = request.kind
    state, carry = state_bytes(kind)
    shares, are_wide = carry <= MOST_CARRY, state > kind.sizes[0] >= WIDE_VALUE

    def flat() -> Strips | None:
        several_warps = carry <= SEVERAL_CARRY and looks > FEW_LOOKS and not are_wide  # otherwise warps spill, too
        fits = shares and dense and (dense.size <= LANES or several_warps)
        return _flat(request, layout, dense, room, slots, looks) if dense and fits else None

    def wide() -> Strips | None:
        return _wide(request, layout, room, slots, looks, shares=shares, wide=are_wide)

    if dense is None or dense.size > FLAT_COLUMNS:
        return wide()
    if dense.size <= LANES:
        return flat() or wide()
    strips = wide()
    if strips and strips.are_quick:
        return strips
    return flat() or strips


def turned_layout(request: ScanRequest, layout: Layout) -> Layout | None:
    """Return the layout with the columns of strips first if some arrays lie along the axis, and all others across it.

    None if there are no such columns, or no such arrays.
    """
    steps, sizes = layout.axis.strides, request.kind.sizes
    along = list(map(operator.eq, map(abs, steps), sizes))
    if True not in along:
        return None
    across = [i for i, lies in enumerate(along) if steps[i] and not lies]
    for column in layout.others:
        if across and all([column.strides[i] == sizes[i] for i in across]):
            others = (column, *[other for other in layout.others if other is not column])
            return new_tuple(Layout, (layout.arrays, layout.axis, others, layout.offsets, layout.contiguous))
    return None


def waste_last_tiles(layout: Layout, dense: Dimension, sizes: tuple[int, ...], slots: int) -> bool:
    """Return whether strips of a few columns without gaps lose too much to rows that their last tiles lack.

    Not if there are too few strips for all blocks: others would be slower.
    """
    if dense.size > LANES:
        return False
    rows, length = _flat_rows(dense, _moving(layout, sizes)), layout.axis.size
    batch = product(tuple([other for other in layout.others if other is not dense]))
    return rows <= length and round_up(length, rows) > WASTE * length and not idles(batch, slots)


def _wide(
    request: ScanRequest, layout: Layout, room: int, slots: int, looks: int, *, shares: bool, wide: bool
) -> Strips | None:
    """Return strips of some columns, or None.

    `shares`: whether blocks may share strips. `wide`: whether states are wider than the values.
    """
    if layout.axis.size < STRIP_TILE_BYTES // max(STRIP_BYTES_OF_TWO):  # fewer steps than the lowest tile has
        return None
    column, sizes = layout.others[0], request.kind.sizes
    batch, flags = batch_of(layout, layout.others[1:]), staged_flags(request, layout, column, flat=False)
    if flags is None:
        return None
    moving = _moving(layout, sizes)
    narrowest, widest = min(moving), max(moving)
    for aligned in ALIGNED:
        found = accesses_of(layout, column, [layout.axis, *batch], 1, aligned)
        accesses = _of_values(layout, found, len(sizes), Access.VECTOR)
        if accesses and (aligned < VECTOR_BYTES or column.size * narrowest % aligned == 0):
            break
    else:
        return None
    if aligned == 1 and widest == 1:  # panels are faster
        return None
    along, across = ALONG in accesses, ALONG not in accesses[len(request.values) : len(sizes)]
    quick = state_bytes(request.kind)[0] <= max(WORD_BYTES, widest) or request.kind.op.indexed
    on_sectors = _by_sectors(layout, batch, request.kind)
    overlap = flags == NO_FLAGS and across and (quick or aligned != WORD_BYTES) and not on_sectors
    staged = _staged(request.kind, accesses)
    alike = aligned == VECTOR_BYTES or along
    if staged and not alike:
        alike = _begin_alike(layout, column, batch, staged[0], len(request.values))
    widths = STRIP_BYTES if len(staged) == 1 else STRIP_BYTES_OF_TWO
    nbytes = layout.axis.size * column.size * product(batch) * sum(moving)
    for width in widths:
        columns, rows = width // widest, min(STRIP_TILE_BYTES // width, COLUMNS.unit)
        count = product(batch) * -(-column.size // columns)
        enough = not idles(count, slots)
        if enough and flags != NO_FLAGS and widest <= NARROW_ITEM:  # then blocks share strips, if these are full
            enough = round_up(layout.axis.size, rows) > WASTE * layout.axis.size
        large = enough and nbytes > CACHED_BYTES
        drift = large and _share_lines(layout, batch, len(sizes), whole=columns >= column.size)
        apart, short = aligned < VECTOR_BYTES or along, layout.axis.size < LONG * rows
        full = column.size >= FULL * round_up(column.size, columns)
        lone = enough and full and not across and flags == NO_FLAGS and layout.axis.size > LONG_ALONG * rows
        if short and not lone and (drift or (apart and count > slots)):
            return None  # panels are faster
        rival = (SLOW_ALONG if along else SLOW) if enough and not lone and (drift or apart) else 0
        if lone and rows * widest < ALONG_BYTES and width > widths[-1]:
            continue
        own = enough and not rival
        if flags != NO_FLAGS and (own or count > _few_strips(request) * slots):
            return None
        if wide and (len(staged) < len(request.values) if own else len(request.kind.results) > 1):
            return None
        if not (own or shares):
            return None
        if not own and columns > LANES and width > widths[-1]:
            continue
        halo = _halo(request.kind, column.size, columns, aligned) if overlap else 0
        if not own and not halo:  # strips of equal width, each for as many blocks
            of_sector = SECTOR_BYTES // min(sizes[len(request.values) :])
            multiple = of_sector if on_sectors and of_sector <= columns < column.size else 1
            columns = _alike(column.size, columns, narrowest, 0 if across else widest, multiple)
        if (aligned == 1 or halo) and column.size < FULL * round_up(column.size, columns - halo):
            return None
        if layout.axis.size < rows or columns > 2 * column.size or columns * narrowest % VECTOR_BYTES:
            continue
        if columns == 2 * column.size and width > widths[-1]:  # half empty
            continue
        if aligned < VECTOR_BYTES and min(columns, column.size) * widest < NARROW_BYTES:
            continue
        least = rows if own else COLUMNS.unit // MOST_PARTS
        while rows >= least:
            tile = new_tuple(StripTile, (columns, halo, rows, aligned, own, alike, False))
            made = _make(request, layout, room, slots, looks, column, batch, accesses, flags, tile)
            if made:
                return made._replace(rival=rival)
            rows //= 2
    return None


def _flat(
    request: ScanRequest,
    layout: Layout,
    column: Dimension,
    room: int,
    slots: int,
    looks: int,
) -> Strips | None:
    """Return strips of columns without gaps, in tiles of whole rows, or None."""
    sizes = request.kind.sizes
    rows = _flat_rows(column, _moving(layout, sizes))
    if layout.axis.size < rows:
        return None
    batch = batch_of(layout, tuple([d for d in layout.others if d is not column]))
    flags = staged_flags(request, layout, column, flat=True)
    few = _few_strips(request) * slots
    if flags is None or (flags != NO_FLAGS and column.size > FEW_COLUMNS and product(batch) > few):
        return None
    for aligned in FLAT_ALIGNED:
        accesses = _flat_accesses(layout, column, batch, len(sizes), aligned)
        if not accesses:
            continue
        along, short = ALONG in accesses, layout.axis.size < LONG_FLAT * rows
        several_warps, many = column.size > LANES, product(batch) > slots
        if (aligned == 1 and along) or (short and (aligned == 1 or several_warps or (along and many))):
            return None  # others are faster
        staged = _staged(request.kind, accesses)
        alike = len(staged) > 0 and _begin_alike(layout, column, batch, staged[0], len(request.values))
        in_words = column.size * min(sizes) <= WORD_BYTES  # threads read several of these rows at once
        if aligned == WORD_BYTES and alike and not (along or short or in_words):
            continue  # from anywhere, tiles move in bulk
        least = COLUMNS.unit // (1 if column.size <= LANES else FLAT_PARTS)
        while rows >= least:  # fewer, if several arrays do not fit
            tile = new_tuple(StripTile, (column.size, 0, rows, aligned, False, alike or aligned > 1, True))
            made = _make(request, layout, room, slots, looks, column, batch, accesses, flags, tile)
            if made:
                return made
            rows //= 2
    return None


def _few_strips(request: ScanRequest) -> int:
    return FEW_STRIPS if request.mask is None else FEW_MASKED


def _flat_rows(column: Dimension, sizes: list[int]) -> int:
    """Return the rows per tile of strips of whole rows: some units."""
    units, widest = power_of_two(max(min(LANES // column.size, MOST_UNITS), 1), down=True), max(sizes)
    while units > 1 and units * COLUMNS.unit * column.size * widest > STRIP_TILE_BYTES:
        units //= 2
    return units * COLUMNS.unit


def _make(
    request: ScanRequest,
    layout: Layout,
    room: int,
    slots: int,
    looks: int,
    column: Dimension,
    batch: tuple[Dimension, ...],
    accesses: tuple[Access, ...],
    flags: tuple[Flags, Flags],
    tile: StripTile,
) -> Strips | None:
    """Return strips of such tiles, or None if they do not fit in shared memory."""
    columns, halo, rows, aligned, own, _, flat = tile
    strips, tiles = product(batch) * -(-column.size // (columns - halo)), -(-layout.axis.size // rows)
    parts = max(COLUMNS.unit // rows, 1)
    least = BATCH if parts == 1 else BATCH_OF_PARTS
    taken = 1 if own else (BATCH if strips * tiles >= least * parts * slots else 1) * parts
    across = ALONG not in accesses[len(request.values) : len(request.kind.sizes)]
    in_bulk = flat and aligned != WORD_BYTES and across and strips * tiles >= BULK_TILES * slots
    back = flat and goes_back(layout, len(request.kind.sizes))
    staged, lying = _staged(request.kind, accesses), _lying(request.kind, layout, column, batch, accesses)
    ahead = 1 if columns > LANES // 2 and strips * LANES <= slots else AHEAD
    ahead = max(ahead, AHEAD_BYTES // (rows * columns * max(sum([request.kind.sizes[i] for i in staged]), 1)))

    def block_of(taken: int) -> tuple[dict[str, int], int, int] | None:
        most = WALKS if strips * tiles >= WALKS * taken * slots else 1  # walks, if each has a batch of every block
        batches = new_tuple(Batches, (taken, most, ahead))
        return block_of_strips(
            request.kind, staged, flags, lying, tile, batches, room, looks, in_bulk=in_bulk, back=back
        )

    made = block_of(taken)
    if taken > parts and (made is None or made[0]["Stages"] < BATCHES_IN_STAGES * taken):
        taken = parts
        made = block_of(taken)
    if made is None:
        return None
    batches = 1 if own else -(-tiles // taken)
    of_all = with_flags(accesses, len(request.kind.sizes), flags)
    constants, *block = made
    carry = state_bytes(request.kind, index_dtype(request))[1]
    words = 0 if own else words_of_strips(constants, strips, batches, carry)
    return Strips(column, batch, of_all, tile, strips, batches, words, constants, *block)


def _moving(layout: Layout, sizes: tuple[int, ...]) -> list[int]:
    """Return the item sizes of those values and results that vary along the axis, as all results do."""
    return list(itertools.compress(sizes, layout.axis.strides))


def _staged(kind: CallKind, accesses: tuple[Access, ...]) -> tuple[int, ...]:
    """Return the numbers of the values that vary along the axis."""
    return tuple([i for i in range(len(kind.values)) if accesses[i] not in STILL])


def _of_values(layout: Layout, accesses: tuple[Access, ...], arrays: int, vector: Access) -> tuple[Access, ...] | None:
    """Return `accesses` where values and results, the first `arrays`, are vectors, lie along the axis or stand still.

    None if there are others, or no vectors.
    """
    if accesses[:arrays].count(vector) == arrays and all(layout.axis.strides[:arrays]):
        return accesses
    found = list(accesses)
    for i, spec in enumerate(layout.arrays[:arrays]):
        if spec is not None and layout.axis.strides[i] == 0:
            found[i] = Access.NUMBER if spec.is_number else Access.BROADCAST
        elif found[i] is not vector:
            if spec is None or abs(layout.axis.strides[i]) != spec.dtype.itemsize:
                return None
            found[i] = ALONG
    one_way = len({step > 0 for step, access in zip(layout.axis.strides, found, strict=True) if access is ALONG}) < 2
    return tuple(found) if one_way and vector in found[:arrays] else None


def _share_lines(layout: Layout, batch: tuple[Dimension, ...], arrays: int, *, whole: bool) -> bool:
    """Return whether strips share lines of memory: hardly, if they have `whole` rows, and one ends before the next."""
    steps = layout.axis.strides[:arrays]
    if not any([stride % LINE_BYTES for dim in (layout.axis, *batch) for stride in dim.strides[:arrays]]):
        return False
    lengths = [abs(step) * layout.axis.size for step in steps]
    far = [abs(by) >= length for dim in batch for by, length in zip(dim.strides, lengths, strict=False)]
    return not (whole and all(far))


def _alike(columns: int, most: int, narrowest: int, widest: int, multiple: int) -> int:
    """Return the columns per strip: as few strips as with `most`, and whole vectors of each array for a scan warp.

    Their number is a multiple of `multiple`. With `widest`, all store warps have equally many columns, in whole words.
    """
    step = max(VECTOR_BYTES // narrowest * -(-most // LANES), multiple)
    if widest:
        step = max(step, WARPS * max(WORD_BYTES // widest, 1))
    return -(-columns // -(-columns // most) // step) * step


def _lying(
    kind: CallKind, layout: Layout, column: Dimension, batch: tuple[Dimension, ...], accesses: tuple[Access, ...]
) -> Lying:
    """Return which arrays lie along the axis."""
    if ALONG not in accesses:
        return NONE_LIE
    values, arrays = len(kind.values), accesses[: len(kind.sizes)]
    staged = [access is ALONG for access in arrays[:values] if access not in STILL]
    found = accesses_of(layout, layout.axis, [column, *batch], 1, VECTOR_BYTES)
    aligned = all([of is not Access.STRIDED for of, access in zip(found, accesses, strict=True) if access is ALONG])
    back = min(map(operator.mul, layout.axis.strides, [access is ALONG for access in accesses])) < 0
    lie = (*staged, *[access is ALONG for access in arrays[values:]])
    return new_tuple(Lying, (lie, VECTOR_BYTES if aligned else 1, back))


def _by_sectors(layout: Layout, batch: tuple[Dimension, ...], kind: CallKind) -> bool:
    """Return whether rows of all results begin equally far beyond a sector."""
    results = range(len(kind.values), len(kind.sizes))
    return all([of.strides[i] % SECTOR_BYTES == 0 for of in (layout.axis, *batch) for i in results])


def _halo(kind: CallKind, number: int, columns: int, aligned: int) -> int:
    """Return how many of a strip's columns the next strip has, too, if an array has `number` of them; 0 if none.

    Sectors that begin in the others end in the strip.
    """
    values, results = kind.sizes[: len(kind.values)], kind.sizes[len(kind.values) :]
    if number <= columns or (max(kind.sizes) >= WIDE_VALUE and sum(results) <= MOSTLY_WRITTEN * sum(values)):
        return 0
    halo = max([-(-(SECTOR_BYTES - max(aligned, size)) // size) for size in results])
    halo += (columns - halo) % max(aligned // min(kind.sizes), 1)
    if halo >= columns:
        return 0
    most = OVERLAPPING if in_units(columns, results, aligned) else OVERLAPPING_ITEMS
    return halo if -(-number // (columns - halo)) <= most * -(-number // columns) else 0


def _begin_alike(layout: Layout, column: Dimension, batch: tuple[Dimension, ...], value: int, result: int) -> bool:
    """Return whether rows of two arrays, by their numbers, begin equally far beyond 16 bytes."""
    one, other = layout.arrays[value], layout.arrays[result]
    assert one is not None and other is not None
    steps = [one.address + layout.offsets[value] - other.address - layout.offsets[result]]
    steps += [of.strides[value] - of.strides[result] for of in (layout.axis, column, *batch)]
    return not any([step % VECTOR_BYTES for step in steps])


def _flat_accesses(
    layout: Layout, column: Dimension, others: Sequence[Dimension], arrays: int, aligned: int
) -> tuple[Access, ...] | None:
    """Return the accesses to dense columns in the order of memory, or None if the first `arrays` are not aligned.

    Arrays that do not vary along the axis may lie anywhere.
    """
    steps, back = column.strides, goes_back(layout, arrays)
    if back:
        # A reversed scan takes rows from last to first, and all elements if it starts at the last column of a row.
        steps = tuple([-step for step in steps])
        starts = [offset - (column.size - 1) * step for offset, step in zip(layout.offsets, steps, strict=True)]
        flat = Layout(layout.arrays, layout.axis, layout.others, tuple(starts), layout.contiguous)
    else:
        flat = layout
    found = accesses_of(flat, Dimension(layout.axis.size * column.size, steps), others, 1, aligned)
    of_values = _of_values(layout, found, arrays, Access.REVERSED if back else Access.VECTOR)
    if of_values is None:
        return None
    vectors = tuple([access if access in (*STILL, ALONG) else Access.VECTOR for access in of_values[:arrays]])
    return vectors + accesses_of(layout, column, [layout.axis, *others], 1)[arrays:]


def dense_columns(layout: Layout, sizes: tuple[int, ...], *, along: bool = False) -> Dimension | None:
    """Return the columns beside the scanned axis if all arrays hold them row after row without gaps, or None.

    Arrays that do not vary along the axis do not count; with `along`, nor do those that are contiguous along it.
    """
    steps, column = layout.axis.strides, layout.others[0]
    number = -column.size if goes_back(layout, len(sizes)) else column.size
    for i, size in enumerate(sizes):
        if along and abs(steps[i]) == size != column.strides[i]:
            continue
        if steps[i] and (column.strides[i] != size or steps[i] != number * size):
            return None
    return column


def plan_strips(request: ScanRequest, layout: Layout, target: Target, strips: Strips) -> ScanPlan:
    """Return the plan for strips."""
    if not strips.tile.own:
        check_tickets(strips.number * strips.batches)
    return assemble(
        request,
        layout,
        "strips",
        batch=strips.batch,
        column=strips.column,
        accesses=strips.accesses,
        items=VECTOR_BYTES // request.result.dtype.itemsize,
        constants=strips.constants,
        block=strips.block,
        blocks_per_sm=1,
        grid=min(strips.number * strips.batches, target.sm_count),
        shared_bytes=strips.shared_bytes,
        units=-(-layout.axis.size // COLUMNS.unit),
        tickets=not strips.tile.own,
        words=strips.words,
    )
