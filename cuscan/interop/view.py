"""What cuscan sees of an array, and what it asks of the library that the array belongs to."""

from __future__ import annotations

import operator
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


Like = Callable[[tuple[Any, ...]], list[int] | None]  # the addresses of arrays that are like others, else None


_MAKERS = {"numpy": "np.asarray({})", "cupy": "cupy.asarray({})", "jax": "jnp.asarray({})"}
_TO_HOST = {"torch": "{}.cpu()", "cupy": "{}.get()"}


def spell_conversion(name: str, library: str, device: Device, of: ArrayKind | None = None) -> str:
    """What a user writes to have an argument as an array of a library on a device; `of`: the array that it is now."""
    if library == "torch":
        return f"torch.as_tensor({name}" + (")" if device.type == "cpu" else f", device={str(device)!r})")
    if library == "numpy" and of is not None and of.device.type == "cuda":
        name = _TO_HOST[of.library.name].format(name)
    return _MAKERS[library].format(name)


class Library(Protocol):
    """A tensor library: one object each, in the module of its name."""

    name: str

    def adopt(self, array: Any, name: str) -> ArrayView:
        """See an array of this library; `name` is the argument that errors speak of."""

    def look(self, arrays: tuple[Any, ...]) -> tuple[list[Any], list[int]] | None:
        """What launches on some arrays depend on, and their addresses; the first is of the library.

        None where more than a launch is needed, or where it is easier to see: on the CPU, where arrays are of several
        libraries, where derivatives follow them.
        """

    def mode(self, array: Any) -> int | None:
        """What a call with this as its first array depends on beside its arrays; None if `liken` is of no use to it."""

    def liken(self, arrays: tuple[Any, ...]) -> Like | None:
        """What tells arrays that have the facts of these from others, faster than `look`; None if nothing does."""

    def maker(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device
    ) -> Callable[[], Any]:
        """What makes new dense arrays of the library, on the current device if that is a GPU; strides in elements."""

    def from_numpy(self, array: Any, device: Device) -> Any:
        """A NumPy array as one of the library on a device."""

    def sum_dtype(self, dtype: DType, *, standard: bool = False) -> DType:
        """Of sums and products of bool or integers of a dtype; `standard`: by the array API standard's rule."""

    def index_dtype(self) -> DType:
        """Of positions."""

    def written(self, array: Any) -> None:
        """Tell the library that the user's array was written behind its back."""


class WideIntegers:
    """The dtypes of a library whose sums of integers and positions are 64 bits wide."""

    def sum_dtype(self, dtype: DType, *, standard: bool = False) -> DType:
        return DTYPES["uint64" if dtype.kind is Kind.UNSIGNED else "int64"]

    def index_dtype(self) -> DType:
        return DTYPES["int64"]


class OnlyLooks:
    """A library that has nothing faster than `look`."""

    def mode(self, array: Any) -> None:
        return None

    def liken(self, arrays: tuple[Any, ...]) -> None:
        return None


class HostLibrary(Library, Protocol):
    """A library with arrays on the CPU."""

    def as_numpy(self, view: ArrayView) -> Any:
        """A CPU array as NumPy sees it, on the same memory; bfloat16 as uint16."""


class DeviceLibrary(Library, Protocol):
    """A library with arrays on GPUs."""

    def scratch(self, nbytes: int, device: Device) -> Any:
        """Memory on the current device, ordered on the current stream; freed with the returned object."""

    def scratch_of_graph(self, nbytes: int, device: Device) -> Any:
        """Memory for the work that is captured until the object is freed; it belongs to the graph."""

    def pointer(self, array: Any) -> int:
        """The address of an array that `maker`, `scratch` or `scratch_of_graph` made."""

    def fetch(self, array: Any) -> Any:
        """A copy of an array as a NumPy array; waits for it."""

    def stream(self, device: Device) -> int:
        """The handle of the library's current stream on a device."""

    def stream_owner(self, device: Device) -> Any:
        """What keeps the current stream from being destroyed; None if the library never destroys it."""


class ArrayKind:
    """All of an array but for where it lies: what a launch depends on. Strides count elements.

    Kinds are kept by their libraries, so that they can be told apart by identity. A number in the place of an array has
    no memory on the device: its view owns a NumPy scalar.
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
        # The bytes that it covers, from its address on: from the first to the one behind the last.
        if 0 in shape:
            self.start = self.end = 0
            return
        first, last = 0, sum(map(operator.mul, strides, shape)) - sum(strides)
        if strides and min(strides) < 0:
            first = sum([stride * (shape[axis] - 1) for axis, stride in enumerate(strides) if stride < 0])
        self.start, self.end = first * dtype.itemsize, (last - first + 1) * dtype.itemsize

    @property
    def reach(self) -> tuple[int, int]:
        """See `ArraySpec`; no tuple that is kept, as thousands of kinds are."""
        return self.start, self.end


@dataclass(slots=True, eq=False)
class ArrayView:
    """An array of any library: its memory, and the object that keeps it alive.

    `pointer` is the address of the first element. `lender` is an object of a library that cuscan does not know: results
    become arrays of that library, and on a GPU it may use the memory again once it is let go. `traced`: derivatives or
    transforms follow what is computed from the array, and `autograd` runs the call; the pointer is 0 if there is no
    memory yet.
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
    """A number in the place of an array beside one of a library on a device."""
    key = library, dtype, device
    kind = _numbers.get(key) or _numbers.setdefault(key, ArrayKind(library, dtype, (), (), device, True, True))
    return ArrayView(np.dtype(dtype.name).type(number), kind, 0)


_numbers: dict[Any, ArrayKind] = {}
Kinds = Table[Any, ArrayKind]  # by what a library tells of an array
