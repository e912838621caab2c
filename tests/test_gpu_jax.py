"""JAX arrays on a GPU: every function compared with NumPy and `jax.lax`; eager, compiled, differentiated."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu import assert_same, cupy, numbers
from jax_cases import (
    CASES,
    FROM_NUMBERS,
    Case,
    compilations,
    in_a_batch,
    in_a_loop,
    leaves,
    stacked,
    start_of,
    wide_types,
)

import cuscan
import cuscan.distributed
from cuscan import ScanTypeError

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

from cuscan.backends import xla_gpu  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu_of_jax")]


@pytest.fixture
def gpu_of_jax() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")


SHAPES = [(6, 9), (300, 1000), (3, 70_000), (40_000, 5)]


def assert_like(got: Any, expected: Any, *, exact: bool = True) -> None:
    """NumPy's bits in JAX's dtypes, or nearly, where the operator is not exact."""
    for one, other in zip(leaves(got), leaves(expected), strict=True):
        assert isinstance(one, jax.Array) and {d.platform for d in one.devices()} == {"gpu"}
        if exact:
            assert_same(np.asarray(one), np.asarray(other).astype(one.dtype))
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_function(case: Case, shape: tuple[int, int]) -> None:
    arrays = case.draw(np.random.default_rng(0), *shape)
    expected = case.call(*arrays)
    placed = tuple(map(jnp.asarray, arrays))
    assert_like(case.call(*placed), expected, exact=case.exact)
    if case.name != "list of offsets":
        assert_like(jax.jit(case.call)(*placed), expected, exact=case.exact)


@pytest.mark.parametrize("way", [in_a_loop, in_a_batch])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_function_in_loops_branches_checkpoints_and_batches(
    case: Case, way: Callable[[Case], Callable[..., Any]]
) -> None:
    each, arrays = stacked(case, 50, 3000)
    got = leaves(way(case)(*arrays))
    for i, own in enumerate(each):
        assert_like([part[i] for part in got], case.call(*own), exact=case.exact)


@pytest.mark.parametrize("name", FROM_NUMBERS)
def test_a_number_that_a_program_computes(name: str) -> None:
    (x, start), scan = start_of(name), FROM_NUMBERS[name]
    program = jax.jit(scan)
    assert_like(program(x, start), scan(x, start), exact="logaddexp" not in name)
    if not isinstance(start, bool):
        got = jax.vmap(scan, (None, 0))(jnp.asarray(x), jnp.asarray([start, start + 1]))
        assert_like([part[1] for part in leaves(got)], scan(x, start + 1), exact="logaddexp" not in name)
    if isinstance(start, float) and name not in ("fields", "total of a recurrence"):  # theirs have none
        one, other = (jax.grad(lambda i, f=f: leaves(f(x, i))[0].sum())(start) for f in (scan, program))
        assert one != 0
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32", "complex64"]
)
def test_dtypes(dtype: str) -> None:
    host = numbers((50, 4001), dtype)
    for axis in (0, 1):
        got = jax.jit(lambda x, axis=axis: cuscan.cumsum(x, axis=axis))(jnp.asarray(host))
        assert got.dtype == jnp.cumsum(jnp.asarray(host), axis=axis).dtype
        assert_same(np.asarray(got), cuscan.cumsum(host, axis=axis, dtype=got.dtype.name))


def test_64_bits() -> None:
    host = numbers((9, 5000), "float64")
    with wide_types(True):
        for got in (cuscan.cumsum(jnp.asarray(host)), jax.jit(cuscan.cumsum)(jnp.asarray(host))):
            assert_same(np.asarray(got), cuscan.cumsum(host))
        _, index = cuscan.cummax(jnp.asarray(host), return_indices=True)
        assert_same(np.asarray(index), cuscan.cummax(host, return_indices=True)[1])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)], ids=str)
def test_no_elements(shape: tuple[int, ...]) -> None:
    host = np.zeros(shape, np.float32)
    for call in (
        lambda x: cuscan.cumsum(x, include_initial=True, initial=3, return_carry=True),
        lambda x: cuscan.linear_recurrence(0.5, x, initial=2.0, return_last=True, return_carry=True),
        lambda x: cuscan.total(x, "max"),
    ):
        assert_like(jax.jit(call)(jnp.asarray(host)), call(host))


# ---- memory and streams ----------------------------------------------------------------------------------------------


def test_no_copy_is_made() -> None:
    x = jnp.ones((300, 5000))
    for axis in (0, 1):
        text = jax.jit(lambda x, axis=axis: cuscan.cumsum(x, axis=axis)).lower(x).compile().as_text()
        assert text.count("custom-call(") == 1 and " copy(" not in text and "transpose(" not in text


def test_results_are_xla_s_memory_and_the_scan_waits_for_nothing() -> None:
    x = jnp.ones((64, 2**20))
    program = jax.jit(lambda x: cuscan.cumsum(jnp.sin(x) ** 2 + jnp.cos(x) ** 2))
    for _ in range(20):
        x = program(x) / jnp.arange(1, 2**20 + 1)
    np.testing.assert_allclose(x, 1, rtol=1e-4)


def test_slices_begin_anywhere() -> None:
    """XLA programs only take memory that is aligned to 16 bytes; they copy slices."""
    base = cupy.arange(4099, dtype=np.float32) % 7
    whole, host = jnp.from_dlpack(base), cupy.asnumpy(base)
    for start in range(4):
        program = jax.jit(lambda x, start=start: cuscan.cumsum(x[start:4096]))
        assert_like(program(whole), cuscan.cumsum(host[start:4096]))
        assert_like(cuscan.cumsum(jnp.from_dlpack(base[4 * start : 4096])), cuscan.cumsum(host[4 * start : 4096]))


def test_a_scan_in_a_loop_of_the_program() -> None:
    x = numbers((64, 3000))

    def body(total: Any, row: Any) -> Any:
        return total + cuscan.cumsum(row), cuscan.cummin(row)

    total, rows = jax.jit(lambda x: jax.lax.scan(body, jnp.zeros(3000), x))(jnp.asarray(x))
    assert_like(rows, cuscan.cummin(x))
    np.testing.assert_allclose(total, cuscan.cumsum(x).sum(0), rtol=1e-3, atol=1e-2)


def test_threads() -> None:
    host = [numbers((1000 * n,), "int32") for n in range(1, 7)]
    program, wrong = jax.jit(lambda x, o: cuscan.cumsum(x, offsets=o, reverse=True)), []

    def work(x: np.ndarray) -> None:
        offsets = np.array([0, len(x) // 3, len(x)], np.int32)
        expected = cuscan.cumsum(x, offsets=offsets, reverse=True, dtype="int32")
        for _ in range(100):
            if not np.array_equal(program(jnp.asarray(x), jnp.asarray(offsets)), expected):
                wrong.append(len(x))

    threads = [threading.Thread(target=work, args=(x,)) for x in host]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_beside_calls_of_cupy() -> None:
    host = numbers((5_000_000,), "int32")
    x, y = jnp.asarray(host), cupy.asarray(host)
    program = jax.jit(cuscan.cumsum)
    expected = np.cumsum(host, dtype=np.int32)
    for _ in range(20):
        one, other = program(x), cuscan.cumsum(y, dtype="int32")
        assert_same(np.asarray(one), expected)
        assert_same(cupy.asnumpy(other), expected)


def test_offsets_are_validated_where_the_user_asks() -> None:
    x, wrong = jnp.ones(40), jnp.array([1, 40])
    with pytest.raises(cuscan.ScanValueError, match="offsets must begin with 0"):
        cuscan.cumsum(x, offsets=wrong, validate=True)
    checked = jax.jit(lambda x, o: cuscan.cumsum(x, offsets=o, validate=True))
    assert checked(x, jnp.array([0, 30, 40]))[-1] == 10
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="offsets must begin with 0"):
        jax.block_until_ready(checked(x, wrong))
    assert checked(x, jnp.array([0, 30, 40]))[-1] == 10  # the next call works


def test_operators_that_do_not_compile() -> None:
    wrong = cuscan.Operator("wrong", "earlier + nothing", 0)
    for way in (cuscan.scan, jax.jit(cuscan.scan, static_argnums=1)):
        with pytest.raises(cuscan.CompileError, match="nothing"):
            way(jnp.ones(3), wrong)


def test_like_calls_compile_no_program_and_plan_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    program = jax.jit(cuscan.cummax)

    def calls(x: Any, number: float) -> Any:
        return cuscan.cumsum(x, initial=number), cuscan.linear_recurrence(number, x), program(x)

    first, second = jnp.ones((7, 3000)), jnp.zeros((7, 3000))
    jax.block_until_ready(calls(first, 0.5))
    monkeypatch.setattr(xla_gpu, "Launch", None)
    assert compilations(calls, second, 0.25) == 0


def test_deleted_and_donated_arrays_are_jax_s_own_error() -> None:
    x = jnp.ones((300, 5000))
    y = jax.jit(lambda x: cuscan.cumsum(x + 1), donate_argnums=0)(x)
    assert y[0, -1] == 10_000 and x.is_deleted()
    with pytest.raises(RuntimeError, match="has been deleted"):
        cuscan.cumsum(x)


def test_programs_cannot_be_exported() -> None:
    from jax import export

    with pytest.raises(ScanTypeError, match="cannot be exported"):
        export.export(jax.jit(cuscan.cumsum))(jnp.ones(3))


def test_each_device_has_its_part_inside_shard_map() -> None:
    mesh, rows = jax.sharding.Mesh(jax.devices(), ("i",)), jax.sharding.PartitionSpec("i")
    x = numbers((4 * len(jax.devices()), 3000))
    program = jax.jit(jax.shard_map(cuscan.cumsum, mesh=mesh, in_specs=rows, out_specs=rows))
    assert_like(program(x), cuscan.cumsum(x))


def test_an_axis_that_lies_on_all_devices() -> None:
    mesh, along = jax.sharding.Mesh(jax.devices(), ("i",)), jax.sharding.PartitionSpec(None, "i")
    x = numbers((7, 3000 * len(jax.devices())), "int32")
    reset = numbers(x.shape, "int32") == 3

    def scans(x: Any, reset: Any) -> Any:
        best = cuscan.distributed.cummax(x, axis=1, reset=reset, return_indices=True, reverse=True, axis_name="i")
        return cuscan.distributed.cumsum(x, axis=1, reset=reset, axis_name="i"), best

    got = jax.jit(jax.shard_map(scans, mesh=mesh, in_specs=along, out_specs=along))(x, reset)
    sums = cuscan.cumsum(x, axis=1, reset=reset, dtype="int32")
    assert_like(got, (sums, cuscan.cummax(x, axis=1, reset=reset, return_indices=True, reverse=True)))


def test_arrays_on_several_devices_are_refused() -> None:
    if len(jax.devices()) < 2:
        pytest.skip("one GPU: arrays lie on several where there are two")
    mesh = jax.sharding.Mesh(jax.devices(), ("i",))
    x = jax.device_put(jnp.ones((64, 3)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    for call in (cuscan.cumsum, jax.jit(cuscan.cumsum)):
        with pytest.raises(ScanTypeError, match="lies on several devices"):
            call(x)


def test_out_is_refused() -> None:
    x = jnp.ones(3)
    with pytest.raises(ScanTypeError, match=r"^out= cannot be written"):
        cuscan.cumsum(x, out=x)


# ---- derivatives, beside jax.lax -------------------------------------------------------------------------------------

PEERS = {
    "add": jax.lax.cumsum,
    "mul": jax.lax.cumprod,
    "max": jax.lax.cummax,
    "min": jax.lax.cummin,
    "logaddexp": jax.lax.cumlogsumexp,
}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", PEERS)
def test_gradients(op: str, axis: int) -> None:
    x = jnp.asarray(numbers((300, 400))) / 16 + (op == "mul")
    weights = jnp.asarray(numbers((300, 400)))

    def loss(scan: Any) -> Any:
        return lambda x: (weights * scan(x)).sum() / 100

    ours, theirs = loss(lambda x: cuscan.scan(x, op, axis=axis)), loss(lambda x: PEERS[op](x, axis=axis))
    expected = jax.grad(theirs)(x)
    for got in (jax.grad(ours)(x), jax.jit(jax.grad(ours))(x)):
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)
    _, tangent = jax.jvp(ours, (x,), (weights,))
    np.testing.assert_allclose(tangent, (expected * weights).sum(), rtol=1e-3, atol=1e-2)


def test_gradients_of_a_recurrence() -> None:
    a, b = jnp.asarray(np.random.default_rng(0).random((8, 500, 64), np.float32)), jnp.asarray(numbers((8, 500, 64)))
    h = jnp.asarray(numbers((8, 64)))

    def loop(a: Any, b: Any, h: Any) -> Any:
        def step(h: Any, inputs: Any) -> Any:
            h = inputs[0] * h + inputs[1]
            return h, h

        return jnp.moveaxis(jax.lax.scan(step, h, (jnp.moveaxis(a, 1, 0), jnp.moveaxis(b, 1, 0)))[1], 0, 1)

    def ours(a: Any, b: Any, h: Any) -> Any:
        return cuscan.linear_recurrence(a, b, axis=1, initial=h)

    for scan in (
        ours,
        jax.checkpoint(ours),
        jax.vmap(lambda a, b, h: cuscan.linear_recurrence(a, b, axis=0, initial=h)),
    ):
        got = jax.jit(jax.grad(lambda *x, scan=scan: (scan(*x) ** 2).sum(), (0, 1, 2)))(a, b, h)
        expected = jax.grad(lambda *x: (loop(*x) ** 2).sum(), (0, 1, 2))(a, b, h)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
