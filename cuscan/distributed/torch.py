"""torch.distributed: the ranks of a process group, and sharded scans under autograd. Imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import forward_ad

from cuscan.autograd.torch import TorchNamespace
from cuscan.autograd.torch_recording import Recording
from cuscan.distributed import sharded
from cuscan.distributed.derivative import pullback
from cuscan.distributed.header import check_headers, compare, raising_together
from cuscan.distributed.messages import lay_out
from cuscan.dtypes import DType
from cuscan.errors import MissingDependencyError, ScanTypeError, ScanValueError
from cuscan.interop.torch import is_plain, to_torch, transforms_are_active
from cuscan.linearised import Call
from cuscan.request.call import CARRY, Flags, Operands

Array = Any
Arrays = tuple[Array, ...]

if not dist.is_available():
    raise MissingDependencyError("this build of torch has no torch.distributed; install one that has")
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the name since torch 2.13


class GroupRanks:
    """The ranks of a process group; see `sharded.Ranks`. Arrays travel as bytes, in one message."""

    def __init__(self, group: Any, device: Any) -> None:
        if not dist.is_initialized():
            raise ScanValueError("torch.distributed is not initialized: call torch.distributed.init_process_group")
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ScanValueError("this process is not part of group; only its ranks call")
        config = str(dist.get_backend_config(group))
        if ":" in config and f"{device.type}:" not in config:
            raise ScanValueError(
                f"x is on {device}, and the group exchanges what its backends are for ({config}): "
                f"move x, or make the group with a backend for {device.type}"
            )
        bound = getattr(dist.group.WORLD if group is None else group, "bound_device_id", None)
        if bound is not None and bound.type == device.type and bound != device:
            raise ScanValueError(f"x is on {device}, and the group of this rank on {bound}: move x there")

    def gather(self, arrays: Sequence[Array]) -> list[Array]:
        parts = [array.contiguous().reshape(-1).view(torch.uint8) for array in arrays]
        places, size = lay_out([len(part) for part in parts])
        message = parts[0]
        if len(parts) > 1:
            message = message.new_empty(size)
            for part, place in zip(parts, places, strict=True):
                message[place] = part
        whole = message.new_empty(self.size, size)
        if size:
            _gather(whole.reshape(-1), message, group=self.group)
        return [
            whole[:, place].view(array.dtype).reshape(self.size, *array.shape)
            if array.numel()
            else array.new_empty(self.size, *array.shape)
            for array, place in zip(arrays, places, strict=True)
        ]


class ShardedTorch(TorchNamespace):
    """See `pieces.Namespace` and `derivative.ShardedNamespace`."""

    def __init__(self, ranks: sharded.Ranks) -> None:
        self.ranks = ranks

    def any(self, x: Array, axis: int) -> Array:
        return x.any(axis)

    def full(self, shape: tuple[int, ...], number: Any, dtype: DType, like: Array) -> Array:
        return torch.full(shape, number, dtype=to_torch(dtype), device=like.device)

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def flags_at(self, places: Array, length: int) -> Array:
        flags = torch.zeros(length + 1, dtype=torch.bool, device=places.device)
        return flags.index_fill_(0, places.long(), True)[:length]

    def pick(self, x: Array, chosen: Array, *, last: bool) -> Array:
        places = torch.arange(1, len(chosen) + 1, device=x.device)
        near = chosen * (places if last else places.flip(0))  # largest at the nearest, 0 where not chosen
        return x.index_select(0, near.argmax().reshape(1))[0]

    def sums_before(self, x: Array) -> Array:
        return x.cumsum(0) - x

    def is_on_host(self, x: Array) -> bool:
        return bool(x.device.type == "cpu")

    def scan(self, call: Call, arrays: Arrays) -> Arrays:
        return scan(*sharded.prepare(call, arrays, self.ranks, self), self)

    def positions(self, x: Array, axis: int) -> Array:  # type: ignore[override]
        (lengths,) = self.ranks.gather([torch.full((1,), x.shape[axis], device=x.device)])
        return TorchNamespace.positions(x, axis) + self.sums_before(lengths[:, 0])[self.ranks.rank]

    def border(self, edge: Array, axis: int, length: int, *, after: bool, fill: Any) -> Array:
        return _Border.apply(edge, self, axis, length, after, fill)


def scan(call: Call, arrays: Arrays, xp: ShardedTorch, *, has_total: bool = False) -> Arrays:
    """Return the results of this rank's shard; record them if autograd needs a derivative of an array."""
    if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arrays):
        results: Arrays = _Recorded.apply(xp, has_total, call, *arrays)
        return results
    return sharded.scan(call, arrays, xp.ranks, xp)


