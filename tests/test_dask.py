"""Scans of Dask arrays compared with scans of the whole: random calls, laziness, errors, worker processes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from operator_examples import AFFINE
from sharding import Sample, agree, draw_sample

import cuscan
from cuscan import ScanTypeError, ScanValueError

dask = pytest.importorskip("dask", reason="dask is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")

import cuscan.dask  # noqa: E402


def in_blocks(rng: np.random.Generator, sample: Sample) -> tuple[Any, ...]:
    """The scan of Dask arrays. Their chunks are the pieces along the axis, and random along other axes."""
    shape = next(iter(sample.values.values())).shape
    chunks = tuple(
        tuple(end - first for first, end in sample.pieces) if i == sample.axis else int(rng.integers(1, max(n, 1) + 1))
        for i, n in enumerate(shape)
    )
    values = [da.from_array(array, chunks) for array in sample.values.values()]
    beside = {
        name: array if name == "offsets" or rng.random() < 0.5 else da.from_array(array, 3)
        for name, array in sample.beside.items()
    }
    if sample.op in ("cummax", "cummin"):
        return tuple(cuscan.dask.scan(*values, sample.op[3:], return_indices=True, **beside, **sample.keywords))
    return (sample.function(cuscan.dask)(*values, **beside, **sample.keywords),)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))])
def test_blocks_give_the_whole(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    for _ in range(25 if seed == 0 else 100):
        sample = draw_sample(rng, (1, 2, 4, 7))
        results, whole = in_blocks(rng, sample), sample.whole()
        agree([dask.compute(*results, scheduler="sync")], whole, sample.axis)
        lengths = [sample.result_piece(whole[0], i).shape[sample.axis] for i in range(len(sample.pieces))]
        for result, expected in zip(results, whole, strict=True):
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
            assert list(result.chunks[sample.axis]) == lengths


def test_carries_go_through_a_tree() -> None:
    """For 64 blocks, the longest chain of totals, joins and scans is logarithmic."""
    result = cuscan.dask.scan(da.ones(64, chunks=1))
    graph = dict(result.__dask_graph__())
    depths: dict[Any, int] = {}

    def depth(key: Any) -> int:
        if key not in depths:
            below = max((depth(k) for k in dask.core.get_dependencies(graph, key) if k in graph), default=0)
            depths[key] = below + str(key[0]).startswith(("cuscan-total", "cuscan-join", "cuscan-scan"))
        return depths[key]

    assert max(map(depth, graph)) <= 1 + 2 * 6 + 2
    np.testing.assert_array_equal(result, np.arange(1, 65))


def test_nothing_is_computed_before() -> None:
    def fail(block: Any) -> Any:
        raise RuntimeError("this block is broken")

    x = da.ones(6, chunks=2)
    result = cuscan.dask.scan(x.map_blocks(fail, dtype=float, meta=np.empty(0)))
    with pytest.raises(RuntimeError, match="this block is broken"):
        result.compute(scheduler="sync")
    np.testing.assert_array_equal(cuscan.dask.scan(x), np.arange(1, 7))


def test_operators_of_users() -> None:
    values = AFFINE.draw(np.random.default_rng(0), (40,))
    found = cuscan.dask.scan(tuple(da.from_array(value, 7) for value in values), AFFINE.operator(), reverse=True)
    for one, other in zip(found, cuscan.scan(values, AFFINE.operator(), reverse=True), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("op", ["sum", np.add, operator.add])
def test_operators_have_other_names(op: Any) -> None:
    np.testing.assert_array_equal(cuscan.dask.scan(da.ones(6, chunks=2), op), np.arange(1, 7))


def test_a_number_as_decay() -> None:
    b = np.random.default_rng(0).standard_normal(50)
    found = cuscan.dask.linear_recurrence(0.5, da.from_array(b, 9), initial=2.0)
    np.testing.assert_allclose(found, cuscan.linear_recurrence(0.5, b, initial=2.0))


BOTH_SPELLINGS = r"mask.reshape\(-1, 1\) for axis 0, or mask.reshape\(1, -1\) for the last"


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: cuscan.dask.scan(np.ones(3)), ScanTypeError, r"pass da.asarray\(x\) \(cuscan.dask.scan\)"),
        (lambda x: cuscan.dask.scan(x[x > 0]), ScanValueError, "compute_chunk_sizes"),
        (lambda x: cuscan.dask.scan(x, axis=2), ScanValueError, "axis 2 is out of range"),
        (lambda x: cuscan.dask.scan(x, "and"), ScanTypeError, "op='and' is defined on"),
        (lambda x: cuscan.dask.scan(x, "plus"), ScanValueError, "op must be one of 'add'"),
        (lambda x: cuscan.dask.scan(da.ones((4, 4)), axis=0, mask=np.ones(4, bool)), ScanValueError, BOTH_SPELLINGS),
        (lambda x: cuscan.dask.scan(x, offsets=[0, 3]), ScanValueError, r"end with the size of the axis \(6\)"),
        (lambda x: cuscan.dask.scan(x, mask=np.ones(4, bool)), ScanValueError, r"\(4,\) does not broadcast to \(6,\)"),
        (lambda x: cuscan.dask.scan(x, keys=x, reset=x > 0), ScanValueError, "reset and keys exclude each other"),
    ],
)
def test_errors_come_before_anything_is_computed(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(da.ones(6, chunks=2))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as made, distributed.Client(made) as client:
        yield client


def test_worker_processes(cluster: Any) -> None:
    b = np.random.default_rng(4).standard_normal((5, 60))
    h = cuscan.dask.linear_recurrence(0.5, da.from_array(b, (5, 17)), keys=np.arange(60) // 25)
    np.testing.assert_allclose(h, cuscan.linear_recurrence(0.5, b, keys=np.arange(60) // 25))
    indexed = cuscan.dask.scan(da.from_array(np.array([3, 1, 4, 1, 5]), 2), "max", return_indices=True)
    assert indexed[1].compute().tolist() == [0, 0, 2, 2, 4]


@pytest.mark.parametrize("numpy", [np.add, lambda earlier, later: earlier + later], ids=["ufunc", "lambda"])
def test_operators_go_to_worker_processes(cluster: Any, numpy: Any) -> None:
    """Many blocks share what is stored for their operator, although each task brings a copy of it."""
    plus = cuscan.Operator("plus", "earlier + later", 0, numpy=numpy)
    found = cuscan.dask.scan(da.ones(60, chunks=2), plus)
    np.testing.assert_array_equal(found.compute(), np.arange(1, 61))
    assert max(cluster.run(_count_operators).values()) <= 2


def _count_operators() -> int:
    from cuscan.operators import KEYED

    return sum(key.startswith("plus#") for key in KEYED)


def test_a_block_that_raises_in_a_worker(cluster: Any) -> None:
    """The caller gets the worker's error, and the next call works."""
    x = da.ones(12, chunks=3)
    with pytest.raises(RuntimeError, match="this block is broken"):
        cuscan.dask.scan(x.map_blocks(_broken, dtype=float, meta=np.empty(0))).compute()
    np.testing.assert_array_equal(cuscan.dask.scan(x).compute(), np.arange(1, 13))


