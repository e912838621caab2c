"""Scans whose bits do not depend on the order: `ufunc.accumulate` along the axis, in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuscan.backends.arrange import put_back, standing
from cuscan.backends.convert import is_nan, storage, to_narrow, to_result
from cuscan.backends.fields import Inputs
from cuscan.dtypes import EXACT
from cuscan.operators import INDEXED, KEYED, OPERATORS
from cuscan.request import ScanRequest

Array = np.ndarray[Any, Any]

_AT_A_TIME = 2**15  # elements whose keys fit in the cache
_EXTREMA = {"min": np.minimum, "max": np.maximum}
_UFUNCS = {
    "add": np.add,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    **_EXTREMA,
    **{row.name: _EXTREMA[op] for (op, _), row in INDEXED.items()},
}


def is_exact(request: ScanRequest) -> bool:
    """Return whether `accumulate` can run a request, which must have no segments."""
    op = request.op
    if op.name not in _UFUNCS or KEYED[op.name] is not op or request.segments is not None:
        return False
    if request.carry_in or request.carry_out:
        return False
    if op.indexed:
        flags = request.exclusive, request.include_initial, request.has_initial, request.skip_nan, request.mask
        return not any(flags)
    return request.result.dtype.kind in EXACT or op.name in _EXTREMA


def accumulate(request: ScanRequest, value: Array, mask: Array | None, start: Any, outs: list[Array]) -> bool:
    """Scan an array of the request's shape into `outs`; return False if `accumulate` may give other bits.

    It may if zeros of both signs meet: it does not order them, nor is an extremum with a position that of the first of
    equal numbers. NaN have no position here.
    """
    op, dtype, out = request.op, request.result.dtype, outs[0]
    if 0 in out.shape:
        return True
    elements = to_narrow(value, request.values[0].dtype, dtype)
    identity = op.identity(dtype)[0]
    if mask is not None:
        kept = standing(request, mask).view(np.uint8) != 0
        elements = np.where(kept, elements, _number(identity, elements))
    if request.skip_nan:
        elements = np.where(is_nan(value, request.values[0].dtype.name), _number(identity, elements), elements)
    if elements.dtype.kind == "f" and _has_both_zeros(elements, start):
        return False
    if op.indexed and elements.dtype.kind == "f" and np.isnan(elements.max()):
        return False
    whole = out if storage(dtype) == elements.dtype else np.empty(out.shape, elements.dtype)
    _scan(request, elements, identity if start is None else start, start is not None, whole)
    if op.indexed:
        outs[1][...] = _positions(request, elements, whole)
    if whole is not out:
        out[...] = to_result(whole, dtype)
    return True


def _positions(request: ScanRequest, elements: Array, extrema: Array) -> Array:
    """Return where the extrema up to each element are: the greatest number, in scan order, of those that made one."""
    length, before = request.shape[request.axis], (slice(None),) * request.axis
    if request.reverse:
        elements, extrema = np.flip(elements, request.axis), np.flip(extrema, request.axis)
    if request.op in _LATEST:
        made = elements == extrema
    else:
        made = np.ones(extrema.shape, np.bool_)
        later, earlier = extrema[(*before, slice(1, None))], extrema[(*before, slice(-1))]
        np.not_equal(later, earlier, out=made[(*before, slice(1, None))])
    numbers = np.arange(length).reshape(-1, *(1,) * (len(request.shape) - 1 - request.axis))
    places = np.where(made, numbers, 0)
    np.maximum.accumulate(places, request.axis, out=places)
    return np.flip(length - 1 - places, request.axis) if request.reverse else places


_LATEST = [row for (_, ties), row in INDEXED.items() if ties == "last"]


def is_sum_of_segments(request: ScanRequest) -> bool:
    """Return whether `sum_segments` can run a request."""
    flags = request.exclusive, request.include_initial, request.has_initial, request.carry_out
    plain = request.segments is not None and not any(flags)
    return plain and request.op is OPERATORS["add"] and request.result.dtype.kind in EXACT


def sum_segments(request: ScanRequest, inputs: Inputs, out: Array) -> None:
    """Sum integers, which wrap, within the segments of lines: a segment's first element subtracts the sum before it."""
    elements = to_narrow(inputs.values[0], request.values[0].dtype, request.result.dtype)
    if inputs.mask is not None:
        elements = np.where(inputs.mask.view(np.uint8) != 0, elements, _number(0, elements))
    assert inputs.segments is not None
    sums = np.array(elements, order="C").reshape(-1)
    restarts = np.array(inputs.segments, order="C")
    restarts[:, 0] = True
    starts = np.flatnonzero(restarts)
    before = np.add.accumulate(sums, dtype=sums.dtype)[starts]
    first = sums[starts]
    before -= first
    first[1:] -= before[1:] - before[:-1]
    sums[starts] = first
    np.add.accumulate(sums, out=sums)
    out[...] = sums.reshape(out.shape)


