"""Types of the public signatures, and helpers for functions that share keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar

from cuscan.errors import ScanTypeError
from cuscan.operators import Monoid

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Required

    NumPy = NDArray[Any]


class SupportsDLPack(Protocol):
    """An array with the DLPack protocol; the types of JAX leave out that it has `__dlpack_device__`."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...


class SupportsCUDAArrayInterface(Protocol):
    """An array with the CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...


Array = TypeVar("Array", bound=SupportsDLPack | SupportsCUDAArrayInterface)
OneNumber = Literal["add", "sum", "mul", "prod", "min", "max", "and", "or", "xor"]
OpName = OneNumber | Literal["logaddexp"]
Op = OpName | Callable[..., Any] | Monoid
Yes = Literal[True]
No = Literal[False]
Axis = int | None
Ties = Literal["first", "last"]
Item = TypeVar("Item")
Pair = tuple[Item, Item]
WithCarry = tuple[Item, Any]  # the carry is an array or a tuple of arrays
PairWithCarry = tuple[Item, Item, Any]


class Shared(TypedDict, total=False):
    """The keywords that all functions share, except `return_carry`; `cuscan.scan` documents them."""

    dim: int | None
    reverse: bool
    initial: Any
    reset: Any
    offsets: Any
    keys: Any
    carry: Any
    validate: bool
    dtype: Any
    out: Any


class Named(Shared, total=False):
    """The keywords of the functions that are named after an operator, except `skipna`."""

    exclusive: bool
    include_initial: bool
    mask: Any


class Skipping(Named, total=False):
    """The same, with `skipna`."""

    skipna: bool


class WithoutIndices(Skipping, total=False):
    """The keywords of a running extremum without positions."""

    return_indices: No
    ties: Ties


class WithIndices(Skipping, total=False):
    """The keywords of a running extremum and its positions."""

    return_indices: Required[Yes]
    ties: Ties


class Recurrence(Shared, total=False):
    """The keywords of `cuscan.linear_recurrence` without the last state."""

    axis: int
    return_last: No


class RecurrenceWithLast(Shared, total=False):
    """The keywords of `cuscan.linear_recurrence` with the last state."""

    axis: int
    return_last: Required[Yes]


class OfScan(Skipping, total=False):
    """The keywords of `cuscan.scan`."""

    axis: int


class OfTotal(TypedDict, total=False):
    """The keywords of `cuscan.total` that do not affect its return type."""

    axis: int
    dim: int | None
    reverse: bool
    mask: Any
    skipna: bool
    initial: Any
    reset: Any
    offsets: Any
    carry: Any
    ties: Ties
    validate: bool
    dtype: Any


class OfTotals(OfTotal, total=False):
    """All keywords of `cuscan.total`; with keys or positions it returns a tuple."""

    keys: Any
    return_indices: bool


class _Unset(int):
    """The default axis, distinct from an explicit one; it prints as the plain integer."""


LAST = _Unset(-1)


def choose_axis(axis: Any, dim: Any) -> Any:
    """Return the axis of a call from `axis` or `dim`; raises `ScanTypeError` if both are passed."""
    if dim is None:
        return -1 if axis is LAST else axis
    if axis is not LAST:
        raise ScanTypeError(f"axis={axis!r} and dim={dim!r} are the same argument; pass one of them")
    if not hasattr(dim, "__index__"):
        raise ScanTypeError(f"dim must be an integer; got {dim!r}")
    return dim


def known(function: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a call of a function that spells them; the error is Python's, in this function's name."""
    spelled = inspect.signature(function).parameters
    for keyword in keywords:
        if keyword not in spelled:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {keyword!r}")
    return keywords


Function = TypeVar("Function", bound=Callable[..., Any])


def spells_keywords_of(other: Callable[..., Any], *without: str) -> Callable[[Function], Function]:
    """Replace a function's `**keywords` with the keywords of `other`, for `help()` and `inspect`."""

    def spell(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        shared = [p for p in inspect.signature(other).parameters.values() if p.kind is p.KEYWORD_ONLY]
        names = {p.name for p in own} | set(without)
        parameters = own + [p for p in shared if p.name not in names]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return spell
