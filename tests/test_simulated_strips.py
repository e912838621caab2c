"""Strips whose rows begin anywhere, and tiles that overlap, so that each stores whole sectors (tile_rows.cuh)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import simulator
from carry_cases import MAX
from draws import draws, steps
from feature_cases import Case as FeatureCase
from feature_cases import twin
from operator_examples import MATRIX_PRODUCT
from simulator import Memory, Simulation, assert_same, prepare

import cuscan
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

Array = np.ndarray[Any, Any]
ROWS = 530  # a tile of 256 rows, or several of fewer, and a part of one


@dataclass(frozen=True)
class Case:
    """A scan down the rows of arrays of `columns` columns.

    Rows are `pitch` bytes apart, or follow each other if it is 0; row 0 begins `shift` bytes behind a multiple of 16.
    Both are pairs: of the values and of the results. `halo`: how many columns tiles share.
    """

    name: str
    dtype: str
    columns: int
    halo: int
    result: str = ""
    pitch: tuple[int, int] = (0, 0)
    shift: tuple[int, int] = (0, 0)
    op: Any = "add"
    in_place: bool = False
    rows: int = ROWS
    sms: int = 24
    shared_bytes: int = 228 * 1024
    call: dict[str, Any] = field(default_factory=dict)

    def placed(self, dtype: Any, number: int, rows: int) -> Array:
        size = np.dtype(dtype).itemsize
        pitch = self.pitch[number] or self.columns * size
        return Memory.empty((rows, self.columns), (pitch, size), dtype, self.shift[number]).array

    def arrays(self) -> tuple[Array, dict[str, Any]]:
        rng, dtype = np.random.default_rng(len(self.name)), np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        value = self.placed(dtype, 0, self.rows)
        value[...] = rng.integers(0, 2, value.shape) if self.dtype == "bool" else rng.integers(-9, 9, value.shape) / 4
        call = {"axis": 0, **self.call}
        if self.result:
            call["dtype"] = self.result
        if self.in_place:
            return value, call | {"out": value}
        results = np.dtype(getattr(ml_dtypes, self.result or self.dtype, self.result or self.dtype))
        return value, call | {"out": self.placed(results, 1, self.rows + self.call.get("include_initial", False))}

    def prepare(self) -> Simulation:
        value, call = self.arrays()
        return prepare(value, self.op, target=Target(90, self.sms, self.shared_bytes, 0), **call)

    def check(self, seeds: int, **expected: int) -> None:
        """Check the results, and some constants of the plan."""
        value, call = self.arrays()
        results, simulation = cuscan.scan(value, self.op, **call).copy(), self.prepare()
        config = simulation.plan.config
        assert config.family == "strips" and expected.items() <= dict(config.constants).items()
        for seed in range(seeds):
            assert_same(simulation.run(seed), results)


LARGEST = cuscan.Operator("largest", "earlier < later ? later : earlier", -128, numpy=np.maximum)  # bytes, not words
HALVES = {"dtype": "bfloat16", "halo": 15}
WORDS = {"dtype": "float32", "halo": 7}
CASES = (
    Case("halves", columns=131, pitch=(2 * 133, 0), **HALVES),
    Case("halves-reverse", columns=147, pitch=(2 * 149, 0), call={"reverse": True, "exclusive": True}, **HALVES),
    Case("halves-with-gaps", columns=130, pitch=(2 * 133, 2 * 135), shift=(2, 10), **HALVES),
    Case("halves-in-place", columns=131, in_place=True, pitch=(2 * 135, 0), shift=(6, 6), **HALVES),
    Case("halves-narrow-last-strip", columns=2 * 49 + 45, pitch=(0, 2 * 147), shift=(14, 2), **HALVES),
    Case("halves-of-words", "float16", 130, 14, pitch=(264, 268), shift=(4, 12)),
    Case("halves-of-pieces", "int16", 104, 8, pitch=(240, 208), op="max"),
    Case("halves-in-one-strip", "int16", 63, 0, pitch=(0, 2 * 65), shift=(2, 6)),
    Case("halves-in-one-strip-in-place", "int16", 61, 0, in_place=True, pitch=(2 * 63, 0), shift=(2, 2)),
    Case("halves-to-words", "float16", 65, 7, "float32", pitch=(2 * 67, 4 * 67), shift=(2, 4)),
    Case("words", columns=4 * 25 + 1, pitch=(4 * 103, 0), **WORDS),
    Case("words-reverse", columns=99, shift=(4, 12), call={"reverse": True}, **WORDS),
    Case("words-with-an-initial-row", columns=99, call={"include_initial": True, "initial": 2.0}, **WORDS),
    Case("words-in-place", columns=97, in_place=True, pitch=(4 * 101, 0), shift=(8, 0), **WORDS),
    Case("words-in-little-memory", columns=99, pitch=(4 * 100, 0), shared_bytes=164 * 1024, **WORDS),
    Case("words-of-pieces", "float32", 84, 4, pitch=(336, 368)),
    Case("words-of-pieces-in-place", "float32", 84, 4, in_place=True),
    Case("words-of-pieces-own-strips", "float32", 180, 4, sms=3),
    Case("words-without-a-halo", "float32", 58, 0, pitch=(4 * 59, 4 * 61), shift=(4, 8), call={"initial": 1.0}),
    Case("bytes-to-8-bytes", "uint8", 86, 3, "int64", shift=(3, 8)),
    Case("bytes-to-8-bytes-reverse", "bool", 87, 3, "int64", pitch=(89, 8 * 89), shift=(1, 8), call={"reverse": True}),
    Case("8-bytes-unlike", "int64", 45, 0, pitch=(8 * 45, 8 * 46), shift=(8, 0)),
    Case("8-bytes-in-place", "float64", 45, 0, in_place=True, pitch=(8 * 47, 0), shift=(8, 8)),
    Case("bytes", "int8", 301, 0, pitch=(308, 304), op=LARGEST),
    Case("bytes-in-one-strip", "int8", 125, 0, pitch=(128, 132), shift=(4, 8), op=LARGEST),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_that_begin_anywhere(case: Case) -> None:
    case.check(3, Halo=case.halo, Flat=0)


# Seven tiles or nine for one block, one more than fills batches of two; the last one has few rows.
IN_BULK = (
    Case("words", "float32", 8, 0, rows=6 * 1024 + 37, sms=1),
    Case("words-reverse", "float32", 2, 0, rows=6 * 4096 + 1037, shift=(8, 8), sms=1, call={"reverse": True}),
    Case("words-in-place", "float32", 8, 0, rows=6 * 1024 + 37, in_place=True, sms=1),
    Case("words-with-an-initial-row", "float32", 8, 0, rows=6 * 1024 + 36, sms=1, call={"include_initial": True}),
    Case("words-with-an-initial-row-alone", "float32", 8, 0, rows=6 * 1024, sms=1, call={"include_initial": True}),
    Case("halves", "bfloat16", 5, 0, rows=8 * 1024 + 333, shift=(2, 6), sms=1),
    Case("halves-reverse", "bfloat16", 5, 0, rows=8 * 1024 + 1, shift=(4, 8), sms=1, call={"reverse": True}),
)


@pytest.mark.parametrize("case", IN_BULK, ids=lambda case: case.name)
def test_last_tiles_of_few_rows(case: Case) -> None:
    case.check(2, Flat=1, BulkStores=1)


REVERSE = {"call": {"reverse": True}}
OF_TWO_ARRAYS = {"masked": True, "initial": 0.5, "call": {"include_initial": True}, "units": None}


@pytest.mark.parametrize(
    "case",
    [
        FeatureCase("wide-masked", "max", (6, 2049, 64), 1, 4, **OF_TWO_ARRAYS),
        FeatureCase("wide-masked-words", "add", (3, 2049, 96), 1, 4, **OF_TWO_ARRAYS),
    ],
    ids=lambda case: case.name,
)
def test_store_warps_have_whole_rows_of_flat_tiles(case: FeatureCase) -> None:
    constants = dict(case.prepare()[0].plan.config.constants)
    assert (constants["Flat"], constants["Rows"], constants["WarpsAbreast"]) == (1, 128, 1)
    case.check()


MATRICES = {"draw": draws("float32", 4), "units": None}


@pytest.mark.parametrize(
    ("case", "rows", "depth"),
    [
        (FeatureCase("matrices", MATRIX_PRODUCT.operator(), (530, 99), 0, 24, **MATRICES), 64, 1),
        (FeatureCase("matrices-reverse", MATRIX_PRODUCT.operator(), (530, 98), 0, 24, **REVERSE, **MATRICES), 64, 1),
        (
            FeatureCase("halves", "add", (770, 515), 0, 24, draw=draws("float16"), segments="reset", **OF_TWO_ARRAYS),
            128,
            2,
        ),
        (FeatureCase("reset", "max", (770, 98), 0, 24, draw=draws("float64"), segments="reset", units=None), 128, 1),
    ],
    ids=lambda value: value.name if isinstance(value, FeatureCase) else "",
)
def test_low_tiles_of_rows_that_lie_apart(case: FeatureCase, rows: int, depth: int) -> None:
    """A store warp has whole rows of tiles that are a part of a unit, too."""
    config = case.prepare()[0].plan.config
    constants = dict(config.constants)
    assert config.family == "strips" and not constants["Flat"] and constants["WarpsAbreast"] == 1
    assert (constants["Rows"], constants["Depth"]) == (rows, depth)
    case.check()


@pytest.mark.parametrize(
    ("case", "walks"),
    [
        (FeatureCase("vectors", "add", (2, 5190, 8), 1, 3, draw=draws("float16"), units=None), 1),
        (FeatureCase("one-tile", "add", (3, 1024, 8), 1, 3, draw=draws("float16"), units=None), 1),
        (FeatureCase("walks", "add", (40 * 512 + 9, 10), 0, 1, draw=draws("bfloat16"), units=None), 4),
        (FeatureCase("two-walks", LINEAR_RECURRENCE, (9000, 10), 0, 1, draw=steps("bfloat16"), units=None), 2),
        (FeatureCase("offsets", "max", (2, 2051, 10), 1, 3, draw=draws("int16"), units=None, segments="offsets"), 1),
        (FeatureCase("carries", "add", (2590, 10), 0, 3, draw=draws("bfloat16"), units=None, carry="both"), 1),
    ],
    ids=lambda value: value.name if isinstance(value, FeatureCase) else "",
)
def test_store_warps_take_tiles_in_turn(case: FeatureCase, walks: int) -> None:
    """Where the lanes of all of them would lack elements. The last tiles of a block are one group's, or the other's."""
    constants = dict(case.prepare()[0].plan.config.constants)
    assert (constants["Warps"], constants["Groups"], constants["Walks"]) == (4, 2, walks)
    case.check()


@pytest.mark.parametrize(
    "case",
    [
        FeatureCase("three", "add", (8200, 3), 0, 2, units=None),
        FeatureCase("three-bytes", "or", (8200, 3), 0, 2, draw=draws("bool"), units=None, call={"dtype": "bool"}),
        FeatureCase("twelve-bytes", "max", (8200, 12), 0, 2, draw=draws("uint8"), units=None, masked=True),
        FeatureCase("five-back", "add", (5200, 5), 0, 2, draw=draws("float16"), units=None, call={"reverse": True}),
        FeatureCase("six-steps", LINEAR_RECURRENCE, (5200, 6), 0, 2, draw=steps("bfloat16"), units=None),
        FeatureCase("three-offsets", "max", (8200, 3), 0, 2, draw=draws("int16"), units=None, segments="offsets"),
        FeatureCase("seven-carries", "add", (5200, 7), 0, 2, draw=draws("bfloat16"), units=None, carry="both"),
    ],
    ids=lambda case: case.name,
)
def test_threads_take_whole_rows(case: FeatureCase) -> None:
    """A thread's rows are one stretch of memory, in which vectors go beyond the ends of rows."""
    constants = dict(case.prepare()[0].plan.config.constants)
    assert constants["Flat"] and constants["Across"] == constants["Columns"]
    case.check()


