"""Arrange the arrays of a request as lines in scan direction, with shape (lines, elements)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cuscan.backends.convert import to_accumulator
from cuscan.backends.fields import Inputs
from cuscan.request import ScanRequest

Array = np.ndarray[Any, Any]


_TRUE = np.ones(1, np.bool_)


def others_of(request: ScanRequest) -> tuple[int, ...]:
    """Return the shape of all axes but the scanned one."""
    return request.shape[: request.axis] + request.shape[request.axis + 1 :]


def lines_of(request: ScanRequest) -> int:
    """Return the number of lines."""
    return math.prod(others_of(request))


def put_back(array: Array, lines: Array) -> None:
    """Copy results arranged by lines into `array`, unless the lines are a view of it."""
    if not np.may_share_memory(array, lines):
        array[...] = lines.reshape(array.shape)


def moved(request: ScanRequest, array: Array) -> Array:
    """Return an array with the scanned axis last, in scan direction."""
    turned = array if request.axis == array.ndim - 1 else np.moveaxis(array, request.axis, -1)
    return turned[..., ::-1] if request.reverse else turned


def as_lines(request: ScanRequest, array: Array) -> Array:
    """Broadcast an array to the request's shape and return it as (lines, elements) in scan direction."""
    whole = array if array.shape == request.shape else np.broadcast_to(array, request.shape)
    return moved(request, whole).reshape(lines_of(request), request.shape[request.axis])


def restarts(request: ScanRequest, inputs: Inputs, lines: int) -> Array:
    """Return where segments start, in scan order. The start of a line counts only if a flag or a carry sets it."""
    assert request.segments is not None and inputs.segments is not None
    segments, length = inputs.segments, request.shape[request.axis]
    if request.segments.kind == "reset":
        return np.not_equal(as_lines(request, standing(request, segments)).view(np.uint8), 0)
    if request.segments.kind == "offsets":
        return np.broadcast_to(segments, (lines, length))
    dtype = request.segments.array.dtype
    keys = to_accumulator(as_lines(request, standing(request, segments)), dtype, dtype)
    starts = np.zeros_like(keys, np.bool_)
    starts[:, 1:] = keys[:, 1:] != keys[:, :-1]
    if request.carry_in and length:
        last_key = np.broadcast_to(inputs.carry[-1], others_of(request)).reshape(lines)
        starts[:, 0] = keys[:, 0] != to_accumulator(last_key, dtype, dtype)
    return starts


def starts_of(request: ScanRequest, offsets: Array) -> Array:
    """Return the starts of segments given by offsets, as flags along the axis in scan order."""
    length = request.shape[request.axis]
    starts = np.zeros(length + 1, np.bool_)
    starts.put(length - offsets if request.reverse else offsets, _TRUE, "clip")  # unchecked offsets may exceed the axis
    starts[0] = False
    if request.carry_in:  # an empty first segment receives the carry
        starts[0] = (offsets[:-1] == length if request.reverse else offsets[1:] == 0).any()
    return starts[:length]


def standing(request: ScanRequest, array: Array) -> Array:
    """Return a mask, flags or keys as they broadcast to the request's shape (see `checks.py`)."""
    key = key_of(request, array)
    return array if key is None else array[key]


def key_of(request: ScanRequest, array: Array) -> Any:
    """Return the index that `standing` applies to an array, or None if it needs none."""
    shape, axis, behind = request.shape, request.axis, len(request.shape) - 1 - request.axis
    is_along = array.ndim == 1 and behind and array.shape != (1,) and array.shape[0] == shape[axis]
    return (slice(None), *(None,) * behind) if is_along else None
