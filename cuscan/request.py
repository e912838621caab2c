"""The user's call, checked and normalised: a frozen `ScanRequest`, or an error that speaks of the call.

Nothing here touches memory: requests are made of shapes, strides, dtypes and addresses.
"""

from __future__ import annotations

import numbers
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cuscan.dtypes import DTYPES, EXACT, DType, Kind
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.operators import OPERATORS, Operator

if TYPE_CHECKING:
    from cuscan.interop.view import ArrayView

# An `out` may choose the result dtype within a rank, or in a higher one.
_RANK = {Kind.BOOL: 0, Kind.SIGNED: 1, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}

ALIGNMENT = 16  # bytes; what the address of an array is known modulo


@dataclass(frozen=True)
class ArraySpec:
    """An array as the kernels see it: strides in elements, the address modulo `ALIGNMENT`."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int


@dataclass(frozen=True)
class ScanRequest:
    """One scan, complete and valid. `mask` is broadcast to the shape of `value`."""

    op: Operator
    axis: int
    reverse: bool
    exclusive: bool
    has_initial: bool
    value: ArraySpec
    result: ArraySpec
    mask: ArraySpec | None

    @property
    def carry(self) -> str:
        """Name of the dtype in which the carry runs along the axis, and `initial` enters it."""
        return carry_dtype(self.op, self.result.dtype)


def carry_dtype(op: Operator, result: DType) -> str:
    """The name of the carry's dtype, for an operator and a result dtype."""
    return result.wide if op.wide_carry else result.accumulator


def find_operator(op: object) -> Operator:
    """The row of the operator table that the user's `op` names."""
    if isinstance(op, Operator):
        return op
    if isinstance(op, str) and op in OPERATORS:
        return OPERATORS[op]
    raise ScanValueError(f"op must be one of {', '.join(map(repr, OPERATORS))}; got {op!r}")


def find_dtype(dtype: object) -> DType:
    """The row of the dtype table for a name, a NumPy or CuPy dtype or type, or a torch dtype."""
    if isinstance(dtype, DType):
        return dtype
    text = str(dtype)
    if text.startswith("torch."):
        name = text.removeprefix("torch.")
    elif isinstance(dtype, str) and dtype in DTYPES:
        name = dtype
    else:
        try:
            numpy_dtype = np.dtype(dtype)  # type: ignore[call-overload]
            name = numpy_dtype.name if numpy_dtype.isnative else text
        except TypeError:
            name = text
    if name not in DTYPES:
        raise ScanTypeError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    return DTYPES[name]


