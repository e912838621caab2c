"""The functions that are named for an operator: `scan` under the names and with the defaults that users are used to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from cuscan.api import scan
from cuscan.dtypes import EXACT
from cuscan.errors import ScanValueError
from cuscan.interop import adopt
from cuscan.request.call import choose_extremum
from cuscan.signatures import (
    LAST,
    Array,
    Axis,
    Named,
    No,
    Op,
    Pair,
    PairWithCarry,
    Skipping,
    Ties,
    WithCarry,
    WithIndices,
    WithoutIndices,
    Yes,
    spells_keywords_of,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cuscan.signatures import NumPy


@overload
def cumsum(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Skipping]) -> NumPy: ...
@overload
def cumsum(x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Skipping]) -> WithCarry[NumPy]: ...
@overload
def cumsum(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Skipping]) -> Array: ...
@overload
def cumsum(x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Skipping]) -> WithCarry[Array]: ...
@spells_keywords_of(scan)
def cumsum(x: Any, axis: Axis = LAST, **keywords: Any) -> Any:
    """Cumulative sum: `scan(x, "add", ...)`; see `scan` for the keywords. With axis=None x is flattened first."""
    return _scan(x, "add", axis, keywords)


@overload
def cumprod(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Skipping]) -> NumPy: ...
@overload
def cumprod(x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Skipping]) -> WithCarry[NumPy]: ...
@overload
def cumprod(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Skipping]) -> Array: ...
@overload
def cumprod(x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Skipping]) -> WithCarry[Array]: ...
@spells_keywords_of(scan)
def cumprod(x: Any, axis: Axis = LAST, **keywords: Any) -> Any:
    """Cumulative product: `scan(x, "mul", ...)`; see `scan` for the keywords. With axis=None x is flattened first."""
    return _scan(x, "mul", axis, keywords)


@overload
def nancumsum(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Named]) -> NumPy: ...
@overload
def nancumsum(x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Named]) -> WithCarry[NumPy]: ...
@overload
def nancumsum(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Named]) -> Array: ...
@overload
def nancumsum(x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Named]) -> WithCarry[Array]: ...
@spells_keywords_of(scan, "skipna")
def nancumsum(x: Any, axis: Axis = LAST, **keywords: Any) -> Any:
    """Cumulative sum in which NaN counts as 0: `cumsum(x, skipna=True, ...)`; see `scan` for the keywords."""
    return _scan(x, "add", axis, keywords, skipna=True)


@overload
def nancumprod(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Named]) -> NumPy: ...
@overload
def nancumprod(x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Named]) -> WithCarry[NumPy]: ...
@overload
def nancumprod(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Named]) -> Array: ...
@overload
def nancumprod(x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Named]) -> WithCarry[Array]: ...
@spells_keywords_of(scan, "skipna")
def nancumprod(x: Any, axis: Axis = LAST, **keywords: Any) -> Any:
    """Cumulative product in which NaN counts as 1: `cumprod(x, skipna=True, ...)`; see `scan` for the keywords."""
    return _scan(x, "mul", axis, keywords, skipna=True)


@overload
def logcumsumexp(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Skipping]) -> NumPy: ...
@overload
def logcumsumexp(
    x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Skipping]
) -> WithCarry[NumPy]: ...
@overload
def logcumsumexp(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[Skipping]) -> Array: ...
@overload
def logcumsumexp(
    x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[Skipping]
) -> WithCarry[Array]: ...
@spells_keywords_of(scan)
def logcumsumexp(x: Any, axis: Axis = LAST, **keywords: Any) -> Any:
    """log(cumsum(exp(x))) without overflow: `scan(x, "logaddexp", ...)`; see `scan` for the keywords.

    For floating point (pass `dtype` for integers). Infinities and NaN as in `numpy.logaddexp.accumulate`. What is
    carried along is the greatest element and the sum of the exponentials relative to it (Milakov & Gimelshein 2018).
    With axis=None x is flattened first.
    """
    return _scan(x, "logaddexp", axis, keywords)


@overload
def cummax(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithoutIndices]) -> NumPy: ...
@overload
def cummax(
    x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithoutIndices]
) -> WithCarry[NumPy]: ...
@overload
def cummax(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithIndices]) -> Pair[NumPy]: ...
@overload
def cummax(
    x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithIndices]
) -> PairWithCarry[NumPy]: ...
@overload
def cummax(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithoutIndices]) -> Array: ...
@overload
def cummax(
    x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithoutIndices]
) -> WithCarry[Array]: ...
@overload
def cummax(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithIndices]) -> Pair[Array]: ...
@overload
def cummax(
    x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithIndices]
) -> PairWithCarry[Array]: ...
@spells_keywords_of(scan)
def cummax(x: Any, axis: Axis = LAST, *, return_indices: bool = False, ties: Ties = "first", **keywords: Any) -> Any:
    """Running maximum: `scan(x, "max", ...)`; see `scan` for the keywords. With axis=None x is flattened first.

    With `return_indices`, the tuple (values, indices): indices are int64 positions along the axis, in x (with `reverse`
    too). Of equal values it is the `ties` one in scan order: "first", or "last" as in torch. NaN goes before all
    numbers. Where no element of x is in a value yet (it is the identity, or `initial`), the index is -1. `out` is then
    a tuple of two arrays. Without `return_indices`, `ties` makes no difference.
    """
    return _scan(x, choose_extremum("max", return_indices, ties), axis, keywords)


@overload
def cummin(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithoutIndices]) -> NumPy: ...
@overload
def cummin(
    x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithoutIndices]
) -> WithCarry[NumPy]: ...
@overload
def cummin(x: NumPy, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithIndices]) -> Pair[NumPy]: ...
@overload
def cummin(
    x: NumPy, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithIndices]
) -> PairWithCarry[NumPy]: ...
@overload
def cummin(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithoutIndices]) -> Array: ...
@overload
def cummin(
    x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithoutIndices]
) -> WithCarry[Array]: ...
@overload
def cummin(x: Array, axis: Axis = ..., *, return_carry: No = ..., **keywords: Unpack[WithIndices]) -> Pair[Array]: ...
@overload
def cummin(
    x: Array, axis: Axis = ..., *, return_carry: Yes, **keywords: Unpack[WithIndices]
) -> PairWithCarry[Array]: ...
@spells_keywords_of(scan)
def cummin(x: Any, axis: Axis = LAST, *, return_indices: bool = False, ties: Ties = "first", **keywords: Any) -> Any:
    """Running minimum: `scan(x, "min", ...)`; see `cummax` for `return_indices` and `ties`."""
    return _scan(x, choose_extremum("min", return_indices, ties), axis, keywords)


@overload
def cumulative_sum(
    x: NumPy, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> NumPy: ...
@overload
def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array: ...
def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The cumulative sum of the array API standard: `axis` may be left out for one dimension only.

    By default bool and signed integers become int64, unsigned integers uint64 (torch tensors too), all else stays. With
    `include_initial` the result begins with 0 and is one longer.
    """
    return _cumulative(x, "add", axis, dtype, include_initial)