def test_a_block_that_is_not_what_it_says(cluster: Any) -> None:
    """The error of the scan in the worker comes out as it is, and the next call works."""
    x = da.ones(12, chunks=3)
    mask = (x > 0).map_blocks(_as_numbers, dtype=bool, meta=np.empty(0, bool))
    with pytest.raises(ScanTypeError, match="mask must have dtype bool; got float64"):
        cuscan.dask.scan(x, mask=mask).compute()
    np.testing.assert_array_equal(cuscan.dask.scan(x, mask=x > 0).compute(), np.arange(1, 13))


def _as_numbers(block: Any) -> Any:
    return block.astype(float)


def _broken(block: Any) -> Any:
    raise RuntimeError("this block is broken")


def test_what_is_on_the_host_goes_to_blocks_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    block, flags = object(), np.zeros(3, bool)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=lambda array: ("moved", array)))
    assert cuscan.dask._beside(block, (block, flags, 0.5)) == (block, ("moved", flags), 0.5)
    assert cuscan.dask._beside(flags, (block, flags)) == (block, flags)


@pytest.mark.gpu
def test_blocks_on_a_gpu() -> None:
    """The host computes their boundaries."""
    import cupy

    x = np.arange(1, 13, dtype=np.float32).reshape(2, 6)
    blocks = da.from_array(cupy.asarray(x), (1, 4), asarray=False)
    for beside in ({}, {"offsets": [0, 3, 6]}, {"mask": x > 3}, {"initial": 2}):
        found = cuscan.dask.scan(blocks, axis=1, **beside).compute(scheduler="sync")
        assert isinstance(found, cupy.ndarray)
        expected = cuscan.scan(x, axis=1, **{k: np.asarray(v) if k == "offsets" else v for k, v in beside.items()})
        np.testing.assert_allclose(cupy.asnumpy(found), expected)


@pytest.mark.full
def test_a_killed_worker_is_recomputed(cluster: Any) -> None:
    x = da.ones(40, chunks=2).map_blocks(_slowly, dtype=float, meta=np.empty(0))
    future = cluster.compute(cuscan.dask.scan(x))
    cluster.cluster.scheduler.workers  # noqa: B018
    nanny = next(iter(cluster.cluster.workers.values()))
    cluster.sync(nanny.kill)
    np.testing.assert_array_equal(future.result(timeout=60), np.arange(1, 41))


def _slowly(block: Any) -> Any:
    import time

    time.sleep(0.05)
    return block
