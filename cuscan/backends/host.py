"""Scans of CPU arrays in NumPy, with the semantics and the bits of the kernels.

Exact operators use `ufunc.accumulate`, all others the defined order. Similar calls share what the first one prepared.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from cuscan.backends import repeats
from cuscan.backends.arrange import as_lines, lines_of, moved, others_of, put_back, restarts, standing, starts_of
from cuscan.backends.combine import are_tame, gates_hold, goes_in_any_order, is_gated, is_tamed, show_no_trace
from cuscan.backends.convert import storage, to_accumulator
from cuscan.backends.exact import (
    accumulate,
    find_extrema,
    is_exact,
    is_extremum_of_segments,
    is_sum_of_segments,
    sum_segments,
)
from cuscan.backends.fields import FieldAlgebra, Inputs
from cuscan.backends.lines import BUFFER, Outputs, keep_carry, scan_lines
from cuscan.backends.short import Scan, ShortScan, is_short
from cuscan.dtypes import DTYPES
from cuscan.errors import ScanTypeError
from cuscan.interop.view import ArrayView, HostLibrary
from cuscan.kept import MOST, keep
from cuscan.order import Order
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import BESIDE, CARRY, SEGMENTS, Flags, Operands, find_dtype, one_or_all
from cuscan.request.checks import check_offsets
from cuscan.request.initial import check_start
from cuscan.request.layout import order_of
from cuscan.request.overlap import check_overlap
from cuscan.specs import ArraySpec

Array = np.ndarray[Any, Any]


class _Call:
    """A call, with everything that the memory and the values of its arguments do not change.

    Offsets are always checked: next to a scan in NumPy, that costs nothing.
    """

    like = None

    def __init__(self, request: ScanRequest, operands: Operands) -> None:
        self._request, self._roles, self._device = request, operands.roles, operands.views[0].device
        self._library = cast(HostLibrary, operands.values[-1].library)
        made = request.results if operands.outs is None and not request.only_carry else ()
        specs = [(spec.shape, spec.strides, spec.dtype) for spec in made]
        self._makers = [self._library.maker(*spec, self._device) for spec in specs]
        self._kinds = [self._library.adopt(make(), "out").kind for make in self._makers]
        self._prepared = Prepared(request)

    def run(self, arrays: tuple[Any, ...], outs: tuple[Any, ...], _: list[int], initial: Any) -> tuple[Any, ...]:
        """Run a call on NumPy arrays of NumPy's own dtypes; array views in place of some of them hold numbers."""
        given = [np.asarray(array.owner) if type(array) is ArrayView else array for array in arrays]
        if outs:
            every = [self._library.adopt(array, "") for array in (*given, *outs)]
            check_overlap(self._roles, [view.kind for view in every], [view.pointer for view in every])
        results = [*outs] or [make() for make in self._makers]
        done = self._evaluate(given, results, initial)
        last = [] if self._request.last is None else [done.last]
        carry = [one_or_all(done.carry)] if self._request.carry_out else []
        return (*results, *last, *carry)

    def run_on(self, operands: Operands, initial: Any) -> tuple[Any, ...]:
        """Run a call on arrays of any library."""
        request, library, outs = self._request, self._library, operands.outs
        if outs is None:
            outs = tuple([ArrayView(make(), kind, 0) for make, kind in zip(self._makers, self._kinds, strict=True)])
        else:
            every = operands.views + outs
            check_overlap(operands.roles, [a.kind for a in every], [a.pointer for a in every])
        given = [np.asarray(a.owner) if a.kind.is_number else library.as_numpy(a) for a in operands.views]
        done = self._evaluate(given, [library.as_numpy(out) for out in outs], initial)
        if operands.outs is not None:
            for out in outs:
                library.written(out.owner)
        owners = [out.owner for out in outs]
        if request.last is not None:
            owners.append(self._made(request.last, done.last))
        if request.carry_out:
            owners.append(one_or_all(list(map(self._made, request.carry_out, done.carry))))
        return tuple(owners)

    def _evaluate(self, arrays: list[Array], outs: list[Array], initial: Any) -> Outputs:
        request = self._request
        start = None if initial is None else check_start(initial, request.op, request.result.dtype)
        return evaluate(request, inputs_of(request, self._roles, arrays), start, outs, self._prepared)

    def _made(self, spec: ArraySpec, values: Array) -> Any:
        """Return a new array of the library with these values."""
        strides = tuple(math.prod(values.shape[i + 1 :]) for i in range(values.ndim))
        out = self._library.adopt(self._library.maker(values.shape, strides, spec.dtype, self._device)(), "out")
        self._library.as_numpy(out)[...] = values
        return out.owner


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; return arrays of the library of the values, or those of `outs` if there are any."""
    return _find_call(flags, operands, initial is not None).run_on(operands, initial)


def inputs_of(request: ScanRequest, roles: tuple[str, ...], arrays: Sequence[Array]) -> Inputs:
    """Return the arrays of a call by role, with the starts of segments in place of offsets, which are checked."""
    count, mask, place, row_initial, carry = _places_of(roles)
    segments = None if place is None else arrays[place]
    if segments is not None and request.segments is not None and request.segments.kind == "offsets":
        check_offsets(segments, request.shape[request.axis])
        segments = starts_of(request, segments)
    return Inputs(
        tuple(arrays[:count]),
        None if mask is None else arrays[mask],
        segments,
        None if row_initial is None else arrays[row_initial],
        tuple(arrays[carry:]),
    )


@functools.lru_cache(MOST)
def _places_of(roles: tuple[str, ...]) -> tuple[int, int | None, int | None, int | None, int]:
    """Return the number of values, the indices of mask, segments and initial values, and where carries begin."""
    places = {"segments" if name in SEGMENTS else name: place for place, name in enumerate(roles)}
    carries = [name in CARRY for name in roles]
    beside = sum(name in BESIDE for name in roles)
    count = len(roles) - beside
    return count, places.get("mask"), places.get("segments"), places.get("initial"), len(roles) - sum(carries)


def _find_call(flags: Flags, operands: Operands, has_initial: bool) -> _Call:
    """Return the stored call that is similar, or store a new one."""
    views = operands.views if operands.outs is None else operands.views + operands.outs
    key, dtypes = operands.key, [view.dtype.name for view in views]
    dtypes += [] if flags.dtype is None else [find_dtype(flags.dtype).name]
    if key is None or "bfloat16" in dtypes:  # `_Call.run` needs arrays of NumPy's own dtypes
        key = flags, operands.roles, has_initial, *[view.kind for view in views]
        try:
            found = repeats.calls.get(key)
        except TypeError:  # an unhashable argument
            return _Call(make_request(flags, operands, has_initial=has_initial), operands)
        if found is not None:
            return cast(_Call, found)
    call: Any = _Call(make_request(flags, operands, has_initial=has_initial), operands)
    return cast(_Call, keep(repeats.calls, key, call))


class Prepared:
    """How to run a request: everything that follows from the request alone."""

    def __init__(self, request: ScanRequest) -> None:
        if request.op.combine is None:
            raise ScanTypeError(f"op={request.op.name!r} has no numpy= callable, which scans of CPU arrays need")
        self.is_exact = is_exact(request)
        self.order = order_of(request)
        self.gates = is_gated(request)
        self.tames = is_tamed(request) and not self.gates
        self.sums_segments = is_sum_of_segments(request) and not is_short(request)
        self.finds_extrema = is_extremum_of_segments(request)
        self.scan: Scan = partial(_scan_in_order, request, self)
        if is_short(request):
            self.scan = ShortScan(request, self.scan)


def evaluate(
    request: ScanRequest,
    inputs: Inputs,
    start: tuple[Any, ...] | None,
    outs: list[Array] | None = None,
    prepared: Prepared | None = None,
) -> Outputs:
    """Run a request on arrays from `inputs_of`, into `outs`; return results, last states and carry.

    bfloat16 is uint16.
    """
    prepared = prepared or Prepared(request)
    if outs is None:
        wanted = () if request.only_carry else request.results
        outs = [np.empty(spec.shape, storage(spec.dtype)) for spec in wanted]
    if prepared.is_exact:
        with np.errstate(all="ignore"):
            if accumulate(request, inputs.values[0], inputs.mask, None if start is None else start[0], outs):
                return Outputs(outs, _NOTHING, [])
    return prepared.scan(inputs, start, outs)


_NOTHING: Array = np.empty(0)


_ANY = Order(items=4, vectors=8, warps=8)  # fast in NumPy, for scans that give the same bits in any order


def _scan_in_order(
    request: ScanRequest, prepared: Prepared, inputs: Inputs, start: tuple[Any, ...] | None, outs: list[Array]
) -> Outputs:
    with np.errstate(all="ignore"):
        return _scan_arranged(request, prepared, inputs, start, outs)


def _scan_arranged(
    request: ScanRequest, prepared: Prepared, inputs: Inputs, start: tuple[Any, ...] | None, outs: list[Array]
) -> Outputs:
    lines, elements = lines_of(request), request.shape[request.axis]
    length, others = elements + request.include_initial, others_of(request)

    def one_a_line(array: Array) -> Array:
        return np.broadcast_to(array, others).reshape(lines)

    arranged = Inputs(
        tuple([as_lines(request, value) for value in inputs.values]),
        None if inputs.mask is None else as_lines(request, standing(request, inputs.mask)),
        None if inputs.segments is None else restarts(request, inputs, lines),
        None if inputs.row_initial is None else one_a_line(inputs.row_initial),
        tuple(map(one_a_line, inputs.carry)),
    )
    empty = partial(np.zeros_like, arranged.values[0], order="C", shape=(lines,))
    turned = [moved(request, out) for out in outs]
    outputs = Outputs(
        [out.reshape(lines, length) for out in turned],
        empty(storage((request.last or request.result).dtype)),
        [empty(storage(field.dtype)) for field in request.carry_out],
    )
    if not elements:  # nothing to scan: copy the incoming state to the outgoing one
        algebra = FieldAlgebra(request, start)
        if request.last is not None:
            outputs.last[...] = _initial_rows(request, arranged, start)
        states = algebra.row_start(arranged, slice(None), lines) or algebra.empty(lines)
        keep_carry(algebra, arranged, slice(None), states, outputs.carry)
    if lines * length:
        buffer = np.setbufsize(BUFFER)
        try:
            _scan(request, prepared, arranged, start, outputs)
        finally:
            np.setbufsize(buffer)
    if request.carry_out and request.segments is not None and request.segments.kind == "keys":
        assert inputs.segments is not None
        keys = as_lines(request, standing(request, inputs.segments))[:, -1:]
        outputs.carry[-1][...] = keys[:, 0] if elements else arranged.carry[-1] if arranged.carry else 0
    for out, result in zip(turned, outputs.results, strict=True):
        put_back(out, result)
    return Outputs(outs, outputs.last.reshape(others), [field.reshape(others) for field in outputs.carry])


def _scan(
    request: ScanRequest, prepared: Prepared, inputs: Inputs, start: tuple[Any, ...] | None, outputs: Outputs
) -> None:
    """Scan lines; there must be at least one."""
    if prepared.sums_segments:
        sum_segments(request, inputs, outputs.results[0])
    elif prepared.finds_extrema and find_extrema(request, inputs, outputs.results[0]):
        pass
    elif not (prepared.gates and _scan_gated(request, prepared, inputs, start, outputs)):
        tame = prepared.tames and are_tame([_elements(request, inputs), *_before(request, inputs, start)])
        scan_lines(request, prepared.order, FieldAlgebra(request, start, tame=tame), inputs, outputs)


def _scan_gated(
    request: ScanRequest, prepared: Prepared, inputs: Inputs, start: tuple[Any, ...] | None, outputs: Outputs
) -> bool:
    """Scan segments as gates; return False, with unchanged inputs, if gates do not give the same bits."""
    if not gates_hold(request, _elements(request, inputs), _before(request, inputs, start)):
        return False
    any_order = goes_in_any_order(request)
    algebra = FieldAlgebra(request, start, gates=True)
    if any_order and start is not None and not request.include_initial:
        inputs = algebra.start_lines(inputs)
    in_place = any(np.may_share_memory(out, value) for out in outputs.results for value in inputs.values)
    made = outputs._replace(results=list(map(np.empty_like, outputs.results))) if in_place else outputs
    scan_lines(request, _ANY if any_order else prepared.order, algebra, inputs, made)
    if not show_no_trace(request, made.results[0]):
        return False
    for result, new in zip(outputs.results, made.results, strict=True):
        if new is not result:
            result[...] = new
    return True


def _elements(request: ScanRequest, inputs: Inputs) -> Array:
    """Return the last values of elements, as accumulators."""
    return to_accumulator(inputs.values[-1], request.values[-1].dtype, request.result.dtype)


def _before(request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None) -> list[Array]:
    """Return the numbers that elements are compared with, besides each other."""
    numbers = [] if start is None else [np.asanyarray(start[0]).astype(storage(DTYPES[request.carry]), copy=False)]
    return [*numbers, *inputs.carry[:1]]


def _initial_rows(request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None) -> Any:
    if inputs.row_initial is None:
        return 0 if start is None else start[0]
    assert request.row_initial is not None
    return to_accumulator(inputs.row_initial, request.row_initial.dtype, DTYPES[request.carry])
