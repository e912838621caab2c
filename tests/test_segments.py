"""Segments on the CPU: reset, offsets and keys compared with plain loops, with every other flag."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
import textbook
from host_cases import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import highest, lowest, restarts, wrapped

import cuscan
from cuscan import ScanTypeError, ScanValueError

KINDS = ["reset", "offsets", "keys"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
DTYPES = {
    "add": ["bool", *INTEGERS, *FLOATS, *COMPLEX],
    "mul": [*INTEGERS, *FLOATS, *COMPLEX],
    "max": ["bool", *INTEGERS, *FLOATS],
    "min": ["bool", *INTEGERS, *FLOATS],
    "and": ["bool", *INTEGERS],
    "or": ["bool", *INTEGERS],
    "xor": ["bool", *INTEGERS],
    "latest": [*INTEGERS, *FLOATS],
}
STEPS = {
    "add": operator.add,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "latest": lambda earlier, later: later or earlier,
}


def the_operator(op):
    if op != "latest":
        return op
    numpy = lambda earlier, later: np.where(later != 0, later, earlier)  # noqa: E731
    return cuscan.Operator("latest", "later != 0 ? later : earlier", 0, numpy=numpy)


def identity(op, dtype):
    ends = {"max": lowest(dtype), "min": highest(dtype), "and": True if dtype == "bool" else -1}
    return ends.get(op, int(op == "mul"))


def result_dtype(op, dtype):
    if op not in ("add", "mul") or np.dtype(dtype).kind in "fc":
        return np.dtype(dtype)
    return np.dtype("uint64" if dtype.startswith("uint") else "int64")


def numbers(rng, op, dtype, shape):
    """Elements that are exact in any association: whole numbers, or powers of two for products."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        low = 0 if op == "latest" else limits.min
        high = 2 if op == "latest" else limits.max
        return rng.integers(low, high, shape, dtype, endpoint=True)
    choices = [-2.0, -1.0, -0.5, 0.5, 1.0, 2.0] if op == "mul" else [-3.0, -1.0, 0.0, 0.0, 0.0, 2.0, 5.0]
    x = rng.choice(choices, shape)
    if dtype in COMPLEX:
        x = x * rng.choice([1, 1j, -1, -1j], shape)
    return x.astype(dtype)


def draw_offsets(rng, n, segments):
    """Offsets of segments that may be empty, also at the ends."""
    return np.sort(np.concatenate([[0, n], rng.integers(0, n, segments - 1, endpoint=True)]))


def segments_for(rng, kind, shape, axis):
    n = shape[axis]
    if kind == "reset":
        thin = tuple(size if rng.random() < 0.7 else 1 for size in shape)[rng.integers(len(shape)) :]
        if len(thin) < len(shape):  # a single dimension would lie along the scanned axis
            thin = (1, *thin)
        return {"reset": rng.random(thin) < 0.3}
    if kind == "offsets":
        return {"offsets": draw_offsets(rng, n, 1 + n // 3).astype(rng.choice(["int32", "int64"]))}
    like_x = [size if a == axis % len(shape) or rng.random() < 0.6 else 1 for a, size in enumerate(shape)]
    size = n if rng.random() < 0.5 else like_x
    return {"keys": rng.integers(0, 2, size).astype(rng.choice(["bool", "int8", "uint16", "int64", "float32"]))}


def check(x, op, segments, **call):
    dtype = x.dtype.name
    result = result_dtype(op, dtype)
    axis, reverse = call.get("axis", -1), call.get("reverse", False)
    begins = restarts(x.shape, axis, reverse, **segments)
    expected = textbook.scan(x, STEPS[op], identity(op, dtype), begins=begins, **call)
    got = cuscan.scan(x, the_operator(op), **segments, **call)
    assert got.dtype == result and got.shape == expected.shape
    np.testing.assert_array_equal(got, wrapped(expected, result))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=5)), ids=str)
