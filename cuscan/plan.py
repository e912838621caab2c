"""From a request to a launch: kernel family, configuration, grid. Pure functions of frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cuscan.dense import lies_dense, stretches_of
from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanValueError
from cuscan.layout import Dimension, Layout, accesses_of, layout_of, shifted_access, span_of
from cuscan.narrow import flat_accesses, narrow_of
from cuscan.order import GROUP, LANES, SECTION, Order
from cuscan.request import ScanRequest
from cuscan.specs import ArraySpec
from cuscan.tuning import COLUMNS, CONTIGUOUS, IDLE, THREADS_PER_SM, TILE_BYTES, VECTOR_BYTES

WARP = 32
HEADER_BYTES = 16  # struct Workspace
STAGES = 3  # tiles that a block of the tiles and narrow families holds
SHARED_REST = 256  # bytes of shared memory for barriers, tickets and what alignment takes, at most
ROWS_SHARED = 16  # bytes of shared memory of the rows family, at least
BULK_ARCH = 90  # the first architecture with bulk copies
BULK_BYTES = 16  # their alignment
SHARED_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
COLUMN_THREADS = 256  # of a block of the columns family, or twice as many
_STILL = ("Uniform", "Number")  # accesses to what does not vary along the axis
MAX_TICKETS = 2**32 - 2**20  # of one launch: they are 32 bits, and every block takes a few too many


@dataclass(frozen=True)
class Target:
    """The GPU that a plan is made for: architecture (90 for sm_90), SMs, shared memory of an SM in bytes."""

    arch: int
    sm_count: int
    shared_bytes: int = 228 * 1024


@dataclass(frozen=True)
class Port:
    """An array as a kernel sees it: the C++ type of its elements, and how vectors of them are accessed."""

    type: str = "boolean"
    access: str = "None"
    by_value: bool = False  # a number that is an argument itself

    @property
    def present(self) -> bool:
        return self.access != "None"

    def __str__(self) -> str:
        return f"Port<{self.type}, Access::k{self.access}>"


@dataclass(frozen=True)
class Config:
    """What a kernel is compiled for; the fields of the generated `struct Config` (source.py)."""

    family: str
    op: str
    carry_op: str
    functor_source: str
    index: str
    indexed: bool
    values: tuple[Port, ...]
    results: tuple[Port, ...]
    mask: Port
    segment_port: Port
    row_initial: Port
    last: Port
    segments: str
    segments_have_initial: bool
    reverse: bool
    exclusive: bool
    includes_initial: bool
    shows_segment_starts: bool
    skips_nan: bool
    has_initial: bool
    grid: bool
    levels: int
    staged: bool
    batch_dims: int
    items: int
    state_bytes: int
    carry_bytes: int
    constants: tuple[tuple[str, int], ...]
    block: int
    blocks_per_sm: int
    shared_bytes: int

    @property
    def ports(self) -> tuple[Port, ...]:
        """The arrays of the kernel by number (`Arrays` in ports.cuh); those that are present are its arguments."""
        return (*self.values, *self.results, self.mask, self.segment_port, self.row_initial, self.last)


@dataclass(frozen=True)
class ScanPlan:
    """A launch, complete but for the addresses.

    `geometry` is the kernel's struct Geometry as words. The offsets lead, in bytes, from each array's address to scan
    position 0. `workspace_words` counts the 64-bit tile-state words.
    """

    config: Config
    grid: int
    geometry: tuple[int, ...]
    offsets: tuple[int, ...]
    workspace_words: int

    @property
    def present_offsets(self) -> tuple[int, ...]:
        """The offsets of the arrays that there are: the arguments of the kernel."""
        return tuple(o for o, port in zip(self.offsets, self.config.ports, strict=True) if port.present)

    @property
    def workspace_bytes(self) -> int:
        """Device memory that the launch needs beside the arrays."""
        return HEADER_BYTES + 8 * self.workspace_words if self.workspace_words else 0


def _itemsizes(request: ScanRequest) -> list[int]:
    return [spec.dtype.itemsize for spec in (*request.values, *request.results)]


def order_of(request: ScanRequest) -> Order:
    """The defined order of a request's scan (order.py)."""
    if not layout_of(request).contiguous:
        return COLUMNS
    order = CONTIGUOUS[max(_itemsizes(request))]
    if request.op.heavy:
        order = replace(order, vectors=max(order.vectors // 2, 1))
    element = sum(spec.dtype.itemsize for spec in request.values)
    while order.unit * element > TILE_BYTES and order.vectors > 1:
        order = replace(order, vectors=order.vectors // 2)
    while order.unit * element > TILE_BYTES:  # more than eight fields
        order = replace(order, warps=order.warps // 2)
    return order


def make_plan(request: ScanRequest, target: Target) -> ScanPlan:
    """The plan for a request with at least one element."""
    layout = layout_of(request)
    if not layout.contiguous:
        return _plan_narrow(request, layout, target) or _plan_columns(request, layout, target)
    order = order_of(request)
    if layout.axis.size <= order.warp_tile:
        if target.arch >= BULK_ARCH and lies_dense(request, layout, order):
            return _plan_dense_rows(request, layout, order, target)
        return _plan_rows(request, layout, order)
    return _plan_tiles(request, layout, order, target)


def _plan(
    request: ScanRequest,
    layout: Layout,
    family: str,
    *,
    batch: tuple[Dimension, ...],
    column: Dimension | None = None,
    accesses: tuple[str, ...],
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
    op, segments = request.op, request.segments
    number, carry = DTYPES[request.result.dtype.accumulator], DTYPES[request.carry]
    index = "int64" if layout.axis.size >= 2**32 else "uint32"
    state_bytes, carry_bytes = (_state_bytes(request, of, DTYPES[index]) for of in (number, carry))
    words = _chain_words(chains, units, state_bytes, carry_bytes)
    ports = [_port(spec, access) for spec, access in zip(layout.arrays, accesses, strict=True)]
    values, results = len(request.values), len(request.results)
    mask, segment_port, row_initial, last = ports[values + results :]
    if segments and segments.kind == "offsets":
        segment_port = Port(segments.array.dtype.cpp, "Element")
    config = Config(
        family=family,
        op=op.functor.format(T=number.cpp, Index=index),
        carry_op=op.functor.format(T=carry.cpp, Index=index),
        functor_source=op.source,
        index=index,
        indexed=op.indexed,
        values=tuple(ports[:values]),
        results=tuple(ports[values : values + results]),
        mask=mask,
        segment_port=segment_port,
        row_initial=row_initial,
        last=last,
        segments=segments.kind.capitalize() if segments else "None",
        segments_have_initial=segments is not None and op.segments_have_initial and request.has_initial,
        reverse=request.reverse and (op.indexed or (segments is not None and segments.kind == "offsets")),
        exclusive=request.exclusive or request.include_initial,
        includes_initial=request.include_initial,
        shows_segment_starts=request.exclusive and segments is not None,
        skips_nan=request.skip_nan,
        has_initial=request.has_initial,
        grid=chains > 0,
        levels=(units > 1) + (units > GROUP) + (units > SECTION),
        staged=staged,
        batch_dims=len(batch),
        items=items,
        state_bytes=state_bytes,
        carry_bytes=carry_bytes,
        constants=tuple(constants.items()),
        block=block,
        blocks_per_sm=blocks_per_sm,
        shared_bytes=shared_bytes,
    )
    dimensions = (layout.axis, column or _unit_dimension(layout), *batch)
    offsets_array = segments.array if segments and segments.kind == "offsets" else None
    geometry = (
        *(word for dim in dimensions for word in (dim.size, *dim.strides)),
        _product(batch),
        units,
        words,
        *(
            (offsets_array.shape[0], offsets_array.strides[0] * offsets_array.dtype.itemsize)
            if offsets_array
            else (0, 0)
        ),
        *(word for i in range(values) for word in span_of(layout, i, layout.axis.size - request.include_initial)),
    )
    return ScanPlan(config, grid, geometry, layout.offsets, workspace_words=words)


def _port(spec: ArraySpec | None, access: str) -> Port:
    if spec is None:
        return Port()
    return Port(spec.dtype.cpp, "Uniform" if access in _STILL else access, access == "Number")


def _unit_dimension(layout: Layout) -> Dimension:
    return Dimension(1, (0,) * len(layout.arrays))


def _batch(layout: Layout, others: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    return others or (_unit_dimension(layout),)


def _state_bytes(request: ScanRequest, number: DType, index: DType) -> int:
    """The sizeof of the operator's state over a number type, with the mark of a segment where there are any."""
    dtype = request.op.states.dtype(number.name)
    fields = [dtype.fields[name][0] for name in dtype.names] if dtype.fields and dtype.names else [dtype]
    sizes = [index.itemsize if request.op.indexed and i == 1 else field.itemsize for i, field in enumerate(fields)]
    return _struct_bytes([_struct_bytes(sizes), 4], max(*sizes, 4)) if request.segments else _struct_bytes(sizes)


def _struct_bytes(sizes: list[int], align: int = 0) -> int:
    """The sizeof of a struct of members that are aligned to their sizes, or to `align` in all."""
    end, align = 0, align or max(sizes)
    for size in sizes:
        step = min(size, align)
        end = -(-end // step) * step + size
    return -(-end // align) * align


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
    batch = _batch(layout, layout.others)
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
        accesses=accesses_of(layout, layout.axis, batch, order.items),
        items=order.items,
        constants={"Vectors": vectors, "Lanes": lanes, "RowsPerThread": rows_per_thread, "Warps": warps},
        block=warps * WARP,
        blocks_per_sm=_blocks_per_sm("rows", max(_itemsizes(request)), warps * WARP),
        grid=-(-_product(batch) // rows_per_block),
        shared_bytes=_boundary_bytes(request, order.items * vectors, warps) or ROWS_SHARED,
    )


def _plan_dense_rows(request: ScanRequest, layout: Layout, order: Order, target: Target) -> ScanPlan:
    """Rows that are dense and not aligned: thread_rows.cuh, warp_rows.cuh."""
    batch = _batch(layout, layout.others)
    stretches = stretches_of(request, layout, order, target.sm_count)
    block = stretches.warps * WARP
    fitting = target.shared_bytes // (stretches.shared_bytes + SHARED_RESERVED)
    direction = "Mirrored" if layout.axis.strides[0] < 0 else "Vector"
    return _plan(
        request,
        layout,
        stretches.family,
        batch=batch,
        accesses=(direction, direction, direction if request.mask else "None", "None", "None", "None"),
        items=order.items,
        constants=stretches.constants,
        block=block,
        blocks_per_sm=max(min(_blocks_per_sm(stretches.family, max(_itemsizes(request)), block), fitting), 1),
        grid=-(-_product(batch) // stretches.rows),
        shared_bytes=stretches.shared_bytes,
    )


def _plan_tiles(request: ScanRequest, layout: Layout, order: Order, target: Target) -> ScanPlan:
    """Rows of one tile or many: tiles.cuh."""
    batch = _batch(layout, layout.others)
    length, rows = layout.axis.size, _product(batch)
    units = -(-length // order.unit)
    # A row of one tile needs no more warps than it fills; the order does not notice.
    warps = order.warps if units > 1 else _power_of_two(-(-length // order.warp_tile))
    block = (warps + 1) * WARP
    tile = warps * order.warp_tile
    values, result = len(request.values), request.result.dtype
    accesses, aligned = _tile_accesses(request, layout, batch, order, target)
    held = [v.dtype.itemsize for v, access in zip(request.values, accesses, strict=False) if access not in _STILL]
    shifted = any(access.startswith("Shifted") for access in accesses[:values])
    staged = target.arch >= BULK_ARCH and bool(held) and (shifted or (aligned and length >= tile))
    # A value that is not held in a stage still has a place there (stage.cuh).
    state, carry = (_state_bytes(request, DTYPES[of], DTYPES["int64"]) for of in (result.accumulator, request.carry))
    shared_bytes = (
        SHARED_REST + 2 * (warps * state + carry) + _boundary_bytes(request, order.items * order.vectors, warps)
    )
    if target.arch >= BULK_ARCH:
        shared_bytes += STAGES * (tile * sum(held) + VECTOR_BYTES * (values - len(held)))
        shared_bytes += STAGES * BULK_BYTES * len(held) * shifted
        fitting = target.shared_bytes // (shared_bytes + SHARED_RESERVED)
        blocks_per_sm = max(min(_blocks_per_sm("tiles", max(_itemsizes(request)), block), fitting), 1)
    else:  # two tiles in registers
        shared_bytes += STAGES * VECTOR_BYTES * values
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
        accesses=accesses,
        items=order.items,
        constants={
            "Vectors": order.vectors,
            "Warps": warps,
            "Stages": STAGES,
            "ClearsBeyond": int(shifted and bool(request.op.source)),
        },
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=min(rows * units if shared else rows, slots),
        shared_bytes=shared_bytes,
        units=units,
        chains=rows if shared else 0,
        staged=staged,
    )


def _tile_accesses(
    request: ScanRequest, layout: Layout, batch: tuple[Dimension, ...], order: Order, target: Target
) -> tuple[tuple[str, ...], bool]:
    """The accesses of the tiles family, and whether no value keeps bulk copies from being aligned.

    If one does, and all that vary are dense, all of these are read shifted.
    """
    accesses = list(accesses_of(layout, layout.axis, batch, order.items))
    values = range(len(request.values))
    bulk = accesses_of(layout, layout.axis, batch, order.items, least=BULK_BYTES)[: len(values)]
    if target.arch >= BULK_ARCH:
        shifted = [shifted_access(*array) for array in zip(layout.arrays, layout.axis.strides, strict=True)]
        for i in range(len(values), len(values) + len(request.results)):
            accesses[i] = shifted[i] if accesses[i] == "Element" else accesses[i]
        held = [i for i in values if bulk[i] not in _STILL]
        if "Element" in bulk and all(shifted[i] != "Element" for i in held):
            for i in held:
                accesses[i] = shifted[i]
    return tuple(accesses), "Element" not in bulk


def _plan_columns(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan:
    """The scanned axis is not the contiguous one: columns.cuh."""
    across, batch = layout.others[0], _batch(layout, layout.others[1:])
    along, rows = [layout.axis, *batch], _product(batch)
    state = _state_bytes(request, DTYPES[request.result.dtype.accumulator], DTYPES["int64"])
    widest = max(*_itemsizes(request), state)
    items = max(min(VECTOR_BYTES // widest, _power_of_two(across.size, down=True)), 1)
    accesses = accesses_of(layout, across, along, items)
    if "Element" in accesses[: len(request.values) + len(request.results)]:
        items = 1
        accesses = accesses_of(layout, across, along, items)
    units = -(-layout.axis.size // COLUMNS.unit)
    chunks = LANES if units > 1 else _power_of_two(-(-layout.axis.size // COLUMNS.items))
    threads = min(_power_of_two(-(-across.size // items)), 16 if items == 1 and state <= VECTOR_BYTES else 8)
    places = max(COLUMN_THREADS // (chunks * threads), 1)
    block = chunks * threads * places
    blocks_per_sm = _blocks_per_sm("columns", min(max(items * _power_of_two(state), 4), 2 * VECTOR_BYTES), block)
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
        shared_bytes=places * chunks * ((threads * items + 1) * state + 4) + SHARED_REST,
        units=units,
        chains=rows * side_by_side * threads * items if shared else 0,
    )


def _plan_narrow(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan | None:
    """A few columns without gaps, in rows that fill a tile: narrow.cuh. None for all other scans."""
    room = target.shared_bytes - SHARED_RESERVED - SHARED_REST
    narrow = narrow_of(request, layout, room, STAGES) if target.arch >= BULK_ARCH else None
    if narrow is None:
        return None
    batch = _batch(layout, narrow.batch)
    units, rows = -(-layout.axis.size // COLUMNS.unit), _product(batch)
    tiles = rows * -(-units // narrow.units)
    _check_tickets(tiles)
    block = (narrow.warps + narrow.walkers) * WARP
    shared_bytes = narrow.shared_bytes + SHARED_REST
    blocks_per_sm = _blocks_per_sm("narrow", max(_itemsizes(request)), block)
    blocks_per_sm = max(min(blocks_per_sm, target.shared_bytes // (shared_bytes + SHARED_RESERVED)), 1)
    accesses = flat_accesses(layout, narrow.column, batch, BULK_BYTES)
    return _plan(
        request,
        layout,
        "narrow",
        batch=batch,
        column=narrow.column,
        accesses=accesses,
        items=VECTOR_BYTES // request.result.dtype.itemsize,
        constants={**narrow.constants, "Stages": STAGES},
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=min(tiles, target.sm_count * blocks_per_sm),
        shared_bytes=shared_bytes,
        units=units,
        chains=rows * narrow.column.size,
        staged=accesses[0] != "Element",
    )


def _boundary_bytes(request: ScanRequest, elements: int, warps: int) -> int:
    """Shared memory for where segments start, a bit for each of a thread's `elements`, if offsets give it."""
    if not request.segments or request.segments.kind != "offsets":
        return 0
    return warps * WARP * -(-elements // 32) * 4


def _product(dims: tuple[Dimension, ...]) -> int:
    product = 1
    for dim in dims:
        product *= dim.size
    return product


def _power_of_two(number: int, *, down: bool = False) -> int:
    """The nearest power of two that is not smaller (or, `down`, not larger)."""
    return 1 << (number.bit_length() - 1 if down else (number - 1).bit_length())
