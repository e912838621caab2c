"""Batch calls for vmap, for every framework: a batch of calls is one call with an additional leading axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cuscan.linearised import Call
from cuscan.request.call import BESIDE, CARRY
from cuscan.request.checks import lies_along

Array = Any


class Batching(Protocol):
    """What batches need of a framework: functions of the array API standard, and one more."""

    def full_like(self, x: Array, fill: Any) -> Array: ...
    def concat(self, arrays: Sequence[Array], axis: int) -> Array: ...
    def moveaxis(self, x: Array, source: int, destination: int) -> Array: ...
    def broadcast_to(self, x: Array, shape: tuple[int, ...]) -> Array: ...
    def reshape(self, x: Array, shape: tuple[int, ...]) -> Array: ...

    def segment_numbers(self, offsets: Array, length: int) -> Array:
        """Return the number of the segment at each position, from 1 on, for a batch of offsets: (size, length)."""


def batched(
    call: Call, arrays: Sequence[Array], dims: Sequence[int | None], size: int, xp: Batching
) -> tuple[Call, tuple[Array, ...]]:
    """Return the call over a batch of calls; `dims` gives each array's batch axis, or None."""
    made = [a if dim is None else xp.moveaxis(a, dim, 0) for a, dim in zip(arrays, dims, strict=True)]
    shapes = [tuple(getattr(a, "shape", ()))[dim is not None :] for a, dim in zip(made, dims, strict=True)]
    values = [i for i, role in enumerate(call.roles) if role not in BESIDE]
    main = max(values, key=lambda i: (len(shapes[i]), i))  # the last of those with the most dimensions
    rank, roles = len(shapes[main]), list(call.roles)
    axis = call.flags.axis - rank if call.flags.axis >= 0 else call.flags.axis
    length = max(shapes[i][axis] for i in values if len(shapes[i]) >= -axis)
    name = call.roles[main].partition("[")[0]
    whole = (*shapes[main][:axis], length, *shapes[main][rank + axis + 1 :])
    for i, (role, dim) in enumerate(zip(call.roles, dims, strict=True)):
        shape = shapes[i]
        if dim is None:
            if i == main or role in CARRY:
                made[i] = xp.broadcast_to(made[i], (size, *shape))
            continue
        if role == "offsets":
            made[i] = _starts(call, made[i], xp.segment_numbers(made[i], length), xp)
            roles[i], shape = "reset", (length,)
        along = role == "offsets" or (role == "keys" and len(shape) == 1)
        along = along or (role in ("mask", "reset") and lies_along(shape, whole, axis, role, name))
        behind = -axis - 1 if along else 0
        before = rank - (role == "initial" or role in CARRY) - len(shape) - behind
        made[i] = xp.reshape(made[i], (size, *(1,) * before, *shape, *(1,) * behind))
    return call._replace(flags=call.flags._replace(axis=axis), roles=tuple(roles)), tuple(made)


def _starts(call: Call, offsets: Array, numbers: Array, xp: Batching) -> Array:
    """Return where segments start, in scan order, from the numbers of segments.

    The first element is a start only behind empty segments: a carry enters the first segment, and an empty one takes
    it.
    """
    reverse = call.flags.reverse
    if any(role in CARRY for role in call.roles):
        before = xp.full_like(numbers[:, :1], offsets.shape[1] - 1 if reverse else 1)
    else:
        before = numbers[:, -1:] if reverse else numbers[:, :1]
    joined = xp.concat((numbers, before) if reverse else (before, numbers), 1)
    return joined[:, 1:] != joined[:, :-1]
