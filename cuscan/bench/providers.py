"""Who scans: cuscan and its peers, each in the way its users would write the case.

A provider takes a case and its buffers, and returns a function that queues one run. What the run returns is the
result; None stands for `buffers.out`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cuscan
from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.cub_peer import run_cub, run_cuda_compute
from cuscan.bench.jax_peer import from_jax, run_jax
from cuscan.bench.machine import Array, Run
from cuscan.bench.peer import Provider, UnsupportedError
from cuscan.bench.torch_peer import from_torch, run_torch, run_torch_compiled


def run_cuscan(case: Case, buffers: Buffers) -> Run:
    """`cuscan.scan` with `out`."""
    x, mask, out = buffers
    keywords: dict[str, Any] = {"axis": case.axis, "reverse": case.reverse, "exclusive": case.exclusive, "mask": mask}
    return lambda: cuscan.scan(x, case.op, out=out, **keywords)


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
    "jax": run_jax,
    "cub": run_cub,
    "cuda.compute": run_cuda_compute,
    "numpy": run_numpy,
}
COMPILING = ("torch.compile", "jax", "cuda.compute")  # their first run is much longer than all others
PACKAGES = {"torch.compile": "torch", "cub": "cupy"}  # where a peer's name is not that of its package


def as_array(result: Any, out: Array, xp: Any) -> Array:
    """What a run returned, as an array of the machine's library."""
    library = type(result).__module__.partition(".")[0]
    if library == "torch":
        return from_torch(result, xp, out.dtype)
    return from_jax(result, xp, out.dtype) if library in ("jax", "jaxlib") else out
