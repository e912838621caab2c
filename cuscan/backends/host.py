"""Scans of CPU arrays, in NumPy: the semantics of the kernels, and their bits.

A group of units at a time passes through, for as many rows as fit `BLOCK` elements, so memory stays bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from cuscan.backends.algebra import Algebra, Inputs, Part
from cuscan.backends.convert import storage, to_accumulator, to_result
from cuscan.backends.walk import behind, block, carry_of, prefixes, unblock, walk
from cuscan.call import SEGMENTS, Flags, Operands, one_or_all
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
    carry = tuple(map(seen, operands.carry))
    inputs = Inputs(tuple(map(seen, operands.values)), seen(operands.get("mask")), segments, row_initial, carry)
    if operands.segments == "offsets":
        check_offsets(segments, request.shape[request.axis])

    def made(spec: ArraySpec, strides: tuple[int, ...], result: Array) -> Any:
        out = library.adopt(library.maker(result.shape, strides, spec.dtype, main.device)(), "out")
        library.as_numpy(out)[...] = result
        return out.owner

    outs = operands.outs
    if outs is not None:
        check_overlap(operands)
    results, last, behind_all = evaluate(request, inputs, start)
    if outs is None:
        owners = [made(spec, spec.strides, result) for spec, result in zip(request.results, results, strict=False)]
    else:
        for out, result in zip(outs, results, strict=True):
            library.as_numpy(out)[...] = result
            library.written(out.owner)
        owners = [out.owner for out in outs]
    if request.last is not None:
        owners.append(made(request.last, _c_strides(last.shape), last))
    if request.carry_out:
        fields = zip(request.carry_out, behind_all, strict=True)
        owners.append(one_or_all([made(spec, _c_strides(field.shape), field) for spec, field in fields]))
    return tuple(owners)


class Evaluated(NamedTuple):
    """What a request gives: bfloat16 as uint16; `last` without a meaning where it is not asked for."""

    results: list[Array]
    last: Array
    carry: list[Array]


def evaluate(request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None) -> Evaluated:
    """The results of a request on NumPy arrays, the last states and the carry; bfloat16 comes and goes as uint16."""
    if request.op.combine is None:
        raise ScanTypeError(f"op={request.op.name!r} has no numpy= callable, which scans of CPU arrays need")
    shape, axis = request.shape, request.axis
    others = _lines(request)
    rows, elements = math.prod(others), shape[axis]
    length = elements + request.include_initial

    def as_rows(array: Array) -> Array:
        moved = np.moveaxis(np.broadcast_to(array, shape), axis, -1)
        return (moved[..., ::-1] if request.reverse else moved).reshape(rows, elements)

    def one_a_row(array: Array) -> Array:
        return np.broadcast_to(array, others).reshape(rows)

    arranged = Inputs(
        tuple(map(as_rows, inputs.values)),
        None if inputs.mask is None else as_rows(_standing(inputs.mask, request.mask)),
        None if inputs.segments is None else _restarts(request, inputs, as_rows, rows),
        None if inputs.row_initial is None else one_a_row(inputs.row_initial),
        tuple(map(one_a_row, inputs.carry)),
    )
    outputs = Evaluated(
        [np.empty((rows, length), storage(result.dtype)) for result in request.results if not request.only_carry],
        np.zeros(rows, storage((request.last or request.result).dtype)),
        [np.empty(rows, storage(field.dtype)) for field in request.carry_out],
    )
    algebra = Algebra(request, start)
    with np.errstate(all="ignore"):
        if not elements:  # what comes in goes out
            outputs.last[...] = _initial_rows(request, arranged, start)
            _keep_carry(algebra, arranged, slice(None), algebra.row_start(arranged, 0, rows), outputs.carry)
        if rows * length:
            _scan_rows(request, algebra, arranged, outputs)
    if request.carry_out and inputs.segments is not None and request.segments and request.segments.kind == "keys":
        keys = as_rows(_standing(inputs.segments, request.segments.array))[:, -1:]
        outputs.carry[-1][...] = keys[:, 0] if elements else arranged.carry[-1] if arranged.carry else 0

    def as_asked(array: Array) -> Array:
        moved = array.reshape(*others, length)
        return np.moveaxis(moved[..., ::-1] if request.reverse else moved, -1, axis)

    results = [as_asked(result) for result in outputs.results]
    return Evaluated(results, outputs.last.reshape(others), [field.reshape(others) for field in outputs.carry])


def _initial_rows(request: ScanRequest, inputs: Inputs, start: tuple[Any, ...] | None) -> Any:
    if inputs.row_initial is None:
        return 0 if start is None else start[0]
    assert request.row_initial is not None
    return to_accumulator(inputs.row_initial, request.row_initial.dtype, DTYPES[request.carry])


def _keep_carry(algebra: Algebra, inputs: Inputs, rows: slice, states: Array, carry: list[Array]) -> None:
    """Put the states that lines end with where the carry goes."""
    for field, part in zip(carry, algebra.carry_out(inputs, rows, states), strict=False):  # the last keys have no part
        field[rows] = part


def _restarts(request: ScanRequest, inputs: Inputs, as_rows: Callable[[Array], Array], rows: int) -> Array:
    """Where segments start, in scan order; the start of a row counts where a flag says so, or a carry."""
    assert request.segments is not None and inputs.segments is not None
    segments, length = inputs.segments, request.shape[request.axis]
    if request.segments.kind == "reset":
        return np.not_equal(as_rows(_standing(segments, request.segments.array)).view(np.uint8), 0)
    if request.segments.kind == "offsets":
        starts = np.zeros(length + 1, np.bool_)
        inside = segments[(segments > 0) & (segments < length)]
        starts[length - inside if request.reverse else inside] = True
        if request.carry_in:  # a first segment without elements takes the carry
            starts[0] = (segments[:-1] == length if request.reverse else segments[1:] == 0).any()
        return np.broadcast_to(starts[:length], (rows, length))
    dtype = request.segments.array.dtype
    keys = to_accumulator(as_rows(_standing(segments, request.segments.array)), dtype, dtype)
    starts = np.zeros(keys.shape, np.bool_)
    starts[:, 1:] = keys[:, 1:] != keys[:, :-1]
    if request.carry_in and length:
        last_key = np.broadcast_to(inputs.carry[-1], _lines(request)).reshape(rows)
        starts[:, 0] = keys[:, 0] != to_accumulator(last_key, dtype, dtype)
    return starts


def _standing(array: Array, spec: ArraySpec | None) -> Array:
    """An array as the request has it: broadcast, along the last axis or the scanned one."""
    assert spec is not None
    return np.lib.stride_tricks.as_strided(array, spec.shape, [s * array.itemsize for s in spec.strides])


def _lines(request: ScanRequest) -> tuple[int, ...]:
    return request.shape[: request.axis] + request.shape[request.axis + 1 :]


def _scan_rows(request: ScanRequest, algebra: Algebra, inputs: Inputs, outputs: Evaluated) -> None:
    order = order_of(request)
    rows, elements = len(inputs.values[0]), request.shape[request.axis]
    length, span = elements + request.include_initial, order.unit * order.group
    step = max(BLOCK // min(span, length), 1)
    for first in range(0, rows, step):
        lines = slice(first, first + step)
        start = Part(np.bool_(request.has_initial), algebra.row_start(inputs, first, step))
        carry = carry_of(order, algebra.combine, start)
        for position in range(0, length, span):
            window = lines, slice(position, position + span)
            shape = len(start.value), min(span, length - position)
            blocked = block(algebra.lift(inputs, window, shape), order)
            before = prefixes(algebra.combine, blocked, carry)
            if request.carry_out and position < elements <= position + span:
                ends_with = behind(algebra.combine, blocked, before, elements - 1 - position)
                _keep_carry(algebra, inputs, lines, ends_with, outputs.carry)
            if request.only_carry:
                continue
            states = unblock(walk(algebra, blocked, before.all), shape)
            lowered = request.op.states.lower(states)
            for result, spec, part in zip(outputs.results, request.results, lowered, strict=True):
                result[window] = to_result(part, spec.dtype)
            outputs.last[lines] = request.op.states.lower(states[:, -1])[0]


def _c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
