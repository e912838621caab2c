"""Scans of CPU arrays, in NumPy: the semantics of the kernels, and their bits.

The kernels' working layout is kept as axes: items, lanes, vectors, warps and units come first, rows
last, so every step of the defined order (order.py) is one NumPy call on whole arrays. A group of
units at a time passes through, for as many rows as fit `BLOCK` elements, so memory stays bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from cuscan.dtypes import DTYPES, EXACT, DType, Kind
from cuscan.interop.view import ArrayView, HostLibrary
from cuscan.order import GROUP, LANES, SECTION, Order
from cuscan.overlap import check_overlap
from cuscan.plan import order_of
from cuscan.request import ScanRequest, check_initial, make_request

Array = np.ndarray[Any, Any]
Combine = Callable[[Array, Array], Array]

BLOCK = 2**20  # elements that pass through at a time


class Part(NamedTuple):
    """Partial results, and where they exist: at the start of a row nothing comes before."""

    exists: Any
    value: Array


def run(value: ArrayView, *, mask: ArrayView | None, initial: object, out: ArrayView | None, **call: Any) -> Any:
    """Run one call of `api.scan`; returns an array of the library of `value`, or `out`'s owner."""
    request = make_request(value=value, mask=mask, has_initial=initial is not None, out=out, **call)
    number = None if initial is None else check_initial(initial, request.result.dtype)
    library = cast(HostLibrary, value.library)
    if out is None:
        result = request.result
        new = library.empty(result.shape, result.strides, result.dtype, value.device)
        out = library.adopt(new, "out")
    else:
        check_overlap(value, mask, out)
    kept = None if mask is None else library.as_numpy(mask)
    library.as_numpy(out)[...] = evaluate(request, library.as_numpy(value), kept, number)
    library.written(out.owner)
    return out.owner


def evaluate(request: ScanRequest, value: Array, mask: Array | None, initial: complex | None) -> Array:
    """The result of a request on NumPy arrays, in the result dtype; bfloat16 comes and goes as uint16."""
    shape, axis = request.value.shape, request.axis
    length = shape[axis]
    rows = math.prod(shape[:axis]) * math.prod(shape[axis + 1 :])
    result = np.empty((rows, length), _storage(request.result.dtype))

    def as_rows(array: Array) -> Array:
        moved = np.moveaxis(np.broadcast_to(array, shape), axis, -1)
        return (moved[..., ::-1] if request.reverse else moved).reshape(rows, length)

    if result.size:
        with np.errstate(all="ignore"):
            _scan_rows(request, as_rows(value), None if mask is None else as_rows(mask), initial, result)
    moved = result.reshape(*shape[:axis], *shape[axis + 1 :], length)
    return np.moveaxis(moved[..., ::-1] if request.reverse else moved, -1, axis)


def _scan_rows(request: ScanRequest, value: Array, mask: Array | None, initial: complex | None, result: Array) -> None:
    order = order_of(request)
    carry_dtype = _storage(DTYPES[request.carry])
    identity = _identity(request)
    rows, length = value.shape
    span = order.unit * GROUP
    block = max(BLOCK // min(span, length), 1)
    for first in range(0, rows, block):
        start = np.full(min(block, rows - first), 0 if initial is None else initial, carry_dtype)
        carry = Carry(request.op.combine, Part(np.bool_(request.has_initial), start))
        for position in range(0, length, span):
            window = slice(first, first + block), slice(position, position + span)
            elements = to_accumulator(value[window], request.value.dtype, request.result.dtype)
            if mask is not None:
                elements = np.where(mask[window].view(np.uint8) != 0, elements, identity)
            blocked = _block(elements, order)
            prefix = _prefixes(request.op.combine, blocked, carry)
            scanned = _walk(request, blocked, prefix, identity)
            result[window] = to_result(_unblock(scanned, elements.shape), request.result.dtype)


# ---- elements ------------------------------------------------------------------------------------


def to_accumulator(value: Array, dtype: DType, result: DType) -> Array:
    """Elements of `dtype` as accumulators of a result dtype (elements.cuh)."""
    if dtype.kind is Kind.BOOL:
        value = value.view(np.uint8) != 0  # any byte that is not zero is true
    elif dtype.name == "bfloat16":
        value = (value.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if result.kind in EXACT:
        value = _truncate(value, result).astype(result.name)  # integers wrap to the result's width first
    return value.astype(result.accumulator)


def _truncate(value: Array, result: DType) -> Array:
    """Floating point as 64-bit integers, saturated; NumPy leaves what does not fit to the machine."""
    if value.dtype.kind != "f" or result.kind is Kind.BOOL:
        return value
    if value.dtype.itemsize == 2:
        value = value.astype(np.float32)
    limits = np.iinfo(np.int64)
    inside = np.abs(value) < 2.0**63
    outside = np.where(value > 0, limits.max, np.where(value < 0, limits.min, 0))
    signed = np.where(inside, np.where(inside, value, 0).astype(np.int64), outside)
    if result.name != "uint64":
        return signed
    large = (value >= 2.0**63) & (value < 2.0**64)
    unsigned = np.where(large, np.where(large, value, 0).astype(np.uint64), signed.astype(np.uint64))
    return np.where(value >= 2.0**64, np.iinfo(np.uint64).max, unsigned)


def to_result(value: Array, result: DType) -> Array:
    """Accumulators, rounded or wrapped once to the result dtype (types.cuh)."""
    if result.name != "bfloat16":
        return value.astype(result.name)
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), 0x7FC0, rounded).astype(np.uint16)


