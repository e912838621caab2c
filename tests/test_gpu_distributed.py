"""Sharded scans on GPUs: ranks that take turns on one GPU, and NCCL on two."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sharding import agree, call_of, draw_sample, on_threads

from cuscan.distributed import sharded

pytestmark = pytest.mark.gpu


def scan_shard(namespace: Any, convert: Any, sample: Any, ranks: Any) -> tuple[Any, ...]:
    xp = namespace(ranks)
    call, arrays = sharded.prepare(*call_of(sample, ranks.rank, convert), ranks, xp)
    return sharded.scan(call, tuple(arrays), ranks, xp)


def test_cupy_arrays_on_one_gpu() -> None:
    import cupy

    from cuscan.distributed.namespaces import ArrayNamespace

    rng, namespace = np.random.default_rng(0), lambda ranks: ArrayNamespace(cupy)
    for _ in range(40):
        sample = draw_sample(rng, (1, 2, 3, 5))
        work = functools.partial(scan_shard, namespace, cupy.asarray, sample)
        parts = on_threads(len(sample.pieces), work, cupy.stack)
        agree([tuple(map(cupy.asnumpy, part)) for part in parts], sample.whole(), sample.axis)


def test_tensors_on_one_gpu() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from cuscan.distributed.torch import ShardedTorch

    rng, convert = np.random.default_rng(1), lambda array: torch.from_numpy(np.ascontiguousarray(array)).cuda()
    for _ in range(40):
        sample = draw_sample(rng, (1, 2, 3, 5))
        work = functools.partial(scan_shard, ShardedTorch, convert, sample)
        parts = on_threads(len(sample.pieces), work, torch.stack)
        agree([tuple(result.cpu() for result in part) for part in parts], sample.whole(), sample.axis)


# ---- two GPUs --------------------------------------------------------------------------------------------------------


def skip_without_two_gpus() -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU alone")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    skip_without_two_gpus()
    pytest.importorskip("torch", reason="torch is not installed")
    from rank_pool import Pool

    opened = Pool(2, tmp_path_factory.mktemp("ranks"), "nccl")
    yield opened
    opened.close()


def test_nccl_of_torch(pool: Any) -> None:
    pool.run("random_scans", 2, 0, 60)
    pool.run("every_dtype")
    assert len(set(pool.run("one_rank_differs"))) == 1
    pool.run("chunks_in_shards")
    assert len(set(pool.run("a_mask_that_one_rank_cannot_place"))) == 1
    pool.run("a_tensor_on_the_cpu")
    pool.run("every_name")
    first, *others = pool.run("one_rank_is_wrong_at_the_door")
    assert all(other == first for other in others)
    pool.run("an_aborted_group")


def test_nccl_of_cupy() -> None:
    skip_without_two_gpus()
    pytest.importorskip("cupy.cuda.nccl", reason="CuPy finds no NCCL")
    context = multiprocessing.get_context("spawn")
    pipes, ranks = zip(*(context.Pipe() for _ in range(2)), strict=True)
    started = [context.Process(target=scan_on_own_gpu, args=(rank, pipe)) for rank, pipe in enumerate(ranks)]
    for process in started:
        process.start()
    answers = [pipe.recv() if pipe.poll(120) else "no answer" for pipe in pipes]
    for process in started:
        process.join(20)
        process.kill()
    assert answers == ["", ""]


def scan_on_own_gpu(rank: int, pipe: Any) -> None:
    """The work of a rank with CuPy; it returns its error."""
    import traceback

    import cupy
    from cupyx.distributed import init_process_group

    import cuscan.distributed

    try:
        cupy.cuda.Device(rank).use()
        comm, rng = init_process_group(2, rank), np.random.default_rng(2)
        for _ in range(40):
            sample = draw_sample(rng, (2,))
            values = [cupy.asarray(array) for array in sample.values_of(rank)]
            beside = {name: cupy.asarray(array) for name, array in sample.beside_of(rank).items()}
            keywords = sample.keywords_of(cupy.asarray)
            results = sample.function(cuscan.distributed)(*values, **beside, **keywords, comm=comm, validate=True)
            results = results if isinstance(results, tuple) else (results,)
            expected = [sample.result_piece(part, rank) for part in sample.whole()]
            agree([tuple(map(cupy.asnumpy, results))], expected, sample.axis)
        pipe.send("")
    except Exception:
        pipe.send(traceback.format_exc())
