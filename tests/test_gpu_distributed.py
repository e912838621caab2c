"""Sharded scans on GPUs: ranks that take turns on one GPU, and NCCL on two."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu import LIBRARIES, hold, need, to_numpy
from sharding import agree, call_of, draw_sample, on_threads, samples_of_all_kinds

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


SAMPLES = samples_of_all_kinds(np.random.default_rng(0))


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("name", LIBRARIES)
def test_ranks_on_a_side_stream(name: str, kind: str) -> None:
    """They read what that stream brings, though on any other one it is not there yet, and the host waits for nothing.

    The first turn compiles kernels.
    """
    library, sample = need(name), SAMPLES[kind]
    calls = [call_of(sample, rank, library.device) for rank in range(len(sample.pieces))]
    sources = [[library.copy(array) for array in arrays] for _, arrays in calls]
    stream = library.stream()
    for milliseconds in (0, 300):
        for _, arrays in calls:
            for array in arrays:
                array[...] = 0
        library.synchronize()
        with library.on(stream):
            hold(milliseconds, library.handle(stream))
            held = library.event(stream)
            for (_, arrays), right in zip(calls, sources, strict=True):
                for array, source in zip(arrays, right, strict=True):
                    array[...] = source
        with waiting_is_an_error(name) if milliseconds else contextlib.nullcontext():
            parts = on_threads(len(calls), functools.partial(scan_on, library, stream, calls), stack_of(name))
        assert not milliseconds or not library.is_done(held)
        stream.synchronize()
        agree([tuple(map(to_numpy, part)) for part in parts], sample.whole(), sample.axis)
        del parts  # its memory is for the next turn


def scan_on(library: Any, stream: Any, calls: Any, ranks: Any) -> tuple[Any, ...]:
    from cuscan.distributed.namespaces import ArrayNamespace

    if library.name == "cupy":
        import cupy

        xp: Any = ArrayNamespace(cupy)
    else:
        from cuscan.distributed.torch import ShardedTorch

        xp = ShardedTorch(ranks)
    call, arrays = calls[ranks.rank]
    with library.on(stream):
        call, arrays = sharded.prepare(call, tuple(arrays), ranks, xp)
        return sharded.scan(call, tuple(arrays), ranks, xp)


def stack_of(name: str) -> Any:
    """What joins the arrays of ranks."""
    return __import__(name).stack


@contextlib.contextmanager
def waiting_is_an_error(name: str) -> Iterator[None]:
    """In torch, where the host would wait for the GPU; CuPy cannot tell."""
    if name != "torch":
        yield
        return
    import torch

    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_nccl_of_torch_with_one_rank(tmp_path: Path) -> None:
    """It gathers keys, lengths and carries all the same."""
    pytest.importorskip("torch", reason="torch is not installed")
    from rank_pool import Pool

    pool = Pool(1, tmp_path, "nccl")
    try:
        pool.run("a_tensor_on_the_cpu")
        pool.run("random_scans", 1, 0, 10)
        pool.run("chunks_in_shards")
    finally:
        pool.close()


def test_nccl_of_cupy_with_one_rank_on_a_side_stream() -> None:
    """Keys, lengths and the carry go through NCCL behind what that stream brings, and the host does not wait."""
    pytest.importorskip("cupy.cuda.nccl", reason="CuPy finds no NCCL")
    import cupy
    from cupyx.distributed import init_process_group

    import cuscan.distributed

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    comm = init_process_group(1, 0, port=port)
    source, keys = cupy.arange(1, 7), cupy.asarray([0, 0, 0, 5, 5, 7])
    stream = cupy.cuda.Stream(non_blocking=True)
    for milliseconds in (0, 300):  # the first turn compiles kernels, and lets NCCL begin
        x = cupy.zeros_like(source)
        cupy.cuda.runtime.deviceSynchronize()
        with stream:
            hold(milliseconds, stream.ptr)
            held = stream.record()
            x[...] = source
            results, (carry, key) = cuscan.distributed.cumsum(x, keys=keys, comm=comm, return_carry=True)
        assert not milliseconds or not held.done
        stream.synchronize()
        assert results.tolist() == [1, 3, 6, 4, 9, 6]
        assert (int(carry), int(key)) == (6, 7)
        del results, carry, key  # their memory is for the next turn
    comm.stop()


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
    pool.run("random_scans", 2, 0, 40)
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
    from cupy_ranks import scan_on_own_gpu

    context = multiprocessing.get_context("spawn")
    pipes, ranks = zip(*(context.Pipe() for _ in range(2)), strict=True)
    started = [context.Process(target=scan_on_own_gpu, args=(rank, pipe)) for rank, pipe in enumerate(ranks)]
    for process in started:
        process.start()
    answers = [pipe.recv() if pipe.poll(240) else "no answer" for pipe in pipes]  # they may compile many kernels
    for process in started:
        process.join(20)
        process.kill()
    assert answers == ["", ""]
