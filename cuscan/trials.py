"""What can be found out about a user's operator before it runs: whether it compiles, whether it is associative."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuscan.dtypes import DTYPES
from cuscan.errors import CompileError, MissingDependencyError, ScanTypeError, ScanValueError
from cuscan.interop import adopt, find_library
from cuscan.interop.numpy import numpy_dtype
from cuscan.operators import Monoid
from cuscan.request import make_request
from cuscan.request.call import Flags, Operands, find_dtype
from cuscan.states import make_states

Array = np.ndarray[Any, Any]

_ELEMENTS = 2**16  # of the array that a kernel is compiled for
_MOST_TRIPLES = 2**16
_ROUNDINGS = 64  # that two associations of three elements may differ by

OLDEST_ARCH = 75


def compile_operator(op: Monoid, arch: int, dtype: Any) -> None:
    """Compile the kernel of a scan along a contiguous axis; see `Operator.compile`."""
    if not isinstance(arch, int | np.integer) or arch < OLDEST_ARCH:
        raise ScanValueError(f"arch must be an integer such as 90, for sm_90, and {OLDEST_ARCH} at least; got {arch!r}")
    arch = int(arch)
    names = op.dtypes or (find_dtype(dtype).name,)
    values = tuple(adopt(np.empty(_ELEMENTS, numpy_dtype(DTYPES[name])), "x") for name in names)
    request = make_request(Flags(op), Operands(values, op.inputs), has_initial=False)
    from cuscan.planning import make_plan
    from cuscan.planning.config import Target

    config = make_plan(request, Target(arch=arch, sm_count=132)).config
    try:
        from cuscan.compile.module import compile_source
        from cuscan.compile.source import make_source

        compile_source(make_source(config), arch)
    except CompileError:
        raise
    except (ImportError, RuntimeError) as error:  # no CuPy, or no NVRTC for it to load
        raise MissingDependencyError("Operator.compile needs CuPy and NVRTC: pip install 'cuscan[cuda12]'") from error


def check_operator(op: Monoid, samples: tuple[Any, ...], tolerance: float | None) -> None:
    """Look for samples that an operator treats as no monoid does; see `Operator.check`."""
    if op.combine is None:
        raise ScanTypeError(f"op={op.name!r} has no numpy= callable, which check needs")
    if tolerance is not None and not (isinstance(tolerance, float | int | np.number) and tolerance >= 0):
        raise ScanValueError(f"tolerance must be a number, 0 or more; got {tolerance!r}")
    columns = [_fetched(column) for column in samples]
    number = DTYPES.get(columns[0].dtype.name) if columns else None
    fits = len(columns) == len(op.inputs) and all(column.size for column in columns)
    if number is None or number.kind not in op.kinds or not fits:
        wanted = f"{len(op.inputs)} arrays, one a field," if op.dtypes else "one array"
        raise ScanTypeError(f"samples must be {wanted} of elements for op={op.name!r}; got {samples!r}")
    columns = list(np.broadcast_arrays(*columns))
    kind = op.states.dtype(number.accumulator)
    elements = make_states(kind, tuple(column.ravel() for column in columns), (columns[0].size,))
    neutral = make_states(kind, op.identity(number), elements.shape)
    with np.errstate(all="ignore"):
        a, b, c = _triples(elements)
        one, other = op.combine(a, b), op.combine(b, c)
        left, right = op.combine(one, c), op.combine(a, other)
        wrong = _differ(left, right, (a, b, c, one, other), tolerance)
        if wrong.any():
            i = int(wrong.argmax())
            raise ScanValueError(
                f"op={op.name!r} is not associative: with a = {a[i]}, b = {b[i]}, c = {c[i]}, (a . b) . c = {left[i]} "
                f"and a . (b . c) = {right[i]}"
            )
        for before, after in ((neutral, elements), (elements, neutral)):
            got = op.combine(before, after)
            wrong = _differ(got, elements, (elements,), tolerance)
            if wrong.any():
                i = int(wrong.argmax())
                raise ScanValueError(
                    f"op={op.name!r} has no identity in {neutral[i]}: {before[i]} . {after[i]} = {got[i]}"
                )


def _fetched(sample: Any) -> Array:
    """Samples of any library as a NumPy array, from a GPU too."""
    fetch = getattr(find_library(sample, "samples"), "fetch", np.asarray)
    fetched: Array = fetch(sample)
    return fetched


def _triples(elements: Array) -> tuple[Array, Array, Array]:
    """All triples of elements, or as many by chance, the same in every run."""
    count = len(elements)
    if count**3 <= _MOST_TRIPLES:
        places = np.indices((count,) * 3).reshape(3, -1)
    else:
        places = np.random.default_rng(0).integers(0, count, (3, _MOST_TRIPLES))
    return elements[places[0]], elements[places[1]], elements[places[2]]


def _differ(one: Array, other: Array, involved: tuple[Array, ...], tolerance: float | None) -> Array:
    """Where two arrays of states differ by more than rounding.

    Integers are exact. Floating-point fields may differ by `tolerance` times the largest number in sight, squared if it
    is above 1: what is multiplied may cancel afterwards.
    """
    fields = one.dtype.names or (None,)

    def field(states: Array, name: str | None) -> Array:
        return states if name is None else states[name]

    magnitudes = [np.abs(field(states, name).astype(np.float64)) for name in fields for states in (*involved, one)]
    finite = np.where(np.isfinite(magnitudes), magnitudes, 0).max(0)
    scale = np.where(finite > 1, finite * finite, finite)
    differ = np.zeros(one.shape, np.bool_)
    for name in fields:
        left, right = field(one, name), field(other, name)
        same = (left == right) | ((left != left) & (right != right))
        if left.dtype.kind == "f":
            allowed = _ROUNDINGS * float(np.finfo(left.dtype).eps) if tolerance is None else tolerance
            same |= np.abs(left - right) <= allowed * scale
        differ |= ~same
    return differ
