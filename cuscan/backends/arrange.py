"""The arrays of a request as lines in scan direction, (lines, elements)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cuscan.backends.convert import to_accumulator
from cuscan.backends.fields import Inputs
from cuscan.request import ScanRequest
from cuscan.specs import ArraySpec

Array = np.ndarray[Any, Any]


def others_of(request: ScanRequest) -> tuple[int, ...]:
    """The shape of the other axes."""
    return request.shape[: request.axis] + request.shape[request.axis + 1 :]


def lines_of(request: ScanRequest) -> int:
    """How many lines there are."""
    return math.prod(others_of(request))


def put_back(array: Array, lines: Array) -> None:
    """Results by lines where they belong, if these lines are no view of it."""
    if not np.may_share_memory(array, lines):
        array[...] = lines.reshape(array.shape)


def moved(request: ScanRequest, array: Array) -> Array:
    """An array with the scanned axis last, in scan direction."""
    turned = array if request.axis == array.ndim - 1 else np.moveaxis(array, request.axis, -1)
    return turned[..., ::-1] if request.reverse else turned


def as_lines(request: ScanRequest, array: Array) -> Array:
    """An array, broadcast to the request's shape, as (lines, elements) in scan direction."""
    whole = array if array.shape == request.shape else np.broadcast_to(array, request.shape)
    return moved(request, whole).reshape(lines_of(request), request.shape[request.axis])


def restarts(request: ScanRequest, inputs: Inputs, lines: int) -> Array:
    """Where segments start, in scan order; the start of a line counts where a flag says so, or a carry."""
    assert request.segments is not None and inputs.segments is not None
    segments, length = inputs.segments, request.shape[request.axis]
    if request.segments.kind == "reset":
        return np.not_equal(as_lines(request, standing(segments, request.segments.array)).view(np.uint8), 0)
    if request.segments.kind == "offsets":
        starts = np.zeros(length + 1, np.bool_)
        inside = segments[(segments > 0) & (segments < length)]
        starts[length - inside if request.reverse else inside] = True
        if request.carry_in:  # a first segment without elements takes the carry
            starts[0] = (segments[:-1] == length if request.reverse else segments[1:] == 0).any()
        return np.broadcast_to(starts[:length], (lines, length))
    dtype = request.segments.array.dtype
    keys = to_accumulator(as_lines(request, standing(segments, request.segments.array)), dtype, dtype)
    starts = np.zeros(keys.shape, np.bool_)
    starts[:, 1:] = keys[:, 1:] != keys[:, :-1]
    if request.carry_in and length:
        last_key = np.broadcast_to(inputs.carry[-1], others_of(request)).reshape(lines)
        starts[:, 0] = keys[:, 0] != to_accumulator(last_key, dtype, dtype)
    return starts


def standing(array: Array, spec: ArraySpec | None) -> Array:
    """An array as the request has it: broadcast, along the last axis or the scanned one."""
    assert spec is not None
    if array.shape == spec.shape:
        return array
    return np.lib.stride_tricks.as_strided(array, spec.shape, [s * array.itemsize for s in spec.strides])
