"""The user's `initial` in calls on JAX arrays: it becomes an array, so that no program is compiled for its value."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cuscan.autograd.jax_calls import request_of
from cuscan.dtypes import DTYPES, DType, Kind
from cuscan.errors import ScanTypeError
from cuscan.interop.jax import canonical
from cuscan.interop.numpy import numpy_dtype
from cuscan.linearised import Call
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request.call import CARRY, SEGMENTS, find_operator
from cuscan.request.initial import check_initial, item_of

Array = Any
_RANKS = {Kind.BOOL: 0, Kind.UNSIGNED: 1, Kind.SIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}


def started(call: Call, arrays: tuple[Array, ...], initial: Any) -> tuple[Call, tuple[Array, ...]]:
    """Add the user's `initial` to a call; for a scan it becomes the carry.

    Segments start from a number that the kernel takes by value, so a program is compiled for that number.
    """
    op = find_operator(call.flags.op)
    if op is LINEAR_RECURRENCE:
        result = request_of(call, arrays).result.dtype
        states = [jnp.asarray(_array_of(initial, result, DTYPES[result.accumulator]))]
        roles: tuple[str, ...] = ("initial",)
    elif any(role in SEGMENTS for role in call.roles):
        return call._replace(initial=number_of(initial)), arrays
    else:
        states = carry_of(call, arrays, initial)
        roles = CARRY[:1] if len(states) == 1 else CARRY[1 : 1 + len(states)]
    if any(role in CARRY for role in call.roles):  # `initial` precedes only segments that start in x: none
        return call, arrays
    return call._replace(roles=(*call.roles, *roles)), (*arrays, *states)


def carry_of(call: Call, arrays: tuple[Array, ...], initial: Any) -> list[Array]:
    """Return the fields of the carry equivalent to `initial`, for each line."""
    request = request_of(call._replace(flags=call.flags._replace(return_carry=True)), arrays)
    op, axis, dtypes = request.op, request.axis, [spec.dtype for spec in request.carry_out]
    results = [DTYPES[name] for name in op.dtypes] or [request.result.dtype]
    given = initial if op.dtypes else (initial,)
    if not isinstance(given, tuple) or len(given) != len(results):
        raise ScanTypeError(f"initial must be a tuple of {len(results)} numbers for op={op.name!r}; got {initial!r}")
    numbers = [_array_of(*each) for each in zip(given, results, dtypes, strict=False)]
    parts = op.states.start(*numbers)
    parts += (0,) * (len(dtypes) - len(parts))  # no elements are counted yet
    lines = request.shape[:axis] + request.shape[axis + 1 :]
    return [jnp.full(lines, part, _canonical(dtype)) for part, dtype in zip(parts, dtypes, strict=True)]


def _array_of(initial: Any, result: DType, dtype: DType) -> Array:
    """Return a number as an array, if the result's dtype can hold it.

    For a JAX array the dtype decides, without waiting for the value.
    """
    if isinstance(initial, jax.Array):
        own = DTYPES.get(str(initial.dtype))
        if initial.shape == () and own is not None and _RANKS[own.kind] <= _RANKS[result.kind]:
            return initial.astype(_canonical(dtype))
        if isinstance(initial, jax.core.Tracer):
            what = f"{initial.dtype}{list(initial.shape)}"
            raise ScanTypeError(f"initial is traced, of {what}; it must be a scalar that converts to dtype {result}")
    return np.asarray(check_initial(initial, result)).astype(_canonical(dtype))


def number_of(initial: Any) -> Any:
    """Return the number in an array without dimensions, or a tuple of such numbers."""
    if isinstance(initial, tuple):
        return tuple(map(number_of, initial))
    if isinstance(initial, jax.core.Tracer):
        raise ScanTypeError(
            "initial is traced, and a scan with segments is compiled for its value: pass a number, or leave it out and "
            "combine it with the results (of a sum: initial + ...)"
        )
    return item_of(initial, "initial")


def _canonical(dtype: DType) -> Any:
    return canonical(numpy_dtype(dtype))