HALVES_OF_ODD_ROWS = {"axis": 1, "draw": draws("bfloat16"), "units": None}


@pytest.mark.parametrize(
    "case",
    [
        FeatureCase("odd", "add", (2, 4101, 13), **HALVES_OF_ODD_ROWS),
        FeatureCase("odd-reverse", "add", (2, 4101, 13), call={"reverse": True}, **HALVES_OF_ODD_ROWS),
        FeatureCase("odd-masked", "max", (2, 4101, 11), masked=True, **HALVES_OF_ODD_ROWS),
        FeatureCase("odd-by-offsets", "add", (2, 4101, 13), segments="offsets", **HALVES_OF_ODD_ROWS),
        FeatureCase("odd-carries", "add", (2, 4101, 13), carry="both", **HALVES_OF_ODD_ROWS),
        # Results of neighbouring batch rows begin at other addresses than values, and lie in a buffer of their own.
        FeatureCase(
            "odd-initial-rows", "add", (3, 2051, 31), initial=0.5, call={"include_initial": True}, **HALVES_OF_ODD_ROWS
        ),
        FeatureCase("odd-steps", LINEAR_RECURRENCE, (2, 4101, 13), 1, draw=steps("bfloat16"), units=None),
        FeatureCase("odd-bytes", "or", (2, 8203, 7), 1, draw=draws("bool"), units=None, call={"dtype": "bool"}),
        # Columns of two scan warps, the second of which has fewer.
        FeatureCase(
            "wide-odd", "add", (2, 2051, 35), call={"include_initial": True, "reverse": True}, **HALVES_OF_ODD_ROWS
        ),
    ],
    ids=lambda case: case.name,
)
def test_rows_without_gaps_that_begin_anywhere(case: FeatureCase) -> None:
    constants = dict(case.prepare()[0].plan.config.constants)
    assert (constants["Flat"], constants["Aligned"]) == (1, 1)
    case.check()


