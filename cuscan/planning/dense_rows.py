"""Plans for dense rows of any alignment: each block passes a stretch of rows through shared memory (dense_rows.cuh)."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from cuscan.kept import MOST
from cuscan.order import LANES, Order
from cuscan.planning.assemble import assemble, batch_of, product
from cuscan.planning.config import Access, ScanPlan, Target
from cuscan.planning.hardware import SHARED_RESERVED, WARP
from cuscan.planning.tuning import SIDE_BYTES, STRETCH_BYTES, VECTOR_BYTES, blocks_per_sm
from cuscan.request import ScanRequest
from cuscan.request.layout import Layout
from cuscan.states import SCALAR

_REST = 384  # bytes of shared memory beyond the elements, at most: margins and barriers of three arrays
_WARPS = 4  # per block, at most


class Stretches(NamedTuple):
    """A kernel family, its compile-time constants, and the warps, rows and bytes of shared memory of a block."""

    family: str
    constants: dict[str, int]
    warps: int
    rows: int
    shared_bytes: int


def lies_dense(request: ScanRequest, layout: Layout, order: Order) -> bool:
    """Return whether unaligned rows can pass through shared memory: dense, and in the same direction in all arrays.

    There must be several rows: one warp scans a single row anyway, with a kernel that takes many lengths. The threads
    of thread_rows are a row apart, which must not be a multiple of 32 bytes: they would conflict in few banks.
    """
    if len(layout.others) != 1 or not is_plain(request):
        return False
    length, sizes, steps = layout.axis.size, _sizes(request), layout.axis.strides
    direction = -1 if steps[0] < 0 else 1
    for i, size in enumerate(sizes):
        if steps[i] != direction * size or layout.others[0].strides[i] != length * size:
            return False
    return not _is_short(length, order) or length * max(sizes) % 32 != 0


def is_plain(request: ScanRequest, *, carries: bool = False) -> bool:
    """Return whether a scan has one value, one result, and otherwise at most a mask and a scalar initial value.

    `carries` allows carries, too.
    """
    kind = request.kind
    plain = kind.op.states is SCALAR and kind.segments is None and kind.last is None and not kind.include_initial
    return plain and request.row_initial is None and (carries or not (request.carry_in or request.carry_out))


def _stretches_of(request: ScanRequest, layout: Layout, order: Order, blocks: int) -> Stretches:
    """Return the family for dense rows and the rows per block: fewer if there would be less than `blocks` blocks."""
    if _is_short(layout.axis.size, order):
        return _thread_rows(request, layout, blocks)
    vectors = -(-layout.axis.size // order.vector)
    constants = {"Vectors": vectors, "Longest": vectors * order.vector, "InPlace": 0}
    return _stretches("warp_rows", layout, blocks, constants, sum(_sizes(request)), _WARPS, 1)


def _thread_rows(request: ScanRequest, layout: Layout, blocks: int) -> Stretches:
    sizes = _sizes(request)
    lowest = tuple([address % VECTOR_BYTES for address in _lowest(layout, sizes)])
    return _stretches("thread_rows", layout, blocks, *_threads_of(layout.axis.size, sizes, lowest))


@functools.lru_cache(MOST)
def _threads_of(length: int, sizes: tuple[int, ...], lowest: tuple[int, ...]) -> tuple[dict[str, int], int, int, int]:
    """Return how thread_rows takes rows of `length` elements; `lowest` holds each array's address modulo 16 bytes.

    Returns:
        Constants, bytes of shared memory per element, warps per block, and rows that a warp takes at a time.
    """
    side = 1  # adjacent rows per thread: enough to make whole 32-bit words, within SIDE_BYTES
    while side * length * min(sizes[:2]) % 4 and 2 * side * length * max(sizes) <= SIDE_BYTES:
        side *= 2
    units = [math.gcd(VECTOR_BYTES, side * length * size, lowest[i]) // size for i, size in enumerate(sizes)]
    in_place = sizes[0] == sizes[1] and lowest[0] == lowest[1]
    constants = {"Longest": length, "InPlace": int(in_place), "Side": side, "ValueUnit": units[0]}
    constants |= {"ResultUnit": units[1], "MaskUnit": units[2] if len(sizes) > 2 else 1}
    room = sum(sizes) - in_place * sizes[1]
    warps = max(min(STRETCH_BYTES // (LANES * side * length * room), _WARPS), 1)
    return constants, room, warps, LANES * side


def _stretches(
    family: str, layout: Layout, blocks: int, constants: dict[str, int], room: int, warps: int, rows_of_warp: int
) -> Stretches:
    """Return a block with as many rows as fit, at `room` bytes of shared memory per element.

    A warp takes `rows_of_warp` rows at a time.
    """
    row_bytes, at_a_time = constants["Longest"] * room, warps * rows_of_warp
    all_rows = layout.others[0].size
    turns = max(STRETCH_BYTES // (row_bytes * at_a_time), 1)
    while turns > 1 and all_rows < blocks * turns * at_a_time:
        turns //= 2
    rows = turns * at_a_time
    return Stretches(family, {**constants, "Rows": rows, "Warps": warps}, warps, rows, rows * row_bytes + _REST)


def _is_short(length: int, order: Order) -> bool:
    """Return whether rows are short enough for one thread each."""
    return length <= order.items * LANES // 2


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


def plan_dense_rows(request: ScanRequest, layout: Layout, order: Order, target: Target) -> ScanPlan:
    """Return the plan for dense, unaligned rows."""
    batch = batch_of(layout, layout.others)
    stretches = _stretches_of(request, layout, order, target.sm_count)
    block = stretches.warps * WARP
    fitting = target.shared_bytes // (stretches.shared_bytes + SHARED_RESERVED)
    direction = Access.REVERSED if layout.axis.strides[0] < 0 else Access.VECTOR
    return assemble(
        request,
        layout,
        stretches.family,
        batch=batch,
        accesses=(
            direction,
            direction,
            direction if request.mask else Access.NONE,
            Access.NONE,
            Access.NONE,
            Access.NONE,
        ),
        items=order.items,
        constants=stretches.constants,
        block=block,
        blocks_per_sm=max(min(blocks_per_sm(stretches.family, max(request.kind.sizes), block), fitting), 1),
        grid=-(-product(batch) // stretches.rows),
        shared_bytes=stretches.shared_bytes,
    )
