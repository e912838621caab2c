"""Scans under the transforms of JAX: derivatives, vmap, control flow, checkpoints, programs on several devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax_cases import AFFINE, DIFFERENTIABLE, SHAPES, standard_normal, wide_types

import cuscan
from cuscan import ScanTypeError

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

Array = Any
EPS = 1e-6
RNG = np.random.default_rng(0)


# ---- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name: str) -> None:
    """Tangents equal differences of the NumPy backend's results; cotangents and second tangents agree with them."""
    function = DIFFERENTIABLE[name]
    xs, ts = (
        [standard_normal(*shape, seed=i + k) for k, shape in enumerate(SHAPES.get(name, [(3, 6)]))] for i in (1, 11)
    )

    def moved(by: float) -> Any:
        return function(*(x + by * t for x, t in zip(xs, ts, strict=True)))

    difference = jax.tree.map(lambda one, other: (one - other) / (2 * EPS), moved(EPS), moved(-EPS))
    cotangents = jax.tree.map(lambda y: standard_normal(*y.shape, seed=7), difference)

    def gradient(*xs: Array) -> Any:
        return jax.vjp(function, *xs)[1](cotangents)

    with wide_types(True):
        _, tangents = jax.jit(lambda xs, ts: jax.jvp(function, xs, ts))(tuple(xs), tuple(ts))
        pulled, turned = jax.jit(lambda xs, ts: jax.jvp(gradient, xs, ts))(tuple(xs), tuple(ts))
        program = jax.jit(gradient)
        ahead, behind = (program(*(x + by * t for x, t in zip(xs, ts, strict=True))) for by in (EPS, -EPS))
    tangents, pulled, turned, ahead, behind = jax.tree.map(np.asarray, (tangents, pulled, turned, ahead, behind))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), tangents, difference)
    forward = sum((g * t).sum() for g, t in zip(jax.tree.leaves(cotangents), jax.tree.leaves(tangents), strict=True))
    backward = sum((g * t).sum() for g, t in zip(pulled, ts, strict=True))
    np.testing.assert_allclose(forward, backward, rtol=1e-10)
    for second, one, other in zip(turned, ahead, behind, strict=True):
        np.testing.assert_allclose(second, (one - other) / (2 * EPS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_gradients_have_the_dtype_of_what_they_are_of(dtype: str) -> None:
    x = jnp.asarray([1, 2, 3]).astype(dtype)
    for scan, expected in (
        (cuscan.cumsum, [3, 2, 1]),
        (cuscan.cumprod, [9, 4, 2]),
        (lambda b: cuscan.linear_recurrence(0.5, b), [1.75, 1.5, 1]),
    ):
        got = jax.jit(jax.grad(lambda x, scan=scan: scan(x).sum().real.astype("float32")))(x)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.asarray(expected, dtype))
    assert jax.grad(lambda x: cuscan.cumsum(x, dtype="complex64").sum().real)(jnp.ones(2, "float16")).dtype == "float16"


def test_cotangents_of_complex_numbers_are_no_conjugates() -> None:
    x, cotangent = (jnp.asarray(standard_normal(5, seed=i) + 1j * standard_normal(5, seed=i + 5)) for i in (1, 2))
    got, expected = (jax.jit(lambda x, f=f: jax.vjp(f, x)[1](cotangent)[0])(x) for f in (cuscan.cumprod, jnp.cumprod))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_gradients_of_python_s_numbers() -> None:
    """JAX passes subclasses of float to its rules; they have no shape."""
    x = jnp.asarray([1.0, 2.0, 4.0])

    def last(decay: Any, state: Any) -> Array:
        return cuscan.linear_recurrence(decay, x, initial=state)[-1]

    assert [float(g) for g in jax.grad(last, (0, 1))(0.5, 2.0)] == [2 + 2 * 0.5 + 3 * 2 * 0.25, 0.125]
    _, pulled = jax.linearize(lambda state: cuscan.cumsum(x, initial=state)[-1], 2.0)
    assert pulled(3.0) == 3
    assert jax.vmap(jax.grad(last), (None, 0))(0.5, jnp.zeros(2)).tolist() == [3, 3]


def test_zeros_infinities_and_ties() -> None:
    for scan, x, expected in (
        (cuscan.cumprod, [2.0, 0.0, 3.0, 5.0], [1, 2 + 6 + 30, 0, 0]),
        (cuscan.logcumsumexp, [-np.inf, 0.0, 0.0], [0, 1.5, 0.5]),
        (lambda x: cuscan.cummax(x, return_indices=True, ties="last")[0], [4.0, 4.0, 3.0], [1, 2, 0]),
        (cuscan.cummax, [4.0, 4.0, 3.0], [3, 0, 0]),
    ):
        got = jax.jit(jax.grad(lambda x, scan=scan: scan(x).sum()))(jnp.asarray(x))
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_integers_have_no_gradient() -> None:
    x = jnp.asarray([1.0, 3.0, 2.0])
    assert jax.grad(lambda x: cuscan.cummax(x, return_indices=True)[1].sum() * x.sum())(x).tolist() == [2, 2, 2]
    assert jax.grad(lambda x: cuscan.cumsum(x, dtype="int32").sum() * 1.0)(x).tolist() == [0, 0, 0]
    (got,) = jax.vjp(cuscan.cumsum, jnp.arange(3))[1](np.zeros(3, jax.dtypes.float0))
    assert got.dtype == jax.dtypes.float0


def test_hessian_and_linearize() -> None:
    x = jnp.asarray([0.5, 2.0, 1.5])
    got, expected = (jax.jit(jax.hessian(lambda x, f=f: (f(x) ** 2).sum()))(x) for f in (cuscan.cumprod, jnp.cumprod))
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    _, linear = jax.linearize(cuscan.logcumsumexp, x)
    np.testing.assert_allclose(linear(x), jax.jvp(jax.lax.cumlogsumexp, (x,), (x,))[1], rtol=1e-5)


def test_what_is_linear_has_a_transpose() -> None:
    (got,) = jax.linear_transpose(lambda x: cuscan.cumsum(x, exclusive=True), jnp.ones(3))(jnp.asarray([1.0, 2.0, 4.0]))
    assert got.tolist() == [6, 4, 0]
    with pytest.raises(ScanTypeError, match=r"^op='mul' is not linear in its arrays"):
        jax.linear_transpose(cuscan.cumprod, jnp.ones(3))(jnp.ones(3))


def test_what_has_no_derivative_says_so() -> None:
    plain = cuscan.Operator("plain", "earlier + later", 0, numpy=np.add)
    x = jnp.ones(3)
    with pytest.raises(ScanTypeError, match=r"op='plain' has no derivative .*vjp="):
        jax.grad(lambda x: cuscan.scan(x, plain).sum())(x)
    with pytest.raises(ScanTypeError, match="op='affine' has no derivative"):
        jax.grad(lambda x: cuscan.scan((x, x), AFFINE)[0].sum())(x)


def test_gradients_of_carries_where_jax_has_32_bits() -> None:
    def loss(x: Array) -> Array:
        carry = cuscan.total(x[:2])
        return (cuscan.cumsum(x[2:], carry=carry) ** 2).sum()

    x = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    expected = jax.grad(lambda x: (jnp.cumsum(x)[2:] ** 2).sum())(x)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), expected, rtol=1e-6)


