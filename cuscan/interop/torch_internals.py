"""Undocumented parts of torch that cuscan uses, with replacements for torch versions that lack them."""

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


# The public function costs 4 us per call; torch's own compiler uses this one.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_stream)


# ---- versions --------------------------------------------------------------------------------------------------------


def _count_publicly(tensors: tuple[Any]) -> None:
    torch.autograd.graph.increment_version(tensors[0])


# The public function checks its argument again. In older versions this one takes a single tensor.
count_write: Callable[[tuple[Any]], None] = getattr(torch._C, "_increment_version", _count_publicly)
try:
    count_write((torch.empty(0, device="cpu"),))
except (TypeError, RuntimeError):
    count_write = _count_publicly


# ---- guards ----------------------------------------------------------------------------------------------------------


@functools.cache
def find_guards() -> Any:
    """Return the class with which torch's compiler recognises tensors in one call; None if it behaves otherwise.

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
    """Return a function that checks if tensors have the same metadata as `tensors`.

    It compares types, dtypes, devices, shapes, strides and dispatch keys. The keys include modes, and the conjugate and
    negative bits. It also compares whether tensors require grad, but not whether derivatives are recorded.
    """
    sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
    check: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def like(tensors: tuple[Any, ...]) -> Like | None:
    """See `Library.liken`."""
    guards = find_guards()
    if guards is None or len({*map(id, tensors)}) < len(tensors):
        return None  # guards accept each tensor only once
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

# The allocator in code of torch's compiler, on the current GPU: the public one takes 1 us longer to parse arguments.
allocate: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
allocate = getattr(allocate, "_empty_strided_cuda", None)


@functools.cache
def allocates(device: Any) -> bool:
    """Return whether `allocate` works on a device, which must be current."""
    try:
        made = allocate((2, 3), (1, 2), torch.float16)
    except (TypeError, RuntimeError):  # `allocate` is None, or torch is built for the CPU
        return False
    return bool((made.shape, made.stride(), made.dtype, made.device) == ((2, 3), (1, 2), torch.float16, device))
