"""Runs a call on a GPU: look the launch up, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

import collections
import contextlib
import functools
import struct
import threading
from collections.abc import Iterable
from typing import Any, cast

import cupy

from cuscan.backends import workspace
from cuscan.backends.kernel import Argument, find_kernel
from cuscan.call import Flags, Operands, one_or_all
from cuscan.checks import check_offsets
from cuscan.config import Target
from cuscan.dtypes import DType
from cuscan.initial import carry_start, initial_argument
from cuscan.interop.view import ArrayView, DeviceLibrary
from cuscan.kept import MOST, keep
from cuscan.overlap import check_overlap
from cuscan.plan import make_plan
from cuscan.request import CallKind, ScanRequest, make_request
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

    def __init__(self, plan: StartsPlan, target: Target, device: int, role: int) -> None:
        self.role = role
        self.nbytes = plan.nbytes
        self.grid = plan.grid
        self.words = _words(plan.words)
        self.kernel = find_kernel(plan.config, target.arch, device, (0, 0, self.words))


class _Launch:
    """Everything about a call that its arguments' addresses and values do not change.

    Attributes:
        places: for each array of the kernel its place among those of the call (read, written), and the bytes from its
            address to scan position 0; None where the arrays of the call are those of the kernel.
        numbers: the places of values that are numbers.
        initial, geometry: what is passed by value behind the arrays.
    """

    def __init__(self, request: ScanRequest, operands: Operands, checks_offsets: bool) -> None:
        device = operands.views[0].device
        self.library = cast(DeviceLibrary, operands.views[0].library)
        self.request = request
        self.checks_offsets = checks_offsets
        self.fields = len(request.carry_out)
        results = () if request.only_carry else request.results
        made = [] if operands.outs is not None else [(r.shape, r.strides, r.dtype) for r in results]
        behind = (*([] if request.last is None else [request.last]), *request.carry_out)
        made += [_without(spec, request.axis) for spec in behind]
        self.makers = [self.library.maker(*spec, device) for spec in made]
        self.has_elements = 0 not in request.shape
        self.empty = 0 in request.result.shape or (request.only_carry and not self.has_elements)
        if self.empty:
            return
        target = _target(device.ordinal)
        plan = make_plan(request, target)
        self.workspace_bytes = plan.workspace_bytes
        self.grid = plan.grid
        # The arrays of a call are those that it reads, then those that it writes; the kernel takes the results behind
        # the values.
        values, read, carried = len(request.values), len(operands.views), len(request.carry_in)
        written = read + len(results)
        count, last = written + len(behind), written + (request.last is not None)
        beside, carry_in = range(values, read - carried), range(read - carried, read)
        order = [*range(values), *range(read, written), *beside, *range(written, last), *carry_in, *range(last, count)]
        places = list(zip(order, plan.present_offsets, strict=True))
        self.places = None if order == list(range(count)) and not any(plan.offsets) else places
        self.numbers = [place for place, spec in enumerate(request.values) if spec.is_number]
        self.initial = _no_initial(request.kind)
        self.geometry = _words(plan.geometry)
        sample: list[Argument] = [*order, 0, self.initial, self.geometry]
        for place in self.numbers:
            sample[place] = operands.views[place].owner.tobytes()
        self.kernel = find_kernel(plan.config, target.arch, device.ordinal, sample)
        starts = plan_starts(request, target)
        self.starts = starts and _Starts(starts, target, device.ordinal, operands.roles.index("offsets"))


@functools.lru_cache(MOST)
def _no_initial(kind: CallKind) -> bytes:
    """What a kernel takes for `initial` where there is none."""
    start: bytes = initial_argument(kind, None).tobytes()
    return start


def _words(words: tuple[int, ...]) -> bytes:
    return struct.pack(f"{len(words)}q", *words)


def _without(spec: ArraySpec, axis: int) -> tuple[tuple[int, ...], tuple[int, ...], DType]:
    """Shape, strides and dtype of a spec without one of its axes."""
    shape, strides = ((*t[:axis], *t[axis + 1 :]) for t in (spec.shape, spec.strides))
    return shape, strides, spec.dtype


_launches: dict[Any, _Launch] = {}
_targets: dict[int, Target] = {}
_lent: collections.deque[tuple[Any, list[Any]]] = collections.deque()
_lent_lock = threading.Lock()
_NO_LOCK = contextlib.nullcontext()
_this_thread = _Thread()


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any."""
    current, wanted = _get_device(), operands.views[0].kind.device.ordinal
    if current == wanted:
        return _run(flags, operands, initial)
    _set_device(wanted)
    try:
        return _run(flags, operands, initial)
    finally:
        _set_device(current)


def _run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call on the current device."""
    launch, pointers = _find_launch(flags, operands, initial is not None)
    library, outs = launch.library, operands.outs
    if launch.checks_offsets:
        _validate(launch.request, operands, library)
    owners = []
    if outs is not None:
        check_overlap(operands)
        owners = [out.owner for out in outs]
    for make in launch.makers:
        made = make()
        owners.append(made)
        pointers.append(library.pointer(made))
    if not launch.empty:
        start = launch.initial if initial is None else initial_argument(launch.request.kind, initial).tobytes()
        _queue(launch, operands.views, pointers, start)
    elif initial is not None:
        initial_argument(launch.request.kind, initial)
    if not launch.has_elements:
        _hand_on(launch.request, operands, initial, owners)
    if outs is not None:
        for out in outs:
            library.written(out.owner)
    if launch.fields:
        owners[-launch.fields :] = [one_or_all(owners[-launch.fields :])]
    return tuple(owners)


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


def _find_launch(flags: Flags, operands: Operands, has_initial: bool) -> tuple[_Launch, list[int]]:
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


def _prepare(flags: Flags, operands: Operands, has_initial: bool) -> _Launch:
    request = make_request(flags, operands, has_initial=has_initial)
    return _Launch(request, operands, checks_offsets=flags.validate and operands.segments == "offsets")


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


def _queue(launch: _Launch, views: tuple[ArrayView, ...], pointers: list[int], start: bytes) -> None:
    """Put the kernels on the library's current stream; `pointers` are those of all arrays, read or written."""
    library, device = launch.library, views[0].kind.device
    if device.ordinal not in _this_thread.contexts:
        _make_context()
        _this_thread.contexts |= {device.ordinal}
    stream = library.stream(device)
    arguments: list[Argument] = [*pointers]
    starts, bits = launch.starts, None
    if starts is not None:
        bits = workspace.find(starts.nbytes, library, device, stream, "bits")
        arguments[starts.role] = bits.pointer
    if launch.places is not None:
        arguments = [arguments[place] + offset for place, offset in launch.places]
    for place in launch.numbers:
        arguments[place] = views[place].owner.tobytes()
    states = None  # held until the kernel is queued, as are the bits
    if launch.workspace_bytes:
        states = workspace.find(launch.workspace_bytes, library, device, stream)
    arguments += states.pointer if states else 0, start, launch.geometry
    if starts is None or bits is None:
        launch.kernel.queue(stream, launch.grid, arguments)
    else:
        with bits.lock or _NO_LOCK:  # another thread's bits for this stream are not for this scan
            starts.kernel.queue(stream, starts.grid, (pointers[starts.role], bits.pointer, starts.words))
            launch.kernel.queue(stream, launch.grid, arguments)
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
