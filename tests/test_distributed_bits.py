"""The bits of sharded results: those that docs/distributed.md promises, and cases where the order would allow more."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from sharding import on_threads

import cuscan
from cuscan.distributed import sharded
from cuscan.distributed.namespaces import ArrayNamespace
from cuscan.distributed.pieces import Total, fold
from cuscan.kept import Table
from cuscan.linearised import Call
from cuscan.operators import LINEAR_RECURRENCE, OPERATORS
from cuscan.order import COLUMNS, CONTIGUOUS, Order
from cuscan.request.call import Flags

XP = ArrayNamespace(np)
OPS = {"add": OPERATORS["add"], "mul": OPERATORS["mul"], "logaddexp": OPERATORS["logaddexp"], "h": LINEAR_RECURRENCE}
NEUTRAL = {"add": (-0.0,), "mul": (1.0,), "logaddexp": (-np.inf,), "h": (1.0, -0.0)}


def draw(op: str, shape: tuple[int, int], dtype: str = "float32") -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(dtype)
    if op == "mul":
        return (np.exp2(x / 100),)
    return (rng.uniform(0.9, 1, shape).astype(dtype), x) if op == "h" else (x,)


def scan(op: str, values: Any, axis: int, **keywords: Any) -> Any:
    if op == "h":
        return cuscan.linear_recurrence(*values, axis=axis, **keywords)
    return cuscan.scan(*values, op, axis=axis, **keywords)


def cut(values: Any, axis: int, first: int, end: int) -> list[Any]:
    return [np.ascontiguousarray(value[(slice(None),) * axis + (slice(first, end),)]) for value in values]


def in_shards(op: str, values: Any, axis: int, places: list[int]) -> Any:
    def work(ranks: Any) -> Any:
        given = tuple(cut(values, axis, *places[ranks.rank : ranks.rank + 2]))
        call = Call(Flags(OPS[op], axis), ("a", "b")[-len(given) :] if op == "h" else ("x",))
        return sharded.scan(*sharded.prepare(call, given, ranks, XP), ranks, XP)[0]

    return np.concatenate(on_threads(len(places) - 1, work), axis)


@pytest.mark.parametrize("op", OPS)
def test_the_same_cut_gives_the_same_bits(op: str) -> None:
    values = draw(op, (3, 5000))
    for places in ([0, 5000], [0, 2500, 5000], [0, 17, 17, 3000, 5000]):
        one, other = (in_shards(op, values, 1, places) for _ in range(2))
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("axis", [0, 1])
def test_exact_operators_have_the_bits_of_the_whole(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((70, 60)).astype(np.float32)
    for op, array in (("max", x), ("add", (100 * x).astype(np.int32))):
        for size in range(1, 5):
            parts = on_threads(
                size,
                lambda ranks, op=op, array=array, size=size: sharded.scan(
                    Call(Flags(op, axis), ("x",)), (np.array_split(array, size, axis)[ranks.rank],), ranks, XP
                ),
            )
            joined = np.concatenate([part[0] for part in parts], axis)
            np.testing.assert_array_equal(joined, cuscan.scan(array, op, axis=axis))


# ---- where the order allows the bits of the whole --------------------------------------------------------------------
# In float64: carries of float32 are wider, and hide most differences.


@contextlib.contextmanager
def small_units() -> Iterator[None]:
    """Units of one warp scan on contiguous axes: 64 elements of float64."""
    smaller = {size: Order(order.items, 1, 1) for size, order in CONTIGUOUS.items()}
    with mock.patch.dict(CONTIGUOUS, smaller), mock.patch("cuscan.backends.repeats.calls", Table()):
        yield


def before_next(op: str, values: Any, axis: int) -> tuple[Any, ...]:
    """What would precede one more element: the carry out of the values and a neutral element."""
    shape = list(values[0].shape)
    shape[axis] = 1
    longer = [np.concatenate([v, np.full(shape, e, v.dtype)], axis) for v, e in zip(values, NEUTRAL[op], strict=True)]
    carry = scan(op, longer, axis, return_carry=True)[-1]
    return carry if isinstance(carry, tuple) else (carry,)


def bits_differ(op: str, values: Any, axis: int, places: list[int]) -> int:
    """The number of elements that differ if sums of all earlier shards, one by one, precede the results."""
    whole, before, found = scan(op, values, axis), None, []
    for first, end in itertools.pairwise(places):
        part = cut(values, axis, first, end)
        carry = before[0] if before is not None and len(before) == 1 else before
        found.append(scan(op, part, axis, carry=carry))
        total = before_next(op, part, axis)
        if before is not None:
            stacked = tuple(np.stack(pair) for pair in zip(before, total, strict=True))
            total = fold(OPS[op], Total(stacked, None), reverse=False, xp=XP)
        before = total
    joined = np.concatenate(found, axis)
    return int((joined.view(np.uint64) != np.ascontiguousarray(whole).view(np.uint64)).sum())


GROUP, SECTION = 32 * 64, 1024 * 64


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "places", [[0, SECTION, 2 * SECTION, 2 * SECTION + 99], [0, SECTION, 2 * SECTION + GROUP]], ids=["each", "last"]
)
def test_contiguous_axes_allow_whole_sections(op: str, places: list[int]) -> None:
    values = draw(op, (1, places[-1]), "float64")
    with small_units():
        assert bits_differ(op, values, 1, places) == 0


@pytest.mark.parametrize("op", OPS)
def test_contiguous_axes_allow_single_groups(op: str) -> None:
    """With more than three shards, the tree of the order is no fold from left to right."""
    with small_units():
        assert bits_differ(op, draw(op, (8, 3 * GROUP), "float64"), 1, [i * GROUP for i in range(4)]) == 0


@pytest.mark.parametrize("op", OPS)
def test_other_axes_allow_powers_of_two_of_units(op: str) -> None:
    """With more than four shards, the tree of the order is no fold from left to right."""
    unit = COLUMNS.unit
    for size in (1, 2, 4):
        assert bits_differ(op, draw(op, (4 * size * unit, 9), "float64"), 0, [i * size * unit for i in range(5)]) == 0


def test_other_cuts_have_other_bits() -> None:
    """Otherwise the tests above would prove nothing."""
    unit = COLUMNS.unit
    assert bits_differ("add", draw("add", (6 * unit, 3), "float64"), 0, [0, 3 * unit, 6 * unit]) > 0
    with small_units():
        assert bits_differ("add", draw("add", (16, 4 * GROUP), "float64"), 1, [0, 2 * GROUP, 4 * GROUP]) > 0
