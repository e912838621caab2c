"""Convert elements as the kernels do, in NumPy: to accumulators, and from accumulators to results (cuda/types.cuh).

Arrays of bfloat16 have the NumPy dtype uint16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuscan.dtypes import EXACT, DType, Kind

Array = np.ndarray[Any, Any]


def to_accumulator(value: Array, dtype: DType, result: DType) -> Array:
    """Convert elements of `dtype` to accumulators of a result dtype (elements.cuh), without a copy if possible."""
    return to_narrow(value, dtype, result).astype(result.accumulator, copy=False)


def to_narrow(value: Array, dtype: DType, result: DType) -> Array:
    """Convert as `to_accumulator` does, but keep integers that wrap at the result's width."""
    if dtype.kind is Kind.BOOL:
        value = value.view(np.uint8) != 0  # any nonzero byte is true
    elif dtype.name == "bfloat16":
        value = (value.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if result.kind in EXACT:
        return _truncate(value, result).astype(result.name, copy=False)
    return value.astype(result.accumulator, copy=False)


def _truncate(value: Array, result: DType) -> Array:
    """Convert floating point to 64-bit integers with saturation; in NumPy, overflow depends on the machine."""
    if value.dtype.kind != "f" or result.kind is Kind.BOOL:
        return value
    if value.dtype.itemsize == 2:
        value = value.astype(np.float32)
    limits = np.iinfo(np.int64)
    inside = np.abs(value) < 2.0**63
    outside = np.where(value > 0, limits.max, np.where(value < 0, limits.min, 0))
    signed = np.where(inside, np.where(inside, value, 0).astype(np.int64), outside)
    if result.name != "uint64":
        return signed
    large = (value >= 2.0**63) & (value < 2.0**64)
    unsigned = np.where(large, np.where(large, value, 0).astype(np.uint64), signed.astype(np.uint64))
    return np.where(value >= 2.0**64, np.iinfo(np.uint64).max, unsigned)


def to_result(value: Array, result: DType) -> Array:
    """Round or wrap accumulators once, to the result dtype (types.cuh)."""
    if result.name != "bfloat16":
        return value.astype(result.name, copy=False)
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), 0x7FC0, rounded).astype(np.uint16)


def storage(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype that stores elements of a dtype."""
    return np.dtype("uint16" if dtype.name == "bfloat16" else dtype.name)


def is_nan(value: Array, name: str) -> Array:
    """Return which elements of a dtype are NaN."""
    if name == "bfloat16":
        return (value.view(np.uint16) & np.uint16(0x7FFF)) > np.uint16(0x7F80)
    return np.isnan(value) if value.dtype.kind in "fc" else np.zeros(value.shape, np.bool_)


def is_finite(value: Array, name: str) -> Array:
    """Return which elements of a dtype are finite."""
    exponent = np.uint16(0x7F80)
    finite: Array = (value & exponent) != exponent if name == "bfloat16" else np.isfinite(value)
    return finite
