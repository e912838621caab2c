"""`initial` of scans of JAX arrays: programs compute, batch and differentiate it; none is compiled for its value."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from jax_cases import AFFINE, FLOATS, FROM_NUMBERS, STARTS, compilations, leaves, start_of, wide_types

import cuscan
from cuscan import ScanTypeError, ScanValueError

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

Array = Any


def assert_equal(got: Any, expected: Any) -> None:
    """The same bits, in JAX's dtypes."""
    for one, other in zip(leaves(got), leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other).astype(one.dtype))


@pytest.mark.parametrize("name", FROM_NUMBERS)
def test_a_number_that_a_program_computes(name: str) -> None:
    (x, start), scan = start_of(name), FROM_NUMBERS[name]
    expected = scan(x, start)
    program = jax.jit(scan)
    assert_equal(program(x, start), expected)
    assert_equal(scan(jnp.asarray(x), start), expected)
    assert_equal(scan(jnp.asarray(x), jnp.asarray(start)), expected)
    other = start if isinstance(start, bool) else start + 1
    assert compilations(lambda: assert_equal(program(x, other), scan(x, other))) == 0


def test_eager_calls_from_other_numbers_compile_nothing() -> None:
    x = jnp.asarray(FLOATS)

    def calls(number: float) -> Any:
        return [scan(x, number) for name, scan in FROM_NUMBERS.items() if name not in STARTS]

    calls(0.5)
    assert compilations(lambda: [calls(number) for number in (0.25, -0.0, np.float32(3), float("inf"))]) == 0


def test_the_bits_of_a_number() -> None:
    x = jnp.zeros(1)
    for zero in (0.0, -0.0):
        for got in (cuscan.cumprod(x, exclusive=True, initial=zero), cuscan.cumprod(x + 1, initial=jnp.float32(zero))):
            assert np.signbit(got[0]) == np.signbit(zero)
    assert np.isnan(cuscan.cummax(x, initial=float("nan"))[0])
    exact = cuscan.cumsum(np.float64([1]), initial=0.1)  # not of the number rounded to 32 bits
    with wide_types(True):
        assert_equal(cuscan.cumsum(jnp.asarray(np.float64([1])), initial=0.1), exact)


def test_numpy_arrays_beside_a_traced_number() -> None:
    assert_equal(jax.jit(lambda i: cuscan.cumsum(FLOATS, initial=i))(0.5), cuscan.cumsum(FLOATS, initial=0.5))
    got = jax.vmap(lambda i: cuscan.scan((FLOATS, FLOATS), AFFINE, initial=(1, i))[1])(jnp.arange(2.0))
    assert_equal(got[1], cuscan.scan((FLOATS, FLOATS), AFFINE, initial=(1, 1))[1])


@pytest.mark.parametrize("name", ["add", "min with indices", "logaddexp", "fields", "recurrence", "nothing"])
def test_vmap(name: str) -> None:
    scan, many = FROM_NUMBERS[name], jnp.asarray([0.5, -1.0])
    xs = jnp.asarray(np.stack([FLOATS, FLOATS[::-1]]))
    for axes in ((None, 0), (0, None), (0, 0)):
        x, start = xs if axes[0] == 0 else xs[0], many if axes[1] == 0 else many[0]
        got = jax.vmap(scan, axes)(x, start)
        each = [scan(xs[i * (axes[0] == 0)], many[i * (axes[1] == 0)]) for i in range(2)]
        assert_equal(got, jax.tree.map(lambda *parts: jnp.stack(parts), *each))


def test_the_state_of_a_loop() -> None:
    """Each chunk starts where the previous one ended."""
    x = jnp.asarray(FLOATS[0, :6])

    def chunk(before: Array, part: Array) -> Any:
        sums = cuscan.cumsum(part, initial=before)
        return jax.lax.cond(sums[-1] > 1e6, lambda: jnp.float32(0), lambda: sums[-1]), sums

    _, sums = jax.jit(lambda x: jax.lax.scan(jax.checkpoint(chunk), jnp.float32(2), x.reshape(3, 2)))(x)
    np.testing.assert_allclose(sums.reshape(-1), 2 + np.cumsum(x), rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in FROM_NUMBERS if name not in (*STARTS, "bfloat16", "fields")])
def test_derivatives(name: str) -> None:
    """Derivatives of the first results by the number, forward and backward, equal differences of NumPy's results."""
    x, step = FLOATS.astype(np.float64), 1e-6

    def first(i: Any, x: Any = x) -> Any:
        return leaves(FROM_NUMBERS[name](x, i))[0]

    expected = (first(0.75 + step) - first(0.75 - step)) / (2 * step)
    with wide_types(True):
        tangent = np.asarray(jax.jit(jax.jacfwd(first))(0.75))
        cotangent = np.asarray(jax.jit(jax.jacrev(first))(0.75))
    for got in (tangent, cotangent):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)
    assert jax.grad(lambda i: first(i, jnp.asarray(FLOATS)).sum())(0.75).dtype == "float32"


def test_positions_have_no_derivative_and_values_do() -> None:
    x = jnp.asarray([1.0, 0.0, -1.0])

    def smallest(i: Array) -> Array:
        return cuscan.cummin(x, initial=i, return_indices=True)[0].sum()

    assert jax.jit(jax.grad(smallest))(0.5) == 1  # one result, before any smaller element
    assert cuscan.cummin(x, initial=0.5, return_indices=True)[1].tolist() == [-1, 1, 2]


def test_a_carry_comes_before_it() -> None:
    """`initial` precedes the segments that start in x, but here none does."""
    x, carry = jnp.ones(3), jnp.float32(5)
    assert cuscan.cumsum(x, carry=carry, initial=100).tolist() == [6, 7, 8]
    with pytest.raises(ScanValueError, match="does not fit"):
        cuscan.cumsum(x, carry=carry, initial=1e300)


def test_what_cannot_be_a_start() -> None:
    x = jnp.ones((2, 3))
    wrong = [
        (r"^initial is traced, of float32\[2\]; it must be a scalar", lambda i: cuscan.cumsum(x, initial=i[:2])),
        ("of float32.* dtype int32", lambda i: cuscan.cumsum(x, initial=i[0], dtype="int32")),
        ("of complex64", lambda i: cuscan.cumsum(x, initial=i[0] * 1j)),
        ("is compiled for its value: pass a number", lambda i: cuscan.cumsum(x, initial=i[0], offsets=[0, 3])),
        ("is compiled for its value", lambda i: cuscan.scan((x, x), AFFINE, initial=(1, i[0]), reset=x > 0)),
        ("initial must be a tuple of 2 numbers", lambda i: cuscan.scan((x, x), AFFINE, initial=i[0])),
    ]
    for text, call in wrong:
        with pytest.raises(ScanTypeError, match=text):
            jax.jit(call)(jnp.ones(3))
    with pytest.raises(ScanTypeError, match="initial must be a scalar number"):
        cuscan.cumsum(x, initial=jnp.ones(2))
    integers = functools.partial(cuscan.cumsum, x, dtype="int32")
    assert integers(initial=jnp.float32(2)).tolist() == integers(initial=2).tolist()
    with pytest.raises(ScanValueError, match=r"initial=2\.5 does not fit dtype int32"):
        integers(initial=jnp.float32(2.5))
