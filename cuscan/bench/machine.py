"""Where a benchmark runs: one GPU through CuPy, or the CPU through NumPy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from cuscan.bench.timing import Timing, sample
from cuscan.plan import Target

Array = Any
Run = Callable[[], Any]


class Machine(Protocol):
    """What a benchmark asks of the place where it runs."""

    @property
    def target(self) -> Target | None:
        """The GPU that plans are made for; None on the CPU."""

    @property
    def xp(self) -> Any:
        """The array library: cupy or numpy."""

    def uniform(self, count: int, seed: int) -> Array:
        """`count` float32 numbers from [0, 1), the same in every run."""

    def time(self, runs: Sequence[Run]) -> Timing:
        """Time one run; `runs` do the same on different buffers, and take turns."""

    def copy(self, nbytes: int) -> Timing:
        """Time a copy that reads and writes `nbytes` in all: the yardstick."""

    def turns(self, nbytes: int) -> int:
        """How many buffers must take turns, so that no cache holds what the next run reads."""

    def synchronize(self) -> None:
        """Wait for all work."""

    def release(self) -> None:
        """Give unused memory back."""

    def free_bytes(self) -> int:
        """Memory that a benchmark may use."""


class Host:
    """The CPU."""

    target = None
    xp = np

    def uniform(self, count: int, seed: int) -> Array:
        return np.random.default_rng(seed).random(count, np.float32)

    def time(self, runs: Sequence[Run]) -> Timing:
        turn = itertools.cycle(runs)

        def once(launches: int) -> float:
            start = time.perf_counter()
            for _ in range(launches):
                next(turn)()
            return (time.perf_counter() - start) / launches

        return sample(once(1), once, next(turn))

    def copy(self, nbytes: int) -> Timing:
        source, target = np.ones(max(nbytes // 2, 1), np.uint8), np.zeros(max(nbytes // 2, 1), np.uint8)
        return self.time([lambda: np.copyto(target, source)])

    def turns(self, nbytes: int) -> int:
        return 1

    def synchronize(self) -> None:
        pass

    def release(self) -> None:
        pass

    def free_bytes(self) -> int:
        return 1 << 30


def find_machine() -> Machine:
    """The current GPU where CuPy finds one, else the CPU."""
    try:
        import cupy

        found = bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # a missing package, driver or device: each says so in its own way
        found = False
    if not found:
        return Host()
    from cuscan.bench.gpu import Gpu

    return Gpu()
