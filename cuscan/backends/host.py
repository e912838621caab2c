"""Scans of CPU arrays, in NumPy: the semantics of the kernels, and their bits.

A group of units at a time passes through, for as many rows as fit `BLOCK` elements, so memory stays bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from cuscan.backends.algebra import Algebra, Inputs, Part
from cuscan.backends.convert import storage, to_accumulator, to_result
from cuscan.backends.walk import block, carry_of, prefixes, unblock, walk
from cuscan.call import SEGMENTS, Flags, Operands
from cuscan.checks import check_offsets
from cuscan.dtypes import DTYPES
from cuscan.errors import ScanTypeError
from cuscan.initial import check_start
from cuscan.interop.view import ArrayView, HostLibrary
from cuscan.overlap import check_overlap
from cuscan.plan import order_of
from cuscan.request import ScanRequest, make_request
from cuscan.specs import ArraySpec

Array = np.ndarray[Any, Any]

BLOCK = 2**20  # elements that pass through at a time


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any.

    Offsets are always checked: that costs nothing beside a scan in NumPy.
    """
    request = make_request(flags, operands, has_initial=initial is not None)
    start = check_start(initial, request.op, request.result.dtype)
    main = operands.values[-1]
    library = cast(HostLibrary, main.library)

    def seen(view: ArrayView | None) -> Any:
        if view is None or view.kind.is_number:
            return None if view is None else np.asarray(view.owner)
        return library.as_numpy(view)

    segments, row_initial = seen(operands.get(*SEGMENTS)), seen(operands.get("initial"))
    inputs = Inputs(tuple(map(seen, operands.values)), seen(operands.get("mask")), segments, row_initial)
    if operands.segments == "offsets":
        check_offsets(segments, request.shape[request.axis])
    outs = operands.outs
    if outs is None:
        makers = [library.maker(s.shape, s.strides, s.dtype, main.device) for s in request.results]
        outs = tuple(library.adopt(make(), "out") for make in makers)
    else:
        check_overlap(operands)
    results, last = evaluate(request, inputs, start)
    for out, result in zip(outs, results, strict=True):
        library.as_numpy(out)[...] = result
        library.written(out.owner)
    owners = tuple(out.owner for out in outs)
    if request.last is None:
        return owners
    make_last = library.maker(last.shape, _c_strides(last.shape), request.last.dtype, main.device)
    state = library.adopt(make_last(), "last")
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
            None if inputs.mask is None else as_rows(_standing(inputs.mask, request.mask)),
            None if inputs.segments is None else _restarts(request, inputs.segments, as_rows, rows),
            None if inputs.row_initial is None else np.broadcast_to(inputs.row_initial, others).reshape(rows),
        )
        with np.errstate(all="ignore"):
            _scan_rows(request, Algebra(request, start), arranged, results, last)

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
        return np.not_equal(as_rows(_standing(segments, request.segments.array)).view(np.uint8), 0)
    if request.segments.kind == "offsets":
        starts = np.zeros(length + 1, np.bool_)
        inside = segments[(segments > 0) & (segments < length)]
        starts[length - inside if request.reverse else inside] = True
        return np.broadcast_to(starts[:length], (rows, length))
    keys = as_rows(_standing(segments, request.segments.array))
    keys = to_accumulator(keys, request.segments.array.dtype, request.segments.array.dtype)
    starts = np.zeros(keys.shape, np.bool_)
    starts[:, 1:] = keys[:, 1:] != keys[:, :-1]
    return starts


def _standing(array: Array, spec: ArraySpec | None) -> Array:
    """An array as the request has it: broadcast, along the last axis or the scanned one."""
    assert spec is not None
    return np.lib.stride_tricks.as_strided(array, spec.shape, [s * array.itemsize for s in spec.strides])


def _scan_rows(request: ScanRequest, algebra: Algebra, inputs: Inputs, results: list[Array], last: Array) -> None:
    order = order_of(request)
    rows, length = results[0].shape
    span = order.unit * order.group
    step = max(BLOCK // min(span, length), 1)
    for first in range(0, rows, step):
        start = Part(np.bool_(request.has_initial), algebra.row_start(inputs, first, step))
        carry = carry_of(order, algebra.combine, start)
        for position in range(0, length, span):
            window = slice(first, first + step), slice(position, position + span)
            shape = results[0][window].shape
            blocked = block(algebra.lift(inputs, window, shape), order)
            prefix = prefixes(algebra.combine, blocked, carry)
            states = unblock(walk(algebra, blocked, prefix), shape)
            for result, spec, lowered in zip(results, request.results, request.op.states.lower(states), strict=True):
                result[window] = to_result(lowered, spec.dtype)
            last[first : first + step] = request.op.states.lower(states[:, -1])[0]


def _c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
