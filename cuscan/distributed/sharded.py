"""Scans along an axis that is sharded over ranks: local totals, one exchange, local scans behind what precedes.

The code is the same for every framework and transport. Nothing here waits for a device: the lengths of the other
shards, which may be 0, are numbers on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cuscan.distributed.pieces import Array, Arrays, Namespace, Piece, Total, fold, positioned, run
from cuscan.dtypes import DTYPES
from cuscan.linearised import Call
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request.call import CARRY, SEGMENTS, find_operator, one_or_all
from cuscan.request.checks import check_offsets


class Ranks(Protocol):
    """The ranks that hold the shards of a sequence, in the order of the axis."""

    rank: int
    size: int

    def gather(self, arrays: Sequence[Array]) -> list[Array]:
        """Return each array from all ranks, stacked along a new first axis. The work is queued; nothing waits."""


def scan(call: Call, arrays: Arrays, ranks: Ranks, xp: Namespace, outs: Arrays | None = None) -> Arrays:
    """Return the results of this rank's shard for a call from `prepare`, then the fields of a carry, except a key."""
    returns_carry, reverse = call.flags.return_carry, call.flags.reverse
    call = call._replace(flags=call.flags._replace(return_carry=False))
    piece = Piece(call, arrays, xp, outs)
    if ranks.size == 1 and not returns_carry:
        return run(piece.call, arrays, outs)
    place = place_of(call, ranks)
    own = piece.total(first=place == 0)
    beside = [] if own.restarts is None else [own.restarts]
    lengths = [length_of(piece)] if piece.op.indexed else []
    gathered = ranks.gather([*own.fields, *beside, *lengths])
    fields, count = tuple(gathered[: len(own.fields)]), len(own.fields)
    start: Array = 0
    counted = piece.counted
    if lengths:
        begins = xp.sums_before(gathered[-1][:, 0])
        starts, start = begins.reshape(-1, *(1,) * len(piece.lines)), begins[ranks.rank]
        if not reverse:  # the first rank's positions include the carry's count already
            starts, start = xp.concat([starts[:1] + 0 * counted, starts[1:] + counted], 0), start + counted
        fields = positioned(fields, piece.op, starts, xp)
    totals = Total(fields, gathered[count] if beside else None)
    earlier = slice(ranks.rank + 1, None) if reverse else slice(ranks.rank)
    before = None
    if place:
        some = Total(tuple(f[earlier] for f in fields), None if totals.restarts is None else totals.restarts[earlier])
        before = fold(piece.op, some, reverse=reverse, xp=xp)
    results = piece.scan(before, start)
    if not returns_carry:
        return results
    carry = fold(piece.op, totals, reverse=reverse, xp=xp)
    if lengths:
        carry = (*carry, xp.full(piece.lines, 0, DTYPES["int64"], piece.main) + gathered[-1].sum() + counted)
    return (*results, *carry)


def returns_key(call: Call) -> bool:
    """Return whether the carry that a call returns has a key."""
    return call.flags.return_carry and "keys" in call.roles


def with_carry(results: Arrays, call: Call, key: Array | None) -> Arrays:
    """Return the results of `scan` with the carry in the form of the public functions, at the end."""
    if not call.flags.return_carry:
        return results
    count = len(find_operator(call.flags.op).results(DTYPES["float32"]))
    carry = results[count:] if key is None else (*results[count:], key)
    return (*results[:count], one_or_all(carry))


def place_of(call: Call, ranks: Ranks) -> int:
    """Return the position of this rank's shard in scan order."""
    return ranks.size - 1 - ranks.rank if call.flags.reverse else ranks.rank


# ---- before a scan: make everything local that depends on other shards -----------------------------------------------


def prepare(call: Call, arrays: Arrays, ranks: Ranks, xp: Namespace, outs: Arrays | None = None) -> tuple[Call, Arrays]:
    """Return the call with segments as `reset`, the additional element on one rank, and arrays that have all axes."""
    call = _lead(call, ranks)
    piece = Piece(call, arrays, xp, outs)
    given = dict(zip(call.roles, arrays, strict=True))
    for role in ("mask", "reset", "keys"):
        if role in given:
            given[role] = spread(given[role], piece)
    lies_along = len(getattr(given.get("a"), "shape", ())) > len(piece.lines) - piece.axis
    if find_operator(call.flags.op) is LINEAR_RECURRENCE and lies_along:
        given["a"] = spread(given["a"], piece)
    if "keys" in given:
        given["keys"] = _changes(given["keys"], piece, ranks, _pop_key(given))
    elif "offsets" in given:
        given["offsets"] = _boundaries(given["offsets"], piece, ranks)
    roles = tuple("reset" if role in SEGMENTS else role for role in given)  # kernels need them in this order
    return call._replace(roles=roles), tuple(given.values())


def _pop_key(given: dict[str, Array]) -> Array | None:
    """Remove and return the key of a carry, which is its last field; None without a carry."""
    carry = [role for role in given if role in CARRY]
    return given.pop(carry[-1]) if carry else None


