"""Scans of few elements: the second similar call records its NumPy calls, and later ones repeat them.

A program is valid for the values of its recording and for all that lead to the same decisions, for example whether
gates give the same bits. Other values have a program of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cuscan.backends.arrange import key_of, others_of
from cuscan.backends.convert import storage
from cuscan.backends.fields import Inputs
from cuscan.backends.lines import Outputs
from cuscan.backends.program import Array, Program
from cuscan.backends.record import Noted, NotNotedError, plain, zeros
from cuscan.dtypes import DTYPES
from cuscan.kept import Table
from cuscan.request import ScanRequest

MOST = 2**13  # elements; for more, the time is in the calls themselves
MOST_IDLE = 128  # stored programs that no call is using
MOST_LIKE = 4  # programs of similar calls, one for each outcome of the decisions

Start = tuple[Any, ...] | None
Scan = Callable[[Inputs, Start, list[Array]], Outputs]


def is_short(request: ScanRequest) -> bool:
    """Return whether `ShortScan` can run a request: not if states are NumPy structures, whose fields differ in type."""
    return 0 < math.prod(request.shape) <= MOST and not request.op.dtypes


class ShortScan:
    """The stored programs of a request's scans. `scan` runs a scan on arrays of any kind."""

    def __init__(self, request: ScanRequest, scan: Scan) -> None:
        self._request, self._scan, self._was_called = request, scan, False

    def __call__(self, inputs: Inputs, start: Start, outs: list[Array]) -> Outputs:
        """Scan arrays, as `evaluate` does."""
        if not self._was_called:  # a recording costs as much as ten scans, too much for a call that never repeats
            self._was_called = True
            return self._scan(inputs, start, outs)
        kept = _idle.pop(self, None) or []
        for program in kept:
            done = program.run(inputs, start, outs)
            if done is not None:
                break
        else:
            if len(kept) == MOST_LIKE:
                kept.pop()
            try:
                program = _Noting(self._request, inputs, start)
                done = program.begin(self._scan, inputs, start, outs)
            except NotNotedError:
                return self._scan(inputs, start, outs)
            kept.append(program)
        if program is not kept[0]:  # try the likeliest first
            kept.remove(program)
            kept.insert(0, program)
        _idle[self] = kept
        while len(_idle) > MOST_IDLE:
            _idle.popitem(last=False)
        return done


class _Noting:
    """A program of a request, with the arrays that it reads and those that it writes."""

    def __init__(self, request: ScanRequest, inputs: Inputs, start: Start) -> None:
        self._request, self._program = request, Program()
        lying, array, n = self._along, partial(zeros, self._program), request.shape[request.axis]
        others, is_offsets = others_of(request), request.segments is not None and request.segments.kind == "offsets"
        segments = inputs.segments
        self._inputs = Inputs(
            tuple([lying(n, value) for value in inputs.values]),
            None if inputs.mask is None else lying(n, inputs.mask),
            None if segments is None else array((n,), segments.dtype) if is_offsets else lying(n, segments),
            None if inputs.row_initial is None else array(others, inputs.row_initial.dtype),
            tuple([array(others, field.dtype) for field in inputs.carry]),
        )
        carry = storage(DTYPES[request.carry])
        self._start = None if start is None else tuple([array((), carry) for _ in start])
        self._places = list(map(plain, _listed(self._inputs, self._start)))
        along = inputs.mask, None if is_offsets else segments
        self._keys = [
            key_of(request, value) if any(value is array for array in along) else None
            for value in _listed(inputs, start)
        ]
        self._done: Outputs

    def _along(self, length: int, like: Array) -> Noted:
        """Return an array like the request's, but `length` long; its lines are contiguous in scan direction."""
        lines = zeros(self._program, (*others_of(self._request), length), like.dtype)
        whole: Noted = np.moveaxis(lines[..., ::-1] if self._request.reverse else lines, -1, self._request.axis)
        return whole

    def begin(self, scan: Scan, inputs: Inputs, start: Start, outs: list[Array]) -> Outputs:
        """Scan for the first time, and record the calls."""
        length = self._request.shape[self._request.axis] + self._request.include_initial
        self._read(inputs, start)
        results: list[Array] = [self._along(length, out) for out in outs]
        self._done = Outputs(*map(plain, scan(self._inputs, self._start, results)))
        self._program.finish([*self._done.results, self._done.last, *self._done.carry])
        return self._written(outs)

    def run(self, inputs: Inputs, start: Start, outs: list[Array]) -> Outputs | None:
        """Scan again; return None if these values lead to other decisions."""
        self._read(inputs, start)
        return self._written(outs) if self._program.run() else None

    def _read(self, inputs: Inputs, start: Start) -> None:
        for place, key, value in zip(self._places, self._keys, _listed(inputs, start)):  # noqa: B905  # equally long
            place[...] = value if key is None else value[key]

    def _written(self, outs: list[Array]) -> Outputs:
        results, last, carry = self._done
        for out, result in zip(outs, results):  # noqa: B905  # strict= costs time
            out[...] = result
        if self._request.last is None and not carry:
            return Outputs(outs, last, carry)
        return Outputs(outs, last.copy(), [field.copy() for field in carry])


def _listed(inputs: Inputs, start: Start) -> list[Any]:
    """Return all arrays that a scan reads."""
    values, mask, segments, row_initial, carry = inputs
    beside = [array for array in (mask, segments, row_initial) if array is not None]
    return [*values, *beside, *carry, *(start or ())]


_idle: Table[ShortScan, list[_Noting]] = Table()  # programs that no thread is using, the latest last
