"""Carries: the state before the first element of each line, or after its last, as one array per field.

The fields are those of the operator's state, in the types in which kernels carry it from tile to tile. Two more fields
may follow: "count", the number of elements so far, from which positions count on, and "key", the last key, to compare
with the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuscan.dtypes import DTYPES, DType
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.operators import Monoid
from cuscan.request.checks import Elements, check_address, check_place
from cuscan.specs import ArraySpec, dense_strides, spec_of, standing_along

if TYPE_CHECKING:
    from cuscan.interop.view import ArrayView


class CarryField(NamedTuple):
    """A field of a carry: its name in error messages, and its dtype."""

    name: str
    dtype: DType


def carry_dtype(op: Monoid, result: DType) -> str:
    """Return the name of the carry's number type, for an operator and a result dtype."""
    return result.wide if op.wide_carry else result.accumulator


def carry_fields(op: Monoid, result: DType, keys: DType | None) -> tuple[CarryField, ...]:
    """Return the fields of a carry: those of the state, then "count" for indexed operators, then "key" with keys."""
    state = op.states.dtype(carry_dtype(op, result))
    fields = [CarryField(name, DTYPES[state[name].name]) for name in state.names or ()]
    fields = fields or [CarryField("value", DTYPES[state.name])]
    if op.indexed:
        fields.append(CarryField("count", DTYPES["int64"]))
    if keys is not None:
        fields.append(CarryField("key", keys))
    return tuple(fields)


def check_carry(
    fields: tuple[CarryField, ...], carry: tuple[ArrayView, ...], main: Elements, shape: tuple[int, ...], axis: int
) -> tuple[ArraySpec, ...]:
    """Check the user's carry for elements of a shape; return its specs, with stride 0 along the axis."""
    if len(carry) != len(fields):
        wanted = f"a tuple of {len(fields)} arrays" if len(fields) > 1 else "one array"
        listed = ", ".join(f"{field.name} of {field.dtype}" for field in fields)
        raise ScanTypeError(f"carry must be {wanted} ({listed}) in this call; got {len(carry)} array(s)")
    lines = shape[:axis] + shape[axis + 1 :]
    for i, (field, view) in enumerate(zip(fields, carry, strict=True)):
        name = f"carry[{i}]" if len(fields) > 1 else "carry"
        check_address(name, view)
        check_place(name, view, main)
        if view.shape != lines:
            raise ScanValueError(
                f"{name} has shape {view.shape}; the axes of {main.name} beside the scanned one are {lines}"
            )
        if view.dtype is not field.dtype:
            raise ScanTypeError(f"{name} ({field.name}) has dtype {view.dtype}; it is carried in {field.dtype}")
    return tuple(standing_along(spec_of(view), axis) for view in carry)


def carry_out(fields: tuple[CarryField, ...], shape: tuple[int, ...], axis: int) -> tuple[ArraySpec, ...]:
    """Return the specs of new arrays for the outgoing carry of elements of a shape."""
    lines = shape[:axis] + shape[axis + 1 :]
    strides = dense_strides(lines, (0,) * len(lines))
    return tuple(standing_along(ArraySpec(field.dtype, lines, strides, 0), axis) for field in fields)
