"""Check the result of a case against a reference from the array library's own functions, in 64-bit arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cuscan.bench.buffers import Buffers
from cuscan.bench.calls import CALLS, Meaning, State
from cuscan.bench.cases import Case
from cuscan.bench.machine import Array
from cuscan.bench.reference import Combine, scan_from
from cuscan.bench.segments import starts_of
from cuscan.dtypes import DTYPES, EXACT, INEXACT, DType, Kind

BUDGET = 1 << 25  # elements checked at a time; larger arrays are checked in evenly spaced rows or columns


class WrongResultError(AssertionError):
    """A scan's result is off by more than rounding explains."""


def check(case: Case, xp: Any, buffers: Buffers) -> float:
    """Compare `buffers.outs` with a reference; return the worst error, as a share of the tolerance.

    The tolerance is defined with each operator (`calls.Meaning`). Raises `WrongResultError` if the error exceeds it.
    """
    worst = error_of(case, xp, buffers)
    if not worst <= 1:
        raise WrongResultError(f"{case.name}: the result is {worst:.3g} times further off than rounding explains")
    return worst


def error_of(case: Case, xp: Any, buffers: Buffers) -> float:
    """Return the worst error of `buffers.outs`, as a share of the tolerance; infinity if exact results differ.

    If there are fewer outs than the operator has results, only these are checked.
    """
    meaning = _meaning(case)
    outs = [_rows(out, case) for out in buffers.outs]
    behind = meaning.lower(_carried(case, buffers.behind))
    worst = 0.0
    for part in _expected(case, xp, meaning, buffers):
        arrays = behind if part.place is None else [out[..., part.place] for out in outs]
        for array, expected in zip(arrays, part.results, strict=False):
            worst = max(worst, _error(case, xp, meaning, _plain(xp, array), expected, part.absolutes))
    return worst


class _Part(NamedTuple):
    """The expected results for a part of the axis, or with `place` None those of the outgoing carry.

    `absolutes` is the scan of absolute values, if it is needed.
    """

    place: slice | None
    results: State
    absolutes: Array | None


def _meaning(case: Case) -> Meaning:
    """Return the operator's meaning; on bool, add is or."""
    name = case.operator.on_bool if case.result_dtype.kind is Kind.BOOL else None
    return CALLS[name or case.op].meaning


