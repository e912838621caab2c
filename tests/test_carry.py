"""Carries in and out on NumPy: chunks against the whole, what a carry is, what cannot be one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from operator_examples import AFFINE, MATRIX_PRODUCT
from test_readme import run

import cuscan

Array = np.ndarray[Any, Any]


def along(axis: int, first: int, end: int, ndim: int) -> tuple[slice, ...]:
    return tuple(slice(first, end) if a == axis % ndim else slice(None) for a in range(ndim))


def cuts_of(rng: np.random.Generator, n: int, count: int = 4) -> list[tuple[int, int]]:
    """Chunks of an axis, some of them empty."""
    places = sorted([0, n, *rng.integers(0, n + 1, count), n // 2, n // 2])
    return list(itertools.pairwise(places))


def offsets_of_chunk(offsets: Array, first: int, end: int, reverse: bool) -> Array:
    """Those of a chunk: an empty segment where one starts exactly at the cut."""
    inner = offsets[(offsets > first) & (offsets < end)] - first
    starts = (end if reverse else first) in offsets
    if reverse:
        return np.array([0, *inner, *[end - first] * (1 + starts)])
    return np.array([*[0] * (1 + starts), *inner, end - first])


def in_chunks(function: Any, arrays: tuple[Array, ...], chunks: list[tuple[int, int]], axis: int, **call: Any) -> Any:
    """The results, joined, and the last carry. Arrays beside the values are in `call`."""
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
            whole, chunks = whole[:1], chunks[:1]  # positions: see below
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
    """2**24 + 1 is no float32: a carry that were one would lose every later 1."""
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


PAGE = (Path(__file__).resolve().parent.parent / "docs" / "carry.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_the_page_says_the_truth(snippet: str) -> None:
    run(snippet)
    assert "assert" in snippet or "  # [" in snippet


def test_out_and_carry() -> None:
    x = np.arange(6.0).reshape(2, 3)
    out = np.empty_like(x)
    result, carry = cuscan.scan(x, out=out, return_carry=True)
    assert result is out and not np.shares_memory(carry, out)
    np.testing.assert_array_equal(carry, out[:, -1])
    values, places = np.empty_like(x), np.empty(x.shape, np.int64)
    one, other, _ = cuscan.cummax(x, return_indices=True, out=(values, places), return_carry=True)
    assert one is values and other is places


def test_structured_arrays() -> None:
    op = AFFINE.operator()
    x = np.ones((2, 5), np.dtype(list(zip(op.fields, op.dtypes, strict=True))))
    result, carry = cuscan.scan(x, op, return_carry=True)
    same(tuple(result[name][:, -1] for name in op.fields), carry)


def test_of_nothing() -> None:
    x = np.zeros((2, 0), np.float32)
    same(cuscan.scan(x, return_carry=True)[1], np.zeros(2))
    same(cuscan.scan(x, initial=3, return_carry=True)[1], np.full(2, 3.0))
    same(cuscan.scan(x, "max", carry=np.array([1, 2], "f4"), return_carry=True)[1], np.array([1, 2], "f4"))
    same(cuscan.scan(x, include_initial=True, carry=np.ones(2), return_carry=True), (np.ones((2, 1), "f4"), np.ones(2)))
    assert cuscan.scan(np.zeros((0, 4)), return_carry=True)[1].shape == (0,)


def test_totals_are_the_carry() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 20_000, 2)).astype("float32")
    segments = {"reset": rng.random(x.shape) < 0.001}
    for op, options in (
        ("add", {}),
        ("mul", {"reverse": True}),
        ("max", {"mask": x > 0, "initial": 1}),
        ("logaddexp", {"axis": 0}),
        ("add", {"skipna": True, "dtype": "float64", **segments}),
        ("add", {"keys": np.sort(rng.integers(0, 5, 20_000)), "carry": (np.ones((3, 2)), np.ones((3, 2), int))}),
    ):
        call: dict[str, Any] = {"axis": 1, **options}
        *_, carry = cuscan.scan(x, op, return_carry=True, **call)
        same(cuscan.total(x, op, **call), carry)
    *_, carry = cuscan.cummin(x, axis=1, return_indices=True, ties="last", return_carry=True)
    same(cuscan.total(x, "min", axis=1, return_indices=True, ties="last"), carry)
    *_, carry = cuscan.linear_recurrence(0.5, x, axis=1, return_carry=True)
    same(cuscan.total((0.5, x), "linear_recurrence", axis=1), carry)
    assert cuscan.total(np.ones((2, 0))).tolist() == [0, 0] and cuscan.total(np.ones((0, 2))).shape == (0,)


def test_pieces_are_added_up_side_by_side() -> None:
    """Totals of pieces, their scan, and the scan of each piece with its carry: a scan of all."""
    x = np.random.default_rng(5).integers(-9, 10, (4, 6, 50))
    before = cuscan.scan(cuscan.total(x), axis=1, exclusive=True)
    np.testing.assert_array_equal(cuscan.scan(x, carry=before).reshape(4, 300), np.cumsum(x.reshape(4, 300), axis=1))


def test_wrong_totals() -> None:
    with pytest.raises(ValueError, match="return_indices is for 'max' and 'min'; got op='add'"):
        cuscan.total(X, "add", return_indices=True)
    with pytest.raises(TypeError, match=r"x must be a tuple of 2 arrays \(a, b\)"):
        cuscan.total(X, "linear_recurrence")
    with pytest.raises(ValueError, match="ties must be"):
        cuscan.total(X, "max", return_indices=True, ties="any")
    with pytest.raises(TypeError, match="return_indices must be True or False; got 1"):
        cuscan.total(X, "max", return_indices=1)


X = np.zeros((2, 3), np.float32)
WRONG: dict[str, tuple[Any, str]] = {
    "a number": (3.0, "carry must be a CuPy or NumPy array"),
    "shape": (np.zeros(3), r"carry has shape \(3,\); the axes of x beside the scanned one are \(2,\)"),
    "axes": (np.zeros((2, 1)), r"carry has shape \(2, 1\)"),
    "dtype": (np.zeros(2, np.float32), r"carry \(value\) has dtype float32; it is carried in float64"),
    "too many": ((np.zeros(2), np.zeros(2)), r"carry must be one array \(value of float64\) in this call; got 2"),
    "none of them": ((), "carry is an empty tuple"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_carry(name: str) -> None:
    carry, message = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=message):
        cuscan.scan(X, carry=carry)


def test_what_else_is_no_carry() -> None:
    with pytest.raises(
        TypeError, match=r"tuple of 3 arrays \(value of float32, index of int64, count of int64\).*got 1"
    ):
        cuscan.cummax(X, return_indices=True, carry=np.zeros(2, np.float32))
    with pytest.raises(TypeError, match=r"carry\[1\] \(key\) has dtype float64; it is carried in int32"):
        cuscan.scan(X, keys=np.zeros(3, np.int32), carry=(np.zeros(2), np.zeros(2)))
    with pytest.raises(ValueError, match="initial and carry exclude each other"):
        cuscan.linear_recurrence(X, X, initial=1.0, carry=(np.ones(2), np.ones(2)))
    with pytest.raises(TypeError, match="return_carry must be True or False; got 1"):
        cuscan.scan(X, return_carry=1)
    double = np.zeros((2, 3))
    with pytest.raises(ValueError, match="out overlaps carry; it must be another array"):
        cuscan.scan(double, carry=double[:, 0], out=double)


def test_a_carry_of_another_library() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(TypeError, match="carry is of torch and x of numpy"):
        cuscan.scan(X, carry=torch.zeros(2, dtype=torch.float64))
    result, carry = cuscan.scan(torch.ones(2, 3), carry=torch.ones(2, dtype=torch.float64), return_carry=True)
    assert torch.equal(carry, torch.full((2,), 4.0, dtype=torch.float64)) and torch.equal(result[:, -1], carry.float())


@pytest.mark.parametrize("reverse", [False, True])
def test_torch_on_the_cpu(reverse: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(7)
    x, mask = rng.integers(-9, 10, (3, 50)).astype("float16"), rng.random((3, 50)) < 0.8
    numpy_call: dict[str, Any] = {"reverse": reverse, "mask": mask}
    call = {**numpy_call, "mask": torch.from_numpy(mask)}
    for function, options in ((cuscan.cumsum, {}), (cuscan.cummax, {"return_indices": True})):
        *want, behind = function(x, return_carry=True, **numpy_call, **options)
        *got, carry = function(torch.from_numpy(x), return_carry=True, **call, **options)
        same(tuple(part.numpy() for part in got), tuple(want))
        fields = carry if isinstance(carry, tuple) else (carry,)
        same(tuple(field.numpy() for field in fields), behind)
        *again, _ = function(torch.from_numpy(x), carry=carry, return_carry=True, **call, **options)
        *wanted, _ = function(x, carry=behind, return_carry=True, **numpy_call, **options)
        same(tuple(part.numpy() for part in again), tuple(wanted))
    assert cuscan.total(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.float64
