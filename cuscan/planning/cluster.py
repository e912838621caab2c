"""Rows of some units, each worked on by a cluster at once (cluster.cuh)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cuscan.dtypes import EXACT
from cuscan.kept import MOST
from cuscan.order import Order
from cuscan.planning.accesses import in_pieces
from cuscan.planning.assemble import assemble, batch_of, power_of_two, product, round_up, state_bytes
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.dense_rows import is_plain
from cuscan.planning.hardware import BULK_ARCH, CLUSTER, GPCS, LARGE_CLUSTERS, WARP
from cuscan.planning.tuning import MASKED_THREADS, THREADS_PER_SM, TURN_UNITS
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout

CLUSTER_UNITS = 26  # of a row, beyond which tiles are faster
SHARED_REST = 256  # bytes of shared memory for barriers and what alignment takes, at most


class _Clusters(NamedTuple):
    """How clusters take rows: blocks of one, units and warps of a block, and blocks of an SM."""

    cluster: int
    units: int
    warps: int
    blocks_per_sm: int


def plan_cluster(
    request: ScanRequest, layout: Layout, order: Order, accesses: tuple[Access, ...], target: Target
) -> ScanPlan | None:
    """The plan of rows of some units; None where tiles take them."""
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
        accesses=in_pieces(request, layout, accesses, order.items),
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
    request: ScanRequest, layout: Layout, order: Order, accesses: tuple[Access, ...], target: Target
) -> _Clusters | None:
    """For many rows of a few units, aligned: a plain scan of them, where clusters are faster than tiles."""
    dtype, row_units = request.result.dtype, -(-layout.axis.size // order.unit)
    quick = dtype.kind in EXACT or dtype.name == "float32"
    if not 2 <= row_units <= min(TURN_UNITS[quick], target.cluster) or Access.STRIDED in accesses:
        return None
    if not (is_plain(request, carries=True) and request.op.exact and request.values[0].dtype == dtype):
        return None
    threads = THREADS_PER_SM["cluster", dtype.itemsize]
    if request.mask:
        if dtype.itemsize != 4:
            return None
        threads = MASKED_THREADS
    return _Clusters(row_units, 1, order.warps, threads // (order.warps * WARP))
