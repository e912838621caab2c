"""What cuscan sees of an array, and what it asks of the library that the array belongs to."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from cuscan.dtypes import DType


class Device(NamedTuple):
    """A device: type "cuda" or "cpu", and its ordinal."""

    type: str
    ordinal: int

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.ordinal}"


class Library(Protocol):
    """A tensor library: one object each, in the module of its name."""

    name: str

    def adopt(self, array: Any, name: str) -> ArrayView:
        """See an array of this library; `name` is the argument that errors speak of."""

    def empty(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device) -> Any:
        """A new dense array of the library; strides in elements."""

    def full(self, number: Any, dtype: DType, device: Device) -> Any:
        """A new array of no dimensions that holds a number."""

    def written(self, array: Any) -> None:
        """Tell the library that the user's array was written behind its back."""


class HostLibrary(Library, Protocol):
    """A library with arrays on the CPU."""

    def as_numpy(self, view: ArrayView) -> Any:
        """A CPU array as NumPy sees it, on the same memory; bfloat16 as uint16."""


class DeviceLibrary(Library, Protocol):
    """A library with arrays on GPUs."""

    def scratch(self, nbytes: int, device: Device) -> Any:
        """Zeroed device memory, ordered on the current stream; freed with the returned object."""

    def pointer(self, array: Any) -> int:
        """The address of an array that `empty` or `scratch` returned."""

    def fetch(self, array: Any) -> Any:
        """A copy of an array as a NumPy array; waits for it."""

    def stream(self, device: Device) -> int:
        """The handle of the library's current stream on a device."""


class ArrayView(NamedTuple):
    """An array of any library: its memory, and the object that keeps it alive.

    `strides` count elements; `pointer` is the address of the first element. `lender` is an object of
    a library that cuscan does not know, and that may use the memory again once it is let go.
    """

    owner: Any
    library: Library
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    device: Device
    readonly: bool
    lender: Any = None
