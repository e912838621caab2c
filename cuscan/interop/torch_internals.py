"""What cuscan takes of torch that torch does not document, and what does the same where it is not there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from cuscan.interop.view import Like
from cuscan.specs import ALIGNMENT


def _public_stream(index: int) -> int:
    handle: int = torch.cuda.current_stream(index).cuda_stream
    return handle


# The public way costs 4 us a call; torch's own compiler uses this one.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_stream)


# ---- versions --------------------------------------------------------------------------------------------------------


def _count_publicly(tensors: tuple[Any]) -> None:
    torch.autograd.graph.increment_version(tensors[0])


# The public way asks what it got once more. In older versions this one takes a tensor alone.
count_write: Callable[[tuple[Any]], None] = getattr(torch._C, "_increment_version", _count_publicly)
try:
    count_write((torch.empty(0, device="cpu"),))
except (TypeError, RuntimeError):
    count_write = _count_publicly


# ---- guards ----------------------------------------------------------------------------------------------------------


@functools.cache
def find_guards() -> Any:
    """The class of what torch's compiler tells tensors apart with, in one call; None where it is not as expected.

    No mode may be active.
    """
    try:
        guards = torch._C._dynamo.guards.TensorGuards
        x = torch.empty(2, 3, device="cpu")
        tells = _guard(guards, (x,))
        others = x.t(), x[:1], x.double(), x.clone().requires_grad_(), x._neg_view(), torch.nn.Parameter(x)
        return guards if tells(torch.empty_like(x)) and not any(map(tells, others)) else None
    except (AttributeError, TypeError, RuntimeError, SystemError):
        return None


def _guard(guards: Any, tensors: tuple[Any, ...]) -> Callable[..., bool]:
    """Whether other tensors have the types, dtypes, devices, shapes, strides and dispatch keys of some.

    Modes change the keys, and the conjugate and the negative bit are among them. Whether tensors require grad is told,
    too; whether derivatives are recorded is not.
    """
    sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
    check: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def like(tensors: tuple[Any, ...]) -> Like | None:
    """See `Library.liken`."""
    guards = find_guards()
    if guards is None or len({*map(id, tensors)}) < len(tensors):
        return None  # they take each tensor once
    check = _guard(guards, tensors)
    offsets = [tensor.data_ptr() % ALIGNMENT for tensor in tensors]
    aligned = not any(offsets)

    def find(tensors: tuple[Any, ...]) -> list[int] | None:
        if not check(*tensors):
            return None
        pointers, bits = [], 0
        for tensor in tensors:
            pointer = tensor.data_ptr()
            pointers.append(pointer)
            bits |= pointer
        if bits % ALIGNMENT:
            return pointers if [pointer % ALIGNMENT for pointer in pointers] == offsets else None
        return pointers if aligned else None

    return find


# ---- memory ----------------------------------------------------------------------------------------------------------

# What code of torch's compiler allocates with, on the current GPU: the public way looks at its arguments for 1 us more.
allocate: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
allocate = getattr(allocate, "_empty_strided_cuda", None)


@functools.cache
def allocates(device: Any) -> bool:
    """Whether `allocate` works on a device, which is current."""
    try:
        made = allocate((2, 3), (1, 2), torch.float16)
    except (TypeError, RuntimeError):  # it is not there, or torch is built for the CPU
        return False
    return bool((made.shape, made.stride(), made.dtype, made.device) == ((2, 3), (1, 2), torch.float16, device))
