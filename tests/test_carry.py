"""Incoming and outgoing carries in NumPy: chunks against the whole, and the contents of a carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chunks import cuts_of, in_chunks, same
from operator_examples import AFFINE, MATRIX_PRODUCT

import cuscan

Array = np.ndarray[Any, Any]


def scanned_by(op: Any) -> Any:
    return lambda *values, **call: cuscan.scan(values if len(values) > 1 else values[0], op, **call)


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers whose sums are exact in any order."""
    return rng.integers(0 if dtype.startswith(("u", "bool")) else -9, 10, shape).astype(dtype)


CALLS: dict[str, tuple[Any, str]] = {
    "add": (scanned_by("add"), "float32"),
    "add-int8": (scanned_by("add"), "int8"),
    "add-half": (lambda x, **call: cuscan.scan(x, dtype="float32", **call), "float16"),
    "mul": (scanned_by("mul"), "uint32"),
    "max-half": (scanned_by("max"), "float16"),
    "min": (scanned_by("min"), "int16"),
    "xor-bool": (scanned_by("xor"), "bool"),
    "indices": (lambda x, **call: cuscan.cummax(x, return_indices=True, ties="last", **call), "float32"),
}
FLAGS = [{}, {"reverse": True}, {"exclusive": True}, {"reverse": True, "exclusive": True, "initial": 3}, {"initial": 3}]
BESIDE = ["", "mask", "reset", "offsets", "keys"]


@pytest.mark.parametrize("kind", BESIDE)
@pytest.mark.parametrize("name", CALLS)
def test_chunks_give_the_whole(name: str, kind: str) -> None:
    function, dtype = CALLS[name]
    for number, flags in enumerate(FLAGS):
        rng = np.random.default_rng([number, len(name)])
        axis, shape = (1, (3, 700, 2)) if number % 2 else (0, (900, 3))
        x, n, call = integers(rng, shape, dtype), shape[axis], dict(flags)
        if name == "xor-bool" and "initial" in call:
            call["initial"] = True
        call |= {
            "mask": {"mask": rng.random(shape) < 0.7},
            "reset": {"reset": rng.random(shape) < 0.02},
            "offsets": {"offsets": np.sort([0, *rng.integers(0, n + 1, 20), n])},
            "keys": {"keys": np.sort(rng.integers(0, 30, n)).astype("int16")},
        }.get(kind, {})
        *whole, behind = function(x, axis=axis, return_carry=True, **call)
        chunks, carry = in_chunks(function, (x,), cuts_of(rng, n), axis, **call)
        if name == "indices" and flags.get("reverse"):
            whole, chunks = whole[:1], chunks[:1]  # positions are tested below
        same(tuple(chunks), tuple(whole))
        same(carry, behind)


def test_a_segment_that_starts_at_the_cut_does_without_the_carry() -> None:
    x = np.arange(1, 5)
    for segments in ({"reset": np.array([True, False, False, False])}, {"offsets": np.array([0, 0, 4])}):
        np.testing.assert_array_equal(cuscan.scan(x, carry=np.int64(100), **segments), [1, 3, 6, 10])
    np.testing.assert_array_equal(cuscan.scan(x, carry=np.int64(100), offsets=np.array([0, 4])), [101, 103, 106, 110])
    ends = {"carry": np.int64(100), "reverse": True}
    np.testing.assert_array_equal(cuscan.scan(x, offsets=np.array([0, 4, 4]), **ends), [10, 9, 7, 4])
    keys, last = np.array([2, 2, 3, 3]), np.array([1, 2, 3])
    for key, first in zip(last, (1, 101, 1), strict=True):
        result = cuscan.scan(x, keys=keys, carry=(np.int64(100), key))
        np.testing.assert_array_equal(result, [first, first + 2, 3, 7])


def test_initial_is_before_segments_and_the_carry_before_x() -> None:
    x, reset = np.ones(4, int), np.array([False, False, True, False])
    result, carry = cuscan.scan(x, initial=10, reset=reset, carry=np.int64(100), return_carry=True)
    np.testing.assert_array_equal(result, [101, 102, 11, 12])
    assert carry == 12
    np.testing.assert_array_equal(cuscan.scan(x, reset=reset, carry=np.int64(100), exclusive=True), [100, 101, 0, 1])
    np.testing.assert_array_equal(cuscan.scan(x, initial=10, carry=np.int64(100)), [101, 102, 103, 104])


@pytest.mark.parametrize("reset", [False, True])
def test_with_initial_included_the_carry_leads(reset: bool) -> None:
    call = {"reset": np.array([reset, False])} if reset else {}
    result, carry = cuscan.scan(
        np.array([1, 2]), carry=np.int64(5), include_initial=True, return_carry=True, exclusive=False, **call
    )
    np.testing.assert_array_equal(result, [5, 1, 3] if reset else [5, 6, 8])
    assert carry == (3 if reset else 8)


