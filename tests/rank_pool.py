"""Processes that act as ranks: started once, they run functions of this module as long as the pool is open."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import multiprocessing
import os
import sys
import time
import traceback
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

# Ranks find these functions here by name.
from dtensor_ranks import compiled_dtensors, dtensors, dtensors_of_all_arguments, what_dtensors_refuse  # noqa: F401
from operator_examples import AFFINE
from sharding import agree, draw_sample
from torch.testing import assert_close

import cuscan
import cuscan.distributed.torch

SECONDS = 240  # that ranks have for a function, in which they may compile many kernels
DTYPES = ("bool", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "complex64")


class Pool:
    """`size` ranks of a backend, forked from one process that has imported torch; with NCCL each has a GPU."""

    def __init__(self, size: int, folder: Path, backend: str = "gloo") -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["rank_pool"])  # so that torch is imported once
        self._pipes, self._ranks = [], []
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # before Python 3.13 the server has no other
        with mock.patch.dict(os.environ, path):
            for rank in range(size):
                ours, theirs = context.Pipe()
                arguments = rank, size, str(folder / "store"), backend, theirs
                process = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                self._pipes.append(ours)
                self._ranks.append(process)

    def run(self, name: str, *arguments: Any) -> list[Any]:
        """The results of a function of this module, one per rank; raises the errors of all ranks."""
        for pipe in self._pipes:
            pipe.send((name, arguments))
        answers, end = {}, time.monotonic() + SECONDS
        while len(answers) < len(self._pipes) and (left := end - time.monotonic()) > 0:
            for pipe in wait([pipe for pipe in self._pipes if pipe not in answers], left):
                answers[pipe] = pipe.recv()
                if answers[pipe][0]:  # the others may wait for this rank
                    end = min(end, time.monotonic() + 10)
        found = [answers.get(pipe, ("no answer", None)) for pipe in self._pipes]
        errors = [f"rank {rank}: {error}" for rank, (error, _) in enumerate(found) if error]
        assert not errors, "\n".join(errors)
        return [result for _, result in found]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._ranks:
            process.join(20)
            process.kill()


def _serve(rank: int, size: int, store: str, backend: str, pipe: Any) -> None:
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
    while (task := pipe.recv()) is not None:
        name, arguments = task
        try:
            pipe.send(("", globals()[name](*arguments)))
        except Exception:
            pipe.send((traceback.format_exc(), None))
    dist.destroy_process_group()


# ---- functions of ranks ----------------------------------------------------------------------------------------------


def on_own_device(array: Any) -> Any:
    """A NumPy array as a tensor of this rank."""
    return torch.from_numpy(np.ascontiguousarray(array)).to("cuda" if dist.get_backend() == "nccl" else "cpu")


def random_scans(size: int, seed: int, count: int) -> None:
    """Random scans on the first ranks of the pool, with gradients, against the whole. On GPUs the host never waits."""
    group = dist.new_group(range(size))  # a call of all ranks
    rng, rank = np.random.default_rng([seed, size]), dist.get_rank()
    for _ in range(count):
        sample = draw_sample(rng, [size], ["float64"] if rng.random() < 0.5 else ())
        if rank >= size:
            continue
        values = [on_own_device(array) for array in sample.values_of(rank)]
        beside = {name: on_own_device(array) for name, array in sample.beside_of(rank).items()}
        keywords = sample.keywords_of(on_own_device)
        followed = values[-1].is_floating_point() and rng.random() < 0.5
        for value in values if followed else ():
            value.requires_grad_()
        function = functools.partial(sample.function(cuscan.distributed), *values, **beside, **keywords, group=group)
        results = function()
        if values[0].is_cuda:  # again, now that kernels are loaded
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                torch.cuda.set_sync_debug_mode("error")
                results = function()
                torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
        results = results if isinstance(results, tuple) else (results,)
        whole = sample.whole()
        expected = [sample.result_piece(part, rank) for part in whole]
        agree([[result.detach().cpu() for result in results]], expected, sample.axis)
        if followed:
            results[0].sum().backward()
            for number, expected in enumerate(_gradients(sample)):
                assert_close(
                    values[number].grad.cpu(), sample.piece(expected, rank), rtol=1e-4, atol=1e-4, check_dtype=False
                )


def _gradients(sample: Any) -> list[Any]:
    """The gradients of the sum of the whole's results."""
    leaves = [torch.from_numpy(array).requires_grad_() for array in sample.values.values()]
    beside = {name: torch.from_numpy(array) for name, array in sample.beside.items()}
    whole = sample.function(cuscan)(*leaves, **beside, **sample.keywords_of(torch.from_numpy))
    (whole[0] if isinstance(whole, tuple) else whole).sum().backward()
    return [leaf.grad for leaf in leaves]


