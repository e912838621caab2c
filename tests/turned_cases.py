"""Scans of arrays of which some lie across the columns and others along the axis (strip_tile.cuh)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from carry_cases import MAX
from feature_cases import twin
from simulator import CODE, DeviceCode, Memory, Simulation, assert_same, prepare

from cuscan.operators import LINEAR_RECURRENCE
from cuscan.planning.config import Target

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A scan along axis 1 of (batch, steps, columns).

    `along`: whether values and results are contiguous along the axis; the others are across the columns. Lines of each
    are `gap` items apart, and begin `shift` bytes behind a multiple of 16; both are pairs: of values and of results.
    `expected`: whether tiles are flat, and the bytes to which lines along the axis are aligned.
    """

    name: str
    dtype: str
    shape: tuple[int, int, int]
    along: tuple[bool, bool]
    expected: tuple[int, int]
    result: str = ""
    gap: tuple[int, int] = (0, 0)
    shift: tuple[int, int] = (0, 0)
    op: Any = "add"
    flags: str = ""
    back: bool = False  # the values' rows come from last to first
    slides: bool = False  # the values are windows of a line
    sms: int = 24
    call: dict[str, Any] = field(default_factory=dict)

    def placed(self, dtype: str, number: int, rows: int) -> Array:
        batch, _, columns = self.shape
        item = np.dtype(getattr(ml_dtypes, dtype, dtype))
        size, gap = item.itemsize, self.gap[number]
        if self.along[number]:
            strides = (columns * (rows + gap) * size, size, (rows + gap) * size)
        else:
            strides = (rows * (columns + gap) * size, (columns + gap) * size, size)
        return Memory.empty((batch, rows, columns), strides, item, self.shift[number]).array

    def windows(self) -> Array:
        """Windows of a line: a step along the axis, or across columns, is one item."""
        _, steps, columns = self.shape
        return Memory.empty((1, steps, columns), (0, 4, 4), np.float32).array

    def prepare(self, outs: tuple[Array, ...] = ()) -> Simulation:
        rng, steps = np.random.default_rng(len(self.name)), self.shape[1]
        operands = []
        for lower in (-0.9, -9) if self.op is LINEAR_RECURRENCE else (-9,):
            placed = self.windows() if self.slides else self.placed(self.dtype, 0, steps)
            operands.append(placed[:, ::-1] if self.back else placed)
            drawn = rng.uniform(lower, -lower, self.shape)
            operands[-1][...] = drawn if np.dtype(operands[-1].dtype).kind not in "iub" else np.abs(drawn) % 2
        call: dict[str, Any] = {"axis": 1, **self.call}
        if self.result:
            call["dtype"] = self.result
        if self.flags:
            flags = self.placed("bool", 0, steps)
            flags[...] = rng.random(self.shape) < (0.7 if self.flags == "mask" else 0.02)
            call[self.flags] = flags
        rows = steps + self.call.get("include_initial", False)
        if not outs:
            outs = (self.placed(self.result or self.dtype, 1, rows),)
            outs += (self.placed("int64", 1, rows),) if self.op is MAX else ()
        call["out"] = outs
        return prepare(tuple(operands), self.op, target=Target(90, self.sms, 228 * 1024, 0), **call)

    def check(self, code: DeviceCode = CODE) -> None:
        simulation = self.prepare()
        expected = twin(simulation, self.call.get("initial"))
        for seed in range(3):
            for result, wanted in zip(simulation.run_all(seed, code=code), expected, strict=True):
                assert_same(result, wanted)


