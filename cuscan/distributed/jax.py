"""JAX arrays: the shards of an axis inside `jax.shard_map`, where one program runs on all devices. Imports JAX.

Quantities that differ between ranks are arrays here, so that all ranks run the same program: totals, one exchange, and
a fold of the preceding totals. JAX can differentiate, batch and compile all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cuscan.autograd.jax import adopted, scan
from cuscan.autograd.jax_calls import request_of
from cuscan.autograd.jax_initial import carry_of, number_of
from cuscan.errors import ScanValueError
from cuscan.interop.jax import canonical
from cuscan.interop.numpy import numpy_dtype
from cuscan.linearised import Call
from cuscan.operators import LINEAR_RECURRENCE, Monoid
from cuscan.request import ScanRequest
from cuscan.request.call import CARRY, SEGMENTS, Flags, Operands, one_or_all
from cuscan.request.checks import check_offsets, lies_along
from cuscan.states import SCALAR

Array = Any
Arrays = tuple[Array, ...]


class Place(NamedTuple):
    """This rank's shard: the number of ranks, the number of ranks before it in scan order, and where it begins."""

    name: Any
    size: int
    rank: Array
    before: Array
    start: Array
    whole: int  # the number of elements of all shards
    reverse: bool

    def gathered(self, array: Array) -> Array:
        """Return the arrays of all ranks, in scan order, along a new first axis."""
        stacked = jax.lax.all_gather(array, self.name)
        return jnp.flip(stacked, 0) if self.reverse else stacked

    def from_before(self, array: Array) -> Array:
        """Return the array of the previous rank in scan order; zeros on the first rank."""
        steps = [(i + 1, i) if self.reverse else (i, i + 1) for i in range(self.size - 1)]
        return jax.lax.ppermute(array, self.name, steps)


def run(flags: Flags, operands: Operands, initial: Any, axis_name: Any) -> Arrays:
    """Run a call on this device's shard; see `backends.run`."""
    if flags.include_initial:
        raise ScanValueError("include_initial makes one shard longer, which shard_map cannot hold: use initial instead")
    call, arrays = adopted(flags, operands)
    request = request_of(call._replace(flags=call.flags._replace(return_carry=True)), arrays)
    place = _place_of(request, axis_name)
    given = dict(zip(call.roles, arrays, strict=True))
    carry = [given.pop(role) for role in CARRY if role in given]
    call = call._replace(flags=call.flags._replace(return_carry=False))
    first = carry or _start(request, given, call, initial)
    if any(role in SEGMENTS for role in given):
        key = carry[-1] if carry and "keys" in given else None
        given, last_key = _with_reset(request, given, place, key)
        if initial is not None and request.op.segments_have_initial:
            call = call._replace(initial=number_of(initial))
    given.pop("initial", None)
    keyed = "keys" in call.roles
    call, arrays = call._replace(roles=tuple(given)), tuple(given.values())
    results, behind = _scan(request, call, arrays, first, place, returns_carry=flags.return_carry)
    if not flags.return_carry:
        return results
    return (*results, one_or_all((*behind, last_key) if keyed else behind))


def _place_of(request: ScanRequest, name: Any) -> Place:
    try:
        rank, size = jax.lax.axis_index(name), jax.lax.psum(1, name)
    except NameError as error:
        raise ScanValueError(f"axis_name={name!r} names no axis of a mesh here: call inside jax.shard_map") from error
    length = request.shape[request.axis]
    before = size - 1 - rank if request.reverse else rank
    return Place(name, size, rank, before, rank * length, size * length, request.reverse)


def _start(request: ScanRequest, given: dict[str, Array], call: Call, initial: Any) -> list[Array]:
    """Return what precedes the first rank, as a carry."""
    lines = request.shape[: request.axis] + request.shape[request.axis + 1 :]
    op = request.op
    if op is LINEAR_RECURRENCE:
        state = given.get("initial", 0 if initial is None else initial)
        parts = op.states.start(jnp.broadcast_to(state, lines))
    elif initial is not None:
        values = {role: array for role, array in given.items() if role not in SEGMENTS}
        return carry_of(call._replace(roles=tuple(values)), tuple(values.values()), initial)
    else:
        parts = (*op.identity(request.result.dtype), *(0,) * op.indexed)
    return [jnp.full(lines, part, _dtype(spec)) for part, spec in zip(parts, request.carry_out, strict=False)]


