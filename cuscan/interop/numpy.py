"""NumPy arrays: the door of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop.view import ArrayView, Device

CPU = Device("cpu", 0)


def element_strides(array: Any, itemsize: int, name: str) -> tuple[int, ...]:
    """The strides of a NumPy or CuPy array in elements."""
    strides = tuple(array.strides)
    if any(stride % itemsize for stride in strides) and array.size > 1:
        raise ScanValueError(f"{name} has strides {strides} bytes, not multiples of its item size ({itemsize})")
    return tuple(stride // itemsize for stride in strides)


class NumPyLibrary:
    """See `interop.view.Library`."""

    name = "numpy"
    keeps_graph_memory = False

    def adopt(self, array: Any, name: str) -> ArrayView:
        dtype = DTYPES.get(array.dtype.name)
        if dtype is None or not array.dtype.isnative:
            raise ScanTypeError(f"{name} has dtype {array.dtype!r}; supported: {', '.join(DTYPES)}")
        if isinstance(array, np.ma.MaskedArray):
            raise ScanTypeError(f"{name} is a masked array; pass {name}.data, and ~{name}.mask as mask")
        strides = element_strides(array, dtype.itemsize, name)
        return ArrayView(array, self, dtype, array.shape, strides, array.ctypes.data, CPU, not array.flags.writeable)

    def adopt_foreign(self, array: Any, name: str) -> ArrayView:
        return self.adopt(np.from_dlpack(array), name)

    def empty(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device) -> Any:
        order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
        base = np.empty([shape[axis] for axis in order], numpy_dtype(dtype))
        return base.transpose(np.argsort(order))

    def scratch(self, nbytes: int, device: Device) -> Any:
        return np.zeros(nbytes, np.uint8)

    def pointer(self, array: Any) -> int:
        return int(array.ctypes.data)

    def stream(self, device: Device) -> int:
        return 0

    def as_numpy(self, view: ArrayView) -> Any:
        return view.owner.view(np.uint16) if view.dtype.name == "bfloat16" else view.owner


def numpy_dtype(dtype: DType) -> Any:
    """The NumPy dtype of a row of the dtype table; bfloat16 comes from ml_dtypes."""
    if dtype.name != "bfloat16":
        return np.dtype(dtype.name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise ScanTypeError("dtype bfloat16 needs the package ml_dtypes for NumPy and CuPy arrays") from error
    return np.dtype(ml_dtypes.bfloat16)


LIBRARY = NumPyLibrary()
