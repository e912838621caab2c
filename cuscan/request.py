"""The user's call, checked and normalised: a frozen `ScanRequest`, or an error that speaks of the call.

Nothing here touches memory: requests are made of shapes, strides, dtypes and addresses.
"""

from __future__ import annotations

import numbers
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cuscan.dtypes import DTYPES, EXACT, INEXACT, DType, Kind
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.operators import OPERATORS, Monoid
from cuscan.states import make_states

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
class Segments:
    """Where segments start: `kind` is "reset", "keys" or "offsets".

    `array` has the shape of the elements, but for offsets, which have an axis of their own.
    """

    kind: str
    array: ArraySpec


@dataclass(frozen=True)
class ScanRequest:
    """One scan, complete and valid.

    Arrays are broadcast to `shape`, that of the elements; `row_initial` and `last` stay in one place along the axis.
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

    @property
    def result(self) -> ArraySpec:
        """The first of the results, or the only one."""
        return self.results[0]

    @property
    def carry(self) -> str:
        """Name of the number type in which the carry runs along the axis, and `initial` enters it."""
        return carry_dtype(self.op, self.result.dtype)


class Flags(NamedTuple):
    """The arguments of a call that are no arrays, of the types that they ought to have; see `make_flags`."""

    op: Any
    axis: int = -1
    reverse: bool = False
    exclusive: bool = False
    include_initial: bool = False
    skipna: bool = False
    dtype: Any = None
    return_last: bool = False
    validate: bool = False


def make_flags(
    op: Any,
    axis: Any,
    reverse: Any,
    exclusive: Any = False,
    include_initial: Any = False,
    skipna: Any = False,
    dtype: Any = None,
    return_last: Any = False,
    validate: Any = False,
) -> Flags:
    """The flags of a call; raises `ScanTypeError` where a type does not fit.

    Equal flags mean the same: 1 equals True and 1.0, and only one of them is an axis.
    """
    if type(axis) is not int:
        axis = _to_index(axis)
    if not (
        type(reverse) is type(exclusive) is type(include_initial) is type(skipna) is bool
        and type(return_last) is type(validate) is bool
    ):
        flags = (reverse, exclusive, include_initial, skipna, return_last, validate)
        names = ("reverse", "exclusive", "include_initial", "skipna", "return_last", "validate")
        reverse, exclusive, include_initial, skipna, return_last, validate = map(_to_bool, names, flags)
    return Flags(op, axis, reverse, exclusive, include_initial, skipna, dtype, return_last, validate)


SEGMENTS = ("reset", "offsets", "keys")
BESIDE = frozenset({"mask", "initial", *SEGMENTS})  # what an array can be beside a value


class Operands(NamedTuple):
    """The arrays of a call: those that are read, in the order of the kernels' arguments, each by its role.

    The roles are the names of the arguments. Values come first, then "mask", one of `SEGMENTS`, "initial".
    """

    views: tuple[ArrayView, ...]
    roles: tuple[str, ...] = ("x",)
    outs: tuple[ArrayView, ...] | None = None

    @property
    def values(self) -> tuple[ArrayView, ...]:
        return tuple(view for name, view in zip(self.roles, self.views, strict=True) if name not in BESIDE)

    def get(self, *roles: str) -> ArrayView | None:
        """The array in one of some roles, if there is one."""
        return next((view for name, view in zip(self.roles, self.views, strict=True) if name in roles), None)

    @property
    def segments(self) -> str | None:
        """How segments are given."""
        return next((name for name in self.roles if name in SEGMENTS), None)


def carry_dtype(op: Monoid, result: DType) -> str:
    """The name of the carry's number type, for an operator and a result dtype."""
    return result.wide if op.wide_carry else result.accumulator


def find_operator(op: object) -> Monoid:
    """The row of the operator table that the user's `op` names."""
    if isinstance(op, Monoid):
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