@overload
def cumulative_prod(
    x: NumPy, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> NumPy: ...
@overload
def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array: ...
def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The cumulative product of the array API standard: as `cumulative_sum`, and begins with 1."""
    return _cumulative(x, "mul", axis, dtype, include_initial)


# ---- arguments -------------------------------------------------------------------------------------------------------


def _scan(x: Any, op: Op, axis: int | None, keywords: dict[str, Any], **fixed: bool) -> Any:
    if axis is None and keywords.get("dim") is None:
        shape = getattr(x, "shape", None)
        x, axis = _flat(x), -1
        for name in ("mask", "reset", "keys"):
            beside = keywords.get(name)
            if getattr(beside, "shape", ()) == shape:
                keywords[name] = _flat(beside)
    return scan(x, op, axis=axis, **keywords, **fixed)  # type: ignore[call-overload]


def _flat(array: Any) -> Any:
    """An array as one axis, C order; what is no array comes back, for an error that speaks of it."""
    if hasattr(array, "reshape"):
        return array.reshape(-1)
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().reshape(array, (-1,))
    return array


def _cumulative(x: Any, op: Op, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    value = adopt(x, "x")
    if axis is None:
        if len(value.shape) != 1:
            raise ScanValueError(f"axis must be given for x of {len(value.shape)} dimensions")
        axis = 0
    if dtype is None and value.dtype.kind in EXACT:
        dtype = value.library.sum_dtype(value.dtype, standard=True)
    return scan(x, op, axis=axis, dtype=dtype, include_initial=include_initial)