def is_extremum_of_segments(request: ScanRequest) -> bool:
    """Return whether `find_extrema` can run a request."""
    flags = request.exclusive, request.include_initial, request.has_initial, request.carry_out
    plain = request.segments is not None and request.mask is None and not any(flags)
    name = request.op.name
    return plain and name in _EXTREMA and request.op is OPERATORS[name] and request.result.dtype.kind in EXACT


def find_extrema(request: ScanRequest, inputs: Inputs, out: Array) -> bool:
    """Find extrema of integers within the segments of lines, by keys: segment number, then value minus the least value.

    The greatest key so far always belongs to the current segment. Return False if the keys do not fit in 64 bits.
    """
    elements = to_narrow(inputs.values[0], request.values[0].dtype, request.result.dtype).reshape(-1)
    low, high = (np.asanyarray(end).astype(np.int64) for end in (elements.min(), elements.max()))  # uint64 may wrap
    if not (high - low).astype(np.uint64) < 2**63 // (elements.size + 1):
        return False
    is_max, width = request.op.name == "max", high - low + 1
    least = low if is_max else -high
    assert inputs.segments is not None
    restarts = inputs.segments.copy()
    restarts[:, 0] = True
    restarts, flat = restarts.reshape(-1), out.reshape(-1)
    number = key = np.zeros(1, np.int64)
    for first in range(0, elements.size, _AT_A_TIME):
        part = slice(first, first + _AT_A_TIME)
        numbers = np.add.accumulate(restarts[part], dtype=np.int64)
        keys = elements[part].astype(np.int64)
        if not is_max:
            np.negative(keys, out=keys)
        if first:
            numbers += number
        number = numbers[-1:].copy()
        numbers *= width
        keys -= least
        keys += numbers
        if first:
            np.maximum(keys[:1], key, out=keys[:1])
        np.maximum.accumulate(keys, out=keys)
        key = keys[-1:].copy()
        keys -= numbers
        keys += least
        flat[part] = keys if is_max else np.negative(keys, out=keys)
    put_back(out, flat)
    return True


def _scan(request: ScanRequest, elements: Array, first: Any, has_start: bool, out: Array) -> None:
    axis, ufunc, count = request.axis, _UFUNCS[request.op.name], elements.shape[request.axis]
    if request.reverse:
        elements, out = np.flip(elements, axis), np.flip(out, axis)
    before = (slice(None),) * axis
    if request.exclusive or request.include_initial:
        kept = out.shape[axis] - 1  # number of elements that the results include
        out[(*before, slice(1, None))] = elements[(*before, slice(kept))]
        out[(*before, slice(1))] = _number(first, out)
        if has_start:
            ufunc.accumulate(out, axis, out=out)
        elif count:
            rest = out[(*before, slice(1, None))]
            ufunc.accumulate(rest, axis, out=rest)
    elif has_start:
        elements = elements.copy()
        ahead = elements[(*before, slice(1))]
        ufunc(_number(first, out), ahead, out=ahead)
        ufunc.accumulate(elements, axis, out=out)
    else:
        ufunc.accumulate(elements, axis, out=out)


def _number(number: Any, like: Array) -> Any:
    """Return a number as the dtype of an array, wrapped as C++ does."""
    return np.asarray(number).astype(like.dtype)


def _has_both_zeros(elements: Array, start: Any) -> bool:
    zeros = elements == 0
    signs = np.signbit(elements[zeros]) if zeros.any() else np.zeros(0, np.bool_)
    if start is not None and start == 0:
        signs = np.append(signs, np.signbit(start))
    return bool(signs.any() and not signs.all())
