"""The steps that the defined order (order.py) is made of: states are tuples of arrays, a field each.

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

    `anywhere`: it goes place by place and takes states that are no neighbours, so that calls may be longer than they
    need be. The first `hidden` fields are in no result; `shown(earlier, later, out)` is the operator on the others, of
    earlier states without the hidden ones. `ufunc`: what it is, if it is one on a single field.
    """

    def __init__(
        self,
        function: Callable[[States, States, States | None], States],
        *,
        anywhere: bool = True,
        hidden: int = 0,
        shown: Callable[[States, States, States | None], States] | None = None,
        ufunc: np.ufunc | None = None,
    ) -> None:
        self._function = function
        self.anywhere = anywhere
        self.hidden = hidden
        self.shown = shown or function
        self.ufunc = ufunc

    def __call__(self, earlier: States, later: States, out: States | None = None) -> States:
        return self._function(earlier, later, out)


def at(states: States, place: Any) -> States:
    """All fields at a place."""
    if len(states) == 1:  # a generator takes longer than NumPy
        return (states[0][place],)
    if len(states) == 2:
        return states[0][place], states[1][place]
    return tuple([part[place] for part in states])


def reshaped(states: States, shape: tuple[int, ...]) -> States:
    """All fields in a shape."""
    return tuple([part.reshape(shape) for part in states])


def cast(states: States, dtypes: tuple[Any, ...]) -> States:
    """Copies of all fields, in types."""
    return tuple(part.astype(dtype) for part, dtype in zip(states, dtypes, strict=True))


def shifted(inclusive: States) -> States:
    """From inclusive scans along the last axis to what precedes each place; nothing precedes the first."""
    flat = [part.reshape(-1) for part in inclusive]
    moved = [np.concatenate([part[:1], part[:-1]]) for part in flat]
    return tuple(part.reshape(like.shape) for part, like in zip(moved, inclusive, strict=True))


def after(combine: Combine, before: States, within: States, exists: bool, *, shown: bool = False) -> States:
    """What precedes places within blocks, behind what precedes the blocks.

    Nothing precedes the first place within; nothing precedes the first block, unless it `exists`. `shown`: without
    what is hidden.
    """
    first = combine.hidden if shown else 0
    if not exists and before[0].shape[-1] == 1:
        return within[first:]
    function = combine.shown if shown else combine
    joined = function(at(before[first:], (..., None)), within, None)
    for together, block_alone, place_alone in zip(joined, before[first:], within[first:], strict=True):
        together[..., 0] = block_alone
        if not exists:
            together[..., 0, :] = place_alone[..., 0, :]
    return joined


def pairs(combine: Combine, totals: States) -> list[States]:
    """Totals along the last axis, and those of blocks of 2, 4, ... of them."""
    levels = [totals]
    while (count := levels[-1][0].shape[-1] // 2 * 2) > 0:
        even, odd = (at(levels[-1], (..., slice(first, count, 2))) for first in (0, 1))
        levels.append(combine(even, odd))
    return levels


def before_in_pairs(combine: Combine, before: States | None, levels: list[States]) -> States:
    """What precedes each total: `before`, and then the blocks that its number is made of, the largest first."""
    count = levels[0][0].shape[-1]
    so_far = at(levels[-1], (..., slice(1))) if before is None else at(before, (..., None))
    for level in reversed(range(len(levels))):  # what precedes blocks of twice the size, then each half
        size = -(-count >> level)
        odd = size // 2
        halves = tuple(np.empty((*part.shape[:-1], size), part.dtype) for part in so_far)
        blocks = at(levels[level], (..., slice(0, 2 * odd, 2)))
        later = combine(at(so_far, (..., slice(odd))), blocks) if odd else blocks
        for half, field, part, block in zip(halves, so_far, later, blocks, strict=True):
            half[..., ::2] = field
            half[..., 1::2] = part
            if odd and before is None:  # nothing precedes the first block
                half[..., 1] = block[..., 0]
        so_far = halves
    return so_far


def kogge_stone(combine: Combine, states: States) -> States:
    """The inclusive scan along the last axis by doubling distances; the memory of `states` is used."""
    distance, count = 1, states[0].shape[-1]
    now = tuple(map(np.ascontiguousarray, states))
    then = tuple(map(np.empty_like, now)) if count > 1 else now
    line: tuple[Any, ...] = ()
    if combine.anywhere:  # one long call, whose results across the ends of the axis are replaced
        flat, flat_then = reshaped(now, (-1,)), reshaped(then, (-1,))
    else:
        flat, flat_then, line = now, then, (...,)
    while distance < count:
        earlier, later = (*line, slice(-distance)), (*line, slice(distance, None))
        into = at(flat_then, later)
        put(combine(at(flat, earlier), at(flat, later), into), into)
        for part, field in zip(then, now, strict=True):
            part[..., :distance] = field[..., :distance]
        now, then, flat, flat_then, distance = then, now, flat_then, flat, distance * 2
    return now


def put(states: States, out: States) -> None:
    """States where they belong, if they are not there already."""
    for part, field in zip(out, states, strict=True):
        if part is not field:
            part[...] = field


def fold(combine: Combine, states: States) -> States:
    """The inclusive scan along the last axis from left to right."""
    if combine.ufunc is not None:
        return (combine.ufunc.accumulate(states[0], -1),)
    folded = tuple(part.copy() for part in states)
    for i in range(1, states[0].shape[-1]):
        put(combine(at(folded, (..., i - 1)), at(states, (..., i))), at(folded, (..., i)))
    return folded