@pytest.mark.parametrize(
    ("dtype", "columns", "still", "shifts", "halo", "in_place"),
    [
        ("float32", 45, True, (4, 0, 8), 0, True),
        ("float32", 45, False, (4, 0, 8), 0, True),  # rows leave by units, wherever they lie in the tile
        ("float16", 513, True, (2, 6, 6), 15, True),
        ("float16", 513, True, (6, 2, 6), 15, False),
        ("float16", 513, False, (6, 2, 6), 15, True),
        ("float16", 513, False, (2, 6, 6), 15, False),
    ],
)
def test_results_take_the_place_of_the_first_value_that_varies(
    dtype: str, columns: int, still: bool, shifts: tuple[int, int, int], halo: int, in_place: bool
) -> None:
    """Of the decays if these vary, otherwise of the numbers; where rows of both begin alike. `shifts`: of the rows."""
    rng, size = np.random.default_rng(0), np.dtype(dtype).itemsize
    pitch = size * (columns + 3)
    a, b, out = (Memory.empty((ROWS, columns), (pitch, size), dtype, shift).array for shift in shifts)
    a[...], b[...] = 0.5, rng.integers(-3, 4, b.shape)
    decay = np.lib.stride_tricks.as_strided(a, a.shape, (0, size)) if still else a
    target = Target(90, 24, 228 * 1024, 0)
    simulation = prepare((decay, b), LINEAR_RECURRENCE, target=target, axis=0, out=out)
    constants = dict(simulation.plan.config.constants)
    assert (constants["Halo"], constants["Flat"], constants["InPlace"]) == (halo, 0, in_place)
    for seed in range(3):
        assert_same(simulation.run(seed), twin(simulation, None)[0])