def make_request(flags: Flags, operands: Operands, *, has_initial: bool) -> ScanRequest:
    """Check a call and normalise it. Raises `ScanValueError` or `ScanTypeError`."""
    op = find_operator(flags.op)
    values = operands.values
    _check_inputs(op, values)
    shape = _elements_shape(op, values)
    axis = _check_axis(flags.axis, shape)
    op, dtypes = _results_of(op, values, flags.dtype, operands.outs)
    main = next((view for view in reversed(values) if view.shape == shape), values[-1])
    include_initial = flags.include_initial
    full = tuple(n + include_initial if i == axis else n for i, n in enumerate(shape))
    if operands.outs is None:
        like = main.strides if main.shape == shape else (0,) * len(shape)
        results = tuple(ArraySpec(dtype, full, dense_strides(full, like), 0) for dtype in dtypes)
    else:
        for name, out, dtype in zip(_out_names(dtypes), operands.outs, dtypes, strict=True):
            _check_out(name, main, out, dtype, full)
        results = tuple(_spec(out) for out in operands.outs)
    row_shape = shape[:axis] + shape[axis + 1 :]
    row_initial, last = None, None
    initial, mask = operands.get("initial"), operands.get("mask")
    if initial is not None:
        _check_real("initial", initial, results[0].dtype)
        row_initial = _along(_broadcast("initial", initial, main, row_shape, "the other axes,"), axis)
    if flags.return_last:
        last_dtype = DTYPES[results[0].dtype.accumulator]
        last = _along(ArraySpec(last_dtype, row_shape, dense_strides(row_shape, _sorted_like(row_shape)), 0), axis)
    return ScanRequest(
        op=op,
        shape=shape,
        axis=axis,
        reverse=flags.reverse,
        exclusive=flags.exclusive,
        include_initial=include_initial,
        skip_nan=flags.skipna and any(v.dtype.kind in INEXACT for v in values),
        has_initial=has_initial or row_initial is not None,
        values=tuple(_broadcast(name, view, main, shape) for name, view in zip(op.inputs, values, strict=True)),
        results=results,
        mask=None if mask is None else _check_bool("mask", mask, main, shape),
        segments=_check_segments(operands.segments, operands.get(*SEGMENTS), main, shape, axis),
        row_initial=row_initial,
        last=last,
    )


def check_initial(initial: object, result: DType, name: str = "initial") -> complex:
    """The user's `initial` as a Python number that the result dtype can hold."""
    if isinstance(initial, np.ndarray) and initial.ndim == 0:
        initial = initial[()]
    item = initial.item() if isinstance(initial, np.generic) else initial
    if not isinstance(item, numbers.Number):
        raise ScanTypeError(f"{name} must be a scalar number; got {type(initial).__name__}")
    number: Any = item
    if result.kind is not Kind.COMPLEX and isinstance(number, complex):
        raise ScanTypeError(f"{name} is complex ({number}) and the result has dtype {result}")
    if result.kind in EXACT:
        low, high = (0, 1) if result.kind is Kind.BOOL else _int_range(result)
        if (
            number != number
            or number in (float("inf"), float("-inf"))
            or int(number) != number
            or not low <= number <= high
        ):
            raise ScanValueError(f"{name}={number!r} does not fit dtype {result} ({low} to {high})")
        return int(number)
    try:
        value = complex(number) if result.kind is Kind.COMPLEX else float(number)
    except (OverflowError, ArithmeticError):
        raise ScanValueError(f"{name}={number!r} does not fit dtype {result}") from None
    largest = _largest(result)
    if any(largest < abs(part) < float("inf") for part in (value.real, value.imag)):
        raise ScanValueError(f"{name}={number!r} does not fit dtype {result} (up to {largest:.6g})")
    return value


def check_start(initial: Any, op: Monoid, result: DType) -> tuple[complex, ...] | None:
    """The user's `initial` as numbers, one for each field of a user's state; None if there is none."""
    if initial is None:
        return None
    if not op.dtypes:
        return (check_initial(initial, result),)
    if not isinstance(initial, tuple) or len(initial) != len(op.dtypes):
        raise ScanTypeError(f"initial must be a tuple of {len(op.dtypes)} numbers for op={op.name!r}; got {initial!r}")
    return tuple(check_initial(number, DTYPES[name]) for number, name in zip(initial, op.dtypes, strict=True))


