"""Run a call on a GPU: find the launch, allocate, launch. Nothing here waits for the device."""

from __future__ import annotations

import collections
import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import cupy

from cuscan.backends import repeats, workspace
from cuscan.backends.kernel import Argument, find_kernel, get_kernel
from cuscan.backends.repeats import Repeatable
from cuscan.compile.background import compile_in_background
from cuscan.compile.module import compiles_in_background, is_compiled, prefers_general
from cuscan.dtypes import DType
from cuscan.errors import MissingKernelError
from cuscan.interop.view import ArrayKind, Device, DeviceLibrary, Like
from cuscan.kept import MOST, keep
from cuscan.planning import make_plan
from cuscan.planning.config import Preparation, ScanPlan, Target
from cuscan.planning.preparations import preparations
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
Place = tuple[int, int]  # the index of an address, and a number of bytes to add to it

current_device = cupy.cuda.runtime.getDevice
_set_device = cupy.cuda.runtime.setDevice
# A thread gets the device's context with its first runtime call that needs one. cuscan launches through the driver
# instead of CuPy, and the driver's launch does not create the context.
_make_context = cupy.cuda.runtime.memGetInfo


class _Thread(threading.local):
    """State of a thread: the devices whose contexts it has."""

    contexts: frozenset[int] = frozenset()


class _Preparation:
    """A launch before the scan. It reads array number `role`, and writes memory that the scan reads in its place.

    That memory begins `offset` bytes into the workspace for flags.
    """

    def __init__(self, plan: Preparation, target: Target, device: int, role: int, offset: int) -> None:
        self.role = role
        self.offset = offset
        self.end = offset + plan.nbytes
        self.grid = plan.grid
        self.words = _words(plan.words)
        self.kernel = find_kernel(plan.config, target.arch, device, lambda: (0, 0, self.words))


