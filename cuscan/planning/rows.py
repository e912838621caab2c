"""Plans of the rows family: a row fits in a warp or in part of one (rows.cuh)."""

from __future__ import annotations

from cuscan.order import LANES, Order
from cuscan.planning.assemble import assemble, batch_of, power_of_two, product
from cuscan.planning.config import Access, ScanPlan
from cuscan.planning.hardware import WARP
from cuscan.planning.tuning import blocks_per_sm
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout


def plan_rows(request: ScanRequest, layout: Layout, order: Order, accesses: tuple[Access, ...]) -> ScanPlan:
    """Return the plan for rows that fit in a warp; `accesses` are the arrays' accesses."""
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
        blocks_per_sm=blocks_per_sm("rows", max(request.kind.sizes), warps * WARP),
        grid=-(-product(batch) // rows_per_block),
    )