def initial_argument(request: ScanRequest, initial: Any) -> Any:
    """The user's `initial` as the kernels take it: a NumPy number, or an array of one structured element."""
    start = check_start(initial, request.op, request.result.dtype)
    if not request.op.dtypes:
        return np.dtype(request.carry).type(0 if start is None else start[0])
    numbers = request.op.identity(request.result.dtype) if start is None else start
    return make_states(request.op.states.dtype(""), numbers, (1,))


def check_offsets(offsets: Any, length: int) -> None:
    """Refuse offsets that are no boundaries of segments of an axis."""
    if offsets[0] != 0 or offsets[-1] != length or (offsets[1:] < offsets[:-1]).any():
        raise ScanValueError(
            f"offsets must begin with 0, end with the size of the axis ({length}) and never decrease; "
            f"got {offsets[0]} to {offsets[-1]}"
        )


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


def _to_bool(name: str, flag: object) -> bool:
    if not isinstance(flag, bool | np.bool_):
        raise ScanTypeError(f"{name} must be True or False; got {flag!r}")
    return bool(flag)


def _to_index(axis: object) -> int:
    try:
        return operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise ScanTypeError(f"axis must be an integer; got {axis!r}") from None


def _check_axis(axis: int, shape: tuple[int, ...]) -> int:
    if not shape:
        raise ScanValueError("x has no dimensions; a scan needs at least one axis")
    if not -len(shape) <= axis < len(shape):
        raise ScanValueError(f"axis={axis} is out of range for x of shape {shape} ({len(shape)} dimensions)")
    return axis % len(shape)


def _check_inputs(op: Monoid, values: tuple[ArrayView, ...]) -> None:
    if len(values) != len(op.inputs):
        wanted = f"a tuple of {len(op.inputs)} arrays or a structured array" if op.dtypes else "one array"
        raise ScanTypeError(f"x must be {wanted} for op={op.name!r}; got {len(values)} array(s)")
    for name, view in zip(op.inputs, values, strict=True):
        _check_address(name, view)
        _same_place(name, view, values[-1])


def _elements_shape(op: Monoid, values: tuple[ArrayView, ...]) -> tuple[int, ...]:
    if len(values) == 1:
        return values[0].shape
    shape: tuple[int, ...] | None
    try:
        shape = np.broadcast_shapes(*(view.shape for view in values))
    except ValueError:
        shape = None
    if op.dtypes and shape is not None:
        return shape
    if shape != values[-1].shape:  # of a recurrence
        listed = " and ".join(f"{name} of shape {v.shape}" for name, v in zip(op.inputs, values, strict=True))
        raise ScanValueError(f"{listed} do not broadcast" + ("" if op.dtypes else f" to the shape of {op.inputs[-1]}"))
    return shape


def _results_of(
    op: Monoid, values: tuple[ArrayView, ...], dtype: object, outs: tuple[ArrayView, ...] | None
) -> tuple[Monoid, tuple[DType, ...]]:
    """The operator for this dtype, and the dtypes of its results."""
    if op.dtypes:
        if dtype is not None:
            raise ScanTypeError(f"op={op.name!r} has the dtypes of its state; dtype= cannot change them")
        first = DTYPES[op.dtypes[0]]
    else:
        first = _result_dtype(op, values[-1], dtype, outs[0] if outs else None)
        if first.kind is Kind.BOOL and op.on_bool is not None:
            op = OPERATORS[op.on_bool]
        if first.kind not in op.kinds:
            allowed = ", ".join(sorted(kind.value for kind in op.kinds))
            raise ScanTypeError(f"op={op.name!r} is defined on {allowed}; the result here has dtype {first}")
    for name, view in zip(op.inputs, values, strict=True):
        _check_real(name, view, first)
    dtypes = op.results(first)
    if outs is not None and len(outs) != len(dtypes):
        raise ScanTypeError(f"out must be {len(dtypes)} arrays, a tuple; got {len(outs)}")
    return op, dtypes


def _result_dtype(op: Monoid, value: ArrayView, dtype: object, out: ArrayView | None) -> DType:
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


def _check_real(name: str, view: ArrayView, result: DType) -> None:
    if view.dtype.kind is Kind.COMPLEX and result.kind is not Kind.COMPLEX:
        raise ScanTypeError(
            f"{name} has dtype {view.dtype}; it cannot become {result} without loss of its imaginary part"
        )


