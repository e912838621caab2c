"""NumPy arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop.view import ArrayKind, ArrayView, Device, Kinds, OnlyLooks, WideIntegers
from cuscan.kept import MOST, Table, keep

CPU = Device("cpu", 0)


_TO_NATIVE = "; pass {name}.astype({name}.dtype.newbyteorder('='))"
# Advice for arrays of unsupported dtypes, by the dtype's kind.
_ADVICE = {
    "M": "; pass {name}.view(np.int64)",
    "m": "; pass {name}.view(np.int64), and view the result as the dtype of {name}",
    "V": "; pass a field of {name}, or an Operator whose state has these fields",
    "O": "; pass {name}.astype() of a dtype that holds its elements",
}


def element_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, name: str) -> tuple[int, ...]:
    """Return the strides of a NumPy or CuPy array in elements."""
    steps = []
    for stride in strides:
        if stride % itemsize and math.prod(shape) > 1:
            raise ScanValueError(f"{name} has strides {strides} bytes, not multiples of its item size ({itemsize})")
        steps.append(stride // itemsize)
    return tuple(steps)


@functools.lru_cache(MOST)
def find_row(dtype: Any) -> DType | None:
    """Return the row of a NumPy dtype of any byte order, or None."""
    return DTYPES.get(dtype.name)


class NumPyLibrary(OnlyLooks, WideIntegers):
    """See `interop.view.HostLibrary`."""

    name = "numpy"

    def __init__(self) -> None:
        self._kinds: Kinds = Table()

    def adopt(self, array: Any, name: str) -> ArrayView:
        key = array.dtype, array.shape, array.strides, array.flags.writeable, type(array)
        kind = self._kinds.get(key) or keep(self._kinds, key, self._kind_of(array, name))
        return ArrayView(array, kind, array.__array_interface__["data"][0])

    def look(self, arrays: tuple[Any, ...]) -> tuple[list[Any], list[int]] | None:
        """Look without addresses: only an overlap with `out` depends on them, and NumPy is slow to return them."""
        facts: list[Any] = []
        for array in arrays:
            if type(array) is np.ndarray:
                facts += array.dtype, array.shape, array.strides, array.flags.writeable
            elif type(array) is ArrayView and array.kind.is_number:
                facts.append(array.kind)
            else:
                return None
        return facts, []

    def _kind_of(self, array: Any, name: str) -> ArrayKind:
        dtype = find_row(array.dtype)
        if dtype is None or not array.dtype.isnative:
            advice = "" if array.dtype.isnative else _TO_NATIVE
            advice = _ADVICE.get(array.dtype.kind, advice).format(name=name)
            raise ScanTypeError(f"{name} has dtype {array.dtype!r}; supported: {', '.join(DTYPES)}{advice}")
        if isinstance(array, np.ma.MaskedArray):
            raise ScanTypeError(f"{name} is a masked array; pass {name}.data, and ~{name}.mask as mask")
        strides = element_strides(array.shape, array.strides, dtype.itemsize, name)
        return ArrayKind(self, dtype, array.shape, strides, CPU, not array.flags.writeable)

    def adopt_foreign(self, array: Any, name: str) -> ArrayView:
        """Adopt the array of an unknown library through DLPack, without a copy."""
        view = self.adopt(taken_over(np.from_dlpack, array, name), name)
        view.lender = array
        return view

    def maker(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device
    ) -> Callable[[], Any]:
        return dense_maker(np.empty, shape, strides, numpy_dtype(dtype))

    def from_numpy(self, array: Any, device: Device) -> Any:
        return array

    def written(self, array: Any) -> None:
        pass  # NumPy does not track writes

    def as_numpy(self, view: ArrayView) -> Any:
        return view.owner.view(np.uint16) if view.dtype.name == "bfloat16" else view.owner


def taken_over(door: Callable[[Any], Any], array: Any, name: str) -> Any:
    """Return the result of `door` for a foreign array; its refusal becomes a `ScanTypeError`."""
    try:
        return door(array)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ScanTypeError(f"{name}, a {type(array).__name__}, cannot be taken over: {error}") from error


def dense_maker(
    empty: Callable[..., Any], shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any
) -> Callable[[], Any]:
    """Return a function that makes arrays with the axis order of dense strides, by the `empty` of NumPy or CuPy."""
    axes = range(len(strides))
    outwards = sorted(axes, key=lambda axis: -strides[axis])  # from the slowest axis to the fastest
    if outwards == list(axes):
        return functools.partial(empty, shape, dtype)
    ordered, back = [shape[axis] for axis in outwards], [outwards.index(axis) for axis in axes]
    return lambda: empty(ordered, dtype).transpose(back)


def numpy_dtype(dtype: DType) -> Any:
    """Return the NumPy dtype of a row of the dtype table; bfloat16 comes from ml_dtypes."""
    if dtype.name != "bfloat16":
        return np.dtype(dtype.name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise ScanTypeError("dtype bfloat16 needs the package ml_dtypes for NumPy and CuPy arrays") from error
    return np.dtype(ml_dtypes.bfloat16)


LIBRARY = NumPyLibrary()
