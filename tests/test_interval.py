"""Scans of intervals (interval.py): every output names the elements that are in it, so none can hide in a sum."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import simulator
from interval import INTERVAL, Example
from simulator import prepare, small_units

import cuscan

needs_compiler = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

# Shapes and axes by kernel family; units of contiguous axes are 256 elements here, of columns 256 steps.
FAMILIES = {
    "rows": ((40, 60), -1),
    "tile-a-row": ((5, 250), -1),
    "tiles": ((3, 1300), -1),
    "tiles-in-groups": ((2, 70 * 256 + 3), -1),
    "columns": ((4, 50, 9), 1),
    "columns-chained": ((2, 700, 9), 1),
    "columns-in-groups": ((35 * 256 + 9, 4), 0),
}
OPTIONS = list(itertools.product((False, True), repeat=4))


def name_of(options: tuple[bool, ...]) -> str:
    names = ("reverse", "exclusive", "masked", "initial")
    return "-".join(name for name, on in zip(names, options, strict=True) if on) or "plain"


def example(family: str, options: tuple[bool, ...]) -> tuple[Example, dict[str, Any]]:
    """The array, and the keywords of the call."""
    (shape, axis), (reverse, exclusive, masked, initial) = FAMILIES[family], options
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


@needs_compiler
@pytest.mark.parametrize("options", OPTIONS, ids=name_of)
@pytest.mark.parametrize("family", FAMILIES)
def test_simulated(family: str, options: tuple[bool, ...]) -> None:
    scan, call = example(family, options)
    with small_units(2, 2):
        simulation = prepare(scan.value, INTERVAL, **call)
    for seed in range(6):
        np.testing.assert_array_equal(simulation.run(seed), scan.scanned(exclusive=options[1]))
