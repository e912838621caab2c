"""logaddexp, skipped NaN, the leading initial value and the functions of the array API, on the CPU."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import highest, lowest, restarts, scan, segments_for, wrapped

import cuscan
from cuscan import ScanTypeError, ScanValueError

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
DEPTH = 64  # combinations that one element goes through at most in rows of less than 32 units, see tests/test_host.py
FLAGS = list(itertools.product([False, True], repeat=3))


def refused(kind, *texts, call=cuscan.scan, x=None, **keywords):
    with pytest.raises(kind) as caught:
        call(np.arange(6.0) if x is None else x, **keywords)
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in {str(caught.value)!r}"


# ---- logaddexp ----------------------------------------------------------------------------------


def assert_close(got, exact, n):
    """Within eps (|exact| + 2.5 min(n, DEPTH)): a rounding of the result, and 5 u for every combination, u = eps / 2.

    A sum of exponentials is at least 1, so its relative error is the absolute one of its logarithm. A combination
    rounds a difference, an exponential (2 u), a product and a sum. On a GPU the float32 logarithm of a sum s may be
    off by 1.1 eps ln s; 2.5 eps for each of its terms, s or more, have room for that. A chain of n calls of logaddexp
    does not keep this.
    """
    limits = np.finfo(got.dtype)
    eps = float(np.finfo("float32" if got.dtype == np.float16 else got.dtype).eps)
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(got[~finite].astype("f8"), exact[~finite].astype("f8"))
    got, exact = got[finite].astype("longdouble"), exact[finite]
    bound = eps * (np.abs(exact) + 2.5 * min(n, DEPTH))
    if limits.dtype == np.float16:
        bound += float(limits.eps) / 2 * (np.abs(exact) + bound) + float(limits.smallest_subnormal)
    assert (np.abs(got - exact) <= bound).all(), f"worst ratio {(np.abs(got - exact) / bound).max()}"


def log_sums(x, *, axis=-1, **call):
    with np.errstate(invalid="ignore"):
        return scan(x.astype("f8"), lambda a, b: np.logaddexp(np.longdouble(a), b), -np.inf, axis=axis, **call).astype(
            "longdouble"
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reverse, exclusive, include_initial", FLAGS)
@pytest.mark.parametrize("initial", [None, 1.5, -np.inf])
def test_log_sums_are_close_to_exact_ones(dtype, reverse, exclusive, include_initial, initial):
    rng = np.random.default_rng(0)
    call = {"reverse": reverse, "exclusive": exclusive, "include_initial": include_initial, "initial": initial}
    for shape, axis, spread in [((300,), 0, 1), ((2, 700), 1, 30), ((90, 3), 0, 5), ((1,), 0, 1), ((2, 0), 1, 1)]:
        x = (rng.standard_normal(shape) * spread + 3).astype(dtype)
        mask = rng.random(shape) < 0.8
        got = cuscan.scan(x, "logaddexp", axis=axis, mask=mask, **call)
        exact = log_sums(x, axis=axis, mask=mask, **call)
        assert got.dtype == x.dtype and got.shape == exact.shape
        assert_close(got, exact, shape[axis] + 1)


def test_log_sums_of_many_equal_terms():
    n = 100_000
    for dtype in ("float32", "float64"):
        for value in (0.0, -300.0, 1e6):
            got = cuscan.logcumsumexp(np.full(n, value, dtype))
            assert_close(got, value + np.log(np.arange(1, n + 1, dtype="longdouble")), n)


def test_log_sums_neither_overflow_nor_underflow():
    for dtype in FLOATS:
        limits = np.finfo(dtype)
        for value in (limits.max, limits.min, 3 * limits.smallest_subnormal, -5.0):
            x = np.array([value, -np.inf, limits.min, -np.inf], dtype)
            got = cuscan.logcumsumexp(x)
            assert (got[:2] == value).all() and np.isfinite(got).all()
            if value != limits.min:
                assert (got == value).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_infinities_and_nan_are_those_of_numpy(dtype, length):
    rows = np.array(list(itertools.product([-np.inf, np.inf, np.nan, 1.0], repeat=length)), dtype)
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.accumulate(rows.astype("f8"), axis=1)
    got = cuscan.logcumsumexp(rows)
    assert_close(got, expected.astype("longdouble"), length)
    backwards = cuscan.logcumsumexp(rows[:, ::-1], reverse=True)
    np.testing.assert_array_equal(backwards, got[:, ::-1])


def test_the_identity_of_logaddexp():
    x = np.zeros(3, np.float32)
    assert cuscan.scan(x, "logaddexp", exclusive=True)[0] == -np.inf
    assert (cuscan.scan(x, "logaddexp", mask=np.zeros(3, bool)) == -np.inf).all()


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *COMPLEX])
def test_log_sums_are_of_floats_only(dtype):
    refused(ScanTypeError, "logaddexp", dtype, x=np.ones(3, dtype), op="logaddexp")
    if dtype not in COMPLEX:
        got = cuscan.logcumsumexp(np.ones(3, dtype), dtype="float64")
        assert_close(got, 1 + np.log(np.arange(1, 4, dtype="longdouble")), 3)


def test_log_sums_in_segments():
    x = np.random.default_rng(1).standard_normal(100)
    for reverse in (False, True):
        got = cuscan.logcumsumexp(x, offsets=np.array([0, 30, 30, 100]), reverse=reverse)
        assert_close(got[:30], log_sums(x[:30], reverse=reverse), 30)
        assert_close(got[30:], log_sums(x[30:], reverse=reverse), 70)


def test_log_sums_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((4, 300)))
    for dim in (0, 1):
        got = cuscan.logcumsumexp(x, axis=dim)
        assert got.dtype == torch.float64
        assert_close(got.numpy(), log_sums(x.numpy(), axis=dim), x.shape[dim])
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        got = cuscan.logcumsumexp(x.to(dtype))
        exact = torch.from_numpy(log_sums(x.to(dtype).double().numpy()).astype("f8"))
        bound = 2.5 * DEPTH * torch.finfo(torch.float32).eps + torch.finfo(dtype).eps * exact.abs()
        assert got.dtype == dtype and ((got.double() - exact).abs() <= bound).all()


# ---- NaN that is skipped ------------------------------------------------------------------------

STEPS = {"add": operator.add, "mul": operator.mul, "max": max, "min": min}


def with_nan(rng, dtype, shape, op):
    choices = [-2.0, -1.0, -0.5, 0.5, 1.0, 2.0] if op == "mul" else [-3.0, 0.0, 1.0, 4.0]
    x = rng.choice(choices, shape).astype(dtype)
    x[rng.random(shape) < 0.3] = np.nan
    if dtype in COMPLEX:
        x[rng.random(shape) < 0.1] = complex(np.nan, 1)
        x[rng.random(shape) < 0.1] = complex(1, np.nan)
        x[rng.random(shape) < 0.1] = 1j
    return x


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
@pytest.mark.parametrize("reverse, exclusive, include_initial", FLAGS)
def test_nan_counts_as_the_identity(op, dtype, reverse, exclusive, include_initial):
    if dtype in COMPLEX and op in ("max", "min"):
        return
    rng = np.random.default_rng(3)
    identity = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}[op]
    for shape, axis in [((200,), 0), ((3, 40), 1), ((40, 3), 0)]:
        x, mask = with_nan(rng, dtype, shape, op), rng.random(shape) < 0.8
        for initial in (None, 2):
            call = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "include_initial": include_initial}
            got = cuscan.scan(x, op, skipna=True, mask=mask, initial=initial, **call)
            expected = scan(x, STEPS[op], identity, mask=mask & ~np.isnan(x), initial=initial, **call)
            np.testing.assert_array_equal(got, wrapped(expected, dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX, "bool"])
def test_nancumsum_and_nancumprod_are_those_of_numpy(dtype):
    rng = np.random.default_rng(4)
    for axis in (0, 1):
        for name, op in (("nancumsum", "add"), ("nancumprod", "mul")):
            inexact = np.dtype(dtype).kind in "fc"
            x = with_nan(rng, dtype, (5, 6), op) if inexact else rng.integers(0, 2, (5, 6)).astype(dtype)
            got, expected = getattr(cuscan, name)(x, axis=axis), getattr(np, name)(x, axis=axis)
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_any_call_without_nan_matches_a_loop(data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    op, dtype = draw(st.sampled_from([*STEPS, "logaddexp"])), draw(st.sampled_from(FLOATS))
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 5, 33]), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    step = slice(None, None, draw(st.sampled_from([1, -1, 2])))
    x = with_nan(rng, dtype, (*shape[:-1], shape[-1] * abs(step.step)), op)[..., step]
    call = {name: draw(st.booleans()) for name in ("reverse", "exclusive", "include_initial")}
    call |= {"axis": axis, "initial": draw(st.sampled_from([None, 2]))}
    mask = rng.random(shape) < draw(st.sampled_from([0.6, 1.0]))
    segments = segments_for(rng, draw(st.sampled_from(["none", "reset", "offsets", "keys"])), shape, axis)
    begins = restarts(shape, axis, call["reverse"], **segments)
    got = cuscan.scan(x, op, skipna=True, mask=mask, **segments, **call)
    kept = mask & ~np.isnan(x)
    if op == "logaddexp":
        assert_close(got, log_sums(x, mask=kept, begins=begins, **call), shape[axis] + 1)
    else:
        identity = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}[op]
        expected = scan(x, STEPS[op], identity, mask=kept, begins=begins, **call)
        np.testing.assert_array_equal(got, wrapped(expected, dtype))


def test_nothing_but_nan():
    x = np.full(3, np.nan)
    assert cuscan.nancumsum(x).tolist() == [0, 0, 0] and cuscan.nancumprod(x, initial=3).tolist() == [3, 3, 3]
    assert cuscan.cummax(x, skipna=True).tolist() == [-np.inf] * 3
    assert cuscan.logcumsumexp(x, skipna=True).tolist() == [-np.inf] * 3
    assert np.isnan(cuscan.scan(x, skipna=False)).all()
    got = cuscan.nancumsum(np.array([np.inf, np.nan, 1, -np.inf, 5]), offsets=np.array([0, 3, 5]))
    assert got.tolist() == [np.inf, np.inf, np.inf, -np.inf, -np.inf]


def test_integers_have_nothing_to_skip():
    x = np.arange(5)
    for op in ("add", "max", "xor"):
        assert cuscan.scan(x, op, skipna=True).tolist() == cuscan.scan(x, op).tolist()
    refused(ScanTypeError, "skipna", skipna=1)


def test_nan_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([[1.0, float("nan"), 2.0], [float("nan"), float("nan"), 4.0]], dtype=dtype)
        assert cuscan.nancumsum(x).tolist() == [[1, 1, 3], [0, 0, 4]]
        assert cuscan.nancumprod(x, axis=0, reverse=True).tolist() == [[1, 1, 8], [1, 1, 4]]


# ---- the leading initial value ------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_include_initial_matches_a_loop(data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    op, dtype = draw(st.sampled_from(list(STEPS))), draw(st.sampled_from([*INTEGERS, *FLOATS]))
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 5, 33]), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x = rng.choice([1, 2], shape) if op == "mul" and dtype in INTEGERS else rng.choice([0, 1, 3], shape)
    x = rng.choice([0.5, 1, 2], shape) if op == "mul" and dtype in FLOATS else x
    x = x.astype(dtype)
    identity = {"add": 0, "mul": 1, "max": lowest(dtype), "min": highest(dtype)}[op]
    call = {"axis": axis, "reverse": draw(st.booleans()), "exclusive": draw(st.booleans())}
    if draw(st.booleans()):
        call["initial"] = 2
    if draw(st.booleans()):
        call["mask"] = rng.random(shape) < 0.6
    expected = wrapped(scan(x, STEPS[op], identity, include_initial=True, **call), dtype)
    np.testing.assert_array_equal(cuscan.scan(x, op, include_initial=True, dtype=dtype, **call), expected)
    out = np.zeros([2 * n for n in expected.shape], dtype)[tuple(slice(None, None, 2) for _ in shape)]
    assert cuscan.scan(x, op, include_initial=True, out=out, **call) is out
    np.testing.assert_array_equal(out, expected)


def test_the_longer_result():
    x = np.array([1, 2, 3])
    for exclusive in (False, True):
        call = {"include_initial": True, "exclusive": exclusive}
        assert cuscan.cumsum(x, **call).tolist() == [0, 1, 3, 6]
        assert cuscan.cumsum(x, reverse=True, **call).tolist() == [6, 5, 3, 0]
        assert cuscan.cumsum(x, initial=4, **call).tolist() == [4, 5, 7, 10]
        assert cuscan.cumprod(np.empty((0, 2)), axis=0, **call).tolist() == [[1, 1]]
        assert cuscan.cumsum(np.empty((0, 2)), axis=1, **call).shape == (0, 3)
        assert cuscan.cummax(np.empty(0, np.int8), **call).tolist() == [-128]


def test_out_of_the_longer_result():
    x = np.arange(6.0)
    refused(ScanValueError, "out has shape (6,)", "(7,)", include_initial=True, out=np.empty(6))
    refused(ScanValueError, "out has shape", x=x, include_initial=True, out=x)
    refused(ScanValueError, "out has shape (7,)", "(6,)", out=np.empty(7))
    base = np.arange(7.0)
    refused(ScanValueError, "out overlaps x", x=base[:6], include_initial=True, out=base)
    refused(ScanTypeError, "include_initial", include_initial=1)


# ---- the Array API ------------------------------------------------------------------------------


@pytest.mark.parametrize("name, op", [("cumulative_sum", operator.add), ("cumulative_prod", operator.mul)])
@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, *COMPLEX])
@pytest.mark.parametrize("include_initial", [False, True])
def test_the_array_api(name, op, dtype, include_initial):
    x = np.random.default_rng(5).integers(0, 3, (4, 5)).astype(dtype)
    kind = np.dtype(dtype).kind
    result = {"b": "int64", "i": "int64", "u": "uint64"}.get(kind, dtype)
    function = getattr(cuscan, name)
    for axis in (0, 1, -1):
        got = function(x, axis=axis, include_initial=include_initial)
        expected = wrapped(scan(x, op, int(op is operator.mul), axis=axis, include_initial=include_initial), result)
        assert got.dtype == result
        np.testing.assert_array_equal(got, expected)
        if hasattr(np, name):
            np.testing.assert_array_equal(got, getattr(np, name)(x, axis=axis, include_initial=include_initial))
    np.testing.assert_array_equal(function(x[0]), function(x[0], axis=0))
    assert function(np.ones(3, "int8"), dtype="float32").dtype == np.float32


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_wrong_calls_of_the_array_api(name):
    function = getattr(cuscan, name)
    refused(ScanValueError, "axis", call=function, x=np.ones((2, 3)))
    refused(ScanValueError, "axis", call=function, x=np.ones((1, 3)), axis=None)
    refused(ScanValueError, call=function, x=np.array(1.0))
    refused(ScanValueError, "axis", call=function, x=np.ones(3), axis=1)
    with pytest.raises(TypeError):
        function(x=np.ones(3))
    with pytest.raises(TypeError):
        function(np.ones(3), 0)
    with pytest.raises(TypeError):
        function(np.ones(3), reverse=True)


def test_the_array_api_on_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype, result in [
        (torch.uint8, torch.uint64),
        (torch.bool, torch.int64),
        (torch.int16, torch.int64),
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.bfloat16),
        (torch.complex64, torch.complex64),
    ]:
        got = cuscan.cumulative_sum(torch.tensor([1, 0, 1]).to(dtype), include_initial=True)
        assert got.dtype == result and got.tolist() == [0, 1, 1, 2]
