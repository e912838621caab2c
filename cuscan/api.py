"""The functions that all others call. Each takes the whole way of an array: adopt, request, run, hand back."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from cuscan import autograd
from cuscan.backends import repeats
from cuscan.custom import Operator
from cuscan.dtypes import DTYPES, INEXACT, Kind
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop import adopt
from cuscan.interop.view import ArrayView, number_like
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request.call import CARRY, SEGMENTS, Flags, Operands, choose_extremum, find_dtype, make_flags
from cuscan.request.initial import check_initial
from cuscan.signatures import (
    LAST,
    Array,
    No,
    OfScan,
    OfTotal,
    OfTotals,
    OneNumber,
    Op,
    Pair,
    PairWithCarry,
    Recurrence,
    RecurrenceWithLast,
    Ties,
    WithCarry,
    Yes,
    choose_axis,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cuscan.signatures import NumPy


@overload
def scan(x: NumPy, op: Op = ..., *, return_carry: No = ..., **keywords: Unpack[OfScan]) -> NumPy: ...
@overload
def scan(x: NumPy, op: Op = ..., *, return_carry: Yes, **keywords: Unpack[OfScan]) -> WithCarry[NumPy]: ...
@overload
def scan(x: Array, op: Op = ..., *, return_carry: No = ..., **keywords: Unpack[OfScan]) -> Array: ...
@overload
def scan(x: Array, op: Op = ..., *, return_carry: Yes, **keywords: Unpack[OfScan]) -> WithCarry[Array]: ...
@overload
def scan(
    x: tuple[Array, ...], op: Operator, *, return_carry: No = ..., **keywords: Unpack[OfScan]
) -> tuple[Array, ...]: ...
@overload
def scan(x: tuple[Array, ...], op: Operator, *, return_carry: Yes, **keywords: Unpack[OfScan]) -> tuple[Any, ...]: ...
def scan(
    x: Any,
    op: Op = "add",
    *,
    axis: int = LAST,
    dim: int | None = None,
    reverse: bool = False,
    exclusive: bool = False,
    include_initial: bool = False,
    mask: Any = None,
    skipna: bool = False,
    initial: Any = None,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
    carry: Any = None,
    return_carry: bool = False,
    validate: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Prefix scan along one axis: out[i] = x[0] op x[1] op ... op x[i].

    Args:
        x: a CuPy or JAX array, a torch tensor (CUDA or CPU), a NumPy array, or any other array with
            `__dlpack__` and `__dlpack_device__`, of at least one dimension. Any strides. For an `Operator`
            with a `state` of several fields a tuple of arrays that broadcast against each other, one a field
            in its order, or a NumPy structured array with those fields.
        op: "add", "mul", "min", "max"; on floating point "logaddexp", log(exp(x) + exp(y)); on bool and
            integers "and", "or", "xor"; or an `Operator` of your own. Other names of the built-in ones: "sum", "prod",
            and functions that do the same (`np.add`, `torch.maximum`, `jax.numpy.add`, `operator.mul`, `max`).
        axis: the axis to scan along, by default the last.
        dim: another name of axis, as in torch.
        reverse: scan from the end: exactly flip(scan(flip(x))).
        exclusive: out[i] combines the elements strictly before i in scan order; the first one is
            `initial`, or the operator's identity (0, 1, the end of the dtype's range, -inf).
        include_initial: n + 1 results along the axis: what precedes the first element (`initial`, or the
            identity), then the inclusive results. With `exclusive`, the exclusive results, then the total;
            that differs only where there are segments.
        mask: bool array of x's library and device that broadcasts to `x.shape`. Where it is False
            the element counts as the operator's identity, whatever it holds (NaN too). One of one dimension that
            has the length of the scanned axis, and not of the last one, lies along the scanned axis.
        skipna: whether NaN counts as the identity (of complex numbers either part, of a state any field).
            No effect on bool and integers.
        initial: a number that the result's dtype can hold, or an array without dimensions, whose value is fetched
            (but for one of JAX, which a program may have yet to compute if there are no segments); combined before the
            first element, of every segment if there are any. For a state of several fields a tuple of numbers.
        reset: where segments start; at most one of `reset`, `offsets` and `keys`. A bool array of x's library
            and device that broadcasts to `x.shape`, or lies along the axis as `mask` may: where it is True, the
            element is the first of a segment in scan order (with `reverse`, of one that goes on to lower positions).
        offsets: int32 or int64 (or a list), one dimension of segments + 1 elements, for all rows: segment k is
            [offsets[k], offsets[k + 1]) along the axis. From 0 to the size of the axis, never decreasing;
            segments may be empty. On a GPU that is not checked: those inside the axis are boundaries as long as they
            ascend, and whatever they hold, nothing outside of the arrays is touched.
        keys: a real array of one dimension along the axis (whichever that is), or one that broadcasts to
            `x.shape`: a segment starts where the key differs from the one before. NaN differs from NaN.
        carry: what precedes the first element of each line in scan order (with `reverse`: what follows the last), as
            `return_carry` gives it: see Carries below. It enters what is open where x begins, so with segments the
            first one, unless it starts anew at the first element: where `reset` is True there, where `keys` has another
            key than the last one so far, or where the first segment of `offsets` in scan order is empty. `initial` is
            then before the segments that start in x alone.
        return_carry: also return the carry behind the last element: the `carry` of the next chunk.
        validate: check offsets that are on a GPU, and wait for it. Those on the CPU are always checked.
        dtype: of the result. By default that of out, else that of x; for add and mul, bool and integers
            become int64 (unsigned integers uint64 with NumPy and CuPy; integers of JAX stay). Elements are converted
            on load and rounded once, on store; float16 and bfloat16 are accumulated in float32. Integers wrap. An
            operator with a state of several fields has the dtypes of its fields, and takes none.
        out: where to put the result: an array of x's library and device, the result's shape and dtype;
            x itself is allowed, any other overlap is not. A tuple of arrays where the result is one or x is a
            structured array.

    Returns:
        An array of x's library on x's device (of a library without the array API standard, see
        `x.__array_namespace__`, a CuPy or NumPy array), of x's shape (one more along the axis with `include_initial`);
        for a state of several fields a tuple of arrays, or a structured array if x is one. `out` if it was
        given. With `return_carry` the tuple (result, carry), or (result, ..., carry) where there are several. On a GPU
        the work is queued on the library's current stream, and nothing waits for it. The bits
        of a floating-point result depend on the element's position, the dtypes, the operator and the memory
        layout alone (`cuscan.order`); those of logaddexp also on the exp and log of the machine.

    Raises:
        ScanValueError: an axis, shape, alias or value that does not fit (also a ValueError).
        ScanTypeError: a type, dtype, library or device that is not accepted (also a TypeError); a tensor that
            requires grad, with `out` or an operator that has no derivative.
        MissingDependencyError: x is on a GPU and CuPy is not installed (also an ImportError).
        CompileError: an operator of your own that does not compile; the message shows your line.

    Carries: a line is a row of x along the axis. A carry is an array of the other axes' shape, or a tuple of such
    arrays, in the types in which the kernels carry states along the axis:

        add, mul                   float64; float32 for float16 and bfloat16; complex128 if complex; of integers
                                   int64, uint64, or 32 bits if narrower
        min, max                   the result's dtype; float32 for float16 and bfloat16, 32 bits for narrow integers
        and, or, xor               the result's dtype; 32 bits for bool and narrow integers
        logaddexp                  (greatest, sum of exponentials relative to it), float64 of float64, else float32
        cummax, cummin of indices  (value, position, elements so far): as max; int64; int64
        linear_recurrence          (product of a, h): as add
        an `Operator`              the fields of its state, or one number as for max
        with `keys`                the last key as one more, in the dtype of keys

    A sequence in chunks gives what it gives in one call: exactly where the operator is exact (integers, extrema, bits),
    else but for rounding. Sums of either way are within eps * (32 + i / 2**20) * (|x[0]| + ... + |x[i]|) of the exact
    ones, to first order in the eps of the accumulator (float32, float64); each chunk adds a rounding of the carry.
    Positions go on counting from chunk to chunk: they are those in all chunks so far, joined in the order of the axis.
    With `reverse`, where each chunk lies before those of earlier calls, the positions of these move up by its length.

    The GPU algorithm is a single-pass scan, after decoupled look-back (Merrill & Garland 2016).
    """
    axis = choose_axis(axis, dim)
    flags = make_flags(op, axis, reverse, exclusive, include_initial, skipna, dtype, False, validate, return_carry)
    if isinstance(op, Operator) or isinstance(x, tuple):
        arrays, roles, structure = _take_apart(x, op)
    else:
        arrays, roles, structure = (x,), _X, None
    if not (mask is None and reset is None and offsets is None and keys is None):
        arrays, roles = _put_beside(arrays, roles, mask=mask, reset=reset, offsets=offsets, keys=keys)
    if carry is not None:
        arrays, roles = _put_carry(arrays, roles, carry)
    results = _run(flags, roles, arrays, out, initial)
    behind = results[-1:] if return_carry else ()
    if out is not None:
        results = (out if isinstance(out, tuple) else (out,)) + behind
    elif structure is not None:
        results = (_as_structure(results[: len(results) - len(behind)], structure), *behind)
    as_tuple = isinstance(x, tuple) or isinstance(out, tuple)
    return results if len(results) > 1 or as_tuple else results[0]


