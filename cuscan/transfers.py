"""Pass chunks of the host through a GPU: one arrives, one is scanned and one leaves at the same time. Imports CuPy."""

from __future__ import annotations

import collections
import numbers
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import cupy
import cupyx
import numpy as np

from cuscan.errors import ScanTypeError

DEPTH = 2  # results in transfer while the next chunk is read

Arrays = tuple[Any, ...]


class Chunk(Protocol):
    """Arrays that pass through together: a named tuple with at least these fields."""

    @property
    def values(self) -> Arrays: ...

    @property
    def beside(self) -> dict[str, Any]: ...

    def _replace(self, *, values: Arrays, beside: dict[str, Any]) -> Any: ...


Scan = Callable[[Any], Arrays]  # takes a chunk


class Passages:
    """A path through a GPU, on three streams of its own: `Passages(device)(scan, chunks)` is used like `map`."""

    def __init__(self, device: Any) -> None:
        self.device = cupy.cuda.Device(None if device == "cuda" else device)
        with self.device:
            self.come, self.work, self.leave = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))

    def brought(self, given: Any) -> Any:
        """Copy arrays that do not come in chunks to the GPU."""
        if isinstance(given, tuple):
            return tuple(map(self.brought, given))
        if not isinstance(given, np.ndarray | np.generic):
            return given
        with self.device, self.work:
            return cupy.asarray(given)

    def __call__(self, scan: Scan, chunks: Iterator[Chunk]) -> Iterator[Arrays]:
        """Yield the results of the chunks, in order: NumPy arrays in pinned memory."""
        on_the_way: collections.deque[_Passage] = collections.deque()
        try:
            for chunk in chunks:
                with self.device:  # current only here, not while the caller works on a result
                    on_the_way.append(_Passage(self, scan, chunk))
                if len(on_the_way) > DEPTH:
                    yield on_the_way.popleft().wait()
            while on_the_way:
                yield on_the_way.popleft().wait()
        finally:  # streams may still read or write the memory
            for stream in (self.come, self.work, self.leave):
                stream.synchronize()


class _Passage:
    """One chunk in transfer. It holds all memory that streams use until the results are ready."""

    def __init__(self, way: Passages, scan: Scan, chunk: Chunk) -> None:
        self._host = [_dense(x) for x in (*chunk.values, *chunk.beside.values())]
        with way.come:
            self._inputs = [_sent(x, way.come) for x in self._host]
        way.work.wait_event(way.come.record())
        with way.work:
            values = tuple(self._inputs[: len(chunk.values)])
            beside = dict(zip(chunk.beside, self._inputs[len(values) :], strict=True))
            self._results = scan(chunk._replace(values=values, beside=beside))
        way.leave.wait_event(way.work.record())
        self._out = tuple(_pinned(x.shape, x.dtype) for x in self._results)
        for here, there in zip(self._out, self._results, strict=True):
            there.get(stream=way.leave, out=here, blocking=False)
        self._done = way.leave.record()

    def wait(self) -> Arrays:
        """Return the results once they are on the host."""
        self._done.synchronize()
        return self._out


def _sent(host: Any, stream: Any) -> Any:
    if isinstance(host, numbers.Number):
        return host
    there = cupy.empty(host.shape, host.dtype)
    there.set(host, stream=stream)
    return there


def _dense(array: Any) -> Any:
    if isinstance(array, numbers.Number):  # a decay
        return array
    if not isinstance(array, np.ndarray):
        raise ScanTypeError(f"chunks that go through a device must be NumPy arrays; got {type(array).__name__}")
    return np.ascontiguousarray(array)


def _pinned(shape: tuple[int, ...], dtype: Any) -> Any:
    return cupyx.empty_pinned(shape, dtype) if 0 not in shape else np.empty(shape, dtype)
