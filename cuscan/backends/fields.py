"""A request's operator over states that are tuples of arrays, one per field (elements.cuh, segments.cuh).

A user's state of several fields is one structured array, the form that its `numpy=` callable takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuscan.backends import planar
from cuscan.backends.combine import combine_of, gate_of, gated, is_planar, restarting
from cuscan.backends.convert import is_nan, storage, to_accumulator
from cuscan.backends.record import alike
from cuscan.backends.steps import States
from cuscan.dtypes import DTYPES, Kind
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request import ScanRequest
from cuscan.states import make_states

Array = np.ndarray[Any, Any]


class Inputs(NamedTuple):
    """The NumPy arrays that a scan reads."""

    values: tuple[Array, ...]
    mask: Array | None = None
    segments: Array | None = None
    row_initial: Array | None = None
    carry: tuple[Array, ...] = ()


class FieldAlgebra:
    """The operations of a request on states: from elements to states, combine, and from states to results.

    With `gates`, segments are gates rather than selections, and with `tame` numbers some operators are simpler; see
    `combine.py`.
    """

    def __init__(
        self, request: ScanRequest, start: tuple[Any, ...] | None, *, gates: bool = False, tame: bool = False
    ) -> None:
        op, kind = request.op, request.result.dtype.kind
        self._request = request
        self._start = start  # the user's initial value
        self._precedes = request.has_initial  # whether anything precedes lines
        self.gate = gate_of(op) if gates else None
        self._clears_decay = gates and op is LINEAR_RECURRENCE
        self.segmented = request.segments is not None and not gates
        self._is_planar = is_planar(op, kind) or (self.gate is not None and kind is Kind.COMPLEX)
        inner = combine_of(op, kind, tame=tame) if self.gate is None else gated(self.gate)
        self._inner = inner
        self.combine = restarting(inner) if self.segmented else inner
        state = op.states.dtype(storage(DTYPES[request.result.dtype.accumulator]))
        carry = op.states.dtype(storage(DTYPES[request.carry]))
        self._names = state.names if not op.dtypes else None  # None: a user's state is one structured array
        self._state, self._state_fields = state, self._fields_of(state)
        self._carry = carry
        self._planes = self._planes_of(self._state_fields)
        self.itemsize = max(field.itemsize for field in self._state_fields)
        wide = self._planes_of(self._fields_of(carry))
        self.wide = wide[: self.gate is not None] + wide + ((np.dtype(np.bool_),) if self.segmented else ())
        self._hidden = inner.hidden - (self.gate is not None)  # planes of the state
        self._count_shown = len(self._planes) - self._hidden
        self._identity = self._made(state, op.identity(request.result.dtype), ())
        self.segment_start = self._identity
        if start is not None and op.segments_have_initial:
            first = self._made(carry, op.states.start(*start), ())
            self.segment_start = tuple(p.astype(d, copy=False) for p, d in zip(first, self._planes, strict=True))

    def _fields_of(self, dtype: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        return tuple(dtype[name] for name in self._names) if self._names else (dtype,)

    def _planes_of(self, fields: tuple[np.dtype[Any], ...]) -> tuple[np.dtype[Any], ...]:
        return tuple(part.dtype for part in self.split(tuple(np.empty(0, field) for field in fields)))

    def split(self, fields: States) -> States:
        """Split complex fields into real and imaginary fields, if the operator combines those."""
        return planar.split(fields) if self._is_planar else fields

    def _joined(self, planes: States) -> States:
        """Invert `split`."""
        return planar.joined(planes) if self._is_planar else planes

    def _made(self, dtype: np.dtype[Any], parts: tuple[Any, ...], shape: tuple[int, ...]) -> States:
        if self._request.op.dtypes:
            return self.split((make_states(dtype, parts, shape),))
        # Convert through an array: NumPy rejects Python integers that do not fit, where C++ wraps them.
        fields = zip(parts, self._fields_of(dtype), strict=True)
        made = [np.asanyarray(part).astype(field, copy=False) for part, field in fields]
        return self.split(tuple([np.broadcast_to(part, shape) for part in made]))

    def start_lines(self, inputs: Inputs) -> Inputs:
        """Return inputs whose lines begin with a segment: the initial value joins their first elements.

        The order of combination is no longer the defined one.
        """
        assert inputs.segments is not None
        restarts = inputs.segments.copy()
        restarts[:, 0] = True
        self._precedes = False
        return inputs._replace(segments=restarts)

    def row_start(self, inputs: Inputs, rows: slice, count: int) -> States | None:
        """Return the states that lines start from, in the carry type; None if nothing precedes the lines."""
        request, start = self._request, self._start
        if not self._precedes:
            return None
        if inputs.carry:
            return self._whole(self._made(self._carry, self._carried(inputs, rows), (count,)))
        if inputs.row_initial is not None:
            assert request.row_initial is not None
            start = (to_accumulator(inputs.row_initial[rows], request.row_initial.dtype, DTYPES[request.carry]),)
        assert start is not None
        return self._whole(self._made(self._carry, request.op.states.start(*start), (count,)))

    def _whole(self, states: States) -> States:
        """Return states of elements with no segment starting in them."""
        if self.gate is not None:
            passes, _ = self.gate.ends(states[0].dtype)
            return alike((np.full(states[0].shape, passes, states[0].dtype), *states))
        return alike((*states, np.zeros(states[0].shape, np.bool_)) if self.segmented else states)

    def empty(self, count: int) -> States:
        """Return the identity for lines without elements, in the carry type."""
        return self._made(self._carry, self._request.op.identity(self._request.result.dtype), (count,))

    def _carried(self, inputs: Inputs, rows: slice) -> tuple[Array, ...]:
        """Return the fields of an incoming carry, with positions shifted if they count from the present elements."""
        fields = [field[rows] for field in inputs.carry[: len(self._carry.names or ("",))]]
        if self._request.op.indexed and self._request.reverse:
            fields[1] = np.where(fields[1] < 0, fields[1], fields[1] + self._length)
        return tuple(fields)

    def carry_out(self, inputs: Inputs, rows: slice, states: States) -> list[Array]:
        """Return the fields of the outgoing carry, from the states at the ends of lines."""
        alone = None if self._names else self._carry.names  # the state is one structured array
        parts = self._joined(states[: len(self._planes)])
        fields = [parts[0][name] for name in alone] if alone else list(parts)
        if self._request.op.indexed:
            fields.append(self._length + self._counted(inputs, rows))
        return fields

    @property
    def _length(self) -> int:
        return self._request.shape[self._request.axis]

    @staticmethod
    def _counted(inputs: Inputs, rows: slice) -> Any:
        """Return the number of elements before the present ones."""
        return inputs.carry[2][rows] if inputs.carry else 0

    def lift(self, inputs: Inputs, window: Any) -> States:
        """Return the states of the elements of a window."""
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
                np.broadcast_to(np.asanyarray(part).astype(dtype, copy=False), shape)
                for part, dtype in zip(parts, self._state_fields, strict=True)
            )
        )
        if op.indexed:
            index = np.arange(window[1].start, window[1].start + shape[1])
            counted = np.reshape(self._counted(inputs, window[0]), (-1, 1))
            index = self._length - 1 - index if request.reverse else counted + index
            states = states[0], np.broadcast_to(index, shape)
        states = self.split(states)
        if inputs.mask is not None:
            states = self._where(inputs.mask[window].view(np.uint8) != 0, states, self._identity)
        if request.skip_nan:
            missing = [is_nan(v, spec.dtype.name) for v, spec in zip(values, request.values, strict=True)]
            states = self._where(functools.reduce(np.logical_or, missing), self._identity, states)
        return alike(states if inputs.segments is None else self._restarted(states, inputs.segments[window]))

    def _restarted(self, states: States, restarts: Array) -> States:
        """Return states with segment starts at `restarts`."""
        if self._clears_decay:
            decays = self.combine.hidden
            return *_cleared(states[:decays], restarts, states[0].dtype.type(0)), *states[decays:]
        if self._start is not None and self._request.op.segments_have_initial:
            states = self._where(restarts, self._join(self.segment_start, states), states)
        if self.gate is None:
            return (*states, restarts)
        passes, clears = (np.asarray(number, states[0].dtype) for number in self.gate.ends(states[0].dtype))
        return *_cleared((passes,), restarts, clears), *states

    def _join(self, earlier: States, later: States) -> States:
        """Combine states without segments."""
        if self.gate is None:
            return self._inner(earlier, later)
        return tuple(map(self.gate.join, earlier, later))

    def show_starts(self, shown: States, elements: States, alone: Any) -> None:
        """Write what an exclusive scan shows where nothing precedes, at `alone`, and where segments start."""
        identity, start, restarts = self._identity[self._hidden :], self.segment_start[self._hidden :], None
        if self._request.exclusive and self.segmented:
            restarts = elements[-1]
        elif self._request.exclusive and self.gate is not None:
            restarts = elements[0] == self.gate.ends(elements[0].dtype)[1]
        for part, nothing, first in zip(shown, identity, start, strict=False):
            if alone is not None:
                part[alone] = nothing
            if restarts is not None:
                np.copyto(part, first, where=restarts)

    def lower(self, states: States) -> tuple[Array, ...]:
        """Return the results of states, without hidden fields and segment marks; complex results remain split."""
        lower: Callable[[Any], tuple[Array, ...]] = self._request.op.states.lower
        fields = states[: self._count_shown]
        if self._is_planar:
            return fields
        return lower(dict(zip(self._names[-len(fields) :], fields, strict=True)) if self._names else fields[0])

    @staticmethod
    def _where(condition: Array, yes: States, no: States) -> States:
        return tuple(np.where(condition, one, other) for one, other in zip(yes, no, strict=True))


def _cleared(numbers: States, where: Array, clears: Any) -> States:
    """Compute `np.where(where, clears, each)` of numbers of one type, by bits: the branch would be mispredicted."""
    integer = f"i{clears.itemsize}"
    rest = clears.view(integer)
    others: Array = (where.view(np.int8) - np.int8(1)).astype(integer)  # all ones, or all zeros

    def cleared(each: Array) -> Array:
        bits = each.view(integer)
        chosen: Array = others & (bits ^ rest if rest else bits)
        if rest:
            chosen ^= rest
        return chosen.view(each.dtype)

    return tuple(map(cleared, numbers))
