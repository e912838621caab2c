"""A scan as its derivative sees it: the decay and the weight of each step of a linear recurrence; see `derivatives`."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from cuscan.call import BESIDE, SEGMENTS, Flags, find_dtype, find_operator
from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS, Monoid

Array = Any


class Call(NamedTuple):
    """A call without its arrays: its flags, the roles of its arrays (see `call.Operands`), a number as `initial`."""

    flags: Flags
    roles: tuple[str, ...]
    initial: Any = None


class Namespace(Protocol):
    """What derivatives ask of a framework: functions of the array API standard, and these. All are differentiable."""

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
    """

    decay: Array | None
    weights: tuple[Array | None, ...]
    chosen: Array | None = None
    segments: tuple[str, Array] | None = None


def check_differentiable(op: object) -> None:
    """Raise `ScanTypeError` for an operator of the user's that has no derivative."""
    operator = find_operator(op)
    if operator.source and operator.vjp is None:
        how = "its state has several fields" if operator.dtypes else "pass vjp= to its Operator"
        raise ScanTypeError(f"op={operator.name!r} has no derivative ({how}); detach the arrays that require grad")


class LinearisedScan:
    """A call with its arrays, and the scans that its derivative needs."""

    def __init__(self, call: Call, arrays: tuple[Array, ...], dtype: DType, xp: Namespace) -> None:
        self.call, self.arrays, self.dtype, self.xp = call, arrays, dtype, xp
        self.op = find_operator(call.flags.op)
        self.given = dict(zip(call.roles, arrays, strict=True))
        self.values = tuple(array for role, array in self.given.items() if role not in BESIDE)
        self.main = self.values[-1]
        self.shape = tuple(self.main.shape)
        axis = call.flags.axis
        self.axis = axis - len(self.shape) if axis >= 0 else axis
        self.segments = next(((role, self.given[role]) for role in SEGMENTS if role in self.given), None)
        # An exclusive scan with the total behind it is an inclusive one with the identity before it.
        exclusive = call.flags.exclusive and not (call.flags.include_initial and self.segments is None)
        self.flags = call.flags._replace(axis=self.axis, exclusive=exclusive, validate=False)
        self.number = DTYPES[dtype.accumulator]  # what intermediate results are computed in

    def step(self, needs: Sequence[bool]) -> Step:
        check_differentiable(self.op)
        if self.op.indexed or self.op.name in ("max", "min"):
            return _extremum(self)
        if self.op.source:
            return _user_operator(self)
        return _STEPS[self.op.name](self, needs)

    # ---- scans like this one

    def again(self, op: Monoid | None = None, *, exclusive: bool, dtype: DType | None = None) -> tuple[Array, ...]:
        """The results of this call with another operator, before each element or through it."""
        name = self.number if dtype is None else dtype
        flags = self.flags._replace(
            op=op or self.op, exclusive=exclusive, include_initial=False, return_last=False, dtype=name.name
        )
        return self.xp.scan(Call(flags, self.call.roles, self.call.initial), self.arrays)

    def linear(
        self, flags: Flags, decay: Array | None, moved: Array, segments: tuple[str, Array] | None, initial: Array | None
    ) -> tuple[Array, ...]:
        """A sum where nothing decays, else a linear recurrence; in `segments`, from `initial`."""
        given = {"x": moved}
        if not (decay is None and initial is None):
            given = {"a": 1.0 if decay is None else decay, "b": moved}
        flags = flags._replace(op=LINEAR_RECURRENCE if "a" in given else OPERATORS["add"], skipna=False)
        if segments is not None:
            given[segments[0]] = segments[1]
        if initial is not None:
            given["initial"] = initial
        return self.xp.scan(Call(flags, tuple(given)), tuple(given.values()))

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
        return self.xp.where(self.chosen, self.main, self.xp.full_like(self.main, identity))

    def gradient_dtype(self, step: Step) -> DType:
        """The type in which cotangents go backward: that of the elements, if nothing is multiplied afterwards."""
        if self.op is LINEAR_RECURRENCE:
            return self.dtype
        own = find_dtype(self.main.dtype)
        simple = all(weight is None for weight in step.weights)
        return own if simple and own.kind is self.dtype.kind else self.number

    # ---- places along the axis, in scan order

    def cut(self, x: Array, start: int | None, stop: int | None) -> Array:
        """x[start:stop] in scan order."""
        if self.flags.reverse:
            start, stop = None if stop is None else -stop, None if start is None else -start
        return x[(..., slice(start, stop), *(slice(None),) * (-self.axis - 1))]

    def first(self, x: Array) -> Array:
        """What stands first, without the axis; x itself if it is the same everywhere."""
        if isinstance(x, numbers.Number) or len(x.shape) < -self.axis:
            return x
        return x[(..., -1 if self.flags.reverse else 0, *(slice(None),) * (-self.axis - 1))]

    def later(self, x: Array, fill: Any = 1) -> Array:
        """x[t + 1] at t, `fill` behind the last; x itself where it does not vary."""
        if isinstance(x, numbers.Number) or len(x.shape) < -self.axis or x.shape[self.axis] != self.shape[self.axis]:
            return x
        parts = [self.cut(x, 1, None), self.xp.full_like(self.cut(x, None, 1), fill)]
        return self.xp.concat(parts[::-1] if self.flags.reverse else parts, self.axis)

    def flipped(self, segments: tuple[str, Array] | None, initial: Array | None) -> tuple[str, Array] | None:
        """The same segments for the other direction: where one ended, one starts."""
        if segments is None or segments[0] != "reset":
            return segments
        reset = segments[1] if initial is None else self.xp.broadcast_to(segments[1], self.shape)
        return "reset", self.later(reset, False)

    def conj(self, x: Array) -> Array:
        return x.conjugate() if isinstance(x, numbers.Complex) else self.xp.conj(x)


