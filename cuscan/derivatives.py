"""The derivatives of scans, as scans: once, for every framework.

A scan is a recurrence y[t] = f(y[t - 1], x[t]), and the derivative of any recurrence is a linear one:

    dy[t] = decay[t] * dy[t - 1] + weight[t] * dx[t],    decay = df/dy,    weight = df/dx.

Tangents go through it forward (`pushforward`), cotangents through its transpose (`pullback`): the recurrence in the
other direction, in which each decay stands one place earlier. An operator says what its decay and weights are (`Step`);
axes, directions, exclusive scans and segments are the same for all. Nothing is divided, so zeros and infinities are no
special cases. Both are made of differentiable functions of the framework and of differentiable scans, so they have
derivatives themselves, and they need the arguments of the call alone, never its results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from cuscan.call import SEGMENTS, find_dtype, find_operator
from cuscan.dtypes import DType
from cuscan.linearised import Call, LinearisedScan, Namespace, check_differentiable
from cuscan.operators import LINEAR_RECURRENCE

__all__ = ["Call", "Namespace", "check_differentiable", "kept", "pullback", "pushforward"]

Array = Any


def kept(call: Call, needs: Sequence[bool]) -> tuple[bool, ...]:
    """Which arrays of a call its pullback reads. `needs`: those for which a cotangent is wanted."""
    op = find_operator(call.flags.op)
    if op is LINEAR_RECURRENCE:
        read = {"a", *SEGMENTS} | ({"b", "initial"} if needs[0] else set())
    else:
        read = {"mask", *SEGMENTS} | ({"x"} if op.name != "add" or call.flags.skipna else set())
    return tuple(role in read for role in call.roles)


def pushforward(
    call: Call, arrays: tuple[Array, ...], tangents: Sequence[Array | None], dtype: DType, xp: Namespace
) -> tuple[Array | None, ...]:
    """The tangents of the results of a call, None for indices. `dtype`: of the first result."""
    scan = LinearisedScan(call, arrays, dtype, xp)
    step = scan.step([tangent is not None for tangent in tangents])
    terms = [
        tangent if weight is None else tangent * weight
        for tangent, weight in zip(tangents, step.weights, strict=False)
        if tangent is not None
    ]
    moved = functools.reduce(lambda one, other: one + other, terms) if terms else xp.zeros_like(scan.main)
    if step.chosen is not None:
        moved = xp.where(step.chosen, moved, xp.zeros_like(moved))
    initial = tangents[call.roles.index("initial")] if "initial" in call.roles else None
    moved = xp.broadcast_to(moved, scan.shape)
    flags = scan.flags._replace(dtype=dtype.name)
    results = scan.linear(flags, step.decay, moved, step.segments, initial)
    return (results[0], None) if scan.op.indexed else results


def pullback(
    call: Call,
    arrays: tuple[Array, ...],
    cotangents: Sequence[Array | None],
    needs: Sequence[bool],
    dtype: DType,
    xp: Namespace,
    linearise: type[LinearisedScan] = LinearisedScan,
) -> tuple[Array | None, ...]:
    """The cotangents of the arrays of a call, None where they are not wanted. `dtype`: of the first result.

    Arrays that `kept` leaves out may be stand-ins with a shape and a dtype.
    """
    scan = linearise(call, arrays, dtype, xp)
    cotangent, before, total = _split(scan, cotangents)
    if cotangent is None:
        return (None,) * len(arrays)
    step = scan.step(needs)
    flags = scan.flags._replace(
        reverse=not scan.flags.reverse, include_initial=False, return_last=False, dtype=scan.gradient_dtype(step).name
    )
    decay = None if step.decay is None else scan.conj(step.decay)
    backward = decay if scan.flags.exclusive or decay is None else scan.later(decay)
    moved = scan.linear(flags, backward, cotangent, scan.flipped(step.segments, total), total)[0]
    found: list[Array | None] = [None] * len(arrays)
    for i, weight in enumerate(step.weights):
        if needs[i]:
            gradient = moved if weight is None else moved * scan.conj(weight)
            if step.chosen is not None:
                gradient = xp.where(step.chosen, gradient, xp.zeros_like(gradient))
            found[i] = _as_of(xp, arrays[i], gradient)
    place = call.roles.index("initial") if "initial" in call.roles else None
    if place is not None and needs[place]:
        if scan.shape[scan.axis]:
            found[place] = _as_of(xp, arrays[place], _of_initial(scan, decay, moved, cotangent, before))
        elif scan.flags.return_last and cotangents[-1] is not None:  # what comes in goes out
            found[place] = _as_of(xp, arrays[place], cotangents[-1])
    return tuple(found)


def _split(scan: LinearisedScan, cotangents: Sequence[Array | None]) -> tuple[Array | None, Array | None, Array | None]:
    """The cotangents of the results at the elements, of what comes before them, and of a total behind them."""
    xp, whole = scan.xp, cotangents[0]
    last = cotangents[-1] if scan.flags.return_last else None
    if last is not None:  # it is the last element once more
        at_end = xp.expand_dims(xp.cast(last, scan.dtype), scan.axis)
        if whole is None:
            whole = xp.broadcast_to(xp.zeros_like(at_end), scan.shape)
        if scan.shape[scan.axis] > 1:  # else all of it is the end
            parts = [scan.cut(whole, None, -1), scan.cut(whole, -1, None) + at_end]
            whole = xp.concat(parts[::-1] if scan.flags.reverse else parts, scan.axis)
        else:
            whole = whole + at_end
    if whole is None or not scan.flags.include_initial:
        return whole, None, None
    if scan.flags.exclusive:
        return scan.cut(whole, None, -1), None, scan.first(scan.cut(whole, -1, None))
    return scan.cut(whole, 1, None), scan.first(whole), None


def _as_of(xp: Namespace, array: Array, gradient: Array) -> Array:
    """A cotangent of an array, in its shape and dtype."""
    return xp.sum_to(xp.cast(gradient, find_dtype(array.dtype)), array.shape)


def _of_initial(scan: LinearisedScan, decay: Array, moved: Array, cotangent: Array, before: Array | None) -> Array:
    """The cotangent of an array of initial states."""
    gradient = scan.first(moved) * scan.first(decay)
    if scan.flags.exclusive:
        gradient = gradient + scan.first(cotangent)
    if scan.segments is not None and scan.segments[0] == "reset":
        gradient = scan.xp.where(scan.first(scan.segments[1]), scan.xp.zeros_like(gradient), gradient)
    return gradient if before is None else gradient + before
