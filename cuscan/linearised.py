"""A scan in its derivative, and the further scans that the derivative needs; see `derivatives`."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from cuscan.dtypes import DTYPES, DType
from cuscan.operators import LINEAR_RECURRENCE, OPERATORS, Monoid
from cuscan.request.call import BESIDE, CARRY, SEGMENTS, Flags, find_dtype, find_operator
from cuscan.request.carry import carry_fields
from cuscan.request.checks import lies_along
from cuscan.request.initial import check_initial

Array = Any


class Call(NamedTuple):
    """A call without its arrays: flags, roles of the arrays (see `call.Operands`), and a number as `initial`."""

    flags: Flags
    roles: tuple[str, ...]
    initial: Any = None


class Namespace(Protocol):
    """What derivatives need of a framework: functions of the array API standard, `where` also with numbers, and these.

    All must be differentiable.
    """

    where: Callable[..., Array]
    exp: Callable[..., Array]
    isnan: Callable[..., Array]
    logical_and: Callable[..., Array]
    zeros_like: Callable[..., Array]
    ones_like: Callable[..., Array]
    full_like: Callable[..., Array]
    concat: Callable[..., Array]
    expand_dims: Callable[..., Array]
    broadcast_to: Callable[..., Array]

    def scan(self, call: Call, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the results of a call, and record derivatives."""

    def conj(self, x: Array) -> Array:
        """Return the conjugate if cotangents are conjugated derivatives, as in torch; otherwise x."""

    def cast(self, x: Array, dtype: DType) -> Array:
        """Convert to another dtype; take the real part if that dtype is real."""

    def sum_to(self, x: Array, shape: tuple[int, ...]) -> Array:
        """Sum over the axes along which `shape` was broadcast."""

    def positions(self, x: Array, axis: int) -> Array:
        """Return 0, 1, ... along a negative axis of x, in a shape that broadcasts to that of x."""

    def times_shifted(self, x: Array, states: Array, first: Array | complex, reverse: bool, axis: int) -> Array:
        """Return x times the states before its elements, as `joined` returns them. x has their shape and dtype."""


class Shifted(NamedTuple):
    """The states before the elements along an axis, given by the states after them.

    Attributes:
        states: those after each element.
        first: that before the first element: a number, or an array that broadcasts to one element along the axis.
        reverse: whether the scan runs backward.
    """

    states: Array
    first: Array | complex
    reverse: bool


def joined(states: Array, first: Array | complex, reverse: bool, axis: int, xp: Namespace) -> Array:
    """Return the states before the elements along a negative axis (see `Shifted`) as one array."""
    behind = (slice(None),) * (-axis - 1)
    edge, rest = (slice(-1, None), slice(1, None)) if reverse else (slice(0, 1), slice(None, -1))
    like, later = states[(..., edge, *behind)], states[(..., rest, *behind)]
    number = isinstance(first, numbers.Number)
    start = xp.full_like(like, first) if number else xp.broadcast_to(first, tuple(like.shape))
    return xp.concat((later, start) if reverse else (start, later), axis)


class Step(NamedTuple):
    """One step of the linear recurrence that is the derivative of a scan.

    Attributes:
        decay: an array or a number; None means 1.
        weights: one for each array of values; None means 1.
        chosen: bool, where elements count; None means everywhere.
        segments: role and array; None without segments.
        key: the key of the carry, if keys define the segments.
    """

    decay: Array | None
    weights: tuple[Array | Shifted | None, ...]
    chosen: Array | None = None
    segments: tuple[str, Array] | None = None
    key: Array | None = None