def _same_place(name: str, view: ArrayView, value: ArrayView) -> None:
    if view.library is not value.library:
        raise ScanTypeError(
            f"{name} is of {view.library.name} and x of {value.library.name}; they must be of one library"
        )
    if view.device != value.device:
        raise ScanValueError(f"{name} is on {view.device} and x on {value.device}; they must be on one device")


def _out_names(dtypes: tuple[DType, ...]) -> list[str]:
    return ["out"] if len(dtypes) == 1 else [f"out[{i}]" for i in range(len(dtypes))]


def _check_out(name: str, main: ArrayView, out: ArrayView, dtype: DType, shape: tuple[int, ...]) -> None:
    _check_address(name, out)
    _same_place(name, out, main)
    if out.shape != shape:
        raise ScanValueError(f"{name} has shape {out.shape}; the result has shape {shape}")
    if out.dtype is not dtype:
        raise ScanTypeError(f"{name} has dtype {out.dtype}; the result has dtype {dtype}")
    if out.readonly:
        raise ScanValueError(f"{name} is read-only")
    reach = 1
    for stride, size in sorted((abs(s), n) for s, n in zip(out.strides, out.shape, strict=True) if n > 1):
        if stride < reach and 0 not in out.shape:
            raise ScanValueError(f"{name} overlaps itself: shape {out.shape} with strides {out.strides} (in elements)")
        reach += stride * (size - 1)


def _check_bool(name: str, view: ArrayView, main: ArrayView, shape: tuple[int, ...]) -> ArraySpec:
    if view.dtype.kind is not Kind.BOOL:
        raise ScanTypeError(f"{name} must have dtype bool; got {view.dtype}")
    return _broadcast(name, view, main, shape)


def _broadcast(name: str, view: ArrayView, main: ArrayView, shape: tuple[int, ...], of: str = "x") -> ArraySpec:
    """An array as it looks when it is broadcast to `shape`."""
    _check_address(name, view)
    _same_place(name, view, main)
    missing = len(shape) - len(view.shape)
    aligned = shape[max(missing, 0) :]
    if missing < 0 or any(m not in (1, n) for m, n in zip(view.shape, aligned, strict=True)):
        raise ScanValueError(f"{name} of shape {view.shape} does not broadcast to {of} of shape {shape}")
    strides = [0 if m == 1 else s for m, s in zip(view.shape, view.strides, strict=True)]
    return ArraySpec(view.dtype, shape, (0,) * missing + tuple(strides), view.pointer % ALIGNMENT)


def _check_segments(
    kind: str | None, view: ArrayView | None, main: ArrayView, shape: tuple[int, ...], axis: int
) -> Segments | None:
    if kind is None or view is None:
        return None
    if kind == "reset":
        return Segments(kind, _check_bool(kind, view, main, shape))
    if kind == "keys":
        if view.dtype.kind is Kind.COMPLEX:
            raise ScanTypeError(f"keys must be real; got {view.dtype}")
        if len(view.shape) != 1 or len(shape) == 1:
            return Segments(kind, _broadcast(kind, view, main, shape))
        spec = _broadcast(kind, view, main, shape[axis : axis + 1])
        strides = tuple(spec.strides[0] if i == axis else 0 for i in range(len(shape)))
        return Segments(kind, ArraySpec(spec.dtype, shape, strides, spec.address))
    _check_address(kind, view)
    _same_place(kind, view, main)
    if view.dtype.name not in ("int32", "int64"):
        raise ScanTypeError(f"offsets must have dtype int32 or int64; got {view.dtype}")
    if len(view.shape) != 1 or view.shape[0] < 1:
        raise ScanValueError(f"offsets must have one axis, of segments + 1 elements; got shape {view.shape}")
    return Segments(kind, _spec(view))


def _along(spec: ArraySpec, axis: int) -> ArraySpec:
    """An array of rows, as it stands still along the scanned axis."""
    shape = (*spec.shape[:axis], 1, *spec.shape[axis:])
    return ArraySpec(spec.dtype, shape, (*spec.strides[:axis], 0, *spec.strides[axis:]), spec.address)


def _sorted_like(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides that decrease: those of C order, as far as order goes."""
    return tuple(range(len(shape), 0, -1))
