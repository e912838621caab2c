"""Cliffs: sizes on both sides of each threshold of the plan, found by planning sizes one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cuscan.bench.cases import Case
from cuscan.bench.kernel import plan_of
from cuscan.bench.measure import Record
from cuscan.planning.config import Target

STEPS = 16  # sizes of an octave
ELEMENTS = 1 << 25  # of arrays that keep their size
NEIGHBOURS = 1.15  # sizes within this factor of each other are on the two sides of one threshold

SWEEPS: dict[str, tuple[tuple[int, int], Callable[[int], dict[str, Any]]]] = {
    "one row of n": ((1 << 12, 1 << 28), lambda n: {"shape": (n,)}),
    "rows of n": ((2, ELEMENTS), lambda n: {"shape": (ELEMENTS // n, n)}),
    "16-bit rows of n": ((2, ELEMENTS), lambda n: {"shape": (2 * ELEMENTS // n, n), "dtype": "bfloat16"}),
    "64-bit rows of n": ((2, ELEMENTS), lambda n: {"shape": (ELEMENTS // n, n), "dtype": "int64"}),
    "masked rows of n": ((2, ELEMENTS), lambda n: {"shape": (ELEMENTS // n, n), "masked": True}),
    "8 rows of n": ((1 << 12, 1 << 24), lambda n: {"shape": (8, n)}),
    "n columns": ((2, ELEMENTS // 2), lambda n: {"shape": (ELEMENTS // n, n), "axis": 0}),
    "n columns, 16 bits": (
        (2, ELEMENTS // 2),
        lambda n: {"shape": (2 * ELEMENTS // n, n), "axis": 0, "dtype": "bfloat16"},
    ),
    "n + 1 columns": ((2, ELEMENTS // 2), lambda n: {"shape": (ELEMENTS // n, n + 1), "axis": 0}),
    "n + 8 columns, 16 bits": (
        (2, ELEMENTS // 2),
        lambda n: {"shape": (2 * ELEMENTS // n, n + 8), "axis": 0, "dtype": "bfloat16"},
    ),
    "n steps": ((2, 128), lambda n: {"shape": (n, ELEMENTS // n), "axis": 0}),
    "n steps, 16 bits": ((2, 128), lambda n: {"shape": (n, 2 * ELEMENTS // n), "axis": 0, "dtype": "bfloat16"}),
    "n steps of 256 columns": ((2, ELEMENTS >> 8), lambda n: {"shape": (ELEMENTS // n >> 8, n, 256), "axis": 1}),
    "264 heads of n": ((16, 512), lambda n: {"shape": (264, ELEMENTS // n >> 8, n), "axis": 1}),
    "recurrence, rows of n": ((2, ELEMENTS), lambda n: {"shape": (ELEMENTS // n, n), "op": "linear_recurrence"}),
    "recurrence, 264 heads of n, 16 bits": (
        (16, 512),
        lambda n: {"shape": (264, ELEMENTS // n >> 8, n), "axis": 1, "dtype": "bfloat16", "op": "linear_recurrence"},
    ),
}


def cliffs(target: Target) -> Iterator[Case]:
    """Cases for the sizes on both sides of each threshold; sizes without one are left out."""
    for name in SWEEPS:
        found = cases_of(name)
        yield from at_thresholds(found, [plan_of(case, target).config for case in found])


def cases_of(name: str) -> list[Case]:
    """Cases for all sizes of a sweep."""
    (least, most), fields = SWEEPS[name]
    return [Case(**fields(size), label=f"{name}/{size}", how="sample", peers=()) for size in swept(least, most)]


def swept(least: int, most: int) -> Iterator[int]:
    """Sizes of five significant bits, so that alignment changes as seldom as it can.

    Those of `n + 1` and `n + 8` columns have rows that are not aligned, and rows that begin on 16 bytes, not on lines.
    """
    size = least
    while size <= most:
        yield size
        size += max((1 << (size.bit_length() - 1)) // STEPS, 1)


def at_thresholds(found: Sequence[Case], kernels: Sequence[Any]) -> Iterable[Case]:
    """The cases whose kernel is another than that of the case before or behind."""
    changes = {i for i in range(1, len(found)) if kernels[i] != kernels[i - 1]}
    return [case for i, case in enumerate(found) if i in changes or i + 1 in changes]


class Jump(NamedTuple):
    """Two neighbours: the share of copy speed changes by so much from one to the other."""

    sweep: str
    below: Record
    above: Record

    @property
    def factor(self) -> float:
        """How many times the better share is the worse one."""
        shares = float(self.below["value"]), float(self.above["value"])
        return max(shares) / min(shares)


def jumps(records: Iterable[Record]) -> list[Jump]:
    """All neighbours of all sweeps, the largest jump first."""
    sweeps: dict[str, dict[int, Record]] = {}
    for record in records:
        name, _, size = record["label"].rpartition("/")
        sweeps.setdefault(name, {})[int(size)] = record
    found = []
    for name, by_size in sweeps.items():
        sizes = sorted(by_size)
        for below, above in itertools.pairwise(sizes):
            if above <= max(NEIGHBOURS * below, below + 1):
                found.append(Jump(name, by_size[below], by_size[above]))
    return sorted(found, key=lambda jump: -jump.factor)