@pytest.mark.parametrize("reverse", [False, True])
def test_positions_are_those_in_all_chunks_so_far(reverse: bool) -> None:
    x = np.array([[3.0, 1, 4, 1, 5, 9, 2, 6]])
    order = (x[:, 4:], x[:, :4]) if reverse else (x[:, :4], x[:, 4:])
    call = {"return_indices": True, "reverse": reverse, "return_carry": True}
    _, _, carry = cuscan.cummax(order[0], **call)
    values, indices, carry = cuscan.cummax(order[1], carry=carry, **call)
    np.testing.assert_array_equal(indices, [[5, 5, 5, 5]] if reverse else [[4, 5, 5, 5]])
    np.testing.assert_array_equal(values, [[9, 9, 9, 9]] if reverse else [[5, 9, 9, 9]])
    same(carry, (np.array([9.0]), np.array([5]), np.array([8])))


def test_nowhere_stays_nowhere() -> None:
    call = {"return_indices": True, "return_carry": True, "reverse": True}
    _, _, carry = cuscan.cummax(np.zeros((2, 3)), mask=np.zeros((2, 3), bool), **call)
    same(carry, (np.full(2, -np.inf), np.full(2, -1), np.full(2, 3)))
    _, indices, _ = cuscan.cummax(np.zeros((2, 3)), mask=np.zeros((2, 3), bool), carry=carry, **call)
    np.testing.assert_array_equal(indices, -1)


def test_carries_of_floats_are_wider() -> None:
    """float32 cannot represent 2**24 + 1: a carry of float32 would lose every later 1."""
    x = np.ones((1, 3), np.float32)
    carry: Any = np.array([2.0**24])
    for _ in range(5):
        _, carry = cuscan.scan(x, carry=carry, return_carry=True)
    assert carry.dtype == np.float64 and carry == 2.0**24 + 15


def test_log_sums() -> None:
    x = np.random.default_rng(0).normal(0, 30, (2, 500)).astype("float32")
    *whole, (greatest, total) = cuscan.logcumsumexp(x, return_carry=True)
    chunks, carry = in_chunks(cuscan.logcumsumexp, (x,), [(0, 100), (100, 100), (100, 500)], 1)
    np.testing.assert_allclose(chunks[0], whole[0], rtol=1e-6)
    np.testing.assert_array_equal(greatest, x.max(1))
    np.testing.assert_allclose(greatest + np.log(total), whole[0][:, -1], rtol=1e-6)
    np.testing.assert_allclose(carry[1], total, rtol=1e-5)


@pytest.mark.parametrize("example", [AFFINE, MATRIX_PRODUCT], ids=lambda example: example.operator().name)
def test_states_of_users(example: Any) -> None:
    op = example.operator()
    rng = np.random.default_rng(1)
    values = tuple(rng.choice([-1, 0, 1], (2, 300)).astype(dtype) for dtype in op.dtypes)
    *whole, carry = cuscan.scan(values, op, return_carry=True)
    same(tuple(part[:, -1] for part in whole), carry)
    chunks, behind = in_chunks(scanned_by(op), values, cuts_of(rng, 300), 1)
    same(tuple(chunks), tuple(whole))
    same(behind, carry)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["", "reset", "offsets", "keys"])
def test_recurrences(kind: str, reverse: bool) -> None:
    rng, n = np.random.default_rng(2), 600
    a, b = (rng.choice([-1.0, 0, 1, 2], (2, n, 3), p=[0.4, 0.1, 0.4, 0.1]).astype("float32") for _ in range(2))
    call: dict[str, Any] = {"reverse": reverse}
    call |= {
        "reset": {"reset": rng.random(b.shape) < 0.02},
        "offsets": {"offsets": np.sort([0, *rng.integers(0, n + 1, 20), n])},
        "keys": {"keys": np.sort(rng.integers(0, 30, n))},
    }.get(kind, {})
    h, last, carry = cuscan.linear_recurrence(a, b, axis=1, return_last=True, return_carry=True, **call)
    chunks, behind = in_chunks(cuscan.linear_recurrence, (a, b), cuts_of(rng, n), 1, **call)
    np.testing.assert_allclose(chunks[0], h, rtol=1e-5)
    np.testing.assert_allclose(behind[1], carry[1], rtol=1e-5)
    np.testing.assert_array_equal(carry[1].astype("float32"), last)
    if not kind:
        np.testing.assert_array_equal(carry[0], a.astype("float64").prod(1))