def test_all_flags_together(kind, flags):
    reverse, exclusive, include_initial, masked, starts = flags
    for seed, op in enumerate(STEPS):
        rng = np.random.default_rng(seed)
        dtype = rng.choice(DTYPES[op])
        shape, axis = [((37,), 0), ((3, 20), 1), ((20, 3), 0), ((2, 9, 2), 1)][seed % 4]
        call = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "include_initial": include_initial}
        if masked:
            call["mask"] = rng.random(shape) < 0.6
        if starts:
            call["initial"] = 1
        check(numbers(rng, op, dtype, shape), op, segments_for(rng, kind, shape, axis), **call)


@st.composite
def arrays(draw):
    op = draw(st.sampled_from(list(STEPS)))
    dtype = draw(st.sampled_from(DTYPES[op]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 9, 33]), min_size=1, max_size=3)))
    if draw(st.integers(0, 3)) == 0:
        shape = (draw(st.sampled_from([0, 130, 300, 700])), *shape[:1])
    shape = draw(st.permutations(shape))
    steps = tuple(slice(None, None, draw(st.sampled_from([1, 1, -1, 2]))) for _ in shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    wide = [size * abs(step.step) for size, step in zip(shape, steps, strict=True)]
    x = numbers(rng, op, dtype, wide)[steps]
    return op, x.T if draw(st.booleans()) else x, rng


@settings(max_examples=200, deadline=None)
@given(case=arrays(), kind=st.sampled_from(KINDS), data=st.data())
def test_any_call_matches_a_loop(case, kind, data):
    op, x, rng = case
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    call = {name: data.draw(st.booleans()) for name in ("reverse", "exclusive", "include_initial")}
    if data.draw(st.booleans()):
        call["initial"] = data.draw(st.integers(0, 1))
    if data.draw(st.booleans()):
        call["mask"] = rng.random(x.shape) < 0.7
    check(x, op, segments_for(rng, kind, x.shape, axis), axis=axis, **call)


# ---- the meanings of the kinds -------------------------------------------------------------------


@pytest.mark.parametrize(
    "segments, forward, backward",
    [
        ({"reset": np.array([False, False, True, False, True])}, [1, 3, 3, 7, 5], [6, 5, 3, 9, 5]),
        ({"reset": np.array([True, False, True, False, True])}, [1, 3, 3, 7, 5], [1, 5, 3, 9, 5]),
        ({"offsets": np.array([0, 0, 2, 2, 4, 5, 5])}, [1, 3, 3, 7, 5], [3, 2, 7, 4, 5]),
        ({"keys": np.array([7, 7, -1, -1, 7])}, [1, 3, 3, 7, 5], [3, 2, 7, 4, 5]),
        ({"keys": np.array([np.nan, np.nan, 1, 1, 1])}, [1, 2, 3, 7, 12], [1, 2, 12, 9, 5]),
        ({"offsets": np.array([0, 5])}, [1, 3, 6, 10, 15], [15, 14, 12, 9, 5]),
    ],
    ids=["reset", "reset at 0", "offsets", "keys", "nan keys", "one"],
)
def test_examples_by_hand(segments, forward, backward):
    x = np.arange(1, 6)
    assert cuscan.scan(x, **segments).tolist() == forward
    assert cuscan.scan(x, reverse=True, **segments).tolist() == backward
    flipped = {name: np.flip(a) for name, a in segments.items() if name != "offsets"}
    if flipped:
        assert cuscan.scan(x[::-1], **flipped).tolist() == backward[::-1]


def test_include_initial_differs_only_at_the_starts():
    x, offsets = np.array([1, 2, 3, 4]), np.array([0, 2, 4])
    call = {"offsets": offsets, "include_initial": True, "initial": 10}
    assert cuscan.scan(x, **call).tolist() == [10, 11, 13, 13, 17]
    assert cuscan.scan(x, exclusive=True, **call).tolist() == [10, 11, 10, 13, 17]
    assert cuscan.scan(x, reverse=True, **call).tolist() == [13, 12, 17, 14, 10]
    assert cuscan.scan(x, reverse=True, exclusive=True, **call).tolist() == [13, 12, 10, 14, 10]


def test_lengths_become_cu_seqlens_in_one_call():
    lengths = np.array([3, 0, 7, 1], np.int64)
    got = cuscan.scan(lengths, exclusive=True, include_initial=True, dtype="int32")
    assert got.dtype == np.int32 and got.tolist() == [0, 3, 3, 10, 11]
    x = np.ones(11, np.int32)
    assert cuscan.scan(x, offsets=got).tolist() == [1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 1]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "uint64", "float16", "float32", "float64"])
