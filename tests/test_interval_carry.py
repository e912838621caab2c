"""Carries of intervals (interval.py): an incoming carry meets the first element; an outgoing one names all elements."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import simulator
from feature_cases import segments_of
from interval import FAMILIES, INTERVAL, Example, target_of
from selection import covering, each, pairs
from simulator import Simulation, prepare, small_units
from textbook import restarts

import cuscan

needs_compiler = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

NARROW = ("strips", "strips-groups", "strips-own")  # panels take calls with arrays beside the values
KINDS = ("", "reset", "keys-full", "offsets-empty")
FLAGS: list[set[str]] = [set(), {"reverse", "exclusive"}, {"masked"}, {"include_initial", "reverse"}, {"total"}]


def called(family: str, kind: str, flags: set[str]) -> tuple[Example, dict[str, Any]]:
    """The array and the keywords of a call with one carry per row."""
    shape, axis, _ = FAMILIES[family]
    rng = np.random.default_rng(len(family) + len(flags))
    segments = segments_of(kind, rng, shape, axis)
    mask = rng.random(shape) < 0.8 if "masked" in flags else None
    reverse = "reverse" in flags
    begins = restarts(shape, axis, reverse, **segments) if kind else None
    if begins is not None and "offsets" in segments:  # a first segment without elements absorbs the carry
        end, offsets = shape[axis] * reverse, segments["offsets"]
        begins = begins.copy()
        np.moveaxis(begins, axis, 0)[-1 if reverse else 0] |= np.count_nonzero(offsets == end) > 1
    scan = Example(shape, axis, reverse=reverse, mask=mask, initial="rows", begins=begins, carry=True)
    carry = (scan.initial,)
    if kind.startswith("keys"):  # no segment starts at the first element
        first = np.take(np.broadcast_to(segments["keys"], shape), shape[axis] - 1 if reverse else 0, axis)
        carry += (first.copy(),)
    call = {"axis": axis, "mask": mask, "carry": carry, "reverse": reverse, **segments}
    return scan, call | {name: True for name in flags & {"exclusive", "include_initial"}}


def known(scan: Example, flags: set[str]) -> list[np.ndarray[Any, Any]]:
    if "total" in flags:
        return [scan.last()]
    return [scan.scanned(exclusive="exclusive" in flags, include_initial="include_initial" in flags), scan.last()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["rows", "tiles-shared-groups", "panels-shared-groups", "strips"])
def test_host(family: str, kind: str) -> None:
    for flags in FLAGS:
        scan, call = called(family, kind, flags)
        if "total" in flags:
            results = (cuscan.total(scan.value, INTERVAL, **call),)
        else:
            results = cuscan.scan(scan.value, INTERVAL, return_carry=True, **call)
        carry = results[-1]
        given = [*results[:-1], carry[0] if isinstance(carry, tuple) else carry]
        for result, expected in zip(given, known(scan, flags), strict=True):
            np.testing.assert_array_equal(result, expected)


def planned(family: str, kind: str, flags: set[str]) -> Simulation:
    scan, call = called(family, kind, flags)
    with small_units(2, 2):
        return prepare(
            scan.value, INTERVAL, target=target_of(family), return_carry=True, only_carry="total" in flags, **call
        )


def cases() -> Iterable[tuple[str, str, int]]:
    for family, kind, number in itertools.product(FAMILIES, KINDS, range(len(FLAGS))):
        if family not in NARROW or not (kind or "masked" in FLAGS[number]):
            yield family, kind, number


@needs_compiler
@pytest.mark.parametrize(
    "family, kind, number", covering(cases(), lambda family, *others: each(family.split("-")[0], *others), pairs)
)
def test_simulated(family: str, kind: str, number: int) -> None:
    flags = FLAGS[number]
    scan, _ = called(family, kind, flags)
    simulation = planned(family, kind, flags)
    for seed in range(3):
        results = simulation.run_all(seed)
        for result, expected in zip(results, known(scan, flags), strict=False):  # the last keys come after the results
            np.testing.assert_array_equal(result, expected)
