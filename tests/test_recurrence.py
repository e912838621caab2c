"""Linear recurrences on the CPU compared with the textbook loop, h = a h + b."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import in_scan_order, restarts

import cuscan
from cuscan import ScanTypeError, ScanValueError

DTYPES = ["float16", "float32", "float64", "complex64", "complex128"]
SEGMENTS = ["none", "reset", "offsets", "keys"]

# A term of a state goes through at most this many sums, and one more for every 2^16 steps (see the docstring of
# linear_recurrence). Products are counted one by one.
DEPTH = 64


def state_dtype(dtype):
    return np.dtype({"float16": "float32"}.get(dtype, dtype))


def loop(a, b, *, axis=-1, reverse=False, initial=None, begins=False, wide="longdouble"):
    """All states in a wide type, and the last one. `initial` precedes scan position 0; a new segment starts from 0."""
    b = np.asarray(b).astype(wide)
    h = np.empty_like(b)
    factors, inputs, new, states = (
        in_scan_order(np.broadcast_to(z, b.shape) if z is not h else h, axis, reverse)
        for z in (np.asarray(a).astype(wide), b, np.asarray(begins), h)
    )
    state = np.broadcast_to(np.asarray(0 if initial is None else initial).astype(wide), inputs.shape[:-1])
    for t in range(inputs.shape[-1]):
        state = np.where(new[..., t], inputs[..., t], factors[..., t] * state + inputs[..., t])
        states[..., t] = state
    return h, state


def begins_of(shape, axis=-1, reverse=False, **segments):
    """Where the state starts from 0: a reset at scan position 0 counts, the first offset and key do not."""
    return restarts(shape, axis, reverse, **segments) if segments else np.zeros(shape, bool)


def segments_for(rng, kind, shape, axis):
    n = shape[axis]
    if kind == "reset":
        thin = tuple(size if rng.random() < 0.7 else 1 for size in shape)[rng.integers(len(shape)) :]
        if len(thin) < len(shape):  # a single dimension would lie along the scanned axis
            thin = (1, *thin)
        return {"reset": rng.random(thin) < 0.3}
    if kind == "offsets":
        inner = np.sort(rng.integers(1, max(n, 2), n // 4)) if n > 1 else []  # some are empty, but none at the ends
        return {"offsets": np.array([0, *inner, n], rng.choice(["int32", "int64"]))}
    return {"keys": rng.integers(0, 2, n)} if kind == "keys" else {}


def whole_numbers(rng, dtype, shape):
    """Inputs whose states are never rounded, except for results in float16."""
    a, b = rng.choice([-1, 0, 1], shape, p=[0.45, 0.1, 0.45]), rng.integers(-4, 5, shape)
    if np.dtype(dtype).kind == "c":
        a, b = a * rng.choice([1, 1j, -1, -1j], shape), b + 1j * rng.integers(-4, 5, shape)
    return a.astype(dtype), b.astype(dtype)


def check_exact(a, b, segments, **call):
    dtype, axis, reverse = b.dtype.name, call.get("axis", -1), call.get("reverse", False)
    wide = "clongdouble" if b.dtype.kind == "c" else "longdouble"
    begins = begins_of(b.shape, axis, reverse, **segments)
    states, last = loop(a, b, axis=axis, reverse=reverse, initial=call.get("initial"), begins=begins, wide=wide)
    got, carry = cuscan.linear_recurrence(a, b, return_last=True, **segments, **call)
    assert got.dtype == b.dtype and carry.dtype == state_dtype(dtype) and np.shape(carry) == last.shape
    np.testing.assert_array_equal(got, states.astype(dtype))
    np.testing.assert_array_equal(carry, last.astype(carry.dtype))
    np.testing.assert_array_equal(cuscan.linear_recurrence(a, b, **segments, **call), got)


# ---- exact states -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("carry_in", ["none", "number", "array"])
def test_all_flags_together(dtype, kind, reverse, carry_in):
    rng = np.random.default_rng(0)
    for shape, axis in [((300,), 0), ((3, 70), -1), ((70, 3), 0), ((2, 33, 3), 1), ((4, 0), 1)]:
        a, b = whole_numbers(rng, dtype, shape)
        initial = {"none": None, "number": 3}.get(carry_in, rng.integers(-9, 9, np.delete(shape, axis)))
        if isinstance(initial, np.ndarray):
            initial = initial.astype(state_dtype(dtype))
        check_exact(a, b, segments_for(rng, kind, shape, axis), axis=axis, reverse=reverse, initial=initial)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_any_call_matches_the_loop(data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    dtype, kind = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SEGMENTS))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 5, 33]), min_size=1, max_size=3)))
    if draw(st.booleans()):
        shape = (*shape[:1], draw(st.sampled_from([0, 130, 1030])))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    step = slice(None, None, draw(st.sampled_from([1, -1, 2])))
    a, b = (z[..., step] for z in whole_numbers(rng, dtype, (*shape[:-1], shape[-1] * abs(step.step))))
    a = a[tuple(slice(0, 1) if draw(st.booleans()) else slice(None) for _ in shape)]
    a = a if 0 in a.shape or draw(st.booleans()) else a[0]
    if a.ndim == 0 and draw(st.booleans()):
        a = a.item()
    others = [size for i, size in enumerate(shape) if i != axis % len(shape)]
    thin = [1 if draw(st.booleans()) else size for size in others]
    initial = draw(st.sampled_from([None, 2, rng.integers(-9, 9, thin).astype(state_dtype(dtype))]))
    segments = segments_for(rng, kind, shape, axis)
    check_exact(a, b, segments, axis=axis, reverse=draw(st.booleans()), initial=initial)


@pytest.mark.parametrize("a", [2, 0.5, -1, 0, np.float32(2), np.array(2.0, "f4"), np.array([2.0], "f4")], ids=repr)
def test_a_may_be_one_number(a):
    b = np.array([[1, 2, 4], [-8, 0, 16]], np.float32)
    expected, _ = loop(a, b)
    np.testing.assert_array_equal(cuscan.linear_recurrence(a, b), expected.astype("f4"))


def test_a_decay_for_each_channel():
    b = np.ones((2, 3, 5), np.float32)
    decay = np.array([[0.0], [0.5], [1.0]], np.float32)
    got = cuscan.linear_recurrence(decay, b)
    assert got[1].tolist() == [[1] * 5, [1, 1.5, 1.75, 1.875, 1.9375], [1, 2, 3, 4, 5]]
    last = cuscan.linear_recurrence(decay[:, 0], b.transpose(0, 2, 1), axis=1)
    assert last.transpose(0, 2, 1).tolist() == got.tolist()


def test_the_result_dtype_is_that_of_b_or_what_is_asked():
    a, b = np.full(3, 2.0, "f8"), np.array([1, 1, 1], "f4")
    assert cuscan.linear_recurrence(a, b).dtype == np.float32
    assert cuscan.linear_recurrence(b, a).dtype == np.float64
    got = cuscan.linear_recurrence(a, b, dtype="complex64")
    assert got.dtype == np.complex64 and got.tolist() == [1, 3, 7]
    got = cuscan.linear_recurrence(2, np.array([1, 1, 1]), dtype="float32")
    assert got.dtype == np.float32 and got.tolist() == [1, 3, 7]


@pytest.mark.parametrize("reverse", [False, True])
def test_out_and_in_place(reverse):
    rng = np.random.default_rng(1)
    a, b = whole_numbers(rng, "float32", (4, 90))
    expected = cuscan.linear_recurrence(a, b, reverse=reverse)
    out = np.zeros((90, 8), np.float32).T[::2]
    assert cuscan.linear_recurrence(a, b, reverse=reverse, out=out) is out
    np.testing.assert_array_equal(out, expected)
    got = cuscan.linear_recurrence(a, b, reverse=reverse, return_last=True, out=b)
    assert isinstance(got, tuple) and got[0] is b
    np.testing.assert_array_equal(b, expected)
    np.testing.assert_array_equal(got[1], expected[:, 0 if reverse else -1])


# ---- the carry ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_who_gets_the_carry_in(reverse):
    b = np.array([1.0, 10.0, 100.0])
    call = {"reverse": reverse, "initial": 5.0}
    order = (lambda h: h[::-1]) if reverse else (lambda h: h)

    def recur(**segments):
        return cuscan.linear_recurrence(2, order(b), **segments, **call)

    assert order(recur()).tolist() == [11, 32, 164]
    assert order(recur(reset=order(np.array([True, False, False])))).tolist() == [1, 12, 124]
    assert order(recur(reset=order(np.array([False, True, False])))).tolist() == [11, 10, 120]
    offsets = np.array([0, 2, 3] if reverse else [0, 1, 3])
    assert order(recur(offsets=offsets)).tolist() == [11, 10, 120]
    assert order(recur(offsets=np.array([0, 3]))).tolist() == [11, 32, 164]
    assert order(recur(keys=order(np.array([4, 7, 7])))).tolist() == [11, 10, 120]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_chunk_by_chunk_is_the_whole(dtype, reverse):
    rng = np.random.default_rng(2)
    _, b = whole_numbers(rng, dtype, (3, 4000))
    b = np.abs(b.real).astype(dtype) + 1  # sums exceed 2048, where float16 has no odd numbers
    whole = cuscan.linear_recurrence(1, b, reverse=reverse)
    cuts = [0, 1, 700, 1024, 2999, 4000]
    spans = list(itertools.pairwise(cuts))
    carry = None
    for begin, end in reversed(spans) if reverse else spans:
        h, carry = cuscan.linear_recurrence(1, b[:, begin:end], reverse=reverse, initial=carry, return_last=True)
        np.testing.assert_array_equal(h, whole[:, begin:end])
    np.testing.assert_array_equal(carry, b.sum(1, dtype=carry.dtype))


def test_an_empty_chunk_hands_the_carry_on():
    carry = np.array([1.5, -2.0], np.float32)
    h, last = cuscan.linear_recurrence(0.5, np.empty((2, 0), np.float16), initial=carry, return_last=True)
    assert h.shape == (2, 0) and last.dtype == np.float32 and last.tolist() == [1.5, -2.0]


def test_the_carry_of_one_row_is_no_row():
    _, last = cuscan.linear_recurrence(2.0, np.ones(3, np.float32), return_last=True)
    assert np.shape(last) == () and last == 7
    assert cuscan.linear_recurrence(2.0, np.ones(1, np.float32), initial=last).tolist() == [15]


# ---- rounding -----------------------------------------------------------------------------------


def error_bound(a, b, dtype, initial):
    """u sum_j (products_j + DEPTH) |b_j a_j+1 ... a_t|: one rounding per factor and one per sum, u = eps / 2."""
    state = state_dtype(dtype)
    eps = float(np.finfo(state).eps)
    a, b = np.broadcast_to(np.abs(a), b.shape).astype("longdouble"), np.abs(b).astype("longdouble")
    magnitude, _ = loop(a, b, initial=np.abs(initial))
    before = np.concatenate([np.broadcast_to(np.abs(initial), b.shape[:-1])[..., None], magnitude[..., :-1]], -1)
    products, _ = loop(a, a * before)  # counts every term once for each of its factors
    factor = 3 if state.kind == "c" else 1  # a complex product has an error of up to sqrt(8) u
    second_order = 1 + 4 * b.shape[-1] * eps
    tiny = float(np.finfo(state).smallest_subnormal) * b.shape[-1] * (1 + magnitude.max())
    return eps / 2 * (factor * products + DEPTH * magnitude) * second_order + tiny


@pytest.mark.parametrize("dtype", ["float32", "float64"])  # an element has two of them, like a and b
@pytest.mark.parametrize("shape", [(2_200_000,), (530_000, 2)], ids=str)
def test_no_term_goes_through_more_sums_than_the_bound_says(dtype, shape):
    count = cuscan.Operator(
        "count",
        "State{0, (earlier.sums > later.sums ? earlier.sums : later.sums) + 1}",
        (0, 0),
        state={"unused": dtype, "sums": dtype},
        numpy=lambda earlier, later: (0, np.maximum(earlier["sums"], later["sums"]) + 1),
    )
    zeros = np.zeros(shape, dtype)
    _, sums = cuscan.scan((zeros, zeros), count, axis=0)
    carry = 1  # it is rounded to the state's dtype where it enters a tile
    assert sums.max() > 30 and (sums.T + carry <= DEPTH + np.arange(shape[0]) / 2**16).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decay", [0.0, 1e-30, 0.3, 0.9, 0.999, 1 - 2.0**-10, 1.0, -0.999, 1.002, "mixed", "gates"])
def test_the_error_is_within_its_bound(dtype, decay):
    rng = np.random.default_rng(3)
    shape = (2, 5000)
    complex_numbers = np.dtype(dtype).kind == "c"
    if decay == "mixed":
        a = rng.choice([0, 1e-4, 0.5, 0.99, 1 - 2.0**-9, -1], shape)
    elif decay == "gates":
        a = 1 / (1 + np.exp(-4 * rng.standard_normal(shape)))
    else:
        a = np.full((), decay)
    turn = np.exp(2j * np.pi * rng.random(a.shape)) if complex_numbers else 1
    noise = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if complex_numbers else 0)
    scale = 10.0 ** rng.integers(-1, 2, shape)
    with np.errstate(under="ignore"):
        a, b = np.asarray(a * turn).astype(dtype), (noise * scale).astype(dtype)
    exact, last = loop(a, b, initial=0.5, wide="clongdouble" if complex_numbers else "longdouble")
    bound = error_bound(a, b, dtype, 0.5)
    got, carry = cuscan.linear_recurrence(a, b, initial=0.5, return_last=True)
    assert (np.abs(carry - last) <= bound[:, -1]).all()
    if dtype == "float16":
        limits = np.finfo(dtype)
        bound = bound + limits.eps / 2 * (np.abs(exact) + bound) + limits.smallest_subnormal
        inside = np.abs(exact) + bound < limits.max
        assert inside.mean() > 0.5
        exact, got, bound = exact[inside], got[inside], bound[inside]
    error = np.abs(got - exact)
    assert (error <= bound).all(), f"worst ratio {(error / bound).max()}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_decay_of_zero_cuts_history_exactly(dtype):
    rng = np.random.default_rng(4)
    a = np.full(2000, 0.99, dtype)
    b = rng.standard_normal(2000).astype(dtype)
    b[:100] = 1e30
    a[[100, 700, 701, 1999]] = 0
    got = cuscan.linear_recurrence(a, b)
    np.testing.assert_array_equal(got[a == 0], b[a == 0])
    exact, _ = loop(a, b)
    bound = error_bound(a, b, dtype, 0.0)
    assert (np.abs(got - exact) <= bound)[100:].all() and bound[100:].max() < 1e-3


def test_restarts_cut_what_is_not_finite():
    a, b = np.ones(6, np.float32), np.array([np.inf, -np.inf, np.nan, 1, 2, 3], np.float32)
    for segments in ({"reset": np.arange(6) == 3}, {"offsets": np.array([0, 3, 6])}, {"keys": np.arange(6) < 3}):
        got = cuscan.linear_recurrence(a, b, **segments)
        np.testing.assert_array_equal(got, np.array([np.inf, np.nan, np.nan, 1, 3, 6], np.float32))


# ---- reinforcement learning ---------------------------------------------------------------------


def test_discounted_returns_are_one_call():
    rng = np.random.default_rng(5)
    rewards, dones, gamma = rng.standard_normal((4, 300)), rng.random((4, 300)) < 0.05, 0.99
    after = rng.standard_normal(4)
    expected = np.empty_like(rewards)
    for row in range(4):
        future = after[row]
        for t in reversed(range(300)):
            future = rewards[row, t] + gamma * (0 if dones[row, t] else future)
            expected[row, t] = future
    got = cuscan.linear_recurrence(gamma, rewards, reverse=True, reset=dones, initial=after)
    scale = np.abs(rewards).max() + np.abs(after).max()
    assert np.abs(got - expected).max() <= np.finfo("f8").eps * (300 + DEPTH) * 300 * scale
    np.testing.assert_array_equal(got[dones], rewards[dones])


def test_generalized_advantage_estimation_is_one_call():
    rng = np.random.default_rng(6)
    steps, agents, gamma, trace = 128, 8, 0.99, 0.95
    rewards, values = rng.standard_normal((steps, agents)), rng.standard_normal((steps + 1, agents))
    dones = rng.random((steps, agents)) < 0.1
    expected, advantage = np.empty_like(rewards), np.zeros(agents)
    for t in reversed(range(steps)):
        alive = 1.0 - dones[t]
        delta = rewards[t] + gamma * values[t + 1] * alive - values[t]
        advantage = delta + gamma * trace * alive * advantage
        expected[t] = advantage
    deltas = rewards + gamma * values[1:] * ~dones - values[:-1]
    got = cuscan.linear_recurrence(gamma * trace, deltas, axis=0, reverse=True, reset=dones)
    assert np.abs(got - expected).max() <= np.finfo("f8").eps * (steps + DEPTH) * steps * np.abs(deltas).max()


# ---- errors -------------------------------------------------------------------------------------


def refused(kind, *texts, a=0.5, b=None, **call):
    with pytest.raises(kind) as caught:
        cuscan.linear_recurrence(a, np.ones((2, 6), np.float32) if b is None else b, **call)
    for text in texts:
        assert re.search(text, str(caught.value)), f"{text!r} is not in {str(caught.value)!r}"


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64", "uint8", "uint64"])
def test_integers_are_refused(dtype):
    refused(ScanTypeError, dtype, b=np.ones(3, dtype))
    refused(ScanTypeError, dtype, dtype=dtype)


def test_complex_factors_of_real_states_are_refused():
    refused(ScanTypeError, r"^a\b", "complex64", a=np.ones(6, "complex64"))
    refused(ScanTypeError, r"^a\b", a=1j)
    refused(ScanTypeError, "complex64", b=np.ones(3, "complex64"), dtype="float32")
    refused(ScanTypeError, "initial", initial=1j)


def test_shapes_that_do_not_broadcast():
    for shape in [(5,), (3, 6), (1, 2, 6), (6, 2)]:
        refused(ScanValueError, "^a of shape", a=np.ones(shape, np.float32))
    for shape in [(3,), (2, 6), (2, 1), (6,)]:
        refused(ScanValueError, "initial", initial=np.ones(shape, np.float32))
    refused(ScanValueError, "axis", axis=2)
    refused(ScanValueError, "out", out=np.empty((6, 2), np.float32))
    refused(ScanTypeError, "out", out=np.empty((2, 6), np.float64), dtype="float32")


def test_what_is_no_array_or_flag():
    refused(ScanTypeError, r"^b\b", "list", b=[1.0])
    refused(ScanTypeError, r"^a\b", "list", a=[1.0])
    refused(ScanTypeError, r"^a\b", "str", a="x")
    refused(ScanTypeError, "initial", "str", initial="x")
    refused(ScanTypeError, "return_last", return_last=1)
    refused(ScanTypeError, "reverse", reverse=0)


def test_segments_that_do_not_fit():
    refused(ScanValueError, "reset", "offsets", reset=np.zeros(6, bool), offsets=np.array([0, 6]))
    refused(ScanValueError, "offsets", offsets=np.array([0, 7]))
    refused(ScanValueError, "keys", keys=np.zeros(5))
    refused(ScanTypeError, "reset", reset=np.zeros(6, int))


# ---- torch on the CPU ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_tensors_of_torch(name):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(7)
    numbers = "complex64" if name == "complex64" else "float32"
    a, b = whole_numbers(rng, numbers, (3, 500))
    initial, reset = np.array([1, 2, 3], numbers), rng.random((3, 500)) < 0.05
    wide = "clongdouble" if name == "complex64" else "longdouble"
    states, last = loop(a, b, initial=initial, begins=reset, wide=wide)
    dtype = getattr(torch, name)
    tensors = [torch.from_numpy(z).to(dtype) for z in (a, b)]
    carry = torch.from_numpy(initial)
    carry = carry.to(dtype) if name == "float64" else carry
    call = {"reset": torch.from_numpy(reset), "return_last": True}
    got, end = cuscan.linear_recurrence(*tensors, initial=carry, **call)
    assert got.dtype == dtype and end.dtype == (torch.float32 if "16" in name else dtype)
    complex_states = torch.from_numpy(states.astype("complex128"))
    expected = complex_states if dtype.is_complex else complex_states.real
    assert torch.equal(got, expected.to(dtype))
    assert end.tolist() == last.astype("complex128" if dtype.is_complex else "float64").tolist()


def test_arrays_of_two_libraries():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    refused(ScanTypeError, r"^a\b", "torch", a=torch.ones(6))
    refused(ScanTypeError, "^initial", "torch", initial=torch.ones(2))
    refused(ScanTypeError, r"^a\b", "torch", a=np.ones(6, np.float32), b=torch.ones(2, 6))
