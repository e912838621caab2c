"""Calls of every public function with every kind of argument, for JAX and NumPy arrays alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from operator_examples import EXAMPLES

import cuscan

Array = Any
_AFFINE = next(example for example in EXAMPLES if example.name == "affine")
AFFINE = _AFFINE.operator()
TIMES = cuscan.Operator(
    "times", "earlier * later", 1, numpy=np.multiply, vjp=lambda earlier, later, g: (g * later, g * earlier)
)


@dataclass(frozen=True)
class Case:
    """`call(*arrays)` is the call; `draw(rng, rows, columns)` creates its arrays in NumPy."""

    name: str
    call: Callable[..., Any]
    draw: Callable[[np.random.Generator, int, int], tuple[Array, ...]]
    exact: bool = True  # bit for bit, also on a GPU

    def __str__(self) -> str:
        return self.name


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def bools(rng: np.random.Generator, *shape: int) -> Array:
    return rng.random(shape) < 0.3


def offsets(rng: np.random.Generator, length: int) -> Array:
    return np.array([0, *sorted(rng.integers(0, length, 4)), length], np.int32)


def x(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return (floats(rng, n, m),)


def small(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return (rng.integers(0, 8, (n, m)).astype(np.int32),)


def with_nan(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return (np.where(bools(rng, n, m), np.float32(np.nan), floats(rng, n, m)),)


def near_one(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return (1 + floats(rng, n, m) / 64,)


def flagged(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return floats(rng, n, m), bools(rng, n, m)


def keyed(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    """Keys along axis 0."""
    return floats(rng, n, m), rng.integers(0, 3, n).astype(np.int32)


def with_offsets(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return floats(rng, n, m), offsets(rng, m)


def gated(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return rng.random((n, m), np.float32), floats(rng, n, m)


def from_states(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return rng.random((n, 1), np.float32), floats(rng, n, m), floats(rng, n)


def fields(rng: np.random.Generator, n: int, m: int) -> tuple[Array, ...]:
    return _AFFINE.draw(rng, (n, m))


def handed_on(carry: Array) -> Array:
    """A carry between two chunks. NumPy's is rounded as in JAX, where 64-bit types are off (docs/jax.md)."""
    return carry.astype(np.float32).astype(carry.dtype) if isinstance(carry, np.ndarray) else carry


def in_chunks(x: Array) -> Any:
    half = x.shape[1] // 2
    first, carry = cuscan.cumsum(x[:, :half], return_carry=True)
    return first, cuscan.cumsum(x[:, half:], carry=handed_on(carry), return_carry=True)


def indices_in_chunks(x: Array) -> Any:
    half = x.shape[1] // 2
    *first, carry = cuscan.cummax(x[:, :half], return_indices=True, return_carry=True)
    return first, cuscan.cummax(x[:, half:], return_indices=True, carry=carry)


