"""The steps of the defined order (order.py), over states that are tuples of arrays, one per field.

Positions lie along the first axis, so every step is a NumPy call on long contiguous memory.

A position that nothing precedes holds an arbitrary state, which no step combines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from cuscan.backends.record import Noted

Array = np.ndarray[Any, Any]
States = tuple[Array, ...]


class Rows(Protocol):
    """Steps of few calls, on all fields at once (see `planar.py`)."""

    def fit(self, states: States) -> bool:
        """Return whether such steps apply to states."""

    def scan(self, states: States) -> States:
        """Return the inclusive scan by doubling distances."""

    def chain(self, before: States, items: States) -> tuple[States, Iterator[States]]:
        """Return memory for `before` combined with each item, from left to right, and an iterator that does it."""


class Combine:
    """An operator over states, `function(earlier, later, out)`.

    `out` is None, or holds arrays for the result, apart from `earlier` and `later`; a function may ignore them.
    The first `hidden` fields appear in no result. `shown(earlier, later, out)` combines the other fields; its `earlier`
    has no hidden fields, and may also be `out`. `rows` and `shown_rows` do the same in steps of few calls.
    """

    def __init__(
        self,
        function: Callable[[States, States, States | None], States],
        *,
        hidden: int = 0,
        shown: Callable[[States, States, States | None], States] | None = None,
        rows: Rows | None = None,
        shown_rows: Rows | None = None,
    ) -> None:
        self._function = function
        self.hidden, self.rows, self.shown_rows = hidden, rows, shown_rows
        self.shown = shown or function

    def __call__(self, earlier: States, later: States, out: States | None = None) -> States:
        return self._function(earlier, later, out)

    def into(self, earlier: States, later: States, out: States) -> None:
        """Combine, and store the result in `out`."""
        put(self._function(earlier, later, out), out)


def at(states: States, place: Any) -> States:
    """Index all fields."""
    if len(states) == 1:  # a generator takes longer than NumPy
        return (states[0][place],)
    if len(states) == 2:
        return states[0][place], states[1][place]
    return tuple([part[place] for part in states])


def cast(states: States, dtypes: tuple[Any, ...]) -> States:
    """Return copies of all fields in the given dtypes."""
    return tuple(part.astype(dtype) for part, dtype in zip(states, dtypes, strict=True))


def turned(states: States) -> States:
    """Return all fields transposed and contiguous."""
    if min(states[0].shape) == 1:
        return tuple([part.reshape(part.shape[::-1]) for part in states])
    whole = empty_like(states, states[0].shape[::-1])
    put(tuple([part.T for part in states]), whole)
    return whole


def by_line(states: States, count: int) -> States:
    """Return all fields as (count, others), where `count` neighbours form a column."""
    return tuple([part.reshape(-1, count).T for part in states])


def flat(states: States, like: States) -> States:
    """Invert `by_line`, in the dtypes of the states `like`."""
    return tuple(part.T.reshape(-1).astype(of.dtype, copy=False) for part, of in zip(states, like, strict=True))


def shifted(inclusive: States) -> States:
    """Turn inclusive scans into what precedes each position; nothing precedes the first."""
    whole = empty_like(inclusive)
    put(at(inclusive, slice(1)), at(whole, slice(1)))
    put(at(inclusive, slice(-1)), at(whole, slice(1, None)))
    return whole


def after(combine: Combine, before: States, inclusive: States, alone: Any = None) -> States:
    """Combine what precedes each block with what precedes each position in its block, from inclusive scans of blocks.

    Nothing precedes the blocks `alone`.
    """
    joined = empty_like(inclusive)
    into = at(joined, slice(1, None))
    combine.into(before, at(inclusive, slice(-1)), into)
    put(before, at(joined, 0))
    if alone is not None:
        put(at(inclusive, (slice(-1), alone)), at(joined, (slice(1, None), alone)))
    return joined


def pairs(combine: Combine, totals: States) -> list[States]:
    """Return the totals, followed by the totals of blocks of 2, 4, ... of them."""
    levels = [totals]
    while (count := len(levels[-1][0]) // 2 * 2) > 0:
        even, odd = (at(levels[-1], slice(first, count, 2)) for first in (0, 1))
        levels.append(combine(even, odd, empty_like(even)))
    return levels


def before_in_pairs(combine: Combine, before: States | None, levels: list[States]) -> States:
    """Return what precedes each total: `before`, then a block for each set bit of its number, the largest first."""
    count = len(levels[0][0])
    so_far = at(levels[-1], slice(1)) if before is None else at(before, None)
    for level in reversed(range(len(levels))):  # from what precedes a block to what precedes each of its halves
        size = -(-count >> level)
        odd = size // 2
        halves = empty_like(so_far, (size, *so_far[0].shape[1:]))
        put(so_far, at(halves, slice(0, None, 2)))
        if odd:
            blocks, earlier = at(levels[level], slice(0, 2 * odd, 2)), at(so_far, slice(odd))
            put(combine(earlier, blocks, empty_like(blocks)), at(halves, slice(1, None, 2)))
            if before is None:  # nothing precedes the first block
                put(at(blocks, 0), at(halves, 1))
        so_far = halves
    return so_far


def kogge_stone(combine: Combine, states: States) -> States:
    """Return the inclusive scan by doubling distances; each step doubles the number of finished positions."""
    if combine.rows is not None and combine.rows.fit(states):
        return combine.rows.scan(states)
    for distance in doubling(len(states[0])):
        new = empty_like(states)
        put(at(states, slice(distance)), at(new, slice(distance)))
        earlier, later = at(states, slice(-distance)), at(states, slice(distance, None))
        combine.into(earlier, later, at(new, slice(distance, None)))
        states = new
    return states


def doubling(count: int) -> Iterator[int]:
    """Yield the powers of two below a number."""
    distance = 1
    while distance < count:
        yield distance
        distance *= 2


def total(combine: Combine, items: States) -> States:
    """Return the items, combined from left to right."""
    totals, rest, rows = at(items, 0), at(items, slice(1, None)), combine.rows
    if rows is not None and len(rest[0]) and rows.fit(totals):
        *_, totals = rows.chain(totals, rest)[1]
        return totals
    for i in range(len(rest[0])):
        totals = combine(totals, at(rest, i), empty_like(totals))
    return totals


def chain(combine: Combine, before: States, items: States, with_before: bool) -> tuple[States, Iterator[States]]:
    """Return memory for `before` combined with each item, from left to right, and an iterator that does it.

    No state has hidden fields but the items. The iterator yields the place of each result as soon as it is there. The
    memory begins with `before`, if the caller wants that, or else with the first result.
    """
    rows = combine.shown_rows
    if rows is not None and len(items[0]) and rows.fit(before):
        shown, steps = rows.chain(before, items)
        return at(shown, slice(not with_before, None)), steps
    shown = empty_like(before, (with_before + len(items[0]), *before[0].shape))
    if with_before:
        put(before, at(shown, 0))
    return shown, _steps_of(combine, before, items, at(shown, slice(with_before, None)))


def _steps_of(combine: Combine, before: States, items: States, places: States) -> Iterator[States]:
    for i in range(len(items[0])):
        into = at(places, i)
        put(combine.shown(before, at(items, i), into), into)
        yield into
        before = into


def empty_like(states: States, shape: tuple[int, ...] | None = None) -> States:
    """Return contiguous arrays of the same dtypes, and of the same shape or another.

    Those of a program are neighbours if they are alike: it merges copies between neighbours.
    """
    first = states[0]
    shape = first.shape if shape is None else shape
    if isinstance(first, Noted) and len({part.dtype for part in states}) == 1:
        return tuple(np.empty_like(first, order="C", shape=(len(states), *shape)))
    return tuple([np.empty_like(part, order="C", shape=shape) for part in states])


def put(states: States, out: States) -> None:
    """Copy states to `out`, except fields that are already there."""
    for part, field in zip(out, states, strict=True):
        if part is not field:
            part[...] = field


def fold(combine: Combine, states: States) -> States:
    """Return the inclusive scan from left to right."""
    parts = tuple([part if part.flags.c_contiguous else part.copy() for part in states])
    folded = empty_like(parts)
    before = at(folded, 0)
    put(at(parts, 0), before)
    for i in range(1, len(parts[0])):
        into = at(folded, i)
        combine.into(before, at(parts, i), into)
        before = into
    return folded
