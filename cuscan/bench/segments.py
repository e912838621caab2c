"""The segments of a case: how an axis is split, and the split as offsets, resets or keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Offsets = np.ndarray[Any, np.dtype[np.int64]]

KINDS = {"offsets": "int32", "reset": "bool", "keys": "int32"}  # with their dtypes


def _even(count: int, length: int) -> Offsets:
    return np.arange(count + 1, dtype=np.int64) * length // count


def _skewed(count: int, length: int) -> Offsets:
    """Return segments with lengths like word frequencies (Zipf), in scrambled order; every fourth is empty."""
    rank = np.arange(count, dtype=np.int64) * 0x9E3779B1 % count  # an odd factor: each rank once if count is even
    weights = 1.0 / (1 + rank)
    weights[3::4] = 0
    ends = np.cumsum(weights)
    return np.concatenate([[0], np.rint(ends * (length / ends[-1])).astype(np.int64)])


def _jittered(count: int, length: int) -> Offsets:
    """Return segments with lengths from 0 to twice the mean."""
    places = np.arange(count + 1) + np.random.default_rng(0).random(count + 1)
    offsets = (places * (length / count)).astype(np.int64)
    offsets[0], offsets[-1] = 0, length
    return offsets


_KINDS: dict[str, Callable[[int, int], Offsets]] = {"even": _even, "skewed": _skewed, "tiny": _jittered}
SPLITS = ("4096 even", "2^18 skewed", "2^22 tiny")  # those of the matrix; any number of segments is valid


def offsets_of(split: str, length: int) -> Offsets:
    """Return the boundaries of the segments of an axis, from 0 to its length."""
    return _KINDS[split.partition(" ")[2]](count_of(split), length)


def count_of(split: str) -> int:
    """Return the number of segments of a split, including empty ones."""
    base, _, power = split.partition(" ")[0].partition("^")
    return int(int(base) ** int(power or 1))


def starts_of(xp: Any, split: str, length: int) -> Array:
    """Return flags along an axis where segments start."""
    offsets = offsets_of(split, length)
    starts = xp.zeros(length, bool)
    starts[xp.asarray(offsets[offsets < length])] = True
    return starts


def segments_shape(kind: str, split: str, shape: tuple[int, ...], axis: int, *, full: bool = False) -> tuple[int, ...]:
    """Return the shape of the array that defines the segments: along the axis alone, unless resets are full."""
    if kind == "offsets":
        return (count_of(split) + 1,)
    if kind == "keys":
        return (shape[axis],)
    return tuple(size if full or a == axis % len(shape) else 1 for a, size in enumerate(shape))


def make_segments(xp: Any, kind: str, split: str, shape: tuple[int, ...], axis: int, *, full: bool = False) -> Array:
    """Return the array that defines the segments."""
    length = shape[axis]
    if kind == "offsets":
        made = xp.asarray(offsets_of(split, length).astype(np.int32))
    elif kind == "reset":
        made = starts_of(xp, split, length)
    else:
        made = xp.cumsum(starts_of(xp, split, length).astype(xp.int32), dtype=xp.int32)
    made = made.reshape(segments_shape(kind, split, shape, axis))
    return xp.broadcast_to(made, shape).copy() if full else made
