"""The paths of CPU arrays: similar calls are looked up, exact operators accumulate, and the bits stay the same."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools

import numpy as np
import pytest
from host_cases import same_bits
from selection import covering, each

import cuscan
from cuscan import kept
from cuscan.backends import host, lines, repeats, short
from cuscan.interop.numpy import LIBRARY
from cuscan.kept import Table

SIZES = [0, 1, 2, 31, 100, 129, 700, 3000]


@pytest.fixture
def in_order(monkeypatch):
    """Makes every scan follow the defined order step by step: no `accumulate`, no short lines, no gates, none tame."""

    def scan(function, *arguments, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(repeats, "calls", Table())
            for name in ("exact", "short", "sum_of_segments", "extremum_of_segments", "gated", "tamed"):
                patch.setattr(host, f"is_{name}", lambda *_: False)
            return function(*arguments, **keywords)

    return scan


@pytest.fixture
def no_order(monkeypatch):
    """Makes scans fail that follow the defined order step by step."""
    monkeypatch.setattr(repeats, "calls", Table())
    monkeypatch.setattr(host, "scan_lines", None)


def test_a_like_call_is_looked_up(monkeypatch):
    x, y = np.arange(100.0), np.ones(100)
    operator = cuscan.Operator("plus", "earlier + later", 0, numpy=np.add)
    calls = [
        cuscan.cumsum,
        lambda z: cuscan.cummax(z, reverse=True, initial=float(z[0]), mask=z > 3),
        lambda z: cuscan.linear_recurrence(0.5, z, keys=z, return_last=True),
        lambda z: cuscan.scan(z, operator, out=np.empty(100)),
    ]
    for call in calls:
        call(x)
    monkeypatch.setattr(host, "make_request", None)
    for call in calls:
        call(y)
    with pytest.raises(TypeError):
        cuscan.cumsum(np.ones(101))


def test_values_are_no_part_of_what_is_kept():
    x = np.ones(3)
    assert [cuscan.cumsum(x, initial=i).tolist()[0] for i in (1, 2, 5)] == [2, 3, 6]
    one, other = (cuscan.Operator("f", "earlier", 0, numpy=function) for function in (np.add, np.multiply))
    assert cuscan.scan(2 * x, one).tolist() == [2, 4, 6] and cuscan.scan(2 * x, other).tolist() == [2, 4, 8]


def test_no_more_than_so_many_calls_are_kept(monkeypatch):
    """Only the oldest call is dropped."""
    monkeypatch.setattr(repeats, "calls", Table())
    monkeypatch.setattr(LIBRARY, "_kinds", Table())
    monkeypatch.setattr(kept, "MOST", 3)
    for n in range(1, 9):
        assert cuscan.cumsum(np.ones(n))[-1] == n
        assert len(repeats.calls) <= 3
    monkeypatch.setattr(host, "make_request", None)
    assert [cuscan.cumsum(np.ones(n))[-1] for n in (6, 7, 8)] == [6, 7, 8]


@pytest.mark.usefixtures("no_order")
@pytest.mark.parametrize("op", ["add", "mul", "min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64"])
def test_exact_operators_accumulate(op, dtype):
    x = np.random.default_rng(0).integers(0, 100, (3, 40)).astype(dtype)
    for axis, reverse, exclusive in itertools.product((0, 1), (False, True), (False, True)):
        cuscan.scan(x, op, axis=axis, reverse=reverse, exclusive=exclusive, mask=x > 50, initial=1)


@pytest.mark.usefixtures("no_order")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_extrema_accumulate_but_for_zeros_of_both_signs(op, dtype):
    x = np.arange(-3000, 3000).astype(dtype)
    cuscan.scan(x, op)
    x[7] = -0.0
    with pytest.raises(TypeError):
        cuscan.scan(x, op)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32"])
@pytest.mark.parametrize("values", ["plain", "zeros of both signs", "NaN", "infinite"])
def test_positions_accumulate(dtype, values, in_order, monkeypatch):
    rng = np.random.default_rng(7)
    for function, ties, reverse in itertools.product((cuscan.cummin, cuscan.cummax), ("first", "last"), (False, True)):
        x = with_special(rng, (2, 40, 3), dtype, VALUES[values])
        x[:, 20:] = x[:, :20]
        for axis in (-1, 0, 1):
            call = {"axis": axis, "reverse": reverse, "return_indices": True, "ties": ties}
            expected = in_order(function, x, **call)
            with monkeypatch.context() as patch:
                if values == "plain" or np.dtype(dtype).kind != "f":
                    patch.setattr(host, "scan_lines", None)
                patch.setattr(repeats, "calls", Table())
                assert all(map(same_bits, function(x, **call), expected))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_short_scans_make_the_calls_of_the_second(dtype, monkeypatch):
    x, flags = np.ones((3, 100), dtype), np.arange(100) % 9 == 0
    calls = [{}, {"op": "mul"}, {"reverse": True}, {"exclusive": True}, {"include_initial": True}, {"initial": 2}]
    calls += [{"mask": flags}, {"skipna": True}, {"reset": flags}, {"keys": np.arange(100)}, {"return_carry": True}]
    scans = [functools.partial(cuscan.scan, array, **call) for array in (x, x[0]) for call in calls]
    scans.append(functools.partial(cuscan.cumsum, x.T, 0))
    scans.append(functools.partial(cuscan.linear_recurrence, x, x, initial=x[:, 0], return_last=True))
    scans.append(functools.partial(cuscan.linear_recurrence, 0.5, x, offsets=[0, 7, 7, 100], initial=2))
    for scan in scans * 2:
        scan()
    monkeypatch.setattr(host, "scan_lines", None)
    for scan in scans:
        scan()
    with pytest.raises(TypeError):
        cuscan.scan(np.ones(5000, dtype))


DTYPES = {
    "bool": ["add", "mul", "min", "xor"],
    "int8": ["add", "mul", "max", "xor"],
    "uint32": ["add", "min", "xor"],
    "int64": ["mul", "max"],
    "float16": ["add", "mul", "min", "max"],
    "float32": ["add", "mul", "min", "max"],
    "float64": ["add"],
    "complex64": ["add", "mul"],
}
CALLS = [{}, {"exclusive": True, "initial": 1}, {"include_initial": True, "reverse": True}]


@pytest.mark.parametrize("dtype, op", [(dtype, op) for dtype, ops in DTYPES.items() for op in ops])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_all_ways_give_the_same_bits(op, dtype, call, in_order):
    rng = np.random.default_rng(1)
    for n in SIZES:
        x = (3 * rng.normal(size=(4, n))).astype(dtype)
        for array, axis in ((x, 1), (x.T, 0), (x[:, ::2], 1), (x, 0)):
            got = cuscan.scan(array, op, axis=axis, skipna=True, **call)
            assert same_bits(got, in_order(cuscan.scan, array, op, axis=axis, skipna=True, **call))


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0], [1.0, -0.0, 0.0, -1.0, np.nan], [-0.0, -0.0]])
def test_negative_zero_is_less_than_zero(op, zeros):
    sign = 1 if op == "min" else 0  # bit of the zero that is kept
    kept = []
    for value in np.array(zeros):
        last = kept[-1] if kept else value
        better = value < last if op == "min" else value > last
        better |= value != value or (value == last and np.signbit(value) == sign)
        kept.append(value if better and last == last else last)
    assert same_bits(cuscan.scan(np.array(zeros), op), np.array(kept))
    for initial in (0.0, -0.0):
        got = cuscan.scan(np.array([-initial]), op, initial=initial)
        assert same_bits(got, np.array([-0.0 if op == "min" else 0.0]))


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_sums_of_segments_accumulate(dtype, reverse, masked, in_order, monkeypatch):
    rng = np.random.default_rng(2)
    for n, axis in itertools.product((1, 5, 1000), (0, 1)):
        x = rng.integers(-100 * (dtype != "uint64"), 100, (3, n)).astype(dtype)
        call = {"axis": axis, "reverse": reverse, "dtype": dtype, "reset": rng.random(x.shape) < 0.2}
        call |= {"mask": rng.random(x.shape) < 0.7} if masked else {}
        expected = in_order(cuscan.cumsum, x, **call)
        with monkeypatch.context() as patch:
            patch.setattr(repeats, "calls", Table())
            patch.setattr(host, "is_short", lambda *_: False)
            patch.setattr(host, "scan_lines", None)
            assert same_bits(cuscan.cumsum(x, **call), expected)


def test_results_in_place_are_those_in_new_arrays():
    rng = np.random.default_rng(3)
    for dtype, n, op in itertools.product(("int32", "float32", "complex128"), (5, 300, 5000), ("add", "mul")):
        x = rng.integers(-2, 3, (2, n)).astype(dtype)
        for call in ({}, {"exclusive": True}, {"reverse": True, "initial": 2}):
            y = x.copy()
            expected = cuscan.scan(x, op, dtype=dtype, **call)
            assert cuscan.scan(y, op, dtype=dtype, out=y, **call) is y and same_bits(y, expected)


SHORT_DTYPES = ["bool", "int8", "uint32", "int64", "float16", "float32", "float64", "complex64", "complex128"]
SHORT_SIZES = [1, 2, 3, 31, 33, 64, 65, 100, 127, 128, 129, 255, 256, 300]
SPECIAL = [[], [0.0], [0.0, -0.0], [np.nan], [np.inf, -np.inf], [3e38, -3e38]]


def short_call(rng, op, x, axis):
    """Random flags for a scan of an array, or for a recurrence."""
    n, others, call = x.shape[axis], np.delete(x.shape, axis), {"axis": axis, "reverse": rng.random() < 0.4}
    if op != "recurrence":
        call |= {name: bool(rng.random() < 0.3) for name in ("exclusive", "include_initial", "skipna")}
        call |= {"mask": rng.random(x.shape) < 0.6} if rng.random() < 0.3 else {}
    else:
        call["return_last"] = bool(rng.random() < 0.4)
    segments = rng.random()
    if segments < 0.3:
        call["reset"] = rng.random(x.shape) < 0.1
    elif segments < 0.4:
        call["keys"] = np.sort(rng.integers(0, 1 + n // 5, n))
    elif segments < 0.5:
        call["offsets"] = np.sort(np.append(rng.integers(0, n + 1, n // 7), [0, n]))
    if rng.random() < 0.4:
        by_line = op == "recurrence" and rng.random() < 0.5
        call["initial"] = rng.normal(size=others).astype(x.dtype) if by_line else int(rng.integers(0, 2))
    return call


UNDEFINED = {"add": "", "mul": "", "max": "c", "user": "bc", "xor": "fc", "recurrence": "biu"}  # kinds of dtypes
SHORT = [(op, dtype) for op in UNDEFINED for dtype in SHORT_DTYPES if np.dtype(dtype).kind not in UNDEFINED[op]]


@pytest.mark.parametrize("op, dtype", covering(SHORT, each))
def test_short_lines_give_the_same_bits(op, dtype, in_order):
    """So do the second of three calls, which records NumPy calls, and the third, which replays them."""
    rng = np.random.default_rng([9, SHORT.index((op, dtype))])
    function = cuscan.Operator("plus", "earlier + later", 0, numpy=np.add) if op == "user" else op
    for _ in range(60):
        shape = [int(rng.choice([1, 3, 8])), int(rng.choice(SHORT_SIZES))]
        axis, special = int(rng.integers(2)), SPECIAL[rng.integers(len(SPECIAL))]
        x, a = (with_special(rng, shape[:: 1 if axis else -1], dtype, special) for _ in range(2))
        x = np.asfortranarray(x) if axis == 0 else x[0] if rng.random() < 0.4 else x
        axis = axis - 2 if x.ndim == 2 else -1
        call = short_call(rng, op, x, axis)
        if op == "recurrence":
            decay = 0.5 if rng.random() < 0.3 else np.broadcast_to(a[0] if x.ndim == 1 else a, x.shape)
            arguments = cuscan.linear_recurrence, decay, x
        else:
            arguments = cuscan.scan, x, function
        expected = in_order(*arguments, **call)
        for _ in range(3):
            got = arguments[0](*arguments[1:], **call)
            pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
            assert all(same_bits(*pair) for pair in pairs), (call, x.shape)


# ---- segments as gates -----------------------------------------------------------------------------------------------

GATED = {
    "add": ["int8", "uint64", "bool", "float16", "float32", "float64", "complex64"],
    "min": ["bool", "int16", "uint64", "float32"],
    "max": ["int8", "int64", "uint32", "float64"],
    "and": ["bool", "int32"],
    "or": ["uint8", "int64"],
    "xor": ["bool", "int16"],
}
VALUES = {
    "plain": [],
    "zeros": [0.0],
    "zeros of both signs": [0.0, -0.0],
    "infinite": [np.inf, -np.inf],
    "NaN": [np.nan],
    "overflow": [3e38, 3e38, -3e38],
}


def with_special(rng, shape, dtype, special):
    x = np.atleast_1d(30 * rng.normal(size=shape))
    if special and np.dtype(dtype).kind in "fc":
        places = rng.random(shape) < 0.1
        x[places] = rng.choice(special, places.sum())
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def small_decays(rng, shape, dtype, special):
    with np.errstate(all="ignore"):
        return with_special(rng, shape, dtype, special) * np.array(0.02, dtype)


@pytest.mark.parametrize(
    "dtype, op, values",
    covering([(dtype, op, values) for op in GATED for dtype in GATED[op] for values in VALUES], each),
)
def test_segments_as_gates_give_the_same_bits(op, dtype, values, in_order):
    rng = np.random.default_rng(3)
    for n, share in ((1, 0.5), (70, 0.1), (3000, 0.5), (5000, 0.003)):
        x, reset = with_special(rng, (3, n), dtype, VALUES[values]), rng.random((3, n)) < share
        for array, flags, axis in ((x, reset, 1), (x.T.copy(), reset.T, 0)):
            for call in ({"reset": flags}, {"reset": flags, "reverse": True, "mask": array != 1, "skipna": True}):
                got = cuscan.scan(array, op, axis=axis, **call)
                assert same_bits(got, in_order(cuscan.scan, array, op, axis=axis, **call))
                if got.dtype == array.dtype:
                    place = array.copy()
                    assert same_bits(cuscan.scan(place, op, axis=axis, out=place, **call), got)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("values", VALUES)
def test_recurrences_with_gates_give_the_same_bits(dtype, values, in_order):
    rng = np.random.default_rng(4)
    for n, share in ((1, 0.5), (70, 0.1), (5000, 0.01)):
        b, reset = with_special(rng, (3, n), dtype, VALUES[values]), rng.random((3, n)) < share
        for a in (small_decays(rng, (3, n), dtype, VALUES[values]), 0.5):
            for call in ({}, {"initial": 2.0, "reverse": True}, {"initial": np.ones(3, dtype), "return_last": True}):
                got = cuscan.linear_recurrence(a, b, reset=reset, **call)
                expected = in_order(cuscan.linear_recurrence, a, b, reset=reset, **call)
                pairs = zip(got, expected, strict=True) if "return_last" in call else [(got, expected)]
                assert all(same_bits(*pair) for pair in pairs)


@pytest.mark.usefixtures("no_order")
def test_segments_take_gates_where_they_can(monkeypatch):
    """The way with selections takes more than twice as long: it is for segments that gates cannot express."""
    x, reset = np.arange(1.0, 100), np.arange(99) % 7 == 0
    seen = []
    monkeypatch.setattr(host, "is_short", lambda *_: False)
    monkeypatch.setattr(host, "scan_lines", lambda request, order, algebra, *_: seen.append(algebra.segmented))
    monkeypatch.setattr(host, "show_no_trace", lambda *_: True)
    for op in ("add", "max", "min"):
        cuscan.scan(x, op, reset=reset)
        cuscan.scan(x.astype(int), op, reset=reset, reverse=True)
    cuscan.linear_recurrence(x, x, reset=reset, initial=1.0)
    assert seen and not any(seen)
    cuscan.cumsum(x, reset=reset, exclusive=True)
    cuscan.cumsum(x, reset=reset, initial=1)
    assert seen and not any(seen)
    seen.clear()
    cuscan.cumprod(x, reset=reset)
    cuscan.cumsum(x, reset=reset, exclusive=True, include_initial=True)
    cuscan.cummax(np.append(x, np.nan), reset=np.append(reset, True))
    cuscan.cummax(x, reset=reset, initial=np.nan)
    assert seen == [True] * 4


def more_calls(op, dtype):
    """Calls that show more than the sums up to elements, with every kind of initial value."""
    kind = np.dtype(dtype).kind
    numbers = {"b": [0, 1], "i": [0, 5], "u": [0, 5], "c": [0.5]}.get(kind, [0.5, 0.0, -0.0, np.nan, np.inf, -np.inf])
    calls = [{"exclusive": True}, *[{"initial": number} for number in numbers]]
    calls += [{"initial": number, "exclusive": True, "reverse": True} for number in numbers]
    return [*calls, {"include_initial": True, "initial": numbers[-1]}, {"include_initial": True, "exclusive": True}]


@pytest.mark.parametrize("dtype, op", [(dtype, op) for op in GATED for dtype in GATED[op]])
def test_initial_values_and_starts_beside_gates(op, dtype, in_order, monkeypatch):
    rng = np.random.default_rng(5)
    for i, call in enumerate(more_calls(op, dtype)):
        values = list(VALUES.values())[i % len(VALUES)]
        x, reset = with_special(rng, (3, 70), dtype, values), rng.random((3, 70)) < 0.2
        monkeypatch.setattr(host, "is_short", lambda *_: False)
        for array, flags, axis in ((x, reset, 1), (x.T.copy(), reset.T, 0)):
            got = cuscan.scan(array, op, axis=axis, reset=flags, **call)
            assert same_bits(got, in_order(cuscan.scan, array, op, axis=axis, reset=flags, **call)), call


# ---- tame numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", VALUES)
def test_tame_numbers_give_the_same_bits(values, in_order):
    """Extrema with carries, with positions, and sums of exponentials, once and recorded."""
    rng = np.random.default_rng(6)
    for op, n in itertools.product(("max", "min", "first", "last", "logaddexp"), (100, 5000)):
        function = functools.partial(cuscan.scan, op=op)
        if op in ("first", "last"):
            function = functools.partial(cuscan.cummin, return_indices=True, ties=op)
        x = with_special(rng, (2, n), "float32", VALUES[values])
        reset = rng.random((2, n)) < 0.1
        for call in ({}, {"reset": reset}, {"mask": reset, "reverse": True}, {"exclusive": True, "skipna": True}):
            carry = None
            for _ in range(3):
                flags = {**call, "carry": carry, "return_carry": True}
                got, expected = function(x, **flags), in_order(function, x, **flags)
                assert all(map(same_bits, leaves(got), leaves(expected))), (op, n, flags)
                carry = got[-1]


def leaves(results):
    return [a for one in results for a in (one if isinstance(one, tuple) else (one,))]


def test_tame_numbers_select_nothing(monkeypatch):
    """Selections take several times as long."""
    seen = []
    monkeypatch.setattr(host, "is_short", lambda *_: False)
    monkeypatch.setattr(host, "FieldAlgebra", lambda *_, tame=False, gates=False: seen.append(tame))
    monkeypatch.setattr(host, "scan_lines", lambda *_: None)
    x = np.arange(1.0, 50)
    for call in (
        lambda x: cuscan.cummax(x, return_carry=True),
        lambda x: cuscan.cummin(x, return_indices=True, return_carry=True),
        cuscan.logcumsumexp,
    ):
        for number, tame in ((1, True), (np.nan, False), (-0.0, False), (np.inf, True)):
            call(np.append(x, number))
            assert seen.pop() is tame
    cuscan.cummax(x, return_indices=True, mask=x > 3)
    assert seen == [False]


# ---- pieces ----------------------------------------------------------------------------------------------------------


def test_bits_do_not_depend_on_how_much_passes_at_a_time(monkeypatch):
    rng = np.random.default_rng(5)
    for dtype, n in (("float64", 300_000), ("float32", 70_000), ("complex128", 40_000)):
        x = rng.normal(size=(1, n)).astype(dtype)
        reset = rng.random(x.shape) < 1e-4
        calls = [
            lambda x=x: cuscan.cumsum(x),
            lambda x=x: cuscan.cumsum(x.T.copy(), 0),
            lambda x=x: cuscan.linear_recurrence(0.999, x, return_carry=True)[0],
            lambda x=x, reset=reset: cuscan.cumprod(x, reset=reset, exclusive=True),
        ]
        whole = [call() for call in calls]
        for block in (1, 2**13, 2**22):
            monkeypatch.setattr(lines, "BLOCK", block)
            assert all(same_bits(call(), expected) for call, expected in zip(calls, whole, strict=True))
        monkeypatch.undo()


def test_the_buffer_of_numpy_is_as_it_was() -> None:
    """During a scan it is shorter than the rows of a step. Afterwards it is as before, even if the scan fails."""
    before, seen = np.getbufsize(), []

    def add(earlier, later):
        seen.append(np.getbufsize())
        if stops:
            raise RuntimeError
        return earlier + later

    op = cuscan.Operator("observed", "earlier + later", 0, numpy=add)
    for stops in (False, True):
        with pytest.raises(RuntimeError) if stops else contextlib.nullcontext():
            cuscan.scan(np.ones(5000), op)
        assert np.getbufsize() == before
    assert set(seen) == {lines.BUFFER}


def test_short_lines_of_many_threads_do_not_share_buffers():
    x = np.random.default_rng(6).normal(size=(8, 200, 100)).astype("float32")
    expected = [[cuscan.cumsum(row) for row in part] for part in x]

    def scan(part):
        return [cuscan.cumsum(row) for row in part]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for got, wanted in zip(pool.map(scan, x), expected, strict=True):
            assert all(map(same_bits, got, wanted))


def test_no_more_than_so_many_buffers_of_short_lines_are_kept(monkeypatch):
    monkeypatch.setattr(short, "_idle", Table())
    monkeypatch.setattr(short, "MOST_IDLE", 3)
    for n in range(1, 9):
        assert [cuscan.cumsum(np.ones(n))[-1] for _ in range(2)] == [n, n]
        assert len(short._idle) == min(n, 3)
    monkeypatch.setattr(short, "_Noting", None)
    assert [cuscan.cumsum(np.ones(n))[-1] for n in (6, 7, 8)] == [6, 7, 8]
