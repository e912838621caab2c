"""A call of the public functions: its arrays by their roles, its other arguments by their types."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.operators import INDEXED, OPERATORS, Monoid
from cuscan.specs import new_tuple

if TYPE_CHECKING:
    from cuscan.interop.view import ArrayView


class Flags(NamedTuple):
    """The arguments of a call that are no arrays, of the types that they ought to have; see `make_flags`."""

    op: Any
    axis: int = -1
    reverse: bool = False
    exclusive: bool = False
    include_initial: bool = False
    skipna: bool = False
    dtype: Any = None
    return_last: bool = False
    validate: bool = False
    return_carry: bool = False
    only_carry: bool = False


def make_flags(
    op: Any,
    axis: Any,
    reverse: Any,
    exclusive: Any = False,
    include_initial: Any = False,
    skipna: Any = False,
    dtype: Any = None,
    return_last: Any = False,
    validate: Any = False,
    return_carry: Any = False,
    only_carry: bool = False,
) -> Flags:
    """The flags of a call; raises `ScanTypeError` where a type does not fit.

    Equal flags mean the same: 1 equals True and 1.0, and only one of them is an axis.
    """
    if type(axis) is not int:
        axis = _to_index(axis)
    if not (
        type(reverse) is type(exclusive) is type(include_initial) is type(skipna) is bool
        and type(return_last) is type(validate) is type(return_carry) is bool
    ):
        flags = (reverse, exclusive, include_initial, skipna, return_last, validate, return_carry)
        names = ("reverse", "exclusive", "include_initial", "skipna", "return_last", "validate", "return_carry")
        reverse, exclusive, include_initial, skipna, return_last, validate, return_carry = map(_to_bool, names, flags)
    fields = op, axis, reverse, exclusive, include_initial, skipna, dtype, return_last, validate
    return new_tuple(Flags, (*fields, return_carry, only_carry))


SEGMENTS = ("reset", "offsets", "keys")
CARRY = ("carry", *(f"carry[{i}]" for i in range(18)))  # one array, or so many fields: 16 of a user's state at most
BESIDE = frozenset({"mask", "initial", *SEGMENTS, *CARRY})  # what an array can be beside a value


@dataclass(slots=True, eq=False)
class Operands:
    """The arrays of a call: those that are read, in the order of the kernels' arguments, each by its role.

    The roles are the names of the arguments. Values come first, then "mask", one of `SEGMENTS`, "initial", and those of
    `CARRY`. A GPU's backend keeps what it makes of the call by `key`, if there is one.
    """

    views: tuple[ArrayView, ...]
    roles: tuple[str, ...] = ("x",)
    outs: tuple[ArrayView, ...] | None = None
    key: Any = None

    @property
    def values(self) -> tuple[ArrayView, ...]:
        return tuple(view for name, view in zip(self.roles, self.views, strict=True) if name not in BESIDE)

    def get(self, *roles: str) -> ArrayView | None:
        """The array in one of some roles, if there is one."""
        return next((view for name, view in zip(self.roles, self.views, strict=True) if name in roles), None)

    @property
    def carry(self) -> tuple[ArrayView, ...]:
        """The fields of the carry that comes in."""
        return tuple(view for name, view in zip(self.roles, self.views, strict=True) if name in CARRY)

    @property
    def segments(self) -> str | None:
        """How segments are given."""
        return next((name for name in self.roles if name in SEGMENTS), None)


def one_or_all(arrays: Sequence[Any]) -> Any:
    """The array of one field, or those of several as a tuple: what users see of a carry."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


# What else the built-in operators are called: names of reductions, functions that combine two numbers alike.
_ALIASES: dict[str, tuple[Any, ...]] = {
    "add": ("sum", np.add, operator.add),
    "mul": ("prod", np.multiply, operator.mul),
    "min": (np.minimum, min),
    "max": (np.maximum, max),
    "and": (np.bitwise_and, operator.and_),
    "or": (np.bitwise_or, operator.or_),
    "xor": (np.bitwise_xor, operator.xor),
    "logaddexp": (np.logaddexp,),
}
_NAMED: dict[Any, Monoid] = OPERATORS | {alias: OPERATORS[name] for name, row in _ALIASES.items() for alias in row}


def find_operator(op: Any) -> Monoid:
    """The row of the operator table that the user's `op` names."""
    if isinstance(op, Monoid):
        return op
    with contextlib.suppress(TypeError, KeyError):  # what cannot be hashed names none
        return _NAMED[op]
    raise ScanValueError(
        f"op must be one of {', '.join(map(repr, OPERATORS))}, a function that does the same, such as np.add, or a "
        f"cuscan.Operator; got {op!r}"
    )


def choose_extremum(op: Any, return_indices: Any, ties: Any) -> Any:
    """The `op` of a call that may ask for the positions of extrema."""
    if ties not in ("first", "last"):
        raise ScanValueError(f"ties must be 'first' or 'last'; got {ties!r}")
    if not _to_bool("return_indices", return_indices):
        return op
    name = find_operator(op).name
    if (name, ties) not in INDEXED:
        raise ScanValueError(f"return_indices is for 'max' and 'min'; got op={name!r}")
    return INDEXED[name, ties]


def find_dtype(dtype: object) -> DType:
    """The row of the dtype table for a name, or a dtype or type of any library: torch.float32."""
    if isinstance(dtype, DType):
        return dtype
    text = str(dtype)
    library, _, named = text.rpartition(".")
    if named in DTYPES and library in sys.modules:
        name = named
    elif isinstance(dtype, str) and dtype in DTYPES:
        name = dtype
    else:
        try:
            numpy_dtype = np.dtype(dtype)  # type: ignore[call-overload]
            name = numpy_dtype.name if numpy_dtype.isnative else text
        except TypeError:
            name = text
    if name not in DTYPES:
        raise ScanTypeError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    return DTYPES[name]


def _to_bool(name: str, flag: object) -> bool:
    if not isinstance(flag, bool | np.bool_):
        raise ScanTypeError(f"{name} must be True or False; got {flag!r}")
    return bool(flag)


def _to_index(axis: object) -> int:
    try:
        return operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise ScanTypeError(f"axis must be an integer; got {axis!r}") from None
