"""Checks of a user's arrays, one function per kind of mistake, from shapes, strides, dtypes and addresses alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cuscan.dtypes import DTYPES, EXACT, DType, Kind
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop.view import ArrayView, spell_conversion
from cuscan.operators import OPERATORS, Monoid
from cuscan.request.call import find_dtype
from cuscan.specs import ALIGNMENT, ArraySpec, Segments, new_tuple, spec_of

# `out` may set the result dtype within the value's rank or above it.
_RANK = {Kind.BOOL: 0, Kind.SIGNED: 1, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}


class Elements(NamedTuple):
    """The main array of a call, which results and all other arrays must fit, and its argument name."""

    name: str
    view: ArrayView


def elements_of(op: Monoid, view: ArrayView) -> Elements:
    """Return `view` as the main array, under the name of the elements: "x", or the operator's last input."""
    return new_tuple(Elements, ("x" if op.dtypes else op.inputs[-1], view))


def check_offsets(offsets: Any, length: int) -> None:
    """Raise `ScanValueError` unless offsets run from 0 to `length` and never decrease."""
    if offsets[0] != 0 or offsets[-1] != length or np.count_nonzero(offsets[1:] < offsets[:-1]):
        raise ScanValueError(
            f"offsets must begin with 0, end with the size of the axis ({length}) and never decrease; "
            f"got {offsets[0]} to {offsets[-1]}"
        )


def check_address(name: str, view: ArrayView) -> None:
    """Raise `ScanValueError` if a GPU array does not begin at a multiple of its item size."""
    kind = view.kind
    size = kind.dtype.itemsize
    if view.pointer % size and kind.device.type != "cpu":
        raise ScanValueError(
            f"{name} begins at address {view.pointer:#x}, which is no multiple of its item size ({size})"
        )


def check_axis(axis: int, name: str, shape: tuple[int, ...]) -> int:
    """Return the axis, counted from 0; raises `ScanValueError` if `shape` does not have it."""
    if not shape:
        raise ScanValueError(f"{name} has no dimensions; a scan needs at least one axis: pass {name}.reshape(1)")
    if not -len(shape) <= axis < len(shape):
        raise ScanValueError(f"axis {axis} is out of range for {name} of shape {shape} ({len(shape)} dimensions)")
    return axis % len(shape)


def check_count(op: Monoid, values: tuple[ArrayView, ...]) -> None:
    """Raise `ScanTypeError` unless there is one array for each input of the operator."""
    if len(values) != len(op.inputs):
        wanted = f"a tuple of {len(op.inputs)} arrays or a structured array" if op.dtypes else "one array"
        raise ScanTypeError(f"x must be {wanted} for op={op.name!r}; got {len(values)} array(s)")


def check_inputs(op: Monoid, values: tuple[ArrayView, ...]) -> None:
    """Check that all arrays of elements are of one library and on one device."""
    for name, view in zip(op.inputs, values[:-1], strict=False):
        check_place(name, view, elements_of(op, values[-1]))


def elements_shape(op: Monoid, values: tuple[ArrayView, ...]) -> tuple[int, ...]:
    """Return the shape that several values broadcast to; raises `ScanValueError` if they do not."""
    shape = _broadcast_shapes([view.shape for view in values])
    if op.dtypes and shape is not None:
        return shape
    if shape != values[-1].shape:  # a recurrence has the shape of b
        listed = " and ".join(f"{name} of shape {v.shape}" for name, v in zip(op.inputs, values, strict=True))
        raise ScanValueError(f"{listed} do not broadcast" + ("" if op.dtypes else f" to the shape of {op.inputs[-1]}"))
    return shape


