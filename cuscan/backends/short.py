"""Scans of lines that one warp holds, and nothing but the operator: the defined order in few NumPy calls."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cuscan.backends.convert import storage, to_result
from cuscan.backends.tree import Shape
from cuscan.dtypes import DTYPES, Kind
from cuscan.operators import product
from cuscan.order import Order
from cuscan.request import ScanRequest
from cuscan.states import SCALAR

Array = np.ndarray[Any, Any]

BLOCK = 2**16  # elements that pass through at a time: what the caches hold
MOST_KEPT = 2**10  # elements of buffers that stay for the next call


def is_short(request: ScanRequest, order: Order) -> bool:
    """Whether a request is for `ShortScan`."""
    op, arrays = request.op, (request.mask, request.segments, request.row_initial, request.last)
    flags = request.exclusive, request.include_initial, request.has_initial, request.skip_nan, request.carry_out
    if op.states is not SCALAR or any(flags) or any(array is not None for array in arrays):
        return False
    return not order.paired and math.prod(request.shape) > 0 and request.shape[request.axis] <= order.warp_tile


class ShortScan:
    """The inclusive scans of a request's lines; like calls use the same buffers."""

    def __init__(self, request: ScanRequest, order: Order) -> None:
        combine, self._result = request.op.combine, request.result.dtype
        assert combine is not None
        self._combine = np.multiply if combine is product and self._result.kind is not Kind.COMPLEX else combine
        self._shape = Shape.of(order, request.shape[request.axis])
        self._idle: list[_Lines] = []  # what no thread uses

    def __call__(self, elements: Array, out: Array) -> None:
        """Scan accumulators, (lines, n), to an array of results of this shape."""
        lines, n = elements.shape
        step = max(BLOCK // n, 1)
        for first in range(0, lines, step):
            some = elements if lines <= step else elements[first : first + step]
            buffers = self._find(*some.shape)
            scanned = to_result(buffers.scan(some), self._result)
            out[first : first + step] = scanned
            if some.size <= MOST_KEPT and not self._idle:
                self._idle.append(buffers)

    def _find(self, lines: int, n: int) -> _Lines:
        if self._idle:
            try:
                return self._idle.pop()
            except IndexError:  # another thread took it
                pass
        return _Lines(self._combine, self._shape, lines, n, storage(DTYPES[self._result.accumulator]))


class _Lines:
    """Buffers of some lines, and every step of the order on them as a call without arguments."""

    def __init__(
        self, combine: Callable[[Array, Array], Array], shape: Shape, lines: int, n: int, dtype: np.dtype[Any]
    ) -> None:
        whole = np.zeros((lines, shape.elements), dtype)  # no result depends on what is behind the lines
        self._elements = whole[:, :n]
        self._steps: list[Callable[[], Any]] = []
        self._combine = combine
        runs = whole.reshape(lines, shape.vectors, shape.lanes, shape.items)
        first, totals = runs[..., 0], np.empty((lines, shape.vectors, shape.lanes), dtype)
        self._steps.append(functools.partial(np.copyto, totals, first))
        for i in range(1, shape.items):
            self._step(totals, runs[..., i], totals)
        for distance in (2**level for level in range((shape.lanes - 1).bit_length())):
            self._step(totals[..., :-distance], totals[..., distance:], totals[..., distance:])
        self._step(totals[:, 0, :-1], first[:, 0, 1:], first[:, 0, 1:])
        for v in range(1, shape.vectors):
            before, lanes = totals[:, v - 1, -1:], totals[:, v]
            self._step(before, lanes, lanes)
            self._step(lanes[:, :-1], first[:, v, 1:], first[:, v, 1:])
            self._step(before, first[:, v, :1], first[:, v, :1])
        for i in range(1, shape.items):
            self._step(runs[..., i - 1], runs[..., i], runs[..., i])

    def _step(self, earlier: Array, later: Array, out: Array) -> None:
        if not out.size:
            return
        if isinstance(self._combine, np.ufunc):
            self._steps.append(functools.partial(self._combine, earlier, later, out))
        else:
            self._steps.append(lambda: np.copyto(out, self._combine(earlier, later)))

    def scan(self, elements: Array) -> Array:
        """The scans of lines of numbers, in the buffers."""
        self._elements[...] = elements
        for step in self._steps:
            step()
        return self._elements
