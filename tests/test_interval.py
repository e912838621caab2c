"""Scans of intervals (interval.py): every output names the elements that it contains, so no mistake hides in a sum."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pytest
import simulator
from chains import AHEAD, CHAINS_ALONE, look_back
from feature_cases import segments_of
from interval import CARRY, FAMILIES, INTERVAL, Example, target_of
from selection import covering, each, of_flags, pairs
from simulator import Simulation, prepare, small_units
from textbook import restarts

import cuscan
from cuscan.planning.config import Target

needs_compiler = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

OPTIONS = list(itertools.product((False, True), repeat=4))


def name_of(options: tuple[bool, ...]) -> str:
    names = ("reverse", "exclusive", "masked", "initial")
    return "-".join(name for name, on in zip(names, options, strict=True) if on) or "plain"


def id_of_parameter(value: object) -> str | None:
    return name_of(value) if isinstance(value, tuple) else None


def example(family: str, options: tuple[bool, ...]) -> tuple[Example, dict[str, Any]]:
    """The array, and the keywords of the call."""
    (shape, axis, _), (reverse, exclusive, masked, initial) = FAMILIES[family], options
    mask = np.random.default_rng(1).random(shape) < 0.8 if masked else None
    scan = Example(shape, axis, reverse=reverse, mask=mask, initial=initial)
    call = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "mask": mask, "initial": scan.initial}
    return scan, call


@pytest.mark.parametrize("options", OPTIONS, ids=name_of)
@pytest.mark.parametrize("family", FAMILIES)
def test_host(family: str, options: tuple[bool, ...]) -> None:
    scan, call = example(family, options)
    result = cuscan.scan(scan.value, INTERVAL, **call)
    np.testing.assert_array_equal(result, scan.scanned(exclusive=options[1]))


def option_facets(family: str, options: tuple[bool, ...]) -> Iterable[Hashable]:
    return of_flags(family, dict(enumerate(options)))


def option_pairs(family: str, options: tuple[bool, ...]) -> Iterable[Hashable]:
    """All pairs of options of each family."""
    return ((family, *two) for two in itertools.combinations(enumerate(options), 2))


def planned(family: str, options: tuple[bool, ...]) -> Simulation:
    scan, call = example(family, options)
    with small_units(2, 2):
        return prepare(scan.value, INTERVAL, target=target_of(family), **call)


@needs_compiler
@pytest.mark.parametrize(
    "family, options", covering(itertools.product(FAMILIES, OPTIONS), option_facets, option_pairs), ids=id_of_parameter
)
def test_simulated(family: str, options: tuple[bool, ...]) -> None:
    scan, _ = example(family, options)
    simulation = planned(family, options)
    for seed in range(4):
        np.testing.assert_array_equal(simulation.run(seed), scan.scanned(exclusive=options[1]))


UNMASKED = [options for options in OPTIONS if not options[2]]


@needs_compiler
@pytest.mark.parametrize("units, options", covering(itertools.product([2, 3, 4], UNMASKED), each), ids=id_of_parameter)
def test_clusters_take_rows_in_turn(units: int, options: tuple[bool, ...]) -> None:
    """Without a mask, since tiles take masked 8-byte integers."""
    reverse, exclusive, _, initial = options
    scan = Example((9, units * 256 - 6), reverse=reverse, initial=initial)
    call = {"reverse": reverse, "exclusive": exclusive, "initial": scan.initial}
    with small_units(2, 2):
        simulation = prepare(scan.value, INTERVAL, target=Target(90, 1), **call)
    config = simulation.plan.config
    assert (config.family, config.cluster, simulation.plan.grid) == ("cluster", units, 9 * units)
    assert simulation.plan.grid > config.blocks_per_sm
    for seed in range(6):
        np.testing.assert_array_equal(simulation.run(seed), scan.scanned(exclusive=exclusive))


# ---- segments ------------------------------------------------------------------------------------

SEGMENTS = ("reset", "keys-full", "offsets-empty")
SEGMENT_OPTIONS = [
    {},
    {"reverse", "exclusive", "initial"},
    {"exclusive", "masked"},
    {"reverse", "initial", "masked"},
    {"include_initial", "reverse"},
    {"include_initial", "exclusive", "initial", "masked"},
    {"carry"},
    {"carry", "reverse", "masked"},
]
LONG = ("tiles-shared-groups", "tiles-alone", "tiles-alone-shifted", "panels-shared-groups", "panels-kept")


def segmented(family: str, kind: str, options: set[str]) -> tuple[Example, Any, dict[str, Any]]:
    """The array, the operator and the keywords. "carry": each row has an incoming carry, for its first segment only."""
    shape, axis, _ = FAMILIES[family]
    rng = np.random.default_rng(len(family) + len(options))
    segments = segments_of(kind, rng, shape, axis)
    mask = rng.random(shape) < 0.8 if "masked" in options else None
    reverse, carry = "reverse" in options, "carry" in options
    begins = restarts(shape, axis, reverse, **segments)
    initial = "rows" if carry else "initial" in options
    scan = Example(shape, axis, reverse=reverse, mask=mask, initial=initial, begins=begins, carry=carry)
    call = {"axis": axis, "mask": mask, "initial": scan.initial, **segments}
    call |= {name: True for name in options & {"reverse", "exclusive", "include_initial"}}
    return scan, CARRY if carry else INTERVAL, call


def known(scan: Example, options: set[str]) -> tuple[np.ndarray[Any, Any], ...]:
    result = scan.scanned(exclusive="exclusive" in options, include_initial="include_initial" in options)
    return (result, scan.last()) if "carry" in options else (result,)


@pytest.mark.parametrize(
    "family, kind", covering(itertools.product([family for family in FAMILIES if family not in LONG], SEGMENTS), each)
)
def test_segments_on_the_host(family: str, kind: str) -> None:
    names = ("reverse", "exclusive", "masked", "initial", "include_initial")
    for chosen in itertools.product((False, True), repeat=len(names)):
        options = {name for name, on in zip(names, chosen, strict=True) if on}
        scan, op, call = segmented(family, kind, options)
        np.testing.assert_array_equal(cuscan.scan(scan.value, op, **call), known(scan, options)[0])


def planned_segments(family: str, kind: str, options: set[str]) -> Simulation:
    scan, op, call = segmented(family, kind, options)
    with small_units(2, 2):
        return prepare(scan.value, op, target=target_of(family), return_last="carry" in options, **call)


def segment_cases() -> list[tuple[str, str, set[str]]]:
    """All options for the short shapes; for the long ones, each kind of segments gets other options."""
    return [
        (family, kind, set(options))
        for f, family in enumerate(FAMILIES)
        for k, kind in enumerate(SEGMENTS)
        for o, options in enumerate(SEGMENT_OPTIONS)
        if family not in LONG or (o + f) % 3 == k
    ]


def segment_facets(family: str, kind: str, options: set[str]) -> Iterable[Hashable]:
    yield from (family, kind)
    yield from ((family in LONG, option) for option in options)
    yield from itertools.combinations(sorted(options), 2)


def segment_pairs(family: str, kind: str, options: set[str]) -> Iterable[Hashable]:
    return pairs(family, kind, frozenset(options))


@needs_compiler
@pytest.mark.parametrize(
    "family, kind, options", covering(segment_cases(), segment_facets, segment_pairs), ids=id_of_parameter
)
def test_simulated_segments(family: str, kind: str, options: set[str]) -> None:
    scan, _, _ = segmented(family, kind, options)
    simulation = planned_segments(family, kind, options)
    for seed in range(3):
        for result, expected in zip(simulation.run_all(seed), known(scan, options), strict=True):
            np.testing.assert_array_equal(result, expected)


# ---- chains alone -------------------------------------------------------------------------------


UNITS = [31, 32, 33, 127, 128, 129, 160, 255, 256, 257, 1023, 1024, 1025, 1300, 5000]


@needs_compiler
@pytest.mark.parametrize("kind, units, initial", covering(itertools.product(AHEAD, UNITS, (False, True)), each))
def test_look_back(kind: str, units: int, initial: bool) -> None:
    simulation, expected = look_back(kind, 1, units, initial)
    for seed in range(10 if units < 5000 else 2):
        np.testing.assert_array_equal(simulation.run(seed, code=CHAINS_ALONE), expected)


CHAINS = [(40, 2), (9, 33), (7, 129), (5, 257), (5, 1023), (3, 1025), (3, 2100)]


@needs_compiler
@pytest.mark.parametrize(
    "kind, chains",
    [
        *covering(itertools.product(AHEAD, CHAINS[:3]), each),
        *(pytest.param(*long, marks=pytest.mark.full) for long in itertools.product(AHEAD, CHAINS[3:])),
    ],
)
def test_look_back_along_one_chain_after_the_other(kind: str, chains: tuple[int, int]) -> None:
    rows, units = chains
    for initial in (False, True):
        simulation, expected = look_back(kind, rows, units, initial)
        for seed in range(5 if units < 2000 else 2):
            np.testing.assert_array_equal(simulation.run(seed, code=CHAINS_ALONE, launches=2), expected)


@needs_compiler
@pytest.mark.full
@pytest.mark.parametrize("kind", AHEAD)
def test_look_back_over_many_sections(kind: str) -> None:
    simulation, expected = look_back(kind, 1, 40_000, True)
    np.testing.assert_array_equal(simulation.run(code=CHAINS_ALONE, resident=24, stall_odds=500), expected)


@needs_compiler
@pytest.mark.parametrize("kind", AHEAD)
def test_look_back_far_behind(kind: str) -> None:
    """If a single block takes all units, each walk is one step. With many blocks, walks are long."""
    simulation, expected = look_back(kind, 2, 1500, False)
    for resident in (1, 64):
        schedule = {"resident": resident, "stall_odds": 20, "stall_turns": 30_000}
        np.testing.assert_array_equal(simulation.run(code=CHAINS_ALONE, **schedule), expected)
