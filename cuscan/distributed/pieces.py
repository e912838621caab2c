"""A call on one piece of an axis: its total, its results behind a carry, and the fold of totals of pieces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from cuscan import backends
from cuscan.custom import Operator
from cuscan.dtypes import DTYPES, DType
from cuscan.interop import adopt
from cuscan.interop.view import ArrayView, number_like
from cuscan.linearised import Call
from cuscan.operators import LINEAR_RECURRENCE, Monoid
from cuscan.request import make_request
from cuscan.request.call import CARRY, Flags, Operands, find_dtype
from cuscan.states import SCALAR

Array = Any
Arrays = tuple[Array, ...]


class Namespace(Protocol):
    """What pieces need of a framework besides scans: functions of the array API standard, and these."""

    where: Callable[..., Array]
    concat: Callable[..., Array]
    broadcast_to: Callable[..., Array]

    def any(self, x: Array, axis: int) -> Array:
        """Return whether any element along an axis is True."""

    def full(self, shape: tuple[int, ...], number: Any, dtype: DType, like: Array) -> Array:
        """Return a new array on the device of `like`."""

    def cast(self, x: Array, dtype: DType) -> Array:
        """Return x in another dtype, x itself if it has that one."""

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        """Return a new array of zeros, with the dtype and on the device of `like`."""

    def flags_at(self, places: Array, length: int) -> Array:
        """Return `length` bools, True at these places; places equal to `length` are ignored."""

    def pick(self, x: Array, chosen: Array, *, last: bool) -> Array:
        """Return x[i] for the first or last i that is chosen; any x[i] if none is."""

    def sums_before(self, x: Array) -> Array:
        """Return the exclusive sums of a one-dimensional array."""

    def is_on_host(self, x: Array) -> bool:
        """Return whether the values of x can be read without waiting for a device."""


class Total(NamedTuple):
    """The total of a piece: the fields of its carry, and the lines with a segment start (None without segments)."""

    fields: Arrays
    restarts: Array | None


def run(call: Call, arrays: Arrays, outs: Arrays | None = None) -> Arrays:
    """Return the results of a call on plain arrays; see `backends.run`."""
    return backends.run(call.flags, operands_of(call, arrays, outs), call.initial)


def operands_of(call: Call, arrays: Arrays, outs: Arrays | None = None) -> Operands:
    """Return the arrays of a call as views; a number takes library, device and dtype from the array after it."""
    views: list[ArrayView] = []
    for role, array in zip(call.roles[::-1], arrays[::-1], strict=True):
        if hasattr(array, "shape"):
            views.append(adopt(np.asarray(array) if isinstance(array, np.generic) else array, role))
        else:
            dtype = views[-1].dtype if call.flags.dtype is None else find_dtype(call.flags.dtype)
            views.append(number_like(array, DTYPES[dtype.accumulator], views[-1].library, views[-1].device))
    adopted = None if outs is None else tuple(adopt(out, "out") for out in outs)
    return Operands(tuple(views[::-1]), call.roles, adopted)


class Piece:
    """A checked call on one piece of an axis. Segments must be given by `reset`, with all axes.

    `start` is the position of the piece's first element in the whole, a number or an array without dimensions;
    operators with positions need it.
    """

    def __init__(self, call: Call, arrays: Arrays, xp: Namespace, outs: Arrays | None = None) -> None:
        operands = operands_of(call, arrays, outs)
        self.request = make_request(call.flags, operands, has_initial=call.initial is not None)
        self.op, self.axis = self.request.op, self.request.axis
        self.length = self.request.shape[self.axis]
        self.lines = self.request.shape[: self.axis] + self.request.shape[self.axis + 1 :]
        dtype = None if self.op.dtypes else self.request.result.dtype.name  # `out` may have determined it
        self.call = call._replace(flags=call.flags._replace(dtype=dtype))
        self.arrays, self.outs, self.xp = arrays, outs, xp
        self.main = operands.values[-1].owner

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the fields of its total."""
        states = self.op.states.dtype(self.request.carry)
        return tuple(DTYPES[states[name].name] for name in states.names or ()) or (DTYPES[states.name],)

    @property
    def reset(self) -> Array | None:
        """The flags where segments start, or None."""
        return self.arrays[self.call.roles.index("reset")] if "reset" in self.call.roles else None

    @property
    def counted(self) -> Array:
        """The number of elements before the carry's end, which positions start from."""
        role = CARRY[3]  # follows value and position
        return self.arrays[self.call.roles.index(role)] if self.op.indexed and role in self.call.roles else 0

    def total(self, *, first: bool) -> Total:
        """Return the total, with positions in the piece. The first piece in scan order has `initial` or a carry."""
        flags = self.call.flags._replace(
            exclusive=False, include_initial=False, return_last=False, return_carry=True, only_carry=True
        )
        nothing = self._nothing() if self.request.segments_have_initial else ()
        fields = run(*(self._with(flags, None) if first else self._with(flags, nothing)))[-1]
        fields = fields[: len(self.dtypes)] if isinstance(fields, tuple) else (fields,)
        return Total(fields, None if self.reset is None else self.xp.any(self.reset, self.axis))

    def scan(self, before: Arrays | None, start: Array = 0) -> Arrays:
        """Return the results behind the fields of a carry, or with None behind the user's `initial` or carry."""
        backward = self.op.indexed and self.call.flags.reverse
        if self.op.indexed and before is not None:
            value, index = before
            if backward:  # count from this piece
                index = self.xp.where(index < 0, index, index - (start + self.length))
            counted = self.xp.full(self.lines, 0, DTYPES["int64"], self.main) + start
            before = value, index, counted
        results = run(*self._with(self.call.flags, before), self.outs)
        if backward:
            index = results[1]
            index[...] = self.xp.where(index < 0, index, index + start)
        return results

    def _with(self, flags: Flags, before: Arrays | None) -> tuple[Call, Arrays]:
        """Return the call behind a carry, which has no fields if nothing precedes; None keeps the user's arguments."""
        if before is None:
            return self.call._replace(flags=flags), self.arrays
        initial = self.call.initial if self.request.segments_have_initial else None
        names = CARRY[1 : 1 + len(before)] if len(before) > 1 else CARRY[: len(before)]
        given = {
            role: array
            for role, array in zip(self.call.roles, self.arrays, strict=True)
            if role != "initial" and role not in CARRY
        }
        given.update(zip(names, before, strict=True))
        return Call(flags, tuple(given), initial), tuple(given.values())

    def _nothing(self) -> Arrays:
        """Return the carry after no elements, in place of `initial`."""
        numbers = (*self.op.identity(self.request.result.dtype), *(0,) * self.op.indexed)
        dtypes = (*self.dtypes, *(DTYPES["int64"],) * self.op.indexed)
        return tuple(
            self.xp.full(self.lines, number, dtype, self.main) for number, dtype in zip(numbers, dtypes, strict=True)
        )


