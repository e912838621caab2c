"""Scans of lines that one warp holds: the defined order as a list of NumPy calls on buffers, which like calls share.

Lines lie along the last axis of the buffers, and items along the first, so that nearly every call is on arrays that
are contiguous and do not overlap: these take NumPy a third of the time of others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cuscan.backends.combine import gates_hold, is_gated, show_no_trace
from cuscan.backends.convert import storage, to_accumulator, to_result
from cuscan.backends.exact import is_sum_of_segments
from cuscan.backends.fields import FieldAlgebra, Inputs
from cuscan.backends.steps import States, at
from cuscan.backends.tree import Shape
from cuscan.dtypes import DTYPES, EXACT, INEXACT, DType, Kind
from cuscan.kept import Table
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.order import Order
from cuscan.request import ScanRequest
from cuscan.states import SCALAR

Array = np.ndarray[Any, Any]

MOST = 2**13  # elements; more of them take less time side by side
MOST_IDLE = 256  # buffers that no call uses


def is_short(request: ScanRequest, order: Order) -> bool:
    """Whether a request is for `ShortScan`."""
    size, length = math.prod(request.shape), request.shape[request.axis] + request.include_initial
    if order.paired or not 0 < size <= MOST or length > order.warp_tile:
        return False
    if request.carry_in or request.carry_out or (request.op.states is not SCALAR and not _is_affine(request)):
        return False
    if request.skip_nan and request.result.dtype.kind not in INEXACT:
        return False
    return request.segments is None or (is_gated(request) and not is_sum_of_segments(request))


def _is_affine(request: ScanRequest) -> bool:
    return request.op is LINEAR_RECURRENCE and request.result.dtype.kind is not Kind.COMPLEX


class ShortScan:
    """The scans of a request's lines."""

    def __init__(self, request: ScanRequest, order: Order) -> None:
        self._request = request
        self._algebra = FieldAlgebra(request, None, gates=request.segments is not None)
        self._shape = Shape.of(order, request.shape[request.axis] + request.include_initial)

    def __call__(self, inputs: Inputs, start: tuple[Any, ...] | None, out: Array, last: Array | None) -> bool:
        """Scan arrays of (lines, elements); False if gates do not give the same bits, all arrays being as they were."""
        buffers = _idle.pop(self, None) or _Lines(self._request, self._algebra, self._shape, len(out))
        scanned = buffers.scan(inputs, start)
        if scanned is not None:
            out[...] = scanned
            if last is not None:
                last[...] = buffers.last
        _idle[self] = buffers
        while len(_idle) > MOST_IDLE:
            _idle.popitem(last=False)
        return scanned is not None


