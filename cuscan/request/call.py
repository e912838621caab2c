"""The arguments of a public call, in two groups: `Operands` (arrays, by role) and `Flags` (everything else)."""

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
    """The arguments of a call that are not arrays, with checked types; see `make_flags`."""

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
    """Return the flags of a call; raises `ScanTypeError` for a wrong type.

    Types are normalised so that equal flags mean the same: 1, True and 1.0 are equal, but only 1 is an axis.
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
CARRY = ("carry", *(f"carry[{i}]" for i in range(18)))  # one array, or one per field: a user's state has at most 16
BESIDE = frozenset({"mask", "initial", *SEGMENTS, *CARRY})  # the roles of arrays other than values


@dataclass(slots=True, eq=False)
class Operands:
    """The arrays of a call.

    `views` are the input arrays in the order of the kernels' arguments, and `roles` the names of the arguments: values
    first, then "mask", one of `SEGMENTS`, "initial", and those of `CARRY`. `outs` are the arrays passed as `out`. The
    GPU backend caches its launch under `key`, if there is one.
    """

    views: tuple[ArrayView, ...]
    roles: tuple[str, ...] = ("x",)
    outs: tuple[ArrayView, ...] | None = None
    key: Any = None

    @property
    def values(self) -> tuple[ArrayView, ...]:
        return tuple(view for name, view in zip(self.roles, self.views, strict=True) if name not in BESIDE)

    def get(self, *roles: str) -> ArrayView | None:
        """Return the first array whose role is one of `roles`, or None."""
        return next((view for name, view in zip(self.roles, self.views, strict=True) if name in roles), None)

    @property
    def carry(self) -> tuple[ArrayView, ...]:
        """The fields of the incoming carry."""
        return tuple(view for name, view in zip(self.roles, self.views, strict=True) if name in CARRY)

    @property
    def segments(self) -> str | None:
        """How segments are given: one of `SEGMENTS`, or None."""
        return next((name for name in self.roles if name in SEGMENTS), None)


def one_or_all(arrays: Sequence[Any]) -> Any:
    """Return a single array itself, and several as a tuple: the form in which users see carries."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


# Other spellings of the built-in operators: names of reductions, and functions that combine two numbers the same way.
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
_GUESTS = ("torch", "cupy", "jax.numpy")  # they have functions of NumPy's names
_GUESTS_NAMES = {alias.__name__: row for alias, row in _NAMED.items() if isinstance(alias, np.ufunc)}
_GUESTS_NAMES["mul"] = OPERATORS["mul"]  # of torch


def find_operator(op: Any) -> Monoid:
    """Return the operator that the user's `op` names; raises `ScanValueError` if there is none."""
    if isinstance(op, Monoid):
        return op
    with contextlib.suppress(TypeError, KeyError):  # TypeError: unhashable
        return _NAMED[op]
    for module in map(sys.modules.get, _GUESTS):
        for name, row in _GUESTS_NAMES.items():
            if callable(op) and op is getattr(module, name, None):
                return row
    raise ScanValueError(
        f"op must be one of {', '.join(map(repr, OPERATORS))}, a function that does the same, such as np.add, or a "
        f"cuscan.Operator; got {op!r}"
    )


def choose_extremum(op: Any, return_indices: Any, ties: Any) -> Any:
    """Return the `op` of a call, or its indexed version if `return_indices` is set."""
    if ties not in ("first", "last"):
        raise ScanValueError(f"ties must be 'first' or 'last'; got {ties!r}")
    if not _to_bool("return_indices", return_indices):
        return op
    name = find_operator(op).name
    if (name, ties) not in INDEXED:
        raise ScanValueError(f"return_indices is for 'max' and 'min'; got op={name!r}")
    return INDEXED[name, ties]


def find_dtype(dtype: object) -> DType:
    """Return the `DType` for a name, or for a dtype or type of any library, such as torch.float32."""
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
        advice = "; to scan all elements as one line pass x.reshape(-1)" if axis is None else ""
        raise ScanTypeError(f"axis must be an integer; got {axis!r}{advice}") from None
