"""The scan of all lines of a request, a group of units at a time, so that memory stays bounded."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cuscan.backends.convert import storage, to_result
from cuscan.backends.fields import FieldAlgebra, Inputs
from cuscan.backends.steps import States, at
from cuscan.backends.tree import Carry, Prefixes, Shape, behind, block, prefixes, unblock
from cuscan.order import Order
from cuscan.request import ScanRequest

Array = np.ndarray[Any, Any]

BLOCK = 2**17  # elements that pass through at a time: what the caches hold


class Outputs(NamedTuple):
    """What a scan gives, by lines: no results where the carry alone is asked for."""

    results: list[Array]
    last: Array
    carry: list[Array]


def scan_lines(request: ScanRequest, order: Order, algebra: FieldAlgebra, inputs: Inputs, outputs: Outputs) -> None:
    """Scan arrays of (lines, elements)."""
    lines, length = len(inputs.values[0]), request.shape[request.axis] + request.include_initial
    span = order.unit * units_at_a_time(order)
    step = max(BLOCK // min(span, length), 1)
    for first in range(0, lines, step):
        some = slice(first, min(first + step, lines))
        carry = Carry(algebra.combine, order, algebra.row_start(inputs, some, some.stop - first))
        for position in range(0, length, span):
            window = some, slice(position, min(position + span, length))
            shape = Shape.of(order, window[1].stop - position)
            _scan_group(algebra, request, inputs, window, shape, carry, outputs)


def units_at_a_time(order: Order) -> int:
    """Units of a line that pass through together: a power of two."""
    return min(1 << max(BLOCK // order.unit, 1).bit_length() - 1, order.group)


def keep_carry(algebra: FieldAlgebra, inputs: Inputs, lines: slice, states: States, carry: list[Array]) -> None:
    """Put the states that lines end with where the carry goes."""
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
    elements = tuple(block(part, lines, shape) for part in algebra.lift(inputs, window))
    before = prefixes(algebra.combine, elements, shape, carry, algebra.wide)
    end = request.shape[request.axis] - window[1].start  # of the elements
    if request.carry_out and 0 < end <= shape.elements:
        states = behind(algebra.combine, elements, shape, before, end - 1, algebra.wide)
        keep_carry(algebra, inputs, window[0], states, outputs.carry)
    if request.only_carry:
        return
    last = (count - 1) % shape.items
    accumulators = _walk(algebra, request, elements, before, lines, last, outputs.results, window)
    if request.last is not None:
        outputs.last[window[0]] = accumulators.reshape(lines, -1)[:, (count - 1) // shape.items]


def _walk(
    algebra: FieldAlgebra,
    request: ScanRequest,
    elements: States,
    before: Prefixes,
    lines: int,
    last: int,
    results: list[Array],
    window: tuple[slice, slice],
) -> Array:
    """Take the items one by one; returns the first results of the item `last`, as accumulators."""
    combine, running, shows_before = algebra.combine, before.threads, request.exclusive or request.include_initial
    items, scans, _ = elements[0].shape
    alone = None if before.exists else (slice(None, None, scans // lines), 0)  # the elements that nothing precedes
    blocked = [np.empty(elements[0].shape, storage(spec.dtype)) for spec in request.results]
    for i in range(items):
        element = at(elements, i)
        shown = algebra.shown_before(running, element, None if i else alone) if shows_before else None
        running = combine.shown(running, element, None)
        if i == 0 and alone is not None:
            for part, field in zip(running, element[combine.hidden :], strict=True):
                part[alone] = field[alone]
        parts = algebra.lower(running if shown is None else shown)
        if i == last:
            accumulators = parts[0]
        for whole, part, spec in zip(blocked, parts, request.results, strict=True):
            whole[i] = to_result(part, spec.dtype)
    for result, whole in zip(results, blocked, strict=True):
        result[window] = unblock(whole, lines, window[1].stop - window[1].start)
    return accumulators
