"""A measured time, and how many samples to take."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SAMPLES = 21
SAMPLE_SECONDS = 1e-3  # a sample is at least this long, where launches are short
MAX_LAUNCHES = 256  # in one sample: fewer than the driver queues without blocking
SLOW_SECONDS = 1.0  # a run that takes longer is sampled once
BUDGET_SECONDS = 1.5  # for all samples of one run; never fewer than three are taken


@dataclass(frozen=True)
class Timing:
    """Microseconds of one run, once for every sample; a sample is the mean of `launches` runs."""

    samples: tuple[float, ...]
    launches: int

    @property
    def median(self) -> float:
        """The median sample."""
        return statistics.median(self.samples)

    def as_json(self) -> dict[str, float]:
        """The fields of the JSON files."""
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


def sample(first: float, once: Callable[[int], float], warm: Callable[[], Any]) -> Timing:
    """Sample a run whose first call took `first` seconds.

    `once(launches)` gives the seconds of one run, as a mean over launches.
    """
    if first > SLOW_SECONDS:
        return Timing((once(1) * 1e6,), 1)
    warm()
    estimate = once(1)
    if estimate < SAMPLE_SECONDS / 10:  # then a part of it may be the host's
        estimate = max(once(16), 1e-7)
    launches = min(max(round(SAMPLE_SECONDS / estimate), 1), MAX_LAUNCHES)
    count = min(max(int(BUDGET_SECONDS / (estimate * launches)), 3), SAMPLES)
    return Timing(tuple(once(launches) * 1e6 for _ in range(count)), launches)
