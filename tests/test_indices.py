"""cummax and cummin with the positions of their values, compared with a plain loop."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import highest, lowest, plain, restarts, scan, segments_for

import cuscan
from cuscan import ScanTypeError, ScanValueError
from cuscan.backends import repeats

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = [*INTEGERS, "float16", "float32", "float64"]
NAMES = ["cummax", "cummin"]
TIES = ["first", "last"]


def is_nan(number):
    return isinstance(number, float) and math.isnan(number)


def step_for(name, ties):
    """The step from (value, position) to the next; the initial value has no position and loses every tie."""

    def step(earlier, later):
        (old, place), (new, _) = earlier, later
        if is_nan(old) or is_nan(new):
            wins = is_nan(new) and (not is_nan(old) or ties == "last")
        else:
            wins = new > old if name == "cummax" else new < old
            wins |= new == old and (place == -1 or ties == "last")
        return later if wins else earlier

    return step


def expected_of(x, name, ties, *, axis=-1, reverse=False, initial=None, begins=False, **call):
    """The values and positions as two arrays."""
    pairs, numbers = np.empty(x.shape, object), plain(x)
    for place in np.ndindex(x.shape):
        pairs[place] = (numbers[place], place[axis])
    empty = (lowest if name == "cummax" else highest)(x.dtype), -1
    first = None if initial is None else (initial, -1)
    found = scan(pairs, step_for(name, ties), empty, axis=axis, reverse=reverse, initial=first, begins=begins, **call)
    values = np.array([value for value, _ in found.flat], x.dtype).reshape(found.shape)
    return values, np.array([place for _, place in found.flat], np.int64).reshape(found.shape)


def check(x, name, ties, segments=None, **call):
    begins = restarts(x.shape, call.get("axis", -1), call.get("reverse", False), **(segments or {}))
    values, places = expected_of(x, name, ties, begins=begins, **call)
    got = getattr(cuscan, name)(x, return_indices=True, ties=ties, **(segments or {}), **call)
    assert isinstance(got, tuple) and len(got) == 2
    assert got[0].dtype == x.dtype and got[1].dtype == np.int64 and got[0].shape == got[1].shape == values.shape
    np.testing.assert_array_equal(got[1], places)
    np.testing.assert_array_equal(got[0], values)
    alone = getattr(cuscan, name)(x, ties=ties, **(segments or {}), **call)
    np.testing.assert_array_equal(alone, got[0])


def numbers(rng, dtype, shape):
    """Few different values, so that there are many ties; among them NaN, infinities and the ends of the range."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return rng.choice(np.array([limits.min, 1, 2, 3, limits.max], dtype), shape, p=[0.2, 0.25, 0.25, 0.25, 0.05])
    choices = np.array([-np.inf, -1, 0, 2, np.inf, np.nan], dtype)
    return rng.choice(choices, shape, p=[0.2, 0.28, 0.25, 0.25, 0.01, 0.01])


@pytest.mark.parametrize("name, ties", list(itertools.product(NAMES, TIES)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(name, ties, dtype):
    rng = np.random.default_rng(0)
    for shape, axis in [((400,), 0), ((3, 90), 1), ((90, 3), 0), ((2, 35, 2), -2), ((3, 0), 1)]:
        check(numbers(rng, dtype, shape), name, ties, axis=axis)


@pytest.mark.parametrize("name, ties", list(itertools.product(NAMES, TIES)))
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=5)), ids=str)
@pytest.mark.parametrize("kind", ["none", "reset", "offsets", "keys"])
def test_all_flags_together(name, ties, flags, kind):
    reverse, exclusive, include_initial, masked, starts = flags
    rng = np.random.default_rng(1)
    for dtype, shape, axis in [("float32", (60,), 0), ("int16", (3, 40), 1), ("uint8", (40, 2), 0)]:
        call = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "include_initial": include_initial}
        if masked:
            call["mask"] = rng.random(shape) < 0.5
        if starts:
            call["initial"] = 2
        check(numbers(rng, dtype, shape), name, ties, segments_for(rng, kind, shape, axis), **call)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_any_call_matches_a_loop(data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 5, 33]), min_size=1, max_size=3)))
    shape = (*shape, draw(st.sampled_from([0, 130, 1030]))) if draw(st.booleans()) and len(shape) == 1 else shape
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    step = slice(None, None, draw(st.sampled_from([1, -1, 2])))
    x = numbers(rng, draw(st.sampled_from(DTYPES)), (*shape[:-1], shape[-1] * abs(step.step)))[..., step]
    x = x.swapaxes(0, -1) if shape[0] == shape[-1] else x
    call = {key: draw(st.booleans()) for key in ("reverse", "exclusive", "include_initial")}
    if draw(st.booleans()):
        call["mask"] = rng.random(shape) < draw(st.sampled_from([0.02, 0.5]))
    if draw(st.booleans()):
        call["initial"] = draw(st.sampled_from([0, 1]))
    segments = segments_for(rng, draw(st.sampled_from(["none", "reset", "offsets", "keys"])), shape, axis)
    check(x, draw(st.sampled_from(NAMES)), draw(st.sampled_from(TIES)), segments, axis=axis, **call)


