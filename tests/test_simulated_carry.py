"""Incoming and outgoing carries, and totals, in simulated kernels: bit for bit against NumPy, and by intervals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import simulator
from carry_cases import BACKWARDS, LEADING, MAX, MIN, NARROW, named, products, totals
from draws import drawn, draws, steps, tied
from feature_cases import FAMILIES, SHORT, UNITS, Case
from operator_examples import AFFINE, MATRIX_PRODUCT
from selection import covering, facets_of, pairs_of
from simulator import assert_same, prepare, small_units

import cuscan
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


def one_a_flag() -> list[Case]:
    """Each flag in one family; the families take turns."""
    floats = tied("float32", nan=0.003)
    forms: list[tuple[str, Any, dict[str, Any]]] = [
        ("in", "add", {"carry": "in"}),
        ("out", "add", {"carry": "out"}),
        ("int8", "add", {"draw": draws("int8"), "call": {"dtype": "int8"}}),
        ("leading", "add", {"call": LEADING}),
        ("leading-to-the-edge", "add", {"shape": (3, 512), "call": LEADING}),
        ("masked", "min", {"masked": True, "draw": draws("uint16")}),
        ("skipna", "add", {"draw": draws("float32", nan=0.1), "call": {"skipna": True}}),
        ("reset-initial", "add", {"segments": "reset", "initial": 2.0, "call": {"exclusive": True}}),
        ("reset-all", "add", {"segments": "reset-all", "call": BACKWARDS}),
        ("offsets-each", "add", {"segments": "offsets-each"}),
        ("offsets-empty-first", "add", {"segments": "offsets-empty", "call": BACKWARDS}),
        ("keys", "add", {"segments": "keys-full", "call": BACKWARDS}),
        ("keys-bool", "max", {"segments": "keys-bool", "carry": "total"}),
        ("max-total", "max", {"draw": floats, "carry": "total"}),
        ("min-total", "min", {"draw": floats, "carry": "total"}),
        ("indices", MAX, {"draw": floats}),
        ("indices-reverse", MIN, {"draw": floats, "masked": True, "call": BACKWARDS}),
        ("indices-total", MAX, {"draw": tied("int32"), "carry": "total", "segments": "reset"}),
        ("recurrence", LINEAR_RECURRENCE, {"draw": steps(), "call": {"return_last": True, **BACKWARDS}}),
        ("recurrence-total", LINEAR_RECURRENCE, {"draw": steps("complex64"), "carry": "total"}),
        ("states", MATRIX_PRODUCT.operator(), {"draw": drawn(MATRIX_PRODUCT), "call": BACKWARDS}),
        ("keys-of-columns", "add", {"segments": "keys"}),
        ("states-in-keys", AFFINE.operator(), {"draw": draws("float32", 2), "segments": "keys"}),
        ("indices-of-columns", MAX, {"draw": floats, "call": {"exclusive": True}}),
    ]
    families = ("rows", "cluster", "tiles-shared", "panels-shared")
    return [named(families[i % 4], name, op, **fields) for i, (name, op, fields) in enumerate(forms)]


def lengths() -> list[Case]:
    """Lines that end at the borders of vectors, warp tiles and units, and next to them."""
    rows = [1, 4, 5, 127, 129, 256, 511, 512, 513, 1025, 34 * 512 + 3]
    columns = [1, 8, 9, 255, 256, 257, 35 * 256 + 1]
    return [Case(f"{n}-elements", "add", (2, n), carry="both", seeds=1) for n in rows] + [
        Case(f"{n}-steps", "add", (n, width), 0, carry="both", seeds=1) for n in columns for width in (3, 12)
    ]


def every_combination() -> list[Case]:
    """Families, carries, segments and kinds of operators; every second case is masked."""
    operators: list[tuple[str, Any, dict[str, Any]]] = [
        ("add", "add", {"call": {**BACKWARDS, "exclusive": True}}),
        ("indices", MAX, {"draw": tied("float32", nan=0.003)}),
        ("recurrence", LINEAR_RECURRENCE, {"draw": steps()}),
        ("leading", "max", {"call": LEADING, "initial": 1}),
    ]
    beside = itertools.product(("in", "out", "both", "total"), ("", "reset", "offsets-empty", "keys"), operators)
    return [
        named(
            family,
            f"{name}-{carry}-{kind}",
            op,
            carry,
            segments=kind,
            masked=i % 2 > 0 and name != "recurrence",
            **fields,
        )
        for i, (carry, kind, (name, op, fields)) in enumerate(beside)
        for family in (*SHORT, "tiles-alone", "panels-kept")
        if (carry, name) != ("total", "leading")
    ]


def every_narrow_one() -> list[Case]:
    operators: list[tuple[str, Any, dict[str, Any]]] = [
        ("add", "add", {"call": {"exclusive": True}}),
        ("half", "add", {"draw": draws("float16"), "call": BACKWARDS}),
        ("wide", "mul", {"draw": draws("complex64")}),
        ("recurrence", LINEAR_RECURRENCE, {"draw": steps()}),
        ("skipna", "max", {"draw": draws("float32", nan=0.1), "call": {"skipna": True, **BACKWARDS}}),
    ]
    return [
        named(family, f"{name}-{carry}", op, carry, **fields)
        for family in NARROW
        for carry in ("in", "out", "both", "total")
        for name, op, fields in operators
    ]


def leading_columns() -> list[Case]:
    """Strips whose last tile has one more result than values, or one result and no values."""
    return [
        named(family, f"leading-{n}-{carry}", op, carry, **{**NARROW[family], "shape": shape_of(n)}, **fields)
        for family, tile, shape_of in [
            ("strips", 256, lambda n: (2, n, 12)),
            ("strips-own", 64, lambda n: (n, 128)),
            ("strips-pairs", 4096, lambda n: (n, 2)),
        ]
        for n in (6 * tile - 1, 6 * tile, 6 * tile + 5)
        for carry, op, fields in [
            ("both", LINEAR_RECURRENCE, {"draw": steps(), "call": {**LEADING, **BACKWARDS, "return_last": True}}),
            ("", "add", {"call": LEADING, "initial": 2.0}),
        ]
    ]


# A thread scans no rows with carries.
ALL_FAMILIES = (*(family for family in FAMILIES if not family.startswith("thread-rows")), *NARROW)
CASES = [
    *map(products, ALL_FAMILIES),
    *map(totals, ALL_FAMILIES),
    *one_a_flag(),
    *lengths(),
    *every_combination(),
    *every_narrow_one(),
    *leading_columns(),
]


@pytest.mark.parametrize(
    "case", covering(CASES, lambda case: facets_of(case, SHORT), lambda case: pairs_of(case, ALL_FAMILIES))
)
def test_carry(case: Case) -> None:
    case.check()


def test_the_families_are_what_they_are_called() -> None:
    for family in ALL_FAMILIES:
        for case in (products(family), totals(family)):
            stem = family.split("-")[0]
            stem = {"tile": "tiles", "whole": "whole_rows", "staged": "staged_rows"}.get(stem, stem)
            assert case.prepare()[0].plan.config.family == stem, case.name


@pytest.mark.parametrize("shape", [(3, 200), (3, 1801)], ids=["rows", "tiles"])
@pytest.mark.parametrize(
    ("op", "dtype", "carry"),
    [
        *(("min", "int8", 2**31 - 1), ("min", "uint8", 300), ("max", "int16", -(2**31)), ("max", "int8", 300)),
        *(("and", "bool", 2), ("xor", "bool", 2), ("or", "uint8", 0x1FF), ("add", "int8", 2**31 - 1)),
    ],
)
def test_a_carry_beyond_the_range_of_the_results(op: str, dtype: str, carry: int, shape: tuple[int, int]) -> None:
    """Results wrap once they are combined, in words of small elements, too."""
    value = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    state = "int32" if dtype.startswith("int") else "uint32"
    keywords: dict[str, Any] = {"carry": np.full(shape[0], carry, state), "dtype": dtype}
    with small_units(1, 1):
        expected = cuscan.scan(value, op, **keywords)
        assert_same(prepare(value, op, **keywords).run(), expected)


def test_carries_come_in_as_numbers_of_all_bits() -> None:
    """Numbers that float32 cannot represent come in and go out."""
    case = named("tiles-shared", "add")
    simulation, expected = case.prepare()
    assert expected[-1].dtype == np.float64 and (expected[-1] != expected[-1].astype(np.float32)).all()
    assert [spec.dtype.name for spec in simulation.request.carry_in] == ["float64"]


@pytest.mark.parametrize("vectors", [1, 3, pytest.param(8, marks=pytest.mark.full), 12])
@pytest.mark.parametrize("cluster", [0, 16])
def test_totals_of_any_number_of_vectors(vectors: int, cluster: int) -> None:
    """Lines of several units that end in the first, a middle and the last vector of a warp; bit for bit."""
    rng = np.random.default_rng(vectors)
    a, b = (rng.uniform(0.9, 1.1, (2, 4 * 256 * vectors)).astype("float32") for _ in range(2))
    for vector in sorted({0, vectors // 2, vectors - 1}):
        n = (3 * 2 * vectors + vector) * 128 + 77  # after three units of two warps each
        here = a[:, :n], b[:, :n]
        with small_units(2, vectors):
            expected = cuscan.total(here, "linear_recurrence")
            call: Any = {"target": Target(90, 4, cluster=cluster), "return_carry": True, "only_carry": True}
            results = prepare(here, LINEAR_RECURRENCE, **call).run()[-2:]
        for result, field in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, field)


CHUNKS = ("tiles-shared", "cluster", "rows", "panels-shared", "strips", "whole-rows")


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[] if f == "tiles-shared" else pytest.mark.full) for f in CHUNKS]
)
def test_chunks_give_the_whole(family: str) -> None:
    """Chunks of integers, for which the order does not matter, with cuts anywhere."""
    case = named(family, "chunks", carry="", draw=draws("int32"))
    rng, reverse = np.random.default_rng(len(family)), family == "cluster"
    (x,), n = case.draw(rng, case.shape, case.axis), case.shape[case.axis]
    wide: Any = {"dtype": "int64", "axis": case.axis, "reverse": reverse, "return_carry": True}
    expected, behind = cuscan.scan(x, **wide)
    carry: Any = ()
    cuts = list(itertools.pairwise([0, *sorted(rng.integers(1, n, 2)), n]))
    for first, end in reversed(cuts) if reverse else cuts:
        here = tuple(slice(first, end) if a == case.axis % x.ndim else slice(None) for a in range(x.ndim))
        target = Target(case.arch, case.sms, case.shared_bytes, case.cluster)
        with small_units(*UNITS):
            result, carry = prepare(x[here], target=target, carry=carry, **wide).run()
        np.testing.assert_array_equal(result, expected[here])
    np.testing.assert_array_equal(carry, behind)