@overload
def linear_recurrence(a: Any, b: NumPy, *, return_carry: No = ..., **keywords: Unpack[Recurrence]) -> NumPy: ...
@overload
def linear_recurrence(a: Any, b: NumPy, *, return_carry: Yes, **keywords: Unpack[Recurrence]) -> WithCarry[NumPy]: ...
@overload
def linear_recurrence(
    a: Any, b: NumPy, *, return_carry: No = ..., **keywords: Unpack[RecurrenceWithLast]
) -> Pair[NumPy]: ...
@overload
def linear_recurrence(
    a: Any, b: NumPy, *, return_carry: Yes, **keywords: Unpack[RecurrenceWithLast]
) -> PairWithCarry[NumPy]: ...
@overload
def linear_recurrence(a: Any, b: Array, *, return_carry: No = ..., **keywords: Unpack[Recurrence]) -> Array: ...
@overload
def linear_recurrence(a: Any, b: Array, *, return_carry: Yes, **keywords: Unpack[Recurrence]) -> WithCarry[Array]: ...
@overload
def linear_recurrence(
    a: Any, b: Array, *, return_carry: No = ..., **keywords: Unpack[RecurrenceWithLast]
) -> Pair[Array]: ...
@overload
def linear_recurrence(
    a: Any, b: Array, *, return_carry: Yes, **keywords: Unpack[RecurrenceWithLast]
) -> PairWithCarry[Array]: ...
def linear_recurrence(
    a: Any,
    b: Any,
    *,
    axis: int = LAST,
    dim: int | None = None,
    reverse: bool = False,
    initial: Any = None,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
    carry: Any = None,
    return_carry: bool = False,
    validate: bool = False,
    return_last: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """The recurrence h[t] = a[t] * h[t - 1] + b[t] along one axis.

    Args:
        a: an array of b's library and device that broadcasts to `b.shape`, or a number. What does not vary costs no
            memory traffic.
        b: floating point or complex (or pass such a `dtype`), of at least one dimension.
        axis: the axis of b that t runs along, by default the last.
        dim: another name of axis, as in torch.
        reverse: run from the end: h[t] = a[t] * h[t + 1] + b[t].
        initial: the state that comes in, h[-1]: a number, or an array that broadcasts to b's shape without the axis.
            0 by default.
        reset: as for `scan`; at most one of `reset`, `offsets` and `keys`. A segment starts from a state of zero: h = b
            at its first element. A reset at the first element (in scan order) drops `initial`.
        offsets: as for `scan`. `initial` comes into what begins with the first element, and into no other segment.
        keys: as for `scan`; `initial` as for `offsets`.
        carry: as for `scan`: the product of a so far, which changes no h, and h[-1]; in place of `initial`.
        return_carry: also return the carry behind the last element, as for `scan`.
        validate: as for `scan`.
        return_last: also return the state behind the last element (in scan order): the `initial` of the next chunk.
        dtype: of h; by default that of `out`, else that of b. float16 and bfloat16 are computed in float32.
        out: where to put h, as for `scan`; b (or a) itself is allowed.

    Returns:
        h, of b's shape; with `return_last` the tuple (h, last), where last has b's shape without the axis, and h's
        dtype (float32 for float16 and bfloat16). With `return_carry` the carry comes last. A sequence in chunks gives
        what it gives in one call, but for rounding.

    Raises: as `scan`.

    Two steps make one, (a, b) then (a', b'): (a' a, a' b + b') (Blelloch 1990), in the order of `cuscan.order`.
    Products and sums are rounded one by one, and nothing is divided. So the error of h[t] is at most

        eps / 2 * (the sum over j <= t of (t - j + c) |b[j] a[j + 1] ... a[t]|),  c = 64 + t / 2**16,

    to first order in the eps of the state's dtype, without underflow, for a and b as converted to it. `initial` is
    b[-1]; it is three times that for complex numbers, and a rounding more for float16 and bfloat16. The loop itself has
    2 (t - j) + 1 in place of t - j + c.

    Products of neighbouring a are formed before the states are known. Where |a| > 1 for long they overflow (within a
    tile in the state's dtype, along the axis in the carry's), and h becomes inf or NaN even if the loop's does not.
    Where a = 0 the history is cut off exactly if it is finite; a segment cuts off any.
    """
    axis = choose_axis(axis, dim)
    flags = make_flags(
        LINEAR_RECURRENCE,
        axis,
        reverse,
        dtype=dtype,
        return_last=return_last,
        validate=validate,
        return_carry=return_carry,
    )
    if initial is not None and carry is not None:
        raise ScanValueError("initial and carry exclude each other: both say what precedes the first element")
    number = initial if initial is None or _is_number(initial) else None
    before = None if number is initial else initial
    arrays, roles = (_array_or_number(a, b, dtype), b), LINEAR_RECURRENCE.inputs
    if not (reset is None and offsets is None and keys is None and before is None):
        arrays, roles = _put_beside(arrays, roles, reset=reset, offsets=offsets, keys=keys, initial=before)
    if carry is not None:
        arrays, roles = _put_carry(arrays, roles, carry)
    results = _run(flags, roles, arrays, out, number)
    return results if len(results) > 1 else results[0]


@overload
def total(x: NumPy, op: OneNumber = ..., **keywords: Unpack[OfTotal]) -> NumPy: ...
@overload
def total(x: Array, op: OneNumber = ..., **keywords: Unpack[OfTotal]) -> Array: ...
@overload
def total(x: Array, op: Op = ..., **keywords: Unpack[OfTotals]) -> Any: ...
@overload
def total(x: tuple[Any, ...], op: Operator | Literal["linear_recurrence"], **keywords: Unpack[OfTotals]) -> Any: ...
def total(
    x: Any,
    op: Op | Literal["linear_recurrence"] = "add",
    *,
    axis: int = LAST,
    dim: int | None = None,
    reverse: bool = False,
    mask: Any = None,
    skipna: bool = False,
    initial: Any = None,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
    carry: Any = None,
    return_indices: bool = False,
    ties: Ties = "first",
    validate: bool = False,
    dtype: Any = None,
) -> Any:
    """What each line adds up to: the carry of a scan alone, without its results. On a GPU x is read and not more.

    Args:
        x: as for `scan`; of a linear recurrence the tuple (a, b).
        op: as for `scan`, or "linear_recurrence".
        axis: the axis to go along, by default the last.
        dim: another name of axis, as in torch.
        reverse: go from the end.
        mask: as for `scan`.
        skipna: as for `scan`.
        initial: as for `scan`: before every segment.
        reset: as for `scan`; with segments a total is that of the last one, which is open at the end.
        offsets: as for `scan`.
        keys: as for `scan`.
        carry: what precedes the first element of each line, as for `scan`.
        return_indices: of "max" and "min": with positions, as `cummax` has them.
        ties: as for `cummax`.
        validate: as for `scan`.
        dtype: of the scan's result, as for `scan`: the carry's dtypes follow from it.

    Returns:
        What `scan(x, op, ..., return_carry=True)` returns as its carry, to the bit: an array of x's library and device,
        of x's shape without the axis, or a tuple of them (see `scan`). The `carry` of a scan of what follows x; pieces
        of a sequence can so be added up side by side, and scanned afterwards.

    Raises: as `scan`.
    """
    axis = choose_axis(axis, dim)
    combined = choose_extremum(LINEAR_RECURRENCE if op == "linear_recurrence" else op, return_indices, ties)
    flags = make_flags(
        combined, axis, reverse, skipna=skipna, dtype=dtype, validate=validate, return_carry=True, only_carry=True
    )
    if combined is LINEAR_RECURRENCE:
        if not isinstance(x, tuple) or len(x) != 2:
            raise ScanTypeError(
                f"x must be a tuple of 2 arrays (a, b) for op='linear_recurrence'; got {type(x).__name__}"
            )
        arrays, roles = (_array_or_number(x[0], x[1], dtype), x[1]), LINEAR_RECURRENCE.inputs
    else:
        arrays, roles, _ = _take_apart(x, combined)
    arrays, roles = _put_beside(arrays, roles, mask=mask, reset=reset, offsets=offsets, keys=keys)
    if carry is not None:
        arrays, roles = _put_carry(arrays, roles, carry)
    return _run(flags, roles, arrays, None, initial)[-1]


# ---- arguments -------------------------------------------------------------------------------------------------------


Arrays = tuple[Any, ...]  # of any library; an `ArrayView` in the place of a number
_NUMBERS = numbers.Number, np.generic
_LISTED = list, tuple, range
_X = ("x",)  # what errors call a single array of elements


def _run(flags: Flags, roles: tuple[str, ...], arrays: Arrays, out: Any, initial: Any) -> tuple[Any, ...]:
    """Run a call on arrays in their roles; those that no like call ran on are adopted first."""
    outs = out if out is None or isinstance(out, tuple) else (out,)
    key, results = repeats.repeat(flags, roles, arrays, outs, initial)
    if results is not None:
        return results
    return autograd.run(flags, _adopt(roles, arrays, out, key), initial)


def _adopt(roles: tuple[str, ...], arrays: Arrays, out: Any, key: Any = None) -> Operands:
    views: list[ArrayView] = []
    for role, array in zip(roles, arrays, strict=True):
        beside = views[0] if views else None
        views.append(array if type(array) is ArrayView else adopt(array, role, beside))
    return Operands(tuple(views), roles, None if out is None else _adopt_outs(out), key)


def adopt_scan(x: Any, op: Any, out: Any, carry: Any, **beside: Any) -> tuple[Operands, Any]:
    """The arrays of a scan that runs elsewhere; and the result's dtype, if x is a structured array."""
    arrays, roles, structure = _take_apart(x, op)
    arrays, roles = _put_beside(arrays, roles, **beside)
    if carry is not None:
        arrays, roles = _put_carry(arrays, roles, carry)
    return _adopt(roles, arrays, out), structure


def adopt_recurrence(a: Any, b: Any, dtype: Any, out: Any, carry: Any, **beside: Any) -> Operands:
    """The arrays of a linear recurrence that runs elsewhere."""
    arrays, roles = _put_beside((_array_or_number(a, b, dtype), b), LINEAR_RECURRENCE.inputs, **beside)
    if carry is not None:
        arrays, roles = _put_carry(arrays, roles, carry)
    return _adopt(roles, arrays, out)


def _take_apart(x: Any, op: Any) -> tuple[Arrays, tuple[str, ...], Any]:
    """The arrays of elements and what errors call them; and the result's dtype, if they are one structured array."""
    fields = dict(zip(op.fields, op.dtypes, strict=True)) if isinstance(op, Operator) else {}
    structure = None
    if isinstance(x, tuple):
        if len(x) != len(fields):
            one = "a CuPy or NumPy array, a torch tensor or another array with __dlpack__"
            wanted = f"a tuple of {len(fields)} arrays" if fields else one
            advice = "" if fields else "; np.asarray(x) makes one array of numbers"
            name = getattr(op, "name", op)
            raise ScanTypeError(f"x must be {wanted} for op={name!r}; got tuple of {len(x)}{advice}")
        named = {f"x[{i}]": array for i, array in enumerate(x)}
    elif fields and isinstance(x, list):
        raise ScanTypeError(f"x must be a tuple of {len(fields)} arrays for op={op.name!r}; got list; pass tuple(x)")
    elif fields and isinstance(x, np.ndarray) and x.dtype.names:
        if set(x.dtype.names) != set(fields):
            named_so = ", ".join(x.dtype.names)
            raise ScanTypeError(f"x has fields {named_so}; the state of op={op.name!r} {', '.join(fields)}")
        named = {f"x[{name!r}]": _whole_strides(x[name]) for name in fields}
        structure = np.dtype(list(fields.items()), align=x.dtype.isalignedstruct)
    else:
        return (x,), _X, None
    return tuple(named.values()), tuple(named), structure


def _whole_strides(field: Any) -> Any:
    """A field whose strides are no multiples of its item size, as they are in packed structures, is copied."""
    return field.copy() if any(stride % field.itemsize for stride in field.strides) else field


def _put_beside(arrays: Arrays, roles: tuple[str, ...], **beside: Any) -> tuple[Arrays, tuple[str, ...]]:
    """The values, and the arrays beside them that are given, in the order of the keywords."""
    if len(segments := [name for name in SEGMENTS if beside.get(name) is not None]) > 1:
        raise ScanValueError(f"{' and '.join(segments)} exclude each other: pass one of them")
    if isinstance(offsets := beside.get("offsets"), _LISTED):
        beside["offsets"] = _integers_like(adopt(arrays[-1], roles[-1]), offsets, "offsets")
    for name, array in beside.items():
        if array is not None:
            arrays, roles = (*arrays, array), (*roles, name)
    return arrays, roles


def _integers_like(value: ArrayView, listed: Sequence[Any], name: str) -> Any:
    """A list of integers as an array beside `value`."""
    try:
        integers = np.asarray(listed)
    except ValueError:  # lists of several lengths
        integers = np.asarray(None)
    if integers.dtype.kind not in "iu" and integers.size:
        raise ScanTypeError(f"{name} must be integers; got {listed!r}")
    return value.library.from_numpy(integers.astype(np.int64), value.device)


def _put_carry(arrays: Arrays, roles: tuple[str, ...], carry: Any) -> tuple[Arrays, tuple[str, ...]]:
    """The arrays so far, and the fields of the carry that comes in. NumPy's numbers are its arrays of no dimension."""
    fields = carry if isinstance(carry, tuple) else (carry,)
    if not fields:
        raise ScanTypeError("carry is an empty tuple; pass None where nothing precedes x")
    if len(fields) >= len(CARRY):
        raise ScanTypeError(
            f"carry must be what return_carry gives: {len(CARRY) - 1} arrays at most; got {len(fields)}"
        )
    names = CARRY[1 : 1 + len(fields)] if isinstance(carry, tuple) else CARRY[:1]
    fields = tuple(np.asarray(field) if isinstance(field, np.generic) else field for field in fields)
    return arrays + fields, roles + names


def _as_structure(results: tuple[Any, ...], dtype: np.dtype[Any]) -> Any:
    whole = np.empty(results[0].shape, dtype)
    for name, part in zip(dtype.names or (), results, strict=True):
        whole[name] = part
    return whole


def _adopt_outs(out: Any) -> tuple[ArrayView, ...]:
    """The arrays of `out`."""
    if isinstance(out, tuple):
        return tuple(adopt(array, f"out[{i}]") for i, array in enumerate(out))
    return (adopt(out, "out"),)


def _array_or_number(a: Any, b: Any, dtype: Any) -> Any:
    """An array, or the view of a number of the type that a recurrence over `b` is computed in."""
    if isinstance(a, list | tuple):
        adopt(a, "a", adopt(b, "b"))  # an error, which says how b's library makes an array of it
    if not _is_number(a):
        return a
    value = adopt(b, "b")
    result = value.dtype if dtype is None else find_dtype(dtype)
    number = DTYPES[result.accumulator] if result.kind in INEXACT else DTYPES["float64"]
    if isinstance(a, complex | np.complexfloating) and number.kind is not Kind.COMPLEX:
        number = DTYPES["complex128"]  # which is an error
    return number_like(check_initial(a, number, "a"), number, value.library, value.device)


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS)