# ---- the operators ---------------------------------------------------------------------------------------------------


def _sum(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    return Step(None, (None,), scan.chosen, scan.segments)


def _product(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    return Step(scan.elements, scan.again(exclusive=True), scan.chosen, scan.segments)


def _log_sum(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    """Exponentials of differences from the result: at most 1, and 0 for what is -inf."""
    xp = scan.xp
    (before,), (through,) = scan.again(exclusive=True), scan.again(exclusive=False)
    x = xp.cast(scan.elements, scan.number)

    def share(part: Array) -> Array:
        return xp.exp(xp.where(part == through, xp.zeros_like(through), part - through))

    weight = xp.where(x == -float("inf"), xp.zeros_like(x), share(x))
    return Step(share(before), (weight,), scan.chosen, scan.segments)


def _extremum(scan: LinearisedScan) -> Step:
    """The element that an index points to hands its tangent on for as long as the index stays."""
    op = scan.op if scan.op.indexed else INDEXED[scan.op.name, "first"]
    index = scan.again(op, exclusive=False, dtype=scan.dtype)[1]
    new = index == scan.xp.positions(index, scan.axis)
    if scan.flags.exclusive:  # what is shown first in a segment is of no element
        return Step(scan.xp.cast(~new, scan.number), (None,), new, scan.segments)
    return Step(None, (None,), new, ("keys", index))


def _recurrence(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    before = scan.again(exclusive=True, dtype=scan.dtype)[0] if needs[0] else None
    return Step(scan.given["a"], (before, None), None, scan.segments)


def _user_operator(scan: LinearisedScan) -> Step:
    assert scan.op.vjp is not None
    (before,) = scan.again(exclusive=True)
    x = scan.xp.cast(scan.elements, scan.number)
    decay, weight = scan.op.vjp(before, x, scan.xp.ones_like(x))
    return Step(decay, (weight,), scan.chosen, scan.segments)


_STEPS: dict[str, Callable[[LinearisedScan, Sequence[bool]], Step]] = {
    "add": _sum,
    "mul": _product,
    "logaddexp": _log_sum,
    LINEAR_RECURRENCE.name: _recurrence,
}
