"""Who scans: cuscan and its peers, each in the way its users would write the case.

A provider takes a case and its buffers, and returns a function that queues one run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cuscan
from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.machine import Array, Run

Provider = Callable[[Case, Buffers], Run]


class UnsupportedError(Exception):
    """The peer has no such scan."""


def run_cuscan(case: Case, buffers: Buffers) -> Run:
    """`cuscan.scan` with `out`."""
    x, mask, out = buffers
    keywords: dict[str, Any] = {"axis": case.axis, "reverse": case.reverse, "exclusive": case.exclusive, "mask": mask}
    return lambda: cuscan.scan(x, case.op, out=out, **keywords)


# ---- torch -----------------------------------------------------------------------------------------------------------

_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def as_torch(array: Array) -> Any:
    """A NumPy or CuPy array as a torch tensor on the same memory.

    It travels as integers: DLPack knows no bfloat16 in older versions of its producers.
    """
    import torch

    if array.dtype.itemsize not in _BITS:
        return torch.from_dlpack(array)
    return torch.from_dlpack(array.view(_BITS[array.dtype.itemsize])).view(getattr(torch, array.dtype.name))


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
    import torch

    x, mask, _ = buffers.each(as_torch)
    expression = torch.compile(_torch_expression(case), dynamic=False)
    return lambda: expression(x, mask)


# ---- CuPy and NumPy --------------------------------------------------------------------------------------------------


def run_cupy(case: Case, buffers: Buffers) -> Run:
    """`cupy.cumsum` and `cupy.cumprod` with `out`."""
    import cupy

    scans = {"add": cupy.cumsum, "mul": cupy.cumprod}
    if case.op not in scans:
        raise UnsupportedError(f"CuPy has no scan for {case.op}")
    return _array_api(case, buffers, cupy, scans[case.op])


def run_numpy(case: Case, buffers: Buffers) -> Run:
    """`accumulate` of NumPy's ufuncs with `out`."""
    import numpy as np

    names = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}
    ufunc = getattr(np, names.get(case.op, f"bitwise_{case.op}"))
    return _array_api(case, buffers, np, ufunc.accumulate)


def _array_api(case: Case, buffers: Buffers, xp: Any, scan: Callable[..., Any]) -> Run:
    x, mask, out = buffers
    if case.op not in ("add", "mul") and (case.masked or case.exclusive):
        raise UnsupportedError(f"{xp.__name__} has no identity for {case.op}")
    identity = xp.asarray(int(case.op == "mul"), x.dtype)
    if case.reverse:
        x, out = xp.flip(x, case.axis), xp.flip(out, case.axis)
        mask = None if mask is None else xp.flip(mask, case.axis)
    whole, first, rest, others = ([slice(None)] * x.ndim for _ in range(4))
    first[case.axis], rest[case.axis], others[case.axis] = slice(0, 1), slice(1, None), slice(0, -1)
    source, target = (tuple(others), tuple(rest)) if case.exclusive else (tuple(whole), tuple(whole))

    def run() -> None:
        values = x if mask is None else xp.where(mask, x, identity)
        if case.exclusive:
            out[tuple(first)] = identity
        scan(values[source], axis=case.axis, dtype=out.dtype, out=out[target])

    return run


PEERS: dict[str, Provider] = {
    "torch": run_torch,
    "torch.compile": run_torch_compiled,
    "cupy": run_cupy,
    "numpy": run_numpy,
}