@pytest.mark.parametrize(
    "case",
    [
        FeatureCase("carries", "add", (ROWS, 513), 0, 24, carry="both", units=None),
        FeatureCase("carries-in-place", "add", (ROWS, 513), 0, 24, carry="both", in_place=0, units=None),
        FeatureCase("carries-of-halves", "max", (2, ROWS, 513), 1, 40, draw=draws("bfloat16"), carry="out", units=None),
        FeatureCase("totals", "add", (ROWS, 513), 0, 24, carry="total", units=None),
        FeatureCase("positions", MAX, (ROWS, 513), 0, 24, units=None),
        FeatureCase(
            "an-initial-row", "add", (ROWS, 513), 0, 24, initial=0.5, call={"include_initial": True}, units=None
        ),
    ],
    ids=lambda case: case.name,
)
def test_what_tiles_that_overlap_return(case: FeatureCase) -> None:
    """A column of two tiles has one carry and one last position."""
    constants = dict(case.prepare()[0].plan.config.constants)
    assert constants["Halo"] > 0
    case.check()


@pytest.mark.parametrize(
    "case",
    [
        FeatureCase("recurrence", LINEAR_RECURRENCE, (ROWS, 513), 0, 24, draw=steps(), units=None),
        FeatureCase("recurrence-of-halves", LINEAR_RECURRENCE, (ROWS, 514), 0, 24, draw=steps("float16"), units=None),
        FeatureCase(
            "last-step", LINEAR_RECURRENCE, (ROWS, 513), 0, 24, draw=steps(), call={"return_last": True}, units=None
        ),
        FeatureCase("masked", "add", (ROWS, 513), 0, 24, masked=True, units=None),
        FeatureCase("masked-in-place", "add", (2, ROWS, 513), 1, 40, masked=True, in_place=0, units=None),
        FeatureCase("restarts", "add", (ROWS, 513), 0, 24, segments="reset", units=None),
    ],
    ids=lambda case: case.name,
)
def test_tiles_side_by_side(case: FeatureCase) -> None:
    constants = dict(case.prepare()[0].plan.config.constants)
    assert constants["Halo"] == 0 and constants["Aligned"] == 4
    case.check()
