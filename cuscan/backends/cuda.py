"""Runs a call on a GPU: look the launch up, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuscan.backends import workspace
from cuscan.compile.module import load_kernel
from cuscan.interop.view import ArrayView, Device
from cuscan.plan import Target, make_plan
from cuscan.request import ScanRequest, check_initial, check_overlap, make_request

_MAX_LAUNCHES = 4096  # entries kept; a program that never repeats a shape must not grow without end

_get_device = cupy.cuda.runtime.getDevice
_set_device = cupy.cuda.runtime.setDevice


class _Stream:
    """A stream handle as CuPy's launch wants it."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class _Launch:
    """Everything about a call that its arguments' addresses and values do not change."""

    def __init__(self, request: ScanRequest, device: Device) -> None:
        self.request = request
        self.empty = 0 in request.value.shape
        if self.empty:
            return
        target = _target(device.ordinal)
        plan = make_plan(request, target)
        self.function = load_kernel(plan.config, target.arch)
        self.grid = (plan.grid,)
        self.block = (plan.config.block,)
        self.shared_bytes = plan.config.shared_bytes
        # CuPy passes a NumPy array of one structured element by value.
        self.geometry = np.zeros(1, [("words", np.int64, len(plan.geometry))])
        self.geometry["words"] = plan.geometry
        self.carry = np.dtype(request.carry).type
        self.workspace_bytes = plan.workspace_bytes
        value, result = request.value.dtype.itemsize, request.result.dtype.itemsize
        self.offsets = (plan.value_offset * value, plan.result_offset * result, plan.mask_offset)


_launches: dict[Any, _Launch] = {}
_targets: dict[int, Target] = {}
_streams: dict[int, _Stream] = {}


def run(
    value: ArrayView,
    *,
    op: Any,
    axis: Any,
    reverse: Any,
    exclusive: Any,
    mask: ArrayView | None,
    initial: Any,
    dtype: Any,
    out: ArrayView | None,
) -> Any:
    """Run one call; the keywords are those of `api.scan`, with views for arrays."""
    current, wanted = _get_device(), value.device.ordinal
    if current != wanted:
        _set_device(wanted)
    try:
        call = (op, axis, reverse, exclusive, dtype)
        key = (call, initial is None, _shape_of(value), _shape_of(mask), _shape_of(out))
        try:
            launch = _launches[key]
        except (KeyError, TypeError):  # TypeError: an argument that cannot be hashed is about to be refused
            launch = _prepare(call, value, mask, initial is not None, out, key)
        if out is not None:
            check_overlap(value, mask, out)
            return _queue(launch, value, mask, initial, out.owner, out.pointer)
        result = launch.request.result
        array = value.library.empty(result.shape, result.strides, result.dtype, value.device)
        return _queue(launch, value, mask, initial, array, value.library.pointer(array))
    finally:
        if current != wanted:
            _set_device(current)


def _shape_of(view: ArrayView | None) -> Any:
    """All of a view that a launch depends on, but for the address."""
    if view is None:
        return None
    return (view.library, view.dtype, view.shape, view.strides, view.pointer & 15, view.device)


def _prepare(
    call: Any, value: ArrayView, mask: ArrayView | None, has_initial: bool, out: ArrayView | None, key: Any
) -> _Launch:
    op, axis, reverse, exclusive, dtype = call
    request = make_request(
        op=op,
        axis=axis,
        reverse=reverse,
        exclusive=exclusive,
        dtype=dtype,
        has_initial=has_initial,
        value=value,
        mask=mask,
        out=out,
    )
    if len(_launches) >= _MAX_LAUNCHES:
        _launches.clear()
    launch = _launches[key] = _Launch(request, value.device)
    return launch


def _target(index: int) -> Target:
    if index not in _targets:
        device = cupy.cuda.Device(index)
        _targets[index] = Target(int(device.compute_capability), device.attributes["MultiProcessorCount"])
    return _targets[index]


def _queue(launch: _Launch, value: ArrayView, mask: ArrayView | None, initial: Any, result: Any, pointer: int) -> Any:
    """Put the kernel on the library's current stream; the result array back."""
    number = 0 if initial is None else check_initial(initial, launch.request.result.dtype)
    if launch.empty:
        return result
    handle = value.library.stream(value.device)
    stream = _streams.get(handle)
    if stream is None:
        stream = _streams[handle] = _Stream(handle)
    states = None
    if launch.workspace_bytes:
        states = workspace.find(launch.workspace_bytes, value.library, value.device, handle)
    to_value, to_result, to_mask = launch.offsets
    launch.function(
        launch.grid,
        launch.block,
        (
            value.pointer + to_value,
            pointer + to_result,
            0 if mask is None else mask.pointer + to_mask,
            0 if states is None else states.pointer,
            launch.carry(number),
            launch.geometry,
        ),
        shared_mem=launch.shared_bytes,
        stream=stream,
    )
    return result
