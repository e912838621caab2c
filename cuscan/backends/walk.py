"""The defined order (order.py), walked in NumPy.

The kernels' working layout is kept as axes: items, lanes, vectors, warps and units come first, rows
last, so every step of the order is one NumPy call on whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuscan.backends.algebra import Algebra, Part
from cuscan.order import GROUP, LANES, SECTION, Order

Array = np.ndarray[Any, Any]
Combine = Callable[[Array, Array], Array]


def block(elements: Array, order: Order) -> Array:
    """(rows, n) as (items, lanes, vectors, warps, units, rows); no level is larger than n asks for."""
    rows, n = elements.shape
    items, lanes = min(order.items, n), min(LANES, -(-n // order.items))
    vectors, warps = min(order.vectors, -(-n // order.vector)), min(order.warps, -(-n // order.warp_tile))
    units = -(-n // order.unit)
    padded = np.zeros((rows, units * warps * vectors * lanes * items), elements.dtype)
    padded[:, :n] = elements  # no stored result depends on what is behind
    return np.ascontiguousarray(padded.reshape(rows, units, warps, vectors, lanes, items).T)


def unblock(blocked: Array, shape: tuple[int, ...]) -> Array:
    """The way back, to (rows, n)."""
    return np.ascontiguousarray(blocked.T).reshape(shape[0], -1)[:, : shape[1]]


class Carry:
    """What precedes a group of units: the sections before, and the groups before in the section."""

    def __init__(self, combine: Combine, initial: Part) -> None:
        self._combine = combine
        self._section = initial
        self._groups: list[Array] = []  # totals, in this section

    def before_group(self) -> Part:
        if not self._groups:
            return self._section
        groups = _kogge_stone(self._combine, np.stack(self._groups))
        return _join(self._combine, self._section, Part(np.True_, groups[-1]))

    def pass_group(self, total: Array) -> None:
        self._groups.append(total)
        if len(self._groups) == SECTION // GROUP:
            self._section = self.before_group()
            self._groups = []


class PairedCarry:
    """The same of a paired order, where a group is a section."""

    def __init__(self, combine: Combine, initial: Part) -> None:
        self._combine = combine
        self._sections = initial

    def before_group(self) -> Part:
        return self._sections

    def pass_group(self, total: Array) -> None:
        self._sections = _join(self._combine, self._sections, Part(np.True_, total))


def carry_of(order: Order, combine: Combine, initial: Part) -> Carry | PairedCarry:
    """The carry of an order, before the first group."""
    return PairedCarry(combine, initial) if order.paired else Carry(combine, initial)


class Prefixes(NamedTuple):
    """What precedes each thread's items.

    `all` of it; or in three steps: the `units` before, in the carry's type, the `warps` before in the unit, and the
    `runs` before in the warp (in the unit, of a paired order, which has no warps).
    """

    all: Part
    units: Part
    warps: Part
    runs: Part


def prefixes(combine: Combine, blocked: Array, carry: Carry | PairedCarry) -> Prefixes:
    """What precedes each thread's items, for one group of units; the carry passes the group."""
    totals = blocked[0].copy()
    for item in blocked[1:]:
        totals = combine(totals, item)
    if isinstance(carry, PairedCarry):
        return _paired_prefixes(combine, totals, carry)
    lanes = _kogge_stone(combine, totals)
    vectors = _fold(combine, lanes[-1])
    warps = _fold(combine, vectors[-1])
    before_group = carry.before_group()
    units = _kogge_stone(combine, warps[-1].astype(before_group.value.dtype))
    carry.pass_group(units[-1])

    before_units = _join(combine, before_group, _before(units))
    carries = Part(before_units.exists, before_units.value.astype(blocked.dtype))
    before_warps, runs = _before(warps), _join(combine, _before(vectors), _before(lanes))
    return Prefixes(_join(combine, _join(combine, carries, before_warps), runs), before_units, before_warps, runs)