def _storage(dtype: DType) -> np.dtype[Any]:
    return np.dtype("uint16" if dtype.name == "bfloat16" else dtype.name)


def _identity(request: ScanRequest) -> Array:
    result = request.result.dtype
    return np.array(request.op.identity(result)).astype(result.accumulator)


# ---- layout --------------------------------------------------------------------------------------


def _block(elements: Array, order: Order) -> Array:
    """(rows, n) as (items, lanes, vectors, warps, units, rows); no level is larger than n asks for."""
    rows, n = elements.shape
    items, lanes = min(order.items, n), min(LANES, -(-n // order.items))
    vectors, warps = min(order.vectors, -(-n // order.vector)), min(order.warps, -(-n // order.warp_tile))
    units = -(-n // order.unit)
    padded = np.zeros((rows, units * warps * vectors * lanes * items), elements.dtype)
    padded[:, :n] = elements  # no stored result depends on what is behind
    return np.ascontiguousarray(padded.reshape(rows, units, warps, vectors, lanes, items).T)


def _unblock(blocked: Array, shape: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(blocked.T).reshape(shape[0], -1)[:, : shape[1]]


# ---- the defined order ---------------------------------------------------------------------------


class Carry:
    """What precedes a group of units: the sections before, and the groups before in the section."""

    def __init__(self, combine: Combine, initial: Part) -> None:
        self._combine = combine
        self._section = initial
        self._groups: list[Array] = []  # totals, in this section

    def before_group(self) -> Part:
        if not self._groups:
            return self._section
        groups = _kogge_stone(self._combine, np.stack(self._groups))
        return _join(self._combine, self._section, Part(np.True_, groups[-1]))

    def pass_group(self, total: Array) -> None:
        self._groups.append(total)
        if len(self._groups) == SECTION // GROUP:
            self._section = self.before_group()
            self._groups = []


def _prefixes(combine: Combine, blocked: Array, carry: Carry) -> Part:
    """What precedes each thread's items, for one group of units; the carry passes the group."""
    totals = blocked[0].copy()
    for item in blocked[1:]:
        totals = combine(totals, item)
    lanes = _kogge_stone(combine, totals)
    vectors = _fold(combine, lanes[-1])
    warps = _fold(combine, vectors[-1])
    before_group = carry.before_group()
    units = _kogge_stone(combine, warps[-1].astype(before_group.value.dtype))
    carry.pass_group(units[-1])

    carries = _join(combine, before_group, _before(units))
    carries = Part(carries.exists, carries.value.astype(blocked.dtype))
    return _join(
        combine,
        _join(combine, carries, _before(warps)),
        _join(combine, _before(vectors), _before(lanes)),
    )


def _walk(request: ScanRequest, blocked: Array, prefix: Part, identity: Array) -> Array:
    """The items one by one: `Running` in elements.cuh."""
    scanned = np.empty_like(blocked)
    running = prefix
    for i, item in enumerate(blocked):
        if request.exclusive:
            scanned[i] = np.where(running.exists, running.value, identity)
        running = _join(request.op.combine, running, Part(np.True_, item))
        if not request.exclusive:
            scanned[i] = running.value
    return scanned


def _join(combine: Combine, earlier: Part, later: Part) -> Part:
    """One part after another; what does not exist is not combined, not even as an identity."""
    combined = combine(earlier.value, later.value)
    both = earlier.exists & later.exists
    if both.all():
        return Part(np.True_, combined)
    alone = np.where(later.exists, later.value, earlier.value)
    return Part(earlier.exists | later.exists, np.where(both, combined, alone))


def _before(inclusive: Array) -> Part:
    """From inclusive scans along the first axis to what precedes each place."""
    places = np.arange(len(inclusive)).reshape(-1, *[1] * (inclusive.ndim - 1))
    return Part(places > 0, np.concatenate([inclusive[:1], inclusive[:-1]]))


def _kogge_stone(combine: Combine, values: Array) -> Array:
    """The inclusive scan along the first axis by doubling distances, in place."""
    distance = 1
    while distance < len(values):
        values[distance:] = combine(values[:-distance], values[distance:])
        distance *= 2
    return values


def _fold(combine: Combine, values: Array) -> Array:
    """The inclusive scan along the first axis from left to right."""
    folded = values.copy()
    for i in range(1, len(values)):
        folded[i] = combine(folded[i - 1], values[i])
    return folded
