"""Device memory for tile states, and for the bits that offsets of segments become, kept from call to call.

One workspace a stream for states: launches in a stream run one after the other, and each leaves the workspace
ready for the next (cuda/workspace.cuh). It starts with 1 MiB and grows to the largest call seen: 8 to
32 bytes for every 16 to 32 KiB that a scan along a contiguous axis reads, up to 161 bytes a KiB along
other axes. A stream has another one for bits, an eighth of a byte for each element along the axis, which
every call writes anew: what it holds must never be taken for states. CUDA gives the handle of a stream that was
destroyed, though still at work, to the next one, which may run beside it; so the workspace keeps its stream
alive. Of more than 64 workspaces those of idle streams are let go.

The states of a call that is captured are in memory that stays with its graph (graphs.py). Where there is none, they are
in the graph's own memory, cleared by each replay, as the graph may use it for other things; so are bits, uncleared.
"""

from __future__ import annotations

import threading
from typing import Any, Literal, NamedTuple

import cupy

from cuscan.backends import graphs
from cuscan.backends.memory import Memory, Place, allocated, cleared
from cuscan.interop.view import Device, DeviceLibrary

_SMALLEST = 1 << 20
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
_workspaces: dict[tuple[DeviceLibrary, Device, int, object, Purpose], Workspace] = {}
_this_thread = threading.local()
_lock = threading.Lock()


def find(nbytes: int, library: DeviceLibrary, device: Device, stream: int, purpose: Purpose = "states") -> Workspace:
    """A workspace of at least `nbytes` for the next launch on `stream`; hold it until that is queued, and no longer.

    A new one for states is cleared, one for bits is not. The legacy default stream (0) cannot be captured.
    """
    place = library, device
    if stream != 0 and cupy.cuda.runtime.streamIsCapturing(stream):
        return Workspace(*_captured(nbytes, place, stream, purpose))
    thread = None
    if stream == _PER_THREAD_STREAM:  # the identity of a thread that ended is given to another
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
    """Give back the memory that no captured call holds; how many bytes. Work that is queued keeps what it uses.

    The allocators order what they give out again behind it, stream by stream.
    """
    with _lock:
        given = sum(workspace.nbytes for workspace in _workspaces.values())
        _workspaces.clear()
    return given + graphs.release()


def _made(nbytes: int, place: Place, stream: int, purpose: Purpose) -> Workspace:
    """A new workspace for what is queued on a stream from now on."""
    library, device = place
    if purpose == "bits":
        return Workspace(*allocated(nbytes, place, stream), library.stream_owner(device), threading.Lock())
    graphs.want_reserve(place)
    return Workspace(*cleared(nbytes, place, stream), library.stream_owner(device))


def _captured(nbytes: int, place: Place, stream: int, purpose: Purpose) -> Memory:
    """Memory for a launch that is captured into a graph."""
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
    """Forget the workspaces of streams that have nothing to do. A call holds the one that it is about to use."""
    for key, workspace in list(_workspaces.items()):
        stream = workspace.stream
        if stream is not None and not cupy.cuda.runtime.streamIsCapturing(stream.ptr) and stream.done:
            _workspaces.pop(key, None)
