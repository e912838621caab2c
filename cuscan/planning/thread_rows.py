"""Plans of the thread_rows family: short dense rows of any alignment, one for each thread (thread_rows.cuh)."""

from __future__ import annotations

import math

from cuscan.order import LANES, Order
from cuscan.planning.assemble import assemble, batch_of, product
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import WARP
from cuscan.planning.rows import WARPS
from cuscan.planning.shared_rows import Rows, fitting_rows, place_rows, residency_of
from cuscan.planning.tuning import STRETCH_BYTES, VECTOR_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout
from cuscan.specs import new_tuple
from cuscan.states import SCALAR

_BANKS_BYTES = 32  # threads that are a multiple of these bytes apart would conflict in few banks


def suits_threads(request: ScanRequest, layout: Layout, order: Order) -> bool:
    """Return whether a thread can scan a row: short, dense, and in the same direction in all arrays.

    There must be several rows, and rows must not be a multiple of 32 bytes apart.
    """
    if layout.axis.size > order.items * LANES // 2 or len(layout.others) != 1 or not is_plain(request):
        return False
    length, sizes, steps = layout.axis.size, _sizes(request), layout.axis.strides
    direction = -1 if steps[0] < 0 else 1
    for i, size in enumerate(sizes):
        if steps[i] != direction * size or layout.others[0].strides[i] != length * size:
            return False
    return length * max(sizes) % _BANKS_BYTES != 0


def is_plain(request: ScanRequest, *, carries: bool = False) -> bool:
    """Return whether a scan has one value, one result, and otherwise at most a mask and a scalar initial value.

    `carries` allows carries, too.
    """
    kind = request.kind
    plain = kind.op.states is SCALAR and kind.segments is None and kind.last is None and not kind.include_initial
    return plain and request.row_initial is None and (carries or not (request.carry_in or request.carry_out))


def plan_thread_rows(request: ScanRequest, layout: Layout, order: Order, target: Target) -> ScanPlan:
    """Return the plan for short dense rows."""
    batch, length, sizes = batch_of(layout, layout.others), layout.axis.size, _sizes(request)
    rows, block = product(batch), WARPS * WARP
    staged = {i: new_tuple(Rows, (length * size, length * size, True)) for i, size in enumerate(sizes)}
    rows_of_block = fitting_rows(staged.values(), STRETCH_BYTES)
    if rows_of_block > block:
        rows_of_block = min(rows_of_block // block, max(-(-rows // (target.sm_count * block)), 1)) * block
    beside, nbytes = place_rows(request.kind, staged, rows_of_block)
    direction = Access.REVERSED if layout.axis.strides[0] < 0 else Access.VECTOR
    units = [
        min(math.gcd(VECTOR_BYTES, length * size, address) // size, order.items)
        for size, address in zip(sizes, _lowest(layout, sizes), strict=True)
    ]
    if sizes[0] == sizes[1]:
        units[:2] = [min(units[:2])] * 2  # few kernels
    shared_bytes, blocks_per_sm = residency_of("thread_rows", request.kind, nbytes, block, target)
    return assemble(
        request,
        layout,
        "thread_rows",
        batch=batch,
        accesses=(direction,) * len(sizes) + (Access.NONE,) * (len(layout.arrays) - len(sizes)),
        items=order.items,
        constants={
            "Warps": WARPS,
            "Dense": 1,
            "ValueUnit": units[0],
            "ResultUnit": units[1],
            "MaskUnit": units[2] if len(sizes) > 2 else 1,
        },
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=-(-rows // rows_of_block),
        shared_bytes=shared_bytes,
        staged=tuple(staged),
        beside=beside,
    )


def _sizes(request: ScanRequest) -> tuple[int, ...]:
    """Return the item sizes in bytes of the value, the result, and the mask if there is one."""
    sizes = request.kind.sizes
    return sizes if request.mask is None else (*sizes, request.mask.dtype.itemsize)


def _lowest(layout: Layout, sizes: tuple[int, ...]) -> list[int]:
    """Return the lowest address of each array."""
    back, lowest = layout.axis.size - 1 if layout.axis.strides[0] < 0 else 0, []
    for i, size in enumerate(sizes):
        spec = layout.arrays[i]
        assert spec is not None
        lowest.append(spec.address + layout.offsets[i] - back * size)
    return lowest
