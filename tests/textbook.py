"""Textbook scans and segments: one element after the other, in Python's own numbers.

Nothing here depends on cuscan's methods. `None` means "nothing yet", so no identity is ever combined with anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Step = Callable[[Any, Any], Any]


def in_scan_order(array: Array, axis: int, reverse: bool) -> Array:
    """A view with the scan axis last and its elements in scan order."""
    moved = np.moveaxis(array, axis, -1)
    return moved[..., ::-1] if reverse else moved


def segments_for(rng: np.random.Generator, kind: str, shape: tuple[int, ...], axis: int) -> dict[str, Array]:
    """The keyword argument of short segments of a kind: reset, offsets, keys, or none."""
    n = shape[axis]
    if kind == "reset":
        return {"reset": rng.random(shape) < 0.2}
    if kind == "offsets":
        return {"offsets": np.sort(np.concatenate([[0, n], rng.integers(0, n + 1, n // 5)]))}
    return {"keys": rng.integers(0, 2, n)} if kind == "keys" else {}


def restarts(
    shape: tuple[int, ...],
    axis: int = -1,
    reverse: bool = False,
    *,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
) -> Array:
    """Bools of `shape` that say where segments begin, in scan order."""
    if reset is not None:
        return np.broadcast_to(reset, shape)
    if offsets is not None:
        keys = np.array([k for k in range(len(offsets) - 1) for _ in range(offsets[k], offsets[k + 1])])
    found = np.zeros(shape, bool)
    if keys is not None:
        if np.ndim(keys) == 1 and len(keys) == shape[axis]:
            keys = np.reshape(keys, [-1 if a == axis % len(shape) else 1 for a in range(len(shape))])
        names = in_scan_order(np.broadcast_to(keys, shape), axis, reverse)
        in_scan_order(found, axis, reverse)[..., 1:] = names[..., 1:] != names[..., :-1]
    return found


def scan_row(elements: Any, kept: Any, begins: Any, step: Step, initial: Any) -> tuple[list[Any], list[Any]]:
    """One row in scan order: what precedes each element in its segment, without and with the element."""
    running, before, after = initial, [], []
    for element, keep, begin in zip(elements, kept, begins, strict=True):
        if begin:
            running = initial
        before.append(running)
        if keep:
            running = element if running is None else step(running, element)
        after.append(running)
    return before, after


def scan(
    x: Any,
    step: Step,
    empty: Any,
    *,
    axis: int = -1,
    reverse: bool = False,
    exclusive: bool = False,
    include_initial: bool = False,
    mask: Any = None,
    initial: Any = None,
    begins: Any = False,
) -> Array:
    """The scan as an array of objects. `empty` is the result of combining nothing, `begins` the starts of segments."""
    x = plain(x)
    shape = list(x.shape)
    shape[axis] += include_initial
    out = np.empty(shape, object)
    sources = [np.broadcast_to(a, x.shape) for a in (x, True if mask is None else mask, begins)]
    rows = [in_scan_order(a, axis, reverse) for a in sources]
    target = in_scan_order(out, axis, reverse)
    for place in np.ndindex(target.shape[:-1]):
        before, after = scan_row(*(row[place] for row in rows), step, initial)
        if include_initial:
            values = before + (after[-1:] or [initial]) if exclusive else [initial, *after]
        else:
            values = before if exclusive else after
        for i, value in enumerate(values):
            target[(*place, i)] = empty if value is None else value
    return out


def plain(x: Any) -> Array:
    """The elements as Python numbers (or as the objects that they are)."""
    x = np.asarray(x)
    out = np.empty(x.shape, object)
    for place in np.ndindex(x.shape):
        out[place] = x[place].item() if isinstance(x[place], np.generic) else x[place]
    return out


def wrapped(values: Array, dtype: Any) -> Array:
    """Objects as an array: integers modulo the width of `dtype`, all others converted."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        low, bits = int(np.iinfo(dtype).min), 8 * dtype.itemsize
        values = np.array([(int(v) - low) % 2**bits + low for v in values.flat], object).reshape(values.shape)
        return values.astype(dtype)
    return values.astype("c16" if dtype.kind == "c" else "f8").astype(dtype)


def lowest(dtype: Any) -> Any:
    """The identity of max."""
    kind = np.dtype(dtype).kind
    return {"b": lambda: False, "i": lambda: int(np.iinfo(dtype).min), "u": lambda: 0}.get(kind, lambda: -np.inf)()


def highest(dtype: Any) -> Any:
    """The identity of min."""
    kind = np.dtype(dtype).kind
    return {"b": lambda: True, "i": lambda: int(np.iinfo(dtype).max), "u": lambda: int(np.iinfo(dtype).max)}.get(
        kind, lambda: np.inf
    )()
