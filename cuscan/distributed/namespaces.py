"""The functions that pieces need of NumPy and CuPy, which are the same in both; see `pieces.Namespace`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuscan.distributed.pieces import Array
from cuscan.dtypes import DType
from cuscan.interop.numpy import numpy_dtype


class ArrayNamespace:
    """The functions of a module, `numpy` or `cupy`."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.where = module.where
        self.concat = module.concatenate
        self.stack = module.stack
        self.broadcast_to = module.broadcast_to

    def any(self, x: Array, axis: int) -> Array:
        return x.any(axis)

    def full(self, shape: tuple[int, ...], number: Any, dtype: DType, like: Array) -> Array:
        return self._module.full(shape, number, numpy_dtype(dtype))

    def cast(self, x: Array, dtype: DType) -> Array:
        return x.astype(numpy_dtype(dtype), copy=False)

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return self._module.zeros(shape, like.dtype)

    def flags_at(self, places: Array, length: int) -> Array:
        flags = self._module.zeros(length + 1, np.bool_)
        flags[places] = True
        return flags[:length]

    def pick(self, x: Array, chosen: Array, *, last: bool) -> Array:
        if last:
            x, chosen = x[::-1], chosen[::-1]
        return x.take(chosen.argmax(), 0)

    def sums_before(self, x: Array) -> Array:
        return x.cumsum() - x

    def is_on_host(self, x: Array) -> bool:
        return isinstance(x, np.ndarray)
