"""Plans of the thread_rows family: short rows of any alignment, one for each thread (thread_rows.cuh)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cuscan.order import LANES, Order
from cuscan.planning.accesses import STILL, flags
from cuscan.planning.assemble import assemble, batch_of, index_dtype, product, state_bytes
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import SHARED_RESERVED, WARP
from cuscan.planning.rows import WARPS
from cuscan.planning.shared_rows import Rows, fitting_rows, place_rows, residency_of, rows_of
from cuscan.planning.tuning import STRETCH_BYTES, VECTOR_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout

# Threads that are a multiple of these bytes apart would meet in few banks: if they read whole vectors, and otherwise.
_VECTORS_APART, _ITEMS_APART = 128, 32
_FEW, _SHORT = 8, 4  # at most so many rows an SM, with more runs of items than that, are scanned by lanes
_SMALL = 8  # bytes of a state: a thread holds those of 16 or 32 lanes if they are no wider, else of 8
_GAPPED = 4  # items of a row, at least, if results have gaps between rows: each row is then stored by itself
_STRETCHES = 2  # of a block that has several, at least
_HELD = 256  # rows that an SM holds: with fewer, most of its threads would have none


def thread_rows(
    request: ScanRequest, layout: Layout, order: Order, accesses: Sequence[Access], target: Target
) -> dict[int, Rows]:
    """Return, by number, the arrays whose rows pass through shared memory; none if the family does not suit them.

    It suits short rows that lie in runs, in the same direction in all arrays, but for values that do not vary along a
    row. They may have small gaps between them, and others behind stretches of rows. They must not be a multiple of 128
    bytes apart, or of 32 if an array is not aligned. Carries, last states and initial values as results are for other
    families. If all arrays are aligned, lanes of a warp scan few rows as fast, and rows of one vector.
    """
    kind, length = request.kind, layout.axis.size
    if length > order.items * _lanes(request, length, order) or not layout.others:
        return {}
    if kind.last is not None or kind.include_initial or request.carry_in or request.carry_out:
        return {}
    rows = product(layout.others)
    if Access.STRIDED not in accesses and (length <= order.items or rows < target.sm_count * WARPS * WARP):
        return {}
    if rows <= target.sm_count * _FEW and length > order.items * _SHORT:
        return {}
    staged, run = _in_runs(request, layout, accesses, 1), layout.others[0].size
    if not staged:
        return {}
    if run < rows and _STRETCHES * run <= fitting_rows(staged.values(), STRETCH_BYTES):
        of_two = _in_runs(request, layout, accesses, 2)
        staged, run = (of_two, run * layout.others[1].size) if of_two else (staged, run)
    pitches = sum([of_array.pitch for of_array in staged.values()])
    fit = pitches * _HELD <= target.shared_bytes - SHARED_RESERVED
    return staged if fit and run >= min(rows, WARP) else {}


def _in_runs(request: ScanRequest, layout: Layout, accesses: Sequence[Access], axes: int) -> dict[int, Rows]:
    """Return, by number, the arrays whose rows pass through shared memory; none if some have no runs along the axes."""
    kind, length, run = request.kind, layout.axis.size, layout.others[:axes]
    unaligned = Access.STRIDED in accesses
    apart = _ITEMS_APART if unaligned else _VECTORS_APART
    staged, direction, values, behind = dict[int, Rows](), 0, len(request.values), len(kind.sizes)
    for i in range(flags(kind).stop):
        spec, step = layout.arrays[i], layout.axis.strides[i]
        if spec is None or (accesses[i] in STILL and i < values):
            continue
        size = spec.dtype.itemsize
        direction = direction or step
        if abs(step) != size or step * direction < 0:
            return {}
        strides = [axis.strides[i] for axis in run]
        dense = values <= i < behind and not (unaligned and length >= _GAPPED)
        staged[i] = rows_of(run, strides, length * size, dense=dense, stretches=True)
        if not staged[i].together or staged[i].pitch % apart == 0:
            return {}
    return staged


def _lanes(request: ScanRequest, length: int, order: Order) -> int:
    """Return how many lanes' work a thread does: half of a warp's or all, or a quarter with wide states."""
    if state_bytes(request.kind, index_dtype(request))[0] > _SMALL:
        return LANES // 4
    return LANES // 2 if length <= order.items * LANES // 2 else LANES


def plan_thread_rows(
    request: ScanRequest,
    layout: Layout,
    order: Order,
    accesses: Sequence[Access],
    staged: dict[int, Rows],
    target: Target,
) -> ScanPlan:
    """Return the plan for short rows; `accesses` are the arrays' accesses outside of shared memory."""
    kind, batch, found, units = request.kind, batch_of(layout, layout.others), list(accesses), dict[int, int]()
    stretch = max([of_array.stretch for of_array in staged.values()])
    run, block = stretch * batch[1].size if stretch > 1 else batch[0].size, WARPS * WARP
    for i in staged:
        spec, step = layout.arrays[i], layout.axis.strides[i]
        assert spec is not None
        found[i] = Access.REVERSED if step < 0 else Access.VECTOR
        # A reversed unit ends with its first element: the address behind that must be aligned.
        places = spec.address + layout.offsets[i] + max(-step, 0), *[dim.strides[i] for dim in batch]
        units[i] = min(math.gcd(VECTOR_BYTES, *places) // spec.dtype.itemsize, order.items)
    rows_of_block = fitting_rows(staged.values(), STRETCH_BYTES)
    if rows_of_block > block:
        rows_of_block = min(rows_of_block // block, max(-(-product(batch) // (target.sm_count * block)), 1)) * block
    rows_of_block = min(max(rows_of_block // stretch, 1) * stretch, run)  # whole stretches
    beside, nbytes = place_rows(kind, staged, rows_of_block, run, stretch)
    shared_bytes, blocks_per_sm = residency_of("thread_rows", kind, nbytes, block, target)
    values, behind = len(request.values), len(kind.sizes)
    of_values, of_results, of_flags = (
        min([units[i] for i in arrays if i in units], default=order.items)
        for arrays in (range(values), range(values, behind), flags(kind))
    )
    if kind.segments is not None:  # few kernels: the same for all
        of_values = of_results = of_flags = min(units.values())
    elif len(set(kind.sizes)) == 1:
        of_values = of_results = min(of_values, of_results)
    return assemble(
        request,
        layout,
        "thread_rows",
        batch=batch,
        accesses=tuple(found),
        items=order.items,
        constants={
            "Lanes": _lanes(request, layout.axis.size, order),
            "Warps": WARPS,
            "Together": 1,
            "ValueUnit": of_values,
            "ResultUnit": of_results,
            "MaskUnit": of_flags,
        },
        block=block,
        blocks_per_sm=blocks_per_sm,
        grid=-(-run // rows_of_block) * (product(batch) // run),
        shared_bytes=shared_bytes,
        staged=tuple(staged),
        beside=beside,
    )