CASES = [
    Case("cumsum", cuscan.cumsum, x),
    Case("reverse, exclusive", lambda x: cuscan.cumsum(x, axis=0, reverse=True, exclusive=True), x),
    Case("include_initial", lambda x: cuscan.cumsum(x, include_initial=True, initial=0.5), x),
    Case("axis=None", lambda x: cuscan.cumsum(x, axis=None), x),
    Case("mask", lambda x, mask: cuscan.cumsum(x, dim=0, mask=mask), flagged),
    Case("mask along", lambda x, mask: cuscan.cumsum(x, axis=0, mask=mask[:, 0]), flagged),
    Case("reset", lambda x, reset: cuscan.cumsum(x, reset=reset, initial=2, reverse=True), flagged),
    Case("keys", lambda x, keys: cuscan.cummin(x, axis=0, keys=keys), keyed),
    Case("offsets", lambda x, offsets: cuscan.cumsum(x, offsets=offsets, exclusive=True), with_offsets),
    Case("list of offsets", lambda x: cuscan.cumsum(x, offsets=[0, 2, x.shape[1]]), x),
    Case("integers", lambda x: cuscan.cumsum(x, axis=0), small),
    Case("flags", lambda x: cuscan.cumsum(x > 3), small),
    Case("bits", lambda x: (cuscan.scan(x, "and"), cuscan.scan(x, "or"), cuscan.scan(x, "xor")), small),
    Case("cumprod", cuscan.cumprod, near_one),
    Case("cummin", cuscan.cummin, x),
    Case("cummax", lambda x: cuscan.cummax(x, axis=0), x),
    Case("indices", lambda x: cuscan.cummax(x, return_indices=True, ties="last", reverse=True), small),
    Case("indices of nothing", lambda x, mask: cuscan.cummin(x, return_indices=True, mask=mask), flagged),
    Case("logcumsumexp", cuscan.logcumsumexp, x, exact=False),
    Case("nancumsum", cuscan.nancumsum, with_nan),
    Case("nancumprod", lambda x: cuscan.nancumprod(x * 0 + 1, axis=0), with_nan),
    Case("cumulative_sum", lambda x: cuscan.cumulative_sum(x, axis=1, include_initial=True), x),
    Case("cumulative_prod", lambda x: cuscan.cumulative_prod(x, axis=0), near_one),
    Case("dtype", lambda x: cuscan.cumsum(x, dtype="float32"), small),
    Case("recurrence", lambda a, b: cuscan.linear_recurrence(a, b, axis=0, return_last=True), gated),
    Case("recurrence of a number", lambda b: cuscan.linear_recurrence(0.5, b, initial=2.0), x),
    Case(
        "recurrence from a state",
        lambda a, b, h: cuscan.linear_recurrence(a, b, initial=h, return_carry=True),
        from_states,
    ),
    Case("chunks", in_chunks, x),
    Case("indices of chunks", indices_in_chunks, small),
    Case("carry alone", lambda x: cuscan.scan(x, "max", include_initial=True, return_carry=True), x),
    Case("total", cuscan.total, x),
    Case("total, keys, indices", lambda x, k: cuscan.total(x, "max", axis=0, keys=k, return_indices=True), keyed),
    Case("total of a recurrence", lambda b: cuscan.total((0.5, b), "linear_recurrence"), x),
    Case("operator", lambda x: cuscan.scan(x, TIMES, exclusive=True), near_one),
    Case("operator of fields", lambda a, b: cuscan.scan((a, b), AFFINE, axis=0), fields),
]


# ---- scans from a number -----------------------------------------------------------------------------------------

FLOATS = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
INTEGERS = np.random.default_rng(0).integers(0, 100, (3, 7)).astype(np.int32)
POSITIVE = FLOATS > 0

# Scans of x from a number, which is one of `STARTS`.
FROM_NUMBERS: dict[str, Callable[[Array, Any], Any]] = {
    "add": lambda x, i: cuscan.cumsum(x, initial=i),
    "add, exclusive, mask": lambda x, i: cuscan.cumsum(x, initial=i, axis=0, exclusive=True, mask=POSITIVE),
    "mul, reverse, include_initial": lambda x, i: cuscan.cumprod(x, initial=i, reverse=True, include_initial=True),
    "max": lambda x, i: cuscan.cummax(x, initial=i, axis=0),
    "min with indices": lambda x, i: cuscan.cummin(x, initial=i, return_indices=True, return_carry=True),
    "logaddexp": lambda x, i: cuscan.logcumsumexp(x, initial=i),
    "operator": lambda x, i: cuscan.scan(x, TIMES, initial=i),
    "fields": lambda x, i: cuscan.scan((x, x), AFFINE, initial=(i, 2)),
    "total": lambda x, i: cuscan.total(x, initial=i),
    "total of a recurrence": lambda x, i: cuscan.total((x, x), "linear_recurrence", initial=i),
    "recurrence": lambda x, i: cuscan.linear_recurrence(0.5, x, initial=i, return_last=True),
    "one line": lambda x, i: cuscan.cumsum(x[0], initial=i),
    "nothing": lambda x, i: cuscan.cumsum(x[:, :0], initial=i, include_initial=True, return_carry=True),
    "bfloat16": lambda x, i: cuscan.cumsum(x, initial=i, dtype="bfloat16").astype("float32"),
    "and": lambda x, i: cuscan.scan(x, "and", initial=i),
    "or of flags": lambda x, i: cuscan.scan(x > 0, "or", initial=i),
    "sum of integers": lambda x, i: cuscan.cumsum(x, initial=i, exclusive=True, dtype="int32"),
}
STARTS = {"and": 93, "or of flags": True, "sum of integers": -7, "min with indices": -0.25}


def start_of(name: str) -> tuple[Array, Any]:
    """The elements of a scan, and the number that it starts from."""
    return INTEGERS if name in ("and", "sum of integers") else FLOATS, STARTS.get(name, 0.75)


