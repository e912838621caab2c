"""torch as a peer. Functions here import torch."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.machine import Array, Run
from cuscan.bench.peer import UnsupportedError, refuse_beyond

_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def as_torch(array: Array) -> Any:
    """Return a NumPy or CuPy array as a torch tensor on the same memory.

    It passes as integers, since older producers of DLPack do not support bfloat16.
    """
    import torch

    if any(step < 0 for step in array.strides):
        raise UnsupportedError("torch has no negative strides")

    if array.dtype.itemsize not in _BITS:
        return torch.from_dlpack(array)
    return torch.from_dlpack(array.view(_BITS[array.dtype.itemsize])).view(getattr(torch, array.dtype.name))


def from_torch(tensor: Any, xp: Any, dtype: Any) -> Array:
    """Return a tensor as an array of NumPy or CuPy."""
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
    if case.op in ("min", "max", "max with indices"):  # indices, which differ at ties, are not compared
        scan = torch.cummin if case.op == "min" else torch.cummax
        return lambda x: scan(x, case.axis).values
    if case.op == "logaddexp":
        return lambda x, **keywords: torch.logcumsumexp(x, case.axis, **keywords)
    raise UnsupportedError(f"torch has no scan for {case.op}")


def _torch_inputs(case: Case, x: Any, mask: Any) -> Any:
    """Return the elements, with the identity where they do not count."""
    if mask is not None and case.op == "add" and not case.skipna:
        return x * mask
    if case.skipna:
        mask = x.isnan().logical_not() if mask is None else mask & x.isnan().logical_not()
    if mask is None:
        return x
    if case.op in ("add", "mul"):
        return x.where(mask, int(case.op == "mul"))
    raise UnsupportedError(f"torch has no identity for a masked {case.op}")


def _torch_expression(case: Case) -> Callable[..., Any]:
    """Return the case as an expression of functions that return new tensors."""
    import torch

    if case.op == "linear_recurrence":
        return _torch_recurrence(case)
    scan, axis = _torch_scan(case), case.axis

    def expression(x: Any, mask: Any) -> Any:
        x = _torch_inputs(case, x, mask)
        if case.reverse:
            x = x.flip(axis)
        if case.exclusive or case.include_initial:
            first = torch.full_like(x.narrow(axis, 0, 1), int(case.op == "mul"))
            kept = x.shape[axis] - case.exclusive
            x = torch.cat([first, x.narrow(axis, 0, kept)], axis)
        x = scan(x)
        return x.flip(axis) if case.reverse else x

    return expression


def two_steps(earlier: Any, later: Any) -> Any:
    """Combine two steps (a, b) of a recurrence to one."""
    return later[0] * earlier[0], later[0] * earlier[1] + later[1]


def _torch_recurrence(case: Case) -> Callable[..., Any]:
    """Return `associative_scan`, which torch supports only under its compiler."""
    refuse_beyond(case, "torch")
    from torch._higher_order_ops.associative_scan import associative_scan

    def expression(a: Any, b: Any) -> Any:
        return associative_scan(two_steps, (a, b), case.axis % len(case.shape))[1]

    return expression


def _need_identity(case: Case) -> None:
    refuse_beyond(case, "torch", "reverse", "exclusive", "masked", "skipna", "include_initial", "view")
    if case.op not in ("add", "mul") and (case.exclusive or case.include_initial):
        raise UnsupportedError(f"torch has no identity for an exclusive {case.op}")


def run_torch(case: Case, buffers: Buffers) -> Run:
    """Return a run of eager torch, with `out` if its functions support it."""
    _need_identity(case)
    scan, axis, last = _torch_scan(case), case.axis, case.shape[case.axis] - 1
    tensors = buffers.each(as_torch)
    x, mask, out = tensors.x, tensors.mask, tensors.out
    if case.reverse or case.op not in ("add", "mul", "logaddexp"):
        expression = _torch_expression(case)
        return lambda: expression(x, mask)
    if not case.exclusive and not case.include_initial:
        return lambda: scan(_torch_inputs(case, x, mask), out=out)
    first, rest = out.narrow(axis, 0, 1), out.narrow(axis, 1, last + case.include_initial)

    def shifted() -> None:
        first.fill_(int(case.op == "mul"))
        scan(_torch_inputs(case, x, mask).narrow(axis, 0, last + case.include_initial), out=rest)

    return shifted


def run_torch_compiled(case: Case, buffers: Buffers) -> Run:
    """Return a run of the torch expression under `torch.compile`."""
    _need_identity(case)
    tensors = buffers.each(as_torch)
    arguments = tensors.values if case.op == "linear_recurrence" else (tensors.x, tensors.mask)
    expression = _compiled(case)
    return lambda: expression(*arguments)


@functools.lru_cache(1)
def _compiled(case: Case) -> Callable[..., Any]:
    import torch

    torch._dynamo.reset()  # it stops compiling a function after a few times
    compiled: Callable[..., Any] = torch.compile(_torch_expression(case), dynamic=False, fullgraph=True)
    return compiled


def run_accelerated_scan(case: Case, buffers: Buffers) -> Run:
    """Return a run of accelerated-scan (Triton): recurrences of (batch, channels, time) along the last axis."""
    if case.op != "linear_recurrence" or len(case.shape) != 3 or case.axis % 3 != 2:
        raise UnsupportedError("accelerated-scan has recurrences along the last of three axes")
    refuse_beyond(case, "accelerated-scan")
    try:
        module = importlib.import_module("accelerated_scan.scalar")
    except ModuleNotFoundError:  # the module's name in older versions
        module = importlib.import_module("accelerated_scan.triton")
    a, b = map(as_torch, buffers.values)
    return lambda: module.scan(a, b)
