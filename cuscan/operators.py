"""The operators: one row each. Adding one is a row here and a functor in `cuda/operators.cuh`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cuscan.dtypes import EVERY, EXACT, REAL, DType, Kind

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Operator:
    """An associative operator, as the kernels and the NumPy backend know it.

    Attributes:
        name: what the user writes.
        functor: the C++ class template, over the accumulator type.
        kinds: the kinds of result dtype that it is defined on.
        promotes: whether bool and integers widen to 64 bits by default, as in `cumsum`.
        wide_carry: whether the carry from tile to tile is kept in `DType.wide`.
        combine: the same operator on NumPy arrays of accumulators, `combine(earlier, later)`.
        identity: the value that a masked element counts as, for a result dtype.
        on_bool: the operator that stands for this one where the result is bool.
        source: C++ text that defines the functor, where it is not in `operators.cuh`.
    """

    name: str
    functor: str
    kinds: frozenset[Kind]
    promotes: bool
    wide_carry: bool
    combine: Callable[[Array, Array], Array] = field(compare=False)
    identity: Callable[[DType], complex] = field(compare=False)
    on_bool: str | None = None
    source: str = ""

    def __repr__(self) -> str:
        return self.name


def _smaller(earlier: Array, later: Array) -> Array:
    return np.where((earlier <= later) | (earlier != earlier), earlier, later)


def _larger(earlier: Array, later: Array) -> Array:
    return np.where((earlier >= later) | (earlier != earlier), earlier, later)


def _complex_safe_product(earlier: Array, later: Array) -> Array:
    if earlier.dtype.kind != "c":
        return np.multiply(earlier, later)
    # Spelled out: NumPy may contract the parts of its own product to fused multiply-adds.
    product = np.empty(np.broadcast(earlier, later).shape, earlier.dtype)
    product.real = earlier.real * later.real - earlier.imag * later.imag
    product.imag = earlier.real * later.imag + earlier.imag * later.real
    return product


def _end_of_range(dtype: DType, *, highest: bool) -> complex:
    if dtype.kind is Kind.FLOAT:
        return float("inf") if highest else float("-inf")
    if dtype.kind is Kind.BOOL:
        return int(highest)
    limits = np.iinfo(dtype.name)
    return int(limits.max if highest else limits.min)


def _all_ones(dtype: DType) -> complex:
    return -1 if dtype.kind is Kind.SIGNED else _end_of_range(dtype, highest=True)


_ROWS = (
    Operator("add", "Add", EVERY, True, True, np.add, lambda _: 0, on_bool="or"),
    Operator("mul", "Mul", EVERY, True, True, _complex_safe_product, lambda _: 1, on_bool="and"),
    Operator("min", "Min", REAL, False, False, _smaller, lambda d: _end_of_range(d, highest=True)),
    Operator("max", "Max", REAL, False, False, _larger, lambda d: _end_of_range(d, highest=False)),
    Operator("and", "And", EXACT, False, False, np.bitwise_and, _all_ones),
    Operator("or", "Or", EXACT, False, False, np.bitwise_or, lambda _: 0),
    Operator("xor", "Xor", EXACT, False, False, np.bitwise_xor, lambda _: 0),
)

OPERATORS = {row.name: row for row in _ROWS}
