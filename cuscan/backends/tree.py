"""The defined order (order.py) in few NumPy calls: states are tuples of arrays, a field each.

Elements lie as (items, warp scans, lanes): the lanes of a warp scan are neighbours, so every step of the order is a
call on long pieces of memory. What does not exist, because nothing precedes it, is never combined: at such places there
is some state or other, which the first element of a line then replaces.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuscan.order import GROUP, LANES, PAIRED_SECTION, SECTION, Order

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


class Shape(NamedTuple):
    """The levels of a group of units, no larger than so many elements ask for."""

    units: int
    warps: int
    vectors: int
    lanes: int
    items: int

    @classmethod
    def of(cls, order: Order, n: int) -> Shape:
        return cls(
            -(-n // order.unit),
            min(order.warps, -(-n // order.warp_tile)),
            min(order.vectors, -(-n // order.vector)),
            min(LANES, -(-n // order.items)),
            min(order.items, n),
        )

    @property
    def elements(self) -> int:
        return self.units * self.warps * self.vectors * self.lanes * self.items


def block(part: Array, lines: int, shape: Shape) -> Array:
    """(lines, n) as (items, warp scans of all lines, lanes)."""
    n = part.shape[1]
    if n != shape.elements:
        padded = np.zeros((lines, shape.elements), part.dtype)
        padded[:, :n] = part  # no stored result depends on what is behind
        part = padded
    return np.ascontiguousarray(part.reshape(-1, shape.lanes, shape.items).transpose(2, 0, 1))


def unblock(blocked: Array, lines: int, n: int) -> Array:
    """The way back, to (lines, n)."""
    return blocked.transpose(1, 2, 0).reshape(lines, -1)[:, :n]


class Carry:
    """What precedes some units of lines: the sections before, and what came before in the section."""

    def __init__(self, combine: Combine, order: Order, initial: States | None) -> None:
        self.paired = order.paired
        self._combine = combine
        self._sections = initial
        self._groups: list[States] = []  # totals, in this section
        self._units: States = ()  # totals, in this group
        self._blocks: list[tuple[int, States]] = []  # of a paired order: totals in this section, of so many units

    @property
    def is_unused(self) -> bool:
        """Whether nothing has passed, and nothing came in."""
        return self._sections is None and not (self._groups or self._units or self._blocks)

    def pass_units(self, totals: States) -> tuple[States, bool]:
        """What precedes each of the next units, and whether anything precedes the first of them.

        They are a power of two, which divides a group (of a paired order, a section); or the last ones of all.
        """
        return self._pass_pairs(totals) if self.paired else self._pass_chain(totals)

    def _pass_chain(self, totals: States) -> tuple[States, bool]:
        units, before = totals, self._before_group()
        if self._units:
            units = tuple(np.concatenate(parts, -1) for parts in zip(self._units, totals, strict=True))
        so_far = _kogge_stone(self._combine, tuple(part.copy() for part in units))
        befores = _shifted(so_far)
        if before is not None:
            befores = _after(self._combine, before, befores, True)
        exists = before is not None or bool(self._units)
        count, new = units[0].shape[-1], totals[0].shape[-1]
        self._units = units
        if count == GROUP:
            self._units = ()
            self._groups.append(at(so_far, (..., -1)))
        if len(self._groups) == SECTION // GROUP:
            self._sections = self._before_group()
            self._groups = []
        return at(befores, (..., slice(count - new, None))), exists

    def _before_group(self) -> States | None:
        """None where nothing precedes."""
        if not self._groups:
            return self._sections
        groups = tuple(np.stack(parts, -1) for parts in zip(*self._groups, strict=True))
        total = at(_kogge_stone(self._combine, groups), (..., -1))
        return total if self._sections is None else self._combine(self._sections, total)

    def _pass_pairs(self, totals: States) -> tuple[States, bool]:
        before = self._sections
        for _, block in self._blocks:
            before = block if before is None else self._combine(before, block)
        levels = _pairs(self._combine, totals)
        count, total = totals[0].shape[-1], at(levels[-1], (..., 0))
        while self._blocks and self._blocks[-1][0] == count:
            _, earlier = self._blocks.pop()
            count, total = 2 * count, self._combine(earlier, total)
        self._blocks.append((count, total))
        if count == PAIRED_SECTION:
            self._sections = total if self._sections is None else self._combine(self._sections, total)
            self._blocks = []
        return _before_in_pairs(self._combine, before, levels), before is not None


class Prefixes(NamedTuple):
    """What precedes each thread's items, as (warp scans, lanes), and what that is made of.

    `threads`: without the hidden fields. `units`: what precedes each unit, in the carry's type; for the first one
    something does if it `exists`. `warps`: what precedes each warp in its unit; `runs`: what precedes each run in its
    warp (of a paired order, in its unit).
    """

    threads: States
    exists: bool
    units: States
    warps: States
    runs: States


def prefixes(combine: Combine, elements: States, shape: Shape, carry: Carry, wide: tuple[Any, ...]) -> Prefixes:
    """What precedes what in some units; their totals, of dtypes `wide`, pass the carry."""
    narrow = tuple(part.dtype for part in elements)
    totals = at(elements, 0)
    for i in range(1, shape.items):
        totals = combine(totals, at(elements, i))
    warps: States = ()
    if carry.paired:
        pairs = _pairs(combine, _reshaped(totals, (-1, shape.units, shape.lanes)))
        before_units, exists = carry.pass_units(_cast(at(pairs[-1], (..., 0)), wide))
        before_runs = _before_in_pairs(combine, None, pairs)
        threads = _after(combine, _cast(before_units, narrow), before_runs, exists, shown=True)
    else:
        totals = totals if shape.items > 1 else tuple(part.copy() for part in totals)
        scanned = _kogge_stone(combine, totals)
        if shape.units * shape.warps * shape.vectors == 1 and carry.is_unused:  # a single warp scan: a line's only one
            runs_before = _shifted(scanned)
            return Prefixes(runs_before[combine.hidden :], False, (), (), _reshaped(runs_before, (-1, 1, shape.lanes)))
        lanes = _reshaped(scanned, (-1, *shape[:4]))
        vectors = _fold(combine, at(lanes, (..., -1)))
        warps_so_far = _fold(combine, at(vectors, (..., -1)))
        before_units, exists = carry.pass_units(_cast(at(warps_so_far, (..., -1)), wide))
        warps = _shifted(warps_so_far)
        before_warps = _after(combine, _cast(before_units, narrow), warps, exists)
        tiles = shape.units * shape.warps
        before_runs = _after(combine, _shifted(vectors), _shifted(lanes), False)
        before_runs = _reshaped(before_runs, (-1, tiles, shape.vectors * shape.lanes))
        threads = _after(combine, _reshaped(before_warps, (-1, tiles)), before_runs, exists, shown=True)
    return Prefixes(_reshaped(threads, (-1, shape.lanes)), exists, before_units, warps, before_runs)


def behind(
    combine: Combine, elements: States, shape: Shape, before: Prefixes, position: int, wide: tuple[Any, ...]
) -> States:
    """What lines add up to, up to an element of the group of units, in the carry's type.

    It is what the units before add up to, and then, in one step, the unit up to the element.
    """
    unit, warp, vector, lane, item = (int(i) for i in np.unravel_index(position, shape))
    run = vector * shape.lanes + lane
    places = [at(elements, i) for i in range(item + 1)]
    parts = [at(_reshaped(place, (-1, *shape[:4])), (slice(None), unit, warp, vector, lane)) for place in places]
    if run:
        parts.insert(0, at(before.runs, (slice(None), unit * shape.warps + warp, run)))
    total = functools.reduce(combine, parts)
    if warp:
        total = combine(at(before.warps, (slice(None), unit, warp)), total)
    total = _cast(total, wide)
    return combine(at(before.units, (slice(None), unit)), total) if unit or before.exists else total


def at(states: States, place: Any) -> States:
    """All fields at a place."""
    if len(states) == 1:  # a generator takes longer than NumPy
        return (states[0][place],)
    if len(states) == 2:
        return states[0][place], states[1][place]
    return tuple([part[place] for part in states])


def _reshaped(states: States, shape: tuple[int, ...]) -> States:
    return tuple([part.reshape(shape) for part in states])


def _cast(states: States, dtypes: tuple[Any, ...]) -> States:
    return tuple(part.astype(dtype) for part, dtype in zip(states, dtypes, strict=True))


def _shifted(inclusive: States) -> States:
    """From inclusive scans along the last axis to what precedes each place; nothing precedes the first."""
    flat = [part.reshape(-1) for part in inclusive]
    moved = [np.concatenate([part[:1], part[:-1]]) for part in flat]
    return tuple(part.reshape(like.shape) for part, like in zip(moved, inclusive, strict=True))


def _after(combine: Combine, before: States, within: States, exists: bool, *, shown: bool = False) -> States:
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


def _pairs(combine: Combine, totals: States) -> list[States]:
    """Totals along the last axis, and those of blocks of 2, 4, ... of them."""
    levels = [totals]
    while (count := levels[-1][0].shape[-1] // 2 * 2) > 0:
        even, odd = (at(levels[-1], (..., slice(first, count, 2))) for first in (0, 1))
        levels.append(combine(even, odd))
    return levels


def _before_in_pairs(combine: Combine, before: States | None, levels: list[States]) -> States:
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


def _kogge_stone(combine: Combine, states: States) -> States:
    """The inclusive scan along the last axis by doubling distances; the memory of `states` is used."""
    distance, count = 1, states[0].shape[-1]
    now = tuple(map(np.ascontiguousarray, states))
    then = tuple(map(np.empty_like, now)) if count > 1 else now
    line: tuple[Any, ...] = ()
    if combine.anywhere:  # one long call, whose results across the ends of the axis are replaced
        flat, flat_then = _reshaped(now, (-1,)), _reshaped(then, (-1,))
    else:
        flat, flat_then, line = now, then, (...,)
    while distance < count:
        earlier, later = (*line, slice(-distance)), (*line, slice(distance, None))
        into = at(flat_then, later)
        _put(combine(at(flat, earlier), at(flat, later), into), into)
        for part, field in zip(then, now, strict=True):
            part[..., :distance] = field[..., :distance]
        now, then, flat, flat_then, distance = then, now, flat_then, flat, distance * 2
    return now


def _put(states: States, out: States) -> None:
    """States where they belong, if they are not there already."""
    for part, field in zip(out, states, strict=True):
        if part is not field:
            part[...] = field


def _fold(combine: Combine, states: States) -> States:
    """The inclusive scan along the last axis from left to right."""
    if combine.ufunc is not None:
        return (combine.ufunc.accumulate(states[0], -1),)
    folded = tuple(part.copy() for part in states)
    for i in range(1, states[0].shape[-1]):
        _put(combine(at(folded, (..., i - 1)), at(states, (..., i))), at(folded, (..., i)))
    return folded
