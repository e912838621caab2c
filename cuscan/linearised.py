"""A scan as its derivative sees it, and the scans that this needs; see `derivatives`."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from cuscan.dtypes import DTYPES, DType
from cuscan.operators import LINEAR_RECURRENCE, OPERATORS, Monoid
from cuscan.request.call import BESIDE, CARRY, SEGMENTS, Flags, find_dtype, find_operator
from cuscan.request.checks import lies_along

Array = Any


class Call(NamedTuple):
    """A call without its arrays: its flags, the roles of its arrays (see `call.Operands`), a number as `initial`."""

    flags: Flags
    roles: tuple[str, ...]
    initial: Any = None


class Namespace(Protocol):
    """What derivatives ask of a framework: functions of the array API standard, `where` with numbers too, and these.

    All are differentiable.
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
        """The results of a call, by the way that records derivatives."""

    def conj(self, x: Array) -> Array:
        """The conjugate, if cotangents are the conjugates of derivatives as in torch; else x."""

    def cast(self, x: Array, dtype: DType) -> Array:
        """Another dtype; the real part where that is real."""

    def sum_to(self, x: Array, shape: tuple[int, ...]) -> Array:
        """The sum over the axes along which `shape` was broadcast."""

    def positions(self, x: Array, axis: int) -> Array:
        """0, 1, ... along a negative axis of x, in a shape that broadcasts to that of x."""


class Step(NamedTuple):
    """One step of the linear recurrence that a scan's derivative is.

    Attributes:
        decay: an array or a number; None is 1.
        weights: one for each array of values; None is 1.
        chosen: where elements count, bool; None is everywhere.
        segments: role and array; None if there are none.
        key: where segments are given by keys, that of the carry.
    """

    decay: Array | None
    weights: tuple[Array | None, ...]
    chosen: Array | None = None
    segments: tuple[str, Array] | None = None
    key: Array | None = None


class LinearisedScan:
    """A call with its arrays, and the scans that its derivative needs."""

    is_whole = True  # whether the arrays have all elements along the axis

    def __init__(self, call: Call, arrays: tuple[Array, ...], dtype: DType, xp: Namespace) -> None:
        self.call, self.dtype, self.xp = call, dtype, xp
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
        # An exclusive scan with the total behind it is an inclusive one with the identity before it.
        exclusive = call.flags.exclusive and not (call.flags.include_initial and self.segments is None)
        self.flags = call.flags._replace(
            axis=self.axis, exclusive=exclusive, validate=False, return_carry=False, only_carry=False
        )
        self.number = DTYPES[dtype.accumulator]  # what intermediate results are computed in

    def _placed(self, role: str, array: Array) -> Array:
        """What lies along the scanned axis, with the axes behind that."""
        along = len(array.shape) == 1 if role == "keys" else lies_along(tuple(array.shape), self.shape, self.axis)
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
        """The results of this call with another operator, before each element or through it; or the carry alone."""
        name = self.number if dtype is None else dtype
        flags = self.flags._replace(op=op or self.op, exclusive=exclusive, include_initial=False, return_last=False)
        flags = flags._replace(dtype=name.name, return_carry=only_carry, only_carry=only_carry)
        given = {role: array for role, array in self.given.items() if role not in CARRY}
        if self.carry:
            given |= self.as_carry(carry or self.carry, self.key)
        return self.xp.scan(Call(flags, tuple(given), self.call.initial), tuple(given.values()))

    def linear(
        self,
        flags: Flags,
        step: Step,
        moved: Array,
        initial: Array | None = None,
        carry: Array | None = None,
    ) -> tuple[Array, ...]:
        """A sum where nothing decays, else a linear recurrence; from `initial`, or from a carry as scans have it.

        Returns what the call returns, of the carry the state alone.
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
        """A carry by its roles."""
        fields = fields if key is None else (*fields, key)
        return dict(zip(CARRY[:1] if len(fields) == 1 else CARRY[1:], fields, strict=False))

    # ---- the elements

    @functools.cached_property
    def chosen(self) -> Array | None:
        """Where elements count as themselves."""
        mask = self.given.get("mask")
        if not self.flags.skipna:
            return mask
        real = ~self.xp.isnan(self.main)
        return real if mask is None else self.xp.logical_and(mask, real)

    @property
    def elements(self) -> Array:
        """The elements, the identity where they count as that."""
        if self.chosen is None:
            return self.main
        identity = self.op.identity(self.dtype)[0]
        return self.xp.where(self.chosen, self.main, identity)

    def gradient_dtype(self, step: Step) -> DType:
        """The type in which cotangents go backward: that of the elements, if nothing is multiplied afterwards."""
        if self.op is LINEAR_RECURRENCE:
            return self.dtype
        own = find_dtype(self.main.dtype)
        simple = all(weight is None for weight in step.weights)
        return own if simple and own.kind is self.dtype.kind else self.number

    # ---- places along the axis, in scan order

    def spans(self, x: Array) -> bool:
        """Whether x has a value for each place along the axis."""
        if x is None or isinstance(x, numbers.Number) or len(x.shape) < -self.axis:
            return False
        return bool(x.shape[self.axis] == self.shape[self.axis])

    def cut(self, x: Array, start: int | None, stop: int | None) -> Array:
        """x[start:stop] in scan order."""
        if self.flags.reverse:
            start, stop = None if stop is None else -stop, None if start is None else -start
        return x[(..., slice(start, stop), *(slice(None),) * (-self.axis - 1))]

    def rest(self, x: Array) -> Array:
        """All but the first in scan order; x itself where it is the same everywhere."""
        return self.cut(x, 1, None) if self.spans(x) else x

    def first(self, x: Array) -> Array:
        """What stands first, without the axis; x itself if it is the same everywhere."""
        return self._at(x, -1 if self.flags.reverse else 0)

    def last(self, x: Array) -> Array:
        """What stands last, like `first`."""
        return self._at(x, 0 if self.flags.reverse else -1)

    def _at(self, x: Array, place: int) -> Array:
        if isinstance(x, numbers.Number) or len(x.shape) < -self.axis:
            return x
        return x[(..., place, *(slice(None),) * (-self.axis - 1))]

    def later(self, x: Array, like: Array | None = None) -> Array:
        """x[t + 1] at t, 1 behind the last; x itself if it is the same everywhere and need not be `like` another."""
        if not self.spans(x):
            if like is None:
                return x
            x = self.xp.full_like(like, x) if isinstance(x, numbers.Number) else self.xp.broadcast_to(x, self.shape)
        return self._joined(self.cut(x, 1, None), self.xp.ones_like(self.cut(x, None, 1)))

    def flipped(self, segments: tuple[str, Array] | None, initial: Array | None) -> tuple[str, Array] | None:
        """The same segments for the other direction: where one ended, one starts."""
        if segments is None or segments[0] != "reset":
            return segments
        reset = segments[1] if initial is None else self.xp.broadcast_to(segments[1], self.shape)
        if self.spans(reset) and self.shape[self.axis]:
            reset = self._joined(self.cut(reset, 1, None), self.xp.zeros_like(self.cut(reset, None, 1)))
        return "reset", reset

    def _joined(self, *parts: Array) -> Array:
        return self.xp.concat(parts[::-1] if self.flags.reverse else parts, self.axis)

    def enters(self, x: Array, step: Step, *, from_carry: bool) -> Array:
        """What comes in where it reaches the first element, else 0. Initial states go into any segment but a reset."""
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
        return x.conjugate() if isinstance(x, numbers.Complex) else self.xp.conj(x)