def test_keys_of_any_real_dtype(dtype):
    keys = np.array([0, 0, 1, 1, 1, 0, 1], dtype)
    assert cuscan.scan(np.ones(7, int), keys=keys).tolist() == [1, 2, 1, 2, 3, 1, 1]


def test_keys_differ_in_their_last_bit():
    for keys in ([2**62, 2**62 + 1], [1.0, np.nextafter(1, 2)]):
        assert cuscan.scan(np.ones(2), keys=np.array(keys)).tolist() == [1, 1]
    assert cuscan.scan(np.ones(2), keys=np.array([0.0, -0.0])).tolist() == [1, 2]  # equal numbers with different bits


def test_one_dimensional_keys_lie_along_the_axis():
    x = np.ones((4, 3), int)
    assert cuscan.scan(x, axis=0, keys=np.array([0, 0, 1, 1])).T.tolist() == [[1, 2, 1, 2]] * 3
    square = np.ones((3, 3), int)
    assert cuscan.scan(square, axis=0, keys=np.array([0, 1, 1])).T.tolist() == [[1, 1, 2]] * 3
    assert cuscan.scan(x, axis=0, keys=np.array([[0], [0], [1], [1]])).T.tolist() == [[1, 2, 1, 2]] * 3


def test_nothing_leaks_from_segment_to_segment():
    x = np.array([1e30, np.inf, np.nan, -np.inf, 1.0, 2.0**-100, 3.0], np.float32)
    for segments in ({"offsets": np.array([0, 4, 7])}, {"keys": np.arange(7) > 3}, {"reset": np.arange(7) == 4}):
        for op, expected in (("add", [1, 1, 4]), ("mul", [1, 2.0**-100, 3 * 2.0**-100]), ("max", [1, 1, 3])):
            assert cuscan.scan(x, op, **segments)[4:].tolist() == expected


def test_the_error_of_a_segment_is_its_own():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20_000).astype(np.float32) * np.float32(10.0) ** rng.integers(-12, 12, 20_000)
    x = x.astype(np.float32)
    offsets = draw_offsets(rng, x.size, 400)
    got = cuscan.scan(x, offsets=offsets).astype("f8")
    for begin, end in itertools.pairwise(offsets):
        exact, magnitude = np.cumsum(x[begin:end], dtype="f8"), np.cumsum(np.abs(x[begin:end]), dtype="f8")
        steps = np.minimum(np.arange(1, end - begin + 1), 64)
        assert (np.abs(got[begin:end] - exact) <= np.finfo("f4").eps * steps * magnitude).all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("long", [0, 1000, 50_000, 70_001])
def test_skewed_lengths(long, reverse):
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 3, 70_002)
    lengths[rng.random(lengths.size) < 0.5] = 0
    lengths[long] = 2**18 + 5
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    x = rng.integers(-100, 100, offsets[-1], np.int32)
    totals = np.concatenate([[0], np.cumsum(x[::-1] if reverse else x)])
    ends = (offsets[-1] - offsets)[::-1] if reverse else offsets
    expected = totals[1:] - np.repeat(totals[ends[:-1]], np.diff(ends))
    expected = expected[::-1] if reverse else expected
    np.testing.assert_array_equal(cuscan.scan(x, offsets=offsets, reverse=reverse), expected)
    keys = np.repeat(np.arange(lengths.size), lengths)
    np.testing.assert_array_equal(cuscan.scan(x, keys=keys, reverse=reverse), expected)
    reset = np.diff(keys, append=-1) != 0 if reverse else np.diff(keys, prepend=-1) != 0
    np.testing.assert_array_equal(cuscan.scan(x, reset=reset, reverse=reverse), expected)


