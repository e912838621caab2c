"""The defined order (order.py) in few NumPy calls, over states that are tuples of arrays, one per field.

Elements have shape (items, warp scans, lanes), and the totals of a lane's items (lanes, warp scans), so every step of
the order is a NumPy call on long contiguous memory. A position that nothing precedes holds an arbitrary state, which no
step combines; the first element of a line replaces it.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from cuscan.backends.record import Noted
from cuscan.backends.steps import (
    Combine,
    States,
    after,
    at,
    before_in_pairs,
    by_line,
    cast,
    empty_like,
    flat,
    fold,
    kogge_stone,
    pairs,
    put,
    shifted,
    total,
    turned,
)
from cuscan.order import GROUP, LANES, PAIRED_SECTION, SECTION, Order

Array = np.ndarray[Any, Any]

SHORT = 8  # warp scans of a row whose columns the caches hold at any distance


class Shape(NamedTuple):
    """The levels of a group of units, no larger than `n` elements need."""

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
    def scans(self) -> int:
        """The number of warp scans."""
        return self.units * self.warps * self.vectors

    @property
    def elements(self) -> int:
        return self.scans * self.lanes * self.items


def blocks(parts: States, lines: int, shape: Shape) -> States:
    """Return the elements of (lines, n) as (items, warp scans of all lines, lanes).

    No stored result depends on what is behind the last element. A program's memory begins as zeros.
    """
    n = parts[0].shape[1]
    runs = -(-n // shape.items)
    if runs * shape.items != n:
        padded = empty_like(parts, (lines, runs * shape.items))
        put(parts, at(padded, (slice(None), slice(n))))
        _clear(padded, n)
        parts = padded
    whole = empty_like(parts, (shape.items, lines, shape.scans * shape.lanes))
    for part, place in zip(parts, whole, strict=True):
        place[..., :runs] = part.reshape(lines, runs, shape.items).transpose(2, 0, 1)
    _clear(whole, runs)
    return tuple([place.reshape(shape.items, -1, shape.lanes) for place in whole])


def _clear(states: States, end: int) -> None:
    """Set everything behind the first elements of the last axis to zero, except in a program."""
    for part in states:
        if end < part.shape[-1] and not isinstance(part, Noted):
            part[..., end:] = np.zeros((), part.dtype)


def spread(part: Array, shape: Shape) -> Array:
    """Return a view of (lines, elements) as (lines, warp scans, lanes, items)."""
    return part.reshape(len(part), shape.scans, shape.lanes, shape.items)


class Carry:
    """What precedes some units of lines: the sections before, and what came earlier in the section."""

    def __init__(self, combine: Combine, order: Order, initial: States | None) -> None:
        self.paired = order.paired
        self._combine = combine
        self._sections = initial
        self._groups: list[States] = []  # totals, in this section
        self._units: States = ()  # totals, in this group
        self._blocks: list[tuple[int, States]] = []  # for a paired order: number of units and totals, in this section

    @property
    def is_unused(self) -> bool:
        """Return whether no units have passed and nothing came in."""
        return self._sections is None and not (self._groups or self._units or self._blocks)

    def pass_units(self, totals: States) -> tuple[States, bool]:
        """Return what precedes each of the next units, and whether anything precedes the first of them.

        They must be whole groups, or a power of two that divides a group (for a paired order, a section), or the last
        units of all.
        """
        if self.paired:
            return self._pass_pairs(totals)
        if len(totals[0]) <= GROUP:
            return self._pass_chain(totals)
        if len(totals[0]) <= SECTION:
            return self._pass_groups(totals)
        parts = [self.pass_units(at(totals, slice(i, i + SECTION))) for i in range(0, len(totals[0]), SECTION)]
        befores, exist = zip(*parts, strict=True)
        return tuple(map(np.concatenate, zip(*befores, strict=True))), exist[0]

    def _pass_chain(self, totals: States) -> tuple[States, bool]:
        units, before = totals, self._before_group()
        if self._units:
            units = tuple(np.concatenate(parts) for parts in zip(self._units, totals, strict=True))
        so_far = kogge_stone(self._combine, units)
        befores = shifted(so_far) if before is None else after(self._combine, before, so_far)
        exists = before is not None or bool(self._units)
        count, new = len(units[0]), len(totals[0])
        self._units = units
        if count == GROUP:
            self._units = ()
            self._groups.append(at(so_far, -1))
        if len(self._groups) == SECTION // GROUP:
            self._sections = self._before_group()
            self._groups = []
        return at(befores, slice(count - new, None)), exists

    def _pass_groups(self, totals: States) -> tuple[States, bool]:
        """Pass more than a group, within a section: groups lie side by side."""
        combine, passed, lines = self._combine, len(self._groups), totals[0].shape[1]
        count = len(totals[0]) // GROUP
        whole = at(totals, slice(count * GROUP))
        units = tuple([part.reshape(count, GROUP, lines).swapaxes(0, 1).reshape(GROUP, -1) for part in whole])
        so_far = kogge_stone(combine, units)
        new = tuple([part.reshape(count, lines) for part in at(so_far, -1)])
        groups = tuple(map(np.concatenate, zip(*[at(group, None) for group in self._groups], new, strict=True)))
        inclusive = kogge_stone(combine, groups)
        before = at(shifted(inclusive), slice(passed, None))
        if self._sections is not None:
            before = self._combine(self._sections, before)
            if not passed:
                put(self._sections, at(before, 0))
        exists = self._sections is not None or passed > 0
        ahead = tuple([part.reshape(-1) for part in before])
        befores = after(combine, ahead, so_far, None if exists else slice(lines))
        befores = tuple([part.reshape(GROUP, count, lines).swapaxes(0, 1).reshape(-1, lines) for part in befores])
        self._groups += [at(new, i) for i in range(count)]
        if len(self._groups) == SECTION // GROUP:
            total = at(inclusive, -1)
            self._sections = total if self._sections is None else combine(self._sections, total)
            self._groups = []
        if count * GROUP == len(totals[0]):
            return befores, exists
        rest, _ = self._pass_chain(at(totals, slice(count * GROUP, None)))
        return tuple(map(np.concatenate, zip(befores, rest, strict=True))), exists

    def _before_group(self) -> States | None:
        """Return what precedes the group, or None if nothing does."""
        if not self._groups:
            return self._sections
        groups = tuple(np.stack(parts) for parts in zip(*self._groups, strict=True))
        total = at(kogge_stone(self._combine, groups), -1)
        return total if self._sections is None else self._combine(self._sections, total)

    def _pass_pairs(self, totals: States) -> tuple[States, bool]:
        before = self._sections
        for _, block in self._blocks:
            before = block if before is None else self._combine(before, block)
        levels = pairs(self._combine, totals)
        count, total = len(totals[0]), at(levels[-1], 0)
        while self._blocks and self._blocks[-1][0] == count:
            _, earlier = self._blocks.pop()
            count, total = 2 * count, self._combine(earlier, total)
        self._blocks.append((count, total))
        if count == PAIRED_SECTION:
            self._sections = total if self._sections is None else self._combine(self._sections, total)
            self._blocks = []
        return before_in_pairs(self._combine, before, levels), before is not None


class Prefixes(NamedTuple):
    """What precedes each thread's items, with its parts.

    `threads` has shape (warp scans, lanes), lacks the hidden fields, and has memory of its own. `units` is what
    precedes each unit of each line, in the carry type; `exists` is whether anything precedes the first one. `warps` is
    what precedes each warp in its unit. `runs`, of shape (lanes, warp scans), is what precedes each run in its warp, or
    for a paired order in its unit.
    """

    threads: States
    exists: bool
    units: States
    warps: States
    runs: States


def prefixes(combine: Combine, elements: States, shape: Shape, carry: Carry, wide: tuple[Any, ...]) -> Prefixes:
    """Return what precedes the threads, warps and units; pass the units' totals, of dtypes `wide`, to the carry."""
    find = _in_pairs if carry.paired else _in_chains
    return find(combine, turned(total(combine, elements)), shape, carry, wide)


