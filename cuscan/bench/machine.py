"""The place where a benchmark runs: one GPU through CuPy, or the CPU through NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cuscan.bench.layouts import touched_bytes
from cuscan.bench.timing import BUDGET_SECONDS, Timing, by_the_clock, in_turn
from cuscan.planning.config import Target

Array = Any
Run = Callable[[], Any]

HOST_WORK_BYTES = 1 << 20  # that the CPU copies as other work


class Yardstick(NamedTuple):
    """A copy, and the factor by which its time is scaled."""

    run: Run
    factor: float = 1.0


class Machine(Protocol):
    """What a benchmark needs of the machine that it runs on."""

    @property
    def target(self) -> Target | None:
        """The GPU that plans are made for; None on the CPU."""

    @property
    def xp(self) -> Any:
        """The array library: cupy or numpy."""

    def uniform(self, count: int, seed: int) -> Array:
        """Return `count` float32 numbers from [0, 1), the same in every run."""

    def time(self, runs: Sequence[Run], budget: float = BUDGET_SECONDS) -> Timing:
        """Time one run, back to back; `runs` do the same on different buffers, and take turns."""

    def after_work(self, runs: Sequence[Run], budget: float = BUDGET_SECONDS) -> list[Timing]:
        """Time different runs in turn, each once and right after other work, as in users' programs.

        On a GPU the work is a copy of 128 MiB between other buffers with ordinary caching, so no cache holds what a run
        reads.
        """

    def replay(self, run: Run, *, by_torch: bool = False) -> Timing:
        """Time one run without the host's share: capture many runs in a graph, and replay the graph.

        All runs use the same buffers, so small ones stay in the cache. `by_torch`: the run queues on torch's stream.
        """

    def yardstick(self, nbytes: int) -> Yardstick:
        """Return a copy that reads and writes `nbytes` in total, between buffers of its own."""

    def read(self, arrays: Sequence[Array]) -> Yardstick:
        """Return a run that reads dense arrays and writes nothing."""

    def gather(self, view: Array, nbytes: int) -> Yardstick:
        """Return a copy of a view with gaps to dense memory, scaled to `nbytes` at the speed of this layout."""

    def copy(self, nbytes: int, *, replayed: bool = False) -> Timing:
        """Time the copy of `yardstick`, back to back or in a replayed graph."""

    def turns(self, nbytes: int) -> int:
        """Return the number of buffers that must rotate so that no cache holds what the next run reads."""

    def synchronize(self) -> None:
        """Wait for all work."""

    def release(self) -> None:
        """Release unused memory."""

    def free_bytes(self) -> int:
        """Return the bytes of memory that a benchmark may use."""


class Host:
    """The CPU."""

    target = None
    xp = np

    def uniform(self, count: int, seed: int) -> Array:
        return np.random.default_rng(seed).random(count, np.float32)

    def time(self, runs: Sequence[Run], budget: float = BUDGET_SECONDS) -> Timing:
        return by_the_clock(runs, lambda result: None, budget)

    def replay(self, run: Run, *, by_torch: bool = False) -> Timing:
        return self.time([run])

    def after_work(self, runs: Sequence[Run], budget: float = BUDGET_SECONDS) -> list[Timing]:
        work = self.yardstick(2 * HOST_WORK_BYTES).run

        def once(run: Run) -> float:
            work()
            start = time.perf_counter()
            run()
            return time.perf_counter() - start

        return in_turn(runs, once, budget)

    def yardstick(self, nbytes: int) -> Yardstick:
        source, target = np.ones(max(nbytes // 2, 1), np.uint8), np.zeros(max(nbytes // 2, 1), np.uint8)
        return Yardstick(lambda: np.copyto(target, source))

    def read(self, arrays: Sequence[Array]) -> Yardstick:
        bits = [array.reshape(-1).view(np.uint8) for array in arrays]
        return Yardstick(lambda: [np.bitwise_or.reduce(each) for each in bits])

    def gather(self, view: Array, nbytes: int) -> Yardstick:
        target = np.empty_like(view)
        return Yardstick(lambda: np.copyto(target, view), nbytes / (touched_bytes(view) + view.nbytes))

    def copy(self, nbytes: int, *, replayed: bool = False) -> Timing:
        return self.time([self.yardstick(nbytes).run])

    def turns(self, nbytes: int) -> int:
        return 1

    def synchronize(self) -> None:
        pass

    def release(self) -> None:
        pass

    def free_bytes(self) -> int:
        return 1 << 30