class Launch:
    """A request on a GPU, with everything that addresses and values do not change.

    Args:
        request: the request to launch.
        roles: the roles of the arrays that it reads.
        library: the library of the arrays.
        device: the device of the arrays.

    Attributes:
        unscanned: the request, if there are no elements. Other launches do not store it: this saves memory per shape.
        empty: whether there is nothing to launch.
        order: for each array of the kernel, its index among the arrays of the request (read, then written).
        offsets: for each of them, the bytes from its address to scan position 0.
        moves: whether `order` or `offsets` changes the addresses.
        numbers: the indices of the values that are numbers.
        initial, geometry: arguments passed by value after the arrays.
        request, faster: where a general plan runs, its request, and the compilation of a faster kernel, or its launch.
    """

    request: ScanRequest
    faster: Future[None] | Launch | None = None

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
        loaded = get_kernel(plan.config, target.arch, device.ordinal)
        if loaded is None and prefers_general():
            plan = self._at_hand(request, plan, target)
        config, self.grid = plan.config, plan.grid
        self.workspace_bytes = plan.workspace_bytes
        self.order, self.numbers = config.order, config.numbers
        planned = preparations(request, target)
        self.preparations: list[_Preparation] = []
        self.moves = config.reorders or any(plan.offsets) or bool(planned)
        self.offsets = plan.present_offsets if self.moves else ()
        self.geometry = _words(plan.geometry)
        try:
            self.kernel = loaded or find_kernel(config, target.arch, device.ordinal, self._sample)
            for one in planned:
                offset = -(-self.preparations[-1].end // _APART) * _APART if self.preparations else 0
                self.preparations.append(_Preparation(one, target, device.ordinal, roles.index(one.role), offset))
        except MissingKernelError as error:
            command = command_of(request, target.arch)
            raise MissingKernelError(f"{error}; compile it ahead of time: {command}") from None

    def _at_hand(self, request: ScanRequest, plan: ScanPlan, target: Target) -> ScanPlan:
        """Return the general plan if the kernel of the plan itself is missing."""
        if is_compiled(plan.config, target.arch):
            return plan
        general = make_plan(request, target, general=True)
        if general.config == plan.config:
            return plan
        if compiles_in_background():
            self.request, self.faster = request, compile_in_background(plan.config, target.arch)
            return general
        return general if is_compiled(general.config, target.arch) else plan

    def _replaced(self, stream: int) -> Launch | None:
        """Return the launch with the plan's own kernel, once that is compiled. Captured calls load nothing."""
        faster = self.faster
        if isinstance(faster, Future):
            if not faster.done() or (stream != 0 and cupy.cuda.runtime.streamIsCapturing(stream)):
                return None
            made = Launch(self.request, self.roles, self.library, self.device)
            faster = self.faster = None if made.faster else made  # it may be missing again
        return faster

    def _sample(self) -> list[Argument]:
        """Return arguments that have the same sizes as those of every call."""
        sample: list[Argument] = [*self.order, 0, self.initial, self.geometry]
        for place in self.numbers:
            sample[place] = bytes(self.kind.values[place].itemsize)  # every call passes its own number
        return sample

    def queue(self, stream: int, pointers: list[int], start: bytes, numbers: Sequence[bytes] = ()) -> None:
        """Queue the kernels on a stream of the current device.

        `pointers` are the addresses of all arrays, read or written. `start` is the kernel's argument `initial`.
        `numbers` are the values passed by value.
        """
        if self.faster is not None:
            replaced = self._replaced(stream)
            if replaced is not None:
                return replaced.queue(stream, pointers, start, numbers)
        if not self.preparations:
            self.queue_placed(stream, self._placed(pointers) if self.moves else pointers, start, numbers)
            return
        want_context(self.ordinal)
        flags = workspace.find(self.preparations[-1].end, self.library, self.device, stream, "flags")
        with flags.lock or _NO_LOCK:  # no other thread may replace this stream's flags
            for before in self.preparations:
                written = flags.pointer + before.offset
                before.kernel.queue(stream, before.grid, (pointers[before.role], written), before.words)
                pointers[before.role] = written
            self.queue_placed(stream, self._placed(pointers), start, numbers)

    def _placed(self, pointers: list[int]) -> list[int]:
        """Return the addresses in the kernel's order, with the offsets added."""
        return [pointers[place] + self.offsets[i] for i, place in enumerate(self.order)]

    def place(self, places: Sequence[Place]) -> Sequence[Place]:
        """Convert places to the kernel's order and add the offsets.

        With launches before the scan, leave both to `queue`.
        """
        if self.preparations or not self.moves:
            return places
        return [(places[i][0], places[i][1] + by) for i, by in zip(self.order, self.offsets, strict=True)]

    def queue_placed(self, stream: int, addresses: list[int], start: bytes, numbers: Sequence[bytes] = ()) -> None:
        """Queue the scan alone, without the launches before it, for addresses in the kernel's order."""
        want_context(self.ordinal)
        arguments: Sequence[Argument] = addresses
        if self.numbers:
            arguments = [*addresses]
            for i, place in enumerate(self.numbers):
                arguments[place] = numbers[i]
        if not self.workspace_bytes:
            self.kernel.queue(stream, self.grid, (*arguments, 0, start), self.geometry)
            return
        states = workspace.find(self.workspace_bytes, self.library, self.device, stream)  # held until queued
        self.kernel.queue(stream, self.grid, (*arguments, states.pointer, start), self.geometry)


class CallLaunch(Launch):
    """The launch of a call of the public functions.

    Attributes:
        like: see `repeats.Repeatable`.
        kinds: the kinds of the arrays read and of those of `out`; empty without `out`.
        near: see `overlap.find_near`.
        length: the length of a line.
        makers: functions that allocate the results that the call returns.
        fields: the number of fields of the outgoing carry.
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
        made = []
        if operands.outs is None and not self.kind.only_carry:
            made += [(spec.shape, spec.strides, spec.dtype) for spec in request.results]
        if request.last is not None:
            made.append(_without(request.last, request.axis))
        for field in request.carry_out:
            made.append(_without(field, request.axis))
        self.makers = tuple([library.maker(*spec, self.device) for spec in made]) if made else ()

    @property
    def only_queues(self) -> bool:
        """Whether the call only allocates and queues."""
        return not self.checks_offsets and not self.empty and self.unscanned is None

    def run(self, arrays: tuple[Any, ...], outs: tuple[Any, ...], pointers: list[int], initial: Any) -> tuple[Any, ...]:
        """Run a call on the arrays that it reads and those of `out`, with the addresses of both; numbers are views."""
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
            _hand_on(self.unscanned, library, dict(zip(self.roles, arrays, strict=True)), initial, results)
        for out in outs:
            library.written(out)
        if self.fields:
            return (*results[: -self.fields], one_or_all(results[-self.fields :]))
        return results

    def passed(self, arrays: tuple[Any, ...], initial: Any) -> tuple[bytes, tuple[bytes, ...]]:
        """Return the kernel's argument `initial`, and the values that are numbers, as bytes."""
        start = self.initial if initial is None else initial_argument(self.kind, initial).tobytes()
        return start, tuple([arrays[place].owner.tobytes() for place in self.numbers])


def want_context(device: int) -> None:
    """Ensure that this thread has the context of the current device."""
    if device not in _this_thread.contexts:
        _make_context()
        _this_thread.contexts |= {device}


def within(device: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function with `device` as the current device."""
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
    """Return the kernel's argument `initial` for calls without one."""
    start: bytes = initial_argument(kind, None).tobytes()
    return start


def _words(words: tuple[int, ...]) -> bytes:
    return _form(len(words)).pack(*words)


@functools.cache
def _form(count: int) -> struct.Struct:
    """Return the packed form of `count` 64-bit words, as kernels take them."""
    return struct.Struct(f"{count}q")


def _without(spec: ArraySpec, axis: int) -> tuple[tuple[int, ...], tuple[int, ...], DType]:
    """Return shape, strides and dtype of a spec without one of its axes."""
    shape, strides = ((*t[:axis], *t[axis + 1 :]) for t in (spec.shape, spec.strides))
    return shape, strides, spec.dtype


_targets: dict[int, Target] = {}
_lent: collections.deque[tuple[Any, list[Any]]] = collections.deque()
_lent_lock = threading.Lock()
_NO_NUMBERS: tuple[bytes, ...] = ()
_APART = 256  # alignment in bytes of what the launches before a scan write
_NO_LOCK = contextlib.nullcontext()
_this_thread = _Thread()


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; return arrays of the library of the values, or those of `outs` if there are any."""
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


def _hand_on(
    request: ScanRequest, library: DeviceLibrary, arrays: dict[str, Any], initial: Any, results: tuple[Any, ...]
) -> None:
    """Without elements, copy the incoming state to the last states and the carry, which end `results` if requested."""
    fields, row_initial = len(request.carry_out), arrays.get("initial")
    if request.last is not None:
        library.put(results[-1 - fields], (initial or 0) if row_initial is None else row_initial)
    carry: Iterable[Any] = [array for role, array in arrays.items() if role in CARRY] or carry_start(request, initial)
    if row_initial is not None:
        carry = request.op.states.start(row_initial)
    for out, field in zip(results[len(results) - fields :], carry, strict=False):
        library.put(out, field)


def _find_launch(flags: Flags, operands: Operands, has_initial: bool) -> tuple[Repeatable, list[int]]:
    """Return the stored launch of a similar call, or a new one, and the addresses of this call's arrays."""
    views = operands.views + (operands.outs or ())
    pointers = [view.pointer for view in views]
    key = operands.key
    if key is None:  # with `operands.key`, the lookup in `repeats.repeat` already missed
        places = [(view.kind, view.pointer % ALIGNMENT) for view in views]
        key = flags, operands.roles, has_initial, *places
        try:
            found = repeats.launches.get(key)
        except TypeError:  # an unhashable argument
            return _prepare(flags, operands, has_initial), pointers
        if found is not None:
            return found, pointers
    return keep(repeats.launches, key, _prepare(flags, operands, has_initial)), pointers


def _prepare(flags: Flags, operands: Operands, has_initial: bool) -> CallLaunch:
    request = make_request(flags, operands, has_initial=has_initial)
    return CallLaunch(request, operands, checks_offsets=flags.validate and operands.segments == "offsets")


def current_target() -> Target:
    """Return the properties of the current GPU."""
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
    """Hold arrays lent by unknown libraries until the work just queued on CuPy's stream is done.

    Such a library orders its own earlier work before ours, but may reuse the memory without waiting for ours.
    """
    event = cupy.cuda.Event(disable_timing=True)
    event.record()
    with _lent_lock:
        _lent.append((event, lent))
        while _lent[0][0].done:
            _lent.popleft()
            if not _lent:
                break
