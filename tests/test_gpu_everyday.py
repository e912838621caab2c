"""Everyday calls on a GPU: arguments in their other spellings, and errors that give advice."""

from __future__ import annotations

import operator
import pickle
import re
import sys

import numpy as np
import pytest
from gpu import LIBRARIES, Call, check_call, need, numbers, values

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
    """The text of the error that a call raises."""
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
    own = [getattr(sys.modules[name], f.__name__) for f in OTHER_NAMES[op] if isinstance(f, np.ufunc)]
    for other in OTHER_NAMES[op] + own:
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
    """Their length selects the scanned axis or the last; where it fits both, an error shows both spellings."""
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
    smallest = cuscan.Operator("smallest", "later < earlier ? later : earlier", float("inf"))
    assert "identity=inf does not fit dtype int32" in shown(cuscan.scan, library.device(X), smallest)


@both_libraries
def test_what_errors_say_of_arrays_elsewhere_works(name):
    """A list, a NumPy array, a tensor on the CPU: converted as the error says, each is a mask beside x on the GPU."""
    library, kept = need(name), np.random.default_rng(0).random(70) < 0.5
    (expected,) = check_call(name, Call(cuscan.cumsum, (X,), {"mask": kept}))
    x = library.device(X)
    for mask in (kept.tolist(), kept, *([library.torch.from_numpy(kept)] if name == "torch" else [])):
        advice = re.search(r"[:;] pass (.*mask.*) \(cuscan\.cumsum\)$", shown(cuscan.cumsum, x, mask=mask))
        there = eval(advice[1], {"mask": mask, name: sys.modules[name]})
        np.testing.assert_array_equal(values(cuscan.cumsum(x, mask=there)), expected)


def test_arrays_of_jax_take_the_same():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    jnp, x, some = jax.numpy, jax.numpy.asarray(X), np.arange(40) % 3 == 0

    def same(got, *arguments, **keywords):
        assert isinstance(got, jax.Array) and got.device == x.device
        np.testing.assert_array_equal(got, cuscan.cumsum(X, *arguments, dtype="int32", **keywords))

    for got in (cuscan.cumsum(x, 0), cuscan.cumsum(x, dim=-2), cuscan.scan(x, jnp.add, axis=0)):
        same(got, 0)
    same(jax.jit(cuscan.cumsum, static_argnums=1)(x, 0), 0)
    same(cuscan.cumsum(x, axis=None), None)
    same(cuscan.cumsum(x, offsets=[0, 7, 7, 70]), offsets=[0, 7, 7, 70])
    same(cuscan.cumsum(x, initial=jnp.asarray(3)), initial=3)
    for flags in ("mask", "reset"):
        same(cuscan.cumsum(x, 0, **{flags: jnp.asarray(some)}), 0, **{flags: some})
        assert f"{flags}.reshape(-1, 1)" in shown(cuscan.cumsum, x[:, :40], 0, **{flags: jnp.asarray(some)})
    assert "jnp.asarray(mask)" in shown(cuscan.cumsum, x, mask=[True, False])


@both_libraries
def test_samples_of_an_operator_may_be_on_a_gpu(name):
    samples = need(name).device(numbers((20,)))
    cuscan.Operator("larger", "earlier < later ? later : earlier", float("-inf"), numpy=np.maximum).check(samples)
    minus = cuscan.Operator("minus", "earlier - later", 0, numpy=np.subtract)
    assert "op='minus' is not associative" in shown(minus.check, samples)


@both_libraries
def test_an_operator_that_was_pickled(name, monkeypatch):
    """It gives the same bits as the original, and an equal operator compiles no kernel again."""
    op = cuscan.Operator("modular", "earlier * later % 1009", 1, numpy=np.multiply)
    x = need(name).device(np.arange(1, 4000, dtype=np.int64) % 1009)
    before, sent = cuscan.scan(x, op), pickle.dumps(op)
    monkeypatch.setattr("cuscan.custom._PICKLED", {})  # as in another process
    came = pickle.loads(sent)
    again = cuscan.scan(x, came)
    assert came is not op and came.key == op.key
    assert need(name).owns(again) and need(name).equal(before, again)
