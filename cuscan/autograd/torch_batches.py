"""What vmap makes of a call: one call, with one more axis in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cuscan.call import BESIDE, CARRY
from cuscan.checks import lies_along
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
    whole = tuple(made[place].shape)
    roles = list(call.roles)
    for i, (role, dim) in enumerate(zip(call.roles, dims, strict=True)):
        if dim is None:
            if role in CARRY:  # of all lines
                made[i] = made[i].expand(size, *made[i].shape)
            continue
        if role == "offsets":
            drops = any(role in CARRY for role in call.roles)
            roles[i], made[i] = "reset", _starts(made[i], whole[axis], call.flags.reverse, drops)
        shape = tuple(made[i].shape[1:])
        along = role == "offsets" or (role == "keys" and len(shape) == 1)
        along = along or (role in ("mask", "reset") and lies_along(shape, whole[1:], axis))
        behind = -axis - 1 if along else 0
        before = rank - (role == "initial" or role in CARRY) - len(shape) - behind
        made[i] = made[i].reshape(size, *(1,) * before, *shape, *(1,) * behind)
    return call._replace(flags=call.flags._replace(axis=axis), roles=tuple(roles)), tuple(made)


def _starts(offsets: Array, length: int, reverse: bool, drops: bool) -> Array:
    """Where segments start in scan order, for a batch of offsets; `drops`: at the first element, after empty ones."""
    places = torch.arange(length, device=offsets.device).repeat(len(offsets), 1)
    segment = torch.searchsorted(offsets.contiguous(), places, right=True)
    if drops:
        open_ = torch.full_like(segment[:, :1], offsets.shape[1] - 1 if reverse else 1)
    else:
        open_ = segment[:, -1:] if reverse else segment[:, :1]
    joined = torch.cat((segment, open_) if reverse else (open_, segment), 1)
    return joined[:, 1:] != joined[:, :-1]


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
