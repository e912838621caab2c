"""Sharded scans of arrays on a GPU that is none: which stream they go to, and that the host reads nothing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from sharding import Meeting, Sample, agree, call_of, on_threads, samples_of_all_kinds

import cuscan
import cuscan.distributed
from cuscan import ScanValueError
from cuscan.distributed import sharded

pytest.importorskip("cupy", reason="CuPy is not installed")

from fake_gpu import GpuArray, fake_gpu_of_torch, on_gpu

SIDE = 7  # the handle of a stream
SAMPLES = samples_of_all_kinds(np.random.default_rng(0))
KINDS = ["keys", *(pytest.param(kind, marks=pytest.mark.full) for kind in SAMPLES if kind != "keys")]


# ---- CuPy: NumPy stands for it ---------------------------------------------------------------------------------------


class Comm:
    """A communicator of `cupyx.distributed` whose ranks are threads."""

    _comm = SimpleNamespace(device_id=lambda: 0)

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self._n_devices, self._meeting = rank, meeting.size, meeting

    def all_gather(self, message: Any, whole: Any, count: int) -> None:
        whole[...] = np.stack(self._meeting.exchange(self.rank, message[:count].copy()))


def cupy_of_arrays() -> Any:
    """What sharded scans ask of CuPy, for arrays of the GPU that is none."""

    def on_the_gpu(function: Any) -> Any:
        return lambda *arguments, **keywords: function(*arguments, **keywords).view(GpuArray)

    names = ("where", "concatenate", "stack", "broadcast_to", "full", "zeros", "empty", "asarray", "ascontiguousarray")
    made = {name: on_the_gpu(getattr(np, name)) for name in names}
    cuda = SimpleNamespace(Device=lambda device: pytest.MonkeyPatch.context())
    return SimpleNamespace(uint8=np.uint8, cuda=cuda, **made)


@pytest.mark.parametrize("kind", KINDS)
def test_cupy_launches_on_the_current_stream(kind: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuscan.distributed import cupy

    monkeypatch.setattr(cupy, "cupy", cupy_of_arrays())
    drawn = SAMPLES[kind]

    def work(ranks: Any) -> Any:
        values = map(on_gpu, drawn.values_of(ranks.rank))
        beside = {name: on_gpu(array) for name, array in drawn.beside_of(ranks.rank).items()}
        comm = Comm(ranks.rank, ranks._meeting)
        results = drawn.function(cuscan.distributed)(*values, **beside, **drawn.keywords_of(on_gpu), comm=comm)
        return results if isinstance(results, tuple) else (results,)

    gpu.current_stream = SIDE
    parts = on_threads(len(drawn.pieces), work)
    agree(parts, drawn.whole(), drawn.axis)
    assert gpu.launches and {stream for _, stream, _ in gpu.launches + gpu.starts} == {SIDE}


def test_cupy_arrays_of_another_gpu(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank has its shard on the wrong GPU: with `validate` all raise the same error. The next call works."""
    from cuscan.distributed import cupy

    monkeypatch.setattr(cupy, "cupy", cupy_of_arrays())
    drawn, gpu.current_device = SAMPLES["keys"], 0

    def work(ranks: Any) -> Any:
        comm = Comm(ranks.rank, ranks._meeting)
        results = []
        for device in (int(ranks.rank == 1), 0):
            values = [on_gpu(array, device) for array in drawn.values_of(ranks.rank)]
            beside = {name: on_gpu(array, device) for name, array in drawn.beside_of(ranks.rank).items()}
            keywords = drawn.keywords_of(on_gpu) | beside | {"comm": comm, "validate": True}
            try:
                results.append(drawn.function(cuscan.distributed)(*values, **keywords))
            except ScanValueError as error:
                results.append(str(error))
        return results

    found = on_threads(3, work)
    messages = {message.partition("wrong: ")[2] or message for message, _ in found}
    (message,) = messages
    assert message.startswith("x is on GPU 1, and comm of this rank on GPU 0: move x there")
    agree([part if isinstance(part, tuple) else (part,) for _, part in found], drawn.whole(), drawn.axis)


# ---- torch -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu_of_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("torch", reason="torch is not installed")
    from cuscan.interop import torch as interop

    made = fake_gpu_of_torch(monkeypatch)
    gpu = next(made)
    monkeypatch.setattr(interop, "raw_stream", lambda _: gpu.current_stream)
    yield gpu
    made.close()


@contextlib.contextmanager
def reading_is_an_error() -> Iterator[None]:
    """An error where the host would wait for what a tensor holds, as `set_sync_debug_mode` makes it one on a GPU."""
    import torch

    def refuse(name: str) -> Any:
        def read(*_: Any, **__: Any) -> Any:
            raise AssertionError(f"the host waits in {name}")

        return read

    def guarded(index: Any) -> Any:
        def at(x: Any, places: Any, *values: Any) -> Any:
            some = places if isinstance(places, tuple) else (places,)
            if any(isinstance(place, torch.Tensor) and place.dtype == torch.bool for place in some):
                raise AssertionError("the host waits in an index of bools")
            return index(x, places, *values)

        return at

    reads = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "nonzero", "cpu", "numpy", "equal")
    with contextlib.ExitStack() as patches:
        for name in reads:
            patches.enter_context(mock.patch.object(torch.Tensor, name, refuse(name)))
        for name in ("__getitem__", "__setitem__"):
            patches.enter_context(mock.patch.object(torch.Tensor, name, guarded(getattr(torch.Tensor, name))))
        yield


def scan_tensors(sample: Sample, ranks: Any) -> Any:
    import torch

    from cuscan.distributed.torch import ShardedTorch

    class OnGpu(ShardedTorch):
        def is_on_host(self, x: Any) -> bool:
            return False

    xp = OnGpu(ranks)
    call, arrays = call_of(sample, ranks.rank, lambda array: torch.from_numpy(np.ascontiguousarray(array)))
    return sharded.scan(*sharded.prepare(call, tuple(arrays), ranks, xp), ranks, xp)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_launch_on_the_current_stream_and_nothing_is_read(kind: str, gpu_of_torch: Any) -> None:
    import torch

    drawn, gpu_of_torch.current_stream = SAMPLES[kind], SIDE
    with reading_is_an_error():
        parts = on_threads(len(drawn.pieces), functools.partial(scan_tensors, drawn), torch.stack)
    agree([tuple(result.numpy() for result in part) for part in parts], drawn.whole(), drawn.axis)
    launches = gpu_of_torch.launches + gpu_of_torch.starts
    assert launches and {stream for _, stream, _ in launches} == {SIDE}


def test_reading_is_noticed(gpu_of_torch: Any) -> None:
    """Else the test above says nothing."""
    import torch

    x = torch.ones(3)
    for read in (lambda: int(x.sum()), lambda: x[x > 0], lambda: bool(x.any()), lambda: len(x.nonzero())):
        with reading_is_an_error(), pytest.raises(AssertionError, match="the host waits in"):
            read()
