"""The result of a case against a reference of the array library's own, in 64-bit arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.machine import Array
from cuscan.dtypes import DTYPES, EXACT, DType, Kind
from cuscan.operators import OPERATORS

BUDGET = 1 << 25  # elements checked at a time; of a larger array, evenly spaced rows or columns


class WrongResultError(AssertionError):
    """A scan's result is off by more than rounding explains."""


def check(case: Case, xp: Any, buffers: Buffers) -> float:
    """Compare `buffers.out` with a reference; the worst error, as a share of what rounding may explain.

    Raises `WrongResultError`. Integers, min and max must be exact. A sum of floats may be off by
    (24 + log2 n) eps sum(|x|), a product by n eps of itself.
    """
    worst = error_of(case, xp, buffers)
    if not worst <= 1:
        raise WrongResultError(f"{case.name}: the result is {worst:.3g} times further off than rounding explains")
    return worst


def error_of(case: Case, xp: Any, buffers: Buffers) -> float:
    """The worst error of `buffers.out`, as a share of what rounding may explain; infinite where it must be exact."""
    x, mask, out = buffers.each(lambda array: _rows(array, case))
    rows, length = x.shape[:-1], x.shape[-1]
    step = max(BUDGET // math.prod(rows), 1)
    identity = OPERATORS[_op(case)].identity(case.result_dtype)[0]
    carry = [_full(xp, rows, case, identity), _full(xp, rows, case, 0)]
    worst = 0.0
    for start in range(0, length, step):
        part = slice(start, start + step)
        wide = _widen(xp, x[..., part], case)
        if mask is not None:
            wide = xp.where(mask[..., part], wide, xp.asarray(identity, wide.dtype))
        reference = _scan(xp, _op(case), wide, carry[0])
        magnitude = _scan(xp, "add", abs(wide), abs(carry[1])) if _rounds(case) else None
        expected = reference
        if case.exclusive:
            expected = xp.concatenate([carry[0][..., None], reference[..., :-1]], axis=-1)
        carry = [reference[..., -1], carry[1] if magnitude is None else magnitude[..., -1]]
        worst = max(worst, _error(case, xp, _plain(xp, out[..., part]), expected, magnitude, length))
    return worst


def _op(case: Case) -> str:
    """The operator's name; on bool, add is or."""
    operator = OPERATORS[case.op]
    return operator.on_bool or case.op if case.result_dtype.kind is Kind.BOOL else case.op


def _rounds(case: Case) -> bool:
    return case.op == "add" and case.result_dtype.kind not in EXACT


def _rows(array: Array, case: Case) -> Array:
    """A view with the scanned axis last, in scan direction, thinned out where it is large."""
    axis = case.axis % array.ndim
    array = array.transpose([a for a in range(array.ndim) if a != axis] + [axis])
    if case.reverse:
        array = array[..., ::-1]
    if array.ndim > 1:
        largest = max(range(array.ndim - 1), key=lambda a: array.shape[a])
        kept = max(array.shape[largest] * BUDGET // array.size, 2)  # the first and the last at least
        array = array[(slice(None),) * largest + (slice(None, None, max((array.shape[largest] - 1) // (kept - 1), 1)),)]
    return array


def _wide(dtype: DType) -> str:
    if dtype.kind is Kind.COMPLEX:
        return "complex128"
    if dtype.kind is Kind.FLOAT:
        return "float64"
    return "int64" if dtype.kind is Kind.SIGNED else "uint64"


def _plain(xp: Any, array: Array) -> Array:
    """A dense copy that arithmetic works on: bfloat16 as float32."""
    if array.dtype.name != "bfloat16":
        return xp.ascontiguousarray(array)
    bits = xp.ascontiguousarray(array.view(xp.uint16)).astype(xp.uint32)
    return (bits << 16).view(xp.float32)


def _widen(xp: Any, array: Array, case: Case) -> Array:
    if case.result_dtype.kind is Kind.BOOL:
        array = array != 0
    return _plain(xp, array).astype(_wide(case.result_dtype))


def _full(xp: Any, shape: tuple[int, ...], case: Case, value: complex) -> Array:
    return xp.asarray(np.full(shape, value, _wide(case.result_dtype)))


def _scan(xp: Any, op: str, values: Array, carry: Array) -> Array:
    """An inclusive scan along the last axis that starts from `carry`."""
    names = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}
    ufunc = names.get(op, f"bitwise_{op}")
    if xp is np:
        scanned = getattr(np, ufunc).accumulate(values, axis=-1)
    elif op in ("add", "mul"):
        scanned = (xp.cumsum if op == "add" else xp.cumprod)(values, axis=-1)
    else:  # CuPy has no such scan
        scanned = doubling(xp, getattr(xp, ufunc), values)
    return getattr(xp, ufunc)(carry[..., None], scanned)


def doubling(xp: Any, ufunc: Callable[[Array, Array], Array], values: Array) -> Array:
    """A scan along the last axis in steps of doubling distance (Hillis & Steele 1986)."""
    distance = 1
    while distance < values.shape[-1]:
        combined = ufunc(values[..., :-distance], values[..., distance:])
        values = xp.concatenate([values[..., :distance], combined], axis=-1)
        distance *= 2
    return values


def _error(case: Case, xp: Any, got: Array, expected: Array, magnitude: Array | None, length: int) -> float:
    """The largest error over its tolerance; infinite where a result must be exact and is not."""
    dtype = case.result_dtype
    if dtype.kind in EXACT:
        return 0.0 if bool((got == expected.astype(got.dtype)).all()) else math.inf
    if case.op in ("min", "max"):
        return 0.0 if bool((got == expected).all()) else math.inf
    eps = float(np.finfo(DTYPES[dtype.accumulator].name).eps)
    rounding = 2.0**-7 if dtype.name == "bfloat16" else float(np.finfo(dtype.name).eps)
    within = length * eps * abs(expected) if magnitude is None else (24 + math.log2(length)) * eps * magnitude
    tolerance = within + rounding * abs(expected) + float(np.finfo(np.float32).tiny)
    error = float((abs(got - expected) / tolerance).max())
    return math.inf if math.isnan(error) else error
