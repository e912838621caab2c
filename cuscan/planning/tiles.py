"""Rows of one tile or many (tiles.cuh)."""

from __future__ import annotations

from typing import Any, NamedTuple

from cuscan.kept import Table, keep
from cuscan.order import GROUP, SECTION, Order
from cuscan.planning.accesses import SHIFTED, STILL, accesses_of, flags, in_pieces, shifted_access
from cuscan.planning.assemble import assemble, batch_of, check_tickets, product, round_up, state_bytes
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import BULK_ARCH, BULK_BYTES, PREFETCHING_ARCHS, SHARED_RESERVED, WARP
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout

TILES_WARPS = 24  # of a block of the tiles family, in groups
BATCHES = 64  # rows of a tile for each SM, from which on tickets are for several
GROUPS = 15  # at most: each has a barrier of its own
MANY_GROUPS = 8  # from which on two producers load rows that begin anywhere (0.93 of copy speed, one 0.64)
GROUPS_BYTES = 104 * 1024  # of tiles that the groups of such a block work on, at most
AHEAD_BYTES = 128 * 1024  # of tiles that it has staged beside them, if there is room
AHEAD_STATE_BYTES = 8  # of states, at most, where tickets are taken ahead: wider ones are waited for more than loads
FLAG_STAGES = 2  # tiles whose flags it holds
SHARED_REST = 256  # bytes of shared memory for barriers, tickets and what alignment takes, at most
SHIFT_BYTES = (32, 16)  # of a shifted tile, beside its elements; of 8 bytes and more (kShiftedFrom)


class _Blocks(NamedTuple):
    """What a block of the tiles family is."""

    constants: dict[str, int]
    block: int
    shared_bytes: int
    staged: tuple[int, ...]  # the arrays of which tiles are staged


_blocks: Table[Any, _Blocks] = Table()  # by all that they depend on


