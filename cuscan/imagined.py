"""Requests of a kind of call whose arrays have no memory: what planning is tried with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from cuscan.dtypes import DTYPES, INEXACT, DType
from cuscan.errors import ScanTypeError
from cuscan.interop.numpy import LIBRARY
from cuscan.interop.view import ArrayView, number_like
from cuscan.operators import LINEAR_RECURRENCE, Monoid
from cuscan.places import GPU, Arrays, Place, view_at
from cuscan.planning.segment_starts import FEWEST, FEWEST_ACROSS
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import CARRY, Flags, Operands, choose_extremum, find_dtype, find_operator, make_flags
from cuscan.words import SEGMENT_DTYPES, Call

Places = Callable[[Arrays], Iterable[Place]]
Shape = tuple[int, ...]


class _Read(NamedTuple):
    """An array that a call reads; one beside the values if it is no value."""

    role: str
    shape: Shape
    dtype: DType
    is_value: bool = False
    is_number: bool = False


def requests_of(call: Call, shape: Shape, axis: int, places: Places) -> Iterator[ScanRequest]:
    """Requests of a shape whose arrays lie in different places."""
    yield from _requests_of(call, shape, axis, places, of_lines=False)
    size, fewest = math.prod(shape), FEWEST_ACROSS if call.segments == "keys" else FEWEST
    if call.segments in ("reset", "keys") and shape[axis] < size >= fewest:  # flags or keys of all lines become bits
        yield from _requests_of(call, shape, axis, places, of_lines=True)


def _requests_of(call: Call, shape: Shape, axis: int, places: Places, *, of_lines: bool) -> Iterator[ScanRequest]:
    op, flags = _flags_of(call, axis)
    read = [*_values(call, op, shape), *_beside(call, shape, axis, of_lines=of_lines)]
    roles = tuple(one.role for one in read)
    plain = make_request(flags, Operands(_at(Place(), read, axis), roles), has_initial=call.initial)
    rows = shape[:axis] + shape[axis + 1 :]
    carried = tuple(view_at(rows, field.dtype) for field in plain.kind.carry_fields * call.carry)
    roles += CARRY[1 : 1 + len(carried)]
    for place in places(_arrays(call, read, plain)):
        views = _at(place, read, axis) + carried
        gap = place.gap if place.result_gap is None else place.result_gap
        there = place._replace(every=1, order=place.result_order, gap=gap)
        outs = tuple(view_at(result.shape, result.dtype, place.result, there) for result in plain.results)
        yield make_request(flags, Operands(views, roles, None if call.total else outs), has_initial=call.initial)


def _arrays(call: Call, read: list[_Read], plain: ScanRequest) -> Arrays:
    beside = [one.dtype.itemsize for one in read if not one.is_value and one.shape == plain.shape]
    result = 0 if call.total else plain.results[0].dtype.itemsize
    return Arrays(len(read), plain.values[-1].dtype.itemsize, result, min(beside, default=0))


def _at(place: Place, read: list[_Read], axis: int) -> tuple[ArrayView, ...]:
    """The arrays that are read, in their places."""
    views, shape = [], read[0].shape
    for i, one in enumerate(read):
        still = axis if i == place.still and one.shape == shape else None
        if one.is_number:
            views.append(number_like(0, one.dtype, LIBRARY, GPU))
        elif one.is_value:
            views.append(view_at(shape, one.dtype, place.value, place, still))
        else:
            order = place.beside_order or place.order
            there = Place(order=order, gap=place.beside_gap) if one.shape == shape else Place()
            views.append(view_at(one.shape, one.dtype, place.beside, there, still))
    return tuple(views)


def _flags_of(call: Call, axis: int) -> tuple[Monoid, Flags]:
    op = LINEAR_RECURRENCE if call.op == "linear_recurrence" else call.op
    if op is not LINEAR_RECURRENCE and (call.number or call.initial_array or call.return_last):
        raise ScanTypeError(f"number, initial_array and return_last are for linear_recurrence; got op={op!r}")
    op = find_operator(choose_extremum(op, call.return_indices, call.ties))
    flags = make_flags(
        op,
        axis,
        call.reverse,
        call.exclusive,
        call.include_initial,
        call.skipna,
        call.result,
        return_last=call.return_last,
        return_carry=call.return_carry or call.total,
        only_carry=call.total,
    )
    return op, flags


def _values(call: Call, op: Monoid, shape: Shape) -> Iterator[_Read]:
    """The values; a decay that is a number has the type that the recurrence is computed in."""
    for i, (role, dtype) in enumerate(zip(op.inputs, op.dtypes or (call.dtype,) * len(op.inputs), strict=True)):
        if call.number and i == 0:
            result = find_dtype(call.result or call.dtype)
            number = DTYPES[result.accumulator] if result.kind in INEXACT else DTYPES["float64"]
            yield _Read(role, shape, number, is_value=True, is_number=True)
        else:
            yield _Read(role, shape, find_dtype(dtype), is_value=True)


def _beside(call: Call, shape: Shape, axis: int, *, of_lines: bool) -> Iterator[_Read]:
    """The arrays beside the values; `of_lines`: flags and keys hold for all lines."""
    if call.mask:
        yield _Read("mask", shape, DTYPES["bool"])
    if call.segments is not None:
        of = (shape[axis] + 1,) if call.segments == "offsets" else shape
        if of_lines:
            of = tuple([n if i == axis else 1 for i, n in enumerate(shape)])
        yield _Read(call.segments, of, find_dtype(call.segment_dtype or SEGMENT_DTYPES[call.segments]))
    if call.initial_array:
        yield _Read("initial", shape[:axis] + shape[axis + 1 :], find_dtype(call.result or call.dtype))
