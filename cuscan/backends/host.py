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

from cuscan.backends.convert import storage, to_accumulator, to_result
from cuscan.dtypes import DTYPES
from cuscan.errors import ScanTypeError
from cuscan.interop.view import ArrayView, HostLibrary
from cuscan.order import GROUP, LANES, SECTION, Order
from cuscan.overlap import check_overlap
from cuscan.plan import order_of
from cuscan.request import SEGMENTS, Flags, Operands, ScanRequest, check_offsets, check_start, make_request
from cuscan.states import make_states

Array = np.ndarray[Any, Any]
Combine = Callable[[Array, Array], Array]

BLOCK = 2**20  # elements that pass through at a time


class Part(NamedTuple):
    """Partial results, and where they exist: at the start of a row nothing comes before."""

    exists: Any
    value: Array


class Inputs(NamedTuple):
    """The arrays that a scan reads, as NumPy sees them."""

    values: tuple[Array, ...]
    mask: Array | None = None
    segments: Array | None = None
    row_initial: Array | None = None


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any.

    Offsets are always checked: that costs nothing beside a scan in NumPy.
    """
    request = make_request(flags, operands, has_initial=initial is not None)
    start = check_start(initial, request.op, request.result.dtype)
    main = operands.values[-1]
    library = cast(HostLibrary, main.library)

    def seen(view: ArrayView | None) -> Any:
        return None if view is None else library.as_numpy(view)

    segments, row_initial = seen(operands.get(*SEGMENTS)), seen(operands.get("initial"))
    inputs = Inputs(tuple(map(seen, operands.values)), seen(operands.get("mask")), segments, row_initial)
    if operands.segments == "offsets":
        check_offsets(segments, request.shape[request.axis])
    outs = operands.outs
    if outs is None:
        new = (library.empty(s.shape, s.strides, s.dtype, main.device) for s in request.results)
        outs = tuple(library.adopt(array, "out") for array in new)
    else:
        check_overlap(operands)
    results, last = evaluate(request, inputs, start)
    for out, result in zip(outs, results, strict=True):
        library.as_numpy(out)[...] = result
        library.written(out.owner)
    owners = tuple(out.owner for out in outs)
    if request.last is None:
        return owners
    state = library.adopt(library.empty(last.shape, _c_strides(last.shape), request.last.dtype, main.device), "last")
    library.as_numpy(state)[...] = last
    return (*owners, state.owner)


def evaluate(request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None) -> tuple[list[Array], Array]:
    """The results of a request on NumPy arrays, and the last states; bfloat16 comes and goes as uint16."""
    if request.op.combine is None:
        raise ScanTypeError(f"op={request.op.name!r} has no numpy= callable, which scans of CPU arrays need")
    shape, axis = request.shape, request.axis
    others = shape[:axis] + shape[axis + 1 :]
    rows, length = math.prod(others), shape[axis] + request.include_initial
    results = [np.empty((rows, length), storage(result.dtype)) for result in request.results]
    last = np.zeros(rows, storage((request.last or request.result).dtype))

    def as_rows(array: Array) -> Array:
        moved = np.moveaxis(np.broadcast_to(array, shape), axis, -1)
        return (moved[..., ::-1] if request.reverse else moved).reshape(rows, shape[axis])

    if not shape[axis] and request.last is not None:  # what comes in goes out
        last[...] = _initial_rows(request, inputs, start, others, rows)
    if rows * length:
        arranged = Inputs(
            tuple(map(as_rows, inputs.values)),
            None if inputs.mask is None else as_rows(inputs.mask),
            None if inputs.segments is None else _restarts(request, inputs.segments, as_rows, rows),
            None if inputs.row_initial is None else np.broadcast_to(inputs.row_initial, others).reshape(rows),
        )
        with np.errstate(all="ignore"):
            _scan_rows(request, arranged, start, results, last)

    def as_asked(array: Array) -> Array:
        moved = array.reshape(*others, length)
        return np.moveaxis(moved[..., ::-1] if request.reverse else moved, -1, axis)

    return [as_asked(result) for result in results], last.reshape(others)


def _initial_rows(
    request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None, others: tuple[int, ...], rows: int
) -> Any:
    if inputs.row_initial is None:
        return 0 if start is None else start[0]
    assert request.row_initial is not None
    initial = np.broadcast_to(inputs.row_initial, others).reshape(rows)
    return to_accumulator(initial, request.row_initial.dtype, DTYPES[request.carry])


def _restarts(request: ScanRequest, segments: Array, as_rows: Callable[[Array], Array], rows: int) -> Array:
    """Where segments start, in scan order; the start of a row counts only where a flag says so."""
    assert request.segments is not None
    length = request.shape[request.axis]
    if request.segments.kind == "reset":
        return np.not_equal(as_rows(segments).view(np.uint8), 0)
    if request.segments.kind == "offsets":
        starts = np.zeros(length + 1, np.bool_)
        inside = segments[(segments > 0) & (segments < length)]
        starts[length - inside if request.reverse else inside] = True
        return np.broadcast_to(starts[:length], (rows, length))
    if segments.ndim == 1:
        segments = segments.reshape([-1 if i == request.axis else 1 for i in range(len(request.shape))])
    keys = as_rows(segments)
    keys = to_accumulator(keys, request.segments.array.dtype, request.segments.array.dtype)
    starts = np.zeros(keys.shape, np.bool_)
    starts[:, 1:] = keys[:, 1:] != keys[:, :-1]
    return starts


def _scan_rows(
    request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None, results: list[Array], last: Array
) -> None:
    order = order_of(request)
    algebra = _Algebra(request)
    rows, length = results[0].shape
    span = order.unit * GROUP
    block = max(BLOCK // min(span, length), 1)
    for first in range(0, rows, block):
        carry = Carry(
            algebra.combine, Part(np.bool_(request.has_initial), algebra.row_start(inputs, start, first, block))
        )
        for position in range(0, length, span):
            window = slice(first, first + block), slice(position, position + span)
            shape = results[0][window].shape
            blocked = _block(algebra.lift(inputs, start, window, shape), order)
            prefix = _prefixes(algebra.combine, blocked, carry)
            states = _unblock(_walk(algebra, blocked, prefix, start), shape)
            for result, spec, lowered in zip(results, request.results, request.op.states.lower(states), strict=True):
                result[window] = to_result(lowered, spec.dtype)
            last[first : first + block] = request.op.states.lower(states[:, -1])[0]


# ---- states --------------------------------------------------------------------------------------


class _Algebra:
    """A request's operator on states, segments included: elements.cuh and segments.cuh."""

    def __init__(self, request: ScanRequest) -> None:
        assert request.op.combine is not None
        self._inner = request.op.combine
        self._request = request
        self._state = request.op.states.dtype(storage(DTYPES[request.result.dtype.accumulator]))
        self._carry = request.op.states.dtype(storage(DTYPES[request.carry]))
        self.segmented = request.segments is not None

    def combine(self, earlier: Array, later: Array) -> Array:
        if not self.segmented:
            return self._inner(earlier, later)
        state: Array = np.empty(np.broadcast(earlier, later).shape, earlier.dtype)
        state["value"] = np.where(later["restarts"], later["value"], self._inner(earlier["value"], later["value"]))
        state["restarts"] = earlier["restarts"] | later["restarts"]
        return state

    def _marked(self, states: Array, restarts: Any) -> Array:
        if not self.segmented:
            return states
        return make_states(np.dtype([("value", states.dtype), ("restarts", "?")]), (states, restarts), states.shape)

    def row_start(self, inputs: Inputs, start: tuple[Any, ...] | None, first: int, count: int) -> Array:
        """What rows start from."""
        rows = slice(first, first + count)
        if inputs.row_initial is not None:
            assert self._request.row_initial is not None
            spec = self._request.row_initial.dtype
            start = (to_accumulator(inputs.row_initial[rows], spec, DTYPES[self._request.carry]),)
        states = self._request.op.states
        parts = self._identity() if start is None else states.start(*start)
        return self._marked(make_states(self._carry, parts, inputs.values[0][rows].shape[:1]), False)

    def _identity(self) -> tuple[complex, ...]:
        return self._request.op.identity(self._request.result.dtype)

    def identity(self) -> Array:
        return make_states(self._state, self._identity(), ())

    def segment_start(self, start: tuple[Any, ...] | None) -> Array:
        """What a segment within a row starts from: the state that an exclusive scan shows there."""
        if start is None or not self._request.op.segments_have_initial:
            return self.identity()
        carry = make_states(self._carry, self._request.op.states.start(*start), ())
        return carry.astype(self._state)

    def lift(self, inputs: Inputs, start: tuple[Any, ...] | None, window: Any, shape: tuple[int, ...]) -> Array:
        """The states of the elements of a window; what is behind them is of no consequence."""
        request = self._request
        values = [value[window] for value in inputs.values]
        dtypes = [DTYPES[name] for name in request.op.dtypes] or [request.result.dtype] * len(values)
        pairs = zip(values, request.values, dtypes, strict=True)
        parts = request.op.states.lift(*(to_accumulator(v, spec.dtype, dtype) for v, spec, dtype in pairs))
        states = make_states(self._state, parts, values[0].shape)
        if request.op.indexed:
            index = np.arange(window[1].start, window[1].start + states.shape[1])
            states["index"] = request.shape[request.axis] - 1 - index if request.reverse else index
        if inputs.mask is not None:
            states = np.where(inputs.mask[window].view(np.uint8) != 0, states, self.identity())
        if request.skip_nan:
            missing = [_is_nan(v, spec.dtype.name) for v, spec in zip(values, request.values, strict=True)]
            states = np.where(np.logical_or.reduce(missing), self.identity(), states)
        restarts: Any = False
        if inputs.segments is not None:
            restarts = inputs.segments[window]
            if start is not None and request.op.segments_have_initial:
                states = np.where(restarts, self._inner(self.segment_start(start), states), states)
        states = self._marked(states, restarts)
        padded = np.zeros(shape, states.dtype)
        padded[:, : states.shape[1]] = states
        return padded

    def shown_before(self, running: Part, item: Array, start: tuple[Any, ...] | None) -> Array:
        """What an exclusive scan gives at an element."""
        if not self.segmented:
            return np.where(running.exists, running.value, self.identity())
        before = np.where(running.exists, running.value["value"], self.identity())
        if self._request.exclusive:
            before = np.where(item["restarts"], self.segment_start(start), before)
        return before

    def shown(self, states: Array) -> Array:
        return states["value"] if self.segmented else states

    @property
    def shows_before(self) -> bool:
        return self._request.exclusive or self._request.include_initial

    @property
    def shown_dtype(self) -> np.dtype[Any]:
        return self._state


def _is_nan(value: Array, name: str) -> Array:
    if name == "bfloat16":
        return (value.view(np.uint16) & np.uint16(0x7FFF)) > np.uint16(0x7F80)
    return np.isnan(value) if value.dtype.kind in "fc" else np.zeros(value.shape, np.bool_)


def _c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


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


def _walk(algebra: _Algebra, blocked: Array, prefix: Part, start: tuple[Any, ...] | None) -> Array:
    """The items one by one: `Running` in elements.cuh."""
    scanned = np.empty(blocked.shape, algebra.shown_dtype)
    running = prefix
    for i, item in enumerate(blocked):
        if algebra.shows_before:
            scanned[i] = algebra.shown_before(running, item, start)
        running = _join(algebra.combine, running, Part(np.True_, item))
        if not algebra.shows_before:
            scanned[i] = algebra.shown(running.value)
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
