"""Fills: numbers whose scans can be checked, made from uniform 24-bit numbers; the same for every input of a call.

All sums of float32 fills are exact in float64. The results of a fill are then converted to the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuscan.dtypes import INTEGERS, DType, Kind

Array = Any
Fill = Callable[[Any, Array, DType], Array]


def numbers(xp: Any, u: Array, dtype: DType) -> Array:
    """Return small numbers of both signs."""
    if dtype.kind is Kind.BOOL:
        return u < 0.5
    if dtype.kind in INTEGERS:
        integers = xp.floor(u * 16).astype(xp.int32)
        return integers - 8 if dtype.kind is Kind.SIGNED else integers
    if dtype.kind is Kind.COMPLEX:
        return (2 * u - 1) + 1j * (2 * _low_bits(xp, u) - 1)
    if dtype.itemsize == 2:
        return (u - 0.5) / 4  # long sums stay below the largest float16
    return 2 * u - 1


def units(xp: Any, u: Array, dtype: DType) -> Array:
    """Return numbers whose products are such numbers again; integers, which wrap, are unrestricted."""
    if dtype.kind in INTEGERS or dtype.kind is Kind.BOOL:
        return numbers(xp, u, dtype)
    if dtype.kind is not Kind.COMPLEX:
        return signs(xp, u, dtype)
    quarter = xp.floor(4 * u)
    real, imaginary = (quarter == 0) * 1.0 - (quarter == 1), (quarter == 2) * 1.0 - (quarter == 3)
    return real + 1j * imaginary


def mostly_zeros(xp: Any, u: Array, dtype: DType) -> Array:
    """Return mostly zeros with an occasional bit set, so that a scan keeps changing over a long distance."""
    if dtype.kind is Kind.BOOL:
        return u < 2.0**-20
    bit = xp.left_shift(xp.int32(1), xp.floor(u * 2.0**24).astype(xp.int32) % 32)
    return xp.where(u < 2.0**-19, bit, xp.int32(0))


def mostly_ones(xp: Any, u: Array, dtype: DType) -> Array:
    """Return the complement of `mostly_zeros`."""
    return ~mostly_zeros(xp, u, dtype)


def logarithms(xp: Any, u: Array, dtype: DType) -> Array:
    """Return logarithms of numbers of many magnitudes."""
    return 16 * u - 8


def decays(xp: Any, u: Array, dtype: DType) -> Array:
    """Return factors below 1 that decay slowly."""
    return 1 - _low_bits(xp, u) / 8


def signs(xp: Any, u: Array, dtype: DType) -> Array:
    """Return 1 and -1."""
    return xp.where(u < 0.5, xp.float32(-1), xp.float32(1))


def steps(xp: Any, u: Array, dtype: DType) -> Array:
    """Return integers from -3 to 3."""
    return xp.floor(7 * _low_bits(xp, u)) - 3


def residues(modulus: int, xp: Any, u: Array, dtype: DType) -> Array:
    """Return nonzero remainders."""
    return 1 + xp.floor(u * xp.float32(modulus - 2)).astype(xp.int64)


def symmetry(part: int, xp: Any, u: Array, dtype: DType) -> Array:
    """Return an entry of the matrix (a b; c d) of a symmetry of the square."""
    bits = xp.floor(8 * u).astype(xp.int32)
    swapped = (bits & 1) != 0
    sign = xp.where((bits & (2 if part < 2 else 4)) != 0, xp.float32(-1), xp.float32(1))
    return xp.where(swapped == (part in (1, 2)), sign, xp.float32(0))


def _low_bits(xp: Any, u: Array) -> Array:
    """Return uniform 12-bit numbers that are independent of the upper bits of u."""
    scaled = u * xp.float32(4096)
    return scaled - xp.floor(scaled)