class LinearisedScan:
    """A call with its arrays, and the scans that its derivative needs.

    `result` is the result of the call if `derivatives.reads_result` says so, otherwise None.
    """

    is_whole = True  # whether the arrays hold all elements along the axis

    def __init__(
        self, call: Call, arrays: tuple[Array, ...], dtype: DType, xp: Namespace, result: Array | None = None
    ) -> None:
        self.call, self.dtype, self.xp, self.result = call, dtype, xp, result
        self.op = find_operator(call.flags.op)
        self.given = dict(zip(call.roles, arrays, strict=True))
        self.values = tuple(array for role, array in self.given.items() if role not in BESIDE)
        self.main = self.values[-1]
        self.shape = tuple(self.main.shape)
        axis = call.flags.axis
        self.axis = axis - len(self.shape) if axis >= 0 else axis
        for role in ("mask", "reset", "keys"):
            if role in self.given:
                self.given[role] = self._placed(role, self.given[role])
        self.segments = next(((role, self.given[role]) for role in SEGMENTS if role in self.given), None)
        carry = tuple(array for role, array in self.given.items() if role in CARRY)
        keyed = bool(carry) and "keys" in self.given
        self.key: Array | None = carry[-1] if keyed else None
        self.carry = carry[:-1] if keyed else carry
        # An exclusive scan followed by the total equals an inclusive one preceded by the identity.
        exclusive = call.flags.exclusive and not (call.flags.include_initial and self.segments is None)
        self.flags = call.flags._replace(
            axis=self.axis, exclusive=exclusive, validate=False, return_carry=False, only_carry=False
        )
        self.number = DTYPES[dtype.accumulator]  # the dtype of intermediate results

    def _placed(self, role: str, array: Array) -> Array:
        """Return an array that lies along the scanned axis with further axes for those behind it."""
        shape = tuple(array.shape)
        along = len(shape) == 1 if role == "keys" else lies_along(shape, self.shape, self.axis, role)
        return array[(slice(None), *(None,) * (-self.axis - 1))] if along else array

    # ---- scans like this one

    def again(
        self,
        op: Monoid | None = None,
        *,
        exclusive: bool = False,
        dtype: DType | None = None,
        carry: tuple[Array, ...] = (),
        only_carry: bool = False,
    ) -> tuple[Array, ...]:
        """Return the results of this call with another operator, before or through each element, or the carry alone."""
        name = self.number if dtype is None else dtype
        flags = self.flags._replace(op=op or self.op, exclusive=exclusive, include_initial=False, return_last=False)
        flags = flags._replace(dtype=name.name, return_carry=only_carry, only_carry=only_carry)
        given = {role: array for role, array in self.given.items() if role not in CARRY}
        if self.carry:
            # A scan in another dtype than this one may have a wider carry.
            of_scan = [field.dtype for field in carry_fields(flags.op, name, None)]
            fields = tuple(map(self.xp.cast, carry or self.carry, of_scan))
            given |= self.as_carry(fields, self.key)
        return self.xp.scan(Call(flags, tuple(given), self.call.initial), tuple(given.values()))

    def linear(
        self,
        flags: Flags,
        step: Step,
        moved: Array,
        initial: Array | None = None,
        carry: Array | None = None,
    ) -> tuple[Array, ...]:
        """Compute a sum if nothing decays, else a linear recurrence; from `initial`, or from a carry as scans take it.

        Return the results of the call, with only the state of the carry.
        """
        given = {"x": moved}
        if not (step.decay is None and initial is None):
            given = {"a": 1.0 if step.decay is None else step.decay, "b": moved}
        decays = "a" in given
        flags = flags._replace(op=LINEAR_RECURRENCE if decays else OPERATORS["add"], skipna=False)
        if step.segments is not None:
            given[step.segments[0]] = step.segments[1]
        if initial is not None:
            given["initial"] = initial
        if carry is not None:
            given |= self.as_carry((self.xp.ones_like(carry), carry) if decays else (carry,), step.key)
        results = self.xp.scan(Call(flags, tuple(given)), tuple(given.values()))
        if not flags.return_carry:
            return results
        state = (0 if flags.only_carry else 1) + flags.return_last
        return (*results[:state], results[state + decays])

    @staticmethod
    def as_carry(fields: tuple[Array, ...], key: Array | None) -> dict[str, Array]:
        """Return a carry by its roles."""
        fields = fields if key is None else (*fields, key)
        return dict(zip(CARRY[:1] if len(fields) == 1 else CARRY[1:], fields, strict=False))

    # ---- the states before and after each element

    def before(self) -> Array | Shifted:
        """Return the state before each element."""
        if self.result is None:
            dtype = self.dtype if self.op is LINEAR_RECURRENCE else self.number
            return self.again(exclusive=True, dtype=dtype)[0]
        if self.flags.exclusive:
            return self.result
        if self.flags.include_initial:
            return self.cut(self.result, None, -1)
        return Shifted(self.result, self._start(), self.flags.reverse)

    def through(self) -> Array:
        """Return the state after each element."""
        if self.result is None or self.flags.exclusive:
            return self.again()[0]
        return self.cut(self.result, 1, None) if self.flags.include_initial else self.result

    def _start(self) -> Array | complex:
        """Return the state before the first element, as `Shifted.first` is."""
        state = self.carry[-1] if self.carry else self.given.get("initial", self.call.initial)
        if state is None:
            return 0 if self.op is LINEAR_RECURRENCE else self.op.identity(self.dtype)[0]
        if state is self.call.initial:
            return check_initial(state, self.dtype)  # the number that the scan takes
        return state if len(state.shape) < -self.axis - 1 else self.xp.expand_dims(state, self.axis)

    def times(self, x: Array, weight: Array | Shifted | None) -> Array:
        """Return x times the weights of the elements."""
        if isinstance(weight, Shifted):
            return self.xp.times_shifted(x, *weight, self.axis)
        return x if weight is None else x * weight

    # ---- the elements

    @functools.cached_property
    def chosen(self) -> Array | None:
        """Where elements do not count as the identity."""
        mask = self.given.get("mask")
        if not self.flags.skipna:
            return mask
        real = ~self.xp.isnan(self.main)
        return real if mask is None else self.xp.logical_and(mask, real)

    @property
    def elements(self) -> Array:
        """The elements, with the identity where they count as that."""
        if self.chosen is None:
            return self.main
        identity = self.op.identity(self.dtype)[0]
        return self.xp.where(self.chosen, self.main, identity)

    def gradient_dtype(self, step: Step) -> DType:
        """Return the dtype of cotangents in the backward scan: that of the elements if nothing is multiplied later."""
        if self.op is LINEAR_RECURRENCE:
            return self.dtype
        own = find_dtype(self.main.dtype)
        simple = all(weight is None for weight in step.weights)
        return own if simple and own.kind is self.dtype.kind else self.number

    # ---- places along the axis, in scan order

    def spans(self, x: Array) -> bool:
        """Return whether x has a value for each position along the axis."""
        if x is None or isinstance(x, numbers.Number) or len(x.shape) < -self.axis:
            return False
        return bool(x.shape[self.axis] == self.shape[self.axis])

    def cut(self, x: Array, start: int | None, stop: int | None) -> Array:
        """Return x[start:stop] in scan order."""
        if self.flags.reverse:
            start, stop = None if stop is None else -stop, None if start is None else -start
        return x[(..., slice(start, stop), *(slice(None),) * (-self.axis - 1))]

    def rest(self, x: Array) -> Array:
        """Return all but the first in scan order, or x itself if it does not vary along the axis."""
        return self.cut(x, 1, None) if self.spans(x) else x

    def first(self, x: Array) -> Array:
        """Return the first in scan order, without the axis, or x itself if it does not vary along the axis."""
        return self._at(x, -1 if self.flags.reverse else 0)

    def last(self, x: Array) -> Array:
        """Return the last in scan order, as `first` does."""
        return self._at(x, 0 if self.flags.reverse else -1)

    def _at(self, x: Array, place: int) -> Array:
        if isinstance(x, numbers.Number) or len(x.shape) < -self.axis:
            return x
        return x[(..., place, *(slice(None),) * (-self.axis - 1))]

    def later(self, x: Array, like: Array | None = None) -> Array:
        """Return x[t + 1] at t, and 1 at the end; or x itself if it does not vary along the axis and `like` is None."""
        if not self.spans(x):
            if like is None:
                return x
            x = self.xp.full_like(like, x) if isinstance(x, numbers.Number) else self.xp.broadcast_to(x, self.shape)
        return self._joined(self.cut(x, 1, None), self.xp.ones_like(self.cut(x, None, 1)))

    def flipped(self, segments: tuple[str, Array] | None, initial: Array | None) -> tuple[str, Array] | None:
        """Return the same segments for the other direction: a segment starts where one ended."""
        if segments is None or segments[0] != "reset":
            return segments
        reset = segments[1] if initial is None else self.xp.broadcast_to(segments[1], self.shape)
        if self.spans(reset) and self.shape[self.axis]:
            reset = self._joined(self.cut(reset, 1, None), self.xp.zeros_like(self.cut(reset, None, 1)))
        return "reset", reset

    def _joined(self, *parts: Array) -> Array:
        return self.xp.concat(parts[::-1] if self.flags.reverse else parts, self.axis)

    def enters(self, x: Array, step: Step, *, from_carry: bool) -> Array:
        """Return x where the incoming state reaches the first element, else 0. Only a reset stops initial states."""
        if step.segments is None:
            return x
        kind, array = step.segments
        if kind == "reset":
            starts = self.first(array)
        elif not from_carry or (kind == "offsets" and array.shape[-1] < 2):
            return x
        elif kind == "offsets":  # with an empty segment
            starts = array[-2] == self.shape[self.axis] if self.flags.reverse else array[1] == 0
        else:
            starts = self.first(array) != step.key
        return self.xp.where(starts, 0, x)

    def conj(self, x: Array) -> Array:
        """Return the conjugates that cotangents are multiplied by; see `Namespace.conj`."""
        if x is None:
            return None
        if isinstance(x, Shifted):
            return x._replace(states=self.conj(x.states), first=self.conj(x.first))
        return x.conjugate() if isinstance(x, numbers.Complex) else self.xp.conj(x)
