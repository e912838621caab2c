"""Device memory for tile states, kept from call to call.

One workspace a stream: launches in a stream run one after the other, and each leaves the workspace
ready for the next (cuda/workspace.cuh). It starts with 1 MiB and grows to the largest call seen: 8 to
32 bytes for every 16 to 32 KiB that a scan along a contiguous axis reads, 9 to 60 bytes a KiB along
other axes. It is allocated by the library that owns the arrays, so its memory is ordered on that
library's stream.

A call that is captured into a graph gets a workspace of its own: a replay may run beside eager
calls or other graphs, in any stream. Its clearing is captured with it.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import cupy

from cuscan.interop.view import Device, DeviceLibrary

_SMALLEST = 1 << 20
_PER_THREAD_STREAM = 2  # cudaStreamPerThread: one handle, a stream in every thread


class Workspace(NamedTuple):
    """Device memory; `memory` keeps it alive."""

    nbytes: int
    pointer: int
    memory: Any


_workspaces: dict[tuple[DeviceLibrary, Device, int, object], Workspace] = {}
_this_thread = threading.local()
_captured: list[Workspace] = []


def find(nbytes: int, library: DeviceLibrary, device: Device, stream: int) -> Workspace:
    """A workspace of at least `nbytes` for the next launch on `stream`; hold it until that is queued.

    The legacy default stream (0) cannot be captured.
    """
    if stream != 0 and cupy.cuda.runtime.streamIsCapturing(stream):
        workspace = _allocate(nbytes, library, device)
        _captured.append(workspace)  # graphs do not say when they are gone
        return workspace
    thread = None
    if stream == _PER_THREAD_STREAM:  # the identity of a thread that ended is given to another
        thread = _this_thread.__dict__.setdefault("token", object())
    key = (library, device, stream, thread)
    found = _workspaces.get(key)
    if found is None or found.nbytes < nbytes:
        found = _workspaces[key] = _allocate(max(nbytes, _SMALLEST), library, device)
    return found


def _allocate(nbytes: int, library: DeviceLibrary, device: Device) -> Workspace:
    memory = library.scratch(nbytes, device)
    return Workspace(nbytes, library.pointer(memory), memory)