ACROSS, ALONG = (False, True), (True, False)  # where the values lie; the results lie the other way
CASES = (
    Case("results", "float32", (1, 1101, 67), ACROSS, (0, 1)),
    Case("results-of-pieces", "float32", (1, 1040, 64), ACROSS, (0, 16)),
    Case("results-that-end-in-a-piece", "float32", (1, 1037, 64), ACROSS, (0, 16), gap=(0, 3)),
    Case("results-with-gaps", "float32", (2, 1037, 61), ACROSS, (0, 1), gap=(3, 2), shift=(4, 12)),
    Case("results-of-halves", "bfloat16", (1, 1101, 131), ACROSS, (0, 1), gap=(2, 0), shift=(2, 6)),
    Case("results-of-8-bytes", "float64", (1, 601, 45), ACROSS, (0, 1), shift=(8, 8)),
    Case("results-wider", "uint8", (1, 601, 88), ACROSS, (0, 1), "int64", shift=(2, 8)),
    Case("results-in-flat-tiles", "float32", (5, 2601, 7), ACROSS, (1, 1)),
    Case("results-in-flat-tiles-of-pieces", "float32", (3, 2600, 8), ACROSS, (1, 16)),
    Case("results-in-flat-tiles-of-halves", "float16", (3, 2602, 10), ACROSS, (1, 1), shift=(0, 2)),
    Case("results-in-flat-tiles-of-bytes", "int8", (3, 4604, 30), ACROSS, (1, 1), "int8", shift=(0, 3)),
    Case("results-in-wide-flat-tiles", "float32", (1, 2101, 67), ACROSS, (1, 1)),
    Case("values", "float32", (1, 1101, 67), ALONG, (0, 1)),
    Case("values-of-pieces", "float32", (1, 1040, 64), ALONG, (0, 16)),
    Case("values-that-end-in-a-piece", "float32", (1, 1037, 64), ALONG, (0, 16), gap=(3, 0)),
    Case("values-with-gaps", "float32", (2, 1037, 45), ALONG, (0, 1), gap=(3, 2), shift=(4, 12)),
    Case("values-of-halves", "bfloat16", (1, 1101, 131), ALONG, (0, 1), gap=(0, 2), shift=(6, 2)),
    Case("values-of-bytes", "bool", (1, 601, 66), ALONG, (0, 1), "int32", shift=(3, 4)),
    Case("values-in-flat-tiles", "float32", (5, 2601, 7), ALONG, (1, 1)),
    Case("values-in-flat-tiles-of-pieces", "float32", (3, 2600, 8), ALONG, (1, 16)),
    Case("values-in-flat-tiles-of-halves", "float16", (3, 9002, 2), ALONG, (1, 1), shift=(2, 0)),
    Case("values-in-wide-flat-tiles", "float32", (1, 2101, 67), ALONG, (1, 1), call={"reverse": True}),
    Case("values-in-wide-flat-tiles-of-pieces", "float32", (4, 2052, 64), ALONG, (1, 16), sms=4),
    Case("two-values", "float32", (1, 601, 67), ACROSS, (0, 1), op=LINEAR_RECURRENCE),
    Case("two-values-along", "float32", (1, 601, 67), ALONG, (0, 1), op=LINEAR_RECURRENCE),
    Case("positions", "float32", (1, 601, 67), ACROSS, (0, 1), op=MAX),
    Case("positions-of-values-along", "float32", (1, 601, 67), ALONG, (0, 1), op=MAX),
    Case("reverse", "float32", (1, 1101, 67), ACROSS, (0, 1), call={"reverse": True}),
    Case("reverse-of-pieces", "float32", (1, 1040, 64), ACROSS, (0, 16), call={"reverse": True, "exclusive": True}),
    Case("reverse-in-flat-tiles", "float32", (3, 2601, 7), ACROSS, (1, 1), call={"reverse": True}),
    Case("reverse-in-flat-tiles-of-pieces", "float16", (3, 2608, 10), ACROSS, (1, 16), call={"reverse": True}),
    Case("reverse-of-values", "float32", (1, 1101, 67), ALONG, (0, 1), call={"reverse": True}),
    Case("reverse-of-values-of-pieces", "float16", (2, 1040, 128), ALONG, (0, 16), gap=(8, 0), call={"reverse": True}),
    Case("reverse-of-values-in-flat-tiles", "float32", (5, 2601, 7), ALONG, (1, 1), call={"reverse": True}),
    Case(
        "reverse-with-an-initial-row",
        "float32",
        (1, 1101, 67),
        ALONG,
        (0, 1),
        call={"reverse": True, "include_initial": True, "initial": 1.0},
    ),
    Case("windows", "float32", (1, 1100, 64), (False, False), (0, 1), slides=True),
    Case("few-windows", "float32", (1, 2600, 8), (False, False), (0, 1), slides=True),
    Case("values-from-last-to-first", "float32", (1, 1101, 67), ACROSS, (0, 1), back=True),
    Case("values-from-last-to-first-in-flat-tiles", "float32", (3, 2601, 7), ACROSS, (1, 1), back=True),
    Case("masked", "float32", (1, 1101, 67), ACROSS, (0, 1), flags="mask"),
    Case("restarts", "float32", (1, 1101, 67), ACROSS, (0, 1), flags="reset"),
    Case("restarts-in-flat-tiles", "float32", (3, 2601, 6), ACROSS, (1, 1), flags="reset"),
    Case("exclusive", "float32", (1, 1101, 67), ALONG, (0, 1), call={"exclusive": True}),
    Case("an-initial-row", "float32", (1, 1101, 67), ACROSS, (0, 1), call={"include_initial": True, "initial": 2.0}),
    Case("carries", "float32", (1, 1101, 67), ACROSS, (0, 1), call={"return_carry": True, "initial": 1.0}),
    Case("segments", "float32", (1, 1101, 67), ALONG, (0, 1), call={"offsets": np.array([0, 300, 301, 1000, 1101])}),
)
# Where results lie along and there are strips for all blocks, each has some of its own.
OWN = (
    Case("own", "float32", (1, 1101, 190), ACROSS, (0, 1), sms=3),
    Case("own-of-pieces", "float32", (2, 1040, 128), ACROSS, (0, 16), sms=2),
    Case("own-with-gaps", "float32", (2, 1037, 61), ACROSS, (0, 1), gap=(3, 2), shift=(4, 12), sms=1),
    Case("own-halves", "bfloat16", (1, 1101, 187), ACROSS, (0, 1), gap=(2, 0), shift=(2, 6), sms=3),
    Case("own-8-bytes", "float64", (1, 601, 93), ACROSS, (0, 1), shift=(8, 8), sms=3),
    Case("own-wider", "uint8", (1, 601, 88), ACROSS, (0, 1), "int64", shift=(2, 8), sms=3),
    Case("own-two-values", "float32", (3, 601, 61), ACROSS, (0, 1), op=LINEAR_RECURRENCE, sms=3),
    Case("own-positions", "float32", (2, 601, 96), ACROSS, (0, 1), op=MAX, sms=2),
    Case("own-reverse", "float32", (3, 1101, 61), ACROSS, (0, 1), call={"reverse": True}, sms=3),
    Case(
        "own-reverse-of-pieces",
        "float32",
        (1, 1040, 64),
        ACROSS,
        (0, 16),
        call={"reverse": True, "exclusive": True},
        sms=1,
    ),
    Case("own-from-last-to-first", "float32", (1, 1101, 64), ACROSS, (0, 1), back=True, sms=1),
    Case(
        "own-initial-row",
        "float32",
        (1, 1101, 64),
        ACROSS,
        (0, 1),
        call={"include_initial": True, "initial": 2.0},
        sms=1,
    ),
    Case("own-carries", "float32", (2, 1101, 64), ACROSS, (0, 1), call={"return_carry": True, "initial": 1.0}, sms=1),
)
