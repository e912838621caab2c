"""What like calls on few elements are measured with: every flag, every kind of segment, every kind of operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import cuscan

Array = np.ndarray[Any, Any]
Call = Callable[..., Array]


class Small(NamedTuple):
    """A call on few elements, and what it is compared with, where there is something."""

    name: str
    ours: Call
    peer: Call | None


def small_calls(rng: np.random.Generator, n: int, loops: dict[str, Call]) -> Iterator[Small]:
    """All of them; `loops`: those of Numba by their names, if it is there."""
    for dtype in ("int64", "float32", "float64"):
        x = (rng.normal(size=n) * 30).astype(dtype)
        for name, ours, accumulate in (("add", cuscan.cumsum, np.cumsum), ("max", cuscan.cummax, _running_max)):
            flags = {"skipna": True} if dtype != "int64" else {}
            for call, run, peer in _flagged(rng, x, ours, accumulate, loops.get(name), **flags):
                yield Small(f"{name}{call}, {dtype}", run, peer)
    for dtype in ("float32", "float64", "complex64"):
        yield from _recurrences(rng, n, dtype, loops.get("recurrence"))
    yield from _others(rng, n)


def _running_max(x: Array, axis: int = -1) -> Array:
    running: Array = np.maximum.accumulate(x, axis)
    return running


Flagged = Iterator[tuple[str, Call, Call | None]]


def _flagged(
    rng: np.random.Generator, x: Array, ours: Any, accumulate: Any, loop: Call | None, **always: bool
) -> Flagged:
    n = x.size
    mask = rng.random(n) < 0.7
    least: float = 0 if ours is cuscan.cumsum else np.iinfo(np.int64).min
    if x.dtype.kind == "f" and least:
        least = -np.inf
    rows = x.reshape(-1, 10)
    yield "", partial(ours, x), partial(accumulate, x)
    yield " in reverse", partial(ours, x, reverse=True), lambda: accumulate(x[::-1])[::-1]
    yield " exclusive", partial(ours, x, exclusive=True), lambda: accumulate(np.append(x.dtype.type(least), x[:-1]))
    yield " with an initial value", partial(ours, x, initial=0), lambda: accumulate(np.append(x.dtype.type(0), x))[1:]
    yield " masked", partial(ours, x, mask=mask), lambda: accumulate(np.where(mask, x, x.dtype.type(least)))
    if always:
        yield " without NaN", partial(ours, x, **always), partial(accumulate, x)
    yield " along columns", partial(ours, rows, 0), partial(accumulate, rows, 0)
    yield " along rows", partial(ours, rows), partial(accumulate, rows, 1)
    for how, segments, reset in _segments(rng, n):
        yield f" by {how}", partial(ours, x, **segments), partial(loop, x, reset) if loop else None
    flags = reset.reshape(rows.shape)
    yield " by flags along columns", partial(ours, rows, 0, reset=flags), None
    yield " by flags, exclusive", partial(ours, x, reset=reset, exclusive=True), None
    yield " by flags, with an initial value", partial(ours, x, reset=reset, initial=1), None
    yield " with its carry", lambda: ours(x, return_carry=True)[0], partial(accumulate, x)


def _segments(rng: np.random.Generator, n: int) -> Iterator[tuple[str, dict[str, Array], Array]]:
    """Segments in every form, and where they start."""
    reset = rng.random(n) < 0.05
    offsets = np.concatenate([[0], np.flatnonzero(reset[1:]) + 1, [n]])
    yield "keys", {"keys": np.cumsum(reset)}, reset
    yield "offsets", {"offsets": offsets}, reset
    yield "flags", {"reset": reset}, reset


def _recurrences(rng: np.random.Generator, n: int, dtype: str, loop: Call | None) -> Iterator[Small]:
    a, b = (rng.normal(size=n).astype(dtype) for _ in range(2))
    a *= np.array(0.5, dtype)
    ours, never = cuscan.linear_recurrence, np.zeros(n, np.bool_)
    yield Small(f"recurrence, {dtype}", partial(ours, a, b), partial(loop, a, b, never) if loop else None)
    for how, segments, reset in _segments(rng, n):
        peer = partial(loop, a, b, reset) if loop else None
        yield Small(f"recurrence by {how}, {dtype}", partial(ours, a, b, **segments), peer)
    yield Small(f"recurrence from an initial value, {dtype}", partial(ours, a, b, initial=1.0), None)
    columns = partial(ours, a.reshape(-1, 10), b.reshape(-1, 10), axis=0)
    yield Small(f"recurrence along columns, {dtype}", columns, None)
    yield Small(f"recurrence with its last state, {dtype}", lambda: ours(a, b, return_last=True)[0], None)


def _others(rng: np.random.Generator, n: int) -> Iterator[Small]:
    x, z = rng.normal(size=n).astype(np.float32), rng.normal(size=(2, n)).astype(np.float32)
    whole = (z[0] + 1j * z[1]).astype(np.complex64)
    user = cuscan.Operator("plus", "earlier + later", 0, numpy=np.add)
    yield Small("add, complex64", partial(cuscan.cumsum, whole), partial(np.cumsum, whole))
    yield Small("mul, float32", partial(cuscan.cumprod, x), partial(np.cumprod, x))
    yield Small("mul, complex64", partial(cuscan.cumprod, whole), partial(np.cumprod, whole))
    yield Small(
        "max with positions, float32", lambda: cuscan.cummax(x, return_indices=True)[0], partial(_running_max, x)
    )
    yield Small("logaddexp, float32", partial(cuscan.logcumsumexp, x), partial(np.logaddexp.accumulate, x))
    yield Small("a user's operator, float32", partial(cuscan.scan, x, user), partial(np.cumsum, x))