def dense_strides(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense result that keeps the axis order of strides `like`, as `empty_like` does.

    Broadcast arrays have no order of their own; their results are C-contiguous.
    """
    axes = list(range(len(shape)))
    real = [a for a in axes if shape[a] > 1]  # axes of size 1 have no say
    steps = [abs(like[a]) for a in real]
    if 0 not in steps and steps != sorted(steps, reverse=True):
        axes.sort(key=lambda a: -abs(like[a]) if shape[a] > 1 else 0)
    strides = [1] * len(shape)
    step = 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def make_request(
    *,
    op: object,
    axis: object,
    reverse: object,
    exclusive: object,
    dtype: object,
    has_initial: bool,
    value: ArrayView,
    mask: ArrayView | None,
    out: ArrayView | None,
) -> ScanRequest:
    """Check a call and normalise it. Raises `ScanValueError` or `ScanTypeError`."""
    for name, view in (("x", value), ("mask", mask), ("out", out)):
        _check_address(name, view)
    scan_axis = _check_axis(axis, value.shape)
    the_op = find_operator(op)
    result_dtype = _result_dtype(the_op, value, dtype, out)
    if result_dtype.kind is Kind.BOOL and the_op.on_bool is not None:
        the_op = OPERATORS[the_op.on_bool]
    if result_dtype.kind not in the_op.kinds:
        allowed = ", ".join(sorted(kind.value for kind in the_op.kinds))
        raise ScanTypeError(f"op={the_op.name!r} is defined on {allowed}; the result here has dtype {result_dtype}")
    if value.dtype.kind is Kind.COMPLEX and result_dtype.kind is not Kind.COMPLEX:
        raise ScanTypeError(
            f"x has dtype {value.dtype}; it cannot become {result_dtype} without loss of its imaginary part"
        )
    if out is None:
        result = ArraySpec(result_dtype, value.shape, dense_strides(value.shape, value.strides), 0)
    else:
        _check_out(value, out, result_dtype)
        result = _spec(out)
    return ScanRequest(
        op=the_op,
        axis=scan_axis,
        reverse=_check_flag("reverse", reverse),
        exclusive=_check_flag("exclusive", exclusive),
        has_initial=has_initial,
        value=_spec(value),
        result=result,
        mask=None if mask is None else _broadcast_mask(value, mask),
    )


def check_initial(initial: object, result: DType) -> complex:
    """The user's `initial` as a Python number that the result dtype can hold."""
    if isinstance(initial, np.ndarray) and initial.ndim == 0:
        initial = initial[()]
    item = initial.item() if isinstance(initial, np.generic) else initial
    if not isinstance(item, numbers.Number):
        raise ScanTypeError(f"initial must be a scalar number; got {type(initial).__name__}")
    number: Any = item
    if result.kind is not Kind.COMPLEX and isinstance(number, complex):
        raise ScanTypeError(f"initial is complex ({number}) and the result has dtype {result}")
    if result.kind in EXACT:
        low, high = (0, 1) if result.kind is Kind.BOOL else _int_range(result)
        if (
            number != number
            or number in (float("inf"), float("-inf"))
            or int(number) != number
            or not low <= number <= high
        ):
            raise ScanValueError(f"initial={number!r} does not fit dtype {result} ({low} to {high})")
        return int(number)
    try:
        value = complex(number) if result.kind is Kind.COMPLEX else float(number)
    except (OverflowError, ArithmeticError):
        raise ScanValueError(f"initial={number!r} does not fit dtype {result}") from None
    largest = _largest(result)
    if any(largest < abs(part) < float("inf") for part in (value.real, value.imag)):
        raise ScanValueError(f"initial={number!r} does not fit dtype {result} (up to {largest:.6g})")
    return value


def _spec(view: ArrayView) -> ArraySpec:
    return ArraySpec(view.dtype, view.shape, view.strides, view.pointer % ALIGNMENT)


def _int_range(dtype: DType) -> tuple[int, int]:
    limits = np.iinfo(dtype.name)
    return int(limits.min), int(limits.max)


def _largest(dtype: DType) -> float:
    if dtype.name == "bfloat16":
        return float(np.finfo(np.float32).max) * (1 - 2**-8) / (1 - 2**-24)
    return float(np.finfo(dtype.name).max)


def _check_address(name: str, view: ArrayView | None) -> None:
    if view is not None and view.device.type != "cpu" and view.pointer % view.dtype.itemsize:
        size = view.dtype.itemsize
        raise ScanValueError(
            f"{name} begins at address {view.pointer:#x}, which is no multiple of its item size ({size})"
        )


def _check_flag(name: str, flag: object) -> bool:
    if not isinstance(flag, bool | np.bool_):
        raise ScanTypeError(f"{name} must be True or False; got {flag!r}")
    return bool(flag)


def _check_axis(axis: object, shape: tuple[int, ...]) -> int:
    if not shape:
        raise ScanValueError("x has no dimensions; a scan needs at least one axis")
    try:
        index = operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise ScanTypeError(f"axis must be an integer; got {axis!r}") from None
    if not -len(shape) <= index < len(shape):
        raise ScanValueError(f"axis={index} is out of range for x of shape {shape} ({len(shape)} dimensions)")
    return index % len(shape)


def _result_dtype(op: Operator, value: ArrayView, dtype: object, out: ArrayView | None) -> DType:
    if dtype is not None:
        return find_dtype(dtype)
    if out is not None:
        if _RANK[out.dtype.kind] < _RANK[value.dtype.kind]:
            raise ScanTypeError(f"out has dtype {out.dtype} and x {value.dtype}; pass dtype= to convert on purpose")
        return out.dtype
    if not op.promotes or value.dtype.kind not in EXACT:
        return value.dtype
    if value.dtype.kind is Kind.UNSIGNED and value.library.name != "torch":
        return DTYPES["uint64"]
    return DTYPES["int64"]


def _same_place(name: str, view: ArrayView, value: ArrayView) -> None:
    if view.library is not value.library:
        raise ScanTypeError(
            f"{name} is of {view.library.name} and x of {value.library.name}; they must be of one library"
        )
    if view.device != value.device:
        raise ScanValueError(f"{name} is on {view.device} and x on {value.device}; they must be on one device")


def _check_out(value: ArrayView, out: ArrayView, dtype: DType) -> None:
    _same_place("out", out, value)
    if out.shape != value.shape:
        raise ScanValueError(f"out has shape {out.shape}; the result has shape {value.shape}")
    if out.dtype is not dtype:
        raise ScanTypeError(f"out has dtype {out.dtype}; the result has dtype {dtype}")
    if out.readonly:
        raise ScanValueError("out is read-only")
    reach = 1
    for stride, size in sorted((abs(s), n) for s, n in zip(out.strides, out.shape, strict=True) if n > 1):
        if stride < reach and 0 not in out.shape:
            raise ScanValueError(f"out overlaps itself: shape {out.shape} with strides {out.strides} (in elements)")
        reach += stride * (size - 1)


def _broadcast_mask(value: ArrayView, mask: ArrayView) -> ArraySpec:
    _same_place("mask", mask, value)
    if mask.dtype.kind is not Kind.BOOL:
        raise ScanTypeError(f"mask must have dtype bool; got {mask.dtype}")
    missing = len(value.shape) - len(mask.shape)
    aligned = value.shape[max(missing, 0) :]
    if missing < 0 or any(m not in (1, n) for m, n in zip(mask.shape, aligned, strict=True)):
        raise ScanValueError(f"mask of shape {mask.shape} does not broadcast to x of shape {value.shape}")
    strides = [0 if m == 1 else s for m, s in zip(mask.shape, mask.strides, strict=True)]
    return ArraySpec(mask.dtype, value.shape, (0,) * missing + tuple(strides), mask.pointer % ALIGNMENT)
