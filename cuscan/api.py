"""The public functions. Each takes the whole way of an array: adopt, request, run, hand back."""

from __future__ import annotations

from typing import Any

from cuscan import backends
from cuscan.interop import adopt
from cuscan.operators import Operator

Array = Any


def scan(
    x: Array,
    op: str | Operator = "add",
    *,
    axis: int = -1,
    reverse: bool = False,
    exclusive: bool = False,
    mask: Array | None = None,
    initial: complex | None = None,
    dtype: Any = None,
    out: Array | None = None,
) -> Array:
    """Prefix scan along one axis: out[i] = x[0] op x[1] op ... op x[i].

    Args:
        x: a CuPy array, a torch tensor (CUDA or CPU), a NumPy array, or any other array with
            `__dlpack__` and `__dlpack_device__`, of at least one dimension. Any strides.
        op: "add", "mul", "min", "max", and on bool and integers "and", "or", "xor".
        axis: the axis to scan along.
        reverse: scan from the end: exactly flip(scan(flip(x))).
        exclusive: out[i] combines the elements strictly before i in scan order; the first one is
            `initial`, or the operator's identity.
        mask: bool array of x's library and device that broadcasts to `x.shape`. Where it is False
            the element counts as the operator's identity, whatever it holds (NaN too).
        initial: a scalar that is combined before the first element.
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

    The GPU algorithm is the single-pass scan with decoupled look-back (Merrill & Garland 2016).
    """
    value = adopt(x, "x")
    result = backends.run(
        value,
        op=op,
        axis=axis,
        reverse=reverse,
        exclusive=exclusive,
        mask=None if mask is None else adopt(mask, "mask"),
        initial=initial,
        dtype=dtype,
        out=None if out is None else adopt(out, "out"),
    )
    return result if out is None else out


def cumsum(x: Array, **keywords: Any) -> Array:
    """Cumulative sum: `scan(x, "add", ...)`; see `scan` for the keywords."""
    return scan(x, "add", **keywords)


def cumprod(x: Array, **keywords: Any) -> Array:
    """Cumulative product: `scan(x, "mul", ...)`; see `scan` for the keywords."""
    return scan(x, "mul", **keywords)


def cummax(x: Array, **keywords: Any) -> Array:
    """Running maximum, without indices: `scan(x, "max", ...)`; see `scan` for the keywords."""
    return scan(x, "max", **keywords)


def cummin(x: Array, **keywords: Any) -> Array:
    """Running minimum, without indices: `scan(x, "min", ...)`; see `scan` for the keywords."""
    return scan(x, "min", **keywords)
