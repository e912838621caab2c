"""What vmap makes of a call: one call, with one more axis in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cuscan.call import BESIDE
from cuscan.derivatives import Call

Array = Any


def batched(
    call: Call, arrays: Sequence[Array], dims: Sequence[int | None], size: int
) -> tuple[Call, tuple[Array, ...]]:
    """The call over a batch of calls; `dims`: where each array has the axis of the batch, None if it has not."""
    place = max(i for i, role in enumerate(call.roles) if role not in BESIDE)  # of the values that have the whole shape
    made = [a if dim is None else a.movedim(dim, 0) for a, dim in zip(arrays, dims, strict=True)]
    if dims[place] is None:
        made[place] = made[place].expand(size, *made[place].shape)
    rank = made[place].ndim - 1
    axis = call.flags.axis - rank if call.flags.axis >= 0 else call.flags.axis
    roles = list(call.roles)
    for i, (role, dim) in enumerate(zip(call.roles, dims, strict=True)):
        if dim is None:
            continue
        if role == "offsets":
            roles[i], made[i] = "keys", _keys(made[i], made[place].shape[axis])
        shape = made[i].shape[1:]
        behind = -axis - 1 if roles[i] == "keys" and len(shape) == 1 else 0  # one key for each position along the axis
        before = rank - (role == "initial") - len(shape) - behind
        made[i] = made[i].reshape(size, *(1,) * before, *shape, *(1,) * behind)
    return call._replace(flags=call.flags._replace(axis=axis), roles=tuple(roles)), tuple(made)


def _keys(offsets: Array, length: int) -> Array:
    """The number of the segment at each position, for a batch of offsets."""
    places = torch.arange(length, device=offsets.device).repeat(len(offsets), 1)
    return torch.searchsorted(offsets.contiguous(), places, right=True)


# ---- torch.autograd.grad(..., is_grads_batched=True), whose batches are not those of torch.func ----------------------


def is_grads_batch(array: Array) -> bool:
    """Whether it is a batch of gradients."""
    return isinstance(array, torch.Tensor) and _is_grads_batch(array)


_is_grads_batch: Callable[[Array], bool] = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda _: False)


def over_grads_batch(
    scan: Callable[[Call, tuple[Array, ...]], tuple[Array, ...]], call: Call, arrays: Sequence[Array]
) -> tuple[Array, ...]:
    """The results of a call some of whose tensors are batches of gradients."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    dims = [0 if is_grads_batch(array) else None for array in arrays]
    opened = [
        a if dim is None else torch._remove_batch_dim(a, level, 1, 0) for a, dim in zip(arrays, dims, strict=True)
    ]
    size = next(len(array) for array, dim in zip(opened, dims, strict=True) if dim == 0)
    results = scan(*batched(call, opened, dims, size))
    return tuple(torch._add_batch_dim(result, 0, level) for result in results)
