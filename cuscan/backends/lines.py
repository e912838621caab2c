"""The scan of all lines of a request, a group of units at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cuscan.backends.convert import storage, to_result
from cuscan.backends.fields import FieldAlgebra, Inputs
from cuscan.backends.tree import Carry, Shape, States, at, block, prefixes, unblock
from cuscan.order import Order
from cuscan.request import ScanRequest

Array = np.ndarray[Any, Any]

BLOCK = 2**18  # elements that pass through at a time: what the caches hold


def scan_lines(
    request: ScanRequest, order: Order, algebra: FieldAlgebra, inputs: Inputs, results: list[Array], last: Array
) -> None:
    """Scan arrays of (lines, elements) into `results`; `last` is what lines end with."""
    lines, length = results[0].shape
    span = order.unit * order.group
    step = max(BLOCK // min(span, length), 1)
    for first in range(0, lines, step):
        some = slice(first, min(first + step, lines))
        carry = Carry(algebra.combine, order, algebra.row_start(inputs, some, some.stop - first))
        for position in range(0, length, span):
            window = some, slice(position, min(position + span, length))
            _scan_group(
                algebra, request, inputs, window, Shape.of(order, window[1].stop - position), carry, results, last
            )


def scan_short(combine: Callable[[Array, Array], Array], order: Order, elements: Array) -> Array:
    """Inclusive scans of lines of numbers, (lines, n), that a warp scan holds: the same order, in fewer steps."""
    lines, n = elements.shape
    shape = Shape.of(order, n)
    if n != shape.elements:
        padded = np.zeros((lines, shape.elements), elements.dtype)
        padded[:, :n] = elements
        elements = padded
    runs = elements.reshape(lines, shape.lanes, shape.items)
    scanned = np.empty_like(runs)
    totals = runs[:, :, 0].copy() if shape.items == 1 else runs[:, :, 0]
    for i in range(1, shape.items):
        totals = combine(totals, runs[:, :, i])
    distance = 1
    while distance < shape.lanes:
        totals[:, distance:] = combine(totals[:, :-distance], totals[:, distance:])
        distance *= 2
    running = scanned[:, :, 0]
    running[:, 0] = runs[:, 0, 0]
    running[:, 1:] = combine(totals[:, :-1], runs[:, 1:, 0])
    for i in range(1, shape.items):
        running = combine(running, runs[:, :, i])
        scanned[:, :, i] = running
    return scanned.reshape(lines, -1)[:, :n]


def _scan_group(
    algebra: FieldAlgebra, request: ScanRequest, inputs: Inputs, window: Any, shape: Shape, carry: Carry,
    results: list[Array], last: Array,
) -> None:  # fmt: skip
    lines, count = window[0].stop - window[0].start, window[1].stop - window[1].start
    elements = tuple(block(part, lines, shape) for part in algebra.lift(inputs, window))
    alone = None  # the elements that nothing precedes
    if carry.before_group() is None:
        alone = slice(None, None, elements[0].shape[1] // lines), 0
    running = prefixes(algebra.combine, elements, shape, carry, algebra.wide)
    shown_before = request.exclusive or request.include_initial
    lowered = [np.empty(elements[0].shape, storage(spec.dtype)) for spec in request.results]
    for i in range(shape.items):
        element = at(elements, i)
        if shown_before:
            _show(algebra, request, algebra.shown_before(running, element, alone if i == 0 else None), lowered, i)
            if i == shape.items - 1:
                break
        running = algebra.combine(running, element)
        if i == 0 and alone is not None:
            for part, field in zip(running, element, strict=True):
                part[alone] = field[alone]
        if not shown_before:
            parts = _show(algebra, request, running, lowered, i)
            if request.last is not None and i == (count - 1) % shape.items:
                last[window[0]] = parts[0].reshape(lines, -1)[:, (count - 1) // shape.items]
    for result, part in zip(results, lowered, strict=True):
        result[window] = unblock(part, lines, count)


def _show(
    algebra: FieldAlgebra, request: ScanRequest, states: States, lowered: list[Array], i: int
) -> tuple[Array, ...]:
    parts = algebra.lower(states)
    for whole, part, spec in zip(lowered, parts, request.results, strict=True):
        whole[i] = to_result(part, spec.dtype)
    return parts
