"""The size of the suite: these tests fail if tests, simulated kernels, spill checks or mistakes go missing.

Raise the numbers freely; state the reason if you lower one. The numbers of simulated kernels, scans of intervals and
spill checks were up to twice as high when `pytest --full` ran all products: now it runs any two features of a call
together.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from selection import COLLECTED, covering, each, pairs

# Beginnings of test names, and how many tests there must be by default, and with `--full`.
LEAST = {
    "tests/test_": (7370, 10150),
    "tests/test_simulated": (430, 1950),
    "tests/test_interval.py::test_simulated": (60, 310),
    "tests/test_nvrtc": (125, 650),
    "tests/test_mistakes.py::test_mistake_is_noticed": (45, 320),
    "tests/test_jax": (205, 280),
    "tests/test_gpu_jax": (260, 260),
    "tests/test_distributed": (80, 235),
    "tests/test_gpu_ways": (150, 190),
}


@pytest.mark.parametrize("prefix", LEAST)
def test_nothing_is_dropped(prefix: str, request: pytest.FixtureRequest) -> None:
    collected = request.config.stash[COLLECTED]
    files = {Path(name.partition("::")[0]).name for name in collected}
    if files != {path.name for path in Path(__file__).parent.glob("test_*.py")}:
        pytest.skip("some test modules are not part of this run")
    chosen = [full for name, full in collected.items() if name.startswith(prefix)]
    default, everything = LEAST[prefix]
    assert chosen.count(False) >= default
    assert len(chosen) >= everything


def test_covering_keeps_every_facet_with_few_cases() -> None:
    cases = list(itertools.product(range(4), repeat=3))
    chosen = covering(cases, each, pairs)
    default = [parameter.values for parameter in chosen if not parameter.marks]
    assert {facet for case in default for facet in each(*case)} == {facet for case in cases for facet in each(*case)}
    kept = {facet for parameter in chosen for facet in pairs(*parameter.values)}
    assert kept == {facet for case in cases for facet in pairs(*case)}
    assert len(default) <= 6 and len(chosen) < len(cases) // 2
    assert len(covering(cases, each)) == len(cases)
