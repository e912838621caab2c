"""Sequences in chunks for tests of carries: cutting them, the arrays beside them, joining their results."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def along(axis: int, first: int, end: int, ndim: int) -> tuple[slice, ...]:
    return tuple(slice(first, end) if a == axis % ndim else slice(None) for a in range(ndim))


def cuts_of(rng: np.random.Generator, n: int, count: int = 4) -> list[tuple[int, int]]:
    """Consecutive chunks of an axis, some of them empty."""
    places = sorted([0, n, *rng.integers(0, n + 1, count), n // 2, n // 2])
    return list(itertools.pairwise(places))


def offsets_of_chunk(offsets: Array, first: int, end: int, reverse: bool) -> Array:
    """The offsets of a chunk, with an empty segment first if a segment starts exactly at the cut."""
    inner = offsets[(offsets > first) & (offsets < end)] - first
    starts = (end if reverse else first) in offsets
    if reverse:
        return np.array([0, *inner, *[end - first] * (1 + starts)])
    return np.array([*[0] * (1 + starts), *inner, end - first])


def in_chunks(function: Any, arrays: tuple[Array, ...], chunks: list[tuple[int, int]], axis: int, **call: Any) -> Any:
    """The joined results, and the last carry. `call` contains the arrays beside the values."""
    reverse, ndim = call.get("reverse", False), arrays[0].ndim
    carry, joined = None, []
    for first, end in reversed(chunks) if reverse else chunks:
        cut = along(axis, first, end, ndim)
        here = {name: call[name][cut] for name in ("mask", "reset") if name in call}
        if "keys" in call:
            here["keys"] = call["keys"][first:end]
        if "offsets" in call:
            here["offsets"] = offsets_of_chunk(call["offsets"], first, end, reverse)
        options = {**call, **here, "axis": axis, "carry": carry, "return_carry": True}
        *results, carry = function(*(array[cut] for array in arrays), **options)
        joined.insert(0 if reverse else len(joined), results)
    return [np.concatenate(parts, axis) for parts in zip(*joined, strict=True)], carry


def same(one: Any, other: Any) -> None:
    ones, others = (part if isinstance(part, tuple) else (part,) for part in (one, other))
    for a, b in zip(ones, others, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
