"""The public functions. Each takes the whole way of an array: adopt, request, run, hand back."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from cuscan import autograd
from cuscan.call import SEGMENTS, Operands, find_dtype, make_flags
from cuscan.custom import Operator
from cuscan.dtypes import DTYPES, INEXACT, Kind
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.initial import check_initial
from cuscan.interop import adopt
from cuscan.interop.view import ArrayView, number_like
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
            `__dlpack__` and `__dlpack_device__`, of at least one dimension. Any strides. For an `Operator`
            with a `state` of several fields a tuple of arrays that broadcast against each other, one a field
            in its order, or a NumPy structured array with those fields.
        op: "add", "mul", "min", "max"; on floating point "logaddexp", log(exp(x) + exp(y)); on bool and
            integers "and", "or", "xor"; or an `Operator` of your own.
        axis: the axis to scan along.
        reverse: scan from the end: exactly flip(scan(flip(x))).
        exclusive: out[i] combines the elements strictly before i in scan order; the first one is
            `initial`, or the operator's identity (0, 1, the end of the dtype's range, -inf).
        include_initial: n + 1 results along the axis: what precedes the first element (`initial`, or the
            identity), then the inclusive results. With `exclusive`, the exclusive results, then the total;
            that differs only where there are segments.
        mask: bool array of x's library and device that broadcasts to `x.shape`. Where it is False
            the element counts as the operator's identity, whatever it holds (NaN too).
        skipna: whether NaN counts as the identity (of complex numbers either part, of a state any field).
            No effect on bool and integers.
        initial: a number that the result's dtype can hold, combined before the first element, of every segment
            if there are any; for a state of several fields a tuple of numbers.
        reset: where segments start; at most one of `reset`, `offsets` and `keys`. A bool array of x's library
            and device that broadcasts to `x.shape`: where it is True, the element is the first of a segment
            in scan order (with `reverse`, of one that goes on to lower positions).
        offsets: int32 or int64, one dimension of segments + 1 elements, for all rows: segment k is
            [offsets[k], offsets[k + 1]) along the axis. From 0 to the size of the axis, never decreasing;
            segments may be empty. On a GPU that is not checked: those inside the axis are boundaries as long as they
            ascend, and whatever they hold, nothing outside of the arrays is touched.
        keys: a real array of one dimension along the axis (whichever that is), or one that broadcasts to
            `x.shape`: a segment starts where the key differs from the one before. NaN differs from NaN.
        validate: check offsets that are on a GPU, and wait for it. Those on the CPU are always checked.
        dtype: of the result. By default that of out, else that of x; for add and mul, bool and integers
            become int64 (unsigned integers uint64 with NumPy and CuPy). Elements are converted on load and
            rounded once, on store; float16 and bfloat16 are accumulated in float32. Integers wrap. An operator
            with a state of several fields has the dtypes of its fields, and takes none.
        out: where to put the result: an array of x's library and device, the result's shape and dtype;
            x itself is allowed, any other overlap is not. A tuple of arrays where the result is one or x is a
            structured array.

    Returns:
        An array of x's library on x's device, of x's shape (one more along the axis with `include_initial`);
        for a state of several fields a tuple of arrays, or a structured array if x is one. `out` if it was
        given. On a GPU the work is queued on the library's current stream, and nothing waits for it. The bits
        of a floating-point result depend on the element's position, the dtypes, the operator and the memory
        layout alone (`cuscan.order`); those of logaddexp also on the exp and log of the machine.

    Raises:
        ScanValueError: an axis, shape, alias or value that does not fit (also a ValueError).
        ScanTypeError: a type, dtype, library or device that is not accepted (also a TypeError); a tensor that
            requires grad, with `out` or an operator that has no derivative.
        MissingDependencyError: x is on a GPU and CuPy is not installed (also an ImportError).
        CompileError: an operator of your own that does not compile; the message shows your line.

    The GPU algorithm is a single-pass scan, after decoupled look-back (Merrill & Garland 2016).
    """
    flags = make_flags(op, axis, reverse, exclusive, include_initial, skipna, dtype, False, validate)
    if isinstance(op, Operator) or isinstance(x, tuple):
        views, roles, structure = _adopt_values(x, op)
    else:
        views, roles, structure = (adopt(x, "x"),), _X, None
    if not (mask is None and reset is None and offsets is None and keys is None):
        views, roles = _adopt_beside(views, roles, mask=mask, reset=reset, offsets=offsets, keys=keys)
    outs = None if out is None else _adopt_outs(out)
    results = autograd.run(flags, Operands(views, roles, outs), initial)
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
    """Cumulative sum in which NaN counts as 0: `scan(x, "add", skipna=True, ...)`; see `scan` for the keywords."""
    return scan(x, "add", skipna=True, **keywords)


def nancumprod(x: Array, **keywords: Any) -> Array:
    """Cumulative product in which NaN counts as 1: `scan(x, "mul", skipna=True, ...)`; see `scan` for the keywords."""
    return scan(x, "mul", skipna=True, **keywords)


def logcumsumexp(x: Array, **keywords: Any) -> Array:
    """log(cumsum(exp(x))) without overflow: `scan(x, "logaddexp", ...)`; see `scan` for the keywords.

    For floating point (pass `dtype` for integers). Infinities and NaN as in `numpy.logaddexp.accumulate`. What is
    carried along is the greatest element and the sum of the exponentials relative to it (Milakov & Gimelshein 2018).
    """
    return scan(x, "logaddexp", **keywords)


