"""The steps that the defined order (order.py) is made of: states are tuples of arrays, a field each.

They lie along the first axis, so that every step is a call on long pieces of memory.

What does not exist, because nothing precedes it, is never combined: at such places there is some state or other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
States = tuple[Array, ...]


class Combine:
    """An operator over states, `function(earlier, later, out)`: `out` may be arrays to put the result in, or None.

    The first `hidden` fields are in no result; `shown(earlier, later, out)` is the operator on the others, of earlier
    states without the hidden ones, in whose place `out` may be.
    """

    def __init__(
        self,
        function: Callable[[States, States, States | None], States],
        *,
        hidden: int = 0,
        shown: Callable[[States, States, States | None], States] | None = None,
    ) -> None:
        self._function = function
        self.hidden = hidden
        self.shown = shown or function

    def __call__(self, earlier: States, later: States, out: States | None = None) -> States:
        return self._function(earlier, later, out)

    def into(self, earlier: States, later: States, out: States) -> None:
        """Combine, and put the result in `out`."""
        put(self._function(earlier, later, out), out)


def at(states: States, place: Any) -> States:
    """All fields at a place."""
    if len(states) == 1:  # a generator takes longer than NumPy
        return (states[0][place],)
    if len(states) == 2:
        return states[0][place], states[1][place]
    return tuple([part[place] for part in states])


def cast(states: States, dtypes: tuple[Any, ...]) -> States:
    """Copies of all fields, in types."""
    return tuple(part.astype(dtype) for part, dtype in zip(states, dtypes, strict=True))


def turned(states: States) -> States:
    """All fields with their axes exchanged, contiguous."""
    return tuple([part.T.copy() if min(part.shape) > 1 else part.reshape(part.shape[::-1]) for part in states])


def by_line(states: States, count: int) -> States:
    """All fields of so many neighbours each, side by side, as (neighbours, others)."""
    return tuple([part.reshape(-1, count).T for part in states])


def flat(states: States, like: States) -> States:
    """The way back, in the dtypes of other states."""
    return tuple(part.T.reshape(-1).astype(of.dtype, copy=False) for part, of in zip(states, like, strict=True))


def shifted(inclusive: States) -> States:
    """From inclusive scans to what precedes each place; nothing precedes the first."""
    return tuple(np.concatenate([part[:1], part[:-1]]) for part in inclusive)


def after(combine: Combine, before: States, inclusive: States, alone: Any = None) -> States:
    """What precedes each place: what precedes its block, and then what an inclusive scan has before it in the block.

    Nothing precedes the blocks `alone`.
    """
    joined = empty_like(inclusive)
    into = at(joined, slice(1, None))
    combine.into(before, at(inclusive, slice(-1)), into)
    for whole, first, part in zip(joined, before, inclusive, strict=True):
        whole[0] = first
        if alone is not None:
            whole[1:, alone] = part[:-1, alone]
    return joined


def pairs(combine: Combine, totals: States) -> list[States]:
    """Totals, and those of blocks of 2, 4, ... of them."""
    levels = [totals]
    while (count := len(levels[-1][0]) // 2 * 2) > 0:
        even, odd = (at(levels[-1], slice(first, count, 2)) for first in (0, 1))
        levels.append(combine(even, odd))
    return levels


def before_in_pairs(combine: Combine, before: States | None, levels: list[States]) -> States:
    """What precedes each total: `before`, and then the blocks that its number is made of, the largest first."""
    count = len(levels[0][0])
    so_far = at(levels[-1], slice(1)) if before is None else at(before, None)
    for level in reversed(range(len(levels))):  # what precedes blocks of twice the size, then each half
        size = -(-count >> level)
        odd = size // 2
        halves = tuple([np.empty_like(part, shape=(size, *part.shape[1:])) for part in so_far])
        blocks = at(levels[level], slice(0, 2 * odd, 2))
        later = combine(at(so_far, slice(odd)), blocks) if odd else blocks
        for half, field, part, block in zip(halves, so_far, later, blocks, strict=True):
            half[::2] = field
            half[1::2] = part
            if odd and before is None:  # nothing precedes the first block
                half[1] = block[0]
        so_far = halves
    return so_far


def kogge_stone(combine: Combine, states: States) -> States:
    """The inclusive scan by doubling distances; after each, twice as many of the first places are done."""
    count = len(states[0])
    if count == 1:
        return states
    done = empty_like(states)
    put(at(states, 0), at(done, 0))
    now, distance = at(states, slice(1, None)), 1  # of the places that are not done
    while distance < count:
        ended = slice(distance, min(2 * distance, count))
        combine.into(at(done, slice(ended.stop - distance)), at(now, slice(distance)), at(done, ended))
        if ended.stop < count:
            now = combine(at(now, slice(-distance)), at(now, slice(distance, None)))
        distance *= 2
    return done


def empty_like(states: States) -> States:
    """Contiguous arrays of these shapes."""
    return tuple([np.empty_like(part, order="C") for part in states])


def put(states: States, out: States) -> None:
    """States where they belong, if they are not there already."""
    for part, field in zip(out, states, strict=True):
        if part is not field:
            part[...] = field


def fold(combine: Combine, states: States) -> States:
    """The inclusive scan from left to right."""
    parts = tuple([part if part.flags.c_contiguous else part.copy() for part in states])
    folded = empty_like(parts)
    before = at(folded, 0)
    put(at(parts, 0), before)
    for i in range(1, len(parts[0])):
        into = at(folded, i)
        combine.into(before, at(parts, i), into)
        before = into
    return folded