@pytest.mark.parametrize("name, op", [("cumsum", "add"), ("cumprod", "mul"), ("cummax", "max"), ("cummin", "min")])
def test_the_short_names_take_segments(name, op):
    x = np.array([3, 1, 2, 5, 4])
    for segments in (
        {"offsets": np.array([0, 2, 5])},
        {"keys": np.array([1, 1, 2, 2, 2])},
        {"reset": np.arange(5) == 2},
    ):
        expected = [*itertools.accumulate([3, 1], STEPS[op]), *itertools.accumulate([2, 5, 4], STEPS[op])]
        assert getattr(cuscan, name)(x, **segments).tolist() == expected


def test_no_elements():
    x = np.empty((2, 0))
    for offsets in ([0], [0, 0, 0]):
        assert cuscan.scan(x, offsets=np.array(offsets)).shape == (2, 0)
        got = cuscan.scan(x, offsets=np.array(offsets), include_initial=True, initial=3)
        assert got.tolist() == [[3], [3]]
    assert cuscan.scan(x, reset=np.empty((2, 0), bool)).shape == (2, 0)
    assert cuscan.scan(x, keys=np.empty(0)).shape == (2, 0)


def test_in_place_and_untouched_segments():
    x, reset = np.arange(1, 7), np.arange(6) % 2 == 0
    before = reset.copy()
    assert cuscan.scan(x, reset=reset, out=x) is x
    assert x.tolist() == [1, 3, 3, 7, 5, 11] and (reset == before).all()


# ---- errors -------------------------------------------------------------------------------------


def refused(kind, *texts, x=None, **call):
    with pytest.raises(kind) as caught:
        cuscan.scan(np.arange(6.0) if x is None else x, **call)
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in {str(caught.value)!r}"


GOOD = {"reset": np.zeros(6, bool), "offsets": np.array([0, 6]), "keys": np.zeros(6, int)}


@pytest.mark.parametrize("names", [*itertools.combinations(KINDS, 2), KINDS], ids=str)
def test_two_kinds_of_segments(names):
    refused(ScanValueError, *names[:2], **{name: GOOD[name] for name in names})


@pytest.mark.parametrize(
    "offsets",
    [[], [1, 6], [0, 5], [0, 7], [-1, 6], [0, 4, 3, 6], [0, 2**40, 6], [0, -(2**40), 6], [0], [6, 0], [[0, 6]], 0],
    ids=str,
)
@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_that_are_no_partition(offsets, reverse):
    refused(ScanValueError, "offsets", offsets=np.array(offsets, np.int64), reverse=reverse)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint32", "uint64", "float64", "bool"])
def test_offsets_of_another_dtype(dtype):
    refused(ScanTypeError, "offsets", dtype, offsets=np.array([0, 1], dtype), x=np.ones(1))


def test_resets_and_keys_of_another_shape_or_dtype():
    for shape in [(5,), (2, 6), (7, 1)]:
        refused(ScanValueError, "reset", reset=np.zeros(shape, bool))
        refused(ScanValueError, "keys", keys=np.zeros(shape, int))
    refused(ScanValueError, "keys", keys=np.zeros(5, int), x=np.ones((6, 4)), axis=0)
    for dtype in ("uint8", "int64", "float32"):
        refused(ScanTypeError, "reset", dtype, reset=np.zeros(6, dtype))
    for dtype in ("complex64", "U1", "object"):
        refused(ScanTypeError, "keys", keys=np.zeros(6, dtype))


@pytest.mark.parametrize("name", ["reset", "keys"])
def test_segments_that_are_no_arrays(name):
    refused(ScanTypeError, name, "list", f"np.asarray({name})", **{name: GOOD[name].tolist()})


