"""Scans of CPU arrays, in NumPy: the semantics of the kernels, and their bits.

Exact operators go through `ufunc.accumulate`, all others through the defined order. What a like call needs is kept.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from cuscan.backends.convert import storage, to_accumulator, to_result
from cuscan.backends.exact import accumulate, is_exact
from cuscan.backends.fields import FieldAlgebra, Inputs
from cuscan.backends.lines import scan_lines, scan_short
from cuscan.call import SEGMENTS, Flags, Operands
from cuscan.checks import check_offsets
from cuscan.dtypes import DTYPES
from cuscan.errors import ScanTypeError
from cuscan.initial import check_start
from cuscan.interop.view import ArrayView, HostLibrary
from cuscan.order import Order
from cuscan.overlap import check_overlap
from cuscan.plan import order_of
from cuscan.request import ScanRequest, make_request
from cuscan.specs import ArraySpec
from cuscan.states import SCALAR

Array = np.ndarray[Any, Any]


class _Call:
    """Everything about a call that its arguments' memory and values do not change."""

    def __init__(self, request: ScanRequest, operands: Operands) -> None:
        device = operands.views[0].device
        self.request = request
        self.library = cast(HostLibrary, operands.values[-1].library)
        specs = [] if operands.outs is not None else [(s.shape, s.strides, s.dtype) for s in request.results]
        self.makers = [self.library.maker(*spec, device) for spec in specs]
        self.kinds = [self.library.adopt(make(), "out").kind for make in self.makers]
        self.prepared = Prepared(request)


_calls: dict[Any, _Call] = {}
_MOST_CALLS = 1024  # kept; a program that never repeats a shape must not grow without end


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any.

    Offsets are always checked: that costs nothing beside a scan in NumPy.
    """
    call = _find_call(flags, operands, initial is not None)
    request, library = call.request, call.library
    start = None if initial is None else check_start(initial, request.op, request.result.dtype)

    def seen(view: ArrayView) -> Any:
        return np.asarray(view.owner) if view.kind.is_number else library.as_numpy(view)

    arrays = dict(zip(operands.roles, map(seen, operands.views), strict=True))
    if operands.segments == "offsets":
        check_offsets(arrays["offsets"], request.shape[request.axis])
    outs = operands.outs
    if outs is None:
        outs = tuple(ArrayView(make(), kind, 0) for make, kind in zip(call.makers, call.kinds, strict=True))
    else:
        check_overlap(operands)
    beside = [arrays.pop(name, None) for name in ("mask", "initial")]
    segments = next((arrays.pop(name) for name in SEGMENTS if name in arrays), None)
    inputs = Inputs(tuple(arrays.values()), beside[0], segments, beside[1])
    _, last = evaluate(request, inputs, start, [library.as_numpy(out) for out in outs], call.prepared)
    if operands.outs is not None:
        for out in outs:
            library.written(out.owner)
    owners = tuple(out.owner for out in outs)
    if request.last is None:
        return owners
    make_last = library.maker(last.shape, _c_strides(last.shape), request.last.dtype, outs[0].device)
    state = library.adopt(make_last(), "last")
    library.as_numpy(state)[...] = last
    return (*owners, state.owner)


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
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
    call = _calls[key] = _Call(make_request(flags, operands, has_initial=has_initial), operands)
    return call


class Prepared:
    """What follows from a request alone: how it is run, and what that takes."""

    def __init__(self, request: ScanRequest) -> None:
        if request.op.combine is None:
            raise ScanTypeError(f"op={request.op.name!r} has no numpy= callable, which scans of CPU arrays need")
        self.is_exact = is_exact(request)
        self.order = order_of(request)
        self.algebra = FieldAlgebra(request, None)
        self.is_short = _is_short(request, self.order)


def evaluate(
    request: ScanRequest,
    inputs: Inputs,
    start: tuple[Any, ...] | None,
    outs: list[Array] | None = None,
    prepared: Prepared | None = None,
) -> tuple[list[Array], Array]:
    """The results of a request on NumPy arrays, in `outs`, and the last states; bfloat16 comes and goes as uint16."""
    prepared = prepared or Prepared(request)
    shape, axis = request.shape, request.axis
    others = shape[:axis] + shape[axis + 1 :]
    lines, length = _lines(request), shape[axis] + request.include_initial
    if outs is None:
        outs = [np.empty(result.shape, storage(result.dtype)) for result in request.results]
    mask = None if inputs.mask is None else _standing(inputs.mask, request.mask)
    last = np.zeros(lines if request.last else 0, storage((request.last or request.result).dtype))
    with np.errstate(all="ignore"):
        first = None if start is None else start[0]
        if prepared.is_exact and accumulate(request, inputs.values[0], mask, first, outs[0]):
            return outs, last
        if prepared.is_short:
            return _scan_short(request, inputs.values[0], prepared.order, outs), last
        if not shape[axis] and request.last is not None:  # what comes in goes out
            last[...] = _initial_rows(request, inputs, start, others, lines)
        if lines * length:
            arranged = Inputs(
                tuple(_as_lines(request, value) for value in inputs.values),
                None if mask is None else _as_lines(request, mask),
                None if inputs.segments is None else _restarts(request, inputs.segments, lines),
                None if inputs.row_initial is None else np.broadcast_to(inputs.row_initial, others).reshape(lines),
            )
            algebra = prepared.algebra if start is None else FieldAlgebra(request, start)
            moved = [_moved(request, out) for out in outs]
            results = [out.reshape(lines, length) for out in moved]
            scan_lines(request, prepared.order, algebra, arranged, results, last)
            for out, result in zip(moved, results, strict=True):
                if not np.may_share_memory(out, result):  # lines that no view has side by side
                    out[...] = result.reshape(out.shape)
    return outs, last.reshape(others) if request.last else last


def _is_short(request: ScanRequest, order: Order) -> bool:
    """Whether a request is for `scan_short`: lines of a warp scan, and nothing but the operator."""
    op, arrays = request.op, (request.mask, request.segments, request.row_initial, request.last)
    flags = request.exclusive, request.include_initial, request.has_initial, request.skip_nan
    plain = op.states is SCALAR and not any(flags) and all(array is None for array in arrays)
    return plain and not order.paired and math.prod(request.shape) > 0 and request.shape[request.axis] <= order.vector


def _scan_short(request: ScanRequest, value: Array, order: Order, outs: list[Array]) -> list[Array]:
    dtype, combine, out = request.result.dtype, request.op.combine, _moved(request, outs[0])
    assert combine is not None
    elements = to_accumulator(_as_lines(request, value), request.values[0].dtype, dtype)
    out[...] = to_result(scan_short(combine, order, elements), dtype).reshape(out.shape)
    return outs


def _lines(request: ScanRequest) -> int:
    return math.prod(n for i, n in enumerate(request.shape) if i != request.axis)


def _moved(request: ScanRequest, array: Array) -> Array:
    """An array with the scanned axis last, in scan direction."""
    moved = array if request.axis == array.ndim - 1 else np.moveaxis(array, request.axis, -1)
    return moved[..., ::-1] if request.reverse else moved


def _as_lines(request: ScanRequest, array: Array) -> Array:
    """An array, broadcast to the request's shape, as (lines, elements) in scan direction."""
    whole = array if array.shape == request.shape else np.broadcast_to(array, request.shape)
    return _moved(request, whole).reshape(_lines(request), request.shape[request.axis])


