"""Runs a call on a GPU: look the launch up, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterable
from typing import Any, cast

import cupy
import numpy as np

from cuscan.backends import workspace
from cuscan.backends.kernel import Kernel
from cuscan.call import Flags, Operands, one_or_all
from cuscan.checks import check_offsets
from cuscan.config import Target
from cuscan.dtypes import DType
from cuscan.initial import carry_start, initial_argument
from cuscan.interop.view import ArrayView, Device, DeviceLibrary
from cuscan.kept import keep
from cuscan.overlap import check_overlap
from cuscan.plan import make_plan
from cuscan.request import ScanRequest, make_request
from cuscan.segment_starts import StartsPlan, plan_starts
from cuscan.specs import ALIGNMENT, ArraySpec
from cuscan.versions import check_version

check_version("cupy", cupy.__version__)

_get_device = cupy.cuda.runtime.getDevice
_set_device = cupy.cuda.runtime.setDevice
# A thread has a device's context once it called the runtime for something that needs it. The driver's launch, in place
# of CuPy's, makes none.
_make_context = cupy.cuda.runtime.memGetInfo


class _Thread(threading.local):
    """What a thread knows: the devices whose contexts it has."""

    contexts: frozenset[int] = frozenset()


class _Starts:
    """The launch that makes bits of offsets for the scan. `role` is the place of the offsets among the arrays."""

    def __init__(self, plan: StartsPlan, arch: int, role: int) -> None:
        self.role = role
        self.nbytes = plan.nbytes
        self.kernel = Kernel(plan.config, arch, plan.grid, [0, 1, np.array(plan.words, np.int64).tobytes()])


class Launch:
    """Everything about a request, on a GPU, that addresses and values do not change.

    Args:
        request: what is launched.
        roles: those of the arrays that are read.
        library: whose arrays they are.
        device: where they are.

    Attributes:
        has_elements: whether anything is scanned.
        empty: whether there is nothing to launch.
    """

    def __init__(self, request: ScanRequest, roles: tuple[str, ...], library: DeviceLibrary, device: Device) -> None:
        self.request, self.library, self.device = request, library, device
        results = () if request.only_carry else request.results
        behind = (*([] if request.last is None else [request.last]), *request.carry_out)
        self.has_elements = 0 not in request.shape
        self.empty = 0 in request.result.shape or (request.only_carry and not self.has_elements)
        if self.empty:
            return
        target = _target(device.ordinal)
        plan = make_plan(request, target)
        self.workspace_bytes = plan.workspace_bytes
        # Addresses are told as read, written, workspace; the kernel takes what is written behind the values.
        values, read, carried = len(request.values), len(roles), len(request.carry_in)
        written = read + len(results)
        count, last = written + len(behind), written + (request.last is not None)
        beside, carry_in = range(values, read - carried), range(read - carried, read)
        written_behind = (*range(written, last), *carry_in, *range(last, count))
        order = [*range(values), *range(read, written), *beside, *written_behind]
        offsets = dict(zip(order, plan.present_offsets, strict=True))
        self.offsets = [offsets[i] for i in range(count)] if any(plan.offsets) else None
        self.numbers = [i for i, spec in enumerate(request.values) if spec.is_number]
        carry = initial_argument(request, None).tobytes()
        geometry = np.array(plan.geometry, np.int64).tobytes()
        parts: list[int | bytes] = [*order, count, carry, geometry]
        for i in self.numbers:
            parts[i] = bytes(request.values[i].dtype.itemsize)  # every call writes its own
        self.carry = len(order) + 1
        self.kernel = Kernel(plan.config, target.arch, plan.grid, parts)
        starts = plan_starts(request, target)
        self.starts = starts and _Starts(starts, target.arch, roles.index("offsets"))

    def queue(self, stream: int, pointers: list[int], values: list[tuple[int, bytes]]) -> None:
        """Put the kernels on a stream of the current device.

        `pointers`: of all arrays, read or written; `values`: of the arguments that are passed by value.
        """
        library, device = self.library, self.device
        if self.offsets is not None:
            pointers = [pointer + offset for pointer, offset in zip(pointers, self.offsets, strict=True)]
        states = None  # held until the kernel is queued, as are the bits
        starts = self.starts
        if starts is not None:
            bits = workspace.find(starts.nbytes, library, device, stream, "bits")
            offsets, pointers[starts.role] = pointers[starts.role], bits.pointer
        if self.workspace_bytes:
            states = workspace.find(self.workspace_bytes, library, device, stream)
            pointers.append(states.pointer)
        else:
            pointers.append(0)
        if device.ordinal not in _this_thread.contexts:
            _make_context()
            _this_thread.contexts |= {device.ordinal}
        if starts is None:
            self.kernel.queue(stream, pointers, values)
            return
        with bits.lock or _NO_LOCK:  # another thread's bits for this stream are not for this scan
            starts.kernel.queue(stream, (offsets, bits.pointer))
            self.kernel.queue(stream, pointers, values)


class _Call(Launch):
    """The same of a call of the public functions, with what makes its results."""

    def __init__(self, request: ScanRequest, operands: Operands, checks_offsets: bool) -> None:
        first = operands.views[0]
        super().__init__(request, operands.roles, cast(DeviceLibrary, first.library), first.device)
        self.checks_offsets = checks_offsets
        results = () if request.only_carry or operands.outs is not None else request.results
        behind = (*([] if request.last is None else [request.last]), *request.carry_out)
        made = [(r.shape, r.strides, r.dtype) for r in results] + [_without(spec, request.axis) for spec in behind]
        self.makers = [self.library.maker(*spec, self.device) for spec in made]


def _without(spec: ArraySpec, axis: int) -> tuple[tuple[int, ...], tuple[int, ...], DType]:
    """Shape, strides and dtype of a spec without one of its axes."""
    shape, strides = ((*t[:axis], *t[axis + 1 :]) for t in (spec.shape, spec.strides))
    return shape, strides, spec.dtype


_launches: dict[Any, _Call] = {}
_targets: dict[int, Target] = {}
_lent: collections.deque[tuple[Any, list[Any]]] = collections.deque()
_lent_lock = threading.Lock()
_NO_LOCK = contextlib.nullcontext()
_this_thread = _Thread()


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any."""
    views, outs = operands.views, operands.outs
    current, wanted = _get_device(), views[0].kind.device.ordinal
    if current != wanted:
        _set_device(wanted)
    try:
        launch, pointers = _find_launch(flags, operands, initial is not None)
        library = launch.library
        if launch.checks_offsets:
            _validate(launch.request, operands, library)
        owners = []
        if outs is not None:
            check_overlap(operands)
            for out in outs:
                owners.append(out.owner)
        for make in launch.makers:
            owners.append(make())
            pointers.append(library.pointer(owners[-1]))
        number = None if initial is None else initial_argument(launch.request, initial)
        if not launch.empty:
            _queue(launch, views, pointers, number)
        if not launch.has_elements:
            _hand_on(launch.request, operands, initial, owners)
        if outs is not None:
            for out in outs:
                library.written(out.owner)
        fields = len(launch.request.carry_out)
        if fields:
            owners[-fields:] = [one_or_all(owners[-fields:])]
        return tuple(owners)
    finally:
        if current != wanted:
            _set_device(current)


