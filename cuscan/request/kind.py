"""Call kinds: everything in a call except sizes, strides and addresses, computed once per kind."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from cuscan.dtypes import DTYPES, INEXACT, DType
from cuscan.kept import Table, keep
from cuscan.operators import Monoid
from cuscan.request.call import CARRY, Flags, Operands, find_operator
from cuscan.request.carry import CarryField, carry_dtype, carry_fields
from cuscan.request.checks import check_count, check_real, results_of


@dataclass(frozen=True, eq=False)
class CallKind:
    """A request without sizes, strides and addresses; one object per kind, so identity is equality.

    Attributes:
        segments: how segments are given: "reset", "keys" or "offsets".
        has_initial: an initial value or a carry precedes the first element of a line.
        segments_have_initial: the initial value precedes each segment.
        values, results: dtypes.
        last: dtype of the last states, if they are requested.
        carry: name of the number type of the carry along the axis, and of `initial`.
        carry_fields: fields of the incoming or outgoing carry.
        only_carry: no results are stored; their specs say what they would be.
    """

    op: Monoid
    reverse: bool
    exclusive: bool
    include_initial: bool
    skip_nan: bool
    segments: str | None
    has_initial: bool
    segments_have_initial: bool
    values: tuple[DType, ...]
    results: tuple[DType, ...]
    last: DType | None
    carry: str
    carry_fields: tuple[CarryField, ...]
    returns_carry: bool
    only_carry: bool

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Item sizes in bytes of the values, then of the results."""
        return tuple([dtype.itemsize for dtype in (*self.values, *self.results)])


_kinds: Table[Any, CallKind] = Table()


def kind_of(flags: Flags, operands: Operands, has_initial: bool) -> CallKind:
    """Return the kind of a call, computed once for all calls that differ only in sizes, strides and addresses."""
    views, outs = operands.views, operands.outs
    library = views[0].kind.library
    key = (
        flags,
        operands.roles,
        has_initial,
        library,
        library.index_dtype(),  # JAX's may change
        outs is None,
        *[view.kind.dtype for view in (views if outs is None else views + outs)],
    )
    try:
        return _kinds.get(key) or keep(_kinds, key, _make_kind(flags, operands, has_initial))
    except TypeError:  # an unhashable argument
        return _make_kind(flags, operands, has_initial)


def _make_kind(flags: Flags, operands: Operands, has_initial: bool) -> CallKind:
    op, values = find_operator(flags.op), operands.values
    check_count(op, values)
    op, dtypes = results_of(op, values, flags.dtype, operands.outs)
    result, segments, initial = dtypes[0], operands.segments, operands.get("initial")
    if initial is not None:
        check_real("initial", initial, result)
    keys = operands.get("keys")
    return CallKind(
        op=op,
        reverse=flags.reverse,
        exclusive=flags.exclusive,
        include_initial=flags.include_initial,
        skip_nan=flags.skipna and any(v.dtype.kind in INEXACT for v in values),
        segments=segments,
        has_initial=has_initial or initial is not None or CARRY[0] in operands.roles or CARRY[1] in operands.roles,
        segments_have_initial=has_initial and segments is not None and op.segments_have_initial,
        values=tuple(view.dtype for view in values),
        results=dtypes,
        last=DTYPES[result.accumulator] if flags.return_last else None,
        carry=carry_dtype(op, result),
        carry_fields=carry_fields(op, result, None if keys is None else keys.dtype),
        returns_carry=flags.return_carry,
        only_carry=flags.only_carry,
    )
