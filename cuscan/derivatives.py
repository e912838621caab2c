"""The derivatives of scans, expressed as scans: once, for every framework.

A scan is a recurrence y[t] = f(y[t - 1], x[t]), and the derivative of any recurrence is a linear one:

    dy[t] = decay[t] * dy[t - 1] + weight[t] * dx[t],    decay = df/dy,    weight = df/dx.

Tangents pass through it forward (`pushforward`). Cotangents pass through its transpose (`pullback`), which is the
recurrence in the other direction with each decay shifted one position earlier. Each operator defines its decay and
weights (`Step`); axes, directions, exclusive scans and segments are the same for all. Nothing is divided, so zeros and
infinities need no special cases. Both functions use only differentiable functions of the framework and differentiable
scans, so they have derivatives themselves. They multiply by states that the result holds (`reads_result`), or scan
again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from cuscan.carried import Cotangents, added, fields_in, first_field, has_other_field, split, tangent_in, tangents_out
from cuscan.dtypes import DTYPES, DType
from cuscan.linearised import Call, LinearisedScan, Namespace, Step
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request.call import CARRY, SEGMENTS, Flags, find_dtype, find_operator
from cuscan.steps import check_differentiable, make_step

__all__ = ["Call", "Namespace", "check_differentiable", "kept", "pullback", "pushforward", "reads_result"]

Array = Any
Maybe = Array | None


def reads_result(call: Call, needs: Sequence[bool], dtype: DType) -> bool:
    """Return whether derivatives read the first result of a call in place of scanning again.

    `needs`: which arrays have tangents, or need cotangents; `dtype`: that of the result.
    """
    flags, op = call.flags, find_operator(call.flags.op)
    if flags.only_carry:
        return False
    if any(role in SEGMENTS for role in call.roles) and (flags.include_initial or not flags.exclusive):
        return False  # the state before the first element of a segment is not the result before it
    if op is LINEAR_RECURRENCE:
        return needs[0]
    # Other derivatives compute with more bits than results of 16 bits have.
    return op.name in ("mul", "logaddexp") and dtype.accumulator == dtype.name


def kept(call: Call, needs: Sequence[bool], *, with_result: bool = False) -> tuple[bool, ...]:
    """Return which arrays of a call its pullback reads.

    `needs`: which arrays need a cotangent; `with_result`: whether the pullback has the result that `reads_result` asks
    for.
    """
    op = find_operator(call.flags.op)
    if op is LINEAR_RECURRENCE:
        read = {"a", "carry[0]", *SEGMENTS} | ({"initial", "carry[1]"} if needs[0] else set())
        if needs[0] and not with_result:
            read.add("b")
    elif op.name == "add":
        read = {"mask", *SEGMENTS} | ({"x"} if call.flags.skipna else set())
    else:
        read = {"x", "mask", *SEGMENTS, *CARRY}
    if "keys" in call.roles:
        read.add(call.roles[-1])  # the key of the carry, if there is one
    return tuple(role in read for role in call.roles)


def pushforward(
    call: Call,
    arrays: tuple[Array, ...],
    tangents: Sequence[Maybe],
    dtype: DType,
    xp: Namespace,
    result: Maybe = None,
) -> tuple[Maybe, ...]:
    """Return the tangents of the results of a call; None for results without one, such as indices.

    `dtype` is the dtype of the scan's result; `result` may be that result if `reads_result` says so. The fields of a
    carry come last, one by one.
    """
    scan = LinearisedScan(call, arrays, dtype, xp, result)
    step = make_step(scan, [tangent is not None for tangent in tangents])
    terms = [
        scan.times(tangent, weight)
        for tangent, weight in zip(tangents, step.weights, strict=False)
        if tangent is not None
    ]
    moved = functools.reduce(lambda one, other: one + other, terms) if terms else xp.zeros_like(scan.main)
    if step.chosen is not None:
        moved = xp.where(step.chosen, moved, 0)
    moved = xp.broadcast_to(moved, scan.shape)
    initial = tangents[call.roles.index("initial")] if "initial" in call.roles else None
    asked = {"return_carry": call.flags.return_carry, "only_carry": call.flags.only_carry}
    flags = scan.flags._replace(dtype=dtype.name, **asked)
    results = list(scan.linear(flags, step, moved, initial, tangent_in(scan, tangents)))
    behind: tuple[Maybe, ...] = ()
    if call.flags.return_carry:
        first = None
        if has_other_field(scan):
            part = first_field(scan, results[-1])
            moving = [tangents[i] for i in part.places]
            if any(tangent is not None for tangent in moving):
                first = pushforward(part.call, part.arrays, moving, dtype, xp)[0]
        behind = tangents_out(scan, results.pop(), first)
    if scan.op.indexed and not call.flags.only_carry:
        results.append(None)
    return (*results, *behind)


def pullback(
    call: Call,
    arrays: tuple[Array, ...],
    cotangents: Sequence[Maybe],
    needs: Sequence[bool],
    dtype: DType,
    xp: Namespace,
    linearise: type[LinearisedScan] = LinearisedScan,
    result: Maybe = None,
) -> tuple[Maybe, ...]:
    """Return the cotangents of the arrays of a call, or None for arrays that do not need one.

    `dtype` is the dtype of the scan's result; `result` may be that result if `reads_result` says so. Arrays that `kept`
    excludes may be stand-ins with a shape and a dtype.
    """
    scan = linearise(call, arrays, dtype, xp, result)
    given = split(scan, cotangents)
    found: list[Maybe] = [None] * len(arrays)
    if given.first is not None:
        part = first_field(scan, given.first)
        pulled = pullback(part.call, part.arrays, (given.first,), [needs[i] for i in part.places], dtype, xp)
        for i, gradient in zip(part.places, pulled, strict=True):
            found[i] = None if gradient is None else _as_of(xp, arrays[i], gradient)
    if given.elements is None and given.before is None and given.behind is None:
        return tuple(found)
    step = make_step(scan, needs)
    decay = None if step.decay is None else scan.conj(step.decay)
    moved = _pull_elements(scan, step._replace(decay=decay), given)
    for i, weight in enumerate(step.weights):
        if needs[i]:
            gradient = scan.times(moved, scan.conj(weight))
            if step.chosen is not None:
                gradient = xp.where(step.chosen, gradient, 0)
            found[i] = added(found[i], _as_of(xp, arrays[i], gradient))
    entries = [i for i, role in enumerate(call.roles) if role == "initial" or role in CARRY]
    if any(needs[i] for i in entries):
        state = _pull_entry(scan, step._replace(decay=decay), moved, given)
        fields = fields_in(scan, state) if scan.carry else (state,)
        for i, gradient in zip(entries, fields, strict=False):
            if needs[i] and gradient is not None:
                found[i] = added(found[i], _as_of(xp, arrays[i], gradient))
    return tuple(found)


def _as_of(xp: Namespace, array: Array, gradient: Array) -> Array:
    """Return a cotangent in the shape and dtype of its array."""
    return xp.sum_to(xp.cast(gradient, find_dtype(array.dtype)), array.shape)


def _pull_elements(scan: LinearisedScan, step: Step, given: Cotangents) -> Array:
    """Return the cotangents of the elements, not yet multiplied by their weights."""
    xp, elements, behind = scan.xp, given.elements, given.behind
    dtype = scan.gradient_dtype(step)
    if elements is None and step.decay is None and step.segments is None:  # all are equal: nothing to scan
        return xp.broadcast_to(xp.expand_dims(xp.cast(behind, dtype), scan.axis), scan.shape)
    if elements is None:
        elements = xp.broadcast_to(xp.expand_dims(xp.zeros_like(behind), scan.axis), scan.shape)
    flags = scan.flags._replace(
        reverse=not scan.flags.reverse, include_initial=False, return_last=False, dtype=dtype.name
    )
    if not scan.flags.exclusive and (scan.shape[scan.axis] or not scan.is_whole):
        if scan.is_whole and (step.segments is None or step.segments[0] == "reset"):
            if step.decay is not None or step.segments is not None:
                return _pull_shifted(scan, flags, step, elements, behind)
        elif step.decay is not None:  # shifting makes a copy
            step = step._replace(decay=scan.later(step.decay, elements if behind is not None else None))
    step = step._replace(segments=scan.flipped(step.segments, behind))
    return scan.linear(flags, step, elements, behind)[0]


def _pull_shifted(scan: LinearisedScan, flags: Flags, step: Step, elements: Array, behind: Maybe) -> Array:
    """Compute G[t - 1] = g[t - 1] + decay[t] G[t] from the last G on, which is also a result; copy no shifted array."""
    start = added(scan.last(elements), behind)
    segments = step.segments and ("reset", scan.rest(step.segments[1]))
    flags = flags._replace(include_initial=True)
    shifted = Step(scan.rest(step.decay), (), None, segments)
    elements = scan.cut(elements, None, -1)
    if step.decay is None:  # a sum takes a carry instead of initial states
        return scan.linear(flags, shifted, elements, carry=scan.xp.cast(start, DTYPES[scan.dtype.wide]))[0]
    return scan.linear(flags, shifted, elements, initial=start)[0]


def _pull_entry(scan: LinearisedScan, step: Step, moved: Array, given: Cotangents) -> Maybe:
    """Return the cotangent of the incoming state, for an array of initial states or a carry."""
    if not scan.shape[scan.axis]:  # without elements, the incoming state is the outgoing one
        return added(given.before, given.behind)
    gradient = scan.first(moved)
    if step.decay is not None:
        gradient = gradient * scan.first(step.decay)
    if scan.flags.exclusive and given.elements is not None:
        gradient = gradient + scan.first(given.elements)
    return added(scan.enters(gradient, step, from_carry=bool(scan.carry)), given.before)
