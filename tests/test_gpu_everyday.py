"""What a user types every day, on a GPU: arguments in their other spellings, and errors that say what to do."""

from __future__ import annotations

import operator
import pickle

import numpy as np
import pytest
from gpu import LIBRARIES, Call, check_call, need, numbers

import cuscan
from cuscan import ScanTypeError, ScanValueError

pytestmark = pytest.mark.gpu
both_libraries = pytest.mark.parametrize("name", LIBRARIES)

X = numbers((40, 70), "int32")
FUNCTIONS = ["cumsum", "cumprod", "nancumsum", "nancumprod", "cummax", "cummin"]
OTHER_NAMES = {
    "add": ["sum", np.add, operator.add],
    "mul": ["prod", np.multiply, operator.mul],
    "max": [np.maximum, max],
    "xor": [np.bitwise_xor, operator.xor],
}


def shown(function, *arguments, **keywords):
    """What an error says."""
    with pytest.raises((ScanTypeError, ScanValueError)) as caught:
        function(*arguments, **keywords)
    return str(caught.value)


@both_libraries
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_axis_by_position_as_dim_and_none(name, function):
    function = getattr(cuscan, function)
    (expected,) = check_call(name, Call(function, (X,), {"axis": 0}))
    for call in (Call(function, (X, 0)), Call(function, (X,), {"dim": 0}), Call(function, (X, -2))):
        np.testing.assert_array_equal(check_call(name, call)[0], expected)
    (flat,) = check_call(name, Call(function, (X, None)))
    (same,) = check_call(name, Call(function, (X.reshape(-1),)))
    np.testing.assert_array_equal(flat, same)


@both_libraries
@pytest.mark.parametrize("op", OTHER_NAMES)
def test_operators_by_other_names(name, op):
    (expected,) = check_call(name, Call(cuscan.scan, (X, op)))
    for other in OTHER_NAMES[op]:
        np.testing.assert_array_equal(check_call(name, Call(cuscan.scan, (X, other)))[0], expected)


@both_libraries
@pytest.mark.parametrize("kind", [list, tuple])
def test_offsets_may_be_listed(name, kind):
    offsets = np.array([0, 7, 7, 30, 70])
    (expected,) = check_call(name, Call(cuscan.cumsum, (X,), {"offsets": offsets}))
    x = need(name).device(X)
    got = cuscan.cumsum(x, offsets=kind(offsets.tolist()))
    assert need(name).owns(got)
    np.testing.assert_array_equal(got.get() if name == "cupy" else got.cpu().numpy(), expected)
    assert "offsets must begin with 0" in shown(cuscan.cumsum, x, offsets=kind([1, 70]), validate=True)


@both_libraries
def test_initial_may_be_an_array_without_dimensions(name):
    (expected,) = check_call(name, Call(cuscan.cumsum, (X,), {"initial": 3}))
    np.testing.assert_array_equal(check_call(name, Call(cuscan.cumsum, (X,), {"initial": np.array(3)}))[0], expected)


@both_libraries
@pytest.mark.parametrize("flags", ["mask", "reset"])
def test_flags_of_one_dimension(name, flags):
    """Along the scanned axis or the last, by their length; where it is that of both, an error has both spellings."""
    for axis, length in ((0, 40), (0, 70), (1, 70)):
        some = np.random.default_rng(length).random(length) < 0.4
        wide = some[:, None] if length == 40 else some
        whole = np.ascontiguousarray(np.broadcast_to(wide, X.shape))
        (expected,) = check_call(name, Call(cuscan.cumsum, (X, axis), {flags: whole}))
        np.testing.assert_array_equal(check_call(name, Call(cuscan.cumsum, (X, axis), {flags: some}))[0], expected)
    square, some = need(name).device(X[:, :40].copy()), need(name).device(np.ones(40, bool))
    text = shown(cuscan.cumsum, square, 0, **{flags: some})
    assert f"{flags}.reshape(-1, 1)" in text and f"{flags}.reshape(1, -1)" in text


@both_libraries
def test_errors_say_what_to_do_and_name_the_function(name):
    library = need(name)
    assert shown(cuscan.cummax, library.device(np.array(3.0))).endswith("x.reshape(1) (cuscan.cummax)")
    assert "np.asarray(mask)" in shown(cuscan.cumsum, library.device(X), mask=[True, False])
    smallest = cuscan.Operator("smallest", "later < earlier ? later : earlier", float("inf"))
    assert "identity=inf does not fit dtype int32" in shown(cuscan.scan, library.device(X), smallest)


@both_libraries
def test_an_operator_that_was_pickled(name):
    """It has the same bits as the one that went away, and by an equal one no kernel is compiled anew."""
    op = cuscan.Operator("modular", "earlier * later % 1009", 1, numpy=np.multiply)
    x = need(name).device(np.arange(1, 4000, dtype=np.int64) % 1009)
    before, again = cuscan.scan(x, op), cuscan.scan(x, pickle.loads(pickle.dumps(op)))
    assert need(name).owns(again) and need(name).equal(before, again)
