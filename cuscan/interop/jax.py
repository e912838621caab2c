"""JAX arrays. Importing this module imports JAX.

XLA decides where they are. cuscan uses only the shapes and dtypes of arrays and tracers. `autograd/jax.py` passes them
to XLA, which orders the work, makes the results, and provides their addresses when the scan runs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cuscan.dtypes import DTYPES, DType, Kind
from cuscan.errors import ScanTypeError
from cuscan.interop.view import ArrayKind, ArrayView, Device, Kinds, OnlyLooks
from cuscan.kept import Table, keep

XLA = Device("xla", 0)  # wherever XLA puts the array
_DEFAULT = {Kind.BOOL: int, Kind.SIGNED: int, Kind.UNSIGNED: np.uint64}  # JAX's widest type, by kind of scan


def canonical(dtype: Any) -> Any:
    """Return JAX's version of a NumPy dtype, which depends on its setting of 64-bit types."""
    return jax.dtypes.canonicalize_dtype(dtype)


class JaxLibrary(OnlyLooks):
    """See `interop.view.Library`."""

    name = "jax"

    def __init__(self) -> None:
        self._kinds: Kinds = Table()

    def adopt(self, array: Any, name: str) -> ArrayView:
        return ArrayView(array, self.kind_of(array, name), 0, traced=True)

    def kind_of(self, array: Any, name: str) -> ArrayKind:
        """Return the kind of an array, a tracer, or anything with a shape and a dtype."""
        key = array.shape, array.dtype
        found = self._kinds.get(key)
        if found is not None:
            return found
        dtype = DTYPES.get(str(array.dtype))
        if dtype is None:
            raise ScanTypeError(f"{name} is a JAX array of dtype {array.dtype}; supported: {', '.join(DTYPES)}")
        shape = tuple(array.shape)
        strides = tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))
        return keep(self._kinds, key, ArrayKind(self, dtype, shape, strides, XLA, readonly=True))

    def from_numpy(self, array: Any, device: Device) -> Any:
        return jnp.asarray(array)

    def sum_dtype(self, dtype: DType, *, standard: bool = False) -> DType:
        """Return the integers' own dtype, as `jax.numpy.cumsum` does; the standard widens to the default integers."""
        wide = DTYPES[canonical(_DEFAULT[dtype.kind]).name]
        return wide if dtype.kind is Kind.BOOL or (standard and dtype.itemsize < wide.itemsize) else dtype

    def look(self, arrays: tuple[Any, ...]) -> None:
        pass  # JAX stores programs itself

    def index_dtype(self) -> DType:
        return DTYPES[canonical(int).name]

    def written(self, array: Any) -> None:
        raise AssertionError("nothing writes JAX arrays")

    def maker(self, shape: Any, strides: Any, dtype: DType, device: Device) -> Any:
        raise AssertionError("XLA makes the results")


LIBRARY = JaxLibrary()