def cummax(x: Array, *, return_indices: bool = False, ties: str = "first", **keywords: Any) -> Array:
    """Running maximum: `scan(x, "max", ...)`; see `scan` for the keywords.

    With `return_indices`, the tuple (values, indices): indices are int64 positions along the axis, in x (with `reverse`
    too). Of equal values it is the `ties` one in scan order: "first", or "last" as in torch. NaN goes before all
    numbers. Where no element of x is in a value yet (it is the identity, or `initial`), the index is -1. `out` is then
    a tuple of two arrays. Without `return_indices`, `ties` makes no difference.
    """
    return scan(x, _extremum("max", return_indices, ties), **keywords)


def cummin(x: Array, *, return_indices: bool = False, ties: str = "first", **keywords: Any) -> Array:
    """Running minimum: `scan(x, "min", ...)`; see `cummax` for `return_indices` and `ties`."""
    return scan(x, _extremum("min", return_indices, ties), **keywords)


def cumulative_sum(x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The cumulative sum of the array API standard: `axis` may be left out for one dimension only.

    By default bool and signed integers become int64, unsigned integers uint64 (torch tensors too), all else stays. With
    `include_initial` the result begins with 0 and is one longer.
    """
    return _cumulative(x, "add", axis, dtype, include_initial)


def cumulative_prod(x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The cumulative product of the array API standard: as `cumulative_sum`, and begins with 1."""
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
        a: an array of b's library and device that broadcasts to `b.shape`, or a number. What does not vary costs no
            memory traffic.
        b: floating point or complex (or pass such a `dtype`), of at least one dimension.
        axis: the axis of b that t runs along.
        reverse: run from the end: h[t] = a[t] * h[t + 1] + b[t].
        initial: the state that comes in, h[-1]: a number, or an array that broadcasts to b's shape without the axis.
            0 by default.
        reset: as for `scan`; at most one of `reset`, `offsets` and `keys`. A segment starts from a state of zero: h = b
            at its first element. A reset at the first element (in scan order) drops `initial`.
        offsets: as for `scan`. `initial` comes into what begins with the first element, and into no other segment.
        keys: as for `scan`; `initial` as for `offsets`.
        validate: as for `scan`.
        return_last: also return the state behind the last element (in scan order): the `initial` of the next chunk.
        dtype: of h; by default that of `out`, else that of b. float16 and bfloat16 are computed in float32.
        out: where to put h, as for `scan`; b (or a) itself is allowed.

    Returns:
        h, of b's shape; with `return_last` the tuple (h, last), where last has b's shape without the axis, and h's
        dtype (float32 for float16 and bfloat16). A sequence in chunks gives what it gives in one call, but for
        rounding.

    Raises: as `scan`.

    Two steps make one, (a, b) then (a', b'): (a' a, a' b + b') (Blelloch 1990), in the order of `cuscan.order`.
    Products and sums are rounded one by one, and nothing is divided. So the error of h[t] is at most

        eps / 2 * (the sum over j <= t of (t - j + c) |b[j] a[j + 1] ... a[t]|),  c = 64 + t / 2**16,

    to first order in the eps of the state's dtype, without underflow, for a and b as converted to it. `initial` is
    b[-1]; it is three times that for complex numbers, and a rounding more for float16 and bfloat16. The loop itself has
    2 (t - j) + 1 in place of t - j + c.

    Products of neighbouring a are formed before the states are known. Where |a| > 1 for long they overflow (within a
    tile in the state's dtype, along the axis in float64), and h becomes inf or NaN even if the loop's does not. Where
    a = 0 the history is cut off exactly if it is finite; a segment cuts off any.
    """
    flags = make_flags(LINEAR_RECURRENCE, axis, reverse, dtype=dtype, return_last=return_last, validate=validate)
    value = adopt(b, "b")
    number = initial if initial is None or _is_number(initial) else None
    carry = None if number is initial else initial
    views, roles = _adopt_beside(
        (_adopt_like(a, value, dtype), value), ("a", "b"), reset=reset, offsets=offsets, keys=keys, initial=carry
    )
    results = autograd.run(flags, Operands(views, roles, None if out is None else _adopt_outs(out)), number)
    if return_last:
        return results
    return results[0]


# ---- arguments -------------------------------------------------------------------------------------------------------


_X = ("x",)  # what errors call a single array of elements


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
        named = {f"x[{name!r}]": _whole_strides(x[name]) for name in fields}
        structure = np.dtype(list(fields.items()), align=x.dtype.isalignedstruct)
    else:
        return (adopt(x, "x"),), _X, None
    return tuple(adopt(array, name) for name, array in named.items()), tuple(named), structure


def _whole_strides(field: Array) -> Array:
    """A field whose strides are no multiples of its item size, as they are in packed structures, is copied."""
    return field.copy() if any(stride % field.itemsize for stride in field.strides) else field


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


def _adopt_like(a: Any, value: ArrayView, dtype: Any) -> ArrayView:
    """An array, or a number of the type that a recurrence over `value` is computed in."""
    if not _is_number(a):
        return adopt(a, "a")
    result = value.dtype if dtype is None else find_dtype(dtype)
    number = DTYPES[result.accumulator] if result.kind in INEXACT else DTYPES["float64"]
    if isinstance(a, complex | np.complexfloating) and number.kind is not Kind.COMPLEX:
        number = DTYPES["complex128"]  # which is an error
    return number_like(check_initial(a, number, "a"), number, value)


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