def test_of_equal_extrema_in_two_chunks_the_first_has_the_gradient() -> None:
    x = jnp.asarray([1.0, 3.0, 3.0, 2.0])

    def chunked(x: Array, reverse: bool, indices: bool) -> Array:
        def scan(part: Array, **keywords: Any) -> Any:
            more = {"return_indices": True} if indices else {}
            return cuscan.cummax(part, reverse=reverse, return_carry=True, **more, **keywords)

        first, second = (x[2:], x[:2]) if reverse else (x[:2], x[2:])
        one, *_, carry = scan(first)
        return one.sum() + 10 * scan(second, carry=carry)[0].sum()

    for indices in (False, True):
        assert jax.grad(chunked)(x, False, indices).tolist() == [1, 1 + 20, 0, 0]
        assert jax.grad(chunked)(x, True, indices).tolist() == [0, 0, 1 + 20, 1]


def test_a_backward_is_made_of_scans() -> None:
    """No loop, no associative_scan: only the scans that derivatives.py defines, and elementwise operations."""
    programs = {
        name: str(jax.make_jaxpr(jax.grad(lambda x, op=op: cuscan.scan(x, op).sum()))(jnp.ones((2, 4))))
        for name, op in (("add", "add"), ("mul", "mul"), ("max", "max"))
    }
    assert {name: text.count("cuscan_scan[") for name, text in programs.items()} == {"add": 2, "mul": 2, "max": 3}
    assert not any(word in text for text in programs.values() for word in ("while[", " scan[", "scatter", "gather"))


# ---- vmap ------------------------------------------------------------------------------------------------------------


def one_by_one(function: Callable[..., Any], arrays: tuple[Any, ...], axes: tuple[Any, ...]) -> Any:
    """The meaning of vmap: one call after the other."""
    size = next(x.shape[axis] for x, axis in zip(arrays, axes, strict=True) if axis is not None)
    each = [
        function(*(x if axis is None else jnp.take(x, i, axis) for x, axis in zip(arrays, axes, strict=True)))
        for i in range(size)
    ]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *each)


