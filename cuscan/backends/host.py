"""Scans of CPU arrays, in NumPy: the semantics of the kernels, and their bits.

Exact operators go through `ufunc.accumulate`, all others through the defined order. What a like call needs is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from cuscan.backends.arrange import as_lines, lines_of, moved, others_of, put_back, restarts, standing
from cuscan.backends.combine import gates_hold, goes_in_any_order, is_gated, show_no_trace
from cuscan.backends.convert import storage, to_accumulator
from cuscan.backends.exact import accumulate, is_exact, is_sum_of_segments, sum_segments
from cuscan.backends.fields import FieldAlgebra, Inputs
from cuscan.backends.lines import BUFFER, Outputs, keep_carry, scan_lines
from cuscan.backends.short import ShortScan, is_short
from cuscan.dtypes import DTYPES
from cuscan.errors import ScanTypeError
from cuscan.interop.view import ArrayView, Device, HostLibrary
from cuscan.kept import Table, keep
from cuscan.order import Order
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import CARRY, SEGMENTS, Flags, Operands, one_or_all
from cuscan.request.checks import check_offsets
from cuscan.request.initial import check_start
from cuscan.request.layout import order_of
from cuscan.request.overlap import check_overlap
from cuscan.specs import ArraySpec

Array = np.ndarray[Any, Any]


class _Call:
    """Everything about a call that its arguments' memory and values do not change."""

    def __init__(self, request: ScanRequest, operands: Operands) -> None:
        device = operands.views[0].device
        self.request = request
        self.library = cast(HostLibrary, operands.values[-1].library)
        made = request.results if operands.outs is None and not request.only_carry else ()
        specs = [(spec.shape, spec.strides, spec.dtype) for spec in made]
        self.makers = [self.library.maker(*spec, device) for spec in specs]
        self.kinds = [self.library.adopt(make(), "out").kind for make in self.makers]
        self.prepared = Prepared(request)


