"""What a peer is: a function that takes a case and its buffers, and returns a function that queues one run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.machine import Run

Provider = Callable[[Case, Buffers], Run]


class UnsupportedError(Exception):
    """The peer has no such scan."""


class Waiting:
    """A run in a stream of its library's own: it is timed by the clock, and `wait` waits for its result."""

    def __init__(self, run: Run, wait: Callable[[Any], Any]) -> None:
        self.run = run
        self.wait = wait

    def __call__(self) -> Any:
        """Queue it."""
        return self.run()


def need_one_row(case: Case, peer: str) -> None:
    """Refuse what is not a plain scan of one dense row."""
    if math.prod(case.shape) != case.shape[case.axis] or case.view != "dense":
        raise UnsupportedError(f"{peer} scans one dense row")
    if case.masked or case.reverse or case.exclusive:
        raise UnsupportedError(f"{peer} is measured on plain scans alone")
