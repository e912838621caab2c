"""From a request to a launch: kernel family, configuration, grid. Pure functions of frozen values."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from cuscan.assemble import STILL, assemble, batch_of, power_of_two, product, round_up, state_bytes
from cuscan.config import ScanPlan, Target
from cuscan.dense import is_plain, lies_dense, stretches_of
from cuscan.dtypes import EXACT
from cuscan.errors import ScanValueError
from cuscan.kept import MOST, Table, keep
from cuscan.layout import Dimension, Layout, accesses_of, layout_of, shifted_access
from cuscan.order import GROUP, LANES, SECTION, Order
from cuscan.panels import panels_of
from cuscan.request import CallKind, ScanRequest
from cuscan.scan_order import order_along, runs_along
from cuscan.strips import Strips, dense_columns, strips_of
from cuscan.tuning import (
    COLUMNS,
    MASKED_THREADS,
    THREADS_PER_SM,
    TURN_UNITS,
    VECTOR_BYTES,
)
from cuscan.whole_rows import WholeRows, whole_rows_of

WARP = 32
TILES_WARPS = 24  # of a block of the tiles family, in groups
BATCHES = 64  # rows of a tile for each SM, from which on tickets are for several
GROUPS = 15  # at most: each has a barrier of its own
MANY_GROUPS = 8  # from which on two loaders send for rows that begin anywhere (0.93 of copy speed, one 0.64)
GROUPS_BYTES = 104 * 1024  # of tiles that the groups of such a block work on, at most
AHEAD_BYTES = 128 * 1024  # of tiles that it has sent for beside them, if there is room
AHEAD_STATE_BYTES = 8  # of states, at most, where tickets are taken ahead: wider ones are waited for more than loads
FLAG_STAGES = 2  # tiles whose flags it holds
SHARED_REST = 256  # bytes of shared memory for barriers, tickets and what alignment takes, at most
BULK_ARCH = 90  # the first architecture with bulk copies, and with clusters
BULK_BYTES = 16  # the alignment of bulk copies
SHIFT_BYTES = (32, 16)  # of a shifted tile, beside its elements; of 8 bytes and more (kShiftedFrom)
WORD = 4  # bytes
GPCS = 8  # a GPU has at most: all blocks of a cluster are on SMs of one
CLUSTER = 8  # blocks that any such GPU runs together
CLUSTER_UNITS = 26  # of a row, beyond which tiles are faster
SENDING_ARCHS = range(90, 100)  # where a walker that sends ahead, or looks at much together, spills no registers
LARGE_CLUSTERS = range(90, 110)  # the architectures that run twice as many
SHARED_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
LOOKS = 8  # of a lane that seeks, which travel together at most, on these architectures; on others half as many
MAX_TICKETS = 2**32 - 2**20  # of one launch: they are 32 bits, and every block takes a few too many


def make_plan(request: ScanRequest, target: Target) -> ScanPlan:
    """The plan for a request with at least one element."""
    layout = layout_of(request)
    if not runs_along(request, layout):
        return _plan_across(request, layout, target)
    order = order_along(request.kind)
    accesses = accesses_of(layout, layout.axis, layout.others, order.items)
    if layout.axis.size <= order.warp_tile:
        if target.arch >= BULK_ARCH and "Element" in accesses and lies_dense(request, layout, order):
            return _plan_dense_rows(request, layout, order, target)
        return _plan_rows(request, layout, order, _in_pieces(request, layout, accesses, order.items))
    clusters = _plan_cluster(request, layout, order, accesses, target)
    return clusters or _plan_tiles(request, layout, order, accesses, target)


def _in_pieces(request: ScanRequest, layout: Layout, accesses: tuple[str, ...], items: int) -> tuple[str, ...]:
    """The same, but dense arrays that are not aligned are shifted: results, and elements smaller than words."""
    values, results = len(request.values), len(request.results)
    flags = [i for i in _flags(request.kind) if request.segments is None or request.segments.kind != "offsets"]
    found = list(accesses)
    for i in (*range(values + results), *flags):
        spec = layout.arrays[i]
        if not spec or accesses[i] != "Element" or items == 1 or items * spec.dtype.itemsize < WORD:
            continue
        if values <= i < values + results or spec.dtype.itemsize < WORD:
            found[i] = shifted_access(spec, layout.axis.strides[i])
    return tuple(found)


def _blocks_per_sm(family: str, nbytes: int, block: int) -> int:
    return max(THREADS_PER_SM[family, nbytes] // block, 1)


def _check_tickets(tickets: int) -> None:
    if tickets > MAX_TICKETS:
        raise ScanValueError(
            f"x is too large for one call: it takes {tickets} tiles, and at most {MAX_TICKETS} are possible"
        )


# ---- the kernel families ---------------------------------------------------------------------------------------------


def _plan_rows(request: ScanRequest, layout: Layout, order: Order, accesses: tuple[str, ...]) -> ScanPlan:
    """A warp or less holds a row: rows.cuh."""
    batch = batch_of(layout, layout.others)
    length = layout.axis.size
    lanes = min(power_of_two(-(-length // order.items)), LANES)
    vectors = min(power_of_two(-(-length // order.vector)), order.vectors)
    warps, rows_per_thread = 4, max(4 // vectors, 1)
    rows_per_block = warps * (WARP // lanes) * rows_per_thread
    return assemble(
        request,
        layout,
        "rows",
        batch=batch,
        accesses=accesses,
        items=order.items,
        constants={"Vectors": vectors, "Lanes": lanes, "RowsPerThread": rows_per_thread, "Warps": warps},
        block=warps * WARP,
        blocks_per_sm=_blocks_per_sm("rows", max(request.kind.sizes), warps * WARP),
        grid=-(-product(batch) // rows_per_block),
    )


def _plan_dense_rows(request: ScanRequest, layout: Layout, order: Order, target: Target) -> ScanPlan:
    """Rows that are dense and not aligned: thread_rows.cuh, warp_rows.cuh."""
    batch = batch_of(layout, layout.others)
    stretches = stretches_of(request, layout, order, target.sm_count)
    block = stretches.warps * WARP
    fitting = target.shared_bytes // (stretches.shared_bytes + SHARED_RESERVED)
    direction = "Mirrored" if layout.axis.strides[0] < 0 else "Vector"
    return assemble(
        request,
        layout,
        stretches.family,
        batch=batch,
        accesses=(direction, direction, direction if request.mask else "None", "None", "None", "None"),
        items=order.items,
        constants=stretches.constants,
        block=block,
        blocks_per_sm=max(min(_blocks_per_sm(stretches.family, max(request.kind.sizes), block), fitting), 1),
        grid=-(-product(batch) // stretches.rows),
        shared_bytes=stretches.shared_bytes,
    )


class _Clusters(NamedTuple):
    """How clusters take rows: blocks of one, units and warps of a block, and blocks of an SM."""

    cluster: int
    units: int
    warps: int
    blocks_per_sm: int


def _plan_cluster(
    request: ScanRequest, layout: Layout, order: Order, accesses: tuple[str, ...], target: Target
) -> ScanPlan | None:
    """Rows of some units, each worked on by a cluster at once: cluster.cuh. None for all other scans."""
    if target.arch < BULK_ARCH:
        return None
    batch, length = batch_of(layout, layout.others), layout.axis.size
    rows, row_units = product(batch), -(-length // order.unit)
    # A row of one unit needs no more warps than it fills; the order does not notice.
    warps = order.warps if row_units > 1 else power_of_two(-(-length // order.warp_tile))
    clusters, threads = None, THREADS_PER_SM["cluster", max(request.kind.sizes)]
    if row_units <= CLUSTER_UNITS:
        clusters = _side_by_side(target, row_units, warps, threads)
    if clusters is None or rows * clusters.cluster > target.sm_count * clusters.blocks_per_sm:
        clusters = _in_turn(request, layout, order, accesses, target)
    if clusters is None:
        return None
    state, _ = state_bytes(request.kind)
    return assemble(
        request,
        layout,
        "cluster",
        batch=batch,
        accesses=_in_pieces(request, layout, accesses, order.items),
        items=order.items,
        constants={"Vectors": order.vectors, "Warps": clusters.warps, "Units": clusters.units},
        block=clusters.units * clusters.warps * WARP,
        blocks_per_sm=clusters.blocks_per_sm,
        grid=rows * clusters.cluster,
        shared_bytes=clusters.units * (clusters.warps + clusters.cluster) * round_up(state, 4) + SHARED_REST,
        units=row_units,
        cluster=clusters.cluster,
    )


@functools.lru_cache(MOST)
def _side_by_side(target: Target, row_units: int, warps: int, threads: int) -> _Clusters | None:
    """For rows so few and short that there is room for all at once, if an SM has so many threads."""
    largest = min(CLUSTER * (1 + (target.arch in LARGE_CLUSTERS)), target.cluster)
    for units in (1, 2):  # of a block: as few as possible, so that many SMs take part
        blocks_per_sm = max(threads // (units * warps * WARP), 1)
        cluster = power_of_two(-(-row_units // units))
        if cluster <= min(largest, -(-target.sm_count // GPCS) * blocks_per_sm):
            return _Clusters(cluster, units, warps, blocks_per_sm)
    return None


def _in_turn(
    request: ScanRequest, layout: Layout, order: Order, accesses: tuple[str, ...], target: Target
) -> _Clusters | None:
    """For many rows of a few units, aligned: a plain scan of them, where clusters are faster than tiles."""
    dtype, row_units = request.result.dtype, -(-layout.axis.size // order.unit)
    quick = dtype.kind in EXACT or dtype.name == "float32"
    if not 2 <= row_units <= min(TURN_UNITS[quick], target.cluster) or "Element" in accesses:
        return None
    if not (is_plain(request, carries=True) and request.op.exact and request.values[0].dtype == dtype):
        return None
    threads = THREADS_PER_SM["cluster", dtype.itemsize]
    if request.mask:
        if dtype.itemsize != 4:
            return None
        threads = MASKED_THREADS
    return _Clusters(row_units, 1, order.warps, threads // (order.warps * WARP))


class _Blocks(NamedTuple):
    """What a block of the tiles family is."""

    constants: dict[str, int]
    block: int
    shared_bytes: int
    sent: tuple[int, ...]  # the arrays that tiles are sent for


_blocks: Table[Any, _Blocks] = Table()  # by all that they depend on


def _plan_tiles(
    request: ScanRequest, layout: Layout, order: Order, accesses: tuple[str, ...], target: Target
) -> ScanPlan:
    """Rows of one tile or many: tiles.cuh."""
    batch = batch_of(layout, layout.others)
    length, rows = layout.axis.size, product(batch)
    units = -(-length // order.unit)
    # A row of one tile needs no more warps than it fills; the order does not notice.
    warps = order.warps if units > 1 else -(-length // order.warp_tile)
    accesses, sent = _tile_accesses(request, layout, batch, order, accesses, target)
    many, sends_ahead = rows > BATCHES * target.sm_count, units > GROUP and _sends_ahead(request, target)
    key = request.kind, target, order, accesses, sent, warps, units > 1, many, sends_ahead
    blocks = _blocks.get(key) or keep(_blocks, key, _make_blocks(layout, *key))
    _check_tickets(rows * units)
    return assemble(
        request,
        layout,
        "tiles",
        batch=batch,
        accesses=accesses,
        items=order.items,
        constants=blocks.constants,
        block=blocks.block,
        blocks_per_sm=1,
        grid=min(rows * units, target.sm_count),
        shared_bytes=blocks.shared_bytes,
        units=units,
        levels=(units > 1) + (units > GROUP) + (units > SECTION),
        tickets=True,
        aggregates=rows * units if units > 1 else 0,
        sent=blocks.sent,
    )


def _make_blocks(
    layout: Layout,
    kind: CallKind,
    target: Target,
    order: Order,
    accesses: tuple[str, ...],
    sent: tuple[int, ...],
    warps: int,
    chained: bool,
    many: bool,
    sends_ahead: bool,
) -> _Blocks:
    """How many tiles a block works on, and how many are on their way."""
    tile, values = warps * order.warp_tile, len(kind.values)
    value_bytes = sum(_stage_bytes(layout, i, tile, accesses) for i in sent if i < values) or BULK_BYTES
    groups = max(min(TILES_WARPS // warps, GROUPS, GROUPS_BYTES // value_bytes), 1)
    state, carry = state_bytes(kind)
    # Beside values and flags: barriers and slots of a tile on its way, and what a group keeps.
    tile_bytes = 48 + round_up(carry + 1, 16) + state
    shared_bytes = SHARED_REST + groups * (2 * round_up(warps * state, 16) + tile_bytes)
    room = target.shared_bytes - SHARED_RESERVED - shared_bytes
    flag_bytes = FLAG_STAGES * sum(_stage_bytes(layout, i, tile, accesses) for i in sent if i >= values)
    # Flags are sent for only where they leave room for a tile of each group.
    if room - flag_bytes < groups * (value_bytes + tile_bytes):
        sent, flag_bytes = tuple([i for i in sent if i < values]), 0
    flag_stages = FLAG_STAGES if flag_bytes else 1
    flag_bytes = flag_bytes or BULK_BYTES
    # Beside the tiles that the groups work on, those on their way.
    stages = (room - flag_bytes) // (value_bytes + tile_bytes)
    stages = min(stages, groups + -(-AHEAD_BYTES // value_bytes), 4 * groups)
    # Rows that begin anywhere take a loader longer: each of its tickets is for two at least. Where they are so short
    # that many groups wait for them, there are two loaders, each with every second tile, group and stage.
    shifted = not chained and any(accesses[i].startswith("Shifted") for i in sent)
    loaders = 2 if shifted and groups >= MANY_GROUPS and groups % 2 == 0 and stages > 1 else 1
    stages -= stages % loaders
    shared_bytes += flag_bytes + stages * (value_bytes + tile_bytes)
    ahead = chained and set(range(values)) <= set(sent) and stages >= 2 * groups
    by_bits = kind.segments == "offsets"  # which are not sent for
    all_sent = not by_bits and {i for i in _flags(kind) if layout.arrays[i]} <= set(sent)
    constants = {
        "Vectors": order.vectors,
        "Warps": warps,
        "Groups": groups,
        "Loaders": loaders,
        "Stages": stages,
        "FlagStages": flag_stages,
        "ScansAhead": int(ahead and not kind.only_carry),  # of totals, no tile waits but a row's last
        "TakesAhead": int(ahead and all_sent and state <= AHEAD_STATE_BYTES),
        "SendsAhead": int(sends_ahead),
        "Batch": max(order.warps // warps, 1 + shifted) if many else 1,
        "ClearsBeyond": int(bool(sent) and bool(kind.op.source)),
    }
    return _Blocks(constants, (groups * warps + loaders + chained) * WARP, shared_bytes, sent)


def _stage_bytes(layout: Layout, array: int, elements: int, accesses: tuple[str, ...]) -> int:
    """What an array takes of a stage (stage.cuh)."""
    spec = layout.arrays[array]
    assert spec is not None
    itemsize = spec.dtype.itemsize
    return elements * itemsize + accesses[array].startswith("Shifted") * SHIFT_BYTES[itemsize >= 8]


def _tile_accesses(
    request: ScanRequest,
    layout: Layout,
    batch: tuple[Dimension, ...],
    order: Order,
    aligned: tuple[str, ...],
    target: Target,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The accesses of the tiles family, and the numbers of the arrays that tiles are sent for.

    Where a value keeps bulk copies from being aligned, and all that vary are dense, all of these are shifted.
    `aligned`: the accesses to arrays that need be aligned to their vectors alone.
    """
    if target.arch < BULK_ARCH:
        return _in_pieces(request, layout, aligned, order.items), ()
    accesses = list(aligned)
    if min([spec.dtype.itemsize for spec in layout.arrays if spec]) * order.items < BULK_BYTES:
        aligned = accesses_of(layout, layout.axis, batch, order.items, least=BULK_BYTES)
    shifted = list(map(shifted_access, layout.arrays, layout.axis.strides))
    values = len(request.values)
    sent = [i for i in range(values) if aligned[i] not in STILL]
    if any(aligned[i] == "Element" for i in sent):
        if any(shifted[i] == "Element" for i in sent):
            sent = []
        for i in sent:
            accesses[i] = shifted[i]
    sent += [i for i in _flags(request.kind) if aligned[i] in ("Vector", "Mirrored")]
    return _in_pieces(request, layout, tuple(accesses), order.items), tuple(sent)


