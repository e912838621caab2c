"""Segments in the simulated kernels, compared bit for bit with NumPy in the same order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import simulator
from draws import Array, draws
from feature_cases import FAMILIES, SHORT, Case, of_family, twin
from selection import covering, each, facets_of, pairs_of
from simulator import assert_same, misaligned, prepare, small_units

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


def words() -> list[Case]:
    """Small integers, of which most vectors of a warp have no segment start, and some have."""
    pairs = [("add", "uint8"), ("max", "int8"), ("xor", "bool"), ("add", "int16"), ("min", "uint16")]
    options = {
        "": {"initial": 1},
        "-backwards": {"call": {"reverse": True, "exclusive": True}, "masked": True},
        "-carry": {"carry": "in"},
    }
    return [
        of_family(family, f"{op}-{dtype}-rare{name}", op, draw=draws(dtype), segments="reset-rare", seeds=1, **fields)
        for op, dtype in pairs
        for family in ("rows", "cluster", "tiles-shared")
        for name, option in options.items()
        for fields in ({**option, "call": {**option.get("call", {}), **({"dtype": dtype} if op == "add" else {})}},)
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
    *words(),
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


# ---- flags and keys of all lines -----------------------------------------------------------------

# Flags and keys along the axis, in each family. They become bits where there are several lines.
OF_LINES = [
    of_family(family, f"{form}-{name}", "add", segments=form, **rest)
    for family in FAMILIES
    for form in ("reset-thin", "keys", "keys-float16")
    for name, rest in {
        "plain": {},
        "reverse-exclusive-initial": {"call": {"reverse": True, "exclusive": True}, "initial": 2.5},
        "leading-masked": {"call": {"include_initial": True}, "masked": True},
    }.items()
]


@pytest.mark.parametrize("case", covering(OF_LINES, lambda case: facets_of(case, FAMILIES)))
def test_flags_and_keys_of_all_lines_are_bits(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuscan.planning.segment_starts.FEWEST", 0)
    simulation, _ = case.prepare()
    of_lines = sum(n > 1 for n in simulation.request.shape) > 1
    assert (simulation.plan.config.segments == "Bits") == of_lines
    if of_lines:
        case.check()


# ---- flags beside the values of a tile -----------------------------------------------------------

# Calls that strips and whole rows take with flags: a kernel family and a way to share the work.
BESIDE: dict[str, dict[str, Any]] = {
    "strips-pairs": {"shape": (4500, 2), "axis": 0},
    "strips-flat": {"shape": (2, 700, 12), "axis": 1},
    "strips-words": {"shape": (2, 1029, 5), "axis": 1},  # 4 bytes move at once: the second row begins anywhere
    "strips-wide": {"shape": (530, 160), "axis": 0, "sms": 8},
    "whole_rows-slabs": {"shape": (2, 601, 17), "axis": 1},
    "whole_rows-low": {"shape": (600, 300), "axis": 0},  # two tiles of 16 rows share a word of bits
    "whole_rows-words": {"shape": (1100, 68), "axis": 0},
}
LAYOUTS = {  # constants of the plans
    "strips-pairs": {"Flat": 1, "Aligned": 16, "Rows": 4096},
    "strips-flat": {"Flat": 1, "Aligned": 16},
    "strips-words": {"Flat": 1, "Aligned": 4},
    "strips-wide": {"Flat": 0, "Aligned": 16},
    "whole_rows-low": {"Rows": 16},
    "whole_rows-words": {"Columns": 17},
}


def odd_mask(family: str, gap: int = 0) -> Array:
    """A mask that begins 3 bytes beyond an aligned address; with a gap after each row of columns."""
    *rows, columns = BESIDE[family]["shape"]
    return misaligned(np.random.default_rng(5).random((*rows, columns + gap)) < 0.7, 3)[..., :columns]


def beside(family: str, name: str, op: str = "add", dtype: str = "float32", **fields: Any) -> Case:
    return Case(f"{family}-{name}", op, draw=draws(dtype), **{"units": None, "seeds": 1, **BESIDE[family], **fields})


def flags_in_tiles() -> list[Case]:
    """Masks and segments in shared memory: of each element, of each row, as bits; wherever they begin."""
    reverse, before = {"reverse": True}, {"exclusive": True}
    leading = {"include_initial": True}
    both: dict[str, Any] = {"masked": True, "segments": "reset"}
    return [
        beside("strips-pairs", "mask", masked=True),
        beside("strips-pairs", "thin-backwards", segments="reset-thin", initial=2.5, call={**reverse, **before}),
        beside("strips-pairs", "odd", call={"mask": odd_mask("strips-pairs")}, seeds=2),
        beside("strips-pairs", "bytes", "max", "uint8", segments="offsets-random", masked=True),
        beside("strips-flat", "both-backwards", "max", **both, call=reverse),
        beside("strips-flat", "offsets-backwards", segments="offsets", call={**reverse, **leading}, initial=1),
        beside("strips-flat", "carry", "max", segments="reset", carry="both"),
        beside("strips-flat", "odd-backwards", call={"mask": odd_mask("strips-flat"), **reverse}, seeds=2),
        beside("strips-words", "both-backwards", "max", **both, call=reverse),
        beside("strips-words", "thin", "max", segments="reset-thin", call=leading),
        beside("strips-wide", "both", **both, call=leading),
        beside("strips-wide", "odd", segments="reset-thin", call={"mask": odd_mask("strips-wide", 3)}, seeds=2),
        beside("strips-wide", "of-columns", call={"mask": np.arange(160) % 3 > 0}),
        beside("strips-wide", "offsets-backwards", segments="offsets", initial=2.5, call={**reverse, **before}),
        beside("whole_rows-slabs", "mask", "max", masked=True, initial=0.5, call=before),
        beside("whole_rows-slabs", "both-backwards", **both, call=reverse),
        beside("whole_rows-slabs", "thin-backwards", segments="reset-thin", call=reverse),
        beside("whole_rows-slabs", "carry", "max", segments="reset", carry="both"),
        beside("whole_rows-slabs", "odd", call={"mask": odd_mask("whole_rows-slabs")}, seeds=2),
        beside("whole_rows-low", "mask", masked=True),
        beside("whole_rows-low", "offsets-backwards", "max", segments="offsets", masked=True, call=reverse),
        beside("whole_rows-words", "mask", "max", "uint8", masked=True),
    ]


@pytest.mark.parametrize("case", flags_in_tiles(), ids=lambda case: case.name)
def test_flags_lie_beside_values(case: Case) -> None:
    family = next(name for name in BESIDE if case.name.startswith(f"{name}-"))
    config = case.prepare()[0].plan.config
    assert config.family == family.partition("-")[0]
    assert LAYOUTS.get(family, {}).items() <= dict(config.constants).items()
    assert dict(config.constants)["Back"] == (case.call.get("reverse", False) and family != "strips-wide")
    case.check()


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
