"""Dense rows: how a block takes a stretch of them through shared memory (dense_rows.cuh), whatever their alignment."""

from __future__ import annotations

import math
from typing import NamedTuple

from cuscan.layout import Layout
from cuscan.order import LANES, Order
from cuscan.request import ScanRequest
from cuscan.specs import ArraySpec
from cuscan.states import SCALAR
from cuscan.tuning import SIDE_BYTES, STRETCH_BYTES, VECTOR_BYTES

_REST = 384  # bytes of shared memory beside the elements, at most: margins and barriers of three arrays
_WARPS = 4  # of a block, at most


class Stretches(NamedTuple):
    """A kernel family and what it takes: constants for the compiler; warps, rows and shared memory of a block."""

    family: str
    constants: dict[str, int]
    warps: int
    rows: int
    shared_bytes: int


def lies_dense(request: ScanRequest, layout: Layout, order: Order) -> bool:
    """Whether rows that are not aligned can go through shared memory: dense, in the same direction in all arrays.

    The threads of thread_rows are a row apart. They would meet in few banks if that were a multiple of 32 bytes.
    """
    if layout.others[1:] or not is_plain(request):
        return False
    length, sizes, steps = layout.axis.size, _sizes(request), layout.axis.strides
    back = steps[0] < 0
    if any([step != (-size if back else size) for step, size in zip(steps, sizes, strict=False)]):
        return False
    for dim in layout.others:
        if any([step != length * size for step, size in zip(dim.strides, sizes, strict=False)]):
            return False
    return not _is_short(length, order) or length * max(sizes) % 32 != 0


def is_plain(request: ScanRequest, *, carries: bool = False) -> bool:
    """Whether a scan is of one value to one result, with nothing beside but a mask and a number to begin with.

    And carries, if they do not matter.
    """
    beside = (request.segments, request.row_initial, request.last)
    plain = request.op.states is SCALAR and beside == (None, None, None) and not request.include_initial
    return plain and (carries or not (request.carry_in or request.carry_out))


def stretches_of(request: ScanRequest, layout: Layout, order: Order, blocks: int) -> Stretches:
    """The family for dense rows, and how many of them a block takes: fewer where else there were not so many blocks."""
    if _is_short(layout.axis.size, order):
        return _thread_rows(request, layout, blocks)
    vectors = -(-layout.axis.size // order.vector)
    constants = {"Vectors": vectors, "Longest": vectors * order.vector, "InPlace": 0}
    return _stretches("warp_rows", constants, layout, blocks, sum(_sizes(request)), _WARPS, 1)


def _thread_rows(request: ScanRequest, layout: Layout, blocks: int) -> Stretches:
    length, sizes, lowest = layout.axis.size, _sizes(request), _lowest(request, layout)
    side = 1  # rows of a thread side by side: whole 32-bit words, if that are not too many
    while side * length * min(sizes[:2]) % 4 and 2 * side * length * max(sizes) <= SIDE_BYTES:
        side *= 2
    units = [math.gcd(VECTOR_BYTES, side * length * size, at) // size for size, at in zip(sizes, lowest, strict=True)]
    in_place = sizes[0] == sizes[1] and (lowest[0] - lowest[1]) % VECTOR_BYTES == 0
    constants = {"Longest": length, "InPlace": int(in_place), "Side": side}
    constants |= dict(zip(("ValueUnit", "ResultUnit", "MaskUnit"), [*units, 1], strict=False))
    room = sum(sizes) - in_place * sizes[1]
    warps = max(min(STRETCH_BYTES // (LANES * side * length * room), _WARPS), 1)
    return _stretches("thread_rows", constants, layout, blocks, room, warps, LANES * side)


def _stretches(
    family: str, constants: dict[str, int], layout: Layout, blocks: int, room: int, warps: int, rows_of_warp: int
) -> Stretches:
    """As many rows as fit if each element takes `room` bytes of shared memory; a warp takes so many rows at a time."""
    row_bytes, at_a_time = constants["Longest"] * room, warps * rows_of_warp
    all_rows = layout.others[0].size if layout.others else 1
    turns = max(STRETCH_BYTES // (row_bytes * at_a_time), 1)
    while turns > 1 and all_rows < blocks * turns * at_a_time:
        turns //= 2
    rows = turns * at_a_time
    return Stretches(family, {**constants, "Rows": rows, "Warps": warps}, warps, rows, rows * row_bytes + _REST)


def _is_short(length: int, order: Order) -> bool:
    """Whether a thread of its own scans a row."""
    return length <= order.items * LANES // 2


def _specs(request: ScanRequest) -> list[ArraySpec]:
    return [spec for spec in (*request.values, *request.results, request.mask) if spec]


def _sizes(request: ScanRequest) -> list[int]:
    return [spec.dtype.itemsize for spec in _specs(request)]


def _lowest(request: ScanRequest, layout: Layout) -> list[int]:
    """The address of the first element in memory, of each array."""
    back = layout.axis.size - 1 if layout.axis.strides[0] < 0 else 0
    return [s.address + layout.offsets[i] - back * s.dtype.itemsize for i, s in enumerate(_specs(request))]