def every_dtype() -> None:
    """Ranks exchange carries and edges of every dtype."""
    size, rank = dist.get_world_size(), dist.get_rank()
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    mine = (slice(None), slice(4 * rank, 4 * rank + 4))
    for name in DTYPES:
        numbers = torch.arange(8 * size, device=device).reshape(2, -1) % 3
        x = numbers.to(getattr(torch, name))
        calls = [(cuscan.cumsum, cuscan.distributed.cumsum, {}, {})]
        if name != "complex64":
            flags = {"return_indices": True, "reverse": True}
            calls.append((cuscan.cummax, cuscan.distributed.cummax, flags, {}))
            calls.append((cuscan.cumsum, cuscan.distributed.cumsum, {}, {"keys": x}))
            calls.append((cuscan.cummin, cuscan.distributed.cummin, {"initial": 1}, {"reset": numbers == 2}))
        for one, other, flags, beside in calls:
            expected = one(x, **flags, **beside)
            found = other(x[mine], **flags, **{key: array[mine] for key, array in beside.items()}, validate=True)
            for whole, part in zip(expected, found, strict=True) if isinstance(found, tuple) else [(expected, found)]:
                assert part.dtype == whole.dtype
                assert torch.equal(part.to(torch.complex128), whole[mine].to(torch.complex128))


def chunks_in_shards() -> None:
    """A sequence in chunks, each of them in shards. Gradients do not pass through the carry; that is an error."""
    rank, size = dist.get_rank(), dist.get_world_size()
    rng = np.random.default_rng(0)
    x = on_own_device(rng.integers(-2, 3, (2, 2 * 4 * size)).astype(np.float64))
    keys, reset = on_own_device(np.sort(rng.integers(0, 9, x.shape[1]))), x == 2
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
        ("cumsum", (x,), {}, {"keys": keys}),
        ("cummax", (x,), {"return_indices": True, "ties": "last"}, {"reset": reset}),
        ("cummax", (x,), {"return_indices": True, "reverse": True}, {}),
        ("logcumsumexp", (x,), {"reverse": True}, {"keys": keys}),
        ("linear_recurrence", (x / 2, x), {}, {"reset": reset}),
    ]
    for name, values, flags, beside in calls:
        whole = getattr(cuscan, name)(*values, **flags, **beside)
        expected, carry, found = whole if isinstance(whole, tuple) else (whole,), None, [None, None]
        for chunk in (1, 0) if flags.get("reverse") else (0, 1):
            mine = slice(4 * (chunk * size + rank), 4 * (chunk * size + rank) + 4)
            own = {key: array[..., mine] for key, array in beside.items()}
            function = functools.partial(getattr(cuscan.distributed, name), *(value[:, mine] for value in values))
            *results, carry = function(**flags, **own, carry=carry, return_carry=True, validate=True)
            found[chunk] = results
            for number, part in enumerate(results):
                moved = 4 * size if number and flags.get("reverse") and chunk else 0  # positions in all chunks so far
                assert_close(part + moved, expected[number][:, mine])
    followed = x[:, :4].clone().requires_grad_()
    total = cuscan.distributed.cumsum(x[:, :4], return_carry=True)[1]
    cuscan.distributed.cumsum(followed, carry=total).sum().backward()
    assert_close(followed.grad[0, :1].cpu(), torch.tensor([4.0 * (size - rank)], dtype=torch.float64))
    for keywords in ({"return_carry": True}, {"carry": total.clone().requires_grad_()}):
        with pytest.raises(cuscan.ScanTypeError, match="a carry has no derivative through ranks: detach"):
            cuscan.distributed.cumsum(followed, **keywords)


def a_mask_that_one_rank_cannot_place() -> str:
    """On the last rank alone, the mask's length fits two axes; the next call works."""
    length = 3 + (dist.get_rank() == dist.get_world_size() - 1)
    x, mask = on_own_device(np.ones((length, 4))), on_own_device(np.ones(length, bool))
    with pytest.raises(cuscan.ScanValueError, match="mask of shape") as raised:
        cuscan.distributed.cumsum(x, axis=0, mask=mask, validate=True)
    assert cuscan.distributed.cumsum(x, axis=0, mask=mask[:, None], validate=True)[0, 0] == 3 * dist.get_rank() + 1
    return str(raised.value)


def one_rank_differs() -> str:
    """Ranks that differ raise an error; the next call works."""
    last = dist.get_rank() == dist.get_world_size() - 1
    shard = on_own_device(np.ones(3, np.float64 if last else np.float32))
    with pytest.raises(cuscan.ScanValueError) as raised:
        cuscan.distributed.cumsum(shard, validate=True)
    assert cuscan.distributed.cumsum(shard.new_ones(2))[1] == 2 * dist.get_rank() + 2
    return str(raised.value)


