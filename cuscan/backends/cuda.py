"""Runs a call on a GPU: look the launch up, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

import collections
import threading
from typing import Any, cast

import cupy
import numpy as np

from cuscan.backends import workspace
from cuscan.compile.module import load_kernel
from cuscan.interop.view import ArrayView, Device, DeviceLibrary
from cuscan.overlap import check_overlap
from cuscan.plan import Target, make_plan
from cuscan.request import ALIGNMENT, ScanRequest, check_initial, make_request

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
_lent: collections.deque[tuple[Any, list[Any]]] = collections.deque()
_lent_lock = threading.Lock()


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
        launch = _find_launch(call, value, mask, initial is not None, out)
        library = cast(DeviceLibrary, value.library)
        if out is None:
            result = launch.request.result
            array = library.empty(result.shape, result.strides, result.dtype, value.device)
            _queue(launch, library, value, mask, initial, library.pointer(array))
            return array
        check_overlap(value, mask, out)
        _queue(launch, library, value, mask, initial, out.pointer)
        library.written(out.owner)
        return out.owner
    finally:
        if current != wanted:
            _set_device(current)


def _find_launch(
    call: tuple[Any, ...], value: ArrayView, mask: ArrayView | None, has_initial: bool, out: ArrayView | None
) -> _Launch:
    """The launch that is kept for a like call, or a new one.

    Types are part of the key: 1 equals True and 1.0, and only one of them is an axis.
    """
    key = (call, tuple(map(type, call)), has_initial, _shape_of(value), _shape_of(mask), _shape_of(out))
    try:
        return _launches[key]
    except KeyError:
        pass
    except TypeError:  # an argument that cannot be hashed
        return _prepare(call, value, mask, has_initial, out)
    if len(_launches) >= _MAX_LAUNCHES:
        _launches.clear()
    launch = _launches[key] = _prepare(call, value, mask, has_initial, out)
    return launch


def _shape_of(view: ArrayView | None) -> Any:
    """All of a view that a launch depends on, but for the address."""
    if view is None:
        return None
    return (
        view.library,
        view.dtype,
        view.shape,
        view.strides,
        view.pointer % ALIGNMENT,
        view.device,
        view.readonly,
    )


def _prepare(
    call: tuple[Any, ...], value: ArrayView, mask: ArrayView | None, has_initial: bool, out: ArrayView | None
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
    return _Launch(request, value.device)


def _target(index: int) -> Target:
    if index not in _targets:
        device = cupy.cuda.Device(index)
        attributes = device.attributes
        _targets[index] = Target(
            arch=int(device.compute_capability),
            sm_count=attributes["MultiProcessorCount"],
            shared_bytes=attributes["MaxSharedMemoryPerMultiprocessor"],
        )
    return _targets[index]


def _queue(
    launch: _Launch, library: DeviceLibrary, value: ArrayView, mask: ArrayView | None, initial: Any, result: int
) -> None:
    """Put the kernel on the library's current stream; `result` is an address."""
    number = 0 if initial is None else check_initial(initial, launch.request.result.dtype)
    if launch.empty:
        return
    handle = library.stream(value.device)
    stream = _streams.get(handle)
    if stream is None:
        stream = _streams[handle] = _Stream(handle)
    states = None
    if launch.workspace_bytes:
        states = workspace.find(launch.workspace_bytes, library, value.device, handle)
    to_value, to_result, to_mask = launch.offsets
    launch.function(
        launch.grid,
        launch.block,
        (
            value.pointer + to_value,
            result + to_result,
            0 if mask is None else mask.pointer + to_mask,
            0 if states is None else states.pointer,
            launch.carry(number),
            launch.geometry,
        ),
        shared_mem=launch.shared_bytes,
        stream=stream,
    )
    lent = [view.lender for view in (value, mask) if view is not None and view.lender is not None]
    if lent:
        _keep(lent)


def _keep(lent: list[Any]) -> None:
    """Hold what unknown libraries lent until the work that was just queued on CuPy's stream is done.

    Such a library orders its own work before ours, but not what it does with the memory afterwards.
    """
    event = cupy.cuda.Event(disable_timing=True)
    event.record()
    with _lent_lock:
        _lent.append((event, lent))
        while _lent[0][0].done:
            _lent.popleft()
            if not _lent:
                break
