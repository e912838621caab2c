"""A request's operator on states that are tuples of arrays, a field each: elements.cuh and segments.cuh.

A user's state of several fields is one structured array, as its `numpy=` wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuscan.backends.convert import is_nan, storage, to_accumulator
from cuscan.backends.tree import Combine, States
from cuscan.dtypes import DTYPES
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS, Monoid, product
from cuscan.request import ScanRequest
from cuscan.states import make_states

Array = np.ndarray[Any, Any]


class Inputs(NamedTuple):
    """The arrays that a scan reads, as NumPy sees them."""

    values: tuple[Array, ...]
    mask: Array | None = None
    segments: Array | None = None
    row_initial: Array | None = None
    carry: tuple[Array, ...] = ()


# ---- built-in operators over several fields --------------------------------------------------------------------------


def _affine_steps(earlier: States, later: States) -> States:
    (decay, state), (later_decay, later_state) = earlier, later
    return product(decay, later_decay), product(later_decay, state) + later_state


def _add_exponentials(earlier: States, later: States) -> States:
    (top, total), (later_top, later_total) = earlier, later
    keep = (top >= later_top) | np.isnan(top)
    high, low = np.where(keep, top, later_top), np.where(keep, later_top, top)
    part = np.where(high == low, high.dtype.type(1), np.exp(low - high))
    return high, np.where(keep, total, later_total) + np.where(keep, later_total, total) * part


def _extremum(greatest: bool, latest: bool) -> Combine:
    def combine(earlier: States, later: States) -> States:
        (one, place), (other, later_place) = earlier, later
        one_nan, other_nan = one != one, other != other
        beyond = other > one if greatest else other < one
        equal = np.where(one_nan, other_nan, one == other)
        wins_tie = (later_place >= 0) & (latest | (place < 0))
        wins = (~one_nan & (beyond | other_nan)) | (equal & wins_tie)
        return np.where(wins, other, one), np.where(wins, later_place, place)

    return combine


_BY_FIELD: dict[Monoid, Combine] = {
    LINEAR_RECURRENCE: _affine_steps,
    OPERATORS["logaddexp"]: _add_exponentials,
    **{row: _extremum(op == "max", ties == "last") for (op, ties), row in INDEXED.items()},
}


# ---- any operator ----------------------------------------------------------------------------------------------------


class FieldAlgebra:
    """What the defined order is walked with: elements as states, their combination, and what is shown of them."""

    def __init__(self, request: ScanRequest, start: tuple[Any, ...] | None) -> None:
        op = request.op
        by_field = _BY_FIELD.get(op)
        self._request = request
        self._start = start  # the user's initial value
        self._names = op.states.dtype("f4").names if by_field else None
        self._inner: Combine = by_field or _alone(op)
        self.segmented = request.segments is not None
        self.combine = self._restarting if self.segmented else self._inner
        state = op.states.dtype(storage(DTYPES[request.result.dtype.accumulator]))
        carry = op.states.dtype(storage(DTYPES[request.carry]))
        self._state, self._state_fields = state, self._fields_of(state)
        self._carry = carry
        self.wide = self._fields_of(carry) + ((np.dtype(np.bool_),) if self.segmented else ())
        self._identity = self._made(state, op.identity(request.result.dtype), ())
        self.segment_start = self._identity
        if start is not None and op.segments_have_initial:
            first = self._made(carry, op.states.start(*start), ())
            self.segment_start = tuple(p.astype(d) for p, d in zip(first, self._state_fields, strict=True))

    def _fields_of(self, dtype: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        return tuple(dtype[name] for name in self._names) if self._names else (dtype,)

    def _made(self, dtype: np.dtype[Any], parts: tuple[Any, ...], shape: tuple[int, ...]) -> States:
        whole = make_states(dtype, parts, shape)
        return tuple(whole[name] for name in self._names) if self._names else (whole,)

    def _restarting(self, earlier: States, later: States) -> States:
        *_, before = earlier
        *alone, restarts = later
        joined = self._inner(earlier[:-1], later[:-1])
        for together, field in zip(joined, alone, strict=True):
            np.copyto(together, field, where=restarts)
        return (*joined, before | restarts)

    def row_start(self, inputs: Inputs, rows: slice, count: int) -> States | None:
        """What lines start from, in the carry's type; None if nothing precedes them."""
        request, start = self._request, self._start
        if not request.has_initial:
            return None
        if inputs.carry:
            states = self._made(self._carry, self._carried(inputs, rows), (count,))
            return (*states, np.zeros(count, np.bool_)) if self.segmented else states
        if inputs.row_initial is not None:
            assert request.row_initial is not None
            start = (to_accumulator(inputs.row_initial[rows], request.row_initial.dtype, DTYPES[request.carry]),)
        assert start is not None
        states = self._made(self._carry, request.op.states.start(*start), (count,))
        return (*states, np.zeros(count, np.bool_)) if self.segmented else states

    def empty(self, count: int) -> States:
        """The identity for lines without elements, in the carry's type."""
        return self._made(self._carry, self._request.op.identity(self._request.result.dtype), (count,))

    def _carried(self, inputs: Inputs, rows: slice) -> tuple[Array, ...]:
        """The fields of a state that comes in; what is counted from the present elements moves by them."""
        fields = [field[rows] for field in inputs.carry[: len(self._carry.names or ("",))]]
        if self._request.op.indexed and self._request.reverse:
            fields[1] = np.where(fields[1] < 0, fields[1], fields[1] + self._length)
        return tuple(fields)

    def carry_out(self, inputs: Inputs, rows: slice, states: States) -> list[Array]:
        """The fields of a carry, from the states that lines end with."""
        alone = None if self._names else self._carry.names  # one structured array
        fields = [states[0][name] for name in alone] if alone else list(states[: len(self._carry.names or ("",))])
        if self._request.op.indexed:
            fields.append(self._length + self._counted(inputs, rows))
        return fields

    @property
    def _length(self) -> int:
        return self._request.shape[self._request.axis]

    @staticmethod
    def _counted(inputs: Inputs, rows: slice) -> Any:
        """The elements before the present ones."""
        return inputs.carry[2][rows] if inputs.carry else 0

    def lift(self, inputs: Inputs, window: Any) -> States:
        """The states of the elements of a window."""
        request, op = self._request, self._request.op
        values = [value[window] for value in inputs.values]
        shape = values[0].shape
        dtypes = [DTYPES[name] for name in op.dtypes] or [request.result.dtype] * len(values)
        pairs = zip(values, request.values, dtypes, strict=True)
        parts = op.states.lift(*(to_accumulator(v, spec.dtype, dtype) for v, spec, dtype in pairs))
        states: States = (
            (make_states(self._state, parts, shape),)
            if op.dtypes
            else tuple(
                np.broadcast_to(np.asarray(part).astype(dtype, copy=False), shape)
                for part, dtype in zip(parts, self._state_fields, strict=True)
            )
        )
        if op.indexed:
            index = np.arange(window[1].start, window[1].start + shape[1])
            counted = np.reshape(self._counted(inputs, window[0]), (-1, 1))
            index = self._length - 1 - index if request.reverse else counted + index
            states = states[0], np.broadcast_to(index, shape)
        if inputs.mask is not None:
            states = self._where(inputs.mask[window].view(np.uint8) != 0, states, self._identity)
        if request.skip_nan:
            missing = [is_nan(v, spec.dtype.name) for v, spec in zip(values, request.values, strict=True)]
            states = self._where(np.logical_or.reduce(missing), self._identity, states)
        if inputs.segments is None:
            return states
        restarts = inputs.segments[window]
        if self._start is not None and op.segments_have_initial:
            states = self._where(restarts, self._inner(self.segment_start, states), states)
        return (*states, restarts)

    def shown_before(self, running: States, element: States, first: Any) -> States:
        """What an exclusive scan shows at elements; `first` are those that nothing precedes."""
        shown = running[:-1] if self.segmented else running
        if first is not None:
            shown = tuple(part.copy() for part in shown)
            for part, identity in zip(shown, self._identity, strict=True):
                part[first] = identity
        if self.segmented and self._request.exclusive:
            shown = self._where(element[-1], self.segment_start, shown)
        return shown

    def lower(self, states: States) -> tuple[Array, ...]:
        """The results of states, segments or not."""
        lower: Callable[[Any], tuple[Array, ...]] = self._request.op.states.lower
        return lower(dict(zip(self._names, states, strict=False)) if self._names else states[0])

    @staticmethod
    def _where(condition: Array, yes: States, no: States) -> States:
        return tuple(np.where(condition, one, other) for one, other in zip(yes, no, strict=True))


def _alone(op: Monoid) -> Combine:
    """An operator over states that are one array."""
    inner = op.combine
    assert inner is not None
    return lambda earlier, later: (inner(earlier[0], later[0]),)