def _dtype(spec: Any) -> Any:
    return canonical(numpy_dtype(spec.dtype))


# ---- the shards ------------------------------------------------------------------------------------------------------


def _scan(
    request: ScanRequest, call: Call, arrays: Arrays, first: list[Array], place: Place, *, returns_carry: bool
) -> tuple[Arrays, Arrays]:
    """Return the results of this shard, and if requested the carry after the last one, without a key."""
    op, axis, reset = request.op, request.axis, None
    if "reset" in call.roles:
        reset = jnp.broadcast_to(arrays[call.roles.index("reset")], request.shape).any(axis)
    count = len(op.identity(request.result.dtype))
    before, counted = list(first[:count]), first[count] if op.indexed else 0
    length = request.shape[axis]
    # Positions count what came before x, except with `reverse`: then they count from the beginning of x.
    begin = place.start + (0 if place.reverse else counted)
    if op.indexed and place.reverse:
        before[1] = _moved(before[1], place.whole)
    totals = _total(request, call, arrays)[:count]
    if op.indexed:
        totals = (totals[0], _moved(totals[1], begin))
    stacked = tuple(
        jnp.concatenate([one[None], place.gathered(field)]) for one, field in zip(before, totals, strict=True)
    )
    restarts = None
    if reset is not None:
        restarts = jnp.concatenate([jnp.zeros_like(reset)[None], place.gathered(reset)])
    carry = _fold(request, stacked, restarts, place.before)
    if op.indexed:
        index = _moved(carry[1], -(place.start + length)) if place.reverse else carry[1]
        carry = carry[0], index, jnp.full(carry[0].shape, begin, _dtype(request.carry_out[2]))
    names = CARRY[:1] if len(carry) == 1 else CARRY[1 : 1 + len(carry)]
    results = scan(call._replace(roles=(*call.roles, *names)), (*arrays, *carry))
    if op.indexed and place.reverse:
        results = (results[0], _moved(results[1], place.start))
    if not returns_carry:
        return results, ()
    behind = _fold(request, stacked, restarts, place.size)
    return results, (*behind, counted + place.whole) if op.indexed else behind


def _moved(index: Array, by: Array) -> Array:
    """Shift positions by `by`; those of no element stay negative."""
    return jnp.where(index < 0, index, index + by)


def _total(request: ScanRequest, call: Call, arrays: Arrays) -> Arrays:
    """Return the total of the shard, starting from nothing."""
    flags = call.flags._replace(exclusive=False, return_last=False, return_carry=True, only_carry=True)
    if call.initial is None:
        return scan(call._replace(flags=flags), arrays)
    nothing = _start(request, dict(zip(call.roles, arrays, strict=True)), call, None)
    names = CARRY[:1] if len(nothing) == 1 else CARRY[1 : 1 + len(nothing)]
    return scan(Call(flags, (*call.roles, *names), call.initial), (*arrays, *nothing))


# ---- totals of ranks, in scan order ----------------------------------------------------------------------------------


def _fold(request: ScanRequest, fields: Arrays, restarts: Array | None, before: Array) -> Arrays:
    """Return the total of the first `before` + 1 entries along the first axis."""
    op, shape = request.op, fields[0].shape
    numbers = jnp.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    chosen = numbers <= before
    if restarts is not None:  # from the last entry with a segment start on
        chosen = chosen & (numbers >= jnp.where(restarts & chosen, numbers, 0).max(0))
    if op.indexed:
        return _extremum(op, fields, chosen, numbers)
    if op.name == "logaddexp":
        return _sum_of_exponentials(fields, chosen)
    identity = op.identity(request.result.dtype)
    kept = tuple(
        jnp.where(chosen, field, jnp.asarray(part, field.dtype)) for field, part in zip(fields, identity, strict=True)
    )
    single = op.states is SCALAR
    roles = op.inputs if op is LINEAR_RECURRENCE else ("x",) if single else tuple(f"x[{i}]" for i in range(len(kept)))
    dtype = kept[0].dtype.name if single or op is LINEAR_RECURRENCE else None
    # The totals of halves are float32, and a scan of these has a carry of float64.
    states = scan(Call(Flags(op, 0, dtype=dtype, return_carry=True, only_carry=True), roles), kept)
    return tuple(state.astype(field.dtype) for state, field in zip(states, fields, strict=True))


