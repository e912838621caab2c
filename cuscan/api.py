"""The public functions. Each takes the whole way of an array: adopt, request, run, hand back."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from cuscan import backends
from cuscan.call import SEGMENTS, Operands, make_flags
from cuscan.custom import Operator
from cuscan.dtypes import DTYPES, Kind
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop import adopt
from cuscan.interop.view import ArrayView
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, Monoid

Array = Any


def scan(
    x: Array,
    op: str | Monoid = "add",
    *,
    axis: int = -1,
    reverse: bool = False,
    exclusive: bool = False,
    include_initial: bool = False,
    mask: Array | None = None,
    skipna: bool = False,
    initial: Any = None,
    reset: Array | None = None,
    offsets: Array | None = None,
    keys: Array | None = None,
    validate: bool = False,
    dtype: Any = None,
    out: Array | None = None,
) -> Array:
    """Prefix scan along one axis: out[i] = x[0] op x[1] op ... op x[i].

    Args:
        x: a CuPy array, a torch tensor (CUDA or CPU), a NumPy array, or any other array with
            `__dlpack__` and `__dlpack_device__`, of at least one dimension. Any strides. For an operator
            with a state of several fields a tuple of arrays, one a field, or a NumPy structured array.
        op: "add", "mul", "min", "max", "logaddexp" (floating point), on bool and integers "and", "or",
            "xor"; or an `Operator` of your own.
        axis: the axis to scan along.
        reverse: scan from the end: exactly flip(scan(flip(x))).
        exclusive: out[i] combines the elements strictly before i in scan order; the first one is
            `initial`, or the operator's identity.
        include_initial: one more result along the axis: what precedes the first element (`initial`, or the
            identity), then the inclusive results. With `exclusive`, the exclusive results, then the total;
            that differs only where there are segments.
        mask: bool array of x's library and device that broadcasts to `x.shape`. Where it is False
            the element counts as the operator's identity, whatever it holds (NaN too).
        skipna: whether NaN counts as the identity.
        initial: a scalar that is combined before the first element, of every segment if there are any; for a
            state of several fields a tuple.
        reset: bool array that broadcasts to `x.shape`: where it is True, a segment starts in scan order.
        offsets: int32 or int64, of segments + 1 elements: segment k is [offsets[k], offsets[k + 1]) along the
            axis; segments may be empty. On a GPU no element outside of x is touched whatever offsets hold:
            every one that lies inside the axis is a boundary.
        keys: an array along the axis, or one that broadcasts to `x.shape`: a segment starts where the key
            differs from the one before.
        validate: check offsets that are on a GPU, and wait for it. Those on the CPU are always checked.
        dtype: of the result. By default that of out, else that of x; for add and mul, bool and integers
            become int64 (unsigned integers uint64 with NumPy and CuPy). Elements are converted on load and
            rounded once, on store; float16 and bfloat16 are accumulated in float32. Integers wrap.
        out: where to put the result: an array of x's library, device and shape, and the result's
            dtype; x itself is allowed, any other overlap is not.

    Returns:
        An array of x's library on x's device, of x's shape; `out` if it was given. The work is
        queued on the library's current stream. The bits of a floating-point result depend on the
        element's position, the dtypes and the memory layout alone (`cuscan.order`).

    Raises:
        ScanValueError: an axis, shape, alias or value that does not fit (also a ValueError).
        ScanTypeError: a type, dtype, library or device that is not accepted (also a TypeError).
        MissingDependencyError: x is on a GPU and CuPy is not installed (also an ImportError).
        CompileError: an operator of your own that does not compile.

    The GPU algorithm is the single-pass scan with decoupled look-back (Merrill & Garland 2016).
    """
    flags = make_flags(op, axis, reverse, exclusive, include_initial, skipna, dtype, False, validate)
    views, roles, structure = _adopt_values(x, op)
    if not (mask is None and reset is None and offsets is None and keys is None):
        views, roles = _adopt_beside(views, roles, mask=mask, reset=reset, offsets=offsets, keys=keys)
    outs = None if out is None else _adopt_outs(out)
    results = backends.run(flags, Operands(views, roles, outs), initial)
    if out is not None:
        return out
    if structure is not None:
        return _as_structure(results, structure)
    return results if len(results) > 1 or isinstance(x, tuple) else results[0]


def cumsum(x: Array, **keywords: Any) -> Array:
    """Cumulative sum: `scan(x, "add", ...)`; see `scan` for the keywords."""
    return scan(x, "add", **keywords)


def cumprod(x: Array, **keywords: Any) -> Array:
    """Cumulative product: `scan(x, "mul", ...)`; see `scan` for the keywords."""
    return scan(x, "mul", **keywords)


def nancumsum(x: Array, **keywords: Any) -> Array:
    """Cumulative sum in which NaN counts as 0: `scan(x, "add", skipna=True, ...)`."""
    return scan(x, "add", skipna=True, **keywords)


def nancumprod(x: Array, **keywords: Any) -> Array:
    """Cumulative product in which NaN counts as 1: `scan(x, "mul", skipna=True, ...)`."""
    return scan(x, "mul", skipna=True, **keywords)


def logcumsumexp(x: Array, **keywords: Any) -> Array:
    """log(cumsum(exp(x))) of floating-point x, without overflow: `scan(x, "logaddexp", ...)`."""
    return scan(x, "logaddexp", **keywords)


def cummax(x: Array, *, return_indices: bool = False, ties: str = "first", **keywords: Any) -> Array:
    """Running maximum: `scan(x, "max", ...)`; see `scan` for the keywords.

    With return_indices, the tuple (values, indices): int64 positions of the values in x, along the axis. Of equal
    values the `ties` ("first" or "last") one in scan order; a NaN goes before all numbers, as in torch. Where no element
    of x is in a value yet (it is the identity, or `initial`), the index is -1. `out` is a tuple then.
    """
    return scan(x, _extremum("max", return_indices, ties), **keywords)


def cummin(x: Array, *, return_indices: bool = False, ties: str = "first", **keywords: Any) -> Array:
    """Running minimum: `scan(x, "min", ...)`; see `cummax` for `return_indices` and `ties`."""
    return scan(x, _extremum("min", return_indices, ties), **keywords)


def cumulative_sum(x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The cumulative sum of the array API standard: `axis` may be left out for one dimension only.

    Integers become int64, or uint64 if they are unsigned, for arrays of every library.
    """
    return _cumulative(x, "add", axis, dtype, include_initial)


