"""The suite notices planted mistakes in device code: one per kind, header and case by default, all with `--full`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest
import simulator
from chains import CHAINS_ALONE
from mistakes import (
    Kind,
    Mistake,
    carries,
    copies,
    features,
    flags,
    gaps,
    kernels,
    panels,
    pieces,
    starts,
    strips,
    words,
)
from selection import covering
from simulator import SimulationError

from cuscan.compile.source import headers

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

TABLES = (kernels, panels, pieces, features, carries, copies, flags, gaps, starts, strips, words)
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


def noticed(mistake: Mistake) -> bool:
    """Return whether the case of a mistake fails as it should."""
    code = CHAINS_ALONE.broken(mistake.header, mistake.old, mistake.new)
    try:
        CASES[mistake.case](code)
    except AssertionError as error:
        return isinstance(error, SimulationError) or "not equal" in str(error) or "differ" in str(error)
    return False


class Apart:
    """A process of its own for broken code, which may write anywhere: a new one if it has died."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.process = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def notices(self, mistake: Mistake) -> bool:
        """Return whether a mistake is noticed; it is, if it ends a new process, too."""
        for _ in range(2):
            try:
                return self.process.submit(noticed, mistake).result()
            except BrokenProcessPool:
                self.process.shutdown()
                self._start()
        return True


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    made = Apart()
    yield made
    made.process.shutdown()


@pytest.mark.parametrize("mistake", covering(MISTAKES, facets))
def test_mistake_is_noticed(mistake: Mistake, apart: Apart) -> None:
    assert apart.notices(mistake)


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
