"""From a request to a launch: kernel family, configuration, grid. Pure functions of frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from cuscan.dtypes import DTYPES
from cuscan.errors import ScanValueError
from cuscan.layout import (
    UNIT_DIMENSION,
    Dimension,
    Layout,
    accesses_of,
    dense_columns,
    flat_accesses,
    layout_of,
)
from cuscan.order import GROUP, LANES, SECTION, Order
from cuscan.request import ScanRequest
from cuscan.tuning import (
    COLUMNS,
    CONTIGUOUS,
    IDLE,
    NARROW,
    NARROW_ACROSS,
    NARROW_ELEMENTS,
    THREADS_PER_SM,
    VECTOR_BYTES,
)

WARP = 32
HEADER_BYTES = 16  # struct Workspace
STAGES = 3  # tiles that a block of the tiles and narrow families holds
SHARED_REST = 1024  # bytes of shared memory beside the stages, at most
BULK_ARCH = 90  # the first architecture with bulk copies
BULK_BYTES = 16  # their alignment
SHARED_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
WALK_BYTES = 16  # of carries side by side in a thread that walks a chain
COLUMN_THREADS = 256  # of a block of the columns family, or twice as many
MAX_TICKETS = 2**32 - 2**20  # of one launch: they are 32 bits, and every block takes a few too many


@dataclass(frozen=True)
class Target:
    """The GPU that a plan is made for: architecture (90 for sm_90), SMs, shared memory of an SM in bytes."""

    arch: int
    sm_count: int
    shared_bytes: int = 228 * 1024


@dataclass(frozen=True)
class Config:
    """What a kernel is compiled for; the fields of the generated `struct Config` (source.py)."""

    family: str
    functor: str
    functor_source: str
    value: str
    result: str
    accumulator: str
    carry: str
    value_access: str
    result_access: str
    mask_access: str
    exclusive: bool
    has_initial: bool
    grid: bool
    levels: int
    staged: bool
    batch_dims: int
    items: int
    constants: tuple[tuple[str, int], ...]
    block: int
    blocks_per_sm: int
    shared_bytes: int


@dataclass(frozen=True)
class ScanPlan:
    """A launch, complete but for the addresses.

    `geometry` is the kernel's struct Geometry as words. The offsets lead, in elements, from each
    array's address to scan position 0. `workspace_words` counts the 64-bit tile-state words.
    """

    config: Config
    grid: int
    geometry: tuple[int, ...]
    value_offset: int
    result_offset: int
    mask_offset: int
    workspace_words: int

    @property
    def workspace_bytes(self) -> int:
        """Device memory that the launch needs beside the arrays."""
        return HEADER_BYTES + 8 * self.workspace_words if self.workspace_words else 0


def _wider(request: ScanRequest) -> int:
    """The item size of the wider of value and result."""
    return max(request.value.dtype.itemsize, request.result.dtype.itemsize)


def order_of(request: ScanRequest) -> Order:
    """The defined order of a request's scan (order.py)."""
    if not layout_of(request).contiguous:
        return COLUMNS
    return CONTIGUOUS[_wider(request)]


def make_plan(request: ScanRequest, target: Target) -> ScanPlan:
    """The plan for a request with at least one element."""
    layout = layout_of(request)
    if not layout.contiguous:
        return _plan_narrow(request, layout, target) or _plan_columns(request, layout, target)
    order = order_of(request)
    if layout.axis.size <= order.warp_tile:
        return _plan_rows(request, layout, order)
    return _plan_tiles(request, layout, order, target)


def _geometry(
    axis: Dimension, column: Dimension, batch: tuple[Dimension, ...], units: int, words: int
) -> tuple[int, ...]:
    return (*axis, *column, *(word for dim in batch for word in dim), _product(batch), units, words)


def _plan(
    request: ScanRequest,
    layout: Layout,
    family: str,
    *,
    batch: tuple[Dimension, ...],
    column: Dimension = UNIT_DIMENSION,
    accesses: list[str],
    items: int,
    constants: dict[str, int],
    block: int,
    blocks_per_sm: int,
    grid: int,
    shared_bytes: int = 0,
    units: int = 1,
    chains: int = 0,
    staged: bool = False,
) -> ScanPlan:
    """A plan; `chains` of `units` each go through memory if there are any."""
    accumulator, carry = DTYPES[request.result.dtype.accumulator], DTYPES[request.carry]
    words = _chain_words(chains, units, accumulator.itemsize, carry.itemsize)
    config = Config(
        family=family,
        functor=request.op.functor,
        functor_source=request.op.source,
        value=request.value.dtype.cpp,
        result=request.result.dtype.cpp,
        accumulator=accumulator.cpp,
        carry=carry.cpp,
        value_access=accesses[0],
        result_access=accesses[1],
        mask_access=accesses[2],
        exclusive=request.exclusive,
        has_initial=request.has_initial,
        grid=chains > 0,
        levels=(units > 1) + (units > GROUP) + (units > SECTION),
        staged=staged,
        batch_dims=len(batch),
        items=items,
        constants=tuple(constants.items()),
        block=block,
        blocks_per_sm=blocks_per_sm,
        shared_bytes=shared_bytes,
    )
    geometry = _geometry(layout.axis, column, batch, units, words)
    return ScanPlan(config, grid, geometry, *layout.offsets, workspace_words=words)


