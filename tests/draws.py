"""Elements of simulated calls: functions that draw an array of a given shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...], int], "tuple[Array, ...]"]


def draws(dtype: str, count: int = 1, *, nan: float = 0) -> Draw:
    """Arrays that differ: integers of any bits; floats around 0, of which a share `nan` are NaN."""

    def one(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if dtype == "bool":
            return rng.choice(np.array([0, 1, 2, 255], np.uint8), shape).view(bool)
        if dtype.startswith(("int", "uint")):
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        value = np.where(rng.random(shape) < nan, np.nan, rng.standard_normal(shape))
        if dtype.startswith("complex"):
            value = value + 1j * np.where(rng.random(shape) < nan, np.nan, rng.standard_normal(shape))
        return value.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    return lambda rng, shape, axis: tuple(one(rng, shape) for _ in range(count))


NUMBERS = draws("float32")


def tied(dtype: str, nan: float = 0) -> Draw:
    """Many equal values, which rise along the axis in one row and fall in the next; any NaN is late in a row."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
        place = np.indices(shape)
        along = place[axis] / shape[axis]
        rising = np.where((place.sum(0) - place[axis]) % 2 == 0, along, 1 - along)
        value = np.floor(rising * 20) + rng.integers(0, 3, shape)
        if dtype == "bool":
            return (value > 18,)
        if not dtype.startswith("uint"):
            value -= 11
        if nan:
            value = np.where((rng.random(shape) < nan) & (along > 0.3), np.nan, np.where(value == 0, -value, value))
        return (value.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype),)

    return draw


def drawn(example: Any, layout: str = "c") -> Draw:
    """Elements of an example, in arrays with different layouts in memory."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
        arrays = list(example.draw(rng, shape))
        if layout == "mixed":  # one does not vary along the axis, one runs backwards, others have another order
            arrays[0] = arrays[0].take([0], axis)
            arrays[1] = np.flip(np.flip(arrays[1]).copy())
            arrays[2:] = [np.asfortranarray(array) for array in arrays[2:]]
        if layout == "one-row":
            arrays[-1] = arrays[-1][(slice(1),) * (axis % len(shape))]
        return tuple(arrays)

    return draw


def carried(rng: np.random.Generator, lines: tuple[int, ...], dtype: str) -> Array:
    """A field of a carry: a float around 0, or an integer that may be a position, a key or -1."""
    if dtype.startswith(("float", "complex")):
        return np.asarray(rng.standard_normal(lines)).astype(dtype)
    return np.asarray(rng.integers(0 if dtype.startswith(("u", "b")) else -1, 5, lines)).astype(dtype)


def initial_of(example: Any) -> Any:
    numbers = tuple(part.item() for part in example.draw(np.random.default_rng(1), ()))
    return numbers if example.state else numbers[0]


def steps(dtype: str = "float32", decay: str = "full", decay_dtype: str = "") -> Draw:
    """a and b. `decay` selects the axes along which a is as long as b: all, none, all but the scanned one, that one."""

    def one(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, low: float) -> Array:
        value = np.where(rng.random(shape) < 0.01, 0, rng.uniform(low, 1, shape))
        if dtype.startswith("complex"):
            value = value * np.exp(1j * rng.uniform(0, 2 * np.pi, shape))
        return value.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def draw(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
        along = [a == axis % len(shape) for a in range(len(shape))]
        kept = {"full": [True] * len(shape), "scalar": [False] * len(shape), "channel": [not a for a in along]}
        there = kept.get(decay, along)
        narrow = tuple(n if keep else 1 for n, keep in zip(shape, there, strict=True))
        return one(rng, narrow, decay_dtype or dtype, 0.9), one(rng, shape, dtype, -1)

    return draw


def odd_steps(dtype: str, decay_dtype: str = "") -> Draw:
    """a and b. Some a are infinite, zero, NaN, or the NaN that marks the start of a segment (segments.cuh)."""
    ordinary = steps(dtype, decay_dtype=decay_dtype)

    def draw(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
        a, b = ordinary(rng, shape, axis)
        part = a.view({"complex64": "float32", "complex128": "float64"}.get(a.dtype.name, a.dtype))
        odd = rng.random(part.shape)
        for i, number in enumerate((np.inf, 0, np.nan)):
            part[(odd > i * 0.004) & (odd < (i + 1) * 0.004)] = number
        if part.itemsize > 2:
            upper = part.view(np.uint32)[..., part.itemsize // 4 - 1 :: part.itemsize // 4]
            upper[odd > 0.99] = 0x7FFD5A5A
        return a, b

    return draw


def in_order(order: tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of zeros whose axes have this order in memory."""
    return np.moveaxis(np.zeros([shape[axis] for axis in order], dtype), range(len(order)), order)


def arrays_of(result: Any) -> list[Array]:
    """The arrays of a result, which may be a tuple of results."""
    return [array for one in result for array in arrays_of(one)] if isinstance(result, tuple) else [np.asarray(result)]
