"""The NumPy backend compared with plain sequential scans: every dtype, operator, flag and layout."""

from __future__ import annotations

import itertools
import math
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuscan
from cuscan.dtypes import EVERY, Kind
from cuscan.operators import Monoid

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays of NumPy come from ml_dtypes")
from host_cases import (  # noqa: E402
    ALL,
    BITWISE,
    COMPLEX,
    DEPTH,
    EXACT,
    FLOATS,
    SIGNED,
    UNSIGNED,
    accumulator_eps,
    assert_close,
    cases,
    identity_of,
    initial_for,
    lay_out,
    numbers_for,
    numpy_dtype,
    same_bits,
)


@settings(max_examples=250, deadline=None)
@given(case=cases(), data=st.data())
def test_any_call_matches_a_sequential_scan(case, data):
    value, op, result, shape, seed = case
    draw, rng = data.draw, np.random.default_rng(seed)
    x = lay_out(draw, shape, numpy_dtype(value))
    x[...] = numbers_for(rng, op, value, result, shape)
    if 0 not in shape and draw(st.integers(0, 5)) == 0:
        thin = tuple(slice(0, 1) if draw(st.booleans()) else slice(None) for _ in shape)
        x = np.broadcast_to(x[thin], shape)
    mask = None
    if draw(st.booleans()):
        kept = tuple(n if draw(st.booleans()) else 1 for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
        if len(kept) < len(shape):  # a single dimension would lie along the scanned axis
            kept = (1, *kept)
        mask = lay_out(draw, kept, bool)
        mask[...] = rng.random(kept) < 0.6
    call = {
        "axis": draw(st.integers(0, len(shape) - 1)),
        "reverse": draw(st.booleans()),
        "exclusive": draw(st.booleans()),
        "mask": mask,
        "initial": initial_for(rng, op, result) if draw(st.booleans()) else None,
    }
    before = x.copy()
    where = draw(st.sampled_from(["new", "given", "in place"]))
    if where == "in place" and value == result and x.flags.writeable:
        got = cuscan.scan(x, op, out=x, **call)
        assert got is x
    elif where == "given":
        out = lay_out(draw, shape, numpy_dtype(result))
        got = cuscan.scan(x, op, out=out, dtype=numpy_dtype(result), **call)
        assert got is out
    else:
        got = cuscan.scan(x, op, dtype=numpy_dtype(result), **call)
        assert same_bits(x, before)
    assert_close(got, before, op, result, **call)


# ---- exact arithmetic ------------------------------------------------------------


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("op", ["add", "mul"])
def test_integers_wrap(dtype, op):
    bits = 8 * np.dtype(dtype).itemsize
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.random.default_rng(1).integers(high // 2, high, 50, dtype) | 1  # odd, so that products never vanish
    combine = operator.add if op == "add" else operator.mul
    exact = list(itertools.accumulate(x.tolist(), combine))
    assert exact[-1] > high
    assert cuscan.scan(x, op, dtype=dtype).tolist() == [(n - low) % 2**bits + low for n in exact]


def test_integers_wrap_to_the_result_before_they_widen():
    x = np.array([300, 5], np.int64)
    assert cuscan.scan(x, "max", dtype="uint8").tolist() == [44, 44]
    assert cuscan.scan(np.array([-1, 1]), "min", dtype="uint8").tolist() == [255, 1]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_nan_wins_and_negative_zero_is_the_lesser(dtype, op):
    x = np.array([0.0, -0.0, 1.0, -1.0, np.nan, -np.inf, np.inf, 3.0], numpy_dtype(dtype))
    ufunc = np.minimum if op == "min" else np.maximum
    got = cuscan.scan(x, op)
    np.testing.assert_array_equal(got.astype("f8"), ufunc.accumulate(x.astype("f8")))
    assert np.isnan(got.astype("f8")[4:]).all()
    for pair in ([0.0, -0.0], [-0.0, 0.0]):
        x = np.array(pair * 40, numpy_dtype(dtype))
        signs = np.signbit(cuscan.scan(x, op).astype("f8"))
        assert signs[0] == np.signbit(pair[0])
        assert (signs[1:] == (op == "min")).all()


def test_infinities_and_nan_spread_as_in_any_order():
    x = np.ones(3000, np.float32)
    x[[100, 900, 2000]] = np.inf, -np.inf, np.nan
    for _ in range(2):
        with np.errstate(invalid="ignore"):
            expected = np.cumsum(x)
        np.testing.assert_array_equal(cuscan.scan(x), expected)
        x[900] = 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_denormals_are_kept(dtype):
    x = np.full(100, ml_dtypes.finfo(numpy_dtype(dtype)).smallest_subnormal, numpy_dtype(dtype))
    got = cuscan.scan(x)
    steps = np.arange(1, 101, dtype="f8") * float(x[0])  # exact as long as the bits of float16 and bfloat16 suffice
    np.testing.assert_array_equal(got.astype("f8"), steps)
    if dtype in ("float32", "float64"):
        assert same_bits(got, np.cumsum(x))


def test_any_byte_that_is_not_zero_is_true():
    x = np.array([0, 2, 0, 255, 128], np.uint8).view(bool)
    assert cuscan.scan(x).tolist() == [0, 1, 1, 2, 3]
    assert cuscan.scan(x, "xor").view(np.uint8).tolist() == [0, 1, 1, 0, 1]
    assert cuscan.scan(np.arange(5), mask=x).tolist() == [0, 1, 1, 4, 8]


def test_sums_and_products_of_bool_results_are_or_and_and():
    x = np.array([True, True, False, True])
    assert cuscan.scan(x, dtype=bool).tolist() == [True] * 4
    assert cuscan.scan(x, "mul", dtype=bool).tolist() == [True, True, False, False]
    assert cuscan.scan(np.array([0.0, np.nan, 0.0]), dtype=bool).tolist() == [False, True, True]


# ---- relations ------------------------------------------------------------


def sample(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    if dtype in EXACT:
        return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, shape)
    return (x + 1j * rng.standard_normal(shape) if dtype in COMPLEX else x).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("exclusive", [False, True])
def test_reverse_is_flip_scan_flip(dtype, axis, exclusive):
    x = sample(dtype, (700, 41) if axis == 0 else (3, 9001))
    mask = sample("bool", x.shape, 1)
    call = {"axis": axis, "exclusive": exclusive, "initial": 1}
    flipped = cuscan.scan(np.flip(x, axis), mask=np.flip(mask, axis), **call)
    assert same_bits(cuscan.scan(x, mask=mask, reverse=True, **call), np.flip(flipped, axis))


@pytest.mark.parametrize("dtype", EXACT + FLOATS)
@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("initial", [None, 1])
def test_exclusive_is_the_inclusive_scan_one_later(dtype, op, initial):
    x = sample(dtype, (2, 600))
    inclusive = cuscan.scan(x, op, initial=initial)
    exclusive = cuscan.scan(x, op, initial=initial, exclusive=True)
    first = identity_of(inclusive.dtype.name, op) if initial is None else initial
    assert (exclusive[:, 0] == np.array(first).astype(inclusive.dtype)).all()
    if dtype in EXACT or op != "add":
        assert same_bits(exclusive[:, 1:], inclusive[:, :-1])
    else:  # the items of the next vector have another association
        magnitude = np.cumsum(np.abs(x.astype("f8")), 1)[:, :-1] + 1
        eps = float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
        difference = np.abs(exclusive[:, 1:].astype("f8") - inclusive[:, :-1].astype("f8"))
        assert (difference <= (accumulator_eps(dtype) * DEPTH + eps) * magnitude).all()


@pytest.mark.parametrize("op, neutral", [("add", 0), ("mul", 1), ("min", np.inf), ("max", -np.inf)])
@pytest.mark.parametrize("axis", [0, 1])
def test_masked_elements_count_as_the_identity_whatever_they_hold(op, neutral, axis):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 310)).astype(np.float32)
    mask = rng.random(x.shape) < 0.5
    dirty = np.where(mask, x, rng.choice([np.nan, np.inf, -np.inf, 1e38], x.shape)).astype(np.float32)
    clean = np.where(mask, x, np.float32(neutral))
    assert same_bits(cuscan.scan(dirty, op, mask=mask, axis=axis), cuscan.scan(clean, op, axis=axis))
    columns = mask[:1]
    clean = np.where(columns, dirty, np.float32(neutral))
    assert same_bits(cuscan.scan(dirty, op, mask=columns, axis=axis), cuscan.scan(clean, op, axis=axis))


