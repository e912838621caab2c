"""Runs a call on a GPU: look the launch up, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

import collections
import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import cupy

from cuscan.backends import repeats, workspace
from cuscan.backends.kernel import Argument, find_kernel
from cuscan.backends.repeats import Repeatable
from cuscan.dtypes import DType
from cuscan.errors import MissingKernelError
from cuscan.interop.view import ArrayKind, Device, DeviceLibrary, Like
from cuscan.kept import MOST, keep
from cuscan.planning import make_plan
from cuscan.planning.config import Target
from cuscan.planning.segment_starts import StartsPlan, plan_starts
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import CARRY, Flags, Operands, one_or_all
from cuscan.request.checks import check_offsets
from cuscan.request.initial import carry_start, initial_argument
from cuscan.request.kind import CallKind
from cuscan.request.overlap import Near, check_overlap, find_near
from cuscan.specs import ALIGNMENT, ArraySpec
from cuscan.versions import check_version
from cuscan.words import command_of

check_version("cupy", cupy.__version__)

Result = TypeVar("Result")
Place = tuple[int, int]  # the number of a piece of memory, and so many bytes from its address

current_device = cupy.cuda.runtime.getDevice
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
        self.kernel = find_kernel(plan.config, target.arch, device, lambda: (0, 0, self.words))


class Launch:
    """Everything about a request, on a GPU, that addresses and values do not change.

    Args:
        request: what is launched.
        roles: those of the arrays that are read.
        library: whose arrays they are.
        device: where they are.

    Attributes:
        unscanned: the request, if there are no elements. No other launch keeps it: what is kept of a shape is little.
        empty: whether there is nothing to launch.
        order: for each array of the kernel its place among those of the request (read, written), and `offsets` the
            bytes from its address to scan position 0; `moves` says whether the addresses are others for either.
        numbers: the places of values that are numbers.
        initial, geometry: what is passed by value behind the arrays.
    """

    def __init__(self, request: ScanRequest, roles: tuple[str, ...], library: DeviceLibrary, device: Device) -> None:
        self.kind, self.roles, self.library, self.device = request.kind, roles, library, device
        self.ordinal = device.ordinal
        self.unscanned = request if 0 in request.shape else None
        self.initial = _no_initial(request.kind)
        self.empty = 0 in request.results[0].shape or (self.kind.only_carry and self.unscanned is not None)
        if self.empty:
            return
        target = _target(device.ordinal)
        plan = make_plan(request, target)
        config, self.grid = plan.config, plan.grid
        self.workspace_bytes = plan.workspace_bytes
        self.order, self.numbers = config.order, config.numbers
        starts = plan_starts(request, target) if request.segments else None
        self.moves = config.reorders or any(plan.offsets) or starts is not None
        self.offsets = plan.present_offsets if self.moves else ()
        self.geometry = _words(plan.geometry)
        try:
            self.kernel = find_kernel(config, target.arch, device.ordinal, self._sample)
            self.starts = starts and _Starts(starts, target, device.ordinal, roles.index("offsets"))
        except MissingKernelError as error:
            command = command_of(request, target.arch)
            raise MissingKernelError(f"{error}; compile it ahead of time: {command}") from None

    def _sample(self) -> list[Argument]:
        """Arguments of the size that those of any call have."""
        sample: list[Argument] = [*self.order, 0, self.initial, self.geometry]
        for place in self.numbers:
            sample[place] = bytes(self.kind.values[place].itemsize)  # every call has its own
        return sample

    def queue(self, stream: int, pointers: list[int], start: bytes, numbers: Sequence[bytes] = ()) -> None:
        """Put the kernels on a stream of the current device.

        `pointers`: of all arrays, read or written; `start`: what the kernel takes for `initial`; `numbers`: values that
        are passed themselves.
        """
        if self.starts is None:
            self.queue_placed(stream, self._placed(pointers) if self.moves else pointers, start, numbers)
            return
        want_context(self.ordinal)
        bits = workspace.find(self.starts.nbytes, self.library, self.device, stream, "bits")
        with bits.lock or _NO_LOCK:  # another thread's bits for this stream are not for this scan
            self.starts.kernel.queue(
                stream, self.starts.grid, (pointers[self.starts.role], bits.pointer), self.starts.words
            )
            pointers[self.starts.role] = bits.pointer
            self.queue_placed(stream, self._placed(pointers), start, numbers)

    def _placed(self, pointers: list[int]) -> list[int]:
        """The addresses as the kernel takes them."""
        return [pointers[place] + self.offsets[i] for i, place in enumerate(self.order)]

    def place(self, places: Sequence[Place]) -> Sequence[Place]:
        """The places whose addresses the kernel takes for arrays at some places; `queue`'s with offsets."""
        if self.starts is not None or not self.moves:
            return places
        return [(places[i][0], places[i][1] + by) for i, by in zip(self.order, self.offsets, strict=True)]

    def queue_placed(self, stream: int, addresses: list[int], start: bytes, numbers: Sequence[bytes] = ()) -> None:
        """The same without bits of offsets, for addresses as the kernel takes them."""
        want_context(self.ordinal)
        arguments: Sequence[Argument] = addresses
        if self.numbers:
            arguments = [*addresses]
            for i, place in enumerate(self.numbers):
                arguments[place] = numbers[i]
        if not self.workspace_bytes:
            self.kernel.queue(stream, self.grid, (*arguments, 0, start), self.geometry)
            return
        states = workspace.find(self.workspace_bytes, self.library, self.device, stream)  # held until they are queued
        self.kernel.queue(stream, self.grid, (*arguments, states.pointer, start), self.geometry)


