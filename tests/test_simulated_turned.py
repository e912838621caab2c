"""Strips of arrays of which some lie across the columns and others along the axis (strip_tile.cuh)."""

from __future__ import annotations

import pytest
import simulator
from carry_cases import MAX
from feature_cases import twin
from simulator import assert_same
from turned_cases import ACROSS, ALONG, CASES, OWN, Case

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


@pytest.mark.parametrize("case", CASES + OWN, ids=lambda case: case.name)
def test_arrays_that_lie_along_the_axis(case: Case) -> None:
    config = case.prepare().plan.config
    constants = dict(config.constants)
    assert (config.family, config.grid) == ("strips", case not in OWN)
    assert (constants["Flat"], constants["AlignedAlong"]) == case.expected
    case.check()


@pytest.mark.parametrize(
    "case",
    [
        Case("two-tiles-of-strips-for-all-blocks", "float32", (1, 256, 1536), ACROSS, (0, 1)),
        Case("many-short-batches", "float32", (40, 517, 64), ALONG, (0, 1)),
        Case("few-columns-with-gaps", "float32", (2, 1037, 13), ACROSS, (0, 1), gap=(3, 2), shift=(4, 12)),
    ],
    ids=lambda case: case.name,
)
def test_panels_take_the_others(case: Case) -> None:
    assert case.prepare().plan.config.family == "panels"


def test_results_of_which_one_lies_along_the_axis_and_one_across_it() -> None:
    """Panels: a store warp has either whole columns or whole rows."""
    case = Case("mixed", "float32", (1, 1101, 64), ACROSS, (0, 1), op=MAX)
    values, positions = case.placed("float32", 1, 1101), case.placed("int64", 0, 1101)
    simulation = case.prepare(outs=(values, positions))
    assert simulation.plan.config.family == "panels"
    for result, wanted in zip(simulation.run_all(1), twin(simulation, None), strict=True):
        assert_same(result, wanted)
