"""Along which axis a scan runs, and in which order it adds up: what results depend on, on a GPU and in NumPy alike."""

from __future__ import annotations

import math
from dataclasses import replace

from cuscan.layout import Dimension, Layout, layout_of
from cuscan.order import Order
from cuscan.request import CallKind, ScanRequest
from cuscan.tuning import BYTES_TO_WORDS, COLUMNS, CONTIGUOUS, SECTOR, TILE_BYTES


def order_of(request: ScanRequest) -> Order:
    """The defined order of a request's scan (order.py)."""
    layout = layout_of(request)
    return order_along(request.kind) if runs_along(request, layout) else COLUMNS


def order_along(kind: CallKind) -> Order:
    """The order of a contiguous axis."""
    sizes = kind.sizes
    order = BYTES_TO_WORDS if sizes == (1, 8) else CONTIGUOUS[max(sizes)]
    element = sum(sizes[: len(kind.values)])
    while order.unit * element > TILE_BYTES and order.vectors > 1:
        order = replace(order, vectors=order.vectors // 2)
    while order.unit * element > TILE_BYTES:  # more than eight fields
        order = replace(order, warps=order.warps // 2)
    return order


def runs_along(request: ScanRequest, layout: Layout) -> bool:
    """Whether a scan runs along the contiguous axis: that of results and values, or of one of them if lines are few."""
    if layout.axis.size == 1:
        return True
    item, step = request.values[0].dtype.itemsize, abs(layout.axis.strides[0])
    if not layout.contiguous:
        return step == item and _are_few(layout.others, item)
    return step in (0, item) or all([abs(d.strides[0]) != item for d in layout.others]) or _are_few(layout.others, item)


def _are_few(lines: tuple[Dimension, ...], item: int) -> bool:
    """Whether memory moves more at a time than an element of each line."""
    return math.prod([d.size for d in lines]) * item < SECTOR
