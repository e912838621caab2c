"""JAX: a scan is a primitive, both eagerly and under every transform. Importing this module imports JAX.

A call binds `scan_p` with its arrays; everything else is the parameter `call`. This module holds the rules: vmap makes
a scan with one more axis, a tangent is a linear scan, and the transpose of a linear scan is a scan in the other
direction. `jax_lowering.py` compiles it.
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from cuscan.autograd.batches import batched
from cuscan.autograd.jax_calls import Start, alike, is_spread, request_of, results_like
from cuscan.autograd.jax_initial import started
from cuscan.autograd.jax_lowering import SPREAD, register
from cuscan.derivatives import Call, pullback, pushforward, reads_result
from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError
from cuscan.interop.jax import canonical
from cuscan.interop.numpy import numpy_dtype
from cuscan.kept import Table, keep
from cuscan.linearised import joined
from cuscan.operators import LINEAR_RECURRENCE, OPERATORS
from cuscan.request import ScanRequest
from cuscan.request.call import Flags, Operands, find_dtype, find_operator, one_or_all
from cuscan.request.checks import Elements, check_offsets, check_place

Array = Any
Results = tuple[Array, ...]


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run a call with at least one JAX array; see `backends.run`. NumPy arrays become JAX arrays, as usual in JAX."""
    call, arrays = adopted(flags, operands)
    if initial is not None:
        call, arrays = started(call, arrays, initial)
    request, results = _bind(call, arrays)
    fields = len(request.carry_out)
    return (*results[:-fields], one_or_all(results[-fields:])) if fields else results


def adopted(flags: Flags, operands: Operands) -> tuple[Call, Results]:
    """Return the call and its arrays converted to JAX."""
    if operands.outs is not None:
        raise ScanTypeError("out= cannot be written: JAX arrays never change; leave it out, and donate x to jax.jit")
    _check_libraries(operands)
    arrays = tuple(v.owner if v.library.name == "jax" else jnp.asarray(v.owner) for v in operands.views)
    return Call(flags._replace(dtype=_canonical_name(flags.dtype)), operands.roles), arrays


def scan(call: Call, arrays: Sequence[Array]) -> Results:
    """Return the results of a call, then the last states and the fields of the carry if requested."""
    return _bind(call, arrays)[1]


def _bind(call: Call, arrays: Sequence[Array]) -> tuple[ScanRequest, Results]:
    call, given = _normal(call), list(arrays)
    if isinstance(given[0], numbers.Number):  # a decay
        of = DTYPES[find_dtype(call.flags.dtype or given[1].dtype).accumulator]
        given[0] = jnp.asarray(given[0], numpy_dtype(of))
    request = request_of(call, given)
    if "offsets" in call.roles:
        _check_known_offsets(given[call.roles.index("offsets")], request, call.flags.validate)
    return request, tuple(scan_p.bind(*alike(given), call=call))


def _normal(call: Call) -> Call:
    """Return the same call for all equivalent spellings; compiled programs are stored by it."""
    flags = call.flags._replace(op=find_operator(call.flags.op))
    return Call(flags, call.roles, call.initial if call.initial is None else Start.of(call.initial))


def _check_libraries(operands: Operands) -> None:
    """Raise for tensors of torch and arrays of CuPy; the elements determine which argument the error names."""
    last = len(operands.values) - 1
    main = Elements(operands.roles[last], operands.views[last])
    allowed = ("jax", "numpy") if main.view.library.name in ("jax", "numpy") else (main.view.library.name,)
    for role, view in zip(operands.roles, operands.views, strict=True):
        if view.library.name not in allowed and not view.kind.is_number:
            check_place(role, view, main)


def _canonical_name(dtype: Any) -> str | None:
    """Return the name of JAX's dtype for the user's dtype; JAX warns if that is another one."""
    if dtype is None:
        return None
    row = find_dtype(dtype)
    narrow: str = canonical(numpy_dtype(row)).name
    return row.name if narrow == row.name else str(jnp.zeros((), row.name).dtype)


def _check_known_offsets(offsets: Array, request: ScanRequest, validate: bool) -> None:
    """Check offsets whose values are known; on a GPU, only if the user requests validation."""
    if isinstance(offsets, jax.core.Tracer):
        return
    if validate or all(device.platform == "cpu" for device in offsets.devices()):
        check_offsets(np.asarray(offsets), request.shape[request.axis])


# ---- the primitive ---------------------------------------------------------------------------------------------------

scan_p = Primitive("cuscan_scan")
scan_p.multiple_results = True
_programs: Table[Call, Any] = Table()  # for eager calls


def _program_of(call: Call) -> Any:
    def cuscan_scan(*arrays: Array) -> list[Array]:
        results: list[Array] = scan_p.bind(*arrays, call=call)
        return results

    return jax.jit(cuscan_scan)


def _run_eagerly(*arrays: Array, call: Call) -> list[Array]:
    program = _programs.get(call) or keep(_programs, call, _program_of(call))
    # With jit disabled, the program would call this function again.
    with jax.disable_jit(False) if jax.config.jax_disable_jit else contextlib.nullcontext():
        results: list[Array] = program(*arrays)
    return results