@pytest.mark.parametrize("kind", [list, tuple])
def test_offsets_may_be_listed(kind):
    x, offsets = np.ones(6), GOOD["offsets"]
    expected = cuscan.cumsum(x, offsets=offsets)
    np.testing.assert_array_equal(cuscan.cumsum(x, offsets=kind(offsets.tolist())), expected)
    np.testing.assert_array_equal(
        cuscan.linear_recurrence(1, x, offsets=kind(offsets.tolist())), cuscan.linear_recurrence(1, x, offsets=offsets)
    )
    for wrong in ([0.0, 6.0], ["0", "6"], [[0], [3, 6]], [0, None], [True, False]):
        refused(ScanTypeError, "offsets must be integers; got", offsets=kind(wrong))
    refused(ScanValueError, "offsets", "one axis", offsets=kind([]))
    refused(ScanValueError, "offsets must begin with 0", offsets=kind([1, 6]))


def test_offsets_may_be_a_range():
    assert cuscan.cumsum(np.ones(6), offsets=range(0, 7, 3)).tolist() == [1, 2, 3, 1, 2, 3]
    refused(ScanValueError, "offsets must begin with 0", offsets=range(1, 7))


def test_offsets_of_tensors_may_be_listed():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert cuscan.cumsum(torch.ones(6), offsets=[0, 2, 6]).tolist() == [1, 2, 1, 2, 3, 4]


def test_validate_is_true_or_false():
    refused(ScanTypeError, "validate", offsets=GOOD["offsets"], validate=1)
    assert cuscan.scan(np.ones(6), offsets=GOOD["offsets"], validate=True)[-1] == 6


def test_out_overlaps_the_segments():
    x, reset = np.ones(6, bool), np.zeros(6, bool)
    refused(ScanValueError, "out", "reset", x=x, reset=reset, out=reset, dtype=bool)


# ---- torch on the CPU ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_tensors_of_torch(kind, reverse):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(3)
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        x = rng.integers(0, 3, (4, 50))
        segments = segments_for(rng, kind, x.shape, 1)
        begins = restarts(x.shape, 1, reverse, **segments)
        expected = textbook.scan(x, operator.add, 0, reverse=reverse, initial=1, begins=begins)
        tensors = {name: torch.from_numpy(value) for name, value in segments.items()}
        got = cuscan.scan(torch.from_numpy(x).to(dtype), reverse=reverse, initial=1, **tensors)
        assert isinstance(got, torch.Tensor) and got.tolist() == expected.tolist()


@pytest.mark.parametrize("validate", [False, True])
def test_offsets_of_torch_are_checked(validate):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.ones(6)
    for bad in ([1, 6], [0, 7], [0, 4, 3, 6], [0]):
        offsets = torch.tensor(bad, dtype=torch.int32)
        refused(ScanValueError, "offsets", x=x, offsets=offsets, validate=validate)
        with pytest.raises(ScanValueError, match="offsets"):
            cuscan.linear_recurrence(0.5, x, offsets=offsets, validate=validate)
    got = cuscan.scan(x, offsets=torch.tensor([0, 2, 2, 6]), validate=validate)
    assert got.tolist() == [1, 2, 1, 2, 3, 4]


@pytest.mark.parametrize("name", KINDS)
def test_arrays_of_two_libraries(name):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    refused(ScanTypeError, name, "torch", **{name: torch.from_numpy(GOOD[name])})


@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "every second"])
@pytest.mark.parametrize("part", [1, 1j], ids=["real", "imaginary"])
def test_both_parts_of_complex_numbers_are_looked_at(part, step):
    """A cleared infinity leaves no trace, and a segment may start with -0, which 0 + -0 is not."""
    reset = np.arange(6) == 3
    for number in (-0.0, np.inf):
        x = np.full(12, 1 + 1j, np.complex64)[::step][:6]
        place = 3 if number == 0 else 1
        setattr(x[place : place + 1], "real" if part == 1 else "imag", np.float32(number))
        for _ in range(3):  # the later calls repeat a recording
            got = cuscan.cumsum(x, reset=reset)
            assert same_bits(got[3:], np.cumsum(x[3:])), number