def _paired_prefixes(combine: Combine, totals: Array, carry: PairedCarry) -> Prefixes:
    runs = _blocks(combine, totals[:, 0, 0])  # (blocks, units, rows)
    before_section = carry.before_group()
    units = _blocks(combine, runs[-1][0].astype(before_section.value.dtype))
    carry.pass_group(units[-1][0])

    before_units = _before_in_pairs(combine, before_section, units)
    carries = Part(before_units.exists, before_units.value.astype(totals.dtype))
    before_runs = _before_in_pairs(combine, Part(np.False_, runs[0]), runs)
    before = _join(combine, carries, before_runs)
    no_warps = Part(np.False_, totals)
    parts = (
        Part(np.broadcast_to(p.exists, p.value.shape)[:, None, None], p.value[:, None, None])
        for p in (before, before_runs)
    )
    everything, of_runs = parts
    return Prefixes(everything, before_units, no_warps, of_runs)


def _blocks(combine: Combine, totals: Array) -> list[Array]:
    """Totals along the first axis, and those of blocks of 2, 4, ... of them."""
    blocks = [totals]
    while len(blocks[-1]) > 1:
        whole = blocks[-1][: len(blocks[-1]) // 2 * 2]
        blocks.append(combine(whole[::2], whole[1::2]))
    return blocks


def _before_in_pairs(combine: Combine, before: Part, blocks: list[Array]) -> Part:
    """What precedes each total: `before`, and then the blocks that its number is made of, the largest first."""
    places = np.arange(len(blocks[0])).reshape(-1, *[1] * (blocks[0].ndim - 1))
    for level in reversed(range(len(blocks))):
        number = places.ravel() >> level
        earlier = Part((places >> level) % 2 > 0, blocks[level][np.maximum(number - 1, 0)])
        before = _join(combine, before, earlier)
    return before


def walk(algebra: Algebra, blocked: Array, prefix: Part) -> Array:
    """The items one by one: `Running` in elements.cuh."""
    scanned = np.empty(blocked.shape, algebra.shown_dtype)
    running = prefix
    for i, item in enumerate(blocked):
        if algebra.shows_before:
            scanned[i] = algebra.shown_before(running, item)
        running = _join(algebra.combine, running, Part(np.True_, item))
        if not algebra.shows_before:
            scanned[i] = algebra.shown(running.value)
    return scanned


def behind(combine: Combine, blocked: Array, before: Prefixes, position: int) -> Array:
    """What lines add up to, up to an element of the group of units: in the carry's type.

    It is what the units before add up to, and then, in one step, the unit up to the element.
    """
    items, lanes, vectors, warps = blocked.shape[:4]
    unit, warp, vector, lane, item = np.unravel_index(position, (blocked.shape[4], warps, vectors, lanes, items))
    place = lane, vector, warp, unit

    def at(part: Part) -> Part:
        exists, value = (np.broadcast_to(array, blocked.shape[1:])[place] for array in part)
        return Part(exists, value)

    up_to = at(before.runs)
    for one in blocked[: item + 1]:
        up_to = _join(combine, up_to, Part(np.True_, one[place]))
    of_unit = _join(combine, at(before.warps), up_to).value
    return _join(combine, at(before.units), Part(np.True_, of_unit.astype(before.units.value.dtype))).value


def _join(combine: Combine, earlier: Part, later: Part) -> Part:
    """One part after another; what does not exist is not combined, not even as an identity."""
    combined = combine(earlier.value, later.value)
    both = earlier.exists & later.exists
    if both.all():
        return Part(np.True_, combined)
    alone = np.where(later.exists, later.value, earlier.value)
    return Part(earlier.exists | later.exists, np.where(both, combined, alone))


def _before(inclusive: Array) -> Part:
    """From inclusive scans along the first axis to what precedes each place."""
    places = np.arange(len(inclusive)).reshape(-1, *[1] * (inclusive.ndim - 1))
    return Part(places > 0, np.concatenate([inclusive[:1], inclusive[:-1]]))


def _kogge_stone(combine: Combine, values: Array) -> Array:
    """The inclusive scan along the first axis by doubling distances, in place."""
    distance = 1
    while distance < len(values):
        values[distance:] = combine(values[:-distance], values[distance:])
        distance *= 2
    return values


def _fold(combine: Combine, values: Array) -> Array:
    """The inclusive scan along the first axis from left to right."""
    folded = values.copy()
    for i in range(1, len(values)):
        folded[i] = combine(folded[i - 1], values[i])
    return folded
