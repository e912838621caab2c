"""The axes and sides of panel tiles when arrays differ in memory order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from cuscan.order import SECTOR
from cuscan.planning.assemble import even_part, power_of_two, round_up
from cuscan.planning.gaps import Gaps, reach, rows_as_one
from cuscan.planning.tuning import VECTOR_BYTES
from cuscan.request import ScanRequest
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

STEPS = 32  # steps of a tile, if the axis has so many
MOST_ROWS = 128  # rows of threads in a tile
NARROWEST = 8  # columns of a tile, at least, unless there are fewer
READ, WRITTEN = 3, 8  # cost of a partly used sector, in sectors: the cache reads a partly written one from memory first
SINGLE = 4  # cost of what threads read one by one, as a multiple, since less than a piece of it lies together
READ_BYTES, WRITTEN_BYTES = 256, 512  # of a tile along its steps, at least, if an array is contiguous along them
READ_STEPS = 64  # steps that READ_BYTES ask for, at most
WASTEFUL = 1.5  # tiles span a third axis if so many times as much moves otherwise
SHORT = 64  # columns of rows that a tile then has entirely, at most


class Sides(NamedTuple):
    """The sides of tiles that span two axes: a tile of `most` lines has `wide` columns, smaller ones keep its shape.

    Where columns are those of rows of `inner` columns, `columns`, `most`, `wide` and `sector` count such rows.
    """

    columns: int  # of the axis
    outers: int
    most: int
    wide: int
    sector: int  # columns in a memory sector
    least: int  # batch rows, at least: with fewer, threads read the items of one more array one by one
    inner: int = 1

    def of(self, lines: int, pack: int = 1) -> tuple[int, int]:
        """Return the columns, a multiple of `pack`, and the batch rows of a tile with at most `lines` lines.

        It takes all batch rows if there are only few, and columns are more. Otherwise columns are whole sectors, or
        all if these are hardly more. If that leaves too few batch rows, there are fewer columns, but a sector or more.
        `lines` are at least `pack`.
        """
        columns, outers, most, wide, sector, least, inner = self
        if inner > 1:
            lines, pack = max(lines // inner, 1), 1
        if wide < columns and outers * wide <= most:
            wide = even_part(columns, max(lines // outers, 1))
        else:
            if wide < columns:
                wide = round_up(max(math.isqrt(wide * wide * lines // most), 1), sector)
            if columns <= wide * 3 // 2:  # hardly more
                wide = columns
            wide = min(round_up(even_part(columns, wide), sector), columns, lines)
        wide = max(wide // pack, 1) * pack
        rows = even_part(outers, max(lines // wide, 1))
        if rows >= least or lines < least * max(sector, pack):
            return wide * inner, rows
        if lines // wide < least:
            wide = lines // least // sector * sector // pack * pack
        return wide * inner, least


class Axes(NamedTuple):
    """The axes of tiles: of columns, and of the batch.

    `sides`: those of a tile that also spans the first axis of the batch, if it does. `steps`: of a tile, at least, for
    arrays that are contiguous along them; otherwise 0. `gaps`: between rows, if columns are those of several rows.
    """

    column: Dimension
    batch: tuple[Dimension, ...]
    sides: Sides | None
    steps: int
    gaps: Gaps | None = None


_Choice = tuple[tuple[Dimension, ...], int]  # the axes of a tile beside the steps; its columns, or rows of columns


class _Array(NamedTuple):
    """An array that moves as a whole: its number, item size, fastest axis, and cost of a sector that is partly used.

    `gaps`: whether gaps may move, too.
    """

    number: int
    item: int
    fastest: Dimension | None
    partly: int
    gaps: bool


def tile_axes(request: ScanRequest, layout: Layout, elements: int, *, third: bool = True) -> Axes:
    """Choose the axes of tiles of about so many elements so that partly used memory sectors waste little bandwidth.

    By default columns run along the results' fastest axis, and tiles may span the next one, too. If another array has
    another fastest axis, or if these two leave most threads idle, the choice is the one with the least waste: one axis
    for columns, or one for columns and one for batch rows, or, with `third`, a short axis and another one for columns.
    """
    others, axis = layout.others, layout.axis
    fastest = _fastest_axes(request, layout)
    alike = all([dim is None or dim is others[0] for dim in fastest.values()])
    if not fastest or (alike and len(others) < 3):
        return Axes(others[0], others[1:], None, 0)
    arrays = _arrays(request, layout, fastest)
    least = max([_least_steps(array, axis) for array in arrays])
    steps = max(min(axis.size, STEPS), least)
    lines = max(elements // steps, 1)
    rows = min(-(-axis.size // steps), MOST_ROWS)  # of threads: narrow tiles have more
    if alike and 2 * others[0].size * others[1].size * rows > lines:
        return Axes(others[0], others[1:], None, 0)
    sector = max(SECTOR // max(request.kind.sizes[len(request.values) :]), 1)

    def sides_of(dims: tuple[Dimension, ...], wide: int, fewest: int = 1) -> Sides:
        column, outer = dims[-2:]
        inner = dims[0].size if len(dims) == 3 else 1
        sector_of_rows = max(sector // inner, 1)
        return new_tuple(Sides, (column.size, outer.size, lines // inner, wide, sector_of_rows, fewest, inner))

    def waste(choice: _Choice) -> float:
        """Return the bytes that move for an element."""
        dims, wide = choice
        extents: tuple[int, ...] = (wide,)
        if len(dims) > 1:
            sides = sides_of(dims, wide)
            columns, outers = sides.of(lines)
            extents = (columns, outers) if sides.inner == 1 else (sides.inner, columns // sides.inner, outers)
        taken, extents = (axis, *dims), (steps, *extents)
        moved = sum([a.item * _cost(*_segment(taken, extents, a), a) for a in arrays])
        return moved * max(lines * steps / 2 / (math.prod(extents) * rows), 1)  # idle threads, from half on, cost time

    # Of two axes, columns run along the one with the smaller stride in the results.
    best: _Choice = min(
        [((d,), wide) for d in others for wide in _widths(d.size, lines)]
        + [(pair, wide) for pair in itertools.combinations(others, 2) for wide in _widths(pair[0].size, lines)],
        key=waste,
    )
    if third and len(others) > 2 and waste(best) > WASTEFUL * sum([a.item for a in arrays]):
        of_three = min(_of_three_axes(others, lines), key=waste, default=best)
        if waste(best) > WASTEFUL * waste(of_three):
            best = of_three
    dims, wide = best
    rest = tuple([d for d in others if all([d is not taken for taken in dims])])
    if len(dims) == 1:
        return Axes(dims[0], rest, None, least)
    *_, column, outer = dims
    extents = (steps, *[short.size for short in dims[:-2]], min(wide, column.size))
    sides = sides_of(dims, wide, _least_rows((axis, *dims), extents, arrays))
    if len(dims) == 2:
        return Axes(column, (outer, *rest), sides, least)
    column, gaps = rows_as_one(dims[0], column)
    return Axes(column, (outer, *rest), sides, least, gaps)


def _of_three_axes(others: tuple[Dimension, ...], lines: int) -> Iterator[_Choice]:
    """Yield tiles that have one short axis entirely, and parts of two others."""
    for short in others:
        if short.size > SHORT or short.size * NARROWEST > lines:
            continue
        for pair in itertools.combinations([d for d in others if d is not short], 2):
            for wide in _widths(pair[0].size, lines // short.size, max(NARROWEST // short.size, 1)):
                yield (short, *pair), wide


def _fastest_axes(request: ScanRequest, layout: Layout) -> dict[int, Dimension | None]:
    """Return the fastest axis of each of the values, results and flags that have an element for each position."""
    axis, others, first, behind = layout.axis, layout.others, len(request.values), len(request.kind.sizes)
    found = {}
    for number, spec in enumerate(layout.arrays[: behind + 2]):
        if spec is None or (request.kind.only_carry and first <= number < behind):
            continue
        if axis.strides[number] and all([other.strides[number] for other in others]):
            found[number] = _fastest(axis, others, number, spec.dtype.itemsize, gaps=not first <= number < behind)
    return found


def _arrays(request: ScanRequest, layout: Layout, fastest_axes: dict[int, Dimension | None]) -> list[_Array]:
    """Return the arrays with the given fastest axes.

    Results whose rows begin at sectors cost no more than values.
    """
    axis, others, first, behind = layout.axis, layout.others, len(request.values), len(request.kind.sizes)
    arrays = []
    for number, fastest in fastest_axes.items():
        spec, is_result = layout.arrays[number], first <= number < behind
        assert spec
        whole = spec.address | layout.offsets[number]
        for dimension in (axis, *others):
            whole |= 0 if dimension is fastest else dimension.strides[number]
        partly = WRITTEN if is_result and whole % SECTOR else READ
        arrays.append(_Array(number, spec.dtype.itemsize, fastest, partly, not is_result))
    return arrays


def _fastest(axis: Dimension, others: tuple[Dimension, ...], number: int, item: int, *, gaps: bool) -> Dimension | None:
    """Return the axis along which an array is contiguous, the scanned one first; None if there is none.

    With `gaps`, it is the axis along which neighbours are closest, if gaps move with them.
    """
    if abs(axis.strides[number]) == item and axis.size > 1:
        return axis
    for other in others:
        if abs(other.strides[number]) == item:
            return other
    if gaps:
        closest = min((axis, *others), key=lambda dim: abs(dim.strides[number]))
        if abs(closest.strides[number]) <= reach(item, gaps):
            return closest
    return None


def _least_steps(array: _Array, axis: Dimension) -> int:
    """Return the steps of a tile, at least, for an array that is contiguous along them."""
    if array.fastest is not axis:
        return 0
    steps = WRITTEN_BYTES // array.item if array.partly == WRITTEN else min(READ_BYTES // array.item, READ_STEPS)
    return min(steps, axis.size)


def _widths(size: int, lines: int, least: int = NARROWEST) -> Iterator[int]:
    """Yield widths of tiles with at most `lines` lines: all columns, if possible, then less, down to `least`."""
    wide = min(size, lines)
    yield wide
    wide = power_of_two(wide) // 2
    while wide >= least:
        yield wide
        wide //= 2


def _least_rows(axes: tuple[Dimension, ...], extents: tuple[int, ...], arrays: list[_Array]) -> int:
    """Return the fewest batch rows of a tile with which as many arrays as possible have a vector or more together."""
    size = axes[-1].size

    def apart(rows: int) -> int:
        return sum([_segment(axes, (*extents, rows), array)[1] < VECTOR_BYTES for array in arrays])

    fewest = apart(min(size, VECTOR_BYTES))
    return next(rows for rows in range(1, VECTOR_BYTES + 1) if apart(min(rows, size)) == fewest)


def _cost(segment: int, span: int, array: _Array) -> float:
    """Return what moves for each byte of an array, whose segments have so many bytes and span so many in memory."""
    cost = (span + array.partly * SECTOR) / segment
    return cost if span >= VECTOR_BYTES else SINGLE * cost


def _segment(axes: tuple[Dimension, ...], extents: tuple[int, ...], array: _Array) -> tuple[int, int]:
    """Return the bytes of an array that lie together within a tile of the given extents, and what they span.

    There may be gaps along the fastest axis, where these move with the values.
    """
    segment, number = array.item, array.number
    order = sorted([(abs(axes[a].strides[number]), a) for a, extent in enumerate(extents) if extent > 1])
    if not order or order[0][0] > reach(segment, array.gaps):
        return segment, segment
    span = order[0][0]
    for step, a in order:
        if not span <= step <= reach(span, array.gaps):
            break
        span = step * extents[a]
        segment *= extents[a]
        if extents[a] < axes[a].size:
            break
    return segment, span
