"""Every function of JAX arrays in JAX's loops, branches, batches and checkpoints, and its derivatives there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax_cases import (
    CASES,
    DIFFERENTIABLE,
    SHAPES,
    Case,
    in_a_batch,
    in_a_loop,
    leaves,
    stacked,
    standard_normal,
    wide_types,
)
from selection import covering

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

Array = Any


def facets(case: Case) -> set[Any]:
    """The operators, flags and arguments of a case."""
    program = jax.make_jaxpr(case.call)(*case.draw(np.random.default_rng(0), 5, 8))
    calls = [equation.params["call"] for equation in program.eqns if equation.primitive.name == "cuscan_scan"]
    flags = {(name, value) for call in calls for name, value in call.flags._asdict().items() if name != "axis"}
    return flags | {role for call in calls for role in call.roles}


def assert_each(got: Any, case: Case, each: list[tuple[Array, ...]]) -> None:
    """Each result has the bits of NumPy's."""
    for i, arrays in enumerate(each):
        for one, other in zip(leaves(got), leaves(case.call(*arrays)), strict=True):
            np.testing.assert_array_equal(np.asarray(one)[i], np.asarray(other).astype(one.dtype))


@pytest.mark.parametrize("way", [in_a_loop, in_a_batch])
@pytest.mark.parametrize("case", covering(CASES, facets))
def test_every_function(case: Case, way: Callable[[Case], Callable[..., Any]]) -> None:
    each, arrays = stacked(case)
    assert_each(way(case)(*arrays), case, each)


BRIEF = {"recurrence, all", "min with indices", "sum, carry"}  # the default run; the others use the same rules


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BRIEF else pytest.mark.full) for name in DIFFERENTIABLE]
)
def test_derivatives_of_a_loop_with_branches_and_checkpoints(name: str) -> None:
    """They equal those of successive calls, which `test_jax_transforms.py` tests."""
    function, shapes = DIFFERENTIABLE[name], SHAPES.get(name, [(3, 6)])
    xs = tuple(standard_normal(2, *shape, seed=1 + k) for k, shape in enumerate(shapes))
    ts = tuple(standard_normal(2, *shape, seed=11 + k) for k, shape in enumerate(shapes))

    def loss(results: Any) -> Array:
        return sum((leaf**2).sum() for leaf in leaves(results))

    def body(total: Array, arrays: tuple[Array, ...]) -> Any:
        whole = lambda: loss(jax.checkpoint(function)(*arrays))  # noqa: E731
        return total + jax.lax.cond(total == 0, whole, lambda: 2 * loss(function(*arrays))), None

    def looped(xs: tuple[Array, ...]) -> Array:
        return jax.lax.scan(body, 0.0, xs)[0]

    def unrolled(xs: tuple[Array, ...]) -> Array:
        return sum((1 + i) * loss(function(*(x[i] for x in xs))) for i in range(2))

    with wide_types(True):
        ways = [jax.jit(lambda xs, f=f: (jax.grad(f)(xs), jax.jvp(f, (xs,), (ts,)))) for f in (looped, unrolled)]
        got, expected = (jax.tree.map(np.asarray, way(tuple(map(jnp.asarray, xs)))) for way in ways)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), got, expected)
    assert all(np.abs(gradient).max() > 0 for gradient in got[0])