def _broadcast_shapes(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the broadcast shape, or None if there is none.

    NumPy's function does not accept symbolic sizes, such as those of torch.compile.
    """
    rank = max(map(len, shapes))
    sizes = []
    for column in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        size = next((n for n in column if n != 1), 1)
        if any(n not in (1, size) for n in column):
            return None
        sizes.append(size)
    return tuple(sizes)


def results_of(
    op: Monoid, values: tuple[ArrayView, ...], dtype: object, outs: tuple[ArrayView, ...] | None
) -> tuple[Monoid, tuple[DType, ...]]:
    """Return the operator for the result dtype, and the dtypes of its results; raises `ScanTypeError`."""
    if op.dtypes:
        if dtype is not None:
            raise ScanTypeError(f"op={op.name!r} has the dtypes of its state; dtype= cannot change them")
        first = DTYPES[op.dtypes[0]]
    else:
        first = _result_dtype(op, elements_of(op, values[-1]), dtype, outs[0] if outs else None)
        if first.kind is Kind.BOOL and op.on_bool is not None:
            op = OPERATORS[op.on_bool]
        if first.kind not in op.kinds:
            allowed = ", ".join(sorted(kind.value for kind in op.kinds))
            advice = "; pass dtype='float64', or another such" if first.kind in EXACT and Kind.FLOAT in op.kinds else ""
            raise ScanTypeError(f"op={op.name!r} is defined on {allowed}; the result here has dtype {first}{advice}")
        op.identity(first)  # raises if a user's identity does not fit
    for name, view in zip(op.inputs, values, strict=True):
        check_real(name, view, first)
    dtypes = op.results(first, values[-1].library.index_dtype())
    if outs is not None and len(outs) != len(dtypes):
        wanted = "one array" if len(dtypes) == 1 else f"a tuple of {len(dtypes)} arrays"
        raise ScanTypeError(f"out must be {wanted} for op={op.name!r}; got {len(outs)} array(s)")
    return op, dtypes


def _result_dtype(op: Monoid, elements: Elements, dtype: object, out: ArrayView | None) -> DType:
    name, value = elements
    if dtype is not None:
        return find_dtype(dtype)
    if out is not None:
        if _RANK[out.dtype.kind] < _RANK[value.dtype.kind]:
            raise ScanTypeError(
                f"out has dtype {out.dtype} and {name} {value.dtype}; pass dtype= to convert on purpose"
            )
        return out.dtype
    if not op.promotes or value.dtype.kind not in EXACT:
        return value.dtype
    return value.library.sum_dtype(value.dtype)


def check_real(name: str, view: ArrayView, result: DType) -> None:
    """Raise `ScanTypeError` if a complex array would become real."""
    if view.dtype.kind is Kind.COMPLEX and result.kind is not Kind.COMPLEX:
        raise ScanTypeError(
            f"{name} has dtype {view.dtype}; it cannot become {result} without loss of its imaginary part"
        )


def check_place(name: str, view: ArrayView, elements: Elements) -> None:
    """Raise `ScanTypeError` or `ScanValueError` if an array is of another library, or on another device."""
    one, other = view.kind, elements.view.kind
    if one is other:
        return
    of = elements.name
    if one.library is not other.library:
        advice = f": pass {spell_conversion(name, other.library.name, other.device, one)}"
        raise ScanTypeError(
            f"{name} is of {one.library.name} and {of} of {other.library.name}; they must be of one library"
            + ("" if name.startswith("out") else advice)  # a copy of it would be written
        )
    if one.device is not other.device and one.device != other.device:
        advice = f": pass {name}.to({str(other.device)!r})" if one.library.name == "torch" else ""
        raise ScanValueError(
            f"{name} is on {one.device} and {of} on {other.device}; they must be on one device"
            + ("" if name.startswith("out") else advice)
        )


def check_out(name: str, main: Elements, out: ArrayView, dtype: DType, shape: tuple[int, ...]) -> ArraySpec:
    """Return the spec of an `out` array: of the result's shape and dtype, writable, and without self-overlap."""
    check_address(name, out)
    check_place(name, out, main)
    kind = out.kind
    if kind.shape != shape:
        raise ScanValueError(f"{name} has shape {kind.shape}; the result has shape {shape}")
    if kind.dtype is not dtype:
        raise ScanTypeError(f"{name} has dtype {kind.dtype}; the result has dtype {dtype}")
    if kind.readonly:
        raise ScanValueError(f"{name} is read-only")
    reach = 1
    for stride, size in sorted(zip(map(abs, kind.strides), shape, strict=True)):
        if stride < reach and size > 1 and 0 not in shape:
            raise ScanValueError(f"{name} overlaps itself: shape {out.shape} with strides {out.strides} (in elements)")
        reach += stride * (size - 1)
    return spec_of(out)


def check_bool(name: str, view: ArrayView, main: Elements, shape: tuple[int, ...], axis: int) -> ArraySpec:
    """Return the spec of a mask or flags, broadcast to `shape`; 1-D arrays may instead lie along the scanned axis."""
    if view.dtype.kind is not Kind.BOOL:
        raise ScanTypeError(f"{name} must have dtype bool; got {view.dtype}; pass {name} != 0")
    if not lies_along(view.shape, shape, axis, name, main.name):
        return broadcast(name, view, main, shape)
    return _along(name, view, main, shape, axis)


def lies_along(shape: tuple[int, ...], whole: tuple[int, ...], axis: int, name: str, of: str = "x") -> bool:
    """Whether a mask or flags lie along the scanned axis of the whole; an error if they fit its last axis, too."""
    behind = len(whole) - 1 - axis % len(whole)
    if len(shape) != 1 or shape == (1,) or not behind or shape[0] != whole[axis]:
        return False
    if shape[0] == whole[-1]:
        along = ", ".join(["-1", *["1"] * behind])
        raise ScanValueError(
            f"{name} of shape {shape} fits the scanned axis and the last one of {of} of shape {whole}: "
            f"pass {name}.reshape({along}) for axis {len(whole) - 1 - behind}, or {name}.reshape(1, -1) for the last"
        )
    return True


def _along(name: str, view: ArrayView, main: Elements, shape: tuple[int, ...], axis: int) -> ArraySpec:
    """Return the spec of a 1-D array along the scanned axis."""
    spec = broadcast(name, view, main, shape[axis : axis + 1])
    strides = tuple(spec.strides[0] if i == axis else 0 for i in range(len(shape)))
    return spec._replace(shape=shape, strides=strides)


def broadcast(name: str, view: ArrayView, main: Elements, shape: tuple[int, ...], of: str = "") -> ArraySpec:
    """Return the spec of an array broadcast to `shape`; raises `ScanValueError` if it does not broadcast."""
    check_address(name, view)
    check_place(name, view, main)
    if view.kind.shape == shape:
        return spec_of(view)
    missing = len(shape) - len(view.shape)
    aligned = shape[max(missing, 0) :]
    if missing < 0 or any(m not in (1, n) for m, n in zip(view.shape, aligned, strict=True)):
        raise ScanValueError(f"{name} of shape {view.shape} does not broadcast to {of or main.name} of shape {shape}")
    strides = [0 if m == 1 < n else s for m, n, s in zip(view.shape, aligned, view.strides, strict=True)]
    address = view.pointer % ALIGNMENT
    kind = view.kind
    return ArraySpec(kind.dtype, shape, (0,) * missing + tuple(strides), address, kind.is_number, kind.reach)


def check_segments(
    kind: str | None, view: ArrayView | None, main: Elements, shape: tuple[int, ...], axis: int
) -> Segments | None:
    """Return the checked flags, keys or offsets, or None without segments."""
    if kind is None or view is None:
        return None
    if kind == "reset":
        return Segments(kind, check_bool(kind, view, main, shape, axis))
    if kind == "keys":
        if view.dtype.kind is Kind.COMPLEX:
            raise ScanTypeError(f"keys must be real; got {view.dtype}")
        if len(view.shape) != 1 or len(shape) == 1:
            return Segments(kind, broadcast(kind, view, main, shape))
        return Segments(kind, _along(kind, view, main, shape, axis))
    check_address(kind, view)
    check_place(kind, view, main)
    if view.dtype.name not in ("int32", "int64"):
        raise ScanTypeError(f"offsets must have dtype int32 or int64; got {view.dtype}")
    if len(view.shape) != 1 or view.shape[0] < 1:
        raise ScanValueError(f"offsets must have one axis, of segments + 1 elements; got shape {view.shape}")
    return Segments(kind, spec_of(view))
