"""The derivatives of sharded scans: as in `derivatives`, but the next shard's first element follows the last one."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Protocol

from cuscan import derivatives
from cuscan.distributed.pieces import Array, Arrays
from cuscan.distributed.sharded import Ranks, cut, place_of
from cuscan.dtypes import DType
from cuscan.linearised import Call, LinearisedScan
from cuscan.request.call import find_dtype


class ShardedNamespace(derivatives.Namespace, Protocol):
    """A namespace whose scans and positions are those of the whole."""

    ranks: Ranks

    def border(self, edge: Array, axis: int, length: int, *, after: bool, fill: Any) -> Array:
        """Return `nearest`, differentiably; `fill` if there is none."""


class ShardedScan(LinearisedScan):
    """A call on a shard, after `sharded.prepare`."""

    is_whole = False

    def later(self, x: Array, like: Array | None = None) -> Array:
        return self._next(x, 1)

    def flipped(self, segments: tuple[str, Array] | None, initial: Array | None) -> tuple[str, Array] | None:
        if segments is None or segments[0] != "reset":
            return segments
        reset = segments[1] if initial is None else self.xp.broadcast_to(segments[1], self.shape)
        return "reset", self._next(reset, False)

    def _next(self, x: Array, fill: Any) -> Array:
        """Return x[t + 1] of the whole at t, and `fill` after the last element of the whole."""
        if isinstance(x, numbers.Number) or len(x.shape) < -self.axis:
            return x
        reverse, axis, length = self.flags.reverse, self.axis + len(x.shape), x.shape[self.axis]
        border = self.xp.border(self.cut(x, None, 1), axis, length, after=not reverse, fill=fill)  # type: ignore[attr-defined]
        inner = self.cut(x, 1, None)
        whole = self.xp.concat([border, inner] if reverse else [inner, border], axis)
        return cut(whole, axis, None, length)  # empty if there are no elements


def pullback(
    call: Call,
    arrays: Arrays,
    cotangents: Sequence[Array | None],
    needs: Sequence[bool],
    dtype: DType,
    xp: ShardedNamespace,
    *,
    has_total: bool,
) -> tuple[Array | None, ...]:
    """See `derivatives.pullback`. `has_total`: the last rank in scan order has a result after those of its elements."""
    if has_total and not call.flags.include_initial:  # all ranks must take the same branch
        cotangents = (_with_zero(cotangents[0], call, arrays, xp), *cotangents[1:])
        call = call._replace(flags=call.flags._replace(include_initial=True))
    found = derivatives.pullback(call, arrays, cotangents, needs, dtype, xp, ShardedScan)
    place = call.roles.index("initial") if "initial" in call.roles else None
    if place is None or not needs[place]:
        return found
    return (*found[:place], _of_initial(found[place], call, arrays, cotangents[0], xp), *found[place + 1 :])


def _with_zero(cotangent: Array | None, call: Call, arrays: Arrays, xp: ShardedNamespace) -> Array | None:
    """Return the cotangent of results, extended by a zero at the end in scan order."""
    if cotangent is None:
        return None
    axis = call.flags.axis % len(cotangent.shape)
    shape = (*cotangent.shape[:axis], 1, *cotangent.shape[axis + 1 :])
    zero = xp.broadcast_to(xp.zeros_like(cotangent.sum()), shape)
    return xp.concat([zero, cotangent] if call.flags.reverse else [cotangent, zero], axis)


def _of_initial(
    gradient: Array | None, call: Call, arrays: Arrays, cotangent: Array | None, xp: ShardedNamespace
) -> Array:
    """Return the cotangent of `initial`, for the first rank; it comes from the first shard with elements."""
    reverse, axis = call.flags.reverse, call.flags.axis
    initial, length = arrays[call.roles.index("initial")], arrays[call.roles.index("b")].shape[axis]
    own = gradient
    if own is None:  # no elements; add empty sums of the usual inputs, so that all ranks have similar graphs
        nothing = [x.reshape(-1)[:0].sum() for x in (arrays[0], cotangent) if x is not None and hasattr(x, "reshape")]
        own = sum((xp.cast(x, find_dtype(initial.dtype)) for x in nothing), xp.zeros_like(initial))
    first = place_of(call, xp.ranks) == 0
    # The first rank acts as one with elements: the derivative of its border returns to where the border came from.
    border = xp.border(xp.expand_dims(own, 0), 0, length or int(first), after=not reverse, fill=0)[0]
    # The border is in the graphs of all ranks, since all take part in its derivative.
    takes_border = xp.zeros_like(own) == (0 if first and not length else 1)
    return xp.where(takes_border, border, own if first else xp.zeros_like(own))
