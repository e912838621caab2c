"""The defined order (order.py) in few NumPy calls: states are tuples of arrays, a field each.

Elements lie as (items, warp scans, lanes): the lanes of a warp scan are neighbours, so every step of the order is a
call on long pieces of memory. What does not exist, because nothing precedes it, is never combined: at such places there
is some state or other, which the first element of a line then replaces.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from cuscan.backends.steps import (
    Combine,
    States,
    after,
    at,
    before_in_pairs,
    cast,
    fold,
    kogge_stone,
    pairs,
    reshaped,
    shifted,
)
from cuscan.order import GROUP, LANES, PAIRED_SECTION, SECTION, Order

Array = np.ndarray[Any, Any]


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
        so_far = kogge_stone(self._combine, tuple(part.copy() for part in units))
        befores = shifted(so_far)
        if before is not None:
            befores = after(self._combine, before, befores, True)
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
        total = at(kogge_stone(self._combine, groups), (..., -1))
        return total if self._sections is None else self._combine(self._sections, total)

    def _pass_pairs(self, totals: States) -> tuple[States, bool]:
        before = self._sections
        for _, block in self._blocks:
            before = block if before is None else self._combine(before, block)
        levels = pairs(self._combine, totals)
        count, total = totals[0].shape[-1], at(levels[-1], (..., 0))
        while self._blocks and self._blocks[-1][0] == count:
            _, earlier = self._blocks.pop()
            count, total = 2 * count, self._combine(earlier, total)
        self._blocks.append((count, total))
        if count == PAIRED_SECTION:
            self._sections = total if self._sections is None else self._combine(self._sections, total)
            self._blocks = []
        return before_in_pairs(self._combine, before, levels), before is not None


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
        blocks = pairs(combine, reshaped(totals, (-1, shape.units, shape.lanes)))
        before_units, exists = carry.pass_units(cast(at(blocks[-1], (..., 0)), wide))
        before_runs = before_in_pairs(combine, None, blocks)
        threads = after(combine, cast(before_units, narrow), before_runs, exists, shown=True)
    else:
        totals = totals if shape.items > 1 else tuple(part.copy() for part in totals)
        scanned = kogge_stone(combine, totals)
        if shape.units * shape.warps * shape.vectors == 1 and carry.is_unused:  # a single warp scan: a line's only one
            runs_before = shifted(scanned)
            return Prefixes(runs_before[combine.hidden :], False, (), (), reshaped(runs_before, (-1, 1, shape.lanes)))
        lanes = reshaped(scanned, (-1, *shape[:4]))
        vectors = fold(combine, at(lanes, (..., -1)))
        warps_so_far = fold(combine, at(vectors, (..., -1)))
        before_units, exists = carry.pass_units(cast(at(warps_so_far, (..., -1)), wide))
        warps = shifted(warps_so_far)
        before_warps = after(combine, cast(before_units, narrow), warps, exists)
        tiles = shape.units * shape.warps
        before_runs = after(combine, shifted(vectors), shifted(lanes), False)
        before_runs = reshaped(before_runs, (-1, tiles, shape.vectors * shape.lanes))
        threads = after(combine, reshaped(before_warps, (-1, tiles)), before_runs, exists, shown=True)
    return Prefixes(reshaped(threads, (-1, shape.lanes)), exists, before_units, warps, before_runs)


def behind(
    combine: Combine, elements: States, shape: Shape, before: Prefixes, position: int, wide: tuple[Any, ...]
) -> States:
    """What lines add up to, up to an element of the group of units, in the carry's type.

    It is what the units before add up to, and then, in one step, the unit up to the element.
    """
    unit, warp, vector, lane, item = (int(i) for i in np.unravel_index(position, shape))
    run = vector * shape.lanes + lane
    places = [at(elements, i) for i in range(item + 1)]
    parts = [at(reshaped(place, (-1, *shape[:4])), (slice(None), unit, warp, vector, lane)) for place in places]
    if run:
        parts.insert(0, at(before.runs, (slice(None), unit * shape.warps + warp, run)))
    total = functools.reduce(combine, parts)
    if warp:
        total = combine(at(before.warps, (slice(None), unit, warp)), total)
    total = cast(total, wide)
    return combine(at(before.units, (slice(None), unit)), total) if unit or before.exists else total
