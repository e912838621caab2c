"""The peers, each in the form in which its users would write the case.

A provider takes a case and its buffers, and returns a function that queues one run. The run returns the result, or a
tuple of results, or None if they are in `buffers.outs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.cub_peer import run_cub, run_cuda_compute
from cuscan.bench.jax_peer import from_jax, run_jax
from cuscan.bench.machine import Array, Run
from cuscan.bench.peer import Provider, UnsupportedError, refuse_beyond
from cuscan.bench.torch_peer import from_torch, run_accelerated_scan, run_torch, run_torch_compiled


def run_cupy(case: Case, buffers: Buffers) -> Run:
    """Return a run of `cupy.cumsum` or `cupy.cumprod` with `out`."""
    import cupy

    scans = {"add": cupy.cumsum, "mul": cupy.cumprod}
    if case.op not in scans:
        raise UnsupportedError(f"CuPy has no scan for {case.op}")
    return _array_api(case, buffers, cupy, scans[case.op])


def run_numpy(case: Case, buffers: Buffers) -> Run:
    """Return a run of `accumulate` of a NumPy ufunc with `out`."""
    import numpy as np

    names = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum", "logaddexp": "logaddexp"}
    names |= {op: f"bitwise_{op}" for op in ("and", "or", "xor")}
    if case.op not in names:
        raise UnsupportedError(f"NumPy has no scan for {case.op}")
    return _array_api(case, buffers, np, getattr(np, names[case.op]).accumulate)


def _array_api(case: Case, buffers: Buffers, xp: Any, scan: Callable[..., Any]) -> Run:
    refuse_beyond(case, xp.__name__, "reverse", "exclusive", "masked", "view")
    x, mask, out = buffers.x, buffers.mask, buffers.out
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
    "accelerated-scan": run_accelerated_scan,
    "numpy": run_numpy,
}
# Peers whose first run takes much longer than all others.
COMPILING = ("torch.compile", "jax", "cuda.compute", "accelerated-scan")
# Package names that differ from the peer's name.
PACKAGES = {"torch.compile": "torch", "cub": "cupy", "accelerated-scan": "accelerated_scan"}


def as_arrays(result: Any, outs: tuple[Array, ...], xp: Any) -> tuple[Array, ...]:
    """Return the results of a run as arrays of the machine's library."""
    if result is None:
        return outs
    results = result if isinstance(result, tuple) else (result,)
    return tuple(_as_array(each, out, xp) for each, out in zip(results, outs, strict=False))


def _as_array(result: Any, out: Array, xp: Any) -> Array:
    library = type(result).__module__.partition(".")[0]
    if library == "torch":
        return from_torch(result, xp, out.dtype)
    return from_jax(result, xp, out.dtype) if library in ("jax", "jaxlib") else out