class CallLaunch(Launch):
    """The same of a call of the public functions.

    Attributes:
        like: see `repeats.Repeatable`.
        kinds: of the arrays that are read, and of those of `out`, if there is one.
        near: see `overlap.find_near`.
        length: of a line.
        makers: of the results that the call allocates.
        only_queues: whether it has nothing else to do.
        fields: of the carry that goes out.
    """

    like: Like | None = None

    def __init__(self, request: ScanRequest, operands: Operands, checks_offsets: bool) -> None:
        first = operands.views[0].kind
        library: DeviceLibrary = first.library  # type: ignore[assignment]
        super().__init__(request, operands.roles, library, first.device)
        self.kinds: tuple[ArrayKind, ...] = ()
        self.near: tuple[Near, ...] = ()
        if operands.outs is not None:
            self.kinds = tuple([view.kind for view in operands.views + operands.outs])
            self.near = find_near(len(operands.views), self.kinds)
        self.length = request.shape[request.axis]
        self.checks_offsets = checks_offsets
        self.fields = len(request.carry_out)
        self.only_queues = not self.checks_offsets and not self.empty and self.unscanned is None
        made = []
        if operands.outs is None and not self.kind.only_carry:
            made += [(spec.shape, spec.strides, spec.dtype) for spec in request.results]
        if request.last is not None:
            made.append(_without(request.last, request.axis))
        for field in request.carry_out:
            made.append(_without(field, request.axis))
        self.makers = tuple([library.maker(*spec, self.device) for spec in made]) if made else ()

    def run(self, arrays: tuple[Any, ...], outs: tuple[Any, ...], pointers: list[int], initial: Any) -> tuple[Any, ...]:
        """Run a call on the arrays that it reads and those of `out`, with the addresses of both; a number is a view."""
        current, wanted = current_device(), self.ordinal
        if current == wanted:
            return self._run(arrays, outs, pointers, initial)
        _set_device(wanted)
        try:
            return self._run(arrays, outs, pointers, initial)
        finally:
            _set_device(current)

    def _run(
        self, arrays: tuple[Any, ...], outs: tuple[Any, ...], pointers: list[int], initial: Any
    ) -> tuple[Any, ...]:
        library, results = self.library, outs
        if self.checks_offsets:
            offsets = arrays[self.roles.index("offsets")]
            check_offsets(library.fetch(offsets), self.length)
        for one, other, lowest, highest in self.near:
            if lowest < pointers[one] - pointers[other] < highest:
                check_overlap(self.roles, self.kinds, pointers)
        for make in self.makers:
            made = make()
            results += (made,)
            pointers.append(library.pointer(made))
        if not self.empty:
            start, numbers = self.initial, _NO_NUMBERS
            if initial is not None or self.numbers:
                start, numbers = self.passed(arrays, initial)
            self.queue(library.stream(self.device), pointers, start, numbers)
        if self.unscanned is not None:
            _hand_on(self.unscanned, dict(zip(self.roles, arrays, strict=True)), initial, results)
        for out in outs:
            library.written(out)
        if self.fields:
            return (*results[: -self.fields], one_or_all(results[-self.fields :]))
        return results

    def passed(self, arrays: tuple[Any, ...], initial: Any) -> tuple[bytes, tuple[bytes, ...]]:
        """What the kernel takes for `initial`, and the values that are numbers."""
        start = self.initial if initial is None else initial_argument(self.kind, initial).tobytes()
        return start, tuple([arrays[place].owner.tobytes() for place in self.numbers])


