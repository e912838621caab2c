"""The built-in operators, one row each. A new operator needs a row here and a functor in `cuda/operators.cuh`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuscan.dtypes import DTYPES, EVERY, EXACT, REAL, DType, Kind
from cuscan.errors import ScanValueError
from cuscan.states import SCALAR, Fields, States

Array = np.ndarray[Any, Any]
FLOAT = frozenset({Kind.FLOAT})


@dataclass(frozen=True)
class Monoid:
    """An associative operator with an identity, for the kernels and the NumPy backend.

    Attributes:
        name: the user's spelling.
        functor: the C++ operator, for a number type {T} and an index type {Index}; {Sparse} says whether states of no
            element may occur.
        kinds: the kinds of result dtype that it is defined on.
        promotes: whether bool and integers widen to 64 bits by default, as in `cumsum`.
        wide_carry: whether the carry from tile to tile is kept in `DType.wide`.
        combine: the same operator on NumPy arrays of states, `combine(earlier, later)`, or None. It may return one of
            its arguments.
        identity: maps a result dtype to the parts of the state that replaces a masked element.
        states: conversions of elements to states, and of states to results, in NumPy.
        inputs: the names of the arrays of elements in error messages.
        exact: whether it consists of operations that IEEE 754 rounds, so that the kernels and NumPy give the same bits.
        costly: whether it may take many more instructions than a sum.
        indexed: whether a state holds the position of its element.
        segments_have_initial: whether each segment starts from the initial value, or only the first of a row.
        marks_restarts: whether states without a flag can say that a segment starts in them (`Marking` of segments.cuh).
        on_bool: the operator that replaces this one if the result is bool.
        dtypes: dtypes of a user-defined state's fields; if empty, the state follows from the dtype of the result.
        source: C++ text that defines the functor, if it is not in `operators.cuh`.
        vjp: the derivative of a user's `combine`; see `Operator`.
    """

    name: str
    functor: str
    kinds: frozenset[Kind]
    promotes: bool
    wide_carry: bool
    combine: Callable[[Array, Array], Array] | None = field(compare=False)
    identity: Callable[[DType], tuple[complex, ...]] = field(compare=False)
    states: States = field(default=SCALAR, compare=False)
    inputs: tuple[str, ...] = ("x",)
    exact: bool = True
    costly: bool = False
    indexed: bool = False
    segments_have_initial: bool = True
    marks_restarts: bool = False
    on_bool: str | None = None
    dtypes: tuple[str, ...] = ()
    source: str = ""
    vjp: Callable[..., tuple[Any, Any]] | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """The key for `find_key`."""
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)  # hashing all fields is slow, and every call's lookup hashes its operator

    def __repr__(self) -> str:
        return self.name

    def results(self, dtype: DType, index: DType = DTYPES["int64"]) -> tuple[DType, ...]:
        """Return the dtypes of the results: `dtype` first, then `index` for positions."""
        if self.dtypes:
            return tuple(DTYPES[name] for name in self.dtypes)
        return (dtype, index) if self.indexed else (dtype,)


# ---- the functors on NumPy arrays ------------------------------------------------------------------------------------


def _smaller(earlier: Array, later: Array) -> Array:
    keeps = earlier <= later
    if earlier.dtype.kind == "f":  # a NaN counts as less than all numbers, -0 as less than +0
        keeps = (earlier < later) | (earlier != earlier) | (keeps & np.signbit(earlier))
    return np.where(keeps, earlier, later)


def _larger(earlier: Array, later: Array) -> Array:
    keeps = earlier >= later
    if earlier.dtype.kind == "f":  # a NaN counts as greater than all numbers, +0 as greater than -0
        keeps = (earlier > later) | (earlier != earlier) | (keeps & ~np.signbit(earlier))
    return np.where(keeps, earlier, later)


def product(earlier: Array, later: Array) -> Array:
    """Return the product of numbers; every partial product and sum of complex numbers is rounded by itself."""
    if earlier.dtype.kind != "c":
        return np.multiply(earlier, later)
    # Spelled out: NumPy may contract the parts of its own product to fused multiply-adds.
    product = np.empty(np.broadcast(earlier, later).shape, earlier.dtype)
    product.real = earlier.real * later.real - earlier.imag * later.imag
    product.imag = earlier.real * later.imag + earlier.imag * later.real
    return product


def _extremum(sign: int, latest: bool) -> Callable[[Array, Array], Array]:
    def combine(earlier: Array, later: Array) -> Array:
        one, other = earlier["value"], later["value"]
        one_nan, other_nan = one != one, other != other
        beyond = other > one if sign > 0 else other < one
        equal = np.where(one_nan, other_nan, one == other)
        wins_tie = (later["index"] >= 0) & (latest | (earlier["index"] < 0))
        return np.where((~one_nan & (beyond | other_nan)) | (equal & wins_tie), later, earlier)

    return combine


def _add_exponentials(earlier: Array, later: Array) -> Array:
    keep = (earlier["top"] >= later["top"]) | np.isnan(earlier["top"])
    high, low = np.where(keep, earlier, later), np.where(keep, later, earlier)
    part = np.where(high["top"] == low["top"], high["top"].dtype.type(1), np.exp(low["top"] - high["top"]))
    high["sum"] += low["sum"] * part
    return high


def _affine_steps(earlier: Array, later: Array) -> Array:
    step: Array = np.empty(np.broadcast(earlier, later).shape, earlier.dtype)
    step["decay"] = product(earlier["decay"], later["decay"])
    step["state"] = product(later["decay"], earlier["state"]) + later["state"]
    return step


def _end_of_range(dtype: DType, *, highest: bool) -> complex:
    if dtype.kind is Kind.FLOAT:
        return float("inf") if highest else float("-inf")
    if dtype.kind is Kind.BOOL:
        return int(highest)
    limits = np.iinfo(dtype.name)
    return int(limits.max if highest else limits.min)


def _highest(dtype: DType) -> tuple[complex, ...]:
    return (_end_of_range(dtype, highest=True),)


def _lowest(dtype: DType) -> tuple[complex, ...]:
    return (_end_of_range(dtype, highest=False),)


def _all_ones(dtype: DType) -> tuple[complex, ...]:
    return (-1,) if dtype.kind is Kind.SIGNED else _highest(dtype)


# ---- the tables ------------------------------------------------------------------------------------------------------

_ROWS = (
    Monoid("add", "Add<{T}>", EVERY, True, True, np.add, lambda _: (0,), on_bool="or"),
    Monoid("mul", "Mul<{T}>", EVERY, True, True, product, lambda _: (1,), on_bool="and"),
    Monoid("min", "Min<{T}>", REAL, False, False, _smaller, _highest),
    Monoid("max", "Max<{T}>", REAL, False, False, _larger, _lowest),
    Monoid("and", "And<{T}>", EXACT, False, False, np.bitwise_and, _all_ones),
    Monoid("or", "Or<{T}>", EXACT, False, False, np.bitwise_or, lambda _: (0,)),
    Monoid("xor", "Xor<{T}>", EXACT, False, False, np.bitwise_xor, lambda _: (0,)),
    Monoid(
        "logaddexp",
        "LogAddExp<{T}>",
        FLOAT,
        False,
        False,
        _add_exponentials,
        lambda _: (float("-inf"), 0),
        Fields(("top", "sum"), lift=lambda x: (x, 1), lower=lambda s: (s["top"] + np.log(s["sum"]),)),
        exact=False,
    ),
)

OPERATORS = {row.name: row for row in _ROWS}

_INDEXED_STATES = Fields(
    ("value", "index"), fixed={"index": "int64"}, lift=lambda x: (x, -1), lower=lambda s: (s["value"], s["index"])
)
# Extrema with positions, by operator and by which of equal values is kept.
INDEXED = {
    (op, ties): Monoid(
        f"{op} with {'last ' * (ties == 'last')}indices",
        f"Extremum<{{T}}, {{Index}}, {sign}, {str(ties == 'last').lower()}, {{Sparse}}>",
        REAL,
        False,
        False,
        _extremum(sign, ties == "last"),
        lambda dtype, end=end: (*end(dtype), -1),  # type: ignore[misc]
        _INDEXED_STATES,
        indexed=True,
    )
    for op, sign, end in (("max", 1, _lowest), ("min", -1, _highest))
    for ties in ("first", "last")
}

LINEAR_RECURRENCE = Monoid(
    "linear_recurrence",
    "LinearRecurrence<{T}>",
    frozenset({Kind.FLOAT, Kind.COMPLEX}),
    False,
    True,
    _affine_steps,
    lambda _: (1, 0),
    Fields(("decay", "state"), start=lambda h: (1, h), lower=lambda s: (s["state"],)),
    inputs=("a", "b"),
    segments_have_initial=False,
    marks_restarts=True,
)

# Operators by key. User operators are never removed, because graphs of compiled programs hold only the key.
KEYED: dict[str, Monoid] = {row.key: row for row in (*_ROWS, *INDEXED.values(), LINEAR_RECURRENCE)}


def find_key(key: str) -> Monoid:
    """Return the operator of a key; raises `ScanValueError` if there is none."""
    try:
        return KEYED[key]
    except KeyError:
        raise ScanValueError(f"op={key!r} is not there: make the Operator before the graph runs") from None
