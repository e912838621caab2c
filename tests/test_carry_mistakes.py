"""The mistakes of carry_mistakes.py are noticed. By default some of them, each in another file or mechanism."""

from __future__ import annotations

from dataclasses import replace

import pytest
import simulator
from carry_mistakes import CASES, MISTAKES
from simulator import CODE, SimulationError
from test_broken_features import Mistake

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)
SOME = {"elements-not-counted", "totals-without-look-back", "of-the-first-unit-of-a-tile"}


def selected() -> list[object]:
    return [pytest.param(m, id=m.name, marks=[] if m.name in SOME else pytest.mark.full) for m in MISTAKES]


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_good_code_passes(name: str) -> None:
    CASES[name].check()


@pytest.mark.parametrize("mistake", selected())
def test_mistake_is_noticed(mistake: Mistake) -> None:
    code = CODE.broken(mistake.header, mistake.old, mistake.new)
    with pytest.raises(AssertionError) as caught:
        replace(CASES[mistake.case], seeds=6).check(code)
    assert isinstance(caught.value, SimulationError) or "differ, the first is" in str(caught.value)


def test_every_mistake_has_its_place() -> None:
    for mistake in MISTAKES:
        assert simulator.HEADERS[mistake.header].count(mistake.old) == 1, mistake.name