def batches() -> list[Any]:
    x, flags, row = standard_normal(4, 3, 5), RNG.random((4, 3, 5)) < 0.5, standard_normal(3, 5)
    offsets, carry = np.array([[0, 2, 5], [0, 5, 5], [0, 0, 5], [0, 1, 5]]), standard_normal(4, 3)
    along = lambda **keywords: functools.partial(cuscan.cumsum, axis=0, **keywords)  # noqa: E731
    return [
        ("axes", lambda x: cuscan.cumsum(x, axis=0), (x,), (1,)),
        ("indices", lambda x: cuscan.cummax(x, return_indices=True, axis=-1), (x,), (2,)),
        ("mask", lambda x, m: cuscan.cumsum(x, mask=m), (x, flags), (0, 0)),
        ("mask alone", lambda x, m: cuscan.cumsum(x, mask=m), (row, flags), (None, 0)),
        ("mask along", lambda x, m: along(mask=m)(x), (x, flags[:, :, 0]), (0, 0)),
        ("mask of all", lambda x, m: along(mask=m)(x), (x, flags[0, :, 0]), (0, None)),
        ("reset", lambda x, r: cuscan.cumsum(x, reset=r, initial=1), (x, flags[:, 0]), (0, 0)),
        ("keys", lambda x, k: along(keys=k)(x), (x, flags[:, :, 0].astype(np.int32)), (0, 0)),
        ("offsets", lambda x, o: cuscan.cumsum(x, offsets=o, reverse=True), (x, offsets), (0, 0)),
        (
            "offsets, carry",
            lambda x, o, c: cuscan.cumsum(x, offsets=o, carry=c, axis=0),
            (x.swapaxes(1, 2), offsets, carry),
            (0, 0, 0),
        ),
        (
            "offsets, carry, reverse",
            lambda x, o, c: cuscan.cumsum(x, offsets=o, carry=c, reverse=True, return_carry=True),
            (x, offsets, carry),
            (0, 0, 0),
        ),
        ("offsets of one", lambda x, o: cuscan.cumsum(x, offsets=o), (x, offsets[0]), (0, None)),
        ("carry", lambda x, c: cuscan.cumsum(x, carry=c, return_carry=True), (x.astype(np.float32), carry), (0, 0)),
        ("carry of one", lambda x, c: cuscan.cumsum(x, carry=c), (x, carry[0]), (0, None)),
        (
            "a, initial",
            lambda a, b, h: cuscan.linear_recurrence(a, b, initial=h),
            (x[..., :1], row, carry),
            (0, None, 0),
        ),
        ("number a", lambda a, b: cuscan.linear_recurrence(a, b, axis=0), (carry[:, 0], row), (0, None)),
        ("total", lambda x: cuscan.total(x, "max", axis=0), (x,), (0,)),
        ("fields", lambda a, b: cuscan.scan((a, b), AFFINE), (x, row[0]), (0, None)),
        ("field of more", lambda a, b: cuscan.scan((a, b), AFFINE, axis=0), (row, x[:, 0, 0]), (None, 0)),
    ]


@pytest.mark.parametrize("name, function, arrays, axes", [pytest.param(*b, id=b[0]) for b in batches()])
def test_vmap(name: str, function: Callable[..., Any], arrays: tuple[Any, ...], axes: tuple[Any, ...]) -> None:
    arrays = tuple(map(jnp.asarray, arrays))
    got = jax.vmap(function, axes)(*arrays)
    jax.tree.map(np.testing.assert_array_equal, got, one_by_one(function, arrays, axes))


def test_vmap_of_gradients() -> None:
    x = jnp.asarray(standard_normal(4, 5))

    def loss(scan: Any) -> Any:
        return jax.jit(jax.vmap(jax.grad(lambda x: (scan(x) ** 2).sum())))

    got, expected = loss(cuscan.cumprod)(x), loss(jnp.cumprod)(x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert str(jax.make_jaxpr(jax.vmap(jax.vmap(cuscan.cumsum)))(jnp.ones((2, 3, 4)))).count("cuscan_scan[") == 1


# ---- control flow ----------------------------------------------------------------------------------------------------


def test_control_flow_and_checkpoints() -> None:
    x = jnp.asarray(standard_normal(3, 5), "float32")

    def looped(scan: Any) -> Any:
        def body(total: Array, row: Array) -> Any:
            total = jax.lax.cond(row[0] > 0, lambda: scan(total + row), lambda: total - scan(row))
            return total, total.sum()

        return lambda x: jax.lax.scan(jax.checkpoint(body), jnp.zeros(5), x)[1].sum()

    ours, theirs = looped(cuscan.cumsum), looped(jnp.cumsum)
    got, expected = (jax.jit(jax.value_and_grad(f))(x) for f in (ours, theirs))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), got, expected)
    assert jax.lax.fori_loop(0, 3, lambda _, x: cuscan.cumsum(x), jnp.ones(3)).tolist() == [1, 4, 10]