def _in_pairs(combine: Combine, totals: States, shape: Shape, carry: Carry, wide: tuple[Any, ...]) -> Prefixes:
    levels, is_alone = pairs(combine, totals), shape.units == 1 and carry.is_unused
    befores, exists = carry.pass_units(cast(by_line(at(levels[-1], 0), shape.units), wide))
    units, runs = flat(befores, totals), before_in_pairs(combine, None, levels)
    if is_alone:
        return Prefixes(turned(runs[combine.hidden :]), False, befores, (), runs)
    threads = _threads(combine, units, runs)
    for whole, before, run in zip(threads, units[combine.hidden :], runs[combine.hidden :], strict=True):
        whole[0] = before
        if not exists:
            whole[:, :: shape.units] = run[:, :: shape.units]
    return Prefixes(turned(threads), exists, befores, (), runs)


def _in_chains(combine: Combine, totals: States, shape: Shape, carry: Carry, wide: tuple[Any, ...]) -> Prefixes:
    lanes, is_alone = kogge_stone(combine, totals), shape.units == shape.warps == 1 and carry.is_unused
    vectors = fold(combine, by_line(at(lanes, -1), shape.vectors))
    warps = fold(combine, by_line(at(vectors, -1), shape.warps))
    befores, exists = carry.pass_units(cast(by_line(at(warps, -1), shape.units), wide))
    if shape.vectors == 1:
        runs = shifted(lanes)
    else:
        runs = after(combine, flat(shifted(vectors), totals), lanes, slice(None, None, shape.vectors))
    if is_alone:
        return Prefixes(turned(runs[combine.hidden :]), False, befores, (), runs)
    first_units = None if exists else slice(None, None, shape.units)
    tiles = flat(after(combine, flat(befores, totals), warps, first_units), totals)
    threads = _threads(combine, tuple(np.repeat(part, shape.vectors) for part in tiles), runs)
    a_line = shape.lanes, -1, shape.units * shape.warps, shape.vectors
    for whole, before, run in zip(threads, tiles[combine.hidden :], runs[combine.hidden :], strict=True):
        whole[0, :: shape.vectors] = before
        if not exists:
            whole.reshape(a_line)[:, :, 0] = run.reshape(a_line)[:, :, 0]
    return Prefixes(turned(threads), exists, befores, shifted(warps), runs)


