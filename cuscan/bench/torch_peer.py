"""torch as a peer. Functions here import torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.machine import Array, Run
from cuscan.bench.peer import UnsupportedError

_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def as_torch(array: Array) -> Any:
    """A NumPy or CuPy array as a torch tensor on the same memory.

    It travels as integers: DLPack knows no bfloat16 in older versions of its producers.
    """
    import torch

    if any(step < 0 for step in array.strides):
        raise UnsupportedError("torch has no negative strides")

    if array.dtype.itemsize not in _BITS:
        return torch.from_dlpack(array)
    return torch.from_dlpack(array.view(_BITS[array.dtype.itemsize])).view(getattr(torch, array.dtype.name))


def from_torch(tensor: Any, xp: Any, dtype: Any) -> Array:
    """The way back: a tensor as an array of NumPy or CuPy."""
    import torch

    if tensor.element_size() not in _BITS:
        return xp.from_dlpack(tensor)
    return xp.from_dlpack(tensor.view(getattr(torch, _BITS[tensor.element_size()]))).view(dtype)


def _torch_scan(case: Case) -> Callable[..., Any]:
    import torch

    if case.op in ("add", "mul"):
        dtype = getattr(torch, case.result_dtype.name)
        scan = torch.cumsum if case.op == "add" else torch.cumprod
        return lambda x, **keywords: scan(x, case.axis, dtype=dtype, **keywords)
    if case.op in ("min", "max"):
        scan = torch.cummin if case.op == "min" else torch.cummax
        return lambda x: scan(x, case.axis).values
    raise UnsupportedError(f"torch has no scan for {case.op}")


def _torch_masked(case: Case, x: Any, mask: Any) -> Any:
    if mask is None:
        return x
    if case.op == "add":
        return x * mask
    if case.op == "mul":
        return x.where(mask, 1)
    raise UnsupportedError("torch has no identity for a masked min or max")


def _torch_expression(case: Case) -> Callable[[Any, Any], Any]:
    """The case with functions that return new tensors."""
    import torch

    scan, axis = _torch_scan(case), case.axis

    def expression(x: Any, mask: Any) -> Any:
        x = _torch_masked(case, x, mask)
        if case.reverse:
            x = x.flip(axis)
        if case.exclusive:
            first = torch.full_like(x.narrow(axis, 0, 1), int(case.op == "mul"))
            x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        x = scan(x)
        return x.flip(axis) if case.reverse else x

    return expression


def run_torch(case: Case, buffers: Buffers) -> Run:
    """Eager torch, with `out` where its functions can use it."""
    x, mask, out = buffers.each(as_torch)
    if case.exclusive and case.op not in ("add", "mul"):
        raise UnsupportedError("torch has no identity for an exclusive min or max")
    scan, axis, last = _torch_scan(case), case.axis, x.shape[case.axis] - 1
    if case.reverse or case.op not in ("add", "mul"):
        expression = _torch_expression(case)
        return lambda: expression(x, mask)
    if not case.exclusive:
        return lambda: scan(_torch_masked(case, x, mask), out=out)
    first, rest = out.narrow(axis, 0, 1), out.narrow(axis, 1, last)

    def exclusive() -> None:
        first.fill_(int(case.op == "mul"))
        scan(_torch_masked(case, x, mask).narrow(axis, 0, last), out=rest)

    return exclusive


def run_torch_compiled(case: Case, buffers: Buffers) -> Run:
    """The torch expression under `torch.compile`."""
    x, mask, _ = buffers.each(as_torch)
    expression = _compiled(case)
    return lambda: expression(x, mask)


@functools.lru_cache(1)
def _compiled(case: Case) -> Callable[[Any, Any], Any]:
    import torch

    torch._dynamo.reset()  # it gives up on a function that it has compiled a few times
    compiled: Callable[[Any, Any], Any] = torch.compile(_torch_expression(case), dynamic=False, fullgraph=True)
    return compiled
