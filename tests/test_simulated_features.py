"""Positions, missing values, leading initial values, log-sum-exp and user operators in the simulated kernels.

Results are compared bit for bit with NumPy in the same order, except for log-sum-exp, whose exponentials differ from
NumPy's.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import simulator
from draws import Array, Draw, drawn, draws, initial_of, tied
from feature_cases import FAMILIES, SHORT, UNITS, Case, of_family
from operator_examples import AFFINE, BRACKETS, EXAMPLES, MATRIX_PRODUCT
from selection import covering, facets_of, pairs_of
from simulator import prepare, small_units

import cuscan
from cuscan.operators import INDEXED
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


# ---- indices -------------------------------------------------------------------------------------


def indices() -> list[Case]:
    max_first, max_last, min_first, min_last = (INDEXED[op, t] for op in ("max", "min") for t in ("first", "last"))
    floats = tied("float32", nan=0.003)
    backwards, exclusive = {"reverse": True}, {"exclusive": True}
    cases = [
        case
        for family in FAMILIES
        for case in (
            of_family(family, "max-first", max_first, draw=floats),
            of_family(family, "max-last-reverse", max_last, draw=floats, call=backwards),
            of_family(family, "max-equal-initial", max_first, draw=floats, initial=-3.0, masked=True),
            of_family(family, "min-first-initial", min_first, draw=tied("int32"), initial=-9, call=backwards),
            of_family(family, "max-last-identity", max_last, draw=tied("bool"), masked=True),
            of_family(family, "min-last-masked", min_last, draw=tied("int32"), masked=True, call=exclusive),
            of_family(family, "max-leading", max_last, draw=floats, call={"include_initial": True, **backwards}),
            of_family(family, "min-skipna", min_first, draw=tied("float32", nan=0.2), call={"skipna": True}),
            of_family(family, "max-reset", max_first, draw=floats, segments="reset", call={**backwards, **exclusive}),
            of_family(family, "min-offsets", min_last, draw=floats, segments="offsets-empty", call=backwards),
        )
    ]
    dtypes = ("bool", "int8", "uint16", "int64", "uint64", "float16", "bfloat16", "float64")
    return cases + [
        of_family(family, f"{op}-{dtype}".replace(" ", "-"), op, draw=tied(dtype, 0.01 * ("float" in dtype)))
        for i, dtype in enumerate(dtypes)
        for family in SHORT
        for op in ((max_first, min_last, max_last, min_first)[i % 4],)
    ]


# ---- missing values, leading initial values ------------------------------------------------------


def missing_values() -> list[Case]:
    skip = {"skipna": True}
    pairs = [("mul", "float64"), ("max", "float16"), ("add", "bfloat16"), ("add", "complex64"), ("mul", "complex128")]
    return [
        of_family(family, f"skipna-{name}", op, **{"draw": draws("float32", nan=0.1), **fields})
        for family in FAMILIES
        for name, op, fields in (
            ("plain", "add", {"call": skip}),
            (
                "all-options",
                "min",
                {"call": {**skip, "reverse": True, "exclusive": True}, "masked": True, "initial": 1},
            ),
            ("segments", "add", {"call": skip, "segments": "offsets", "initial": 1}),
            ("pairs", AFFINE.operator(), {"call": skip, "draw": draws("float32", 2, nan=0.1)}),
        )
    ] + [
        of_family(family, f"skipna-{op}-{dtype}", op, draw=draws(dtype, nan=0.1), call=skip)
        for family in SHORT
        for op, dtype in pairs
    ]


def leading_values() -> list[Case]:
    """One more result than elements, at the borders of vectors, tiles and units, in both directions."""
    options = [
        ("", {}, {}),
        ("-reverse-initial", {"reverse": True}, {"initial": 3.0}),
        ("-exclusive-masked", {"exclusive": True}, {"initial": 3.0, "masked": True}),
    ]
    rows = (0, 1, 3, 4, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4 * 512, 33 * 512)
    steps = (0, 1, 7, 8, 9, 255, 256, 257, 511, 512, 513)
    lengths = [("elements", (3, n), -1) for n in rows] + [("steps", (n, 5), 0) for n in steps]
    return [
        Case(
            f"leading-{shape[axis]}-{what}{name}", "add", shape, axis, call={"include_initial": True, **call}, **fields
        )
        for what, shape, axis in lengths
        for name, call, fields in options
    ]


# ---- user operators ------------------------------------------------------------------------------


def user_operators() -> list[Case]:
    cases = []
    for example in EXAMPLES:
        op, draw, initial = example.operator(), drawn(example), initial_of(example)
        for i, family in enumerate(FAMILIES):
            cases.append(of_family(family, example.name, op, draw=draw))
            kind = ("reset", "offsets-empty", "keys")[i % 3]
            call = {"exclusive": i % 2 == 0, "reverse": i % 4 < 2, "include_initial": i % 3 == 0}
            fields = {"segments": kind, "initial": initial, "masked": True}
            cases.append(of_family(family, f"{example.name}-{kind}", op, draw=draw, call=call, **fields))
    for family in FAMILIES:
        for example, layout in ((AFFINE, "mixed"), (MATRIX_PRODUCT, "mixed"), (BRACKETS, "one-row")):
            draw = drawn(example, layout)
            cases.append(of_family(family, f"{example.name}-{layout}", example.operator(), draw=draw))
    return cases


def _sums(earlier: Array, later: Array) -> tuple[Array, ...]:
    return tuple(earlier[name] + later[name] for name in earlier.dtype.names)


def states_of_all_sizes() -> list[Case]:
    """Fields of 1 to 8 bytes, up to 16 fields, with padding in C++."""
    states = [
        *(["int8"], ["int8", "int8"], ["int16", "uint8"], ["int8", "int32"], ["uint16"], ["float64", "int8"]),
        *(["int8", "int64"], ["int8"] * 16, ["int32", "int16", "int8", "uint8"], ["float32"] * 3),
    ]
    cases = []
    for i, names in enumerate(states):
        state = {f"field{k}": name for k, name in enumerate(names)}
        combine = ", ".join(f"{name}(earlier.{f} + later.{f})" for f, name in state.items())
        op = cuscan.Operator("sums", f"State{{{combine}}}", (0,) * len(names), state=state, numpy=_sums)
        for j, family in enumerate((*SHORT, "panels", "tiles-older")):
            title = f"{'-'.join(names[:4])}-and-{len(names[4:])}{'-segments' * ((i + j) % 2)}"
            segments = ("", "reset")[(i + j) % 2]
            cases.append(of_family(family, title, op, draw=_every_field(names), segments=segments))
    narrow = cuscan.Operator("narrow", "earlier + later", 0, numpy=lambda earlier, later: earlier + later)
    cases += [of_family(f, f"narrow-{d}", narrow, draw=draws(d)) for f in SHORT for d in ("int8", "bfloat16", "uint16")]
    return cases


def _every_field(names: list[str]) -> Draw:
    return lambda rng, shape, axis: tuple(draws(name)(rng, shape, axis)[0] for name in names)


CASES = [*indices(), *missing_values(), *leading_values(), *user_operators(), *states_of_all_sizes()]


# ---- log-sum-exp ---------------------------------------------------------------------------------

DTYPES = ("float16", "bfloat16", "float32", "float64")
DEPTH = 64  # most combinations that an element goes through in these rows
LOG_SUMS = [
    of_family(family, f"{dtype}{'-options' * options}", "logaddexp", draw=draws(dtype), **fields)
    for family in FAMILIES
    for dtype in (DTYPES if family in SHORT else DTYPES[2:3])
    for options, fields in (
        (0, {}),
        (1, {"call": {"reverse": True, "exclusive": True}, "masked": True, "initial": 1.5}),
    )
]


@pytest.mark.parametrize(
    "case", covering(CASES, lambda case: facets_of(case, FAMILIES), lambda case: pairs_of(case, FAMILIES))
)
def test_feature(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", covering(LOG_SUMS, lambda case: [case.shape, case.masked]))
def test_log_sums(case: Case) -> None:
    """Within twice eps (|result| + 2.5 DEPTH), the bound of either side, and a rounding of the result."""
    simulation, (expected,) = case.prepare()
    result = simulation.run()
    limits = ml_dtypes.finfo(result.dtype)
    eps = float(np.finfo("float64" if result.dtype == np.float64 else "float32").eps)
    result, expected = result.astype("longdouble"), expected.astype("longdouble")
    bound = 2 * eps * (np.abs(expected) + 2.5 * DEPTH)
    bound += float(limits.eps) * np.abs(expected)
    assert ((np.abs(result - expected) <= bound) | (result == expected)).all()


TERMS = {
    "rising": lambda i: 0.37 * i - 300,
    "falling": lambda i: 200 - 0.29 * i,
    "near": lambda i: 63.9 * (i // 97) - 500,
    "far": lambda i: 64.1 * (i // 97) - 500,
    "late": lambda i: np.where(i < 900, np.sin(i), np.sin(i) + 63.5),
    "later": lambda i: np.where(i < 900, np.sin(i), np.sin(i) + 900),
    "holes": lambda i: np.where(i % 211 > 3, -np.inf, np.cos(i)),
    "late-infinity": lambda i: np.where(i == 1234, np.inf, np.cos(i)),
    "late-nan": lambda i: np.where(i == 1234, np.nan, np.cos(i)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("family", ["tiles-shared", "panels-shared"])
def test_log_sums_of_terms_far_apart(family: str, terms: str, dtype: str) -> None:
    """Within eps (|exact| + 2.5 min(n, DEPTH)) for the first n terms, whatever comes after them."""
    case = of_family(family, "", "logaddexp")
    value = np.moveaxis(np.empty(case.shape, dtype), case.axis, -1)
    value[...] = TERMS[terms](np.arange(value.shape[-1]))
    value[0] += 3
    value = np.ascontiguousarray(np.moveaxis(value, -1, case.axis))
    with small_units(*UNITS), np.errstate(invalid="ignore"):
        result = prepare(
            value, "logaddexp", axis=case.axis, target=Target(case.arch, case.sms, cluster=case.cluster)
        ).run()
        exact = np.logaddexp.accumulate(value.astype("longdouble"), case.axis)
    n = np.indices(case.shape)[case.axis] + 1
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(result[~finite].astype("f8"), exact[~finite].astype("f8"))
    bound = float(np.finfo(dtype).eps) * (np.abs(exact) + 2.5 * np.minimum(n, DEPTH))
    assert (np.abs(result[finite] - exact[finite]) <= bound[finite]).all()


@pytest.mark.parametrize("family", SHORT)
def test_infinite_log_sums(family: str) -> None:
    """Infinities and NaN are those of NumPy's own logaddexp."""
    case = of_family(family, "", "logaddexp")
    rng = np.random.default_rng(0)
    value = rng.choice([-np.inf, np.inf, np.nan, 1, -1e30], case.shape, p=[0.5, 0.001, 0.001, 0.3, 0.198])
    with small_units(*UNITS), np.errstate(invalid="ignore"):
        simulation = prepare(
            value, "logaddexp", axis=case.axis, target=Target(case.arch, case.sms, cluster=case.cluster)
        )
        expected = np.logaddexp.accumulate(value, case.axis)
    np.testing.assert_allclose(simulation.run(), expected, rtol=1e-12, atol=1e-12)
