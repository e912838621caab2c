"""Check and normalise a user's call: the result is a frozen `ScanRequest`, or an error in terms of the call.

Nothing here touches memory: requests consist of shapes, strides, dtypes and addresses. What calls of one kind have in
common is computed once, as a `CallKind`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from cuscan.operators import Monoid
from cuscan.request.call import Flags, Operands
from cuscan.request.carry import carry_out, check_carry
from cuscan.request.checks import (
    Elements,
    broadcast,
    check_axis,
    check_bool,
    check_inputs,
    check_out,
    check_segments,
    elements_of,
    elements_shape,
)
from cuscan.request.kind import CallKind, kind_of
from cuscan.specs import ArraySpec, Segments, dense_strides, new_tuple, standing_along

if TYPE_CHECKING:
    from cuscan.interop.view import ArrayView


class ScanRequest(NamedTuple):
    """One scan, complete and valid.

    Inputs are broadcast to `shape`, the shape of the elements. `row_initial`, `last` and the fields of carries have
    stride 0 along the axis.
    """

    kind: CallKind
    shape: tuple[int, ...]
    axis: int
    values: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    mask: ArraySpec | None = None
    segments: Segments | None = None
    row_initial: ArraySpec | None = None
    last: ArraySpec | None = None
    carry_in: tuple[ArraySpec, ...] = ()
    carry_out: tuple[ArraySpec, ...] = ()

    @property
    def op(self) -> Monoid:
        return self.kind.op

    @property
    def reverse(self) -> bool:
        return self.kind.reverse

    @property
    def exclusive(self) -> bool:
        return self.kind.exclusive

    @property
    def include_initial(self) -> bool:
        return self.kind.include_initial

    @property
    def skip_nan(self) -> bool:
        return self.kind.skip_nan

    @property
    def has_initial(self) -> bool:
        return self.kind.has_initial

    @property
    def segments_have_initial(self) -> bool:
        return self.kind.segments_have_initial

    @property
    def only_carry(self) -> bool:
        return self.kind.only_carry

    @property
    def carry(self) -> str:
        return self.kind.carry

    @property
    def result(self) -> ArraySpec:
        """The first result."""
        return self.results[0]


def make_request(flags: Flags, operands: Operands, *, has_initial: bool) -> ScanRequest:
    """Check a call and normalise it; raises `ScanValueError` or `ScanTypeError`."""
    kind = kind_of(flags, operands, has_initial)
    op, views, inputs = kind.op, operands.views, kind.op.inputs
    count = len(inputs)
    values = views[:count]
    if count == 1:
        main = elements_of(op, views[0])
        shape = main.view.kind.shape
    else:
        check_inputs(op, values)
        shape = elements_shape(op, values)
        main = elements_of(op, _of_shape(values, shape))
    axis = check_axis(flags.axis, main.name, shape)
    specs = []
    for i, view in enumerate(values):
        specs.append(broadcast(inputs[i], view, main, shape))
    results = _results_of(kind, operands.outs, main, shape, axis)
    others = _NO_OTHERS
    if len(views) > count or kind.last is not None or kind.returns_carry:
        given = dict(zip(operands.roles[count:], views[count:], strict=True))
        others = _others_of(kind, given, operands.carry if kind.has_initial else (), main, shape, axis)
    return new_tuple(ScanRequest, (kind, shape, axis, tuple(specs), results, *others))


def _results_of(
    kind: CallKind, outs: tuple[ArrayView, ...] | None, main: Elements, shape: tuple[int, ...], axis: int
) -> tuple[ArraySpec, ...]:
    """Return the specs of the results: the user's `out`, or new arrays."""
    full = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]) if kind.include_initial else shape
    if outs is not None:
        if len(outs) == 1:
            return (check_out("out", main, outs[0], kind.results[0], full),)
        return tuple([check_out(f"out[{i}]", main, out, kind.results[i], full) for i, out in enumerate(outs)])
    like = main.view.kind.strides if main.view.kind.shape == shape else (0,) * len(shape)
    strides, size = dense_strides(full, like), math.prod(full)
    return tuple([ArraySpec(t, full, strides, 0, False, (0, size * t.itemsize)) for t in kind.results])


_NO_OTHERS = tuple(ScanRequest._field_defaults.values())


def _others_of(
    kind: CallKind,
    given: dict[str, ArrayView],
    carry: tuple[ArrayView, ...],
    main: Elements,
    shape: tuple[int, ...],
    axis: int,
) -> tuple[object, ...]:
    """Return the fields of a request after values and results: mask, segments, initial and last states, carries."""
    row_shape = shape[:axis] + shape[axis + 1 :]
    row_initial, last = None, None
    if "initial" in given:
        row_initial = standing_along(broadcast("initial", given["initial"], main, row_shape, "the other axes,"), axis)
    if kind.last is not None:
        strides = dense_strides(row_shape, (0,) * len(row_shape))
        last = standing_along(ArraySpec(kind.last, row_shape, strides, 0), axis)
    return (
        check_bool("mask", given["mask"], main, shape, axis) if "mask" in given else None,
        check_segments(kind.segments, given.get(kind.segments or ""), main, shape, axis),
        row_initial,
        last,
        check_carry(kind.carry_fields, carry, main, shape, axis) if carry else (),
        carry_out(kind.carry_fields, shape, axis) if kind.returns_carry else (),
    )


def _of_shape(values: tuple[ArrayView, ...], shape: tuple[int, ...]) -> ArrayView:
    """Return the last value that has the given shape; the last value if all are broadcast."""
    for view in reversed(values):
        if view.kind.shape == shape:
            return view
    return values[-1]
