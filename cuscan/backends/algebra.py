"""A request's operator on NumPy arrays of states, segments included: elements.cuh and segments.cuh."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cuscan.backends.convert import storage, to_accumulator
from cuscan.dtypes import DTYPES
from cuscan.request import ScanRequest
from cuscan.states import make_states

Array = np.ndarray[Any, Any]


class Part(NamedTuple):
    """Partial results, and where they exist: at the start of a row nothing comes before."""

    exists: Any
    value: Array


class Inputs(NamedTuple):
    """The arrays that a scan reads, as NumPy sees them."""

    values: tuple[Array, ...]
    mask: Array | None = None
    segments: Array | None = None
    row_initial: Array | None = None
    carry: tuple[Array, ...] = ()


class Algebra:
    """What the defined order is walked with: elements as states, their combination, and what is shown of them."""

    def __init__(self, request: ScanRequest, start: tuple[Any, ...] | None) -> None:
        assert request.op.combine is not None
        self._inner = request.op.combine
        self._request = request
        self._start = start  # the user's initial value
        self._state = request.op.states.dtype(storage(DTYPES[request.result.dtype.accumulator]))
        self._carry = request.op.states.dtype(storage(DTYPES[request.carry]))
        self.segmented = request.segments is not None

    def combine(self, earlier: Array, later: Array) -> Array:
        if not self.segmented:
            return self._inner(earlier, later)
        state: Array = np.empty(np.broadcast(earlier, later).shape, earlier.dtype)
        state["value"] = np.where(later["restarts"], later["value"], self._inner(earlier["value"], later["value"]))
        state["restarts"] = earlier["restarts"] | later["restarts"]
        return state

    def _marked(self, states: Array, restarts: Any) -> Array:
        if not self.segmented:
            return states
        return make_states(np.dtype([("value", states.dtype), ("restarts", "?")]), (states, restarts), states.shape)

    def row_start(self, inputs: Inputs, first: int, count: int) -> Array:
        """What rows start from."""
        rows, start = slice(first, first + count), self._start
        shape = inputs.values[0][rows].shape[:1]
        if inputs.carry:
            return self._marked(make_states(self._carry, self._carried(inputs, rows), shape), False)
        if inputs.row_initial is not None:
            assert self._request.row_initial is not None
            spec = self._request.row_initial.dtype
            start = (to_accumulator(inputs.row_initial[rows], spec, DTYPES[self._request.carry]),)
        states = self._request.op.states
        parts = self._identity() if start is None else states.start(*start)
        return self._marked(make_states(self._carry, parts, shape), False)

    def _carried(self, inputs: Inputs, rows: slice) -> tuple[Array, ...]:
        """The fields of a state that comes in; what is counted from the present elements moves by them."""
        fields = [field[rows] for field in inputs.carry[: len(self._carry.names or ("",))]]
        if self._request.op.indexed and self._request.reverse:
            fields[1] = np.where(fields[1] < 0, fields[1], fields[1] + self._length)
        return tuple(fields)

    def carry_out(self, inputs: Inputs, rows: slice, states: Array) -> list[Array]:
        """The fields of a carry, from the states that lines end with."""
        states = self.shown(states)
        fields = [states[name] for name in self._carry.names or ()] or [states]
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

    def _identity(self) -> tuple[complex, ...]:
        return self._request.op.identity(self._request.result.dtype)

    def identity(self) -> Array:
        return make_states(self._state, self._identity(), ())

    def segment_start(self) -> Array:
        """What a segment within a row starts from: the state that an exclusive scan shows there."""
        if self._start is None or not self._request.op.segments_have_initial:
            return self.identity()
        carry = make_states(self._carry, self._request.op.states.start(*self._start), ())
        return carry.astype(self._state)

    def lift(self, inputs: Inputs, window: Any, shape: tuple[int, ...]) -> Array:
        """The states of the elements of a window; what is behind them is of no consequence."""
        request = self._request
        values = [value[window] for value in inputs.values]
        dtypes = [DTYPES[name] for name in request.op.dtypes] or [request.result.dtype] * len(values)
        pairs = zip(values, request.values, dtypes, strict=True)
        parts = request.op.states.lift(*(to_accumulator(v, spec.dtype, dtype) for v, spec, dtype in pairs))
        states = make_states(self._state, parts, values[0].shape)
        if request.op.indexed:
            index = np.arange(window[1].start, window[1].start + states.shape[1])
            counted = np.reshape(self._counted(inputs, window[0]), (-1, 1))
            states["index"] = self._length - 1 - index if request.reverse else counted + index
        if inputs.mask is not None:
            states = np.where(inputs.mask[window].view(np.uint8) != 0, states, self.identity())
        if request.skip_nan:
            missing = [_is_nan(v, spec.dtype.name) for v, spec in zip(values, request.values, strict=True)]
            states = np.where(np.logical_or.reduce(missing), self.identity(), states)
        restarts: Any = False
        if inputs.segments is not None:
            restarts = inputs.segments[window]
            if self._start is not None and request.op.segments_have_initial:
                states = np.where(restarts, self._inner(self.segment_start(), states), states)
        states = self._marked(states, restarts)
        padded = np.zeros(shape, states.dtype)
        padded[:, : states.shape[1]] = states
        return padded

    def shown_before(self, running: Part, item: Array) -> Array:
        """What an exclusive scan gives at an element."""
        if not self.segmented:
            return np.where(running.exists, running.value, self.identity())
        before = np.where(running.exists, running.value["value"], self.identity())
        if self._request.exclusive:
            before = np.where(item["restarts"], self.segment_start(), before)
        return before

    def shown(self, states: Array) -> Array:
        return states["value"] if self.segmented else states

    @property
    def shows_before(self) -> bool:
        return self._request.exclusive or self._request.include_initial

    @property
    def shown_dtype(self) -> np.dtype[Any]:
        return self._state


def _is_nan(value: Array, name: str) -> Array:
    if name == "bfloat16":
        return (value.view(np.uint16) & np.uint16(0x7FFF)) > np.uint16(0x7F80)
    return np.isnan(value) if value.dtype.kind in "fc" else np.zeros(value.shape, np.bool_)
