"""Planning: choose the kernel family, configuration and grid for a request. Pure functions of frozen values."""

from __future__ import annotations

from cuscan.planning.accesses import accesses_of
from cuscan.planning.assemble import MAX_TICKETS
from cuscan.planning.cluster import plan_cluster
from cuscan.planning.config import ScanPlan, Target
from cuscan.planning.hardware import BULK_ARCH, PREFETCHING_ARCHS, SHARED_RESERVED
from cuscan.planning.on_words import on_words
from cuscan.planning.panels import own_panels, plan_panels
from cuscan.planning.preparations import prepared
from cuscan.planning.rows import plan_rows
from cuscan.planning.staged_rows import plan_staged_rows, staged_rows
from cuscan.planning.strips import Strips, dense_columns, plan_strips, strips_of, turned_layout, waste_last_tiles
from cuscan.planning.thread_rows import plan_thread_rows, thread_rows
from cuscan.planning.tiles import plan_tiles
from cuscan.planning.whole_rows import plan_whole_rows, whole_rows_of
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout, layout_of, order_along, runs_along

QUARTER = 4  # one warp scans rows that fill up to a quarter of a unit: tiles would leave warps idle
LOOKS = 8  # polls per lane in flight at once, on prefetching architectures; half as many on others


def make_plan(request: ScanRequest, target: Target, *, general: bool = False) -> ScanPlan:
    """Return the plan for a request with at least one element.

    With `general`, the plans of a kind of call share a few kernels, whatever its shapes; mostly they are slower.
    """
    request = prepared(request, target)
    layout = layout_of(request)
    if not runs_along(request, layout):
        return plan_panels(request, layout, target) if general else _plan_across(request, layout, target)
    order = order_along(request.kind, layout)
    accesses = accesses_of(layout, layout.axis, layout.others, order.items)
    staged = None if general else thread_rows(request, layout, order, accesses, target)
    if staged:
        return plan_thread_rows(request, layout, order, accesses, staged, target)
    if layout.axis.size > order.warp_tile:
        clusters = plan_cluster(request, layout, order, accesses, target, general=general)
        if clusters:
            return clusters
    if layout.axis.size > max(order.unit // QUARTER, order.warp_tile):
        return plan_tiles(request, layout, order, accesses, target, general=general)
    staged = staged_rows(request, layout, accesses)
    if staged:
        return plan_staged_rows(request, layout, order, accesses, staged, target, general=general)
    return plan_rows(request, layout, order, accesses, target, general=general)


def _plan_across(request: ScanRequest, layout: Layout, target: Target) -> ScanPlan:
    """Plan a scan along a non-contiguous axis, with the fastest family that supports it."""
    words = on_words(request, layout)
    if words and words.aligned:
        request, layout, *_ = words
    if target.arch < BULK_ARCH:
        return plan_panels(request, layout, target)
    looks = LOOKS if target.arch in PREFETCHING_ARCHS else LOOKS // 2
    room, across = target.shared_bytes - SHARED_RESERVED, turned_layout(request, layout)
    if across:
        dense = dense_columns(across, request.kind.sizes, along=True)
        strips = strips_of(request, across, dense, room, target.sm_count, looks)
        return _plan_strips_or_panels(request, layout, target, strips, across)
    if layout.contiguous:
        return plan_panels(request, layout, target)
    dense = dense_columns(layout, request.kind.sizes)
    whole = whole_rows_of(request, layout, dense, room, target.sm_count) if dense else None
    if whole and whole.parts > MAX_TICKETS:
        whole = None
    if whole and whole.quick:
        return plan_whole_rows(request, layout, target, whole)
    if dense and waste_last_tiles(layout, dense, request.kind.sizes, target.sm_count):
        return plan_panels(request, layout, target)
    strips = strips_of(request, layout, dense, room, target.sm_count, looks)
    if whole and not (strips and strips.are_quick):
        return plan_whole_rows(request, layout, target, whole)
    return _plan_strips_or_panels(request, layout, target, strips, layout)


def _plan_strips_or_panels(
    request: ScanRequest, layout: Layout, target: Target, strips: Strips | None, of_strips: Layout
) -> ScanPlan:
    """Return the plan for strips, in a layout of theirs; for panels where these are faster, or there are no strips."""
    if strips is None:
        return plan_panels(request, layout, target)
    panels = own_panels(request, layout, target, strips.rival) if strips.rival else None
    return panels or plan_strips(request, of_strips, target, strips)