def _as_arrays(values: Sequence[Any]) -> list[Array]:
    """Convert Python numbers among the values of rules: JAX may pass its own subclasses of them, without a shape."""
    return [jnp.asarray(value) if isinstance(value, numbers.Number) else value for value in values]


def _shapes(*avals: Any, call: Call) -> list[Any]:
    request = request_of(call, avals)
    if any(map(is_spread, avals)):
        raise ScanTypeError(SPREAD)
    return results_like(avals, request)


def _tangents(primals: Sequence[Array], tangents: Sequence[Any], *, call: Call) -> tuple[list[Array], list[Any]]:
    primals = _as_arrays(primals)
    results = scan_p.bind(*primals, call=call)
    known = [None if type(t) is ad.Zero or t.dtype == jax.dtypes.float0 else t for t in tangents]
    dtype = request_of(call, primals).result.dtype
    zeros = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    if not jnp.issubdtype(results[0].dtype, jnp.inexact) or all(t is None for t in known):
        return results, zeros
    read = results[0] if reads_result(call, [tangent is not None for tangent in known], dtype) else None
    moved = pushforward(call, tuple(primals), known, dtype, _Jax, read)
    return results, [zero if tangent is None else tangent for zero, tangent in zip(zeros, moved, strict=True)]


# The arrays in which scans are linear if the others are constant.
_LINEAR = {OPERATORS["add"]: ("x", "carry", "carry[0]"), LINEAR_RECURRENCE: ("b", "initial", "carry[1]")}


def _transpose(cotangents: Sequence[Any], *arrays: Any, call: Call) -> list[Any]:
    """Return the cotangents of the arrays in which a scan is linear."""
    needs = [ad.is_undefined_primal(array) for array in arrays]
    linear = _LINEAR.get(call.flags.op, ())
    if call.initial is not None or any(
        need and role not in linear for need, role in zip(needs, call.roles, strict=True)
    ):
        raise ScanTypeError(f"op={call.flags.op.name!r} is not linear in its arrays, and has no transpose")
    shaped = tuple(array.aval if need else array for need, array in zip(needs, _as_arrays(arrays), strict=True))
    known = [None if type(ct) is ad.Zero else ct for ct in cotangents]
    found = pullback(call, shaped, known, needs, request_of(call, shaped).result.dtype, _Jax)
    return [ad.Zero(array) if need and ct is None else ct for need, array, ct in zip(needs, shaped, found, strict=True)]


def _batch(arrays: Sequence[Array], dims: Sequence[Any], *, call: Call) -> tuple[list[Array], list[int]]:
    size = next(array.shape[dim] for array, dim in zip(arrays, dims, strict=True) if dim is not None)
    call, arrays = batched(call, arrays, dims, size, _Jax)
    results = scan(call, arrays)
    return list(results), [0] * len(results)


scan_p.def_impl(_run_eagerly)
scan_p.def_abstract_eval(_shapes)
ad.primitive_jvps[scan_p] = _tangents
ad.primitive_transposes[scan_p] = _transpose
batching.primitive_batchers[scan_p] = _batch
register(scan_p)


# ---- the operations of JAX that derivatives and batches need ---------------------------------------------------------


class _Jax:
    """See `derivatives.Namespace` and `batches.Batching`."""

    where = staticmethod(jnp.where)
    exp = staticmethod(jnp.exp)
    isnan = staticmethod(jnp.isnan)
    logical_and = staticmethod(jnp.logical_and)
    zeros_like = staticmethod(jnp.zeros_like)
    ones_like = staticmethod(jnp.ones_like)
    full_like = staticmethod(jnp.full_like)
    concat = staticmethod(jnp.concatenate)
    expand_dims = staticmethod(jnp.expand_dims)
    broadcast_to = staticmethod(jnp.broadcast_to)
    moveaxis = staticmethod(jnp.moveaxis)
    reshape = staticmethod(jnp.reshape)
    scan = staticmethod(scan)

    @staticmethod
    def conj(x: Array) -> Array:
        return x  # cotangents in JAX are not conjugated

    @staticmethod
    def cast(x: Array, dtype: DType) -> Array:
        kind = canonical(numpy_dtype(dtype))
        return (x.real if jnp.iscomplexobj(x) and kind.kind != "c" else x).astype(kind)

    @staticmethod
    def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
        x = x.sum(axis=tuple(range(x.ndim - len(shape))))
        ones = tuple(i for i, (n, m) in enumerate(zip(shape, x.shape, strict=True)) if n != m)
        return x.sum(axis=ones, keepdims=True)

    @staticmethod
    def positions(x: Array, axis: int) -> Array:
        return jnp.arange(x.shape[axis]).reshape(-1, *(1,) * (-axis - 1))

    @staticmethod
    def times_shifted(x: Array, states: Array, first: Array | complex, reverse: bool, axis: int) -> Array:
        return x * joined(states, first, reverse, axis, _Jax)

    @staticmethod
    def segment_numbers(offsets: Array, length: int) -> Array:
        return jax.vmap(lambda ends: jnp.searchsorted(ends, jnp.arange(length), side="right"))(offsets)