# ---- derivatives ---------------------------------------------------------------------------------------------------

MASK, RESET = np.random.default_rng(0).random((2, 3, 6)) < 0.6
KEYS, OFFSETS = np.array([1, 1, 2]), np.array([0, 2, 2, 6])


def standard_normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# Functions that take NumPy or JAX arrays.
DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "add": cuscan.cumsum,
    "add, exclusive, mask": lambda x: cuscan.cumsum(x, exclusive=True, mask=MASK, axis=0),
    "add, reset": lambda x: cuscan.cumsum(x, reset=RESET, reverse=True, include_initial=True),
    "add, offsets": lambda x: cuscan.cumsum(x, offsets=OFFSETS, initial=0.5),
    "add, skipna": cuscan.nancumsum,
    "mul": lambda x: cuscan.cumprod(x, axis=0, keys=KEYS),
    "mul, all": lambda x: cuscan.cumprod(x, reverse=True, exclusive=True, include_initial=True, initial=2.0),
    "max": cuscan.cummax,
    "min with indices": lambda x: cuscan.cummin(x, return_indices=True, reverse=True, offsets=OFFSETS)[0],
    "logaddexp": lambda x: cuscan.logcumsumexp(x, mask=MASK, initial=-1.0),
    "operator": lambda x: cuscan.scan(x, TIMES, reset=RESET),
    "recurrence": cuscan.linear_recurrence,
    "recurrence, all": lambda a, b, h: cuscan.linear_recurrence(
        a, b, initial=h, reset=RESET, reverse=True, return_last=True
    ),
    "sum, carry": lambda x, c: cuscan.cumsum(x, carry=c, return_carry=True, offsets=OFFSETS),
    "recurrence, carry": lambda a, b, p, h: cuscan.linear_recurrence(a, b, carry=(p, h), return_carry=True),
    "total": lambda x: cuscan.total(x, "logaddexp"),
    "recurrence of a number": lambda b, h: cuscan.linear_recurrence(0.5, b[0], axis=0, initial=h[0]),
}
SHAPES = {
    "recurrence": [(3, 1), (3, 6)],
    "recurrence, all": [(3, 6), (3, 6), (3,)],
    "sum, carry": [(3, 6), (3,)],
    "recurrence, carry": [(3, 6), (3, 6), (3,), (3,)],
    "recurrence of a number": [(3, 6), (3,)],
}


# ---- helpers of tests of JAX ---------------------------------------------------------------------------------------


def leaves(results: Any) -> list[Any]:
    """The arrays of a result, whatever its structure."""
    if isinstance(results, tuple | list):
        return [leaf for part in results for leaf in leaves(part)]
    return [results]


def stacked(case: Case, rows: int = 5, columns: int = 8) -> tuple[list[tuple[Array, ...]], tuple[Array, ...]]:
    """The arrays of three similar calls; and the same arrays stacked along a new first axis."""
    each = [case.draw(np.random.default_rng(seed), rows, columns) for seed in range(3)]
    return each, tuple(np.stack(arrays) for arrays in zip(*each, strict=True))


def in_a_loop(case: Case) -> Callable[..., Any]:
    """A program with three similar calls: one behind a branch, those behind the other in a checkpoint."""
    import jax

    def body(step: Array, arrays: tuple[Array, ...]) -> Any:
        plain = lambda: case.call(*arrays)  # noqa: E731
        return step + 1, jax.lax.cond(step == 0, plain, lambda: jax.checkpoint(case.call)(*arrays))

    return jax.jit(lambda *arrays: jax.lax.scan(body, 0, arrays)[1])


def in_a_batch(case: Case) -> Callable[..., Any]:
    """A program that makes similar calls as one batch."""
    import jax

    return jax.jit(jax.vmap(case.call))


def wide_types(on: bool = True) -> Any:
    """JAX with 64-bit types, or without, as long as the context lasts."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64(on)


def compilations(function: Any, *arguments: Any) -> int:
    """The number of programs that are compiled while a function runs."""
    import jax

    before = len(_compiled())
    jax.block_until_ready(function(*arguments))
    return len(_compiled()) - before


@functools.cache
def _compiled() -> list[str]:
    """Programs compiled since the first call; not all versions of JAX can remove a listener."""
    import jax

    events: list[str] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return events
