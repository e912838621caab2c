"""CuPy arrays. Importing this module imports CuPy."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError
from cuscan.interop.numpy import element_strides, numpy_dtype
from cuscan.interop.view import ArrayView, Device

_DEVICES = [Device("cuda", index) for index in range(64)]


class CuPyLibrary:
    """See `interop.view.Library`."""

    name = "cupy"
    keeps_graph_memory = False

    def adopt(self, array: Any, name: str) -> ArrayView:
        dtype = DTYPES.get(array.dtype.name)
        if dtype is None:
            raise ScanTypeError(f"{name} has dtype {array.dtype!r}; supported: {', '.join(DTYPES)}")
        strides = element_strides(array, dtype.itemsize, name)
        device = _DEVICES[array.device.id]
        return ArrayView(array, self, dtype, array.shape, strides, array.data.ptr, device, False)

    def adopt_foreign(self, array: Any, name: str) -> ArrayView:
        if hasattr(array, "__dlpack__"):
            return self.adopt(cupy.from_dlpack(array), name)
        return self.adopt(cupy.asarray(array), name)

    def empty(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device) -> Any:
        with cupy.cuda.Device(device.ordinal):
            order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
            base = cupy.empty([shape[axis] for axis in order], numpy_dtype(dtype))
            return base.transpose([int(axis) for axis in np.argsort(order)])

    def scratch(self, nbytes: int, device: Device) -> Any:
        with cupy.cuda.Device(device.ordinal):
            return cupy.zeros(nbytes, np.uint8)

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)

    def stream(self, device: Device) -> int:
        return int(cupy.cuda.get_current_stream(device.ordinal).ptr)

    def as_numpy(self, view: ArrayView) -> Any:
        raise AssertionError("a CuPy array is never on the CPU")


LIBRARY = CuPyLibrary()
