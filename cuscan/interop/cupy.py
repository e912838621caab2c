"""CuPy arrays. Importing this module imports CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError
from cuscan.interop.dlpack import Overheard
from cuscan.interop.numpy import dense_maker, element_strides, find_row, numpy_dtype, taken_over
from cuscan.interop.view import ArrayKind, ArrayView, Device, Kinds, OnlyLooks, WideIntegers
from cuscan.kept import Table, keep
from cuscan.specs import ALIGNMENT
from cuscan.versions import check_version

check_version("cupy", cupy.__version__)
_current_stream = cupy.cuda.get_current_stream
_PREDEFINED = 2  # stream handles up to this one exist without being created: legacy default (0, 1), per thread (2)
_DEVICES = [Device("cuda", index) for index in range(64)]


class CuPyLibrary(OnlyLooks, WideIntegers):
    """See `interop.view.DeviceLibrary`."""

    name = "cupy"

    def __init__(self) -> None:
        self._kinds: Kinds = Table()

    def adopt(self, array: Any, name: str) -> ArrayView:
        memory, shape, strides = array.data, array.shape, array.strides
        key = array.dtype, *shape, *strides, memory.device_id
        kind = self._kinds.get(key) or keep(self._kinds, key, self._kind_of(array, name, shape, strides))
        return ArrayView(array, kind, memory.ptr)

    def look(self, arrays: tuple[Any, ...]) -> tuple[list[Any], list[int]] | None:
        facts: list[Any] = []
        pointers = []
        for array in arrays:
            if type(array) is not cupy.ndarray:
                if type(array) is not ArrayView:
                    return None
                facts.append(array.kind)  # a number
                pointers.append(0)
                continue
            memory = array.data
            pointer = memory.ptr
            pointers.append(pointer)
            facts += array.dtype, *array.shape, *array.strides, memory.device_id, pointer % ALIGNMENT
        return facts, pointers

    def _kind_of(
        self, array: Any, name: str, shape: tuple[int, ...], strides: tuple[int, ...], *, readonly: bool = False
    ) -> ArrayKind:
        dtype = find_row(array.dtype)
        if dtype is None:
            raise ScanTypeError(f"{name} has dtype {array.dtype!r}; supported: {', '.join(DTYPES)}")
        steps = element_strides(shape, strides, dtype.itemsize, name)
        return ArrayKind(self, dtype, shape, steps, _DEVICES[array.data.device_id], readonly)

    def adopt_foreign(self, array: Any, name: str) -> ArrayView:
        """Adopt the array of an unknown library, without a copy.

        Its memory is read-only if the DLPack capsule or the CUDA array interface says so, or if neither says anything.
        """
        told: list[bool] = []
        if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
            overheard = Overheard(array)  # CuPy ignores the flag
            adopted = taken_over(lambda _: cupy.from_dlpack(overheard), array, name)
            told += [] if overheard.readonly is None else [overheard.readonly]
        else:
            adopted = taken_over(cupy.asarray, array, name)
        interface = getattr(array, "__cuda_array_interface__", None)
        told += [bool(interface["data"][1])] if interface else []
        kind = self._kind_of(adopted, name, adopted.shape, adopted.strides, readonly=any(told) or not told)
        key = "foreign", kind.dtype, kind.shape, kind.strides, kind.device, kind.readonly
        kind = self._kinds.get(key) or keep(self._kinds, key, kind)
        return ArrayView(adopted, kind, adopted.data.ptr, array)

    def maker(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device
    ) -> Callable[[], Any]:
        return dense_maker(cupy.ndarray, shape, strides, numpy_dtype(dtype))

    def from_numpy(self, array: Any, device: Device) -> Any:
        with cupy.cuda.Device(device.ordinal):
            return cupy.asarray(array)

    def written(self, array: Any) -> None:
        pass  # CuPy does not track writes

    def put(self, array: Any, value: Any) -> None:
        array[...] = value

    def scratch(self, nbytes: int, device: Device) -> Any:
        return cupy.empty(nbytes, np.uint8)

    def scratch_of_graph(self, nbytes: int, device: Device) -> Any:
        # CuPy's pool gives memory freed during a capture to eager calls. This memory is allocated and freed by nodes of
        # the graph.
        return cupy.ndarray((nbytes,), np.uint8, cupy.cuda.malloc_async(nbytes))

    def pointer(self, array: Any) -> int:
        pointer: int = array.data.ptr
        return pointer

    def fetch(self, array: Any) -> Any:
        return array.get()

    def stream(self, device: Device) -> int:
        handle: int = _current_stream(device.ordinal).ptr
        return handle

    def stream_owner(self, device: Device) -> Any:
        stream = _current_stream(device.ordinal)
        return stream if isinstance(stream, cupy.cuda.Stream) and stream.ptr > _PREDEFINED else None


LIBRARY = CuPyLibrary()