def _extremum(op: Monoid, fields: Arrays, chosen: Array, numbers: Array) -> Arrays:
    """Return the extremum; among equal ones, the first or last that belongs to an element."""
    value, index = fields
    farthest = jnp.max if op.name.startswith("max") else jnp.min
    worst = -jnp.inf if op.name.startswith("max") else jnp.inf
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        limits = jnp.iinfo(value.dtype)
        worst = limits.min if op.name.startswith("max") else limits.max
    best = farthest(jnp.where(chosen, value, jnp.asarray(worst, value.dtype)), 0)
    equal = chosen & ((value == best) | ((value != value) & (best != best)))
    order = -numbers if "last" not in op.name else numbers
    rank = jnp.where(equal, order + jnp.where(index >= 0, 2 * len(value), 0), -2 * len(value))
    place = rank.argmax(0)[None]
    return tuple(jnp.take_along_axis(field, place, 0)[0] for field in (value, index))


def _sum_of_exponentials(fields: Arrays, chosen: Array) -> Arrays:
    """Return the greatest, and the sum of exponentials relative to it."""
    top, total = fields
    greatest = jnp.where(chosen, top, -jnp.inf).max(0)
    infinite = (top == greatest) & jnp.isinf(top)
    part = jnp.exp(jnp.where(infinite | ~chosen, 0, top - greatest))
    return greatest, jnp.where(chosen, total * part, 0).sum(0)


# ---- segments --------------------------------------------------------------------------------------------------------


def _with_reset(
    request: ScanRequest, given: dict[str, Array], place: Place, key: Array | None
) -> tuple[dict[str, Array], Array | None]:
    """Return the arrays of a call with its segments as `reset`, with all axes, and the last key of the last rank."""
    role = next(role for role in given if role in SEGMENTS)
    shape, axis, last = request.shape, request.axis, None
    array = given[role]
    if role == "offsets":
        reset = _boundaries(array, shape[axis], place, bool(request.carry_in))
    elif role == "keys":
        reset, last = _changes(request, array, place, key)
    else:
        reset = array
    along = role == "offsets" or (role == "reset" and lies_along(reset.shape, shape, axis, role))
    if along:
        reset = reset.reshape(-1, *(1,) * (len(shape) - 1 - axis))
    reset = reset.reshape(*(1,) * (len(shape) - reset.ndim), *reset.shape)
    return {("reset" if name == role else name): reset if name == role else each for name, each in given.items()}, last


def _boundaries(offsets: Array, length: int, place: Place, carried: bool) -> Array:
    """See `sharded._boundaries`."""
    if not isinstance(offsets, jax.core.Tracer):
        check_offsets(np.asarray(offsets), place.whole)
    if carried:
        offsets = offsets[1:-1]
    places = offsets - place.start - int(place.reverse)
    inside = (offsets > -int(carried)) & (offsets < place.whole + int(carried)) & (places >= 0) & (places < length)
    flags = jnp.zeros(length + 1, bool).at[jnp.where(inside, places, length)].set(True)
    return flags[:length]


def _changes(request: ScanRequest, keys: Array, place: Place, key: Array | None) -> tuple[Array, Array]:
    """Return where keys differ from the preceding ones in scan order, and the last key of each line."""
    shape, axis = request.shape, request.axis
    if keys.ndim == 1:
        keys = keys.reshape(-1, *(1,) * (len(shape) - 1 - axis))
    keys = jnp.broadcast_to(keys, shape)
    if not shape[axis]:
        raise ScanValueError("keys of shards without elements have no borders; leave keys out")
    turned = jnp.flip(keys, axis) if place.reverse else keys
    first, last = (jax.lax.index_in_dim(turned, i, axis, keepdims=False) for i in (0, -1))
    border = first != place.from_before(last)
    at_first = jnp.zeros_like(border) if key is None else first != key
    border = jnp.where(place.before == 0, at_first, border)
    inner = jax.lax.slice_in_dim(turned, 1, None, axis=axis) != jax.lax.slice_in_dim(turned, 0, -1, axis=axis)
    changes = jnp.concatenate([jnp.expand_dims(border, axis), inner], axis)
    return jnp.flip(changes, axis) if place.reverse else changes, place.gathered(last)[-1]