def _flags(kind: CallKind) -> range:
    """The numbers of the arrays that say which elements count, and where segments start."""
    first = len(kind.values) + len(kind.results)
    return range(first, first + 2)


def _plan_across(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan:
    """A scan along another axis than the contiguous one: whichever family is the fastest that can."""
    if layout.contiguous:
        return _plan_panels(request, layout, target)
    if target.arch < BULK_ARCH:
        return _plan_panels(request, layout, target)
    room, dense = target.shared_bytes - SHARED_RESERVED, dense_columns(layout, request.kind.sizes)
    whole = whole_rows_of(request, layout, dense, room, target.sm_count) if dense else None
    if whole and whole.parts > MAX_TICKETS:
        whole = None
    if whole and whole.quick:
        return _plan_whole_rows(request, layout, target, whole)
    looks = LOOKS if target.arch in SENDING_ARCHS else LOOKS // 2
    strips = strips_of(request, layout, dense, room, target.sm_count, looks)
    if strips:
        return _plan_strips(request, layout, target, strips)
    if whole:
        return _plan_whole_rows(request, layout, target, whole)
    return _plan_panels(request, layout, target)


def _plan_panels(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan:
    """Columns of any kind: panels.cuh."""
    panels = panels_of(request, layout, target)
    batch, column, constants, beside, block, blocks_per_sm, shared_bytes, number, chunks, words = panels
    shared = words > 0
    turns = number * chunks if shared else number
    if shared:
        _check_tickets(turns)
    accesses = ["None" if spec is None else "Number" if spec.is_number else "Element" for spec in layout.arrays]
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


def _plan_whole_rows(request: ScanRequest, layout: Layout, target: Target, whole: WholeRows) -> ScanPlan:
    """Narrow rows without gaps, wherever they begin: whole_rows.cuh."""
    return assemble(
        request,
        layout,
        "whole_rows",
        batch=whole.batch,
        column=whole.column,
        accesses=accesses_of(layout, whole.column, [layout.axis, *whole.batch], 1),
        items=1,
        constants=whole.constants,
        block=whole.block,
        blocks_per_sm=1,
        grid=min(whole.parts, target.sm_count),
        shared_bytes=whole.shared_bytes,
        units=-(-layout.axis.size // COLUMNS.unit),
        tickets=True,
        words=whole.words,
    )


def _plan_strips(request: ScanRequest, layout: Layout, target: Target, strips: Strips) -> ScanPlan:
    """Columns that move 16 bytes at a time: strips.cuh."""
    if not strips.own:
        _check_tickets(strips.number * strips.batches)
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
        chains=0 if strips.own else strips.number * strips.columns,
        strips=0 if strips.own else strips.number,
        batches=0 if strips.own else strips.batches,
    )


def _sends_ahead(request: ScanRequest, target: Target) -> bool:
    """Whether walkers have registers to send ahead, and add up so fast that what they sent for is not old by then."""
    if target.arch not in SENDING_ARCHS:
        return False
    by_flags = request.segments is not None and request.segments.kind != "offsets"
    return request.op.exact and not (by_flags or request.exclusive or request.include_initial)
