"""Plans of the tiles family: rows of one tile or many, with decoupled look-back between tiles (tiles.cuh)."""

from __future__ import annotations

from typing import Any, NamedTuple

from cuscan.dtypes import Kind
from cuscan.kept import Table, keep
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.order import GROUP, SECTION, Order
from cuscan.planning.accesses import SHIFTED, STILL, accesses_of, flags, in_pieces, shifted_access
from cuscan.planning.assemble import assemble, batch_of, check_tickets, product, round_up, state_bytes
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import BULK_ARCH, BULK_BYTES, PREFETCHING_ARCHS, SHARED_RESERVED, WARP
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout

TILES_WARPS = 24  # worker warps per block, at most, in all groups together
WIDE_WARPS = 16  # the same for wide states, which would spill if threads had fewer registers
BATCHES = 64  # single-tile rows per SM, beyond which a ticket covers several
GROUPS = 15  # groups per block, at most: each has a named barrier of its own
MANY_GROUPS = 8  # groups from which on two producers load unaligned rows (0.93 of copy speed; one: 0.64)
GROUPS_BYTES = 104 * 1024  # bytes of tiles that a block's groups work on, at most
AHEAD_BYTES = 128 * 1024  # bytes of tiles that a block prefetches beyond those, if there is room
WIDE_STATE = 8  # bytes of a state, beyond which it is wide: its work delays tiles more than loads do
FLAG_STAGES = 2  # tiles whose flags a block holds
LONG_LEVELS = 3  # levels of a look-back through more than a section of tiles
SHARED_REST = 256  # bytes of shared memory for barriers, tickets and alignment, at most
SHIFT_BYTES = 32  # bytes of a shifted tile beyond its elements (kShiftedFrom)


class _Blocks(NamedTuple):
    """A block of the tiles family."""

    constants: dict[str, int]
    block: int  # threads
    shared_bytes: int
    staged: tuple[int, ...]  # numbers of the staged arrays


_blocks: Table[Any, _Blocks] = Table()  # by the arguments of _make_blocks, except the layout


