"""Device memory that a backend keeps, from CUDA's own allocator, in stream order.

torch has pools for graphs, and expects everything allocated during a graph's warm-up to be a result or freed. So memory
that outlives a call does not come from torch.
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
    """Memory freed in the order of its stream, which it keeps alive."""

    def __init__(self, nbytes: int, stream: int, stream_owner: Any) -> None:
        self.pointer = int(cupy.cuda.runtime.mallocAsync(nbytes, stream))
        self._free, self._stream, self._stream_owner = cupy.cuda.runtime.freeAsync, stream, stream_owner

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            with contextlib.suppress(Exception):  # may fail while the process exits
                self._free(self.pointer, self._stream)


def allocated(nbytes: int, place: Place, stream: int) -> Memory:
    """Allocate memory for later work on a stream."""
    library, device = place
    try:
        owner = _Allocated(nbytes, stream, library.stream_owner(device))
        return Memory(nbytes, owner.pointer, owner)
    except (MemoryError, RuntimeError):  # the library may have more memory, or return what it caches
        scratch = library.scratch(nbytes, device)
        return Memory(nbytes, library.pointer(scratch), scratch)


def cleared(nbytes: int, place: Place, stream: int) -> Memory:
    """Allocate memory filled with zeros.

    No kernel clears it: a launch takes its first ticket before it waits for what the previous kernel stores.
    """
    memory = allocated(nbytes, place, stream)
    cupy.cuda.runtime.memsetAsync(memory.pointer, 0, nbytes, stream)
    return memory
