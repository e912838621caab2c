"""How the primitive of JAX is compiled: a call back from XLA's program, with XLA's buffers, into a backend."""

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
from cuscan.call import CARRY
from cuscan.errors import ScanTypeError
from cuscan.initial import carry_start
from cuscan.interop.numpy import numpy_dtype
from cuscan.linearised import Call
from cuscan.request import ScanRequest

Array = Any
SPREAD = (
    "x lies on several devices, or the program runs on several: a scan runs on one. Put it in jax.shard_map, with the "
    "scanned axis whole on each device"
)
_EXPORTED = "a scan calls back into this process, so a program that holds one cannot be exported to another"


def register(scan_p: Any) -> None:
    """Say how the primitive is compiled, for each platform."""
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
    """Whether a program is for several devices, and this place of it not for each by itself."""
    if isinstance(context, mlir.SPMDAxisContext):
        automatic = set(context.mesh.axis_names) - set(context.manual_axes)
        return any(context.mesh.shape[name] > 1 for name in automatic)
    return isinstance(context, mlir.ShardingContext) and context.num_devices > 1


def _emit(device: str, call: Call, request: ScanRequest, dtypes: list[Any], *arrays: Array) -> list[Array]:
    """The results in terms of JAX. What JAX has in 32 bits, by its setting, backends may have in 64."""
    specs = [jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, dtype in written(request)]
    narrow = any(spec.dtype != dtype for spec, dtype in zip(specs, dtypes, strict=True)) or request.carry_in
    with _wide_types() if narrow else contextlib.nullcontext():
        results = [jnp.zeros(spec.shape, spec.dtype) for spec in specs]
        if any(spec.size for spec in specs):
            initial = None if call.initial is None else call.initial.value
            runner = make_runner(device, request, call.roles, initial, validate=call.flags.validate)
            results = list(buffer_callback(runner, tuple(specs))(*_widened(call, request, arrays)))
        if 0 in request.shape:
            _hand_on(call, request, arrays, results)
        return [result.astype(dtype) for result, dtype in zip(results, dtypes, strict=True)]


# Changes JAX's setting for what it traces in this thread meanwhile.
_wide_types = functools.partial(jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64, True)


def _widened(call: Call, request: ScanRequest, arrays: Sequence[Array]) -> list[Array]:
    """The arrays with the carry in the types of backends."""
    count = len(arrays) - len(request.carry_in)
    fields = zip(arrays[count:], request.carry_in, strict=True)
    return [*arrays[:count], *(field.astype(numpy_dtype(spec.dtype)) for field, spec in fields)]


def _hand_on(call: Call, request: ScanRequest, arrays: Sequence[Array], results: list[Array]) -> None:
    """Of no elements: what comes in goes out, as the last states and the carry, which end `results`."""
    fields, row_initial = len(request.carry_out), dict(zip(call.roles, arrays, strict=True)).get("initial")
    initial = None if call.initial is None else call.initial.value
    carry = [a for role, a in zip(call.roles, arrays, strict=True) if role in CARRY] or carry_start(request, initial)
    if row_initial is not None:
        carry = request.op.states.start(row_initial)
    behind = [] if request.last is None else [0 if row_initial is None else row_initial]
    behind += list(carry)[:fields]
    for i, value in enumerate(behind, len(results) - len(behind)):
        results[i] = jnp.broadcast_to(jnp.asarray(value, results[i].dtype), results[i].shape)
