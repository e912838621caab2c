"""Processes that are ranks: started once, they run functions of this module for as long as the pool is open."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from sharding import agree, draw_sample
from torch.testing import assert_close

import cuscan
import cuscan.distributed.torch


class Pool:
    """So many ranks of gloo, forked from one process that has imported torch."""

    def __init__(self, size: int, folder: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["gloo"])  # torch is imported once
        self._pipes, self._ranks = [], []
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # before Python 3.13 the server has no other
        with mock.patch.dict(os.environ, path):
            for rank in range(size):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(rank, size, str(folder / "store"), theirs), daemon=True)
                process.start()
                self._pipes.append(ours)
                self._ranks.append(process)

    def run(self, name: str, *arguments: Any) -> list[Any]:
        """What a function of this module returns on each rank; the first error is raised."""
        for pipe in self._pipes:
            pipe.send((name, arguments))
        answers = []
        for rank, pipe in enumerate(self._pipes):
            assert pipe.poll(120), f"rank {rank} does not answer"
            answers.append(pipe.recv())
        for rank, (error, _) in enumerate(answers):
            assert not error, f"rank {rank}: {error}"
        return [result for _, result in answers]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._ranks:
            process.join(20)
            process.kill()


def _serve(rank: int, size: int, store: str, pipe: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    while (task := pipe.recv()) is not None:
        name, arguments = task
        try:
            pipe.send(("", globals()[name](*arguments)))
        except Exception:
            pipe.send((traceback.format_exc(), None))
    dist.destroy_process_group()


# ---- what ranks do ---------------------------------------------------------------------------------------------------


def random_scans(size: int, seed: int, count: int) -> None:
    """Random scans on the first ranks of the pool against the whole, gradients too."""
    group = dist.new_group(range(size))  # all ranks take part in that
    rng, rank = np.random.default_rng([seed, size]), dist.get_rank()
    for _ in range(count):
        sample = draw_sample(rng, [size], ["float64"] if rng.random() < 0.5 else ())
        if rank >= size:
            continue
        values = [torch.from_numpy(array) for array in sample.values_of(rank)]
        beside = {name: torch.from_numpy(array) for name, array in sample.beside_of(rank).items()}
        keywords = sample.keywords_of(torch.from_numpy)
        followed = values[-1].is_floating_point() and rng.random() < 0.5
        for value in values if followed else ():
            value.requires_grad_()
        results = sample.function(cuscan.distributed)(*values, **beside, **keywords, group=group)
        results = results if isinstance(results, tuple) else (results,)
        whole = sample.whole()
        agree(
            [[result.detach() for result in results]], [sample.result_piece(part, rank) for part in whole], sample.axis
        )
        if followed:
            results[0].sum().backward()
            for number, expected in enumerate(_gradients(sample)):
                assert_close(values[number].grad, sample.piece(expected, rank), rtol=1e-4, atol=1e-4, check_dtype=False)


def _gradients(sample: Any) -> list[Any]:
    """Those of the sum of the whole's results."""
    leaves = [torch.from_numpy(array).requires_grad_() for array in sample.values.values()]
    beside = {name: torch.from_numpy(array) for name, array in sample.beside.items()}
    whole = sample.function(cuscan)(*leaves, **beside, **sample.keywords_of(torch.from_numpy))
    (whole[0] if isinstance(whole, tuple) else whole).sum().backward()
    return [leaf.grad for leaf in leaves]


def every_dtype() -> None:
    """Carries and edges of every dtype travel."""
    size, rank = dist.get_world_size(), dist.get_rank()
    mine = (slice(None), slice(4 * rank, 4 * rank + 4))
    for name in [
        "bool",
        "uint8",
        "int16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "complex64",
    ]:
        x = (torch.arange(8 * size).reshape(2, -1) % 3).to(getattr(torch, name))
        calls = [(cuscan.cumsum, cuscan.distributed.cumsum, {}, {})]
        if name != "complex64":
            flags = {"return_indices": True, "reverse": True}
            calls.append((cuscan.cummax, cuscan.distributed.cummax, flags, {}))
            calls.append((cuscan.cumsum, cuscan.distributed.cumsum, {}, {"keys": x}))
            calls.append((cuscan.cummin, cuscan.distributed.cummin, {"initial": 1}, {"reset": x == 2}))
        for one, other, flags, beside in calls:
            expected = one(x, **flags, **beside)
            found = other(x[mine], **flags, **{key: array[mine] for key, array in beside.items()}, validate=True)
            for whole, part in zip(expected, found, strict=True) if isinstance(found, tuple) else [(expected, found)]:
                assert part.dtype == whole.dtype
                np.testing.assert_array_equal(
                    torch.as_tensor(part, dtype=torch.complex128), torch.as_tensor(whole[mine], dtype=torch.complex128)
                )


def one_rank_differs() -> str:
    """The error where ranks differ, after which the next call works."""
    last = dist.get_rank() == dist.get_world_size() - 1
    with pytest.raises(cuscan.ScanValueError) as raised:
        cuscan.distributed.cumsum(torch.ones(3, dtype=torch.float64 if last else torch.float32), validate=True)
    assert cuscan.distributed.cumsum(torch.ones(2))[1] == 2 * dist.get_rank() + 2
    return str(raised.value)


def dtensors() -> None:
    """Sharded along the axis, along another one, and nowhere; an argument that is broadcast; gradients."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    x, a, weights = torch.randn(7, 6), torch.rand(7, 1), torch.randn(7, 6)
    for placement in (Shard(0), Shard(1), Replicate()):
        for axis in (0, 1):
            ours = [distribute_tensor(x, mesh, [placement]).requires_grad_()]
            ours.append(distribute_tensor(a, mesh, [Replicate()]).requires_grad_())
            mask = distribute_tensor(x > 0, mesh, [placement])
            sums = cuscan.distributed.cumsum(ours[0], axis=axis, mask=mask)
            assert_close(sums.full_tensor(), cuscan.cumsum(x, axis=axis, mask=x > 0))
            h = cuscan.distributed.linear_recurrence(ours[1], ours[0], axis=axis)
            assert h.placements == ours[0].placements
            (h * distribute_tensor(weights, mesh, [placement])).sum().backward()
            theirs = [x.clone().requires_grad_(), a.clone().requires_grad_()]
            expected = cuscan.linear_recurrence(theirs[1], theirs[0], axis=axis)
            (expected * weights).sum().backward()
            assert_close(h.full_tensor(), expected)
            for one, other in zip(ours, theirs, strict=True):
                assert_close(one.grad.full_tensor(), other.grad)


def snippets(texts: list[str]) -> None:
    """Python that finds its rank in torch.distributed."""
    for text in texts:
        exec(compile(text, "docs/distributed.md", "exec"), {"rank": dist.get_rank()})


def compiled() -> None:
    """A graph of torch.compile breaks at the call and goes on behind it."""

    @torch.compile(backend="eager")
    def step(x: Any) -> Any:
        return cuscan.distributed.cumsum(x * 2) + 1

    assert step(torch.ones(2))[0] == 4 * dist.get_rank() + 3
