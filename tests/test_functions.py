"""The named functions: how they are called, and that errors use their names."""

from __future__ import annotations

import inspect
import operator

import numpy as np
import pytest

import cuscan
from cuscan import ScanTypeError, ScanValueError

X = np.array([[3, 1, 4], [1, 5, 9]])
NAMED = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "nancumsum": np.nancumsum,
    "nancumprod": np.nancumprod,
    "cummax": lambda x, axis: np.maximum.accumulate(x.ravel() if axis is None else x, axis or 0),
    "cummin": lambda x, axis: np.minimum.accumulate(x.ravel() if axis is None else x, axis or 0),
}
SPELLED = [*NAMED, "logcumsumexp", "scan", "linear_recurrence"]
COMMON = {"axis", "dim", "reverse", "reset", "offsets", "keys", "initial", "carry", "validate", "dtype"}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("axis", [0, 1, -2, None])
def test_the_axis_is_the_second_argument(name, axis):
    expected = NAMED[name](X, axis=axis)
    np.testing.assert_array_equal(getattr(cuscan, name)(X, axis), expected)
    np.testing.assert_array_equal(getattr(cuscan, name)(X, axis=axis), expected)
    if axis is not None:
        np.testing.assert_array_equal(getattr(cuscan, name)(X, dim=axis), expected)


def test_dim_is_axis_everywhere():
    np.testing.assert_array_equal(cuscan.scan(X, "max", dim=0), cuscan.scan(X, "max", axis=0))
    floats = X.astype(float)
    np.testing.assert_array_equal(
        cuscan.linear_recurrence(0.5, floats, dim=0), cuscan.linear_recurrence(0.5, floats, axis=0)
    )
    np.testing.assert_array_equal(cuscan.total(X, dim=0), [4, 6, 13])
    np.testing.assert_array_equal(cuscan.cumsum(X, dim=None), cuscan.cumsum(X))


@pytest.mark.parametrize("axis", [-1, 0, None])
def test_axis_and_dim_exclude_each_other(axis):
    for function in (cuscan.cumsum, cuscan.scan, lambda x, **axes: cuscan.linear_recurrence(0.5, x, **axes)):
        with pytest.raises(ScanTypeError, match=f"^axis={axis} and dim=1 are the same argument; pass one"):
            function(X.astype(float), axis=axis, dim=1)


@pytest.mark.parametrize("name", SPELLED)
def test_every_keyword_is_spelled_out(name):
    parameters = inspect.signature(getattr(cuscan, name)).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert {*COMMON, "return_carry", "out"} <= set(parameters)
    assert ("skipna" in parameters) == (name not in ("nancumsum", "nancumprod", "linear_recurrence"))
    assert repr(parameters["axis"].default) == "-1"
    by_position = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_position == {"scan": ["x", "op"], "linear_recurrence": ["a", "b"]}.get(name, ["x", "axis"])


def test_a_total_takes_what_has_no_part_in_results():
    assert set(inspect.signature(cuscan.scan).parameters) - set(inspect.signature(cuscan.total).parameters) == {
        "exclusive",
        "include_initial",
        "return_carry",
        "out",
    }


@pytest.mark.parametrize("name", [*SPELLED, "total"])
def test_what_is_spelled_out_is_taken(name):
    """Every keyword, at its default, and no other keyword."""
    function = getattr(cuscan, name)
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    arrays = [np.ones(3)] * (2 if name == "linear_recurrence" else 1)
    np.testing.assert_array_equal(function(*arrays, **defaults), function(*arrays))
    for keyword in {"revers", "skipna", "op"} - {*defaults}:
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument '{keyword}'$"):
            function(*arrays, **{keyword: True})


@pytest.mark.parametrize("name", [*SPELLED, "total"])
def test_flags_are_off_by_default(name):
    assert not any(p.default is True for p in inspect.signature(getattr(cuscan, name)).parameters.values())


def test_flattened_arrays_take_what_they_took():
    mask = X > 2
    out = np.empty(6, X.dtype)
    assert cuscan.cumsum(X, None, mask=mask, out=out) is out
    assert out.tolist() == [3, 3, 7, 7, 12, 21]
    assert cuscan.cumsum(X, None, reset=mask).tolist() == [3, 4, 4, 5, 5, 9]
    assert cuscan.cumsum(X, None, keys=X, offsets=None).tolist() == [3, 1, 4, 1, 5, 9]
    assert cuscan.cumsum(X.T, None).tolist() == [3, 4, 5, 10, 14, 23]  # C order, as in NumPy
    assert cuscan.cumsum(np.array(5), None).tolist() == [5]
    values, places = cuscan.cummax(X, None, return_indices=True)
    assert (values.tolist(), places.tolist()) == ([3, 3, 4, 4, 5, 9], [0, 0, 2, 2, 4, 5])
    *_, carry = cuscan.cummax(X, None, return_indices=True, return_carry=True)
    assert [field.tolist() for field in carry] == [9, 5, 6]
    assert cuscan.cumsum(X, None, carry=np.array(10)).tolist() == [13, 14, 18, 19, 24, 33]
    with pytest.raises(ScanTypeError, match=r"^x must be"):
        cuscan.cumsum([1, 2], None)
    with pytest.raises(ScanValueError, match=r"mask of shape"):
        cuscan.cumsum(X, None, mask=mask[0])


def test_tensors_are_flattened():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert cuscan.cumsum(torch.tensor(X), axis=None).tolist() == [3, 4, 8, 9, 14, 23]


OTHER_NAMES = {
    "add": ["sum", np.add, operator.add],
    "mul": ["prod", np.multiply, operator.mul],
    "min": [np.minimum, min],
    "max": [np.maximum, max],
    "and": [np.bitwise_and, operator.and_],
    "or": [np.bitwise_or, operator.or_],
    "xor": [np.bitwise_xor, operator.xor],
    "logaddexp": [np.logaddexp],
}


@pytest.mark.parametrize("library", ["torch", "cupy", "jax.numpy"])
@pytest.mark.parametrize("name", OTHER_NAMES)
def test_operators_have_the_names_of_each_library(name, library):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    functions = [getattr(module, f.__name__) for f in OTHER_NAMES[name] if isinstance(f, np.ufunc)]
    functions += [module.mul] if (name, library) == ("mul", "torch") else []
    x = X.astype(float) if name == "logaddexp" else X
    for function in functions:
        np.testing.assert_array_equal(cuscan.scan(x, function), cuscan.scan(x, name))
    with pytest.raises(ScanValueError, match=r"^op must be one of 'add', .* such as np\.add"):
        cuscan.scan(x, module.subtract)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_operators_have_other_names(name):
    x = X.astype(float) if name == "logaddexp" else X
    for other in OTHER_NAMES[name]:
        got, expected = cuscan.scan(x, other, axis=0), cuscan.scan(x, name, axis=0)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
