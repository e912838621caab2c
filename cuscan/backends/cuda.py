"""Runs a call on a GPU: look the launch up, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

import collections
import threading
from typing import Any, cast

import cupy
import numpy as np

from cuscan.backends import workspace
from cuscan.call import Flags, Operands
from cuscan.checks import check_offsets
from cuscan.compile.module import load_kernel
from cuscan.config import Target
from cuscan.initial import initial_argument
from cuscan.interop.view import Device, DeviceLibrary
from cuscan.overlap import check_overlap
from cuscan.plan import make_plan
from cuscan.request import ScanRequest, make_request
from cuscan.specs import ALIGNMENT, ArraySpec

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
        self.new = [(r.shape, r.strides, r.dtype, device) for r in request.results]
        self.last = None if request.last is None else _without(request.last, request.axis, device)
        self.no_initial = initial_argument(request, None)
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
        self.values = len(request.values)
        self.numbers = [i for i, spec in enumerate(request.values) if spec.is_number]
        self.offsets = plan.present_offsets if any(plan.offsets) else None


def _without(spec: ArraySpec, axis: int, device: Device) -> tuple[Any, ...]:
    """The arguments of `DeviceLibrary.empty` for a spec without one of its axes."""
    shape, strides = ((*t[:axis], *t[axis + 1 :]) for t in (spec.shape, spec.strides))
    return shape, strides, spec.dtype, device


_launches: dict[Any, _Launch] = {}
_targets: dict[int, Target] = {}
_streams: dict[int, _Stream] = {}
_lent: collections.deque[tuple[Any, list[Any]]] = collections.deque()
_lent_lock = threading.Lock()


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any."""
    kind = operands.views[0].kind
    current, wanted = _get_device(), kind.device.ordinal
    if current != wanted:
        _set_device(wanted)
    try:
        launch = _find_launch(flags, operands, initial is not None)
        library = cast(DeviceLibrary, kind.library)
        if flags.validate and operands.segments == "offsets":
            _validate(launch.request, operands, library)
        outs = operands.outs
        if outs is None:
            owners = tuple([library.empty(*new) for new in launch.new])
            pointers = [library.pointer(owner) for owner in owners]
        else:
            check_overlap(operands)
            owners, pointers = tuple([out.owner for out in outs]), [out.pointer for out in outs]
        if launch.last is not None:
            last = library.empty(*launch.last)
            owners += (last,)
            pointers.append(library.pointer(last))
            if launch.empty:  # what comes in goes out
                row_initial = operands.get("initial")
                last[...] = (initial or 0) if row_initial is None else row_initial.owner
        number = launch.no_initial if initial is None else initial_argument(launch.request, initial)
        if not launch.empty:
            _queue(launch, library, operands, number, pointers)
        if outs is not None:
            for out in outs:
                library.written(out.owner)
        return owners
    finally:
        if current != wanted:
            _set_device(current)


def _find_launch(flags: Flags, operands: Operands, has_initial: bool) -> _Launch:
    """The launch that is kept for a like call, or a new one."""
    views, roles, outs = operands
    parts = [flags, roles, has_initial]
    for view in views if outs is None else views + outs:
        parts.append(view.kind)
        parts.append(view.pointer % ALIGNMENT)
    key = tuple(parts)
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


def _prepare(flags: Flags, operands: Operands, has_initial: bool) -> _Launch:
    request = make_request(flags, operands, has_initial=has_initial)
    return _Launch(request, operands.views[0].device)


def _validate(request: ScanRequest, operands: Operands, library: DeviceLibrary) -> None:
    view = operands.get("offsets")
    assert view is not None
    check_offsets(library.fetch(view.owner), request.shape[request.axis])


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


def _queue(launch: _Launch, library: DeviceLibrary, operands: Operands, number: Any, written: list[int]) -> None:
    """Put the kernel on the library's current stream; `written` are the addresses of results and last states."""
    device = operands.views[0].kind.device
    handle = library.stream(device)
    stream = _streams.get(handle)
    if stream is None:
        stream = _streams[handle] = _Stream(handle)
    states = workspace.find(launch.workspace_bytes, library, device, handle) if launch.workspace_bytes else None
    views = operands.views
    read, values, results = [view.pointer for view in views], launch.values, len(launch.new)
    addresses: list[Any] = read[:values] + written[:results] + read[values:] + written[results:]
    if launch.offsets is not None:
        addresses = [address + offset for address, offset in zip(addresses, launch.offsets, strict=True)]
    for i in launch.numbers:
        addresses[i] = views[i].owner
    launch.function(
        launch.grid,
        launch.block,
        (*addresses, 0 if states is None else states.pointer, number, launch.geometry),
        shared_mem=launch.shared_bytes,
        stream=stream,
    )
    lent = [view.lender for view in views if view.lender is not None]
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
