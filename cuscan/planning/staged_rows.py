"""Plans of the staged_rows family: rows of any alignment, which pass through shared memory (shared_rows.cuh)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cuscan.order import LANES, Order
from cuscan.planning.accesses import flags
from cuscan.planning.assemble import assemble, batch_of, product
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import REGISTERS, SHARED_RESERVED, WARP
from cuscan.planning.rows import WARPS, tile_of
from cuscan.planning.shared_rows import Rows, fitting_rows, place_rows, residency_of, rows_of
from cuscan.planning.tuning import STRETCH_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout

LEAST = 32  # bytes of a row that moves by itself
SEGMENTED = 1.5  # registers of a thread for each of its elements, with segments: with fewer, threads spill


def staged_rows(request: ScanRequest, layout: Layout, accesses: Sequence[Access]) -> dict[int, Rows]:
    """Return, by number, the arrays whose rows pass through shared memory; none if the family does not suit them.

    All pass whose neighbours along the axis are neighbours in memory, except those that several rows share but not
    all: caches hold these. It suits scans of which some array is not aligned, whose rows are not too short for pieces,
    and whose values are not strided.
    """
    kind, values, behind = request.kind, len(request.values), len(request.kind.sizes)
    staged, unaligned = {}, False
    for i in range(flags(kind).stop):
        spec, step = layout.arrays[i], layout.axis.strides[i]
        is_result = values <= i < behind
        if spec is None or step == 0 or (is_result and kind.only_carry):
            continue
        strides = [dim.strides[i] for dim in layout.others]
        apart = all(strides)
        if abs(step) == spec.dtype.itemsize and (apart or not any(strides)):
            length = layout.axis.size - (kind.include_initial and not is_result)
            if length == 0:  # the initial value alone
                return {}
            rows = rows_of(layout.others, strides, length * spec.dtype.itemsize, dense=is_result)
            if rows.pitch and not rows.together and rows.row_bytes < LEAST:
                return {}
            staged[i] = rows
            unaligned |= accesses[i] == Access.STRIDED
        elif i < values and apart:
            return {}
    return staged if unaligned else {}


def plan_staged_rows(
    request: ScanRequest,
    layout: Layout,
    order: Order,
    accesses: Sequence[Access],
    staged: dict[int, Rows],
    target: Target,
    *,
    general: bool,
) -> ScanPlan:
    """Return the plan for rows of a few warp tiles; `accesses` are the arrays' accesses outside of shared memory."""
    batch = batch_of(layout, layout.others)
    length, rows = layout.axis.size, product(batch)
    lanes, vectors, fill = tile_of(length, rows, order, target, general=general)
    at_a_time = WARPS * (LANES // lanes)
    room = target.shared_bytes - SHARED_RESERVED
    rows_of_block = _rows_of_block(staged.values(), rows, at_a_time, target.sm_count, room)
    beside, nbytes = place_rows(request.kind, staged, rows_of_block, rows, rows)
    found, block = list(accesses), WARPS * WARP
    for i in staged:
        found[i] = Access.SHIFTED if layout.axis.strides[i] > 0 else Access.SHIFTED_REVERSED
    shared_bytes, blocks_per_sm = residency_of("staged_rows", request.kind, nbytes, block, target)
    if request.segments is not None:
        blocks_per_sm = min(blocks_per_sm, max(int(REGISTERS / (SEGMENTED * vectors * order.items)) // block, 1))
    return assemble(
        request,
        layout,
        "staged_rows",
        batch=batch,
        accesses=tuple(found),
        items=order.items,
        constants={
            "Vectors": vectors,
            "Lanes": lanes,
            "Warps": WARPS,
            "Together": 0,
            "Fill": int(fill),
            "Long": int(length > order.warp_tile),
            "ClearsBeyond": int(bool(request.op.source)),
        },
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=-(-rows // rows_of_block),
        shared_bytes=shared_bytes,
        staged=tuple(staged),
        beside=beside,
    )


def _rows_of_block(staged: Collection[Rows], rows: int, at_a_time: int, blocks: int, room: int) -> int:
    """Return the rows of a block: a multiple of those at a time, but fewer if they do not fit in `room` bytes.

    They fill STRETCH_BYTES, unless there would be less than `blocks` blocks.
    """
    turns = min(fitting_rows(staged, STRETCH_BYTES) // at_a_time, -(-rows // (blocks * at_a_time)))
    if turns > 0:
        return turns * at_a_time
    return max(min(at_a_time, fitting_rows(staged, room)), 1)