# ---- examples by hand ---------------------------------------------------------------------------


def indices(x, name="cummax", **call):
    return getattr(cuscan, name)(np.array(x), return_indices=True, **call)[1].tolist()


def test_ties():
    assert indices([3, 1, 3, 4, 4]) == [0, 0, 0, 3, 3]
    assert indices([3, 1, 3, 4, 4], ties="last") == [0, 0, 2, 3, 4]
    assert indices([3, 1, 3, 4, 4], reverse=True) == [4, 4, 4, 4, 4]
    assert indices([3, 1, 3, 4, 4], reverse=True, ties="last") == [3, 3, 3, 3, 4]
    assert indices([3, 1, 3, 1, 4], "cummin") == [0, 1, 1, 1, 1]
    assert indices([3, 1, 3, 1, 4], "cummin", ties="last") == [0, 1, 1, 3, 3]
    assert indices([0.0, -0.0, 0.0]) == [0, 0, 0]
    assert indices([0.0, -0.0, 0.0], ties="last") == [0, 1, 2]


def test_nan_wins_and_stays():
    x = [1.0, np.nan, 5.0, np.nan, np.inf]
    for name in NAMES:
        assert indices(x, name) == [0, 1, 1, 1, 1]
        assert indices(x, name, ties="last") == [0, 1, 1, 3, 3]
        assert indices(x, name, reverse=True)[:4] == [3, 3, 3, 3]
        values, _ = getattr(cuscan, name)(np.array(x), return_indices=True)
        assert np.isnan(values[1:]).all() and values[0] == 1


def test_minus_one_where_no_element_is_in_the_value():
    x = [1.0, 2.0, 7.0, 7.0]
    assert indices(x, exclusive=True) == [-1, 0, 1, 2]
    assert indices(x, initial=5) == [-1, -1, 2, 2]
    assert indices(x, initial=7) == [-1, -1, 2, 2]
    assert indices(x, initial=7, ties="last") == [-1, -1, 2, 3]
    assert indices(x, initial=8) == [-1] * 4
    assert indices(x, mask=np.array([False, True, False, True])) == [-1, 1, 1, 3]
    assert indices(x, include_initial=True) == [-1, 0, 1, 2, 2]
    assert indices([-np.inf, -np.inf]) == [0, 0]
    assert indices([-np.inf, -np.inf], ties="last") == [0, 1]
    assert indices([-np.inf, 1.0], initial=-np.inf) == [0, 1]
    assert indices(np.array([-128, 3], np.int8)) == [0, 1]


def test_positions_are_along_the_axis_in_segments_too():
    x = [5, 6, 1, 2, 0]
    assert indices(x, offsets=np.array([0, 2, 5])) == [0, 1, 2, 3, 3]
    assert indices(x, offsets=np.array([0, 2, 5]), reverse=True) == [1, 1, 3, 3, 4]


def test_nan_that_is_skipped_is_no_element():
    x = [np.nan, 2.0, np.nan, 3.0]
    assert indices(x, skipna=True) == [-1, 1, 1, 3]
    values, _ = cuscan.cummin(np.array(x), skipna=True, return_indices=True)
    assert values.tolist() == [np.inf, 2, 2, 2]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("ties", TIES)
