"""The user's call, checked and normalised: a frozen `ScanRequest`, or an error that speaks of the call.

Nothing here touches memory: requests are made of shapes, strides, dtypes and addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuscan.call import SEGMENTS, Flags, Operands, find_operator
from cuscan.carry import carry_dtype, carry_fields, carry_out, check_carry
from cuscan.checks import (
    broadcast,
    check_axis,
    check_bool,
    check_inputs,
    check_out,
    check_real,
    check_segments,
    elements_of,
    elements_shape,
    out_names,
    results_of,
)
from cuscan.dtypes import DTYPES, INEXACT
from cuscan.operators import Monoid
from cuscan.specs import ArraySpec, Segments, dense_strides, spec_of, standing_along


@dataclass(frozen=True)
class ScanRequest:
    """One scan, complete and valid.

    Arrays are broadcast to `shape`, that of the elements; `row_initial`, `last` and the fields of carries stay in one
    place along the axis. `has_initial`: something precedes the first element of a line; `segments_have_initial`: a
    number precedes each segment. `only_carry`: no result is wanted; their specs say what they would be.
    """

    op: Monoid
    shape: tuple[int, ...]
    axis: int
    reverse: bool
    exclusive: bool
    include_initial: bool
    skip_nan: bool
    has_initial: bool
    values: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    mask: ArraySpec | None = None
    segments: Segments | None = None
    row_initial: ArraySpec | None = None
    last: ArraySpec | None = None
    carry_in: tuple[ArraySpec, ...] = ()
    carry_out: tuple[ArraySpec, ...] = ()
    segments_have_initial: bool = False
    only_carry: bool = False

    @property
    def result(self) -> ArraySpec:
        """The first of the results, or the only one."""
        return self.results[0]

    @property
    def carry(self) -> str:
        """Name of the number type in which the carry runs along the axis, and `initial` enters it."""
        return carry_dtype(self.op, self.result.dtype)


def make_request(flags: Flags, operands: Operands, *, has_initial: bool) -> ScanRequest:
    """Check a call and normalise it. Raises `ScanValueError` or `ScanTypeError`."""
    op = find_operator(flags.op)
    values = operands.values
    check_inputs(op, values)
    shape = elements_shape(op, values)
    main = elements_of(op, next((view for view in reversed(values) if view.shape == shape), values[-1]))
    axis = check_axis(flags.axis, main.name, shape)
    op, dtypes = results_of(op, values, flags.dtype, operands.outs)
    include_initial = flags.include_initial
    full = tuple(n + include_initial if i == axis else n for i, n in enumerate(shape))
    if operands.outs is None:
        like = main.view.strides if main.view.shape == shape else (0,) * len(shape)
        results = tuple(ArraySpec(dtype, full, dense_strides(full, like), 0) for dtype in dtypes)
    else:
        for name, out, dtype in zip(out_names(dtypes), operands.outs, dtypes, strict=True):
            check_out(name, main, out, dtype, full)
        results = tuple(spec_of(out) for out in operands.outs)
    row_shape = shape[:axis] + shape[axis + 1 :]
    row_initial, last = None, None
    initial, mask = operands.get("initial"), operands.get("mask")
    if initial is not None:
        check_real("initial", initial, results[0].dtype)
        row_initial = standing_along(broadcast("initial", initial, main, row_shape, "the other axes,"), axis)
    if flags.return_last:
        last_dtype = DTYPES[results[0].dtype.accumulator]
        last = standing_along(
            ArraySpec(last_dtype, row_shape, dense_strides(row_shape, (0,) * len(row_shape)), 0), axis
        )
    segments = check_segments(operands.segments, operands.get(*SEGMENTS), main, shape, axis)
    fields, carry = carry_fields(op, results[0].dtype, segments), operands.carry
    return ScanRequest(
        op=op,
        shape=shape,
        axis=axis,
        reverse=flags.reverse,
        exclusive=flags.exclusive,
        include_initial=include_initial,
        skip_nan=flags.skipna and any(v.dtype.kind in INEXACT for v in values),
        has_initial=has_initial or row_initial is not None or bool(carry),
        values=tuple(broadcast(name, view, main, shape) for name, view in zip(op.inputs, values, strict=True)),
        results=results,
        mask=None if mask is None else check_bool("mask", mask, main, shape, axis),
        segments=segments,
        row_initial=row_initial,
        last=last,
        carry_in=check_carry(fields, carry, main, shape, axis) if carry else (),
        carry_out=carry_out(fields, shape, axis) if flags.return_carry else (),
        segments_have_initial=has_initial and segments is not None and op.segments_have_initial,
        only_carry=flags.only_carry,
    )
