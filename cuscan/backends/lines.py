"""Scan all lines of a request, a group of units at a time, so that memory stays bounded."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cuscan.backends.convert import to_result
from cuscan.backends.fields import FieldAlgebra, Inputs
from cuscan.backends.record import Noted
from cuscan.backends.steps import States, at, chain, put
from cuscan.backends.tree import Carry, Prefixes, Shape, behind, blocks, prefixes, spread
from cuscan.order import PAIRED_SECTION, Order
from cuscan.request import ScanRequest

Array = np.ndarray[Any, Any]

BLOCK = 2**21  # bytes of a field per pass: the fastest of measured sizes
BUFFER = 512  # elements; NumPy first copies rows that are shorter than its buffer


class Outputs(NamedTuple):
    """The outputs of a scan, by lines; there are no results if the call requests the carry alone."""

    results: list[Array]
    last: Array
    carry: list[Array]


def scan_lines(request: ScanRequest, order: Order, algebra: FieldAlgebra, inputs: Inputs, outputs: Outputs) -> None:
    """Scan arrays of (lines, elements)."""
    lines, length = len(inputs.values[0]), request.shape[request.axis] + request.include_initial
    most = BLOCK // algebra.itemsize
    span = order.unit * units_at_a_time(order, most)
    step = max(most // min(span, length), 1)
    for first in range(0, lines, step):
        some = slice(first, min(first + step, lines))
        carry = Carry(algebra.combine, order, algebra.row_start(inputs, some, some.stop - first))
        for position in range(0, length, span):
            window = some, slice(position, min(position + span, length))
            shape = Shape.of(order, window[1].stop - position)
            _scan_group(algebra, request, inputs, window, shape, carry, outputs)


def units_at_a_time(order: Order, most: int) -> int:
    """Return the units of a line per pass: a power of two, with at most `most` elements unless one unit has more."""
    units = 1 << max(most // order.unit, 1).bit_length() - 1
    return min(units, PAIRED_SECTION) if order.paired else units


def keep_carry(algebra: FieldAlgebra, inputs: Inputs, lines: slice, states: States, carry: list[Array]) -> None:
    """Store the states at the ends of lines in the arrays of the carry."""
    for field, part in zip(carry, algebra.carry_out(inputs, lines, states), strict=False):  # the last keys have no part
        field[lines] = part


def _scan_group(
    algebra: FieldAlgebra,
    request: ScanRequest,
    inputs: Inputs,
    window: tuple[slice, slice],
    shape: Shape,
    carry: Carry,
    outputs: Outputs,
) -> None:
    lines, count = window[0].stop - window[0].start, window[1].stop - window[1].start
    elements = blocks(algebra.lift(inputs, window), lines, shape)
    before = prefixes(algebra.combine, elements, shape, carry, algebra.wide)
    end = request.shape[request.axis] - window[1].start  # the number of elements from here
    if request.carry_out and 0 < end <= shape.elements:
        states = behind(algebra.combine, elements, shape, before, end - 1, algebra.wide)
        keep_carry(algebra, inputs, window[0], states, outputs.carry)
    if request.only_carry:
        return
    results = [result[window] for result in outputs.results]
    whole = (
        results
        if count == shape.elements
        else [np.empty_like(r, order="C", shape=(lines, shape.elements)) for r in results]
    )
    run, item = divmod(count - 1, shape.items)
    last = _Last(run, item, outputs.last[window[0]]) if request.last else None
    _walk(algebra, request, elements, before, [spread(part, shape) for part in whole], last)
    for result, part in zip(results, whole, strict=True):
        if part is not result:
            result[...] = part[:, :count]


class _Last(NamedTuple):
    """Where the last elements of lines are, and the array for their results, as accumulators."""

    run: int
    item: int
    out: Array


def _walk(
    algebra: FieldAlgebra,
    request: ScanRequest,
    elements: States,
    before: Prefixes,
    results: list[Array],
    last: _Last | None,
) -> None:
    """Scan the items one by one; results have shape (lines, warp scans, lanes, items)."""
    combine, shows_before = algebra.combine, request.exclusive or request.include_initial
    scans, items = results[0].shape[1], results[0].shape[3]
    alone = None if before.exists else (slice(None, None, scans), 0)  # the elements that nothing precedes
    shown, steps = chain(combine, before.threads, at(elements, slice(items - shows_before)), shows_before)
    for i, into in enumerate(steps):
        if i == 0 and alone is not None:
            put(at(elements[combine.hidden :], (0, *alone)), at(into, alone))
    if shows_before:
        algebra.show_starts(shown, elements, None if alone is None else (0, *alone))
    parts, places = algebra.lower(shown), algebra.split(tuple(results))
    dtypes = [spec.dtype for spec in request.results] * (len(places) // len(results))
    for place, part, dtype in zip(places, parts, dtypes, strict=True):
        _put_items(part if part.dtype == place.dtype else to_result(part, dtype), place)
    if last is not None:
        for out, part in zip(algebra.split((last.out,)), parts, strict=False):
            out[...] = part[last.item].reshape(len(out), -1)[:, last.run]


def _put_items(part: Array, place: Array) -> None:
    """Copy (items, warp scans of all lines, lanes) to (lines, warp scans, lanes, items)."""
    part = part.reshape(len(part), *place.shape[:-1])
    if isinstance(part, Noted):
        place[...] = np.moveaxis(part, 0, -1)
    else:  # for many elements, a call per item is faster
        for i in range(len(part)):
            place[..., i] = part[i]