class _Recorded(torch.autograd.Function):  # type: ignore[misc]
    """A sharded scan that autograd records."""

    @staticmethod
    def forward(ctx: Any, xp: ShardedTorch, has_total: bool, call: Call, *arrays: Array) -> Arrays:
        results = sharded.scan(call, arrays, xp.ranks, xp)
        # A shard's result lacks the state before it.
        recording = Recording(call, arrays, ctx.needs_input_grad[3:], may_read_result=False)
        recording.remember(ctx, call.initial, arrays, results)
        ctx.xp, ctx.has_total = xp, has_total
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Array) -> Arrays:
        recording, (_, numbers) = ctx.memory
        arrays = recording.fill(recording.saved, ctx.saved_tensors, numbers)
        found = pullback(
            recording.call, arrays, cotangents, recording.needs, recording.dtype, ctx.xp, has_total=ctx.has_total
        )
        return (None, None, None, *found)


class _Border(torch.autograd.Function):  # type: ignore[misc]
    """The edge of the nearest shard with elements; its derivative goes in the other direction."""

    @staticmethod
    def forward(ctx: Any, edge: Array, xp: ShardedTorch, axis: int, length: int, after: bool, fill: Any) -> Array:
        ctx.call, ctx.shape = (xp, axis, length, after), edge.shape
        size = torch.full((1,), length, device=edge.device)
        found, exists = sharded.nearest(edge, axis, size, xp.ranks, xp, after=after)
        return torch.where(exists, found, torch.full_like(found, fill))

    @staticmethod
    def backward(ctx: Any, cotangent: Array) -> Arrays:
        xp, axis, length, after = ctx.call
        found = _Border.apply(cotangent, xp, axis, length, not after, 0)
        return sharded.cut(found, axis, None, ctx.shape[axis]), None, None, None, None, None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def outside_graphs(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function. A graph of torch.compile breaks once here, and not at each operation of the function."""
    return function(*arguments)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run(flags: Flags, operands: Operands, initial: Any, group: Any) -> Arrays:
    """Run a call on this rank's shard; see `backends.run`. A graph of torch.compile breaks here."""
    arrays = tuple(view.owner.item() if view.kind.is_number else view.owner for view in operands.views)
    outs = None if operands.outs is None else tuple(out.owner for out in operands.outs)
    tensors = [array for array in arrays + (outs or ()) if isinstance(array, torch.Tensor)]
    with raising_together(partial(tell, group=group, values=tensors) if flags.validate else None):
        if transforms_are_active() or forward_ad._current_level >= 0 or not all(map(is_plain, tensors)):
            raise ScanTypeError(
                "only backward() goes through ranks: no torch.func, no forward derivatives, no subclasses"
            )
        ranks = GroupRanks(group, tensors[0].device)
    xp, call = ShardedTorch(ranks), Call(flags, operands.roles, initial)
    if flags.validate:
        check_headers(call, arrays, ranks, xp, outs)
    if flags.return_carry or any(role in CARRY for role in operands.roles):
        _check_carry_is_detached(operands.roles, arrays, returned=flags.return_carry)
    key = sharded.last_key(call, arrays, ranks, xp) if sharded.returns_key(call) else None
    has_total = flags.include_initial and flags.exclusive and operands.segments is not None
    asked = call
    call, arrays = sharded.prepare(call, arrays, ranks, xp, outs)
    if outs is None:
        return sharded.with_carry(scan(call, arrays, xp, has_total=has_total), asked, key)
    if torch.is_grad_enabled() and any(getattr(a, "requires_grad", False) for a in arrays + outs):
        raise ScanTypeError("out= has no derivative: leave it out where an argument requires grad, or detach them all")
    return sharded.with_carry(sharded.scan(call, arrays, ranks, xp, outs), asked, key)


def tell(message: str, group: Any, values: Any) -> None:
    """Send an error to the other ranks in place of this rank's header, so that all raise it, if there are others."""
    devices = [x.device for x in values if isinstance(x, torch.Tensor)]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda", torch.cuda.current_device()))
    for device in (*devices, torch.device("cpu")):
        with contextlib.suppress(ScanValueError):  # the group does not support that device, or there is no group
            ranks = GroupRanks(group, device)
            break
    else:
        return
    compare({"error": message}, ranks, lambda header: torch.from_numpy(header).to(device))


def _check_carry_is_detached(roles: tuple[str, ...], arrays: Arrays, *, returned: bool) -> None:
    """Raise for derivatives through a carry: an incoming one must be detached; with a returned one, all arrays must."""
    followed = [role for role, a in zip(roles, arrays, strict=True) if getattr(a, "requires_grad", False)]
    if torch.is_grad_enabled() and any(returned or role in CARRY for role in followed):
        raise ScanTypeError(f"a carry has no derivative through ranks: detach {' and '.join(followed)}")
