"""Carries on the launch path of `backends/cuda.py`: each array in its place, on arrays that claim to be on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import simulator

import cuscan

pytest.importorskip("cupy", reason="CuPy is not installed, and the launch path is built on it")
if not simulator.HAS_COMPILER:
    pytest.skip("g++, which compiles the simulated kernels, is missing", allow_module_level=True)
from fake_gpu import GpuArray, on_gpu, values

KEYS = values(5000, "int8") // 50
CALLS = {
    "sums": (cuscan.cumsum, [values((2, 5000))], {}),
    "keys of columns": (
        cuscan.cummin,
        [values((700, 3), "int32")],
        {"axis": 0, "keys": KEYS[:700], "mask": KEYS[:3] > 0},
    ),
    "positions": (cuscan.cummax, [values((2, 5000))], {"return_indices": True, "reverse": True}),
    "recurrence": (
        cuscan.linear_recurrence,
        [0.75, values((2, 5000))],
        {"offsets": np.array([0, 0, 900, 5000]), "return_last": True},
    ),
    "in place": (lambda x, **call: cuscan.scan(x, out=x, **call), [values((3, 900))], {"reverse": True}),
}


def parts(results):
    """All arrays, also those in nested tuples."""
    if isinstance(results, tuple):
        return [array for part in results for array in parts(part)]
    return [results]


def moved(value):
    if isinstance(value, tuple):
        return tuple(map(moved, value))
    return on_gpu(value) if isinstance(value, np.ndarray) else value


def check(function, arrays, **call):
    """Compare a call with the host's results; return the host's carry."""
    want = function(*(a.copy() if isinstance(a, np.ndarray) else a for a in arrays), **call)
    got = function(*map(moved, arrays), **{name: moved(value) for name, value in call.items()})
    for one, other in zip(parts(got), parts(want), strict=True):
        assert isinstance(one, GpuArray) and one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(np.asarray(one), other)
    return want[-1] if isinstance(want, tuple) else want


@pytest.mark.parametrize("name", CALLS)
def test_chunks_have_the_bits_of_the_host(gpu, name):
    function, arrays, call = CALLS[name]
    carry = check(function, arrays, return_carry=True, **call)
    again = check(function, arrays, return_carry=True, carry=carry, **call)
    fields = {len(config.carry_in) for config in gpu.loads if config.family != "segment_starts"}
    assert len(parts(carry)) == len(parts(again)) == max(fields)


def test_totals(gpu):
    x = values((2, 5000))
    check(cuscan.total, [x], keys=KEYS)
    check(cuscan.total, [x], keys=KEYS, carry=cuscan.total(x, keys=KEYS))
    config = gpu.loads[-1]
    assert not config.results[0].present and len(gpu.launches[-1][2]) == 1 + 1 + 2 + 2 + 1  # the last is the workspace


def test_of_nothing(gpu):
    for shape in ((2, 0), (0, 5)):
        for call in ({}, {"initial": 3}, {"include_initial": True}):
            check(cuscan.scan, [values(shape)], return_carry=True, **call)
        check(cuscan.total, [values(shape)])
    check(lambda x, **call: cuscan.scan(x, "max", **call), [values((2, 0))], return_carry=True, carry=values(2))
    check(cuscan.linear_recurrence, [0.5, values((2, 0))], initial=values(2), return_last=True, return_carry=True)


def test_a_carry_of_another_device_is_refused(gpu):
    with pytest.raises(ValueError, match="carry is on cuda:1 and x on cuda:0"):
        cuscan.scan(on_gpu(values((2, 9))), carry=on_gpu(np.zeros(2), 1))