def test_a_mask_of_false_leaves_the_identity():
    for op in ("add", "mul", "min", "max", "and", "or", "xor"):
        x = np.arange(5, dtype=np.int16)
        expected = cuscan.scan(x, op, exclusive=True, dtype="int16")[0]
        assert (cuscan.scan(x, op, mask=np.array(False), dtype="int16") == expected).all()


def test_initial_comes_before_the_first_element():
    x = np.array([5.0, 7.0], np.float32)
    assert cuscan.scan(x, initial=2).tolist() == [7, 14]
    assert cuscan.scan(x, initial=2, exclusive=True).tolist() == [2, 7]
    assert cuscan.scan(x, initial=2, reverse=True).tolist() == [14, 9]
    assert cuscan.scan(x, "max", initial=6.5).tolist() == [6.5, 7]
    assert cuscan.scan(x, initial=np.float64(2)).tolist() == [7, 14]


def test_float16_is_rounded_once_on_store():
    x = np.full(4000, 0.1, np.float16)
    exact = np.arange(1, 4001) * float(x[0])
    got = cuscan.scan(x)
    assert (np.abs(got.astype("f8") - exact) <= np.finfo(np.float16).eps / 2 * exact * 1.001).all()
    big = np.array([60000, 60000, -60000], np.float16)
    assert cuscan.scan(big).tolist() == [60000, np.inf, 60000]  # the sum itself never overflowed