_calls: Table[Any, _Call] = Table()


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any.

    Offsets are always checked: that costs nothing beside a scan in NumPy.
    """
    call = _find_call(flags, operands, initial is not None)
    request, library = call.request, call.library
    start = None if initial is None else check_start(initial, request.op, request.result.dtype)

    def seen(view: ArrayView) -> Any:
        return np.asarray(view.owner) if view.kind.is_number else library.as_numpy(view)

    inputs = inputs_of(request, operands.roles, map(seen, operands.views))
    outs = operands.outs
    if outs is None:
        outs = tuple(ArrayView(make(), kind, 0) for make, kind in zip(call.makers, call.kinds, strict=True))
    else:
        every = operands.views + outs
        check_overlap(operands.roles, [a.kind for a in every], [a.pointer for a in every])
    done = evaluate(request, inputs, start, [library.as_numpy(out) for out in outs], call.prepared)
    if operands.outs is not None:
        for out in outs:
            library.written(out.owner)
    owners = [out.owner for out in outs]
    device = operands.views[0].device
    if request.last is not None:
        owners.append(_made(library, request.last, done.last, device))
    if request.carry_out:
        fields = zip(request.carry_out, done.carry, strict=True)
        owners.append(one_or_all([_made(library, spec, field, device) for spec, field in fields]))
    return tuple(owners)


def inputs_of(request: ScanRequest, roles: tuple[str, ...], arrays: Iterable[Array]) -> Inputs:
    """The arrays of a call by what they are; offsets are checked."""
    given = dict(zip(roles, arrays, strict=True))
    carry = tuple(given.pop(name) for name in roles if name in CARRY)
    mask, row_initial = given.pop("mask", None), given.pop("initial", None)
    segments = next((given.pop(name) for name in SEGMENTS if name in given), None)
    if segments is not None and "offsets" in roles:
        check_offsets(segments, request.shape[request.axis])
    return Inputs(tuple(given.values()), mask, segments, row_initial, carry)


def _made(library: HostLibrary, spec: ArraySpec, values: Array, device: Device) -> Any:
    """A new array of the library with these values."""
    strides = tuple(math.prod(values.shape[i + 1 :]) for i in range(values.ndim))
    out = library.adopt(library.maker(values.shape, strides, spec.dtype, device)(), "out")
    library.as_numpy(out)[...] = values
    return out.owner


def _find_call(flags: Flags, operands: Operands, has_initial: bool) -> _Call:
    """What is kept for a like call, or is kept from now on."""
    arrays = operands.views if operands.outs is None else operands.views + operands.outs
    key = flags, operands.roles, has_initial, *[array.kind for array in arrays]
    try:
        return _calls[key]
    except KeyError:
        pass
    except TypeError:  # an argument that cannot be hashed
        return _Call(make_request(flags, operands, has_initial=has_initial), operands)
    return keep(_calls, key, _Call(make_request(flags, operands, has_initial=has_initial), operands))


class Prepared:
    """What follows from a request alone: how it is run, and what that takes."""

    def __init__(self, request: ScanRequest) -> None:
        if request.op.combine is None:
            raise ScanTypeError(f"op={request.op.name!r} has no numpy= callable, which scans of CPU arrays need")
        self.is_exact = is_exact(request)
        self.order = order_of(request)
        self.algebra = FieldAlgebra(request, None)
        self.gates = FieldAlgebra(request, None, gates=True) if is_gated(request) else None
        self.short = ShortScan(request, self.order) if is_short(request, self.order) else None


def evaluate(
    request: ScanRequest,
    inputs: Inputs,
    start: tuple[Any, ...] | None,
    outs: list[Array] | None = None,
    prepared: Prepared | None = None,
) -> Outputs:
    """The results of a request on NumPy arrays, in `outs`, the last states and the carry; bfloat16 as uint16."""
    prepared = prepared or Prepared(request)
    if outs is None:
        wanted = () if request.only_carry else request.results
        outs = [np.empty(spec.shape, storage(spec.dtype)) for spec in wanted]
    mask = None if inputs.mask is None else standing(inputs.mask, request.mask)
    with np.errstate(all="ignore"):
        first = None if start is None else start[0]
        if prepared.is_exact and accumulate(request, inputs.values[0], mask, first, outs[0]):
            return Outputs(outs, _NOTHING, [])
        if prepared.short is not None:
            last = _scan_short(request, inputs._replace(mask=mask), start, outs[0], prepared.short)
            if last is not None:
                return Outputs(outs, last, [])
        buffer = np.setbufsize(BUFFER)
        try:
            return _scan_in_order(request, inputs._replace(mask=mask), start, outs, prepared)
        finally:
            np.setbufsize(buffer)


_NOTHING: Array = np.empty(0)


def _scan_short(
    request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None, out: Array, short: ShortScan
) -> Array | None:
    """Scan short lines; the last states, or None if this way does not give the same bits."""
    others, turned = others_of(request), moved(request, out)
    lines = turned.reshape(-1, turned.shape[-1])
    values, mask, segments, row_initial, _ = inputs
    arranged = Inputs(
        tuple([as_lines(request, value) if value.ndim else value.reshape(1, 1) for value in values]),
        None if mask is None else as_lines(request, mask),
        None if segments is None else restarts(request, inputs, len(lines)),
        None if row_initial is None else np.broadcast_to(row_initial, others).reshape(len(lines)),
    )
    last = _NOTHING if request.last is None else np.empty(len(lines), storage(request.last.dtype))
    if not short(arranged, start, lines, None if request.last is None else last):
        return None
    put_back(turned, lines)
    return last if request.last is None else last.reshape(others)


_ANY = Order(items=4, vectors=8, warps=8)  # of those that give the same bits, one in which NumPy is fast


def _scan_in_order(
    request: ScanRequest,
    inputs: Inputs,
    start: tuple[Any, ...] | None,
    outs: list[Array],
    prepared: Prepared,
) -> Outputs:
    algebra = prepared.algebra if start is None else FieldAlgebra(request, start)
    lines, elements = lines_of(request), request.shape[request.axis]
    length, others = elements + request.include_initial, others_of(request)

    def one_a_line(array: Array) -> Array:
        return np.broadcast_to(array, others).reshape(lines)

    arranged = Inputs(
        tuple(as_lines(request, value) for value in inputs.values),
        None if inputs.mask is None else as_lines(request, inputs.mask),
        None if inputs.segments is None else restarts(request, inputs, lines),
        None if inputs.row_initial is None else one_a_line(inputs.row_initial),
        tuple(map(one_a_line, inputs.carry)),
    )
    turned = [moved(request, out) for out in outs]
    outputs = Outputs(
        [out.reshape(lines, length) for out in turned],
        np.zeros(lines, storage((request.last or request.result).dtype)),
        [np.empty(lines, storage(field.dtype)) for field in request.carry_out],
    )
    if not elements:  # what comes in goes out
        outputs.last[...] = _initial_rows(request, arranged, start)
        states = algebra.row_start(arranged, slice(None), lines) or algebra.empty(lines)
        keep_carry(algebra, arranged, slice(None), states, outputs.carry)
    if lines * length and is_sum_of_segments(request):
        sum_segments(request, arranged, outputs.results[0])
    elif lines * length and not _scan_gated(request, start, arranged, outputs, prepared):
        scan_lines(request, prepared.order, algebra, arranged, outputs)
    if request.carry_out and request.segments is not None and request.segments.kind == "keys":
        assert inputs.segments is not None
        keys = as_lines(request, standing(inputs.segments, request.segments.array))[:, -1:]
        outputs.carry[-1][...] = keys[:, 0] if elements else arranged.carry[-1] if arranged.carry else 0
    for out, result in zip(turned, outputs.results, strict=True):
        put_back(out, result)
    return Outputs(outs, outputs.last.reshape(others), [field.reshape(others) for field in outputs.carry])


def _scan_gated(
    request: ScanRequest, start: tuple[Any, ...] | None, inputs: Inputs, outputs: Outputs, prepared: Prepared
) -> bool:
    """Scan segments as gates; False where these do not give the same bits, the inputs being as they were."""
    algebra = prepared.gates
    if algebra is None:
        return False
    elements = to_accumulator(inputs.values[-1], request.values[-1].dtype, request.result.dtype)
    if not gates_hold(request, elements):
        return False
    if start is not None:
        algebra = FieldAlgebra(request, start, gates=True)
    in_place = any(np.may_share_memory(out, value) for out in outputs.results for value in inputs.values)
    made = outputs._replace(results=list(map(np.empty_like, outputs.results))) if in_place else outputs
    scan_lines(request, _ANY if goes_in_any_order(request) else prepared.order, algebra, inputs, made)
    if not show_no_trace(request, made.results[0]):
        return False
    for result, new in zip(outputs.results, made.results, strict=True):
        if new is not result:
            result[...] = new
    return True


def _initial_rows(request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None) -> Any:
    if inputs.row_initial is None:
        return 0 if start is None else start[0]
    assert request.row_initial is not None
    return to_accumulator(inputs.row_initial, request.row_initial.dtype, DTYPES[request.carry])
