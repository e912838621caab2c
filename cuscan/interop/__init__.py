"""The one entry point for arrays: recognise the library, view the array as an `ArrayView`, return results."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuscan.errors import MissingDependencyError, ScanTypeError
from cuscan.interop.view import ArrayView, Device, Library, spell_conversion
from cuscan.versions import check_version

if TYPE_CHECKING:
    from cuscan.interop.cupy import CuPyLibrary

__all__ = ["ArrayView", "Device", "Library", "adopt", "find_library", "hand_back"]

_HOST_DEVICES = {1, 3}  # DLPack: kDLCPU, kDLCUDAHost
_CUDA_DEVICES = {2, 13}  # DLPack: kDLCUDA, kDLCUDAManaged

CUPY_MISSING = (
    "{what} is on a GPU, and scans there need CuPy: pip install 'cuscan[cuda12]' (or 'cuscan[cuda13]' for CUDA 13)"
)


def adopt(array: object, name: str = "x", beside: ArrayView | None = None) -> ArrayView:
    """Return an `ArrayView` of an array, on the same memory.

    CuPy, JAX and NumPy arrays and torch tensors are recognised without importing their libraries. CuPy or NumPy adopts
    arrays of any other producer of DLPack or of the CUDA array interface. Raises `ScanTypeError` if `array` is not an
    array, and `MissingDependencyError` for a GPU array without CuPy. `name` is the argument's name in errors, and
    `beside` an array that it accompanies.
    """
    library = find_library(array, name)
    return _adopt_stranger(array, name, beside) if library is None else library.adopt(array, name)


def find_library(array: object, name: str) -> Library | None:
    """Return the library of an array, or None if cuscan does not support it directly."""
    return _libraries.get(type(array)) or _recognise(array, name)


_libraries: dict[type, Library] = {}  # by type of the arrays so far


def _recognise(array: object, name: str) -> Library | None:
    torch, cupy, jax = (sys.modules.get(name) for name in ("torch", "cupy", "jax"))
    library: Library
    if torch is not None and isinstance(array, torch.Tensor):
        check_version("torch", torch.__version__)
        from cuscan.interop.torch import LIBRARY as library
    elif cupy is not None and isinstance(array, cupy.ndarray):
        library = _cupy(name)
    elif jax is not None and isinstance(array, jax.Array):
        check_version("jax", jax.__version__)
        from cuscan.interop.jax import LIBRARY as library
    elif isinstance(array, np.ndarray):
        check_version("numpy", np.__version__)
        from cuscan.interop.numpy import LIBRARY as library
    else:
        return None
    _libraries[type(array)] = library
    return library


def _cupy(name: str) -> CuPyLibrary:
    try:
        from cuscan.interop.cupy import LIBRARY
    except MissingDependencyError:  # CuPy has an unsupported version
        raise
    except ImportError as error:
        raise MissingDependencyError(CUPY_MISSING.format(what=name)) from error
    return LIBRARY


def _adopt_stranger(array: object, name: str, beside: ArrayView | None) -> ArrayView:
    if isinstance(array, type):
        raise ScanTypeError(f"{name} must be an array; got the class {array.__name__}")
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        kind = int(array.__dlpack_device__()[0])
        if kind in _CUDA_DEVICES:
            return _cupy(name).adopt_foreign(array, name)
        if kind in _HOST_DEVICES:
            from cuscan.interop.numpy import LIBRARY

            return LIBRARY.adopt_foreign(array, name)
        raise ScanTypeError(f"{name} is on a device of DLPack type {kind}; cuscan works on CUDA GPUs and on the CPU")
    if hasattr(array, "__cuda_array_interface__"):
        return _cupy(name).adopt_foreign(array, name)
    raise ScanTypeError(
        f"{name} must be a CuPy or NumPy array, a torch tensor or another array with __dlpack__; "
        f"got {type(array).__name__}{_advice(array, name, beside)}"
    )


def hand_back(arrays: tuple[Any, ...], like: object) -> tuple[Any, ...]:
    """Convert NumPy or CuPy arrays, or tuples of them, to the library of `like`, if it has an array API namespace."""
    if not hasattr(like, "__array_namespace__"):
        return arrays
    take_over = like.__array_namespace__().from_dlpack
    return tuple(tuple(map(take_over, a)) if isinstance(a, tuple) else take_over(a) for a in arrays)


def _advice(thing: object, name: str, beside: ArrayView | None) -> str:
    """Return advice on how to convert an object to an array."""
    for method in ("to_numpy", "toarray"):  # pandas, polars and xarray; sparse matrices of SciPy
        if hasattr(thing, method):
            return f"; pass {name}.{method}()"
    if hasattr(thing, "__dask_graph__"):
        return f"; call cuscan.dask.scan, or pass {name}.compute()"
    if isinstance(thing, str | bytes | Mapping):
        return ""
    if isinstance(thing, Sequence | numbers.Number):
        made = spell_conversion(name, beside.library.name, beside.device) if beside else f"np.asarray({name})"
        return f"; pass {made}"
    return f"; pass np.array(list({name}))" if isinstance(thing, Iterable) else ""