class _Lines:
    """Buffers of so many lines, and every step of the order on them as a call without arguments."""

    def __init__(self, request: ScanRequest, algebra: FieldAlgebra, shape: Shape, count: int) -> None:
        self._request, self._result = request, request.result.dtype
        n = request.shape[request.axis]
        dtype = storage(DTYPES[self._result.accumulator])
        self._direct = [_is_cast(spec.dtype, self._result) for spec in request.values]
        self._combine = algebra.combine
        self._steps: list[Callable[[], Any]] = []

        def buffer() -> Array:
            return np.zeros((count, shape.elements), dtype)  # no result depends on what is behind the lines

        arrays, results = [buffer() for _ in request.values], buffer()
        self._inputs = [array[:, :n] for array in arrays]
        self._results = results[:, : n + request.include_initial]
        self.last = self._results[:, -1]
        self._replaced = np.zeros((count, n), np.bool_)
        self._identity = np.asarray(request.op.identity(self._result)[-1]).astype(dtype)
        self._carry = DTYPES[request.carry]
        self._start = np.zeros(() if request.row_initial is None else count, dtype)

        planes = algebra.split(tuple([_by_items(array, shape) for array in arrays]))
        self._gate = None
        if request.segments is not None:
            self._gate, self._passes, self._clears = self._inputs[0], None, dtype.type(0)  # of a recurrence: its decay
        if algebra.gate is not None:
            gates = np.zeros((count, shape.elements), planes[0].dtype)
            self._gate, planes = gates[:, :n], (_by_items(gates, shape), *planes)
            self._passes, self._clears = (np.asarray(end, gates.dtype) for end in algebra.gate.ends(gates.dtype))
        elements = _empty_like(planes)
        self._copy(planes, elements)
        start = algebra.split((self._start,)) if request.has_initial else None
        shown = algebra.split((_by_items(results, shape),))
        self._walk(elements, self._scan_lanes(elements, shape), shown, start, algebra.split((self._identity,)))

    def _scan_lanes(self, elements: States, shape: Shape) -> States:
        """What lines add up to, up to each lane of each vector."""
        lanes = at(elements, 0)
        totals, now, other = (_empty_like(lanes) for _ in range(3))
        for i in range(1, shape.items):
            self._step(lanes, at(elements, i), totals)
            lanes = totals
        for distance in (2**level for level in range((shape.lanes - 1).bit_length())):
            self._copy(at(lanes, slice(distance)), at(now, slice(distance)))
            ahead = slice(distance, None)
            self._step(at(lanes, slice(-distance)), at(lanes, ahead), at(now, ahead))
            lanes, now, other = now, other, now
        for v in range(1, shape.vectors):
            later = at(lanes, (slice(None), v))
            self._step(at(lanes, (slice(-1, None), v - 1)), later, later)
        return lanes

    def _walk(self, elements: States, lanes: States, results: States, start: States | None, identity: States) -> None:
        """Take the items one by one, and put what is asked for in the results."""
        hidden, first = self._combine.hidden, at(elements, 0)
        shown, items = elements[hidden:], len(elements[0])
        exclusive = self._request.exclusive or self._request.include_initial
        for ends, begins in (_LANES, _VECTORS):  # where something precedes in the line
            before, later = at(lanes, ends), at(first, begins)
            if start is not None:
                ahead = _empty_like(before[hidden:])
                self._step(start, before, ahead, shown=True)
                before = (*before[:hidden], *ahead)
            if exclusive:
                self._copy(before[hidden:], at(results, (0, *begins)))
            self._step(before[hidden:], later, later[hidden:], shown=True)
        if exclusive:
            self._copy(identity if start is None else start, at(results, (0, 0, 0)))
        if start is not None:
            self._step(start, at(first, (0, 0)), at(shown, (0, 0, 0)), shown=True)
        for i in range(1, items - exclusive):
            self._step(at(shown, i - 1), at(elements, i), at(shown, i), shown=True)
        if exclusive:
            shown, results = at(shown, slice(-1)), at(results, slice(1, None))
        self._copy(shown, results)

    def _copy(self, states: States, out: States) -> None:
        for part, field in zip(states, out, strict=True):
            if field.size:
                self._steps.append(partial(np.copyto, field, part))

    def _step(self, earlier: States, later: States, out: States, *, shown: bool = False) -> None:
        """Combine states of the elements, or what is shown of the earlier ones."""
        if out[0].size:
            self._steps.extend(self._combine.calls(earlier, later, out, shown=shown))

    def scan(self, inputs: Inputs, start: tuple[Any, ...] | None) -> Array | None:
        """The scans of lines, in the buffers; None if gates do not give the same bits."""
        request, result = self._request, self._result
        for place, value, spec, direct in zip(self._inputs, inputs.values, request.values, self._direct, strict=True):
            place[...] = value if direct else to_accumulator(value, spec.dtype, result)
        elements = self._inputs[-1]
        if inputs.mask is not None:
            np.copyto(elements, self._identity, where=np.equal(inputs.mask.view(np.uint8), 0, self._replaced))
        if request.skip_nan:
            np.copyto(elements, self._identity, where=np.isnan(elements, self._replaced))
        if self._gate is not None:
            if not gates_hold(request, elements):
                return None
            if self._passes is not None:
                self._gate[...] = self._passes
            np.copyto(self._gate, self._clears, where=inputs.segments)
        if start is not None:
            self._start[...] = storage(self._carry).type(start[0])
        elif inputs.row_initial is not None:
            assert request.row_initial is not None
            self._start[...] = to_accumulator(inputs.row_initial, request.row_initial.dtype, self._carry)
        for step in self._steps:
            step()
        scanned = to_result(self._results, result)
        return None if self._gate is not None and not show_no_trace(request, scanned) else scanned


_LANES = (slice(-1),), (slice(1, None),)
_VECTORS = (-1, slice(-1)), (0, slice(1, None))


def _by_items(array: Array, shape: Shape) -> Array:
    """A view of (lines, elements) as (items, lanes, vectors, lines)."""
    return array.reshape(len(array), shape.vectors, shape.lanes, shape.items).transpose(3, 2, 1, 0)


def _empty_like(states: States) -> States:
    """Contiguous arrays of these shapes, in which no NumPy call finds anything unusual."""
    return tuple([np.ones(part.shape, part.dtype) for part in states])


def _is_cast(dtype: DType, result: DType) -> bool:
    """Whether NumPy converts elements to accumulators as the kernels do."""
    return dtype.kind is not Kind.BOOL and dtype.name != "bfloat16" and (result.kind not in EXACT or dtype is result)


_idle: Table[ShortScan, _Lines] = Table()  # what no thread uses, the latest last
