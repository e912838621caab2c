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

from cuscan.order import GROUP, LANES, SECTION, Order

Array = np.ndarray[Any, Any]
States = tuple[Array, ...]
Combine = Callable[[States, States], States]


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
    """What precedes a group of units: the sections before, and the groups before in the section."""

    def __init__(self, combine: Combine, order: Order, initial: States | None) -> None:
        self.paired = order.paired
        self._combine = combine
        self._groups_of_a_section = 1 if order.paired else SECTION // GROUP
        self._sections = initial
        self._groups: list[States] = []  # totals, in this section

    def before_group(self) -> States | None:
        """None where nothing precedes."""
        if not self._groups:
            return self._sections
        groups = tuple(np.stack(parts, -1) for parts in zip(*self._groups, strict=True))
        total = at(_kogge_stone(self._combine, groups), (..., -1))
        return total if self._sections is None else self._combine(self._sections, total)

    def pass_group(self, total: States) -> None:
        self._groups.append(total)
        if len(self._groups) == self._groups_of_a_section:
            self._sections = self.before_group()
            self._groups = []


class Prefixes(NamedTuple):
    """What precedes each thread's items, as (warp scans, lanes): `threads`; and what that is made of.

    `units`: what precedes each unit, in the carry's type; for the first one something does if it `exists`. `warps`:
    what precedes each warp in its unit; `runs`: what precedes each run in its warp (of a paired order, in its unit).
    """

    threads: States
    exists: bool
    units: States
    warps: States
    runs: States


def prefixes(combine: Combine, elements: States, shape: Shape, carry: Carry, wide: tuple[Any, ...]) -> Prefixes:
    """What precedes what in a group of units; the carry, of dtypes `wide`, passes the group."""
    before, narrow = carry.before_group(), tuple(part.dtype for part in elements)
    exists = before is not None
    totals = tuple(part[0].copy() for part in elements)
    warps: States = ()
    for i in range(1, shape.items):
        totals = combine(totals, at(elements, i))
    if carry.paired:
        runs = _blocks(combine, _reshaped(totals, (-1, shape.units, shape.lanes)))
        units = _blocks(combine, _cast(at(runs[-1], (..., 0)), wide))
        carry.pass_group(at(units[-1], (..., 0)))
        before_units = _before_in_pairs(combine, before, units)
        before_runs = _before_in_pairs(combine, None, runs)
        threads = _after(combine, _cast(before_units, narrow), before_runs, exists)
    else:
        lanes = _reshaped(_kogge_stone(combine, totals), (-1, *shape[:4]))
        vectors = _fold(combine, at(lanes, (..., -1)))
        warps_so_far = _fold(combine, at(vectors, (..., -1)))
        units_so_far = _kogge_stone(combine, _cast(at(warps_so_far, (..., -1)), wide))
        carry.pass_group(at(units_so_far, (..., -1)))
        before_units, warps = _shifted(units_so_far), _shifted(warps_so_far)
        if before is not None:
            before_units = _after(combine, before, before_units, True)
        before_warps = _after(combine, _cast(before_units, narrow), warps, exists)
        tiles = shape.units * shape.warps
        before_runs = _after(combine, _shifted(vectors), _shifted(lanes), False)
        before_runs = _reshaped(before_runs, (-1, tiles, shape.vectors * shape.lanes))
        threads = _after(combine, _reshaped(before_warps, (-1, tiles)), before_runs, exists)
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
    return tuple(part[place] for part in states)


def _reshaped(states: States, shape: tuple[int, ...]) -> States:
    return tuple(part.reshape(shape) for part in states)


def _cast(states: States, dtypes: tuple[Any, ...]) -> States:
    return tuple(part.astype(dtype) for part, dtype in zip(states, dtypes, strict=True))


def _shifted(inclusive: States) -> States:
    """From inclusive scans along the last axis to what precedes each place; nothing precedes the first."""
    return tuple(np.concatenate([part[..., :1], part[..., :-1]], -1) for part in inclusive)


def _after(combine: Combine, before: States, within: States, exists: bool) -> States:
    """What precedes places within blocks, behind what precedes the blocks.

    Nothing precedes the first place within; nothing precedes the first block, unless it `exists`.
    """
    if not exists and before[0].shape[-1] == 1:
        return within
    joined = combine(at(before, (..., None)), within)
    for together, block_alone, place_alone in zip(joined, before, within, strict=True):
        together[..., 0] = block_alone
        if not exists:
            together[..., 0, :] = place_alone[..., 0, :]
    return joined


def _blocks(combine: Combine, totals: States) -> list[States]:
    """Totals along the last axis, and those of blocks of 2, 4, ... of them."""
    blocks = [totals]
    while (count := blocks[-1][0].shape[-1] // 2 * 2) > 0:
        whole = at(blocks[-1], (..., slice(count)))
        blocks.append(combine(at(whole, (..., slice(0, None, 2))), at(whole, (..., slice(1, None, 2)))))
    return blocks


def _before_in_pairs(combine: Combine, before: States | None, blocks: list[States]) -> States:
    """What precedes each total: `before`, and then the blocks that its number is made of, the largest first."""
    count = blocks[0][0].shape[-1]
    joined = tuple(part.copy() for part in blocks[0])
    if before is not None:
        for part, field in zip(joined, before, strict=True):
            part[...] = field[..., None]
    numbers = np.arange(count)
    for level in reversed(range(len(blocks))):
        places = numbers[(numbers >> level) % 2 > 0]
        first = 0 if before is not None else int((places >> (level + 1) == 0).sum())  # nothing precedes these blocks
        for some, alone in ((places[:first], True), (places[first:], False)):
            if some.size:
                block = at(blocks[level], (..., (some >> level) - 1))
                block = block if alone else combine(at(joined, (..., some)), block)
                for part, field in zip(joined, block, strict=True):
                    part[..., some] = field
    return joined


def _kogge_stone(combine: Combine, states: States) -> States:
    """The inclusive scan along the last axis by doubling distances, in place."""
    distance, count = 1, states[0].shape[-1]
    while distance < count:
        later = combine(at(states, (..., slice(-distance))), at(states, (..., slice(distance, None))))
        for part, field in zip(states, later, strict=True):
            part[..., distance:] = field
        distance *= 2
    return states


def _fold(combine: Combine, states: States) -> States:
    """The inclusive scan along the last axis from left to right."""
    folded = tuple(part.copy() for part in states)
    for i in range(1, states[0].shape[-1]):
        later = combine(at(folded, (..., i - 1)), at(states, (..., i)))
        for part, field in zip(folded, later, strict=True):
            part[..., i] = field
    return folded