def test_jit_may_be_disabled() -> None:
    with jax.disable_jit():
        assert jax.jit(lambda x: cuscan.cumsum(x) + 1)(jnp.ones(3)).tolist() == [2, 3, 4]
        assert jax.grad(lambda x: cuscan.cumprod(x).sum())(jnp.ones(2)).tolist() == [2, 1]


# ---- several devices -------------------------------------------------------------------------------------------------


@pytest.fixture
def mesh() -> Mesh:
    if len(jax.devices("cpu")) < 2:
        pytest.skip("JAX's CPU shows as one device")
    return Mesh(np.array(jax.devices("cpu")[:2]), ("i",))


def test_arrays_on_several_devices_are_refused(mesh: Mesh) -> None:
    x = jax.device_put(jnp.ones((4, 3)), NamedSharding(mesh, PartitionSpec("i")))
    for call in (cuscan.cumsum, jax.jit(cuscan.cumsum), jax.jit(lambda x: cuscan.cumprod(x * 2).sum())):
        with pytest.raises(ScanTypeError, match=r"lies on several devices.* Put it in jax\.shard_map"):
            call(x)


def test_arrays_whose_types_say_that_they_lie_on_several_devices(mesh: Mesh) -> None:
    """Not even shapes are inferred: the type of a result would say that it lies on one device."""
    kinds = pytest.importorskip("jax.sharding", reason="types of axes").AxisType
    explicit = Mesh(mesh.devices, mesh.axis_names, axis_types=(kinds.Explicit,))
    x = jax.device_put(jnp.ones((4, 3)), NamedSharding(explicit, PartitionSpec("i")))
    for call in (cuscan.cumsum, jax.jit(cuscan.cumsum), lambda x: jax.eval_shape(cuscan.cumsum, x)):
        with pytest.raises(ScanTypeError, match=r"lies on several devices"):
            call(x)
    with pytest.raises(ScanTypeError, match=r"lies on several devices"):  # an array beside x
        cuscan.cumsum(jnp.ones((4, 3)), mask=x > 0)


def test_programs_that_are_told_to_run_on_several_devices(mesh: Mesh) -> None:
    rows = NamedSharding(mesh, PartitionSpec("i"))
    with pytest.raises(ScanTypeError, match=r"the program runs on several"):
        jax.jit(cuscan.cumsum, in_shardings=rows)(jnp.ones((4, 3)))
    with pytest.raises(ScanTypeError, match=r"the program runs on several"):
        jax.jit(lambda x: cuscan.cumsum(jax.lax.with_sharding_constraint(x, rows)))(jnp.ones((4, 3)))
    both = Mesh(mesh.devices.reshape(1, 2), ("i", "j"))  # inside a shard_map of only one axis of the mesh
    spec = PartitionSpec("i")
    with pytest.raises(ScanTypeError, match=r"the program runs on several"):
        jax.jit(jax.shard_map(cuscan.cumsum, mesh=both, in_specs=spec, out_specs=spec, axis_names={"i"}))(jnp.ones(4))


def test_each_device_has_its_part_inside_shard_map(mesh: Mesh) -> None:
    shard_map = getattr(jax, "shard_map", None) or pytest.importorskip("jax.experimental.shard_map").shard_map
    rows, whole = PartitionSpec("i"), PartitionSpec()
    x, decay = jnp.asarray(standard_normal(4, 3), "float32"), jnp.asarray([0.5, 0.25, 2.0])

    def on_each(x: Array, decay: Array) -> Any:
        h, last = cuscan.linear_recurrence(decay, x, return_last=True)
        sums = cuscan.cumsum(x, initial=decay[0])
        return h, last, sums, cuscan.total(x, initial=2.0), cuscan.cummax(x, axis=1, return_indices=True)

    mapped = shard_map(on_each, mesh=mesh, in_specs=(rows, whole), out_specs=rows)
    for way in (mapped, jax.jit(mapped)):
        jax.tree.map(np.testing.assert_array_equal, way(x, decay), on_each(x, decay))

    def recurrence(x: Array, decay: Array) -> Array:
        return cuscan.linear_recurrence(decay, x)

    mapped = shard_map(recurrence, mesh=mesh, in_specs=(rows, whole), out_specs=rows)
    losses = (lambda x, decay, f=f: (f(x, decay) ** 2).sum() for f in (mapped, recurrence))
    got, expected = (jax.jit(jax.grad(loss, (0, 1)))(x, decay) for loss in losses)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), got, expected)
