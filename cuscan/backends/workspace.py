"""Device memory for tile states, and for the bits that offsets of segments become, kept from call to call.

One workspace a stream for states: launches in a stream run one after the other, and each leaves the workspace
ready for the next (cuda/workspace.cuh). It starts with 1 MiB and grows to the largest call seen: 8 to
32 bytes for every 16 to 32 KiB that a scan along a contiguous axis reads, up to 161 bytes a KiB along
other axes. A stream has another one for bits, an eighth of a byte for each element along the axis, which
every call writes anew: what it holds must never be taken for states. A workspace is allocated by the
library that owns the arrays, so its memory is ordered on that library's stream. CUDA gives the handle of
a stream that was destroyed, though still at work, to the next one, which may run beside it; so the
workspace keeps its stream alive. Of more than 64 workspaces those of idle streams are let go.

A call that is captured into a graph gets memory of its own for good, since graphs do not say when they are gone and a
replay may run beside eager calls or other graphs, in any stream. For states it comes from a reserve of 4 MiB a library
and device, cleared beforehand (by the first call that needs states, and anew when half of it is gone), so that the
graph holds nothing but kernels. Where the reserve does not suffice, clearing is captured too. Bits need not be cleared.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Literal, NamedTuple

import cupy

from cuscan.dtypes import DTYPES
from cuscan.interop.view import Device, DeviceLibrary

_SMALLEST = 1 << 20
_RESERVE = 4 << 20
_ALIGNMENT = 256
_MANY = 64  # workspaces that are kept, but for those of streams at work
_PER_THREAD_STREAM = 2  # cudaStreamPerThread: one handle, a stream in every thread


class Workspace(NamedTuple):
    """Device memory; `memory` keeps it alive, and `stream` the stream whose it is.

    `lock`: of bits that calls of several threads may share, held while a call queues its two launches.
    """

    nbytes: int
    pointer: int
    memory: Any
    stream: Any = None
    lock: threading.Lock | None = None


Purpose = Literal["states", "bits"]
_Place = tuple[DeviceLibrary, Device]
_workspaces: dict[tuple[DeviceLibrary, Device, int, object, Purpose], Workspace] = {}
_this_thread = threading.local()
_captured: list[Workspace] = []
_reserves: dict[_Place, Workspace] = {}  # what is left of them, cleared
_clearing: list[tuple[_Place, Workspace, Any]] = []  # with an event each
_wanted: set[_Place] = set()
_lock = threading.Lock()


def find(nbytes: int, library: DeviceLibrary, device: Device, stream: int, purpose: Purpose = "states") -> Workspace:
    """A workspace of at least `nbytes` for the next launch on `stream`; hold it until that is queued.

    A new one for states is cleared, one for bits is not. The legacy default stream (0) cannot be captured.
    """
    if stream != 0 and cupy.cuda.runtime.streamIsCapturing(stream):
        with _lock:
            taken = _take(nbytes, library, device) if purpose == "states" else None
            workspace = taken or _allocate(nbytes, library, device, stream, purpose)
            _captured.append(workspace)
        return workspace
    thread = None
    if stream == _PER_THREAD_STREAM:  # the identity of a thread that ended is given to another
        thread = _this_thread.__dict__.setdefault("token", object())
    key = (library, device, stream, thread, purpose)
    found = _workspaces.get(key)
    if found is None or found.nbytes < nbytes:
        if found is None and len(_workspaces) >= _MANY:
            _let_idle_go()
        made = _allocate(max(nbytes, _SMALLEST), library, device, stream, purpose)
        lock = threading.Lock() if purpose == "bits" else None
        found = _workspaces[key] = made._replace(stream=library.stream_owner(device), lock=lock)
        if purpose == "states" and (library, device) not in _reserves:
            _wanted.add((library, device))
    if _clearing or _wanted:
        with _lock:
            _keep_reserve(library, device, stream)
    return found


def release() -> int:
    """Give back the memory that no captured call holds; how many bytes. Work that is queued keeps what it uses.

    The libraries' allocators order what they give out again behind it, stream by stream.
    """
    with _lock:
        captured = {id(workspace.memory) for workspace in _captured}
        idle = {place: left for place, left in _reserves.items() if id(left.memory) not in captured}
        given = [*_workspaces.values(), *(reserve for _, reserve, _ in _clearing), *idle.values()]
        _workspaces.clear()
        _clearing.clear()
        _wanted.clear()
        for place in idle:
            del _reserves[place]
    return sum(workspace.nbytes for workspace in given)


def _allocate(
    nbytes: int, library: DeviceLibrary, device: Device, stream: int, purpose: Purpose = "states"
) -> Workspace:
    if purpose == "bits":
        memory = library.maker((nbytes,), (1,), DTYPES["uint8"], device)()
        return Workspace(nbytes, library.pointer(memory), memory)
    memory = library.scratch(nbytes, device)
    pointer = library.pointer(memory)
    # Not by a kernel: a launch takes its first ticket before it waits for what the kernel before it has stored.
    cupy.cuda.runtime.memsetAsync(pointer, 0, nbytes, stream)
    return Workspace(nbytes, pointer, memory)


def _let_idle_go() -> None:
    """Forget the workspaces of streams that have nothing to do. A call holds the one that it is about to use."""
    for key, workspace in list(_workspaces.items()):
        stream = workspace.stream
        if stream is not None and not cupy.cuda.runtime.streamIsCapturing(stream.ptr) and stream.done:
            _workspaces.pop(key, None)


def _take(nbytes: int, library: DeviceLibrary, device: Device) -> Workspace | None:
    """A piece of the reserve; it is never given back."""
    left = _reserves.get((library, device))
    if left is None or left.nbytes < nbytes:
        return None
    size = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    _reserves[library, device] = Workspace(left.nbytes - size, left.pointer + size, left.memory)
    if left.nbytes - size < _RESERVE // 2:
        _wanted.add((library, device))
    return Workspace(nbytes, left.pointer, left.memory)


def _keep_reserve(library: DeviceLibrary, device: Device, stream: int) -> None:
    """Have a new reserve cleared on this stream if one is wanted; use those that are."""
    place = library, device
    if place in _wanted and place not in [other for other, _, _ in _clearing]:
        _wanted.discard(place)
        with contextlib.suppress(MemoryError, RuntimeError):  # out of memory: captured calls clear their own
            _clearing.append((place, _allocate(_RESERVE, library, device, stream), _mark(stream)))
    for entry in list(_clearing):
        other, reserve, cleared = entry
        if cleared.done:
            _reserves[other] = reserve
            _clearing.remove(entry)


def _mark(stream: int) -> Any:
    """An event that is done when all work in a stream so far is."""
    event = cupy.cuda.Event(disable_timing=True)
    cupy.cuda.runtime.eventRecord(event.ptr, stream)
    return event