def _blocks_per_sm(family: str, nbytes: int, block: int) -> int:
    return max(THREADS_PER_SM[family, nbytes] // block, 1)


def _share_strips(strips: int, slots: int) -> bool:
    """Whether blocks do better to share strips: too few for `slots` blocks, or too uneven."""
    waves = -(-strips // slots)
    return strips < (1 - IDLE) * waves * slots


def _check_tickets(tickets: int) -> None:
    if tickets > MAX_TICKETS:
        raise ScanValueError(
            f"x is too large for one call: it takes {tickets} tiles, and at most {MAX_TICKETS} are possible"
        )


def _chain_words(chains: int, units: int, accumulator: int, carry: int) -> int:
    """64-bit words of the tile states of a launch (`ChainTables` in grid_chain.cuh); arguments in bytes."""
    groups, sections = -(-units // GROUP), -(-units // SECTION)
    tables = [units * -(-accumulator // 4), *(entries * -(-carry // 4) for entries in (groups, sections, sections))]
    return sum((chains * words + 1) // 2 * 2 for words in tables)


# ---- the kernel families ---------------------------------------------------------------------------------------------


def _plan_rows(request: ScanRequest, layout: Layout, order: Order) -> ScanPlan:
    """A warp or less holds a row: rows.cuh."""
    batch = layout.others or (UNIT_DIMENSION,)
    length = layout.axis.size
    lanes = min(_power_of_two(-(-length // order.items)), LANES)
    vectors = _power_of_two(-(-length // order.vector))
    warps, rows_per_thread = 4, max(4 // vectors, 1)
    rows_per_block = warps * (WARP // lanes) * rows_per_thread
    return _plan(
        request,
        layout,
        "rows",
        batch=batch,
        accesses=accesses_of(request, layout, layout.axis, list(batch), order.items),
        items=order.items,
        constants={"Vectors": vectors, "Lanes": lanes, "RowsPerThread": rows_per_thread, "Warps": warps},
        block=warps * WARP,
        blocks_per_sm=_blocks_per_sm("rows", _wider(request), warps * WARP),
        grid=-(-_product(batch) // rows_per_block),
    )


def _plan_tiles(request: ScanRequest, layout: Layout, order: Order, target: Target) -> ScanPlan:
    """Rows of one tile or many: tiles.cuh."""
    batch = layout.others or (UNIT_DIMENSION,)
    length, rows = layout.axis.size, _product(batch)
    units = -(-length // order.unit)
    # A row of one tile needs no more warps than it fills; the order does not notice.
    warps = order.warps if units > 1 else _power_of_two(-(-length // order.warp_tile))
    block = (warps + 1) * WARP
    tile = warps * order.warp_tile
    along, others = layout.axis, list(batch)
    bulk = accesses_of(request, layout, along, others, order.items, least=BULK_BYTES)[0]
    staged = target.arch >= BULK_ARCH and length >= tile and bulk != "Element"
    shared_bytes = SHARED_REST
    if target.arch >= BULK_ARCH:
        shared_bytes += STAGES * tile * request.value.dtype.itemsize
        fitting = target.shared_bytes // (shared_bytes + SHARED_RESERVED)
        blocks_per_sm = max(min(_blocks_per_sm("tiles", _wider(request), block), fitting), 1)
    else:  # two tiles in registers
        blocks_per_sm = max(WARP * (order.warps + 1) // block, 1)
    slots = target.sm_count * blocks_per_sm
    shared = units > 1 and _share_strips(rows, slots)
    if shared:
        _check_tickets(rows * units)
    return _plan(
        request,
        layout,
        "tiles",
        batch=batch,
        accesses=accesses_of(request, layout, along, others, order.items),
        items=order.items,
        constants={"Vectors": order.vectors, "Warps": warps, "Stages": STAGES},
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=min(rows * units if shared else rows, slots),
        shared_bytes=shared_bytes,
        units=units,
        chains=rows if shared else 0,
        staged=staged,
    )


def _plan_columns(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan:
    """The scanned axis is not the contiguous one: columns.cuh."""
    across, batch = layout.others[0], layout.others[1:] or (UNIT_DIMENSION,)
    along, rows = [layout.axis, *batch], _product(batch)
    accumulator = DTYPES[request.result.dtype.accumulator].itemsize
    widest = max(_wider(request), accumulator)
    items = min(VECTOR_BYTES // widest, _power_of_two(across.size, down=True))
    accesses = accesses_of(request, layout, across, along, items)
    if "Element" in accesses[:2]:
        items = 1
        accesses = accesses_of(request, layout, across, along, items)
    units = -(-layout.axis.size // COLUMNS.unit)
    chunks = LANES if units > 1 else _power_of_two(-(-layout.axis.size // COLUMNS.items))
    threads = min(_power_of_two(-(-across.size // items)), 8 if items > 1 else 16)
    places = max(COLUMN_THREADS // (chunks * threads), 1)
    block = chunks * threads * places
    blocks_per_sm = _blocks_per_sm("columns", items * accumulator, block)
    slots = target.sm_count * blocks_per_sm
    side_by_side = -(-across.size // (threads * items))
    strips = -(-rows // places) * side_by_side
    shared = units > 1 and _share_strips(strips, slots)
    turns = rows * -(-units // places) * side_by_side if shared else strips
    if shared:
        _check_tickets(turns)
    return _plan(
        request,
        layout,
        "columns",
        batch=batch,
        column=across,
        accesses=accesses,
        items=items,
        constants={"ColumnThreads": threads, "Chunks": chunks, "Steps": COLUMNS.items, "Places": places},
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=min(turns, slots),
        shared_bytes=places * chunks * (threads * items + 1) * accumulator + SHARED_REST,
        units=units,
        chains=rows * side_by_side * threads * items if shared else 0,
    )


def _plan_narrow(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan | None:
    """A few columns without gaps, in rows that fill a tile: narrow.cuh. None for all other scans."""
    column = dense_columns(layout)
    if target.arch < BULK_ARCH or column is None or column.size > max(NARROW):
        return None
    value, result = request.value.dtype, request.result.dtype
    axis, columns = layout.axis, column.size
    warps, walkers, room = NARROW[min(limit for limit in NARROW if columns <= limit)]
    batch = tuple(d for d in layout.others if d is not column) or (UNIT_DIMENSION,)
    accumulator, carry = DTYPES[result.accumulator].itemsize, DTYPES[request.carry].itemsize
    in_place = value == result and axis.value == axis.result
    tile_bytes = COLUMNS.unit * columns * (STAGES * value.itemsize + (0 if in_place else result.itemsize))
    unit_bytes = tile_bytes + 2 * (LANES * (columns | 1) + 2 * columns) * accumulator
    room = min(room, target.shared_bytes - SHARED_RESERVED) - SHARED_REST
    fitting = min(room // unit_bytes, warps * NARROW_ELEMENTS // (COLUMNS.unit * columns), GROUP)
    if fitting == 0:
        return None
    tile_units = _power_of_two(fitting, down=True)
    units, rows = -(-axis.size // COLUMNS.unit), _product(batch)
    if axis.size < tile_units * COLUMNS.unit:
        return None
    tiles = rows * -(-units // tile_units)
    _check_tickets(tiles)
    abreast = min(columns, max(WALK_BYTES // carry, 1))
    walkers = min(-(-columns // abreast), walkers)
    block = (warps + walkers) * WARP
    shared_bytes = tile_units * unit_bytes + SHARED_REST
    blocks_per_sm = _blocks_per_sm("narrow", _wider(request), block)
    blocks_per_sm = max(min(blocks_per_sm, target.shared_bytes // (shared_bytes + SHARED_RESERVED)), 1)
    accesses = flat_accesses(request, layout, columns, list(batch), BULK_BYTES)
    return _plan(
        request,
        layout,
        "narrow",
        batch=batch,
        column=column,
        accesses=accesses,
        items=VECTOR_BYTES // result.itemsize,
        constants={
            "Columns": columns,
            "Units": tile_units,
            "Steps": COLUMNS.items,
            "Warps": warps,
            "Walkers": walkers,
            "Abreast": abreast,
            "Across": min(columns & -columns, NARROW_ACROSS[request.mask is not None], VECTOR_BYTES // _wider(request)),
            "Stages": STAGES,
            "InPlace": int(in_place),
            "ValueBack": int(axis.value < 0),
            "ResultBack": int(axis.result < 0),
        },
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=min(tiles, target.sm_count * blocks_per_sm),
        shared_bytes=shared_bytes,
        units=units,
        chains=rows * columns,
        staged=accesses[0] != "Element",
    )


def _product(dims: tuple[Dimension, ...]) -> int:
    product = 1
    for dim in dims:
        product *= dim.size
    return product


def _power_of_two(number: int, *, down: bool = False) -> int:
    """The nearest power of two that is not smaller (or, `down`, not larger)."""
    return 1 << (number.bit_length() - 1 if down else (number - 1).bit_length())