def one_rank_is_wrong_at_the_door() -> list[str]:
    """An error of one rank before any exchange becomes the error of all ranks; the next call works."""
    with contextlib.suppress(ImportError):  # with CuPy loaded, as on a GPU, torch is not the only library with ranks
        importlib.import_module("cupy")
    last, messages = dist.get_rank() == dist.get_world_size() - 1, []
    x = on_own_device(np.ones(3, np.float32))
    mistakes: list[dict[str, Any]] = [
        {"reverse": 1},
        {"axis": "time"},
        {"x": [1, 2, 3]},
        {"x": x.to(torch.complex32)},
        {"reset": x > 0, "keys": x},
        {"op": "ad"},
        {"comm": 3},
        {"x": x.new_ones((), device="meta")},
    ]
    for mistake in mistakes:
        with pytest.raises(cuscan.ScanValueError) as raised:
            cuscan.distributed.scan(**{"x": x} | (mistake if last else {}), validate=True)
        messages.append(str(raised.value))
        assert cuscan.distributed.cumsum(x, validate=True)[-1] == 3 * dist.get_rank() + 3
    with pytest.raises(cuscan.ScanValueError, match="initial and carry exclude each other") as raised:
        wrong = {"initial": 1, "carry": (x[0], x[0])} if last else {}
        cuscan.distributed.linear_recurrence(0.5, x, **wrong, validate=True)
    return [*messages, str(raised.value)]


def a_tensor_on_the_cpu() -> None:
    """NCCL rejects CPU tensors; the next call works."""
    with pytest.raises(cuscan.ScanValueError, match="x is on cpu, and the group exchanges"):
        cuscan.distributed.cumsum(torch.ones(3))
    assert cuscan.distributed.cumsum(torch.ones(2, device="cuda"))[1] == 2 * dist.get_rank() + 2


def a_tensor_of_no_backend() -> None:
    """A group for GPUs takes none on the CPU; the next call works, and so does one of that group's device alone."""
    group = dist.new_group(backend="cuda:gloo")
    for keywords in ({}, {"validate": True}):
        with pytest.raises(
            cuscan.ScanValueError, match=r"x is on cpu, .* \(cuda:gloo\): move x, or make the group with"
        ):
            cuscan.distributed.cumsum(torch.ones(3), group=group, **keywords)
        assert cuscan.distributed.cumsum(torch.ones(2))[1] == 2 * dist.get_rank() + 2


def empty_shards() -> None:
    """Shards of all lengths, the first and the last of them empty; or all of them. Gradients go past them."""
    rank, lengths = dist.get_rank(), [0, 3, 0, 1, 0]
    mine = slice(sum(lengths[:rank]), sum(lengths[: rank + 1]))
    x = torch.tensor([[2.0, 1.0, 5.0, 3.0], [0.5, -1.0, 2.0, 4.0]])
    keys = torch.tensor([4, 4, 6, 6])
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("cumsum", (x,), {"keys": keys}),
        ("cumsum", (x,), {"exclusive": True, "initial": 2}),
        ("cummax", (x,), {"return_indices": True, "ties": "last"}),
        ("logcumsumexp", (x,), {}),
        ("linear_recurrence", (x / 4, x), {"initial": torch.ones(2)}),
    ]
    for name, values, keywords in calls:
        for reverse in (False, True):
            whole = [value.clone().requires_grad_() for value in values]
            shards = [value[:, mine].clone().requires_grad_() for value in values]
            own = {key: v[mine] if key == "keys" else v for key, v in keywords.items()}
            expected = getattr(cuscan, name)(*whole, **keywords, reverse=reverse)
            found = getattr(cuscan.distributed, name)(*shards, **own, reverse=reverse, validate=True)
            pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True)
            (found, expected), *others = list(pairs)
            for one, other in [(found, expected), *others]:
                assert_close(one, other[:, mine])
            expected.square().sum().backward()
            found.square().sum().backward()
            for one, other in zip(shards, whole, strict=True):
                assert_close(one.grad, other.grad[:, mine])
    for shape in ((2, 0), (0, 3)):
        assert cuscan.distributed.cumsum(torch.ones(shape), keys=torch.ones(shape[1]), axis=1).shape == shape


def an_aborted_group() -> None:
    """The transport raises its own error, at once; a new group works."""
    group, x = dist.new_group(), on_own_device(np.ones(3))
    assert cuscan.distributed.cumsum(x, group=group)[-1] == 3 * dist.get_rank() + 3
    dist.distributed_c10d._abort_process_group(group)
    with pytest.raises((RuntimeError, ValueError)) as raised:
        cuscan.distributed.cumsum(x, group=group)
    assert not isinstance(raised.value, cuscan.ScanError)
    assert cuscan.distributed.cumsum(x, group=dist.new_group())[-1] == 3 * dist.get_rank() + 3


