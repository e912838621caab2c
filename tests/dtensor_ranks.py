"""What ranks of `rank_pool` do with DTensors."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from operator_examples import AFFINE
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing import assert_close

import cuscan
import cuscan.distributed.torch


def dtensors() -> None:
    """Sharded along the axis, along another one, and nowhere; an argument that is broadcast; gradients."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    x, a, weights = torch.randn(7, 6), torch.rand(7, 1), torch.randn(7, 6)
    for placement in (Shard(0), Shard(1), Replicate()):
        for axis in (0, 1):
            ours = [distribute_tensor(x, mesh, [placement]).requires_grad_()]
            ours.append(distribute_tensor(a, mesh, [Replicate()]).requires_grad_())
            mask = distribute_tensor(x > 0, mesh, [Shard(0)])  # moves to where x is
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


def dtensors_of_all_arguments() -> None:
    """Each beside x, on a mesh of two dimensions; shards along other axes alone exchange nothing."""
    mesh = dist.device_mesh.DeviceMesh("cpu", [[0, 1], [2, 3]])
    if dist.get_rank() > 3:
        return
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    fields = tuple(torch.from_numpy(field) for field in AFFINE.draw(np.random.default_rng(0), (7, 5)))
    segments = {
        "keys": torch.arange(7) // 3,
        "reset": torch.arange(7) % 3 == 2,  # lies along the axis, though a shard of it is as long as the other one
        "mask": torch.arange(5) > 1,  # along the other one
        "offsets": torch.tensor([0, 1, 1, 6, 7]),
    }
    recurrence = functools.partial(_on_both, "linear_recurrence", axis=0)
    for placements in ([Shard(0), Shard(1)], [Shard(1), Shard(0)], [Replicate(), Shard(0)], [Shard(0), Shard(0)]):
        if placements.count(Shard(0)) < 2:
            _on_both("cummax", mesh, placements, x, axis=0, return_indices=True, reverse=True)
            _on_both("scan", mesh, placements, fields, op=AFFINE.operator(), axis=0)
            for name, array in segments.items():
                _on_both("cumsum", mesh, placements, x, axis=0, **{name: array})
            recurrence(mesh, placements, x[0], x, initial=x[1], reset=segments["reset"])
            recurrence(mesh, placements, 0.5, x, initial=2.0)
        if Shard(1) not in placements:
            refused = mock.patch.object(cuscan.distributed.torch.GroupRanks, "gather", side_effect=AssertionError)
            whole = [distribute_tensor(x, mesh, placements) for _ in range(2)]
            with refused, CommDebugMode() as collectives:
                cuscan.distributed.linear_recurrence(*whole, axis=1)
            assert collectives.get_total_counts() == 0
            with pytest.raises(AssertionError), refused:  # else this says nothing
                cuscan.distributed.cumsum(distribute_tensor(x, mesh, [Replicate(), Shard(0)]), axis=0)


def _on_both(name: str, mesh: Any, placements: Any, *values: Any, **keywords: Any) -> None:
    """A call on DTensors is that on whole tensors."""

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(moved, value))
        if not isinstance(value, torch.Tensor):
            return value
        return distribute_tensor(value, mesh, placements if value.ndim == 2 else [Replicate()] * 2)

    found = getattr(cuscan.distributed, name)(*map(moved, values), **{k: moved(v) for k, v in keywords.items()})
    expected = getattr(cuscan, name)(*values, **keywords)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        assert list(one.placements) == placements
        assert_close(one.full_tensor(), other)