def _threads(combine: Combine, before: States, runs: States) -> States:
    """Combine what precedes blocks with what precedes runs in them, without hidden fields.

    The distance between long rows is not a power of two, which would map them to few places in the caches. Short rows
    stay contiguous, for calls in one dimension.
    """
    lanes, scans = runs[0].shape
    parts = runs[combine.hidden :]
    apart = [scans + 64 // part.itemsize * (scans > SHORT) for part in parts]
    whole = [np.empty_like(part, order="C", shape=(lanes, n)) for part, n in zip(parts, apart, strict=True)]
    threads = tuple([part[:, :scans] for part in whole])
    put(combine.shown(before[combine.hidden :], runs, threads), threads)
    return threads


def behind(
    combine: Combine, elements: States, shape: Shape, before: Prefixes, position: int, wide: tuple[Any, ...]
) -> States:
    """Return the total of each line up to an element of the group of units, in the carry type.

    It combines what precedes the unit, in one step, with the total of the unit up to the element.
    """
    unit, warp, vector, lane, item = (int(i) for i in np.unravel_index(position, shape))
    scans = slice((unit * shape.warps + warp) * shape.vectors + vector, None, shape.scans)
    parts = [at(elements, (i, scans, lane)) for i in range(item + 1)]
    if vector or lane:
        parts.insert(0, at(before.runs, (lane, scans)))
    total = functools.reduce(combine, parts)
    if warp:
        total = combine(at(before.warps, (warp, slice(unit, None, shape.units))), total)
    total = cast(total, wide)
    return combine(at(before.units, unit), total) if unit or before.exists else total
