"""The suite notices planted mistakes in device code: one per kind, header and case by default, all with `--full`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import pytest
import simulator
from chains import CHAINS_ALONE
from mistakes import Kind, Mistake, carries, copies, features, flags, kernels, panels, pieces, starts, strips, words
from selection import covering
from simulator import SimulationError

from cuscan.compile.source import headers

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

TABLES = (kernels, panels, pieces, features, carries, copies, flags, starts, strips, words)
CASES = {name: check for table in TABLES for name, check in table.CASES.items()}
MISTAKES = [mistake for table in TABLES for mistake in table.MISTAKES]


def facets(mistake: Mistake) -> Iterable[Hashable]:
    """Kinds and headers, and the cases of kernels.py, which are ways for blocks to share the work."""
    yield from (mistake.kind, mistake.header)
    if mistake.case in kernels.CASES:
        yield mistake.case


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_good_code_passes(name: str) -> None:
    CASES[name](CHAINS_ALONE)


@pytest.mark.parametrize("mistake", covering(MISTAKES, facets))
def test_mistake_is_noticed(mistake: Mistake) -> None:
    code = CHAINS_ALONE.broken(mistake.header, mistake.old, mistake.new)
    with pytest.raises(AssertionError) as caught:
        CASES[mistake.case](code)
    assert (
        isinstance(caught.value, SimulationError) or "not equal" in str(caught.value) or "differ" in str(caught.value)
    )


def test_every_mistake_has_one_place() -> None:
    for mistake in MISTAKES:
        CHAINS_ALONE.broken(mistake.header, mistake.old, mistake.new)


def test_every_header_and_kind_has_mistakes() -> None:
    """Except target.cuh, which the simulator replaces."""
    assert {mistake.header for mistake in MISTAKES} == headers().keys() - {"target.cuh"}
    assert {mistake.kind for mistake in MISTAKES} == set(Kind)


def test_names_are_unique() -> None:
    assert len(CASES) == sum(len(table.CASES) for table in TABLES)
    assert len({(mistake.case, mistake.name) for mistake in MISTAKES}) == len(MISTAKES)
