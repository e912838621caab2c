"""Launch a request on buffers of XLA, on a GPU. Importing this module imports CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import cupy
import numpy as np

from cuscan.backends.cuda import Launch
from cuscan.dtypes import DType
from cuscan.interop.dlpack import address
from cuscan.interop.view import Device, DeviceLibrary
from cuscan.request import ScanRequest
from cuscan.request.checks import check_offsets
from cuscan.request.initial import initial_argument
from cuscan.specs import ALIGNMENT, ArraySpec

_get_device = cupy.cuda.runtime.getDevice
_set_device = cupy.cuda.runtime.setDevice


class Memory:
    """The part of `interop.view.DeviceLibrary` that a launch needs, for arrays of XLA.

    XLA's streams overlap with all of CuPy's, so memory comes from the driver itself and not from CuPy's pool.
    """

    name = "xla"

    def scratch(self, nbytes: int, device: Device) -> Any:
        return cupy.cuda.Memory(nbytes)

    def maker(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device
    ) -> Callable[[], Any]:
        (length,) = shape
        return lambda: self.scratch(length * dtype.itemsize, device)

    def pointer(self, memory: Any) -> int:
        pointer: int = memory.ptr
        return pointer

    def stream_owner(self, device: Device) -> Any:
        return None  # XLA keeps its few streams alive


_MEMORY = cast(DeviceLibrary, Memory())  # launches need no more of a library


class OnGpu:
    """Queues a request on XLA's stream; see `xla.make_runner`."""

    def __init__(self, request: ScanRequest, roles: tuple[str, ...], initial: Any, validate: bool) -> None:
        self._request, self._roles = request, roles
        self._offsets = roles.index("offsets") if validate and "offsets" in roles else None
        self._start = initial_argument(request.kind, initial).tobytes()
        self._launches: dict[tuple[int, ...], Launch] = {}
        # Compile now, for arrays aligned as XLA allocates them, so that errors are raised by the call and not by XLA's
        # program.
        count = len(roles) + (0 if request.only_carry else len(request.results))
        self._find(_get_device(), len(roles), [0] * (count + (request.last is not None) + len(request.carry_out)))

    def __call__(self, context: Any, written: tuple[Any, ...], *read: Any) -> None:
        ordinal, current = read[0].__dlpack_device__()[1], _get_device()
        if current != ordinal:
            _set_device(ordinal)
        try:
            self._run(ordinal, context.stream, read, [address(buffer) for buffer in (*read, *written)])
        finally:
            if current != ordinal:
                _set_device(current)

    def _run(self, ordinal: int, stream: int, read: tuple[Any, ...], pointers: list[int]) -> None:
        if self._offsets is not None:
            self._validate(read[self._offsets], pointers[self._offsets], stream)
        launch = self._find(ordinal, len(read), pointers)
        if not launch.empty:
            launch.queue(stream, pointers, self._start)

    def _find(self, ordinal: int, read: int, pointers: list[int]) -> Launch:
        """Return the launch for arrays on a device with this alignment; the first `read` of them are read."""
        key = (ordinal, *[pointer % ALIGNMENT for pointer in pointers])
        launch = self._launches.get(key)
        if launch is None:
            request = _placed(self._request, pointers[:read], pointers[read:])
            launch = self._launches[key] = Launch(request, self._roles, _MEMORY, Device("cuda", ordinal))
        return launch

    def _validate(self, offsets: Any, pointer: int, stream: int) -> None:
        """Fetch the offsets and check them."""
        copied = np.empty(offsets.shape, offsets.dtype)
        cupy.cuda.runtime.memcpyAsync(copied.ctypes.data, pointer, copied.nbytes, _TO_HOST, stream)
        cupy.cuda.runtime.streamSynchronize(stream)
        check_offsets(copied, self._request.shape[self._request.axis])


_TO_HOST = cupy.cuda.runtime.memcpyDeviceToHost


def _placed(request: ScanRequest, read: list[int], written: list[int]) -> ScanRequest:
    """Return the request with arrays at these addresses, in the order of its roles."""
    places = iter(read)

    def at(spec: ArraySpec, place: int) -> ArraySpec:
        return spec._replace(address=place % ALIGNMENT)

    values = tuple(at(spec, next(places)) for spec in request.values)
    mask = None if request.mask is None else at(request.mask, next(places))
    segments = request.segments
    if segments is not None:
        segments = segments._replace(array=at(segments.array, next(places)))
    return request._replace(
        values=values,
        mask=mask,
        segments=segments,
        row_initial=None if request.row_initial is None else at(request.row_initial, next(places)),
        carry_in=tuple(at(spec, next(places)) for spec in request.carry_in),
        results=request.results if request.only_carry else tuple(map(at, request.results, written)),
    )
