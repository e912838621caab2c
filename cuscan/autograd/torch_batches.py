"""Batches in torch: those of torch.func, and batches of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cuscan.autograd import batches
from cuscan.derivatives import Call

Array = Any


class _Torch:
    """See `batches.Batching`."""

    full_like = staticmethod(torch.full_like)
    concat = staticmethod(torch.cat)
    moveaxis = staticmethod(torch.movedim)
    broadcast_to = staticmethod(torch.Tensor.expand)
    reshape = staticmethod(torch.reshape)

    @staticmethod
    def segment_numbers(offsets: Array, length: int) -> Array:
        places = torch.arange(length, device=offsets.device).repeat(len(offsets), 1)
        return torch.searchsorted(offsets.contiguous(), places, right=True)


def batched(
    call: Call, arrays: Sequence[Array], dims: Sequence[int | None], size: int
) -> tuple[Call, tuple[Array, ...]]:
    """Return the call over a batch of calls; see `batches`."""
    return batches.batched(call, arrays, dims, size, _Torch)


# ---- torch.autograd.grad(..., is_grads_batched=True), whose batches differ from those of torch.func ------------------


def is_grads_batch(array: Array) -> bool:
    """Return whether an array is a batch of gradients."""
    return isinstance(array, torch.Tensor) and _is_grads_batch(array)


_is_grads_batch: Callable[[Array], bool] = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda _: False)


def over_grads_batch(
    scan: Callable[[Call, tuple[Array, ...]], tuple[Array, ...]], call: Call, arrays: Sequence[Array]
) -> tuple[Array, ...]:
    """Return the results of a call with batches of gradients among its tensors."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    dims = [0 if is_grads_batch(array) else None for array in arrays]
    opened = [
        a if dim is None else torch._remove_batch_dim(a, level, 1, 0) for a, dim in zip(arrays, dims, strict=True)
    ]
    size = next(len(array) for array, dim in zip(opened, dims, strict=True) if dim == 0)
    results = scan(*batched(call, opened, dims, size))
    return tuple(torch._add_batch_dim(result, 0, level) for result in results)