def cumulative_prod(x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The cumulative product of the array API standard; see `cumulative_sum`."""
    return _cumulative(x, "mul", axis, dtype, include_initial)


def linear_recurrence(
    a: Array,
    b: Array,
    *,
    axis: int = -1,
    reverse: bool = False,
    initial: Any = None,
    reset: Array | None = None,
    offsets: Array | None = None,
    keys: Array | None = None,
    validate: bool = False,
    return_last: bool = False,
    dtype: Any = None,
    out: Array | None = None,
) -> Array:
    """The recurrence h[t] = a[t] * h[t - 1] + b[t] along one axis.

    Args:
        a: an array of b's library that broadcasts to `b.shape`, or a number: one that does not vary costs no memory
            traffic.
        b: floating point or complex, of at least one dimension.
        axis, reverse, dtype, out, validate: as for `scan`. float16 and bfloat16 are computed in float32.
        initial: the carry in h[-1]: a number, or an array that broadcasts to b's shape without the axis. 0 by default.
        reset, offsets, keys: as for `scan`: a segment starts from a state of zero, so h = b there. Only what begins
            with the first element (in scan order) continues the carry in, unless a reset says otherwise.
        return_last: also return the state behind the last element, of b's shape without the axis: the `initial` of the
            next chunk of a sequence. float32 for float16 and bfloat16, else the result's dtype.

    Returns:
        h, of b's shape; or the tuple (h, last).

    Raises: as `scan`.

    Two steps make one, (a, b) then (a', b'): (a' a, a' b + b'); products and sums are rounded one by one and nothing is
    divided. Where |a| <= 1 the error of h[t] is at most (2 log2(t) + 64) eps times the same recurrence over absolute values.
    """
    flags = make_flags(LINEAR_RECURRENCE, axis, reverse, dtype=dtype, return_last=return_last, validate=validate)
    value = adopt(b, "b")
    number = initial if initial is None or _is_number(initial) else None
    carry = None if number is initial else initial
    views, roles = _adopt_beside(
        (_adopt_like(a, value), value), ("a", "b"), reset=reset, offsets=offsets, keys=keys, initial=carry
    )
    results = backends.run(flags, Operands(views, roles, None if out is None else _adopt_outs(out)), number)
    if return_last:
        return results
    return results[0]


# ---- arguments -------------------------------------------------------------------------------------------------------


_X = ("x",)


def _adopt_values(x: Array, op: Any) -> tuple[tuple[ArrayView, ...], tuple[str, ...], Any]:
    """The arrays of elements and what errors call them; and the result's dtype, if they are one structured array."""
    fields = dict(zip(op.fields, op.dtypes, strict=True)) if isinstance(op, Operator) else {}
    structure = None
    if isinstance(x, tuple):
        if len(x) != len(fields):
            one = "a CuPy or NumPy array, a torch tensor or another array with __dlpack__"
            wanted = f"a tuple of {len(fields)} arrays" if fields else one
            raise ScanTypeError(f"x must be {wanted} for op={op!r}; got tuple of {len(x)}")
        named = {f"x[{i}]": array for i, array in enumerate(x)}
    elif fields and isinstance(x, np.ndarray) and x.dtype.names:
        if set(x.dtype.names) != set(fields):
            raise ScanTypeError(f"x has fields {', '.join(x.dtype.names)}; the state of op={op!r} {', '.join(fields)}")
        named = {f"x[{name!r}]": x[name] for name in fields}
        structure = np.dtype(list(fields.items()))
    else:
        return (adopt(x, "x"),), _X, None
    return tuple(adopt(array, name) for name, array in named.items()), tuple(named), structure


def _adopt_beside(
    views: tuple[ArrayView, ...], roles: tuple[str, ...], **beside: Any
) -> tuple[tuple[ArrayView, ...], tuple[str, ...]]:
    """The values, and the arrays beside them that are given, in the order of the keywords."""
    given = {name: array for name, array in beside.items() if array is not None}
    segments = [name for name in SEGMENTS if name in given]
    if len(segments) > 1:
        raise ScanValueError(f"{' and '.join(segments)} exclude each other: pass one of them")
    adopted = tuple(adopt(array, name) for name, array in given.items())
    return views + adopted, roles + tuple(given)


def _as_structure(results: tuple[Array, ...], dtype: np.dtype[Any]) -> Array:
    whole = np.empty(results[0].shape, dtype)
    for name, part in zip(dtype.names or (), results, strict=True):
        whole[name] = part
    return whole


def _adopt_outs(out: Any) -> tuple[ArrayView, ...]:
    if isinstance(out, tuple):
        return tuple(adopt(array, f"out[{i}]") for i, array in enumerate(out))
    return (adopt(out, "out"),)


def _adopt_like(a: Any, value: ArrayView) -> ArrayView:
    """An array, or a number as an array of one element in the library and on the device of `value`."""
    if not _is_number(a):
        return adopt(a, "a")
    dtype = DTYPES["complex128" if isinstance(a, complex) else value.dtype.accumulator]
    return value.library.adopt(value.library.full(a, dtype, value.device), "a")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number | np.generic)


def _extremum(op: str, indices: bool, ties: str) -> str | Monoid:
    if not isinstance(indices, bool | np.bool_):
        raise ScanTypeError(f"return_indices must be True or False; got {indices!r}")
    if ties not in ("first", "last"):
        raise ScanValueError(f"ties must be 'first' or 'last'; got {ties!r}")
    return INDEXED[op, ties] if indices else op


def _cumulative(x: Array, op: str, axis: int | None, dtype: Any, include_initial: bool) -> Array:
    value = adopt(x, "x")
    if axis is None:
        if len(value.shape) != 1:
            raise ScanValueError(f"axis must be given for x of {len(value.shape)} dimensions")
        axis = 0
    if dtype is None and value.dtype.kind is Kind.UNSIGNED:
        dtype = "uint64"
    return scan(x, op, axis=axis, dtype=dtype, include_initial=include_initial)
