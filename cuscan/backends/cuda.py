"""Runs a call on a GPU: look the launch up, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

import collections
import operator
import threading
from typing import Any, cast

import cupy
import numpy as np

from cuscan.backends import workspace
from cuscan.compile.module import load_kernel
from cuscan.interop.view import ArrayView, Device, DeviceLibrary
from cuscan.overlap import check_overlap
from cuscan.plan import Target, make_plan
from cuscan.request import ALIGNMENT, Flags, Operands, ScanRequest, check_offsets, initial_argument, make_request

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
        self.empty = 0 in request.result.shape
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
        self.workspace_bytes = plan.workspace_bytes
        self.offsets = plan.offsets


_launches: dict[Any, _Launch] = {}
_targets: dict[int, Target] = {}
_streams: dict[int, _Stream] = {}
_lent: collections.deque[tuple[Any, list[Any]]] = collections.deque()
_lent_lock = threading.Lock()


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any."""
    main = operands.values[-1]
    current, wanted = _get_device(), main.device.ordinal
    if current != wanted:
        _set_device(wanted)
    try:
        launch = _find_launch(flags, operands, initial is not None)
        request, library = launch.request, cast(DeviceLibrary, main.library)
        if flags.validate and operands.segments and operands.segments[0] == "offsets":
            check_offsets(library.fetch(operands.segments[1].owner), request.shape[request.axis])
        outs = operands.outs
        if outs is None:
            owners = tuple(library.empty(s.shape, s.strides, s.dtype, main.device) for s in request.results)
            pointers = [library.pointer(owner) for owner in owners]
        else:
            check_overlap(operands)
            owners, pointers = tuple(out.owner for out in outs), [out.pointer for out in outs]
        last: tuple[Any, ...] = ()
        if request.last is not None:
            rows = tuple(n for axis, n in enumerate(request.last.shape) if axis != request.axis)
            strides = tuple(s for axis, s in enumerate(request.last.strides) if axis != request.axis)
            last = (library.empty(rows, strides, request.last.dtype, main.device),)
            if launch.empty:
                last[0][...] = operands.row_initial.owner if operands.row_initial else initial or 0
        _queue(launch, library, operands, initial, pointers, library.pointer(last[0]) if last else 0)
        if outs is not None:
            for out in outs:
                library.written(out.owner)
        return owners + last
    finally:
        if current != wanted:
            _set_device(current)


def _find_launch(flags: Flags, operands: Operands, has_initial: bool) -> _Launch:
    """The launch that is kept for a like call, or a new one.

    Types are part of the key: 1 equals True and 1.0, and only one of them is an axis.
    """
    values, mask, segments, row_initial, outs = operands
    key = (
        flags,
        tuple(map(type, flags)),
        has_initial,
        tuple(map(_shape_of, values)),
        mask and _shape_of(mask),
        segments and (segments[0], _shape_of(segments[1])),
        row_initial and _shape_of(row_initial),
        outs and tuple(map(_shape_of, outs)),
    )
    try:
        return _launches[key]
    except KeyError:
        pass
    except TypeError:  # an argument that cannot be hashed
        return _prepare(flags, operands, has_initial)
    if len(_launches) >= _MAX_LAUNCHES:
        _launches.clear()
    launch = _launches[key] = _prepare(flags, operands, has_initial)
    return launch


def _shape_of(view: ArrayView) -> Any:
    """All of a view that a launch depends on, but for the address."""
    return (
        view.library,
        view.dtype,
        view.shape,
        view.strides,
        view.pointer % ALIGNMENT,
        view.device,
        view.readonly,
    )


def _prepare(flags: Flags, operands: Operands, has_initial: bool) -> _Launch:
    request = make_request(flags, operands, has_initial=has_initial)
    return _Launch(request, operands.values[-1].device)


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
    launch: _Launch, library: DeviceLibrary, operands: Operands, initial: Any, results: list[int], last: int
) -> None:
    """Put the kernel on the library's current stream; `results` and `last` are addresses."""
    number = initial_argument(launch.request, initial)
    if launch.empty:
        return
    device = operands.values[-1].device
    handle = library.stream(device)
    stream = _streams.get(handle)
    if stream is None:
        stream = _streams[handle] = _Stream(handle)
    states = None
    if launch.workspace_bytes:
        states = workspace.find(launch.workspace_bytes, library, device, handle)
    values, mask, segments, row_initial, _ = operands
    addresses = (
        *(value.pointer for value in values),
        *results,
        0 if mask is None else mask.pointer,
        0 if segments is None else segments[1].pointer,
        0 if row_initial is None else row_initial.pointer,
        last,
    )
    launch.function(
        launch.grid,
        launch.block,
        (
            *map(operator.add, addresses, launch.offsets),
            0 if states is None else states.pointer,
            number,
            launch.geometry,
        ),
        shared_mem=launch.shared_bytes,
        stream=stream,
    )
    lent = [v.lender for v in (*values, *(v for _, v in operands.others())) if v.lender is not None]
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
