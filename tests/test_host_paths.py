"""Which way arrays on the CPU go: like calls are looked up, exact operators accumulate, and the bits stay the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from host_cases import same_bits

import cuscan
from cuscan import kept
from cuscan.backends import host

SIZES = [0, 1, 2, 31, 100, 129, 700, 3000]


@pytest.fixture
def in_order(monkeypatch):
    """Every scan takes the defined order: neither `accumulate` nor short lines."""

    def scan(function, *arguments, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(host, "_calls", {})
            for name in ("is_exact", "_is_short", "is_sum_of_segments"):
                patch.setattr(host, name, lambda *_: False)
            return function(*arguments, **keywords)

    return scan


@pytest.fixture
def no_order(monkeypatch):
    """The defined order must not be walked."""
    monkeypatch.setattr(host, "_calls", {})
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
    """The oldest goes, and no other."""
    monkeypatch.setattr(host, "_calls", {})
    monkeypatch.setattr(kept, "MOST", 3)
    for n in range(1, 9):
        assert cuscan.cumsum(np.ones(n))[-1] == n
        assert len(host._calls) <= 3
    monkeypatch.setattr(host, "make_request", None)
    assert [cuscan.cumsum(np.ones(n))[-1] for n in (6, 7, 8)] == [6, 7, 8]


@pytest.mark.usefixtures("no_order")
@pytest.mark.parametrize("op", ["add", "mul", "min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64"])
def test_exact_operators_accumulate(op, dtype):
    x = np.random.default_rng(0).integers(0, 100, (3, 40)).astype(dtype)
    for axis, reverse, exclusive in itertools.product((0, 1), (False, True), (False, True)):
        cuscan.scan(x, op, axis=axis, reverse=reverse, exclusive=exclusive, mask=x > 50, initial=1)


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
def test_the_first_of_zeros_of_both_signs_is_kept(op, zeros):
    x = np.array(zeros)
    kept = []
    for value in x:
        last = kept[-1] if kept else value
        better = value < last if op == "min" else value > last
        kept.append(value if better or (value != value and last == last) or last is value else last)
    assert same_bits(cuscan.scan(x, op), np.array(kept))
    for initial in (0.0, -0.0):
        got = cuscan.scan(np.array([-initial]), op, initial=initial)
        assert same_bits(got, np.array([initial]))


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