def _initial_rows(
    request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None, others: tuple[int, ...], rows: int
) -> Any:
    if inputs.row_initial is None:
        return 0 if start is None else start[0]
    assert request.row_initial is not None
    initial = np.broadcast_to(inputs.row_initial, others).reshape(rows)
    return to_accumulator(initial, request.row_initial.dtype, DTYPES[request.carry])


def _restarts(request: ScanRequest, segments: Array, lines: int) -> Array:
    """Where segments start, in scan order; the start of a row counts only where a flag says so."""
    assert request.segments is not None
    length = request.shape[request.axis]
    if request.segments.kind == "reset":
        return np.not_equal(_as_lines(request, _standing(segments, request.segments.array)).view(np.uint8), 0)
    if request.segments.kind == "offsets":
        starts = np.zeros(length + 1, np.bool_)
        inside = segments[(segments > 0) & (segments < length)]
        starts[length - inside if request.reverse else inside] = True
        return np.broadcast_to(starts[:length], (lines, length))
    keys = _as_lines(request, _standing(segments, request.segments.array))
    keys = to_accumulator(keys, request.segments.array.dtype, request.segments.array.dtype)
    starts = np.zeros(keys.shape, np.bool_)
    starts[:, 1:] = keys[:, 1:] != keys[:, :-1]
    return starts


def _standing(array: Array, spec: ArraySpec | None) -> Array:
    """An array as the request has it: broadcast, along the last axis or the scanned one."""
    assert spec is not None
    return np.lib.stride_tricks.as_strided(array, spec.shape, [s * array.itemsize for s in spec.strides])


def _c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
