"""Calls of every feature, for any shape and axis: the GPU tests and compute-sanitizer run them in all kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from draws import carried
from gpu import Call, Seen, numbers, numpy_dtype, way_for
from operator_examples import EXAMPLES, MATRIX_PRODUCT, Example

import cuscan

Array = np.ndarray[Any, Any]
Feature = Callable[[tuple[int, ...], int, int], Call]  # a function of a shape, an axis and a seed

SEGMENTS = ["reset", "reset of a row", "offsets", "offsets32", "keys", "keys of x"]


def offsets_for(rng: np.random.Generator, n: int, dtype: str = "int64", length: int = 40) -> Array:
    """Offsets of segments that have about `length` elements; a third of them are empty, also at the ends."""
    inner = rng.integers(0, n + 1, max(n // length, 2))
    return np.sort(np.concatenate([[0, 0, n, n], inner, inner[::2]])).astype(dtype)


def segments_for(
    kind: str | None, shape: tuple[int, ...], axis: int, seed: int = 0, length: int = 40
) -> dict[str, Any]:
    """The keyword argument of segments of one kind."""
    rng, n = np.random.default_rng(seed), shape[axis]
    along = tuple(n if a == axis % len(shape) else 1 for a in range(len(shape)))
    if kind is None:
        return {}
    if kind.startswith("reset"):
        return {"reset": rng.random(along if kind == "reset of a row" else shape) < 1 / length}
    if kind.startswith("offsets"):
        return {"offsets": offsets_for(rng, n, "int32" if kind == "offsets32" else "int64", length)}
    if kind == "keys":
        return {"keys": np.cumsum(rng.random(n) < 1 / length, dtype=np.int64)}
    return {"keys": (np.cumsum(rng.random(shape) < 1 / length, axis) % 3).astype(np.float32)}


def with_nan(x: Array, seed: int) -> Array:
    """The array with NaN in a third of its elements; in complex ones, one part or the other is NaN."""
    rng = np.random.default_rng(seed)
    missing = rng.random(x.shape) < 0.3
    odd = rng.choice([complex(1, np.nan), complex(np.nan, 1)], x.shape) if x.dtype.kind == "c" else np.float32(np.nan)
    return np.where(missing, odd, x).astype(x.dtype)


def scan(
    op: Any = "add",
    dtype: str = "float32",
    *,
    function: Callable[..., Any] = cuscan.scan,
    segments: str | None = None,
    masked: bool = False,
    nan: bool = False,
    result: str | None = None,
    **keywords: Any,
) -> Feature:
    """A scan of one array; `result` is the dtype= of the call."""

    def make(shape: tuple[int, ...], axis: int, seed: int) -> Call:
        x = numbers(shape, dtype, op if op == "mul" else "add", seed)
        call = {"axis": axis, **segments_for(segments, shape, axis, seed), **keywords}
        if result is not None:
            call["dtype"] = result
        if masked:
            call["mask"] = numbers(shape, "bool", seed=seed + 1)
        arguments = (op,) if function is cuscan.scan else ()
        return Call(function, (with_nan(x, seed) if nan else x, *arguments), call)

    return make


def extremum(function: Callable[..., Any], dtype: str = "float32", **keywords: Any) -> Feature:
    """A running maximum or minimum with positions, of few different values, so that there are many ties."""
    inner = scan(dtype=dtype, function=function, return_indices=True, **keywords)

    def make(shape: tuple[int, ...], axis: int, seed: int) -> Call:
        call, rng = inner(shape, axis, seed), np.random.default_rng(seed)
        x = rng.integers(0, 2 if dtype == "bool" else 4, shape).astype(numpy_dtype(dtype))
        n = shape[axis]
        if dtype != "bool" and n:  # now and then there is a new record
            x += (np.arange(n) * 9 // n).astype(x.dtype).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        if np.issubdtype(x.dtype, np.floating) and rng.random() < 0.5:
            x[rng.random(shape) < 1 / 1000] = np.nan
        return Call(function, (x,), call.keywords)

    return make


def recurrence(
    dtype: str = "float32",
    *,
    a: str | complex = "array",
    initial: str | complex | None = None,
    segments: str | None = None,
    **keywords: Any,
) -> Feature:
    """h = a h + b, with decays a of both signs, some of them 0. `a`: "array", "channels" or a number."""

    def make(shape: tuple[int, ...], axis: int, seed: int) -> Call:
        rng, kind = np.random.default_rng(seed), numpy_dtype(dtype)
        rows = shape[:axis] + shape[axis + 1 :]
        of_channels = tuple(1 if i == axis else n for i, n in enumerate(shape))
        decays: Any = a
        if isinstance(a, str):
            decays = rng.uniform(-1, 1, shape if a == "array" else of_channels)
            decays = np.where(rng.random(decays.shape) < 0.02, 0, decays)
            turn = np.exp(1j * rng.random(decays.shape)) if dtype.startswith("complex") else 1
            decays = (decays * turn).astype(kind)
        call = {"axis": axis, **segments_for(segments, shape, axis, seed), **keywords}
        if initial == "rows":
            state = np.float32 if dtype in ("float16", "bfloat16") else kind
            call["initial"] = np.asarray(rng.standard_normal(rows)).astype(state)
        elif initial is not None:
            call["initial"] = initial
        return Call(cuscan.linear_recurrence, (decays, numbers(shape, dtype, seed=seed)), call)

    return make


def user(
    example: Example, *, segments: str | None = None, masked: bool = False, initial: bool = False, **keywords: Any
) -> Feature:
    """A user operator, on one array or a tuple of arrays."""

    def make(shape: tuple[int, ...], axis: int, seed: int) -> Call:
        rng = np.random.default_rng(seed)
        arrays = example.draw(rng, shape)
        call = {"axis": axis, **segments_for(segments, shape, axis, seed), **keywords}
        if masked:
            call["mask"] = rng.random(shape) < 0.7
        if initial:
            drawn = tuple(part.item() for part in example.draw(rng, ()))
            call["initial"] = drawn[0] if example.state is None else drawn
        return Call(cuscan.scan, (arrays[0] if example.state is None else arrays, example.operator()), call)

    return make


def in_chunks(inner: Feature) -> Feature:
    """The same with a carry in and out."""

    def make(shape: tuple[int, ...], axis: int, seed: int) -> Call:
        call, rng = inner(shape, axis, seed), np.random.default_rng(seed)
        keywords = {**call.keywords, "return_carry": True}
        request = Call(call.function, call.arguments, keywords).request()
        fields = tuple(carried(rng, tuple(np.delete(shape, axis)), spec.dtype.name) for spec in request.carry_out)
        return Call(call.function, call.arguments, {**keywords, "carry": fields})

    return make


def total(inner: Feature) -> Feature:
    """The totals of the lines of a scan."""

    def make(shape: tuple[int, ...], axis: int, seed: int) -> Call:
        call = inner(shape, axis, seed)
        return Call(cuscan.total, call.arguments, call.keywords)

    return make


_ALL = {"reverse": True, "exclusive": True, "masked": True, "initial": 1.5}
_OF_USERS = [  # the examples take them in turn
    {"segments": "offsets"},
    {"initial": True, "reverse": True},
    {"segments": "keys", "initial": True},
    {"segments": "reset", "exclusive": True},
    {"masked": True, "include_initial": True},
    {"segments": "offsets32", "reverse": True},
]

# Features whose results have the bits of the twin's.
FEATURES: dict[str, Feature] = {
    "reset": scan(segments="reset"),
    "reset, all flags": scan(segments="reset of a row", **_ALL),
    "offsets": scan(segments="offsets"),
    "offsets, all flags": scan(segments="offsets32", **_ALL),
    "keys": scan(segments="keys"),
    "keys, all flags": scan(segments="keys of x", **_ALL),
    "one more": scan(include_initial=True, masked=True),
    "one more, segments": scan(segments="offsets", reverse=True, exclusive=True, include_initial=True, initial=2),
    "missing": scan(nan=True, skipna=True),
    "missing, segments": scan("mul", "complex64", nan=True, skipna=True, segments="reset", masked=True),
    "positions": extremum(cuscan.cummax),
    "positions, all flags": extremum(cuscan.cummin, ties="last", segments="offsets", **{**_ALL, "initial": 1}),
    "recurrence": recurrence(),
    "recurrence, chunk": recurrence("bfloat16", initial="rows", segments="reset", reverse=True, return_last=True),
    "recurrence, one decay": recurrence(a=0.97, initial=0.5, return_last=True),
    "recurrence, offsets": recurrence("complex64", a="channels", segments="offsets", reverse=True, initial="rows"),
    "carry": in_chunks(scan()),
    "carry, all flags": in_chunks(scan(segments="reset", **_ALL)),
    "carry, keys": in_chunks(scan("max", "float16", segments="keys of x", reverse=True)),
    "carry, offsets": in_chunks(scan(segments="offsets", include_initial=True)),
    "carry, positions": in_chunks(extremum(cuscan.cummax, segments="keys")),
    "carry, positions from the end": in_chunks(extremum(cuscan.cummin, "int64", ties="last", reverse=True)),
    "carry, recurrence": in_chunks(recurrence(return_last=True)),
    "carry, recurrence in segments": in_chunks(recurrence("complex64", segments="offsets32", reverse=True)),
    "carry, matrices": in_chunks(user(MATRIX_PRODUCT, reverse=True)),
    "total": total(scan()),
    "total, segments": total(scan("mul", "complex64", segments="keys", masked=True, reverse=True)),
    **{example.name: user(example) for example in EXAMPLES},
    **{
        f"{example.name}, flags": user(example, **flags)
        for example, flags in zip(EXAMPLES, itertools.cycle(_OF_USERS), strict=False)
    },
}

# Features with exponentials and logarithms.
LOG_SUMS: dict[str, Feature] = {
    "log sums": scan(function=cuscan.logcumsumexp),
    "log sums, all flags": scan("logaddexp", segments="keys", **_ALL),
    "log sums, segments": scan("logaddexp", segments="offsets", include_initial=True, nan=True, skipna=True),
}


def call_for(feature: Feature, kind: str, seed: int = 0) -> Call:
    """A call of a feature that leads to one of `WAYS`, with the present orders."""
    return feature(*way_for(kind, lambda shape, axis: feature(shape, axis, seed).request()), seed)


def strided(array: Array) -> Seen:
    """The same elements, as every second one of a larger array, which ends with an element of its own."""
    base = np.full((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype.type(1))
    base[..., : 2 * array.shape[-1] : 2] = array
    n = array.shape[-1]
    return Seen(base, lambda memory: memory[..., : 2 * n : 2])
