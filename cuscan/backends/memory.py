"""Device memory that a backend works with: of CUDA's own allocator, in the order of a stream.

torch has pools for graphs, and what is allocated while it warms one up is expected to be a result or to be gone; so
what stays from call to call is not of torch's.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import cupy

from cuscan.interop.view import Device, DeviceLibrary

Place = tuple[DeviceLibrary, Device]


class Memory(NamedTuple):
    """Device memory; `owner` keeps it alive."""

    nbytes: int
    pointer: int
    owner: Any


class _Allocated:
    """Memory that is freed in the order of its stream, which it keeps alive."""

    def __init__(self, nbytes: int, stream: int, stream_owner: Any) -> None:
        self.pointer = int(cupy.cuda.runtime.mallocAsync(nbytes, stream))
        self._free, self._stream, self._stream_owner = cupy.cuda.runtime.freeAsync, stream, stream_owner

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            with contextlib.suppress(Exception):  # the process ends
                self._free(self.pointer, self._stream)


def allocated(nbytes: int, place: Place, stream: int) -> Memory:
    """Memory for the work on a stream from now on."""
    library, device = place
    try:
        owner = _Allocated(nbytes, stream, library.stream_owner(device))
        return Memory(nbytes, owner.pointer, owner)
    except (MemoryError, RuntimeError):  # the library may have more, or give back what it keeps for later
        scratch = library.scratch(nbytes, device)
        return Memory(nbytes, library.pointer(scratch), scratch)


def cleared(nbytes: int, place: Place, stream: int) -> Memory:
    """The same, all zeros.

    Not by a kernel: a launch takes its first ticket before it waits for what the kernel before it has stored.
    """
    memory = allocated(nbytes, place, stream)
    cupy.cuda.runtime.memsetAsync(memory.pointer, 0, nbytes, stream)
    return memory