def _hand_on(request: ScanRequest, operands: Operands, initial: Any, owners: list[Any]) -> None:
    """Of no elements: what comes in goes out. `owners` end with the last states and the carry, if there are any."""
    fields, row_initial = len(request.carry_out), operands.get("initial")
    if request.last is not None:
        owners[-1 - fields][...] = (initial or 0) if row_initial is None else row_initial.owner
    carry: Iterable[Any] = [view.owner for view in operands.carry] or carry_start(request, initial)
    if row_initial is not None:
        carry = request.op.states.start(row_initial.owner)
    for out, field in zip(owners[len(owners) - fields :], carry, strict=False):
        out[...] = field


def _find_launch(flags: Flags, operands: Operands, has_initial: bool) -> tuple[_Call, list[int]]:
    """The launch that is kept for a like call, or a new one; and where the arrays of this call are."""
    arrays = operands.views if operands.outs is None else operands.views + operands.outs
    parts, pointers = [flags, operands.roles, has_initial], []
    for array in arrays:
        pointer = array.pointer
        pointers.append(pointer)
        parts.append(array.kind)
        parts.append(pointer % ALIGNMENT)
    key = tuple(parts)
    try:
        return _launches[key], pointers
    except KeyError:
        pass
    except TypeError:  # an argument that cannot be hashed
        return _prepare(flags, operands, has_initial), pointers
    return keep(_launches, key, _prepare(flags, operands, has_initial)), pointers


def _prepare(flags: Flags, operands: Operands, has_initial: bool) -> _Call:
    request = make_request(flags, operands, has_initial=has_initial)
    return _Call(request, operands, checks_offsets=flags.validate and operands.segments == "offsets")


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


def _queue(launch: _Call, views: tuple[ArrayView, ...], pointers: list[int], number: Any) -> None:
    """Put the kernels on the library's current stream; `pointers` are those of all arrays, read or written."""
    values = [(i, views[i].owner.tobytes()) for i in launch.numbers]
    if number is not None:
        values.append((launch.carry, number.tobytes()))
    launch.queue(launch.library.stream(launch.device), pointers, values)
    for view in views:
        if view.lender is not None:
            _keep([view.lender for view in views if view.lender is not None])
            break


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