def want_context(device: int) -> None:
    """Have the context of the current device in this thread."""
    if device not in _this_thread.contexts:
        _make_context()
        _this_thread.contexts |= {device}


def within(device: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function while a device is current."""
    current = current_device()
    if current == device:
        return function(*arguments)
    _set_device(device)
    try:
        return function(*arguments)
    finally:
        _set_device(current)


@functools.lru_cache(MOST)
def _no_initial(kind: CallKind) -> bytes:
    """What a kernel takes for `initial` where there is none."""
    start: bytes = initial_argument(kind, None).tobytes()
    return start


def _words(words: tuple[int, ...]) -> bytes:
    return _form(len(words)).pack(*words)


@functools.cache
def _form(count: int) -> struct.Struct:
    """Of so many words, as kernels take them."""
    return struct.Struct(f"{count}q")


def _without(spec: ArraySpec, axis: int) -> tuple[tuple[int, ...], tuple[int, ...], DType]:
    """Shape, strides and dtype of a spec without one of its axes."""
    shape, strides = ((*t[:axis], *t[axis + 1 :]) for t in (spec.shape, spec.strides))
    return shape, strides, spec.dtype


_targets: dict[int, Target] = {}
_lent: collections.deque[tuple[Any, list[Any]]] = collections.deque()
_lent_lock = threading.Lock()
_NO_NUMBERS: tuple[bytes, ...] = ()
_NO_LOCK = contextlib.nullcontext()
_this_thread = _Thread()


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; returns arrays of the library of the values, those of `outs` if there are any."""
    current, wanted = current_device(), operands.views[0].device.ordinal
    try:
        if current != wanted:
            _set_device(wanted)
        launch, pointers = _find_launch(flags, operands, initial is not None)
        arrays = tuple([view if view.kind.is_number else view.owner for view in operands.views])
        outs = tuple([out.owner for out in operands.outs]) if operands.outs else ()
        results = launch.run(arrays, outs, pointers, initial)
        lent = [view.lender for view in operands.views if view.lender is not None]
        if lent:
            _keep(lent)
        return results
    finally:
        if current != wanted:
            _set_device(current)


def _hand_on(request: ScanRequest, arrays: dict[str, Any], initial: Any, results: tuple[Any, ...]) -> None:
    """Of no elements: what comes in goes out. `results` end with the last states and the carry, if there are any."""
    fields, row_initial = len(request.carry_out), arrays.get("initial")
    if request.last is not None:
        results[-1 - fields][...] = (initial or 0) if row_initial is None else row_initial
    carry: Iterable[Any] = [array for role, array in arrays.items() if role in CARRY] or carry_start(request, initial)
    if row_initial is not None:
        carry = request.op.states.start(row_initial)
    for out, field in zip(results[len(results) - fields :], carry, strict=False):
        out[...] = field


def _find_launch(flags: Flags, operands: Operands, has_initial: bool) -> tuple[Repeatable, list[int]]:
    """The launch that is kept for a like call, or a new one; and where the arrays of this call are."""
    views = operands.views + (operands.outs or ())
    pointers = [view.pointer for view in views]
    key = operands.key
    if key is None:  # else there is no launch that is kept by it
        places = [(view.kind, view.pointer % ALIGNMENT) for view in views]
        key = flags, operands.roles, has_initial, *places
        try:
            found = repeats.launches.get(key)
        except TypeError:  # an argument that cannot be hashed
            return _prepare(flags, operands, has_initial), pointers
        if found is not None:
            return found, pointers
    return keep(repeats.launches, key, _prepare(flags, operands, has_initial)), pointers


def _prepare(flags: Flags, operands: Operands, has_initial: bool) -> CallLaunch:
    request = make_request(flags, operands, has_initial=has_initial)
    return CallLaunch(request, operands, checks_offsets=flags.validate and operands.segments == "offsets")


def current_target() -> Target:
    """The GPU that is current."""
    return _target(current_device())


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
