"""Workspaces of calls captured into graphs: each belongs to its graph until the graph is destroyed.

A replay may overlap with eager calls and with other graphs, in any stream, so every captured call has a workspace of
its own. The workspace is cleared beforehand, so the graph contains nothing but kernels, which may overlap. It is cut
from a reserve of 4 MiB per library and device. The first call that needs states clears the reserve; when half of it is
used up, a later call clears a new one. The graph owns a user object whose destructor, in C, posts a semaphore when the
graph is destroyed, so no driver thread waits for the interpreter. Each launch leaves its workspace ready for the next
one, so another capture may then reuse it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from typing import Any, NamedTuple

import cupy

from cuscan.backends.memory import Memory, Place, cleared

_RESERVE = 4 << 20
_LEAST = 256  # bytes of the smallest piece; all pieces are powers of two, so that they can be reused
_SEMAPHORE_BYTES = 64  # larger than any C library's sem_t
_NO_DESTRUCTOR_SYNC = 1  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
_MOVE = 1  # CU_GRAPH_USER_OBJECT_MOVE


class _Piece(NamedTuple):
    """A workspace, and the address of the semaphore that is posted when its graph is destroyed."""

    memory: Memory
    gone: int


_Kind = tuple[Place, int]  # place, and size in bytes
_reserves: dict[Place, Memory] = {}  # the cleared rest of each reserve
clearing: list[tuple[Place, Memory, Any]] = []  # reserves being cleared, each with the event that marks the end
wanted: set[Place] = set()
_idle: dict[_Kind, list[_Piece]] = {}
_lent: list[tuple[_Kind, _Piece]] = []
_lock = threading.Lock()


def take(nbytes: int, place: Place, stream: int) -> Memory | None:
    """Return cleared memory for a call that `stream` captures, until its graph is destroyed; None if there is none."""
    size = max(_LEAST, 1 << (nbytes - 1).bit_length())
    kind = place, size
    with _lock:
        for other in [entry for entry in _lent if _is_posted(entry[1].gone)]:
            _lent.remove(other)
            _idle.setdefault(other[0], []).append(other[1])
        pieces = _idle.setdefault(kind, [])
        if not pieces:
            pieces += _cut(place, size)
        if not pieces or not _tie(stream, pieces[-1].gone):
            return None
        _lent.append((kind, pieces.pop()))
        return _lent[-1][1].memory


def want_reserve(place: Place) -> None:
    """Request a reserve, which one of the next calls clears, unless there is one."""
    if place not in _reserves:
        wanted.add(place)


def keep_reserve(place: Place, stream: int) -> None:
    """Start clearing a requested reserve on this stream, and make cleared reserves available."""
    with _lock:
        if place in wanted and place not in [other for other, _, _ in clearing]:
            wanted.discard(place)
            with contextlib.suppress(MemoryError, RuntimeError):  # out of memory: captured calls clear their own
                clearing.append((place, cleared(_RESERVE, place, stream), _mark(stream)))
        for entry in list(clearing):
            other, reserve, event = entry
            if event.done:
                _reserves[other] = reserve
                clearing.remove(entry)


def release() -> int:
    """Release all memory that no graph uses, and return its size in bytes."""
    with _lock:
        held = {id(piece.memory.owner) for _, piece in _lent}
        pieces = [piece.memory for kept in _idle.values() for piece in kept]
        given = [memory for memory in [*_reserves.values(), *pieces] if id(memory.owner) not in held]
        given += [memory for _, memory, _ in clearing]
        for place in [place for place, left in _reserves.items() if id(left.owner) not in held]:
            del _reserves[place]
        for kept in _idle.values():
            kept[:] = [piece for piece in kept if id(piece.memory.owner) in held]
        clearing.clear()
        wanted.clear()
    return sum(memory.nbytes for memory in given)


def _cut(place: Place, size: int) -> list[_Piece]:
    """Cut a new piece from the reserve, if that is large enough."""
    left = _reserves.get(place)
    if left is None or left.nbytes < size or sys.platform == "win32":
        return []
    _reserves[place] = Memory(left.nbytes - size, left.pointer + size, left.owner)
    if left.nbytes - size < _RESERVE // 2:
        wanted.add(place)
    return [_Piece(Memory(size, left.pointer, left.owner), _semaphore())]


def _mark(stream: int) -> Any:
    """Return an event that completes with all work queued on a stream so far."""
    event = cupy.cuda.Event(disable_timing=True)
    cupy.cuda.runtime.eventRecord(event.ptr, stream)
    return event


# ---- the end of a graph ----------------------------------------------------------------------------------------------


@functools.cache
def _c() -> Any:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    library.sem_trywait.argtypes = [ctypes.c_void_p]
    return library


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _semaphore() -> int:
    """Create a semaphore. It is never freed, as the driver may post it while the process exits."""
    address: int = _c().malloc(_SEMAPHORE_BYTES)
    _c().sem_init(address, 0, 0)
    return address


def _is_posted(semaphore: int) -> bool:
    """Return whether the semaphore was posted since the last check."""
    return bool(_c().sem_trywait(semaphore) == 0)


def _tie(stream: int, semaphore: int) -> bool:
    """Make the destruction of the graph that a stream captures post a semaphore; return False if the driver cannot."""
    driver = _driver()
    status, graph, made = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    try:
        find, create, retain, release = (
            getattr(driver, f"cu{name}")
            for name in ("StreamGetCaptureInfo_v2", "UserObjectCreate", "GraphRetainUserObject", "UserObjectRelease")
        )
    except AttributeError:  # an old driver lacks one of them
        return False
    if find(ctypes.c_void_p(stream), ctypes.byref(status), None, ctypes.byref(graph), None, None) or not graph.value:
        return False
    post = ctypes.cast(_c().sem_post, ctypes.c_void_p)
    if create(
        ctypes.byref(made), ctypes.c_void_p(semaphore), post, ctypes.c_uint(1), ctypes.c_uint(_NO_DESTRUCTOR_SYNC)
    ):
        return False
    if retain(graph, made, ctypes.c_uint(1), ctypes.c_uint(_MOVE)):
        release(made, ctypes.c_uint(1))
        _is_posted(semaphore)
        return False
    return True