def compiled_dtensors() -> None:
    """As of plain tensors, a graph of torch.compile breaks at the call and nowhere else."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x, graphs = torch.ones(4, 6), []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=count)
    def step(x: Any) -> Any:
        return cuscan.distributed.cumsum(x * 2, axis=1) + 1

    ours = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
    result = step(ours)
    assert len(graphs) == 2
    assert_close(result.full_tensor(), 1 + 2 * x.cumsum(1))
    result.sum().backward()
    assert_close(ours.grad.full_tensor()[0], 2 * x[0].cumsum(0).flip(0))


def what_dtensors_refuse() -> list[str]:
    """The errors; each says what to do, and the next call works. They are of what all ranks know."""
    rank, size = dist.get_rank(), dist.get_world_size()
    line, two = (dist.device_mesh.DeviceMesh("cpu", ranks) for ranks in (list(range(size)), [[0, 1], [2, 3]]))
    x = torch.ones(7, 6)
    along = distribute_tensor(x, line, [Shard(0)])  # of two, two, two, one and no rows
    cumsum, recur = (getattr(cuscan.distributed, name) for name in ("cumsum", "linear_recurrence"))
    calls: list[tuple[str, Any]] = [
        (r"x has the placement Partial\(sum\): pass x.redistribute", lambda: cumsum(_parts(x, line), axis=0)),
        ("out does not go with DTensors: leave it out", lambda: cumsum(along, axis=0, out=along)),
        ("out does not go with DTensors: leave it out", lambda: cumsum(x, axis=0, out=along)),
        ("group does not .*: leave it out, the mesh", lambda: cumsum(along, axis=0, group=dist.group.WORLD)),
        ("carry does not .*: pass x.to_local", lambda: cumsum(along, axis=0, carry=x[0])),
        ("return_carry does not .*: pass x.to_local", lambda: cumsum(along, axis=0, return_carry=True)),
        ("include_initial .*: use initial", lambda: cumsum(along, axis=0, include_initial=True)),
        ("mask is no DTensor, .* pass distribute_tensor", lambda: cumsum(along, axis=0, mask=x > 0)),
        ("reset is no DTensor", lambda: cumsum(along, axis=0, reset=(x > 0).numpy())),
        ("x is no DTensor", lambda: cumsum(x, axis=0, mask=along > 0)),
        ("x is no DTensor", lambda: cumsum([1, 2], axis=0, mask=along > 0)),
        ("a is no DTensor", lambda: recur(x, along, axis=0)),
        ("b is no DTensor", lambda: recur(along, x, axis=0)),
        (r"mask of shape \(5, 6\) .* to x of shape \(7, 6\)", lambda: cumsum(along, axis=0, mask=along[:5] > 0)),
        (r"axis 2 is out of range for x of shape \(7, 6\)", lambda: cumsum(along, axis=2)),
        ("axis must be an integer; got 'time'", lambda: cumsum(along, axis="time")),
        (r"shapes \(7, 1\) and \(7, 6\): pass x.expand", lambda: _pair(along[:, :1], along)),
        (r"op must be one of .*got 'ad' \(cuscan.distributed.scan\)", lambda: cuscan.distributed.scan(along, "ad")),
        ("x is a DTensor: .* in cuscan.distributed", lambda: cuscan.cumsum(along, axis=0)),
        (r"mask is a DTensor: .* or pass mask.to_local\(\)", lambda: cuscan.cumsum(x, axis=0, mask=along > 0)),
    ]
    messages = []
    for message, call in calls:
        with pytest.raises(cuscan.ScanError, match=message) as raised:
            call()
        messages.append(str(raised.value))
        assert_close(cumsum(along, axis=0).full_tensor(), x.cumsum(0))
    # Shards that torch would not cut so are scanned as they are; what is beside them is cut as torch does.
    own = torch.ones(2 if rank else 5, 6)
    uneven = DTensor.from_local(own, line, [Shard(0)], run_check=False, shape=torch.Size((13, 6)), stride=(6, 1))
    assert cumsum(uneven, axis=0).to_local()[-1, 0] == 5 + 2 * rank
    mask = distribute_tensor(torch.ones(13, 6) > 0, line, [Replicate()])
    with pytest.raises(cuscan.ScanValueError, match="the call of rank 0 is wrong: mask of shape") as raised:
        cumsum(uneven, axis=0, mask=mask, validate=True)
    messages.append(str(raised.value))
    twice = distribute_tensor(x, two, [Shard(0), Shard(0)])
    inside = (
        ("axis 0 is sharded by 2 dimensions of the mesh: pass x.redistribute", lambda: cumsum(twice, axis=0)),
        ("mask is on another device mesh than x", lambda: cumsum(twice, axis=1, mask=along > 0)),
    )
    for message, call in inside:
        with pytest.raises(
            cuscan.ScanError, match=message if rank < 4 else "this process is not part of the mesh of x"
        ):
            call()
    return messages


def _parts(x: torch.Tensor, mesh: Any) -> Any:
    """A DTensor whose elements are sums over ranks."""
    return DTensor.from_local(x, mesh, [Partial()])


def _pair(*fields: Any) -> Any:
    return cuscan.distributed.scan(fields, AFFINE.operator(), axis=0)
