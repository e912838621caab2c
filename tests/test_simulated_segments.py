"""Segments in the simulated kernels, compared bit for bit with NumPy in the same order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import simulator
from draws import draws
from feature_cases import FAMILIES, SHORT, Case, of_family, twin
from selection import covering, each, facets_of, pairs_of
from simulator import assert_same, prepare, small_units

from cuscan.operators import INDEXED
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

KINDS = ("reset", "keys", "offsets")


def every_kind_and_option() -> list[Case]:
    """All pairs of options, with every kind of segments."""
    options = {
        "plain": {},
        "reverse-exclusive-initial": {"call": {"reverse": True, "exclusive": True}, "initial": 2.5},
        "exclusive-masked": {"call": {"exclusive": True}, "masked": True},
        "reverse-initial-masked": {"call": {"reverse": True}, "initial": 2.5, "masked": True},
        "leading-reverse": {"call": {"include_initial": True, "reverse": True}},
        "leading-initial": {"call": {"include_initial": True}, "initial": 2.5},
        "leading-exclusive-initial-masked": {
            "call": {"include_initial": True, "exclusive": True},
            "initial": 2.5,
            "masked": True,
        },
    }
    return [
        of_family(family, f"{kind}-{name}", "add", segments=kind, **option)
        for family in FAMILIES
        for kind in KINDS
        for name, option in options.items()
    ]


def every_form() -> list[Case]:
    """All arrays that give segments: arrays that broadcast, of all dtypes; offsets of all kinds."""
    forms = [
        *("reset-thin", "reset-all", "reset-none", "keys-full"),
        *("offsets-empty", "offsets-one", "offsets-each", "offsets-random", "offsets-strided", "offsets-backwards"),
        "offsets-int32-empty",
    ]
    keys = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64")
    return [
        of_family(family, f"{form}{'-reverse' * reverse}", "add", segments=form, call={"reverse": reverse})
        for family in FAMILIES
        for form in forms
        for reverse in (False, True)
    ] + [
        of_family(family, f"keys-{dtype}", "add", segments=f"keys-{dtype}", call={"reverse": dtype == "int64"})
        for family in SHORT
        for dtype in keys
    ]


def every_operator() -> list[Case]:
    """States of many sizes beside the mark of a segment, also in chains."""
    pairs = [
        *(("mul", "float64"), ("min", "int8"), ("max", "bfloat16"), ("xor", "int64"), ("or", "bool")),
        *(("add", "complex64"), ("mul", "complex128"), ("add", "float16"), ("add", "uint8")),
        *((INDEXED["max", "first"], "float32"), (INDEXED["min", "last"], "float64"), (INDEXED["max", "last"], "int8")),
    ]
    return [
        of_family(
            family,
            f"{op}-{dtype}-{kind}".replace(" ", "-"),
            op,
            draw=draws(dtype),
            segments=kind,
            initial=1,
            call={"exclusive": kind == "keys", "reverse": kind == "offsets"},
        )
        for i, (op, dtype) in enumerate(pairs)
        for j, family in enumerate(SHORT)
        for kind in (KINDS[(i + j) % 3],)
    ]


def long_chains() -> list[Case]:
    """Groups and sections of units, with one segment over most of them."""
    return [
        Case("chain-of-groups-offsets", "add", (70 * 512 + 3,), segments="offsets-empty"),
        Case("chain-of-groups-reset", "add", (70 * 512 + 4,), segments="reset-none", call={"reverse": True}),
        Case("chain-of-groups-keys", "add", (70 * 512 + 4,), segments="keys", initial=1.5, call={"exclusive": True}),
        Case("many-chains-of-groups", "add", (18, 35 * 512), sms=1, segments="offsets-random", call={"reverse": True}),
        Case("chain-of-column-groups", "add", (35 * 256 + 9, 4), 0, segments="offsets-empty", call={"reverse": True}),
        Case("own-chains-of-column-groups", "add", (8, 35 * 256 + 9, 4), 1, sms=1, segments="keys-full"),
        Case("wide-columns", "add", (600, 70), 0, segments="offsets-random"),
    ]


def real_tuning() -> list[Case]:
    """The bits of a thread take one 32-bit word or, for small dtypes, four."""
    return [
        Case(f"real-{kind}-{dtype}", "max", (2, 2 * n + 5), draw=draws(dtype), segments=kind, units=None, masked=True)
        for dtype, n in (("float32", 8192), ("int8", 32768))
        for kind in (*KINDS, "offsets-each")
    ]


def shared_memory() -> list[Case]:
    """Keys of a tile that exceed the memory of an SM; tiles that are fewer on an SM than its groups of warps."""
    few = {"units": None, "shared_bytes": 96 * 1024, "sms": 2}
    fewer = {**few, "shared_bytes": 60 * 1024}
    return [
        Case("keys-in-memory", "max", (2, 40_000), draw=draws("float16"), segments="keys-int64", units=None),
        Case("keys-in-memory-masked", "max", (2, 40_000), draw=draws("int8"), segments="keys", masked=True, units=None),
        Case("few-stages", "max", (2, 4 * 32768 + 5), draw=draws("int8"), segments="offsets", **few),
        Case("few-stages-of-one", "max", (70, 1500), draw=draws("float64"), segments="reset", **fewer),
    ]


CASES = [
    *every_kind_and_option(),
    *every_form(),
    *every_operator(),
    *long_chains(),
    *real_tuning(),
    *shared_memory(),
]


@pytest.mark.parametrize(
    "case", covering(CASES, lambda case: facets_of(case, FAMILIES), lambda case: pairs_of(case, FAMILIES))
)
def test_segments(case: Case) -> None:
    case.check()


def test_shared_memory_is_scarce() -> None:
    for case in shared_memory():
        config = case.prepare()[0].plan.config
        constants = dict(config.constants)
        assert config.values[0].staged and not config.segment_operand.staged and not config.mask.staged
        assert (constants["Stages"] < constants["Groups"]) == case.name.startswith("few-stages"), case.name


# ---- invalid offsets -----------------------------------------------------------------------------


def strange_offsets(n: int) -> list[np.ndarray]:
    """Arrays of int64 that a CPU scan would reject: in disorder, far outside, of one element."""
    rng = np.random.default_rng(n)
    ends = np.iinfo(np.int64)
    far = np.array([ends.min, ends.min + 1, -1, 0, n, n + 1, 2**40, ends.max - 1, ends.max])
    return [
        rng.integers(-n, 2 * n, 500),
        rng.integers(ends.min, ends.max, 500, endpoint=True),
        np.concatenate([far, rng.integers(0, n, 300), far]),
        np.arange(n, -1, -1),
        np.tile([5, n - 5], 200),
        np.array([n // 2]),
        np.array([ends.max]),
        np.array([ends.min]),
        np.repeat(np.array([ends.max, 3, ends.min]), 100),
    ]


@pytest.mark.parametrize("family, reverse", covering(itertools.product(FAMILIES, (False, True)), each))
def test_any_offsets_are_safe(family: str, reverse: bool) -> None:
    """Sorted offsets inside the axis are boundaries; in disorder, no search is endless or leaves the array."""
    case = of_family(family, "", "add")
    value = np.random.default_rng(0).standard_normal(case.shape).astype(np.float32)
    call = {"axis": case.axis, "reverse": reverse, "target": Target(case.arch, case.sms, cluster=case.cluster)}
    for offsets in strange_offsets(case.shape[case.axis]):
        for given in (np.sort(offsets), offsets):
            with small_units(2, 2):
                simulation = prepare(value, offsets=given, **call)
                expected = twin(simulation, None)[0]
            result = simulation.run()
            if given is not offsets:
                assert_same(result, expected)