def plan_tiles(
    request: ScanRequest,
    layout: Layout,
    order: Order,
    accesses: tuple[Access, ...],
    target: Target,
    *,
    general: bool,
) -> ScanPlan:
    """Return the plan for rows of any length."""
    batch = batch_of(layout, layout.others)
    length, rows = layout.axis.size, product(batch)
    units = -(-length // order.unit)
    # A row of one tile needs only the warps that it fills; their number does not change the order.
    warps = order.warps if general or units > 1 else -(-length // order.warp_tile)
    accesses, staged = _tile_accesses(request, layout, batch, order, accesses, target)
    many = rows > BATCHES * target.sm_count and not general
    prefetches = units > GROUP and not general and _prefetches(request, target)
    levels = (units > 1) + (units > GROUP) + (units > SECTION)
    key = request.kind, target, order, accesses, staged, warps, levels, many, prefetches
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
        levels=levels,
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
    levels: int,
    many: bool,
    prefetches: bool,
) -> _Blocks:
    """Return how many tiles a block works on and prefetches, and the constants that follow."""
    chained, tile, values = levels > 0, warps * order.warp_tile, len(kind.values)
    value_bytes = sum(_stage_bytes(layout, i, tile, accesses) for i in staged if i < values) or BULK_BYTES
    groups = max(min(_most_warps(kind) // warps, GROUPS, GROUPS_BYTES // value_bytes), 1)
    state, carry = state_bytes(kind)
    # Beyond values and flags: the barriers and slot of each tile in flight, and each group's own data.
    tile_bytes = 48 + round_up(carry + 1, 16) + state
    shared_bytes = SHARED_REST + groups * (2 * round_up(warps * state, 16) + tile_bytes)
    room = target.shared_bytes - SHARED_RESERVED - shared_bytes
    flag_bytes = FLAG_STAGES * sum(_stage_bytes(layout, i, tile, accesses) for i in staged if i >= values)
    # Flags are staged only where they leave room for a tile of each group.
    if room - flag_bytes < groups * (value_bytes + tile_bytes):
        staged, flag_bytes = tuple([i for i in staged if i < values]), 0
    flag_stages = FLAG_STAGES if flag_bytes else 1
    flag_bytes = flag_bytes or BULK_BYTES
    # Stages for the tiles that groups work on, and for prefetched ones. Without values to prefetch, a block takes no
    # tile before a group is free for it: other blocks would wait longer for the aggregate.
    stages = (room - flag_bytes) // (value_bytes + tile_bytes)
    ahead_tiles = -(-AHEAD_BYTES // value_bytes) if any([i < values for i in staged]) else 0
    stages = min(stages, groups + ahead_tiles, 4 * groups)
    # Unaligned rows take a producer longer, so each ticket covers at least two. If they are so short that many groups
    # wait for them, two producers each serve every second tile, group and stage.
    shifted = not chained and any(accesses[i] in SHIFTED for i in staged)
    producers = 2 if shifted and groups >= MANY_GROUPS and groups % 2 == 0 and stages > 1 else 1
    stages -= stages % producers
    shared_bytes += flag_bytes + stages * (value_bytes + tile_bytes)
    ahead = chained and set(range(values)) <= set(staged) and stages >= 2 * groups
    by_bits = kind.segments == "offsets"  # bits are not staged
    all_staged = not by_bits and {i for i in flags(kind) if layout.arrays[i]} <= set(staged)
    # Look-back warps take the tiles of a block in turn: two where a look-back takes longer than the loads of a tile.
    slow = levels == LONG_LEVELS and (state > WIDE_STATE or kind.exclusive or kind.include_initial)
    look_back_warps = 2 if slow and groups > 1 and not kind.only_carry else int(chained)
    constants = {
        "Vectors": order.vectors,
        "Warps": warps,
        "Groups": groups,
        "Producers": producers,
        "Stages": stages,
        "FlagStages": flag_stages,
        "ScansAhead": int(ahead and not kind.only_carry),  # without results only a row's last tile waits
        "TakesAhead": int(ahead and all_staged and state <= WIDE_STATE),
        "LookBackWarps": look_back_warps,
        "Prefetches": int(prefetches),
        "Batch": max(order.warps // warps, 1 + shifted) if many else 1,
        "ClearsBeyond": int(bool(staged) and bool(kind.op.source)),
    }
    return _Blocks(constants, (groups * warps + producers + look_back_warps) * WARP, shared_bytes, staged)


def _most_warps(kind: CallKind) -> int:
    """Return the most worker warps of a block: fewer if the states of more would spill. Positions mostly have 32 bits.

    Real recurrences without segments do not spill: in float64 they take 1.1 to 1.4 times as long with fewer warps.
    """
    plain = kind.op is LINEAR_RECURRENCE and kind.results[0].kind is not Kind.COMPLEX and not kind.segments
    return TILES_WARPS if plain or state_bytes(kind, "uint32")[0] <= WIDE_STATE else WIDE_WARPS


def _stage_bytes(layout: Layout, array: int, elements: int, accesses: tuple[Access, ...]) -> int:
    """Return the bytes that `elements` elements of an array take in a stage (stage.cuh)."""
    spec = layout.arrays[array]
    assert spec is not None
    itemsize = spec.dtype.itemsize
    return elements * itemsize + (accesses[array] in SHIFTED) * SHIFT_BYTES


def _tile_accesses(
    request: ScanRequest,
    layout: Layout,
    batch: tuple[Dimension, ...],
    order: Order,
    aligned: tuple[Access, ...],
    target: Target,
) -> tuple[tuple[Access, ...], tuple[int, ...]]:
    """Return the accesses of the tiles family, and the numbers of the staged arrays.

    If some varying value is unsuited to aligned bulk copies but all of them are dense, all become shifted. `aligned`
    are the accesses if arrays need only be aligned to their vectors.
    """
    if target.arch < BULK_ARCH:
        return in_pieces(request, layout, aligned, order.items), ()
    accesses = list(aligned)
    if min([spec.dtype.itemsize for spec in layout.arrays if spec]) * order.items < BULK_BYTES:
        aligned = accesses_of(layout, layout.axis, batch, order.items, least=BULK_BYTES)
    values = len(request.values)
    staged = [i for i in range(values) if aligned[i] not in STILL]
    if Access.STRIDED in [aligned[i] for i in staged]:
        shifted = {i: shifted_access(layout.arrays[i], layout.axis.strides[i]) for i in staged}
        if Access.STRIDED in shifted.values():
            staged = []
        for i in staged:
            accesses[i] = shifted[i]
    staged += [i for i in flags(request.kind) if aligned[i] in (Access.VECTOR, Access.REVERSED)]
    return in_pieces(request, layout, tuple(accesses), order.items), tuple(staged)


def _prefetches(request: ScanRequest, target: Target) -> bool:
    """Return whether look-back warps have registers to prefetch totals, and fold them before these are out of date."""
    if target.arch not in PREFETCHING_ARCHS:
        return False
    by_flags = request.segments is not None and request.segments.kind != "offsets"
    return request.op.exact and not (by_flags or request.exclusive or request.include_initial)