def test_bfloat16_rounds_to_nearest_even():
    x = np.array([1, 2**-8, 2**-8, 2**-9, 2**-9], np.float32)
    got = cuscan.scan(x, dtype="bfloat16")
    assert same_bits(got, np.cumsum(x).astype(ml_dtypes.bfloat16))
    special = np.array([np.inf, -np.inf], ml_dtypes.bfloat16)
    assert cuscan.scan(special).view(np.uint16).tolist() == [0x7F80, 0x7FC0]
    huge = cuscan.scan(np.array([3e38, 3e38], np.float32), dtype="bfloat16")
    assert same_bits(huge, np.array([3e38, np.inf], ml_dtypes.bfloat16))


def test_the_error_stays_small_over_many_elements():
    n = 2**22
    x = np.full(n, 0.1, np.float32)
    exact = np.arange(1, n + 1) * float(x[0])  # 22 + 24 bits: exact in float64
    bound = 16 * np.finfo(np.float32).eps * exact
    assert (np.abs(cuscan.scan(x).astype("f8") - exact) <= bound).all()
    assert np.abs(cuscan.scan(x.reshape(-1, 2), axis=0)[:, 1].astype("f8") - exact[: n // 2]).max() <= bound[n // 2]
    assert np.abs(np.cumsum(x).astype("f8") - exact).max() > bound[-1]  # naive sums exceed the bound


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_sums_of_halves_lose_less_than_their_results_show(dtype, columns):
    n = 2**21
    x = np.full((n, *columns), 0.01, dtype)
    exact = np.arange(1, n + 1) * float(dtype(0.01))  # at most 21 + 11 bits: exact in float64
    bound = np.finfo(np.float32).eps * (32 + np.arange(n) / 2**20) * exact
    sums, carry = cuscan.scan(x, axis=0, return_carry=True)
    assert carry.dtype == np.float32 and np.abs(carry.astype("f8") - exact[-1]).max() <= bound[-1]
    rounding = float(ml_dtypes.finfo(dtype).eps) / 2 * (exact + bound)
    assert (np.abs(sums.T.astype("f8") - exact) <= rounding + bound).all()


# ---- results ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in ALL if d != "bfloat16"])
def test_default_result_dtypes_are_those_of_numpy(dtype):
    x = np.ones(3, dtype)
    assert cuscan.scan(x).dtype == cuscan.cumsum(x).dtype == np.cumsum(x).dtype
    assert cuscan.scan(x, "mul").dtype == cuscan.cumprod(x).dtype == np.cumprod(x).dtype
    if dtype not in COMPLEX:
        assert cuscan.cummax(x).dtype == cuscan.cummin(x).dtype == x.dtype
    if dtype in EXACT:
        assert all(cuscan.scan(x, op).dtype == x.dtype for op in BITWISE)


def test_the_short_names_are_scans():
    x = np.array([2.0, 1.0, 3.0])
    assert cuscan.cumsum(x).tolist() == [2, 3, 6]
    assert cuscan.cumprod(x).tolist() == [2, 2, 6]
    assert cuscan.cummax(x).tolist() == [2, 2, 3]
    assert cuscan.cummin(x, reverse=True).tolist() == [1, 1, 3]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_empty_arrays_give_empty_results(shape):
    for axis in range(len(shape)):
        got = cuscan.scan(np.empty(shape, np.int8), axis=axis, initial=3, exclusive=True, mask=np.ones(shape, bool))
        assert got.shape == shape and got.dtype == np.int64
    out = np.empty(shape)
    assert cuscan.scan(np.empty(shape), out=out) is out


@pytest.mark.parametrize(
    "x",
    [
        np.ones((4, 5, 6)),
        np.ones((4, 5, 6), order="F"),
        np.ones((4, 5, 6)).transpose(1, 0, 2),
        np.ones((4, 5, 6)).transpose(2, 0, 1)[:, ::-1],
        np.ones((1, 5, 1)).T,
    ],
)
def test_the_result_keeps_the_axis_order_of_the_input(x):
    for axis in range(x.ndim):
        got = cuscan.scan(x, axis=axis)
        assert [s for s, n in zip(got.strides, x.shape, strict=True) if n > 1] == [
            s for s, n in zip(np.empty_like(x).strides, x.shape, strict=True) if n > 1
        ]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_subclasses_of_arrays_give_plain_arrays():
    got = cuscan.scan(np.asmatrix([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    assert type(got) is np.ndarray and got.tolist() == [[1, 2], [4, 6]]


def test_read_only_inputs_are_fine_and_untouched():
    x = np.arange(10.0)
    x.flags.writeable = False
    assert cuscan.scan(x, mask=np.broadcast_to(np.array(True), 10)).tolist() == np.cumsum(x).tolist()


# ---- user operators -------------------------------------------------------------------


def affine(earlier, later):
    """Maps z -> a z + b, stored as complex numbers a + ib: composition is associative and does not commute."""
    out = np.empty(np.broadcast(earlier, later).shape, earlier.dtype)
    out.real = later.real * earlier.real
    out.imag = later.real * earlier.imag + later.imag
    return out


AFFINE = Monoid("affine", "Affine<{T}>", frozenset({Kind.COMPLEX}), False, True, affine, lambda _: (1,))
LATEST = Monoid("latest", "Latest<{T}>", EVERY, False, False, lambda _, later: later.copy(), lambda _: (0,))


@pytest.mark.parametrize("shape, axis", [((20000,), 0), ((700, 3), 0), ((2, 40), 1)])
def test_an_operator_that_does_not_commute(shape, axis):
    rng = np.random.default_rng(5)
    x = rng.choice([1.0, -1.0], shape) + 1j * rng.integers(-3, 4, shape)
    expected = np.moveaxis(x.copy(), axis, 0)
    for i in range(1, len(expected)):
        a, b = expected[i].real.copy(), expected[i].imag.copy()
        expected[i] = a * expected[i - 1].real + 1j * (a * expected[i - 1].imag + b)
    for dtype in ("complex64", "complex128"):
        got = cuscan.scan(x.astype(dtype), AFFINE, axis=axis)
        np.testing.assert_array_equal(np.moveaxis(got, axis, 0), expected)


def test_an_operator_that_keeps_the_latest():
    x = np.random.default_rng(6).standard_normal((600_000, 2)).astype(np.float32)  # columns of three sections
    for axis in (0, 1):
        assert same_bits(cuscan.scan(x, LATEST, axis=axis), x)
        before = np.moveaxis(cuscan.scan(x, LATEST, axis=axis, exclusive=True, initial=7), axis, 0)
        assert (before[0] == 7).all() and same_bits(before[1:], np.moveaxis(x, axis, 0)[:-1])


# ---- floating point to integers ------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    "number, to, result",
    [
        (-1.5, "uint8", 255),
        (300.7, "uint8", 44),
        (-300.7, "int8", -44),
        (1e4, "int8", 16),
        (-2.0, "uint64", 2**64 - 2),
        (np.nan, "int32", 0),
        (np.inf, "int64", 2**63 - 1),
        (-np.inf, "int64", -(2**63)),
        (np.inf, "uint64", 2**64 - 1),
        (np.inf, "int8", -1),
        (-0.9, "bool", True),
    ],
)
def test_floats_are_truncated_to_64_bits_and_wrap(number, to, result, value):
    assert cuscan.cummax(np.array([number], value), dtype=to).tolist() == [result]


def test_large_floats_become_large_integers():
    numbers = np.array([2.0**63, 2.0**64 - 2.0**12, 2.0**64, 1e300, -(2.0**63), -1e300])
    got = [int(cuscan.cummax(numbers[i : i + 1], dtype="uint64")[0]) for i in range(6)]
    assert got == [2**63, 2**64 - 2**12, 2**64 - 1, 2**64 - 1, 2**63, 2**63]
    got = [int(cuscan.cummax(numbers[i : i + 1], dtype="int64")[0]) for i in range(6)]
    assert got == [2**63 - 1] * 4 + [-(2**63)] * 2


# ---- masks and flags of one dimension ------------------------------------------------------------------


@pytest.mark.parametrize(
    "function, dtype", [(cuscan.cumsum, "float64"), (cuscan.cumsum, "int32"), (cuscan.cummax, "float32")]
)
@pytest.mark.parametrize("name", ["mask", "reset"])
@pytest.mark.parametrize(
    "shape, axis", [((5, 3), 0), ((5, 3), -2), ((2, 5, 3), 1), ((2, 5, 3), 0), ((5, 1), 0), ((5, 0), 0), ((1, 1), 0)]
)
def test_one_dimension_lies_along_the_scanned_axis_or_the_last(function, dtype, name, shape, axis):
    """One dimension lies along the axis whose length it has, if the other axis has a different length."""
    x = np.arange(1, 1 + math.prod(shape)).astype(dtype).reshape(shape)
    flags = np.random.default_rng(0).random(shape[axis]) < 0.5
    column = flags.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
    for call in ({}, {"reverse": True}, {"exclusive": True}):
        got = function(x, axis, **{name: flags}, **call)
        expected = function(x, axis, **{name: np.ascontiguousarray(np.broadcast_to(column, shape))}, **call)
        np.testing.assert_array_equal(got, expected)
    last = np.random.default_rng(1).random(shape[-1]) < 0.5
    wide = np.ascontiguousarray(np.broadcast_to(last, shape))
    np.testing.assert_array_equal(function(x, axis, **{name: last}), function(x, axis, **{name: wide}))
    one = np.ones(1, bool)
    np.testing.assert_array_equal(function(x, axis, **{name: one}), function(x, axis, **{name: np.ones(shape, bool)}))


@pytest.mark.parametrize("name", ["mask", "reset"])
@pytest.mark.parametrize(
    "shape, axis, along", [((4, 4), 0, "-1, 1"), ((2, 4, 4), 1, "-1, 1"), ((4, 2, 4), -3, "-1, 1, 1")]
)
def test_one_dimension_that_fits_both_axes_is_an_error_with_both_spellings(name, shape, axis, along):
    x, flags = np.ones(shape), np.array([True, False, False, True])
    both = rf"{name}\.reshape\({along}\) for axis {axis % len(shape)}, or {name}\.reshape\(1, -1\) for the last"
    with pytest.raises(
        cuscan.ScanValueError, match=rf"^{name} of shape \(4,\) fits the scanned axis and the last.*{both}"
    ):
        cuscan.cumsum(x, axis, **{name: flags})
    spelled = flags.reshape([int(number) for number in along.split(",")])
    wide = np.ascontiguousarray(np.broadcast_to(spelled, shape))
    np.testing.assert_array_equal(cuscan.cumsum(x, axis, **{name: spelled}), cuscan.cumsum(x, axis, **{name: wide}))
    np.testing.assert_array_equal(
        cuscan.cumsum(x, axis, **{name: flags.reshape(1, -1)}),
        cuscan.cumsum(x, axis, **{name: np.ascontiguousarray(np.broadcast_to(flags, shape))}),
    )
    assert cuscan.cumsum(x, -1, **{name: flags}).shape == shape  # the scanned axis is the last one
