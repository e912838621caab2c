"""Sharded scans of JAX arrays inside `jax.shard_map`, on several devices that JAX simulates on the CPU."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax_cases import AFFINE, TIMES, leaves, wide_types
from selection import covering, each
from sharding import Sample, draw_sample

import cuscan
import cuscan.distributed
from cuscan import ScanTypeError, ScanValueError

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

Array = Any
shard_map = getattr(jax, "shard_map", None) or pytest.importorskip("jax.experimental.shard_map").shard_map
if len(jax.devices("cpu")) < 4:
    pytest.skip("JAX's CPU shows as too few devices", allow_module_level=True)


def mapped(function: Callable[..., Any], size: int, specs: Any, out: Any) -> Callable[..., Any]:
    """A program for several devices, along the axis "ranks" of their mesh."""
    mesh = Mesh(np.array(jax.devices("cpu")[:size]), ("ranks",))
    return jax.jit(shard_map(function, mesh=mesh, in_specs=specs, out_specs=out))


def along(axis: int) -> PartitionSpec:
    return PartitionSpec(*(None,) * axis, "ranks")


def drawn(rng: np.random.Generator, size: int, dtypes: list[str]) -> Sample:
    """A random scan whose axis is divided evenly."""
    while True:
        sample = draw_sample(rng, [1], dtypes)
        shape = next(iter(sample.values.values())).shape
        if shape[sample.axis] and shape[sample.axis] % size == 0:
            sample.keywords.pop("include_initial", None)
            return sample


def in_shards(sample: Sample, size: int) -> tuple[Callable[..., Any], list[Array]]:
    """The program of a scan in shards, and its arrays: values, arrays beside them, perhaps an initial state."""
    beside, keywords = list(sample.beside), dict(sample.keywords)
    spec = along(sample.axis)
    specs = [spec] * len(sample.values)
    specs += [{"offsets": PartitionSpec(), "keys": PartitionSpec("ranks")}.get(name, spec) for name in beside]
    arrays = [*sample.values.values(), *sample.beside.values()]
    if isinstance(keywords.get("initial"), np.ndarray):
        beside, arrays = [*beside, "initial"], [*arrays, keywords.pop("initial")]
        specs.append(PartitionSpec())

    def scan(*arrays: Array) -> Any:
        count = len(sample.values)
        given = dict(zip(beside, arrays[count:], strict=True))
        function = sample.function(cuscan.distributed)
        return function(*arrays[:count], **keywords, **given, axis_name="ranks")

    return mapped(scan, size, tuple(specs), spec), [jnp.asarray(array) for array in arrays]


def check(sample: Sample, size: int) -> None:
    """Results and gradients equal those of the whole."""
    program, arrays = in_shards(sample, size)
    expected = sample.whole(jnp.asarray)
    for one, other in zip(leaves(program(*arrays)), expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    if not jnp.issubdtype(arrays[0].dtype, jnp.floating):
        return
    count = len(sample.values)
    weights = jnp.asarray(np.random.default_rng(1).standard_normal(expected[0].shape), expected[0].dtype)

    def whole(*values: Array) -> Array:
        beside = {name: jnp.asarray(array) for name, array in sample.beside.items()}
        results = sample.function(cuscan)(*values, **beside, **sample.keywords_of(jnp.asarray))
        return (leaves(results)[0] * weights).sum()

    def sharded(*values: Array) -> Array:
        return (leaves(program(*values, *arrays[count:]))[0] * weights).sum()

    wanted = jax.jit(jax.grad(whole, tuple(range(count))))(*arrays[:count])
    for one, other in zip(jax.jit(jax.grad(sharded, tuple(range(count))))(*arrays[:count]), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 80))])
def test_random_scans(seed: int) -> None:
    size = 4 - seed % 4
    with wide_types(bool(seed // 4 % 2)):
        check(drawn(np.random.default_rng(seed), size, ["float64"] if seed % 3 == 2 else []), size)


SEGMENTS: dict[str, Any] = {
    "none": None,
    "reset": np.arange(24).reshape(2, 12) % 5 == 4,
    "keys": np.array([3, 3, 1, 1, 1, 1, 2, 2, 2, 2, 2, 5]),
    "offsets": np.array([0, 0, 3, 7, 7, 12, 12]),
}

WAYS = covering(itertools.product(SEGMENTS, [False, True]), each)


def on_four(call: Callable[..., Any], x: Any, beside: dict[str, Any], **keywords: Any) -> Any:
    """A call on four shards, along axis 1 of all arrays in x."""
    names = list(beside)
    specs = [{"offsets": PartitionSpec(), "keys": PartitionSpec("ranks")}.get(name, along(1)) for name in names]

    def on_shard(x: Any, *arrays: Array) -> Any:
        return call(x, **dict(zip(names, arrays, strict=True)), **keywords, axis_name="ranks")

    return mapped(on_shard, 4, (along(1), *specs), along(1))(x, *beside.values())


def several(module: Any) -> Callable[..., Any]:
    """Scans of one array, by the functions of a module."""

    def scans(x: Array, **keywords: Any) -> Any:
        return (
            module.cumsum(x, axis=1, initial=2, exclusive=True, **keywords),
            module.logcumsumexp(x, axis=1, initial=1.5, **keywords),
            module.cummax(x, axis=1, return_indices=True, ties="last", **keywords),
            module.cummin(x, axis=1, return_indices=True, initial=0, **keywords),
            module.linear_recurrence(0.5, x, axis=1, initial=3.0, **keywords),
        )

    return scans


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_carried_from_shard_to_shard(dtype: str, wide: bool) -> None:
    """Their totals are float32; the total of such totals would be float64, where JAX has that type."""
    with wide_types(wide):
        x = jnp.asarray(np.random.default_rng(0).integers(-4, 5, (2, 12)), dtype)
        for name, values in ("cumsum", (x,)), ("linear_recurrence", (jnp.ones_like(x), x)):
            scan = getattr(cuscan.distributed, name)
            shards = mapped(functools.partial(scan, axis=1, axis_name="ranks"), 4, along(1), along(1))
            assert (shards(*values) == getattr(cuscan, name)(*values, axis=1)).all()


@pytest.mark.parametrize("kind, reverse", WAYS)
def test_segments_across_borders(kind: str, reverse: bool) -> None:
    x = np.random.default_rng(0).integers(-4, 5, (2, 12)).astype(np.float32)
    beside = {} if kind == "none" else {kind: SEGMENTS[kind]}
    got = on_four(several(cuscan.distributed), x, beside, reverse=reverse)
    expected = several(cuscan)(x, **beside, reverse=reverse)
    for one, other in zip(leaves(got), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    "kind, reverse", [*WAYS[:1], *(pytest.param(*way.values, marks=pytest.mark.full) for way in WAYS[1:])]
)
def test_a_carry_comes_in_and_goes_out(kind: str, reverse: bool) -> None:
    """The results are those of one call on all shards, joined; the carry is the same on all ranks."""
    rng = np.random.default_rng(0)
    first, x = rng.integers(-4, 5, (2, 2, 12)).astype(np.float32)
    beside = {} if kind == "none" else {kind: SEGMENTS[kind]}
    a = (0.5,)

    def chunk(module: Any, x: Array, carries: Any, **keywords: Any) -> Any:
        keywords |= {"axis": 1, "reverse": reverse, "return_carry": True}
        calls = (
            functools.partial(module.cumsum, x, initial=2),
            functools.partial(module.logcumsumexp, x),
            functools.partial(module.cummax, x, return_indices=True),
            functools.partial(module.linear_recurrence, *a, x),
        )
        results = [call(carry=carry, **keywords) for call, carry in zip(calls, carries, strict=True)]
        return [result[:-1] for result in results], [result[-1] for result in results]

    _, carries = chunk(cuscan, jnp.asarray(first), [None] * 4, **beside)
    expected = chunk(cuscan, jnp.asarray(x), carries, **beside)
    specs = [{"offsets": PartitionSpec(), "keys": PartitionSpec("ranks")}.get(name, along(1)) for name in beside]

    def on_shard(x: Array, carries: Any, *arrays: Array) -> Any:
        results, behind = chunk(
            cuscan.distributed, x, carries, **dict(zip(beside, arrays, strict=True)), axis_name="ranks"
        )
        return results, jax.tree.map(lambda field: field[None], behind)

    program = mapped(on_shard, 4, (along(1), PartitionSpec(), *specs), (along(1), along(0)))
    results, behind = program(x, carries, *beside.values())
    for one, other in zip(leaves(results), leaves(expected[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for one, other in zip(jax.tree.leaves(behind), jax.tree.leaves(expected[1]), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, np.stack([other] * 4), rtol=1e-6)


@pytest.mark.parametrize("op, fields", [(TIMES, 1), (AFFINE, 2)], ids=["number", "fields"])
def test_operators_of_users(op: Any, fields: int) -> None:
    x = tuple(np.random.default_rng(i).integers(1, 3, (2, 8)).astype(np.float32) for i in range(fields))
    x = x if fields > 1 else x[0]
    for reverse in (False, True):
        call = functools.partial(cuscan.distributed.scan, op=op)
        got = on_four(call, x, {}, axis=1, reverse=reverse)
        for one, other in zip(leaves(got), leaves(cuscan.scan(x, op, axis=1, reverse=reverse)), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.full
def test_numbers_that_the_program_computes() -> None:
    x = jnp.arange(8.0)

    def last(start: Array, x: Array) -> Array:
        program = mapped(
            lambda x, start: cuscan.distributed.cumsum(x, initial=start, axis_name="ranks"),
            4,
            (along(0), PartitionSpec()),
            along(0),
        )
        return program(x, start)[-1]

    assert last(jnp.float32(3), x) == 31
    assert [float(g[0]) if g.ndim else float(g) for g in jax.grad(last, (0, 1))(3.0, x)] == [1, 1]


def test_batches_and_loops() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 5, 8)), "float32")

    def rows(x: Array) -> Array:
        summed = jax.vmap(lambda row: cuscan.distributed.cumsum(row, axis_name="ranks"))
        return jax.lax.scan(lambda _, part: (0, jax.checkpoint(summed)(part)), 0, x)[1]

    got = mapped(rows, 4, along(2), along(2))(x)
    np.testing.assert_allclose(got, jnp.cumsum(x, 2), rtol=1e-5, atol=1e-6)


def test_arrays_that_are_the_same_on_all_devices() -> None:
    """NumPy arrays beside JAX arrays, and an x that the program itself computes."""
    x, reset, keys = jnp.arange(8.0), np.array([False, True]), np.array([1, 2])

    def scans(x: Array) -> Any:
        whole = functools.partial(cuscan.distributed.cumsum, axis_name="ranks")
        return whole(x, reset=reset), whole(x, keys=keys), whole(jnp.ones(2))

    by_reset, by_keys, ones = mapped(scans, 4, along(0), along(0))(x)
    assert by_reset.tolist() == cuscan.cumsum(np.arange(8.0), reset=np.tile(reset, 4)).tolist()
    assert by_keys.tolist() == cuscan.cumsum(np.arange(8.0), keys=np.tile(keys, 4)).tolist()
    assert ones.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_two_axes_of_a_mesh() -> None:
    """Rows along one axis of the mesh, time along the other; or time along both."""
    mesh = Mesh(np.array(jax.devices("cpu")[:4]).reshape(2, 2), ("rows", "time"))
    x = jnp.arange(32.0).reshape(4, 8)
    for names, spec in (
        ("time", PartitionSpec("rows", "time")),
        (("rows", "time"), PartitionSpec(None, ("rows", "time"))),
    ):
        scan = functools.partial(cuscan.distributed.cumsum, axis_name=names)
        got = jax.jit(shard_map(scan, mesh=mesh, in_specs=spec, out_specs=spec))(x)
        np.testing.assert_array_equal(got, jnp.cumsum(x, 1))


def test_one_exchange() -> None:
    """Ranks exchange their carries once, however long the shards are, and nothing of the size of x."""
    program = mapped(functools.partial(cuscan.distributed.cumsum, axis_name="ranks"), 4, along(1), along(1))
    text = program.lower(jnp.ones((2, 4000))).as_text()
    assert text.count("stablehlo.all_gather") == 1 and "all_reduce" not in text and "collective_permute" not in text
    assert "tensor<4x2x" in next(line for line in text.splitlines() if "all_gather" in line and "->" in line)


def test_what_cannot_work_says_so() -> None:
    x = jnp.ones(8)
    with pytest.raises(ScanTypeError, match=r"x is of jax: .*axis_name for.*\(cuscan\.distributed\.cumsum\)"):
        cuscan.distributed.cumsum(x)
    with pytest.raises(ScanTypeError, match="x is of numpy"):
        cuscan.distributed.cumsum(np.ones(3), axis_name="ranks")
    with pytest.raises(ScanValueError, match=r"axis_name='ranks' names no axis .*: call inside jax\.shard_map"):
        cuscan.distributed.cumsum(x, axis_name="ranks")
    with pytest.raises(ScanValueError, match="include_initial makes one shard longer, which shard_map cannot hold"):
        on_four(cuscan.distributed.cumsum, jnp.ones((2, 8)), {}, include_initial=True)
    with pytest.raises(ScanTypeError, match="out= cannot be written"):
        on_four(cuscan.distributed.cumsum, jnp.ones((2, 8)), {}, out=jnp.ones(3))
    with pytest.raises(ScanValueError, match="offsets must"):
        offsets = jnp.array([0, 9])
        call = functools.partial(cuscan.distributed.cumsum, offsets=offsets)
        on_four(call, jnp.ones((2, 8)), {})