def test_long_rows(ties, reverse):
    x = np.random.default_rng(2).integers(0, 3, 400_000) + np.arange(400_000) // 5000  # ties, both far and near
    ordered = x[::-1] if reverse else x
    values = np.maximum.accumulate(ordered)
    fresh = np.concatenate([[True], ordered[1:] > values[:-1]])
    record = fresh if ties == "first" else ordered == values
    places = np.maximum.accumulate(np.where(record, np.arange(x.size), 0))
    if reverse:
        values, places = values[::-1], (x.size - 1 - places)[::-1]
    got = cuscan.cummax(x, return_indices=True, ties=ties, reverse=reverse)
    np.testing.assert_array_equal(got[0], values)
    np.testing.assert_array_equal(got[1], places)


@pytest.mark.parametrize("name, op", [("cummax", "max"), ("cummin", "min")])
@pytest.mark.parametrize("ties", TIES)
def test_without_positions_it_is_the_plain_scan(name, op, ties, monkeypatch):
    """No positions are computed or written."""
    run, ran = repeats.repeat, []
    monkeypatch.setattr(repeats, "repeat", lambda flags, *rest: ran.append(flags.op) or run(flags, *rest))
    got = getattr(cuscan, name)(np.array([1, 3, 2]), ties=ties)
    assert isinstance(got, np.ndarray) and ran == [op]


# ---- out and errors -----------------------------------------------------------------------------


def test_out_is_a_pair():
    x = np.array([[1.0, 3.0, 2.0], [4.0, 4.0, 5.0]])
    values, places = np.zeros((4, 3))[::2], np.zeros((3, 2), np.int64).T
    got = cuscan.cummax(x, return_indices=True, out=(values, places))
    assert got[0] is values and got[1] is places
    assert values.tolist() == [[1, 3, 3], [4, 4, 5]] and places.tolist() == [[0, 1, 1], [0, 0, 2]]
    got = cuscan.cummax(x, return_indices=True, out=(x, places))
    assert got[0] is x and x.tolist() == values.tolist() and places.tolist() == [[0, 1, 1], [0, 0, 2]]


def refused(kind, *texts, x=None, **call):
    with pytest.raises(kind) as caught:
        cuscan.cummax(np.arange(6.0) if x is None else x, **call)
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in {str(caught.value)!r}"


@pytest.mark.parametrize("ties", ["latest", "", None, 0, True], ids=repr)
@pytest.mark.parametrize("return_indices", [False, True])
def test_ties_are_first_or_last(ties, return_indices):
    refused(ScanValueError, "ties", repr(ties), "first", "last", ties=ties, return_indices=return_indices)


def test_wrong_calls():
    refused(ScanTypeError, "return_indices", return_indices=1)
    refused(ScanTypeError, "complex64", x=np.ones(3, "complex64"), return_indices=True)
    places = np.zeros(6, np.int64)
    refused(ScanTypeError, "out", return_indices=True, out=np.zeros(6))
    refused(ScanTypeError, "out", out=(np.zeros(6), places))
    refused(ScanTypeError, "out", "int32", "int64", return_indices=True, out=(np.zeros(6), np.zeros(6, np.int32)))
    refused(ScanValueError, "out", return_indices=True, out=(np.zeros(6), np.zeros(5, np.int64)))
    refused(ScanValueError, "out", return_indices=True, out=(np.zeros(5), places))
    refused(ScanValueError, "out", return_indices=True, out=(places, places), dtype="int64")


# ---- torch on the CPU ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_latest_of_ties_are_those_of_torch(name, dtype, axis):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(3)
    kind = dtype if dtype in DTYPES else "float32"
    x = torch.from_numpy(numbers(rng, kind, (60, 90))).to(getattr(torch, dtype))
    expected = getattr(torch, name)(x, axis)
    got = getattr(cuscan, name)(x, axis=axis, return_indices=True, ties="last")
    assert isinstance(got, tuple) and got[0].dtype == x.dtype and got[1].dtype == torch.int64
    assert torch.equal(got[1], expected.indices)
    assert torch.equal(got[0].isnan(), expected.values.isnan())
    assert torch.equal(got[0].nan_to_num(9), expected.values.nan_to_num(9))


def test_out_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.tensor([2.0, 1.0, 3.0])
    out = torch.empty(3), torch.empty(3, dtype=torch.int64)
    got = cuscan.cummax(x, return_indices=True, out=out)
    assert got[0] is out[0] and got[1] is out[1]
    assert out[0].tolist() == [2, 2, 3] and out[1].tolist() == [0, 0, 2]