def plan_tiles(
    request: ScanRequest, layout: Layout, order: Order, accesses: tuple[Access, ...], target: Target
) -> ScanPlan:
    """The plan of rows of any length."""
    batch = batch_of(layout, layout.others)
    length, rows = layout.axis.size, product(batch)
    units = -(-length // order.unit)
    # A row of one tile needs no more warps than it fills; the order does not notice.
    warps = order.warps if units > 1 else -(-length // order.warp_tile)
    accesses, staged = _tile_accesses(request, layout, batch, order, accesses, target)
    many, prefetches = rows > BATCHES * target.sm_count, units > GROUP and _prefetches(request, target)
    key = request.kind, target, order, accesses, staged, warps, units > 1, many, prefetches
    blocks = _blocks.get(key) or keep(_blocks, key, _make_blocks(layout, *key))
    check_tickets(rows * units)
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
        staged=blocks.staged,
    )


def _make_blocks(
    layout: Layout,
    kind: CallKind,
    target: Target,
    order: Order,
    accesses: tuple[Access, ...],
    staged: tuple[int, ...],
    warps: int,
    chained: bool,
    many: bool,
    prefetches: bool,
) -> _Blocks:
    """How many tiles a block works on, and how many are on their way."""
    tile, values = warps * order.warp_tile, len(kind.values)
    value_bytes = sum(_stage_bytes(layout, i, tile, accesses) for i in staged if i < values) or BULK_BYTES
    groups = max(min(TILES_WARPS // warps, GROUPS, GROUPS_BYTES // value_bytes), 1)
    state, carry = state_bytes(kind)
    # Beside values and flags: barriers and slots of a tile on its way, and what a group keeps.
    tile_bytes = 48 + round_up(carry + 1, 16) + state
    shared_bytes = SHARED_REST + groups * (2 * round_up(warps * state, 16) + tile_bytes)
    room = target.shared_bytes - SHARED_RESERVED - shared_bytes
    flag_bytes = FLAG_STAGES * sum(_stage_bytes(layout, i, tile, accesses) for i in staged if i >= values)
    # Flags are staged only where they leave room for a tile of each group.
    if room - flag_bytes < groups * (value_bytes + tile_bytes):
        staged, flag_bytes = tuple([i for i in staged if i < values]), 0
    flag_stages = FLAG_STAGES if flag_bytes else 1
    flag_bytes = flag_bytes or BULK_BYTES
    # Beside the tiles that the groups work on, those on their way.
    stages = (room - flag_bytes) // (value_bytes + tile_bytes)
    stages = min(stages, groups + -(-AHEAD_BYTES // value_bytes), 4 * groups)
    # Rows that begin anywhere take a producer longer: each of its tickets is for two at least. Where they are so short
    # that many groups wait for them, there are two producers, each with every second tile, group and stage.
    shifted = not chained and any(accesses[i] in SHIFTED for i in staged)
    producers = 2 if shifted and groups >= MANY_GROUPS and groups % 2 == 0 and stages > 1 else 1
    stages -= stages % producers
    shared_bytes += flag_bytes + stages * (value_bytes + tile_bytes)
    ahead = chained and set(range(values)) <= set(staged) and stages >= 2 * groups
    by_bits = kind.segments == "offsets"  # which are not staged
    all_staged = not by_bits and {i for i in flags(kind) if layout.arrays[i]} <= set(staged)
    constants = {
        "Vectors": order.vectors,
        "Warps": warps,
        "Groups": groups,
        "Producers": producers,
        "Stages": stages,
        "FlagStages": flag_stages,
        "ScansAhead": int(ahead and not kind.only_carry),  # of totals, no tile waits but a row's last
        "TakesAhead": int(ahead and all_staged and state <= AHEAD_STATE_BYTES),
        "Prefetches": int(prefetches),
        "Batch": max(order.warps // warps, 1 + shifted) if many else 1,
        "ClearsBeyond": int(bool(staged) and bool(kind.op.source)),
    }
    return _Blocks(constants, (groups * warps + producers + chained) * WARP, shared_bytes, staged)


def _stage_bytes(layout: Layout, array: int, elements: int, accesses: tuple[Access, ...]) -> int:
    """What an array takes of a stage (stage.cuh)."""
    spec = layout.arrays[array]
    assert spec is not None
    itemsize = spec.dtype.itemsize
    return elements * itemsize + (accesses[array] in SHIFTED) * SHIFT_BYTES[itemsize >= 8]


def _tile_accesses(
    request: ScanRequest,
    layout: Layout,
    batch: tuple[Dimension, ...],
    order: Order,
    aligned: tuple[Access, ...],
    target: Target,
) -> tuple[tuple[Access, ...], tuple[int, ...]]:
    """The accesses of the tiles family, and the numbers of the arrays of which tiles are staged.

    Where a value keeps bulk copies from being aligned, and all that vary are dense, all of these are shifted.
    `aligned`: the accesses to arrays that need be aligned to their vectors alone.
    """
    if target.arch < BULK_ARCH:
        return in_pieces(request, layout, aligned, order.items), ()
    accesses = list(aligned)
    if min([spec.dtype.itemsize for spec in layout.arrays if spec]) * order.items < BULK_BYTES:
        aligned = accesses_of(layout, layout.axis, batch, order.items, least=BULK_BYTES)
    shifted = list(map(shifted_access, layout.arrays, layout.axis.strides))
    values = len(request.values)
    staged = [i for i in range(values) if aligned[i] not in STILL]
    if any(aligned[i] == Access.STRIDED for i in staged):
        if any(shifted[i] == Access.STRIDED for i in staged):
            staged = []
        for i in staged:
            accesses[i] = shifted[i]
    staged += [i for i in flags(request.kind) if aligned[i] in (Access.VECTOR, Access.REVERSED)]
    return in_pieces(request, layout, tuple(accesses), order.items), tuple(staged)


def _prefetches(request: ScanRequest, target: Target) -> bool:
    """Whether look-back warps have registers to prefetch totals, and fold them before those are out of date."""
    if target.arch not in PREFETCHING_ARCHS:
        return False
    by_flags = request.segments is not None and request.segments.kind != "offsets"
    return request.op.exact and not (by_flags or request.exclusive or request.include_initial)
