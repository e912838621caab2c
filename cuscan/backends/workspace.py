"""Device memory for tile states, and for the bits that offsets of segments become, kept from call to call.

One workspace a stream for states: launches in a stream run one after the other, and each leaves the workspace
ready for the next (cuda/workspace.cuh). It starts with 1 MiB and grows to the largest call seen: 8 to
32 bytes for every 16 to 32 KiB that a scan along a contiguous axis reads, up to 161 bytes a KiB along
other axes. A stream has another one for bits, an eighth of a byte for each element along the axis, which
every call writes anew: what it holds must never be taken for states. A workspace is allocated by the
library that owns the arrays, so its memory is ordered on that library's stream. CUDA gives the handle of
a stream that was destroyed, though still at work, to the next one, which may run beside it; so the
workspace keeps its stream alive. Of more than 64 workspaces those of idle streams are let go.

A call that is captured into a graph gets memory of the graph's own, as a replay may run beside eager calls or other
graphs, in any stream. What the graph does later may use that memory again, so each replay clears it first; and it is
gone with the graph.
"""

from __future__ import annotations

import threading
from typing import Any, Literal, NamedTuple

import cupy

from cuscan.dtypes import DTYPES
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


def find(nbytes: int, library: DeviceLibrary, device: Device, stream: int, purpose: Purpose = "states") -> Workspace:
    """A workspace of at least `nbytes` for the next launch on `stream`; hold it until that is queued, and no longer.

    A new one for states is cleared, one for bits is not. The legacy default stream (0) cannot be captured.
    """
    if stream != 0 and cupy.cuda.runtime.streamIsCapturing(stream):
        return _made(library.scratch_of_graph(nbytes, device), nbytes, library, stream, purpose)
    thread = None
    if stream == _PER_THREAD_STREAM:  # the identity of a thread that ended is given to another
        thread = _this_thread.__dict__.setdefault("token", object())
    key = (library, device, stream, thread, purpose)
    found = _workspaces.get(key)
    if found is None or found.nbytes < nbytes:
        if found is None and len(_workspaces) >= _MANY:
            _let_idle_go()
        nbytes = max(nbytes, _SMALLEST)
        if purpose == "bits":
            memory, lock = library.maker((nbytes,), (1,), DTYPES["uint8"], device)(), threading.Lock()
        else:
            memory, lock = library.scratch(nbytes, device), None
        made = _made(memory, nbytes, library, stream, purpose)
        found = _workspaces[key] = made._replace(stream=library.stream_owner(device), lock=lock)
    return found


def _made(memory: Any, nbytes: int, library: DeviceLibrary, stream: int, purpose: Purpose) -> Workspace:
    pointer = library.pointer(memory)
    if purpose == "states":
        # Not by a kernel: a launch takes its first ticket before it waits for what the kernel before it has stored.
        cupy.cuda.runtime.memsetAsync(pointer, 0, nbytes, stream)
    return Workspace(nbytes, pointer, memory)


def _let_idle_go() -> None:
    """Forget the workspaces of streams that have nothing to do. A call holds the one that it is about to use."""
    for key, workspace in list(_workspaces.items()):
        stream = workspace.stream
        if stream is not None and not cupy.cuda.runtime.streamIsCapturing(stream.ptr) and stream.done:
            _workspaces.pop(key, None)
