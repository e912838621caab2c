"""The carry of a scan in its derivative: the state that passes from chunk to chunk, and the other fields.

For most operators the first field is the state. For a linear recurrence it is the product of the preceding decays,
which is the total of another scan. For logaddexp it is the greatest element, another total, and the second field is the
sum of exponentials relative to it: y = greatest + log(sum). Positions, counts and keys have no derivatives.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import NamedTuple

from cuscan.dtypes import DTYPES
from cuscan.linearised import Array, Call, LinearisedScan
from cuscan.operators import LINEAR_RECURRENCE, OPERATORS
from cuscan.request.call import CARRY, Flags
from cuscan.request.carry import carry_dtype

Maybe = Array | None

# The operators whose first field is the total of another scan, and the operator of that scan.
_FIRST = {LINEAR_RECURRENCE.name: "mul", "logaddexp": "max"}


class Cotangents(NamedTuple):
    """Cotangents of results: at the elements, of the states before and after them, and of a carry's first field."""

    elements: Maybe
    before: Maybe
    behind: Maybe
    first: Maybe


class Part(NamedTuple):
    """A separate call that computes the first field of a carry; `places` locates its arrays in the whole call."""

    call: Call
    arrays: tuple[Array, ...]
    places: tuple[int, ...]


def first_field(scan: LinearisedScan, like: Array) -> Part:
    """Return the call that computes the first field of the carry; `like` has the shape of the other axes."""
    roles = [r for r in scan.call.roles if r not in ("b", "initial") and r not in CARRY]
    arrays = [scan.given[role] for role in roles]
    of_decays = scan.op is LINEAR_RECURRENCE
    if of_decays:
        decay = arrays[0]
        if isinstance(decay, numbers.Number):
            decay = scan.xp.expand_dims(scan.xp.full_like(like, decay), scan.axis)
        arrays[0] = scan.xp.broadcast_to(decay, scan.shape)
    if scan.carry:
        fields = scan.as_carry(scan.carry[:1], scan.key)
        roles, arrays = roles + list(fields), arrays + list(fields.values())
    names = dict(zip(roles, roles, strict=True)) | ({} if scan.key is not None else {"carry": "carry[0]"})
    if scan.key is not None:
        names["carry[1]"] = scan.call.roles[-1]
    places = tuple(scan.call.roles.index(names[role]) for role in roles)
    flags: Flags = scan.flags._replace(
        op=OPERATORS[_FIRST[scan.op.name]],
        exclusive=False,
        include_initial=False,
        return_last=False,
        dtype=scan.dtype.name,
        return_carry=True,
        only_carry=True,
    )
    named = tuple("x" if role == "a" else role for role in roles)
    return Part(Call(flags, named, None if of_decays else scan.call.initial), tuple(arrays), places)


def has_other_field(scan: LinearisedScan) -> bool:
    """Return whether the first field of the carry is something other than the state."""
    return scan.op.name in _FIRST


def tangent_in(scan: LinearisedScan, tangents: Sequence[Maybe]) -> Maybe:
    """Return the tangent of the incoming state, from the tangents of the arrays of a call."""
    given = [t for role, t in zip(scan.call.roles, tangents, strict=True) if role in CARRY]
    if not given:
        return None
    state = given[1] if scan.op is LINEAR_RECURRENCE else given[0]
    if scan.op.name == "logaddexp" and given[1] is not None:
        share = given[1] * _inverse(scan)
        state = share if state is None else state + share
    return None if state is None else scan.xp.cast(state, DTYPES[scan.dtype.wide])


def tangents_out(scan: LinearisedScan, state: Array, first: Maybe) -> tuple[Maybe, ...]:
    """Return the tangents of a carry's fields, from those of the outgoing state and of another first field."""
    dtype = DTYPES[carry_dtype(scan.op, scan.dtype)]
    state = scan.xp.cast(state, dtype)
    fields: tuple[Maybe, ...] = (state,)
    if has_other_field(scan):
        first = scan.xp.zeros_like(state) if first is None else first
        fields = first, state
    if scan.op.name == "logaddexp":
        fields = first, _sum_of_exponentials(scan) * (state - first)
    keyed = scan.segments is not None and scan.segments[0] == "keys"
    return (*fields, *(None,) * (2 * scan.op.indexed + keyed))


def split(scan: LinearisedScan, cotangents: Sequence[Maybe]) -> Cotangents:
    """Sort the cotangents of the results of a call by what they belong to."""
    given, asked = list(cotangents), scan.call.flags
    whole, before, behind, first = None, None, None, None
    if not asked.only_carry:
        whole = given[0]
        del given[: 1 + scan.op.indexed]
    if asked.return_last:
        behind = given.pop(0)
    if asked.return_carry:
        state = given[0]
        if scan.op is LINEAR_RECURRENCE:
            first, state = given[:2]
        elif scan.op.name == "logaddexp":
            first, state = _of_exponentials(scan, *given[:2])
        behind = added(behind, state)
    if whole is not None and asked.include_initial:
        if scan.flags.exclusive:
            whole, total = scan.cut(whole, None, -1), scan.first(scan.cut(whole, -1, None))
            behind = added(behind, total)
        else:
            whole, before = scan.cut(whole, 1, None), scan.first(whole)
    return Cotangents(whole, before, behind, first)


def fields_in(scan: LinearisedScan, state: Maybe) -> tuple[Maybe, ...]:
    """Return the cotangents of a carry's fields, from that of the incoming state, but without another first field."""
    if state is None:
        return ()
    if scan.op is LINEAR_RECURRENCE:
        return None, state
    return (state, state * _inverse(scan)) if scan.op.name == "logaddexp" else (state,)


def added(one: Maybe, other: Maybe) -> Maybe:
    """Add two arrays, either of which may be None."""
    return other if one is None else one if other is None else one + other


# ---- y = greatest + log(sum) -----------------------------------------------------------------------------------------


def _of_exponentials(scan: LinearisedScan, greatest: Maybe, total: Maybe) -> tuple[Maybe, Maybe]:
    """Return the cotangents of the greatest element and of the final y, from those of the two fields."""
    if total is None:
        return greatest, None
    state = total * _sum_of_exponentials(scan)
    return added(greatest, -state), state


def _sum_of_exponentials(scan: LinearisedScan) -> Array:
    return scan.again(only_carry=True)[1]


def _inverse(scan: LinearisedScan) -> Array:
    """Return the inverse of the incoming sum of exponentials, or 0 where that sum is 0 because nothing came in."""
    total, xp = scan.carry[1], scan.xp
    nothing = total == 0
    return xp.where(nothing, 0, 1 / xp.where(nothing, 1, total))
