"""Plans of the rows family: a warp scans a row, or several (rows.cuh)."""

from __future__ import annotations

from typing import NamedTuple

from cuscan.order import LANES, Order
from cuscan.planning.assemble import assemble, batch_of, power_of_two, product
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import WARP
from cuscan.planning.tuning import blocks_per_sm
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout
from cuscan.specs import new_tuple

WARPS = 4  # of a block
WARPS_OF_FEW = 16  # per SM
GENERAL_LANES = (2, 8, LANES)  # of a row that these hold at once, for general kernels


class RowTile(NamedTuple):
    """How a warp holds rows: lanes of a row, vectors of a lane, and whether all of these but the last `fill` a row."""

    lanes: int
    vectors: int
    fill: bool


def tile_of(length: int, rows: int, order: Order, target: Target, *, general: bool) -> RowTile:
    """Return how a warp holds rows. Rows that all run at once share a few kernels, however short they are.

    With `general`, all rows share a few.
    """
    vectors, are_few = -(-length // order.vector), rows <= target.sm_count * WARPS_OF_FEW
    if general:
        lanes = next((n for n in GENERAL_LANES if n * order.items >= length and not are_few), None)
        return new_tuple(RowTile, (lanes, 1, False) if lanes else (LANES, order.vectors, False))
    if are_few:
        return new_tuple(RowTile, (LANES, min(power_of_two(vectors), order.vectors), False))
    lanes = min(power_of_two(-(-length // order.items)), LANES)
    return new_tuple(RowTile, (lanes, min(vectors, order.vectors), vectors <= order.vectors))


def plan_rows(
    request: ScanRequest,
    layout: Layout,
    order: Order,
    accesses: tuple[Access, ...],
    target: Target,
    *,
    general: bool,
) -> ScanPlan:
    """Return the plan for rows of a few warp tiles; `accesses` are the arrays' accesses."""
    batch = batch_of(layout, layout.others)
    length, rows = layout.axis.size, product(batch)
    tile = tile_of(length, rows, order, target, general=general)
    vectors = min(power_of_two(tile.vectors), order.vectors)  # few kernels
    rows_per_thread = max(4 // vectors, 1)
    rows_per_block = WARPS * (WARP // tile.lanes) * rows_per_thread
    return assemble(
        request,
        layout,
        "rows",
        batch=batch,
        accesses=accesses,
        items=order.items,
        constants={
            "Vectors": vectors,
            "Lanes": tile.lanes,
            "RowsPerThread": rows_per_thread,
            "Warps": WARPS,
            "Long": int(length > order.warp_tile),
        },
        block=WARPS * WARP,
        blocks_per_sm=blocks_per_sm("rows", max(request.kind.sizes), WARPS * WARP),
        grid=-(-rows // rows_per_block),
    )
