"""A peer is a function that takes a case and its buffers, and returns a function that queues one run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.layouts import DENSE
from cuscan.bench.machine import Run

Provider = Callable[[Case, Buffers], Run]


class UnsupportedError(Exception):
    """The peer has no such scan."""


class Waiting:
    """A run on a stream of its library's own: it is timed by the clock, and `wait` waits for its result."""

    def __init__(self, run: Run, wait: Callable[[Any], Any]) -> None:
        self.run = run
        self.wait = wait

    def __call__(self) -> Any:
        """Queue the run."""
        return self.run()


def refuse_beyond(case: Case, peer: str, *able: str) -> None:
    """Raise for any feature beyond a plain scan of a dense array, except those in `able`, which may include "view"."""
    beyond = [name for name in case.features if name not in able]
    if beyond:
        raise UnsupportedError(f"{peer} is not measured on {' and '.join(beyond)}")
    if case.view != DENSE and "view" not in able:
        raise UnsupportedError(f"{peer} is measured on dense arrays")


def need_one_row(case: Case, peer: str) -> None:
    """Raise unless the case is one dense row."""
    if math.prod(case.shape) != case.shape[case.axis] or case.view != DENSE:
        raise UnsupportedError(f"{peer} scans one dense row")