def _expected(case: Case, xp: Any, meaning: Meaning, buffers: Buffers) -> Iterator[_Part]:
    """Yield the reference, part by part along the axis."""
    values = [_rows(value, case) for value in buffers.values]
    mask = None if buffers.mask is None else _rows(buffers.mask, case)
    starts = _starts(case, xp) if case.segments else None
    rows, length = values[0].shape[:-1], values[0].shape[-1]
    combine = _combine(xp, meaning, segmented=starts is not None)
    absolute = meaning.absolute and case.result_dtype.kind in INEXACT
    identity = _identity(case, xp, _lifted(case, xp, meaning, [value[..., :0] for value in values], 0), rows)
    first = tuple(field.astype(_wide(case.result_dtype)) for field in _carried(case, buffers.carry)) or identity
    carry = _marked(xp, first, None if starts is None else starts[:0].any())
    size = _absolute(carry)
    shift = int(case.include_initial)
    if shift:
        leading = _column(identity)
        yield _Part(slice(0, 1), meaning.lower(leading), meaning.lower(_absolute(leading))[0])
    step = max(BUDGET // math.prod(rows), 1)
    for start in range(0, length, step):
        part = slice(start, start + step)
        lifted = _lifted(case, xp, meaning, [value[..., part] for value in values], start)
        if mask is not None:
            lifted = _where(xp, mask[..., part], lifted, identity)
        if case.skipna:
            lifted = _where(xp, lifted[0] == lifted[0], lifted, identity)
        flags = None if starts is None else starts[part]
        sizes = _absolute(lifted) if absolute else ()
        scanned = scan_from(combine, _marked(xp, lifted, flags), carry)
        shown = _exclusive(xp, scanned, carry, flags, identity) if case.exclusive and not shift else scanned
        carry, absolutes = _last(scanned), None
        if absolute:
            sizes = scan_from(combine, _marked(xp, sizes, flags), size)
            size, absolutes = _last(sizes), meaning.lower(sizes)[0]
        yield _Part(slice(start + shift, start + step + shift), meaning.lower(shown), absolutes)
    if buffers.behind:
        yield _Part(None, meaning.lower(carry), meaning.lower(size)[0] if absolute else None)


# ---- elements --------------------------------------------------------------------------------------------------------


def _rows(array: Array, case: Case) -> Array:
    """Return a view with the scanned axis last, in scan direction; keep only some rows of a large case."""
    axis = case.axis % array.ndim
    array = array.transpose([a for a in range(array.ndim) if a != axis] + [axis])
    if case.reverse:
        array = array[..., ::-1]
    if array.ndim > 1:
        largest = max(range(array.ndim - 1), key=lambda a: array.shape[a])
        kept = max(array.shape[largest] * BUDGET // math.prod(case.shape), 2)  # at least the first and the last
        step = max((array.shape[largest] - 1) // (kept - 1), 1)
        step += kept > 2 and step % 2 == 0  # an odd step visits every lane of a vector and of a warp
        array = array[(slice(None),) * largest + (slice(None, None, step),)]
    return array


def _carried(case: Case, fields: tuple[Array, ...]) -> State:
    """Return the fields of a carry for the rows that are checked."""
    axis = case.axis % len(case.shape)
    return tuple(_rows(field.reshape(*case.lines[:axis], 1, *case.lines[axis:]), case)[..., 0] for field in fields)


def _starts(case: Case, xp: Any) -> Array:
    """Return where segments start in scan direction; a reversed segment of offsets or keys starts at its end."""
    starts = starts_of(xp, case.split, case.shape[case.axis])
    if not case.reverse:
        return starts
    return starts[::-1] if case.segments == "reset" else xp.concatenate([starts[:1], starts[:0:-1]])


def _lifted(case: Case, xp: Any, meaning: Meaning, values: list[Array], start: int) -> State:
    """Return the states of elements, in new arrays; `start` is the scan position of the first."""
    wide = tuple(_widen(xp, value, case.result_dtype) for value in values)
    position = xp.arange(start, start + wide[0].shape[-1], dtype=xp.int64)
    if case.reverse:
        position = case.shape[case.axis] - 1 - position
    return meaning.lift(wide, xp.broadcast_to(position, wide[0].shape))


def _wide(dtype: DType) -> str:
    if dtype.kind is Kind.COMPLEX:
        return "complex128"
    if dtype.kind is Kind.FLOAT:
        return "float64"
    return "int64" if dtype.kind is Kind.SIGNED else "uint64"


def _plain(xp: Any, array: Array) -> Array:
    """Return a dense copy in a dtype with arithmetic: bfloat16 as float32."""
    if array.dtype.name != "bfloat16":
        return xp.ascontiguousarray(array)
    bits = xp.ascontiguousarray(array.view(xp.uint16)).astype(xp.uint32)
    return (bits << 16).view(xp.float32)


def _widen(xp: Any, array: Array, result: DType) -> Array:
    if result.kind is Kind.BOOL:
        return array != 0
    return _plain(xp, array).astype(_wide(result))


def _identity(case: Case, xp: Any, like: State, rows: tuple[int, ...]) -> State:
    """Return the operator's identity for every row, in the dtypes of the states `like`."""
    parts = case.operator.identity(case.result_dtype)
    return tuple(xp.asarray(np.full(rows, part, array.dtype)) for part, array in zip(parts, like, strict=False))


# ---- states ----------------------------------------------------------------------------------------------------------


def _combine(xp: Any, meaning: Meaning, *, segmented: bool) -> Combine:
    """Return the operator on states; with segments, their last part marks a segment start."""
    if not segmented:
        return lambda earlier, later: meaning.combine(xp, earlier, later)

    def combine(earlier: State, later: State) -> State:
        within = meaning.combine(xp, earlier[:-1], later[:-1])
        parts = (xp.where(later[-1], alone, both) for alone, both in zip(later[:-1], within, strict=True))
        return (*parts, earlier[-1] | later[-1])

    return combine


def _marked(xp: Any, state: State, flags: Array | None) -> State:
    return state if flags is None else (*state, xp.broadcast_to(flags, state[0].shape).copy())


def _absolute(state: State) -> State:
    return tuple(part if part.dtype == bool else abs(part) for part in state)


def _where(xp: Any, wanted: Array, state: State, other: State) -> State:
    return tuple(xp.where(wanted, a, b) for a, b in zip(state, _column(other), strict=True))


def _column(state: State) -> State:
    return tuple(part[..., None] for part in state)


def _last(state: State) -> State:
    return tuple(part[..., -1].copy() for part in state)


def _exclusive(xp: Any, scanned: State, carry: State, flags: Array | None, identity: State) -> State:
    """Return what precedes every element in its segment."""
    before = tuple(xp.concatenate([a[..., None], b[..., :-1]], axis=-1) for a, b in zip(carry, scanned, strict=True))
    if flags is None:
        return before
    return _where(xp, ~xp.broadcast_to(flags, before[0].shape), before[:-1], identity)


def _error(case: Case, xp: Any, meaning: Meaning, got: Array, expected: Array, absolutes: Array | None) -> float:
    """Return the largest error divided by its tolerance; infinity if an exact result differs."""
    dtype = case.result_dtype
    if dtype.kind in EXACT or meaning.roundings is None:
        return 0.0 if bool((got == expected.astype(got.dtype)).all()) else math.inf
    eps = float(np.finfo(DTYPES[dtype.accumulator].name).eps)
    rounding = 2.0**-7 if dtype.name == "bfloat16" else float(np.finfo(dtype.name).eps)
    within = meaning.roundings(math.log2(case.shape[case.axis])) * eps * meaning.scale(xp, expected, absolutes)
    # Below the normal numbers, a rounding is half the fixed step between numbers.
    step = np.finfo(np.float16).smallest_subnormal if dtype.name == "float16" else np.finfo(np.float32).tiny
    tolerance = within + rounding * abs(expected) + float(step) / 2
    with np.errstate(invalid="ignore"):
        off = xp.where(got == expected, 0, abs(got - expected) / tolerance)  # equal values may be infinite
    error = float(off.max())
    return math.inf if math.isnan(error) else error