def last_key(call: Call, arrays: Arrays, ranks: Ranks, xp: Namespace) -> Array:
    """Return the key of the last element of all shards in scan order, for each line; without elements, the carry's."""
    piece, given = Piece(call, arrays, xp), dict(zip(call.roles, arrays, strict=True))
    keys, axis, reverse = (
        xp.broadcast_to(spread(given["keys"], piece), piece.request.shape),
        piece.axis,
        call.flags.reverse,
    )
    edge = cut(keys, axis, None, 1) if reverse else cut(keys, axis, -1, None)
    if not piece.length:
        edge = xp.zeros((*edge.shape[:axis], 1, *edge.shape[axis + 1 :]), edge)
    stacked, lengths = ranks.gather([edge, length_of(piece)])
    chosen = lengths[:, 0] > 0
    key = xp.pick(stacked, chosen, last=not reverse).reshape(piece.lines)
    before = _pop_key(given)
    return key if before is None else xp.where(xp.any(chosen, 0), key, before)


def _lead(call: Call, ranks: Ranks) -> Call:
    """Return the flags for this rank; one rank has the additional element of `include_initial`.

    That is the first rank in scan order. With `exclusive` and segments, the additional element is the total of the
    segment that is open at the end, and the rank is the last one.
    """
    flags = call.flags
    if not flags.include_initial:
        return call
    behind = flags.exclusive and any(role in SEGMENTS for role in call.roles)
    own = place_of(call, ranks) == (ranks.size - 1 if behind else 0)
    return call._replace(flags=flags._replace(include_initial=own, exclusive=behind))


def spread(array: Array, piece: Piece) -> Array:
    """Return an array beside the values with all of their axes, and the full length of the scanned one."""
    shape, axis, rank = tuple(array.shape), piece.axis, len(piece.lines) + 1
    if len(shape) == 1 and axis != rank - 1 and shape[0] == piece.length:
        array = array.reshape(piece.length, *(1,) * (rank - 1 - axis))
    array = array.reshape(*(1,) * (rank - len(array.shape)), *array.shape)
    if array.shape[axis] == piece.length:
        return array
    return piece.xp.broadcast_to(array, (*array.shape[:axis], piece.length, *array.shape[axis + 1 :]))


def cut(x: Array, axis: int, start: int | None, stop: int | None) -> Array:
    """Return x[start:stop] along an axis."""
    return x[(*(slice(None),) * axis, slice(start, stop))]


def length_of(piece: Piece) -> Array:
    """Return the length of a shard, as an array that can be exchanged."""
    return piece.xp.full((1,), piece.length, DTYPES["int64"], piece.main)


def nearest(edge: Array, axis: int, length: Array, ranks: Ranks, xp: Namespace, *, after: bool) -> tuple[Array, Array]:
    """Return the edge of the next (or previous) shard with elements, and whether there is one.

    Edges have size 1 along the axis, or 0 in shards without elements; `length` is an array of one number.
    """
    if not edge.shape[axis]:
        edge = xp.zeros((*edge.shape[:axis], 1, *edge.shape[axis:][1:]), edge)
    stacked, lengths = ranks.gather([edge, length])
    chosen = lengths[:, 0] > 0
    some = slice(ranks.rank + 1, None) if after else slice(ranks.rank)
    exists = xp.any(chosen[some], 0)
    if ranks.rank == (ranks.size - 1 if after else 0):  # there is none, so any will do
        some = slice(None)
    return xp.pick(stacked[some], chosen[some], last=not after), exists


def _changes(keys: Array, piece: Piece, ranks: Ranks, key: Array | None) -> Array:
    """Return where keys differ from the preceding ones, in scan order; `key` precedes all of them."""
    axis, reverse, xp = piece.axis, piece.call.flags.reverse, piece.xp
    if key is not None:
        keys, key = xp.broadcast_to(keys, piece.request.shape), key.reshape(*piece.lines[:axis], 1, *piece.lines[axis:])
    first, last = cut(keys, axis, None, 1), cut(keys, axis, -1, None)
    if reverse:
        first, last = last, first
    before, exists = nearest(last, axis, length_of(piece), ranks, xp, after=reverse)
    if not piece.length:
        return keys != keys
    inner, border = cut(keys, axis, 1, None) != cut(keys, axis, None, -1), first != before
    border = exists & border if key is None else xp.where(exists, border, first != key)
    return xp.concat([inner, border] if reverse else [border, inner], axis)


def _boundaries(offsets: Array, piece: Piece, ranks: Ranks) -> Array:
    """Return where segments start in this shard, from offsets into the whole.

    The first segment in scan order needs no start. Behind a carry it continues the carry's segment, unless it is empty.
    """
    xp, reverse, carried = piece.xp, piece.call.flags.reverse, bool(piece.request.carry_in)
    (lengths,) = ranks.gather([length_of(piece)])
    starts, whole = xp.sums_before(lengths[:, 0]), lengths.sum()
    if piece.call.flags.validate or xp.is_on_host(offsets):
        check_offsets(offsets, int(whole))
    if carried:
        offsets = offsets[1:-1]
    places = offsets - starts[ranks.rank] - int(reverse)
    inside = (offsets > -int(carried)) & (offsets < whole + int(carried)) & (places >= 0) & (places < piece.length)
    flags = xp.flags_at(xp.where(inside, places, piece.length), piece.length)
    return flags.reshape(*(1,) * piece.axis, piece.length, *(1,) * (len(piece.lines) - piece.axis))
