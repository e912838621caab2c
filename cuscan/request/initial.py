"""Checks of the user's `initial`: numbers must fit their types."""

from __future__ import annotations

import functools
import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from cuscan.dtypes import DTYPES, EXACT, DType, Kind
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop import adopt
from cuscan.operators import Monoid
from cuscan.states import make_states

if TYPE_CHECKING:
    from cuscan.request import ScanRequest
    from cuscan.request.kind import CallKind


_NUMBERS = int, float, complex  # the usual types


def check_initial(initial: object, result: DType, name: str = "initial") -> complex:
    """Return the user's `initial` as a Python number; raises an error if the result dtype cannot hold it."""
    item = initial if type(initial) in _NUMBERS else item_of(initial, name)
    if type(item) not in _NUMBERS and not isinstance(item, numbers.Number):
        shape = tuple(getattr(initial, "shape", ()))
        advice = f" of shape {shape}; pass {name}.item() if it is one number, or carry= if each line has its own"
        raise ScanTypeError(f"{name} must be a scalar number; got {type(initial).__name__}{advice if shape else ''}")
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
    if largest < abs(value.real) < float("inf") or largest < abs(value.imag) < float("inf"):
        raise ScanValueError(f"{name}={number!r} does not fit dtype {result} (up to {largest:.6g})")
    return value


def item_of(value: Any, name: str) -> Any:
    """Return the value of a scalar or 0-D array of any library; other objects are returned unchanged."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    elif getattr(value, "shape", None) == () and hasattr(value, "__dlpack__"):
        view = adopt(value, name)
        if view.traced and view.library.name == "torch":
            raise ScanTypeError(
                f"{name} requires grad or is traced, and a scan fetches its value: pass {name}.detach()"
            )
        value = view.owner
    if not hasattr(value, "item") or getattr(value, "shape", None) != ():
        return value
    try:
        return value.item()
    except TypeError:  # of a tracer of JAX
        raise ScanTypeError(f"{name} is traced, and a scan is compiled for its value: pass a number") from None


def check_start(initial: Any, op: Monoid, result: DType) -> tuple[complex, ...] | None:
    """Return the user's `initial` as numbers, one per field of a user-defined state; None if there is none."""
    if initial is None:
        return None
    if not op.dtypes:
        return (check_initial(initial, result),)
    if not isinstance(initial, tuple) or len(initial) != len(op.dtypes):
        raise ScanTypeError(f"initial must be a tuple of {len(op.dtypes)} numbers for op={op.name!r}; got {initial!r}")
    return tuple(check_initial(number, DTYPES[name]) for number, name in zip(initial, op.dtypes, strict=True))


def initial_argument(kind: CallKind, initial: Any) -> Any:
    """Return the kernels' `initial` argument: a NumPy number, or an array of one structured element."""
    op, result = kind.op, kind.results[0]
    start = check_start(initial, op, result)
    if not op.dtypes:
        return np.dtype(kind.carry).type(0 if start is None else start[0])
    return make_states(op.states.dtype(""), op.identity(result) if start is None else start, (1,))


def carry_start(request: ScanRequest, initial: Any) -> tuple[complex, ...]:
    """Return the fields of the outgoing carry of zero elements, without an incoming one."""
    start, op = check_start(initial, request.op, request.result.dtype), request.op
    parts = op.identity(request.result.dtype) if start is None else op.states.start(*start)
    return (*parts, *(0,) * (len(request.carry_out) - len(parts)))  # "count" and "key" are 0


@functools.cache
def _int_range(dtype: DType) -> tuple[int, int]:
    limits = np.iinfo(dtype.name)
    return int(limits.min), int(limits.max)


@functools.cache
def _largest(dtype: DType) -> float:
    if dtype.name == "bfloat16":
        return float(np.finfo(np.float32).max) * (1 - 2**-8) / (1 - 2**-24)
    return float(np.finfo(dtype.name).max)
