"""Plans of the cluster family: rows of a few units, each scanned by one cluster of blocks (cluster.cuh)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cuscan.dtypes import EXACT
from cuscan.kept import MOST
from cuscan.order import Order
from cuscan.planning.accesses import in_pieces
from cuscan.planning.assemble import assemble, batch_of, power_of_two, product, round_up, state_bytes
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import BULK_ARCH, CLUSTER, GPCS, LARGE_CLUSTERS, WARP
from cuscan.planning.tuning import MASKED_THREADS, THREADS_PER_SM, TURN_UNITS
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout
from cuscan.states import SCALAR

CLUSTER_UNITS = 26  # units of a row, beyond which tiles are faster
SHARED_REST = 256  # bytes of shared memory for barriers and alignment, at most


class _Clusters(NamedTuple):
    """A cluster's size in blocks, units per block, warps per unit, and blocks per SM."""

    cluster: int
    units: int
    warps: int
    blocks_per_sm: int


def plan_cluster(
    request: ScanRequest,
    layout: Layout,
    order: Order,
    accesses: tuple[Access, ...],
    target: Target,
    *,
    general: bool,
) -> ScanPlan | None:
    """Return the plan for rows of a few units, or None if the tiles family should scan them.

    With `general`, clusters have one block or as many as possible.
    """
    if target.arch < BULK_ARCH:
        return None
    batch, length = batch_of(layout, layout.others), layout.axis.size
    rows, row_units = product(batch), -(-length // order.unit)
    # A row of one unit needs only the warps that it fills; their number does not change the order.
    warps = order.warps if general or row_units > 1 else power_of_two(-(-length // order.warp_tile))
    clusters, threads = None, THREADS_PER_SM["cluster", max(request.kind.sizes)]
    room = max(row_units, _largest(target)) if general and row_units > 1 else row_units  # in units
    if room <= CLUSTER_UNITS:
        clusters = _side_by_side(target, room, warps, threads)
    if clusters is None or rows * clusters.cluster > target.sm_count * clusters.blocks_per_sm:
        clusters = None if general else _in_turn(request, layout, order, accesses, target)
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


def _largest(target: Target) -> int:
    """Return the blocks of a cluster, at most."""
    return min(CLUSTER * (1 + (target.arch in LARGE_CLUSTERS)), target.cluster)


@functools.lru_cache(MOST)
def _side_by_side(target: Target, row_units: int, warps: int, threads: int) -> _Clusters | None:
    """Return clusters for rows that all run at once, with up to `threads` threads per SM; None if a row is too long."""
    largest = _largest(target)
    for units in (1, 2):  # per block: as few as possible, to spread a row over many SMs
        blocks_per_sm = max(threads // (units * warps * WARP), 1)
        cluster = power_of_two(-(-row_units // units))
        if cluster <= min(largest, -(-target.sm_count // GPCS) * blocks_per_sm):
            return _Clusters(cluster, units, warps, blocks_per_sm)
    return None


def _in_turn(
    request: ScanRequest, layout: Layout, order: Order, accesses: tuple[Access, ...], target: Target
) -> _Clusters | None:
    """Return clusters that take rows in turn, or None if tiles are faster.

    They take plain scans of many aligned rows of a few units.
    """
    dtype, row_units = request.result.dtype, -(-layout.axis.size // order.unit)
    if not 2 <= row_units <= min(TURN_UNITS, target.cluster) or Access.STRIDED in accesses:
        return None
    if dtype.kind not in EXACT and dtype.name != "float32":
        return None
    if not (_is_plain(request) and request.op.exact and request.values[0].dtype == dtype):
        return None
    threads = THREADS_PER_SM["cluster", dtype.itemsize]
    if request.mask:
        if dtype.itemsize != 4:
            return None
        threads = MASKED_THREADS
    return _Clusters(row_units, 1, order.warps, threads // (order.warps * WARP))


def _is_plain(request: ScanRequest) -> bool:
    """Return whether a scan has one value, one result, and otherwise at most a mask, carries and a scalar initial."""
    kind = request.kind
    plain = kind.op.states is SCALAR and kind.segments is None and kind.last is None and not kind.include_initial
    return plain and request.row_initial is None