def every_name() -> None:
    """Each function, with user operators too, gives what `cuscan` gives on the whole."""
    rng, rank, size = np.random.default_rng(1), dist.get_rank(), dist.get_world_size()
    x = rng.integers(1, 3, (2, 3 * size)).astype(np.float64)
    holes = np.where(rng.random(x.shape) < 0.3, np.nan, x)
    whole = tuple(map(on_own_device, AFFINE.draw(rng, (3 * size,))))
    mine = (..., slice(3 * rank, 3 * rank + 3))
    calls: list[tuple[str, Any, dict[str, Any]]] = [
        ("cumsum", x, {"dim": -1}),
        ("cumprod", x, {"reverse": True}),
        ("nancumsum", holes, {"exclusive": True}),
        ("nancumprod", holes, {}),
        ("logcumsumexp", x, {"initial": 2.0}),
        ("cummax", x, {"return_indices": True, "ties": "last"}),
        ("cummin", x, {"reverse": True}),
    ]
    for name, array, keywords in calls:
        values = on_own_device(array)
        expected = getattr(cuscan, name)(values, **keywords)
        found = getattr(cuscan.distributed, name)(values[mine], **keywords)
        for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
            assert_close(one, other[mine])
    b = on_own_device(x)
    assert_close(cuscan.distributed.linear_recurrence(0.5, b[mine]), cuscan.linear_recurrence(0.5, b)[mine])
    for reverse in (False, True):
        keywords = {"op": AFFINE.operator(), "reverse": reverse, "validate": True}
        found = cuscan.distributed.scan(tuple(field[mine] for field in whole), **keywords)
        keywords.pop("validate")
        assert_close(found, tuple(field[mine] for field in cuscan.scan(whole, **keywords)))


def one_rank_is_missing() -> None:
    """The other ranks end in the transport's own timeout; a new group works."""
    last = dist.get_rank() == dist.get_world_size() - 1
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if not last:
        with pytest.raises(RuntimeError, match=r"(?i)time|closed|reset"):
            cuscan.distributed.cumsum(torch.ones(3), group=group)
    again = dist.new_group()
    assert cuscan.distributed.cumsum(torch.ones(3), group=again)[-1] == 3 * dist.get_rank() + 3


def a_rank_without_a_part() -> None:
    """A rank calls with a group that it does not belong to."""
    group = dist.new_group([0])
    if dist.get_rank():
        with pytest.raises(cuscan.ScanValueError, match="this process is not part of group"):
            cuscan.distributed.cumsum(torch.ones(3), group=group)


def snippets(texts: list[str]) -> None:
    """Runs Python code that finds its rank in torch.distributed."""
    for text in texts:
        exec(compile(text, "docs/distributed.md", "exec"), {"rank": dist.get_rank()})


def what_does_not_go_through_ranks() -> None:
    """Forward derivatives and torch.func raise an error; they are not dropped."""
    from torch.autograd import forward_ad

    with forward_ad.dual_level(), pytest.raises(cuscan.ScanTypeError, match=r"only backward\(\) goes through ranks"):
        cuscan.distributed.cumsum(forward_ad.make_dual(torch.ones(2), torch.ones(2)))
    with pytest.raises(cuscan.ScanTypeError, match=r"only backward\(\) goes through ranks"):
        torch.func.vmap(cuscan.distributed.cumsum)(torch.ones(2, 2))
    with pytest.raises(cuscan.ScanTypeError, match="out= has no derivative"):
        cuscan.distributed.cumsum(torch.ones(2, requires_grad=True), out=torch.empty(2))
    out = torch.empty(2)
    assert cuscan.distributed.cumsum(torch.ones(2), out=out) is out
    assert out[1] == 2 * dist.get_rank() + 2


def compiled() -> None:
    """A graph of torch.compile breaks only at the call, and goes on after it; the same with gradients."""
    x, graphs = torch.ones(2), []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=count)
    def step(x: Any, **keywords: Any) -> Any:
        return cuscan.distributed.cumsum(x * 2, **keywords) + 1

    for keywords in ({}, {"keys": torch.ones(2), "validate": True}, {"reverse": True}):
        torch._dynamo.reset()
        graphs.clear()
        assert step(x, **keywords).shape == x.shape
        assert len(graphs) == 2
    followed = x.clone().requires_grad_()
    result = step(followed)
    assert result[0] == 4 * dist.get_rank() + 3
    result.sum().backward()
    assert followed.grad[0] == 4 * (dist.get_world_size() - dist.get_rank())