def positioned(fields: Arrays, op: Monoid, starts: Array, xp: Namespace) -> Arrays:
    """Return the fields of totals with positions in the whole; `starts` broadcast to them."""
    if not op.indexed:
        return fields
    value, index = fields
    return value, xp.where(index < 0, index, index + starts)


def fold(op: Monoid, totals: Total, *, reverse: bool, xp: Namespace) -> Arrays:
    """Return the fields of the total of at least one piece; totals are stacked along a first axis in axis order."""
    fields, restarts = totals
    joined, dtype = joining(op, DTYPES[_name(fields[0])]), None
    roles = joined.inputs if joined is LINEAR_RECURRENCE else tuple(f"x[{i}]" for i in range(len(fields)))
    if restarts is not None:
        roles, fields = (*roles, "reset"), (*fields, xp.broadcast_to(restarts, fields[0].shape))
    if not joined.dtypes:
        dtype = _name(totals.fields[0])
    flags = Flags(joined, 0, reverse, dtype=dtype, return_carry=True, only_carry=True)
    result = run(Call(flags, roles), fields)[-1]
    states = result if isinstance(result, tuple) else (result,)
    # The totals of halves are float32, and a scan of these has a carry of float64.
    return tuple(xp.cast(state, DTYPES[_name(field)]) for state, field in zip(states, totals.fields, strict=True))


def _name(array: Array) -> str:
    return adopt(np.asarray(array) if isinstance(array, np.generic) else array).dtype.name


# ---- operators on elements that are states of another operator -------------------------------------------------------

_LOG_SUM = """
    bool keep = earlier.top >= later.top || earlier.top != earlier.top;
    State high = keep ? earlier : later, low = keep ? later : earlier;
    {T} part = high.top == low.top ? {T}(1) : exp(low.top - high.top);
    return State{{high.top, high.sum + low.sum * part}};
"""
_EXTREMUM = """
    bool earlier_nan = earlier.value != earlier.value, later_nan = later.value != later.value;
    bool beyond = {beyond}, equal = earlier_nan ? later_nan : earlier.value == later.value;
    bool tie = later.index >= 0 && ({latest} || earlier.index < 0);
    bool wins = (!earlier_nan && (beyond || later_nan)) || (equal && tie);
    return State{{wins ? later.value : earlier.value, wins ? later.index : earlier.index}};
"""


@functools.cache
def joining(op: Monoid, number: DType) -> Monoid:
    """Return the operator whose elements are the states of `op` over a number type."""
    if op.states is SCALAR or op is LINEAR_RECURRENCE or op.dtypes:
        return op
    if op.indexed:
        beyond = "later.value > earlier.value" if op.name.startswith("max") else "later.value < earlier.value"
        text = _EXTREMUM.format(beyond=beyond, latest=str("last" in op.name).lower())
    else:
        text = _LOG_SUM.format(T=number.name)
    states = op.states.dtype(number.name)
    names = states.names or ()

    def combine(earlier: Array, later: Array) -> Arrays:
        assert op.combine is not None
        joined = op.combine(earlier, later)
        return tuple(joined[name] for name in names)

    return Operator(
        f"joined_{op.name.replace(' ', '_')}",
        text,
        op.identity(number),
        state={name: states[name].name for name in names},
        numpy=combine,
    )
