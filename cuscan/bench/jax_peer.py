"""JAX as a peer. Functions here import jax."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.machine import Array, Run
from cuscan.bench.peer import UnsupportedError, Waiting, refuse_beyond

_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def run_jax(case: Case, buffers: Buffers) -> Run:
    """Return a run of `jax.lax.cumsum` or a similar function under `jax.jit`; JAX has a stream of its own."""
    refuse_beyond(case, "JAX", "reverse", "masked")
    scan = _jitted(case)
    import jax

    x = as_jax(buffers.x)
    mask = None if buffers.mask is None else as_jax(buffers.mask)
    return Waiting(lambda: scan(x, mask), jax.block_until_ready)


@functools.lru_cache(1)
def _jitted(case: Case) -> Callable[[Any, Any], Any]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise it takes most of the GPU's memory
    import jax

    jax.config.update("jax_enable_x64", True)
    scans = {"add": jax.lax.cumsum, "mul": jax.lax.cumprod, "min": jax.lax.cummin, "max": jax.lax.cummax}
    scans["logaddexp"] = jax.lax.cumlogsumexp
    if case.op not in scans or (case.masked and case.op not in ("add", "mul")):
        raise UnsupportedError(f"JAX has no such scan for {case.op}")

    def expression(x: Any, mask: Any) -> Any:
        if mask is not None:
            x = jax.numpy.where(mask, x, int(case.op == "mul"))
        return scans[case.op](x.astype(case.result_dtype.name), axis=case.axis % len(case.shape), reverse=case.reverse)

    jitted: Callable[[Any, Any], Any] = jax.jit(expression)
    return jitted


def as_jax(array: Array) -> Any:
    """Return a NumPy or CuPy array as a JAX array on the same memory; copy bool and bfloat16, passed as integers."""
    import jax

    if array.dtype.name == "bool":
        return jax.dlpack.from_dlpack(array.view("uint8")).astype(bool)
    if array.dtype.name == "bfloat16":
        return jax.lax.bitcast_convert_type(jax.dlpack.from_dlpack(array.view("uint16")), jax.numpy.bfloat16)
    return jax.dlpack.from_dlpack(array)


def from_jax(result: Any, xp: Any, dtype: Any) -> Array:
    """Return a JAX array as an array of NumPy or CuPy."""
    import jax

    if result.dtype.name == "bfloat16":
        result = jax.lax.bitcast_convert_type(result, jax.numpy.uint16)
    return xp.from_dlpack(result).view(dtype)
