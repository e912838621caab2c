"""Device memory kept between calls, for tile states and for the flags that launches before a scan write.

Each stream has one workspace for states: launches on a stream run one after the other, and each leaves the workspace
ready for the next (cuda/workspace.cuh). It starts with 1 MiB and grows to the largest call so far: 8 to 32 bytes for
every 16 to 32 KiB that a scan along a contiguous axis reads, and up to 161 bytes per KiB along other axes. A stream has
a second workspace for flags: an eighth of a byte per element along the axis for segment starts as bits, and a byte for
each flag of a copy. Every call overwrites it, so it must never serve as states. CUDA reuses the handle of a destroyed
stream whose work may still run, and the next stream may overlap with that work; so the workspace keeps its stream
alive. Beyond 64 workspaces, those of idle streams are released.

The states of a captured call are in memory that stays with its graph (graphs.py). If there is none, they are in the
graph's own memory, which the graph may use for other data, so each replay clears them. Flags of captured calls are in
the graph's own memory, too, and are not cleared.
"""

from __future__ import annotations

import threading
from typing import Any, Literal, NamedTuple

import cupy

from cuscan.backends import graphs
from cuscan.backends.memory import Memory, Place, allocated, cleared
from cuscan.interop.view import Device, DeviceLibrary

_SMALLEST = 1 << 20
_MANY = 64  # workspaces kept, in addition to those of busy streams
_PER_THREAD_STREAM = 2  # cudaStreamPerThread: one handle, but a stream per thread


class Workspace(NamedTuple):
    """Device memory; `memory` keeps it alive, and `stream` is the stream that uses it.

    `lock` protects flags that several threads may share; a call holds it while it queues all its launches.
    """

    nbytes: int
    pointer: int
    memory: Any
    stream: Any = None
    lock: threading.Lock | None = None


Purpose = Literal["states", "flags"]
_workspaces: dict[tuple[DeviceLibrary, Device, int, object, Purpose], Workspace] = {}
_this_thread = threading.local()
_lock = threading.Lock()


def find(nbytes: int, library: DeviceLibrary, device: Device, stream: int, purpose: Purpose = "states") -> Workspace:
    """Return a workspace of at least `nbytes` for the next launch on `stream`; hold it just until that is queued.

    A new workspace for states is cleared; one for flags is not. The legacy default stream (0) cannot be captured.
    """
    place = library, device
    if stream != 0 and cupy.cuda.runtime.streamIsCapturing(stream):
        return Workspace(*_captured(nbytes, place, stream, purpose))
    thread = None
    if stream == _PER_THREAD_STREAM:  # a token, since the id of a thread that ended is reused
        thread = _this_thread.__dict__.setdefault("token", object())
    key = (library, device, stream, thread, purpose)
    found = _workspaces.get(key)
    if found is None or found.nbytes < nbytes:
        with _lock:  # another thread may be making it
            found = _workspaces.get(key)
            if found is None or found.nbytes < nbytes:
                if found is None and len(_workspaces) >= _MANY:
                    _let_idle_go()
                found = _workspaces[key] = _made(max(nbytes, _SMALLEST), place, stream, purpose)
    if graphs.wanted or graphs.clearing:
        graphs.keep_reserve(place, stream)
    return found


def release() -> int:
    """Release the memory that no captured call holds, and return its size in bytes. Queued work keeps what it uses.

    The allocators reuse the memory in stream order, behind that work.
    """
    with _lock:
        given = sum(workspace.nbytes for workspace in _workspaces.values())
        _workspaces.clear()
    return given + graphs.release()


def _made(nbytes: int, place: Place, stream: int, purpose: Purpose) -> Workspace:
    """Make a workspace for work that is queued on a stream from now on."""
    library, device = place
    if purpose == "flags":
        return Workspace(*allocated(nbytes, place, stream), library.stream_owner(device), threading.Lock())
    graphs.want_reserve(place)
    return Workspace(*cleared(nbytes, place, stream), library.stream_owner(device))


def _captured(nbytes: int, place: Place, stream: int, purpose: Purpose) -> Memory:
    """Return memory for a launch that is captured into a graph."""
    taken = graphs.take(nbytes, place, stream) if purpose == "states" else None
    if taken is not None:
        return taken
    library, device = place
    owner = library.scratch_of_graph(nbytes, device)
    pointer = library.pointer(owner)
    if purpose == "states":
        cupy.cuda.runtime.memsetAsync(pointer, 0, nbytes, stream)
    return Memory(nbytes, pointer, owner)


def _let_idle_go() -> None:
    """Drop the workspaces of idle streams. A call holds the one that it is about to use."""
    for key, workspace in list(_workspaces.items()):
        stream = workspace.stream
        if stream is not None and not cupy.cuda.runtime.streamIsCapturing(stream.ptr) and stream.done:
            _workspaces.pop(key, None)
