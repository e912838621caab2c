"""Views of arrays, and the functions that cuscan needs of an array's library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from cuscan.dtypes import DTYPES, DType, Kind
from cuscan.kept import Table


class Device(NamedTuple):
    """A device: type "cuda" or "cpu", and its ordinal."""

    type: str
    ordinal: int

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.ordinal}"


Like = Callable[[tuple[Any, ...]], list[int] | None]  # returns the addresses of arrays that match, else None


_MAKERS = {"numpy": "np.asarray({})", "cupy": "cupy.asarray({})", "jax": "jnp.asarray({})"}
_TO_HOST = {"torch": "{}.cpu()", "cupy": "{}.get()"}


def spell_conversion(name: str, library: str, device: Device, of: ArrayKind | None = None) -> str:
    """Return the code that converts an argument to a library on a device; `of` is the kind of array that it is now."""
    if library == "torch":
        return f"torch.as_tensor({name}" + (")" if device.type == "cpu" else f", device={str(device)!r})")
    if library == "numpy" and of is not None and of.device.type == "cuda":
        name = _TO_HOST[of.library.name].format(name)
    return _MAKERS[library].format(name)


class Library(Protocol):
    """A tensor library: one object each, in the module of its name."""

    name: str

    def adopt(self, array: Any, name: str) -> ArrayView:
        """View an array of this library; `name` is the argument's name in errors."""

    def look(self, arrays: tuple[Any, ...]) -> tuple[list[Any], list[int]] | None:
        """Return the facts about arrays that launches depend on, and their addresses; the first is of this library.

        Return None if a call needs more than a launch, or if another path is simpler: on the CPU, with arrays of
        several libraries, or under derivatives.
        """

    def mode(self, array: Any) -> int | None:
        """Return what a call with this first array depends on beside its arrays; None if `liken` does not apply."""

    def liken(self, arrays: tuple[Any, ...]) -> Like | None:
        """Return a function that recognises arrays with the facts of these faster than `look`, or None."""

    def maker(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device
    ) -> Callable[[], Any]:
        """Return a function that makes dense arrays, on the current device if that is a GPU; strides count elements."""

    def from_numpy(self, array: Any, device: Device) -> Any:
        """Return a NumPy array as an array of the library on a device."""

    def sum_dtype(self, dtype: DType, *, standard: bool = False) -> DType:
        """Return the dtype of sums and products of bool or integers; `standard`: by the array API standard's rule."""

    def index_dtype(self) -> DType:
        """Return the dtype of positions."""

    def written(self, array: Any) -> None:
        """Notify the library that cuscan has written to the user's array."""


class WideIntegers:
    """The dtypes of a library whose integer sums and positions have 64 bits."""

    def sum_dtype(self, dtype: DType, *, standard: bool = False) -> DType:
        return DTYPES["uint64" if dtype.kind is Kind.UNSIGNED else "int64"]

    def index_dtype(self) -> DType:
        return DTYPES["int64"]


class OnlyLooks:
    """A library without a faster way than `look`."""

    def mode(self, array: Any) -> None:
        return None

    def liken(self, arrays: tuple[Any, ...]) -> None:
        return None


class HostLibrary(Library, Protocol):
    """A library with arrays on the CPU."""

    def as_numpy(self, view: ArrayView) -> Any:
        """Return a NumPy array on the same memory as a CPU array; bfloat16 as uint16."""


class DeviceLibrary(Library, Protocol):
    """A library with arrays on GPUs."""

    def scratch(self, nbytes: int, device: Device) -> Any:
        """Allocate memory on the current device, ordered on the current stream; freed with the returned object."""

    def scratch_of_graph(self, nbytes: int, device: Device) -> Any:
        """Allocate memory that belongs to the graph, for the work captured until the object is freed."""

    def pointer(self, array: Any) -> int:
        """Return the address of an array made by `maker`, `scratch` or `scratch_of_graph`."""

    def put(self, array: Any, value: Any) -> None:
        """Set all elements to those of an array that broadcasts, or to a number; wait for nothing."""

    def fetch(self, array: Any) -> Any:
        """Return a copy of an array as a NumPy array; wait for it."""

    def stream(self, device: Device) -> int:
        """Return the handle of the library's current stream on a device."""

    def stream_owner(self, device: Device) -> Any:
        """Return an object that keeps the current stream alive; None if the library never destroys it."""


class ArrayKind:
    """Everything about an array except its address, as launches depend on it. Strides count elements.

    Libraries store their kinds, so that kinds can be compared by identity. A number in place of an array has no memory
    on the device: its view owns a NumPy scalar.
    """

    __slots__ = ("device", "dtype", "end", "is_number", "library", "readonly", "shape", "start", "strides")

    def __init__(
        self,
        library: Library,
        dtype: DType,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        device: Device,
        readonly: bool = False,
        is_number: bool = False,
    ) -> None:
        self.library = library
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.device = device
        self.readonly = readonly
        self.is_number = is_number
        # The bytes that it covers, relative to its address: from the first to the one after the last.
        if 0 in shape:
            self.start = self.end = 0
            return
        first = last = 0
        for stride, size in zip(strides, shape, strict=True):
            if stride < 0:
                first += stride * (size - 1)
            else:
                last += stride * (size - 1)
        self.start, self.end = first * dtype.itemsize, (last + 1) * dtype.itemsize

    @property
    def reach(self) -> tuple[int, int]:
        """See `ArraySpec`; not a stored tuple, since there are thousands of kinds."""
        return self.start, self.end


@dataclass(slots=True, eq=False)
class ArrayView:
    """An array of any library: its memory, and the object that keeps it alive.

    `pointer` is the address of the first element. `lender` is an object of a library that cuscan does not support
    directly: results become arrays of that library, and on a GPU the library may reuse the memory once the object is
    released. `traced`: derivatives or transforms track what is computed from the array, so `autograd` runs the call;
    the pointer is 0 if there is no memory yet.
    """

    owner: Any
    kind: ArrayKind
    pointer: int
    lender: Any = None
    traced: bool = False

    @property
    def library(self) -> Library:
        return self.kind.library

    @property
    def dtype(self) -> DType:
        return self.kind.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.kind.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.kind.strides

    @property
    def device(self) -> Device:
        return self.kind.device

    @property
    def readonly(self) -> bool:
        return self.kind.readonly


def number_like(number: Any, dtype: DType, library: Library, device: Device) -> ArrayView:
    """Return a view of a number that stands in for an array, beside an array of a library on a device."""
    key = library, dtype, device
    kind = _numbers.get(key) or _numbers.setdefault(key, ArrayKind(library, dtype, (), (), device, True, True))
    return ArrayView(np.dtype(dtype.name).type(number), kind, 0)


_numbers: dict[Any, ArrayKind] = {}
Kinds = Table[Any, ArrayKind]  # by a library's facts about arrays
