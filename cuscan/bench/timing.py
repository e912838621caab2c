"""A measured time, and the number of samples to take."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SAMPLES = 21
SAMPLE_SECONDS = 1e-3  # least length of a sample, for short launches
MAX_LAUNCHES = 256  # per sample: fewer than the driver queues without blocking
SLOW_SECONDS = 1.0  # a longer run is sampled once
BUDGET_SECONDS = 1.5  # for all samples of one run
FEW_SECONDS = 0.2  # longer runs may have a single sample; shorter ones have at least three

# The ways of measuring, as named in records.
AFTER_WORK, BACK_TO_BACK, REPLAYED = "after other work", "back to back", "replayed"


@dataclass(frozen=True)
class Timing:
    """Microseconds of one run, for every sample; a sample is the mean of `launches` runs."""

    samples: tuple[float, ...]
    launches: int

    @property
    def median(self) -> float:
        """The median sample."""
        return statistics.median(self.samples)

    def divided(self, parts: int) -> Timing:
        """Return the time of one of `parts` equal parts of the run."""
        return Timing(tuple(each / parts for each in self.samples), self.launches * parts)

    def scaled(self, factor: float) -> Timing:
        """Return the time of a run that does `factor` times as much."""
        return Timing(tuple(each * factor for each in self.samples), self.launches)

    def as_json(self) -> dict[str, float]:
        """Return the fields of the JSON files."""
        p25, _, p75 = statistics.quantiles(self.samples, n=4) if len(self.samples) > 1 else self.samples * 3
        return {
            "median_us": round(self.median, 3),
            "min_us": round(min(self.samples), 3),
            "p25_us": round(p25, 3),
            "p75_us": round(p75, 3),
            "max_us": round(max(self.samples), 3),
            "samples": len(self.samples),
            "launches": self.launches,
        }


def sample(
    first: float, once: Callable[[int], float], warm: Callable[[], Any], budget: float = BUDGET_SECONDS
) -> Timing:
    """Sample a run whose first call took `first` seconds, for about `budget` seconds.

    `once(launches)` returns the seconds of one run, as a mean over launches.
    """
    if first > SLOW_SECONDS:
        return Timing((once(1) * 1e6,), 1)
    warm()
    estimate = once(1)
    if estimate < SAMPLE_SECONDS / 10:  # part of it may be host time
        estimate = max(once(16), 1e-7)
    launches = min(max(round(SAMPLE_SECONDS / estimate), 1), MAX_LAUNCHES)
    least = 1 if estimate > FEW_SECONDS else 3
    count = min(max(int(budget / (estimate * launches)), least), SAMPLES)
    return Timing(tuple(once(launches) * 1e6 for _ in range(count)), launches)


def in_turn(
    runs: Sequence[Callable[[], Any]], once: Callable[[Callable[[], Any]], float], budget: float = BUDGET_SECONDS
) -> list[Timing]:
    """Sample different runs in turn, for about `budget` seconds in all; `once(run)` returns the seconds of one run."""
    firsts = [once(run) for run in runs]
    if sum(firsts) <= SLOW_SECONDS:
        estimate = max(sum(once(run) for run in runs), 1e-7)
        least = 1 if estimate > FEW_SECONDS else 3
        rounds = [[once(run) for run in runs] for _ in range(min(max(int(budget / estimate), least), SAMPLES))]
    else:
        rounds = [firsts]
    return [Timing(tuple(seconds * 1e6 for seconds in samples), 1) for samples in zip(*rounds, strict=True)]


def by_the_clock(
    runs: Sequence[Callable[[], Any]], wait: Callable[[Any], Any], budget: float = BUDGET_SECONDS
) -> Timing:
    """Time one run by the host's clock: from the first of many calls until `wait` returns for the last result."""
    turn = itertools.cycle(runs)

    def once(launches: int) -> float:
        start = time.perf_counter()
        result = None
        for _ in range(launches):
            result = next(turn)()
        wait(result)
        return (time.perf_counter() - start) / launches

    return sample(once(1), once, lambda: wait(next(turn)()), budget)
