"""Compile the JAX primitive: XLA's program calls back into a backend with XLA's buffers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.buffer_callback import buffer_callback
from jax.interpreters import mlir

from cuscan.autograd.jax_calls import request_of, written
from cuscan.backends.xla import make_runner
from cuscan.errors import ScanTypeError
from cuscan.interop.numpy import numpy_dtype
from cuscan.linearised import Call
from cuscan.request import ScanRequest
from cuscan.request.call import CARRY
from cuscan.request.initial import carry_start

Array = Any
SPREAD = (
    "x lies on several devices, or the program runs on several: a scan runs on one. Put it in jax.shard_map, with the "
    "scanned axis whole on each device"
)
_EXPORTED = "a scan calls back into this process, so a program that holds one cannot be exported to another"


def register(scan_p: Any) -> None:
    """Register the lowering of the primitive for each platform."""
    for platform, device in (("cpu", "cpu"), ("cuda", "cuda")):
        mlir.register_lowering(scan_p, functools.partial(_lower, device), platform=platform)


def _lower(device: str, context: Any, *operands: Any, call: Call) -> Sequence[Any]:
    module = context.module_context
    if getattr(module.lowering_parameters, "for_export", False):
        raise ScanTypeError(_EXPORTED)
    if _runs_on_several(module.axis_context):
        raise ScanTypeError(SPREAD)
    request = request_of(call, context.avals_in)
    emit = functools.partial(_emit, device, call, request, [aval.dtype for aval in context.avals_out])
    lowered: Sequence[Any] = mlir.lower_fun(emit, multiple_results=True)(context, *operands)
    return lowered


def _runs_on_several(context: Any) -> bool:
    """Return whether a program runs on several devices, and this part of it is not manual for each device."""
    if isinstance(context, mlir.SPMDAxisContext):
        automatic = set(context.mesh.axis_names) - set(context.manual_axes)
        return any(context.mesh.shape[name] > 1 for name in automatic)
    return isinstance(context, mlir.ShardingContext) and context.num_devices > 1


def _emit(device: str, call: Call, request: ScanRequest, dtypes: list[Any], *arrays: Array) -> list[Array]:
    """Return the results as JAX operations, in these dtypes."""
    shapes = [shape for shape, _ in written(request)]
    if any(0 not in shape for shape in shapes):
        results = _called_back(device, call, request, dtypes, arrays)
    else:
        results = [jnp.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    if 0 in request.shape:
        _hand_on(call, request, arrays, results)
    return results


def _called_back(
    device: str, call: Call, request: ScanRequest, dtypes: list[Any], arrays: Sequence[Array]
) -> list[Array]:
    """Return the results of a backend. JAX, by its settings, may hold carries in 32 bits that backends hold in 64."""
    initial = None if call.initial is None else call.initial.value
    runner = make_runner(device, request, call.roles, initial, validate=call.flags.validate)
    specs = tuple(jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, dtype in written(request))
    widens = request.carry_in or any(spec.dtype != dtype for spec, dtype in zip(specs, dtypes, strict=True))
    with _wide_types() if widens else contextlib.nullcontext():
        count = len(arrays) - len(request.carry_in)
        fields = zip(arrays[count:], request.carry_in, strict=True)
        carry = [field.astype(numpy_dtype(spec.dtype)) for field, spec in fields]
        results = buffer_callback(runner, specs)(*arrays[:count], *carry)
        return [_rounded(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]


def _rounded(x: Array, dtype: Any) -> Array:
    """Round to a narrower type for good: XLA may drop a conversion there and back, for example between two chunks.

    XLA does not drop arithmetic. `reduce_precision` flushes numbers below the normal range to 0. There, adding and
    subtracting a number whose last bit is that of the narrower type does the rounding.
    """
    if x.dtype == dtype or not jnp.issubdtype(dtype, jnp.inexact):
        return x.astype(dtype)
    if jnp.iscomplexobj(x):
        part = jnp.finfo(dtype).dtype
        return jax.lax.complex(_rounded(x.real, part), _rounded(x.imag, part))
    kind, wide = jnp.finfo(dtype), jnp.finfo(x.dtype)
    grid = 1.5 * 2.0**wide.nmant * float(kind.smallest_subnormal)
    normal = jax.lax.reduce_precision(x, kind.nexp, kind.nmant)
    return jnp.where(jnp.abs(x) < float(kind.tiny), (x + grid) - grid, normal).astype(dtype)


def _wide_types() -> Any:
    """Enable 64-bit types in JAX for code that this thread traces inside the context."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64(True)


def _hand_on(call: Call, request: ScanRequest, arrays: Sequence[Array], results: list[Array]) -> None:
    """Without elements, copy the incoming state to the last states and the carry, which end `results`."""
    fields, row_initial = len(request.carry_out), dict(zip(call.roles, arrays, strict=True)).get("initial")
    initial = None if call.initial is None else call.initial.value
    carry = [a for role, a in zip(call.roles, arrays, strict=True) if role in CARRY] or carry_start(request, initial)
    if row_initial is not None:
        carry = request.op.states.start(row_initial)
    behind = [] if request.last is None else [0 if row_initial is None else row_initial]
    behind += list(carry)[:fields]
    for i, value in enumerate(behind, len(results) - len(behind)):
        results[i] = jnp.broadcast_to(jnp.asarray(value, results[i].dtype), results[i].shape)
