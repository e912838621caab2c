"""Built-in operators over states in the form that `tree.py` needs: a tuple of arrays, one per field.

Complex numbers become two fields if the operator multiplies them (`planar.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuscan.backends import planar
from cuscan.backends.convert import is_finite
from cuscan.backends.record import decision, opaque
from cuscan.backends.steps import Combine, States
from cuscan.dtypes import EXACT, Kind
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS, Monoid, product
from cuscan.request import ScanRequest

Array = np.ndarray[Any, Any]
Out = Any  # arrays for the result, or None (see `Combine`)


def is_planar(op: Monoid, kind: Kind) -> bool:
    """Return whether an operator stores the parts of complex numbers in separate fields."""
    return kind is Kind.COMPLEX and op in (LINEAR_RECURRENCE, OPERATORS["mul"])


def combine_of(op: Monoid, kind: Kind, *, tame: bool = False) -> Combine:
    """Return the function that combines states of an operator without segments, for a kind of number.

    `tame`: see `is_tamed`. Integers have no NaN and only one zero.
    """
    if is_planar(op, kind):
        return _PLANAR[op]
    if tame and op in _TAME:
        return _TAME[op]
    if op in _BY_FIELD:
        return _BY_FIELD[op]
    inner = np.multiply if op.combine is product else op.combine
    if op in _EXTREMA and (tame or kind in EXACT):
        inner = _EXTREMA[op]
    assert inner is not None
    if isinstance(inner, np.ufunc):
        return Combine(lambda earlier, later, out: (inner(earlier[0], later[0], out=out and out[0]),))
    if op.source:
        whole = opaque(inner)
        return Combine(lambda earlier, later, out: (whole(earlier[0], later[0], out=out and out[0]),))
    return Combine(lambda earlier, later, _: (inner(earlier[0], later[0]),))


def _affine_steps(earlier: States, later: States, out: Out) -> States:
    states = _affine_states(earlier[1:], later, out and out[1:])
    return np.multiply(earlier[0], later[0], out=out and out[0]), *states


def _affine_states(earlier: States, later: States, out: Out) -> States:
    state = np.multiply(later[0], earlier[0], out=out and out[0])
    return (np.add(state, later[1], out=state),)


def _add_exponentials(earlier: States, later: States, _: Out) -> States:
    (top, total), (later_top, later_total) = earlier, later
    keep = (top >= later_top) | np.isnan(top)
    high, low = np.where(keep, top, later_top), np.where(keep, later_top, top)
    part = np.where(high == low, high.dtype.type(1), np.exp(low - high))
    return high, np.where(keep, total, later_total) + np.where(keep, later_total, total) * part


def _extremum(greatest: bool, latest: bool) -> Callable[[States, States, Out], States]:
    def combine(earlier: States, later: States, _: Out) -> States:
        (one, place), (other, later_place) = earlier, later
        one_nan, other_nan = one != one, other != other
        beyond = other > one if greatest else other < one
        equal = np.where(one_nan, other_nan, one == other)
        wins_tie = (later_place >= 0) & (latest | (place < 0))
        wins = (~one_nan & (beyond | other_nan)) | (equal & wins_tie)
        return np.where(wins, other, one), np.where(wins, later_place, place)

    return combine


def _add_tame_exponentials(earlier: States, later: States, out: Out) -> States:
    """Select nothing: the part of the greater number is exactly 1, and so are both parts of equal infinities."""
    (top, total), (later_top, later_total) = earlier, later
    apart = np.empty_like(top, order="C", shape=(2, *np.broadcast_shapes(top.shape, later_top.shape)))
    np.subtract(top, later_top, out=apart[0])
    np.subtract(later_top, top, out=apart[1])
    part, later_part = np.exp(np.fmin(apart, 0))
    high = np.fmax(top, later_top, out=out and out[0])
    return high, np.add(total * part, later_total * later_part, out=out and out[1])


def _tame_extremum(greatest: bool, latest: bool) -> Callable[[States, States, Out], States]:
    extremum = np.fmax if greatest else np.fmin
    beyond = ((np.less, np.less_equal), (np.greater, np.greater_equal))[greatest][latest]

    def combine(earlier: States, later: States, out: Out) -> States:
        (one, place), (other, later_place) = earlier, later
        wins = beyond(other, one)
        chosen = np.empty_like(place, order="C", shape=wins.shape) if out is None else out[1]
        np.copyto(chosen, place)
        np.copyto(chosen, later_place, where=wins)
        return extremum(one, other, out=out and out[0]), chosen

    return combine


_EXTREMA = {OPERATORS["min"]: np.fmin, OPERATORS["max"]: np.fmax}
_PLANAR = {LINEAR_RECURRENCE: planar.RECURRENCE, OPERATORS["mul"]: planar.PRODUCT}
_BY_FIELD = {
    LINEAR_RECURRENCE: Combine(_affine_steps, hidden=1, shown=_affine_states),
    OPERATORS["logaddexp"]: Combine(_add_exponentials),
    **{row: Combine(_extremum(op == "max", ties == "last")) for (op, ties), row in INDEXED.items()},
}
_TAME = {
    OPERATORS["logaddexp"]: Combine(_add_tame_exponentials),
    **{row: Combine(_tame_extremum(op == "max", ties == "last")) for (op, ties), row in INDEXED.items()},
}


def is_tamed(request: ScanRequest) -> bool:
    """Return whether `combine_of` has a faster function for tame numbers, which are neither NaN nor -0.

    With positions, each state must have one: nothing is masked, and nothing precedes the elements.
    """
    op = request.op
    if op.indexed:
        return not (request.has_initial or request.skip_nan or request.mask is not None)
    return op in _TAME or (op in _EXTREMA and request.result.dtype.kind not in EXACT)


def are_tame(numbers: list[Array]) -> bool:
    """Return whether there is no NaN and no -0 in arrays."""
    return not any(array.dtype.kind == "f" and (_has_nan(array) or _has_negative_zero(array)) for array in numbers)


@decision
def _has_nan(array: Array) -> bool:
    return array.size > 0 and math.isnan(array.item(array.argmax()))  # a NaN counts as the greatest


def _has_negative_zero(array: Array) -> bool:
    return _has_least(array.view(f"i{array.itemsize}"))  # -0 is the least integer


@decision
def _has_least(bits: Array) -> bool:
    return bits.size > 0 and bool(bits.item(bits.argmin()) == _LEAST[bits.itemsize])


_LEAST = {size: np.iinfo(f"i{size}").min for size in (4, 8)}


# ---- segments --------------------------------------------------------------------------------------------------------


def restarting(inner: Combine) -> Combine:
    """Extend any operator to states whose last field marks the start of a segment (segments.cuh)."""

    def restart(function: Callable[..., States], first: int, earlier: States, later: States, out: Out) -> States:
        joined = function(earlier[:-1], later[:-1], out and out[:-1])
        for together, field in zip(joined, later[first:-1], strict=True):
            np.copyto(together, field, where=later[-1])
        return *joined, np.bitwise_or(earlier[-1], later[-1], out=out and out[-1])

    return Combine(
        lambda earlier, later, out: restart(inner, 0, earlier, later, out),
        hidden=inner.hidden,
        shown=lambda earlier, later, out: restart(inner.shown, inner.hidden, earlier, later, out),
    )


class Gate(NamedTuple):
    """How a number passes or clears everything before it: `through(state, number)` is what remains.

    `ends` returns, for a dtype, the number that passes everything and the one that clears everything.
    """

    through: np.ufunc
    join: np.ufunc
    ends: Callable[[np.dtype[Any]], tuple[Any, Any]]


def _ends(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return np.inf, -np.inf
    return np.iinfo(dtype).max, np.iinfo(dtype).min


def _bits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    return ~dtype.type(0), 0


_GATES = {
    "add": Gate(np.multiply, np.add, lambda _: (1, 0)),
    "max": Gate(np.fmin, np.fmax, _ends),
    "min": Gate(np.fmax, np.fmin, lambda dtype: _ends(dtype)[::-1]),
    "or": Gate(np.bitwise_and, np.bitwise_or, _bits),
    "xor": Gate(np.bitwise_and, np.bitwise_xor, _bits),
    "and": Gate(np.bitwise_or, np.bitwise_and, lambda dtype: _bits(dtype)[::-1]),
}


def gate_of(op: Monoid) -> Gate | None:
    """Return the gate of an operator, or None."""
    return _GATES[op.name] if op.name in _GATES and OPERATORS[op.name] is op else None


def gated(gate: Gate) -> Combine:
    """Extend an operator to states whose first field is a gate on everything before them.

    It selects nothing, so segments of any length take the same time.
    """

    def shown(earlier: States, later: States, out: Out) -> States:
        passed = [gate.through(part, later[0], out=out and out[i]) for i, part in enumerate(earlier)]
        return tuple(gate.join(part, more, out=part) for part, more in zip(passed, later[1:], strict=True))

    def combine(earlier: States, later: States, out: Out) -> States:
        passes = gate.through(earlier[0], later[0], out=out and out[0])
        return passes, *shown(earlier[1:], later, out and out[1:])

    return Combine(combine, hidden=1, shown=shown)


def is_gated(request: ScanRequest) -> bool:
    """Return whether segments may be gates: for built-in operators without carries.

    An exclusive scan finds starts by their closed gates: there must be none behind the elements of a line, and a decay
    of zero may be the user's.
    """
    if request.segments is None or request.carry_in or request.carry_out:
        return False
    if request.op is LINEAR_RECURRENCE:
        return not request.exclusive
    return gate_of(request.op) is not None and not (request.exclusive and request.include_initial)


def goes_in_any_order(request: ScanRequest) -> bool:
    """Return whether valid gates give the same bits in every order."""
    return request.result.dtype.kind in EXACT or request.op.name in ("min", "max")


def gates_hold(request: ScanRequest, elements: Array, start: list[Array]) -> bool:
    """Return whether cleared states leave no trace in results for these elements, which are accumulators.

    A cleared state becomes zero, and -0 + 0 is 0; an initial value adds no -0. Extrema must be of tame numbers.
    """
    if request.result.dtype.kind in EXACT:
        return True
    if request.op.name in ("min", "max"):
        return are_tame([elements, *start])
    return not any(map(_has_negative_zero, _parts(elements)))


def show_no_trace(request: ScanRequest, results: Array) -> bool:
    """Return whether the results prove that no infinity and no NaN was cleared: either would show in them."""
    if goes_in_any_order(request):
        return True
    if request.result.dtype.name == "bfloat16":
        return bool(is_finite(results, "bfloat16").all())
    return all(map(_is_finite, _parts(results)))


@decision
def _is_finite(array: Array) -> bool:
    greatest, least = array.item(array.argmax()), array.item(array.argmin())  # a NaN is both
    return math.isfinite(greatest) and math.isfinite(least)


def _parts(numbers: Array) -> list[Array]:
    """Return arrays of the real numbers that some numbers are made of."""
    if numbers.dtype.kind != "c":
        return [numbers]
    if numbers.flags.c_contiguous and numbers.ndim:
        return [numbers.view(numbers.real.dtype)]  # one pass in place of two
    return [numbers.real, numbers.imag]
