"""An operator that tracks the origin of its operands: intervals of positions, which combine only if they meet.

An element is [begin, end), with begin in the low 32 bits. The scan of [0, 1), [1, 2), ... is [0, 1), [0, 2), ... An
element that is lost, used twice or out of order invalidates every result that it enters. In sums of numbers such
mistakes can cancel; in intervals they never do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cuscan.dtypes import Kind
from cuscan.operators import Monoid
from cuscan.planning.config import Target

Array = np.ndarray[Any, Any]

IDENTITY = 2**64 - 1
POISON = 2**64 - 2

_SOURCE = """
namespace cuscan {
template <class T>
struct Interval : Scalar<T> {
    static constexpr T kIdentity = ~T(0), kPoison = ~T(0) - 1;

    static CUSCAN_DEVICE T combine(T earlier, T later) {
        if (earlier == kPoison || later == kPoison) return kPoison;
        if (earlier == kIdentity) return later;
        if (later == kIdentity) return earlier;
        if (earlier >> 32 != (later & 0xffffffffu)) return kPoison;
        return (later >> 32 << 32) | (earlier & 0xffffffffu);
    }
    template <class Result>
    static CUSCAN_DEVICE T identity() { return kIdentity; }
};
}  // namespace cuscan
"""


def intervals(begin: Any, end: Any) -> Array:
    """Intervals [begin, end) of elements, from two arrays that broadcast."""
    return np.asarray(begin, np.uint64) | np.asarray(end, np.uint64) << np.uint64(32)


def _combine(earlier: Array, later: Array) -> Array:
    low = np.uint64(2**32 - 1)
    meet = earlier >> np.uint64(32) == later & low
    joined = np.where(meet, intervals(earlier & low, later >> np.uint64(32)), np.uint64(POISON))
    joined = np.where(later == IDENTITY, earlier, np.where(earlier == IDENTITY, later, joined))
    return np.where((earlier == POISON) | (later == POISON), np.uint64(POISON), joined)


INTERVAL = Monoid(
    name="interval",
    functor="Interval<{T}>",
    kinds=frozenset({Kind.UNSIGNED}),
    promotes=False,
    wide_carry=False,
    combine=_combine,
    identity=lambda _: (IDENTITY,),
    source=_SOURCE,
)


# The same operator at half the size: positions have 16 bits, and there are less than 2**16 - 2.
SHORT_IDENTITY = 2**32 - 1
SHORT = replace(
    INTERVAL,
    name="short_interval",
    functor="ShortInterval<{T}>",
    identity=lambda _: (SHORT_IDENTITY,),
    source=_SOURCE.replace("Interval :", "ShortInterval :").replace("32", "16").replace("0xffffffffu", "0xffffu"),
)


# The same, but segments do not start from the initial value, which precedes the row as a carry does.
CARRY = replace(INTERVAL, segments_have_initial=False)


class Example:
    """An array of intervals with a known scan: unmasked elements of each segment, numbered in scan order from a base.

    Each segment has a base of its own, so that no segment can pass for another or continue it. Segments that start from
    an `initial` value share a base ("rows": each row has its own). `begins` marks where segments begin in scan order.
    With `carry`, only the elements before the first such mark start from the initial value. Masked elements contain
    poison, which the scan must not combine.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        axis: int = -1,
        *,
        reverse: bool = False,
        mask: Array | None = None,
        initial: bool | str = False,
        begins: Array | None = None,
        carry: bool = False,
    ) -> None:
        self._axis, self._reverse = axis, reverse
        kept = np.ones(shape, np.uint64) if mask is None else mask.astype(np.uint64)
        kept = self._in_scan_order(kept)
        new = np.zeros(kept.shape, bool) if begins is None else self._in_scan_order(begins)
        after = np.cumsum(kept, -1)
        position = np.arange(kept.shape[-1], dtype=np.uint64)
        begun = np.maximum.accumulate(np.where(new, position, 0), -1).astype(np.uint64)
        within = after - np.maximum.accumulate(np.where(new, after - kept, 0), -1).astype(np.uint64)

        rows = np.arange(kept[..., 0].size, dtype=np.uint64).reshape(kept.shape[:-1]) * np.uint64(
            2 * kept.shape[-1] + 1
        )
        first = (0 * rows if initial is True else rows) + np.uint64(7)
        starts_from_initial = np.full(kept.shape, bool(initial))
        if carry:
            starts_from_initial &= ~np.logical_or.accumulate(new, -1)
        self._base = first[..., None] + np.where(starts_from_initial, np.uint64(0), np.uint64(2) * begun)
        self._start = np.where(starts_from_initial, np.uint64(0), self._base)
        self._before, self._after = self._base + within - kept, self._base + within
        self._lead = intervals(0, first) if initial else np.full(first.shape, IDENTITY, np.uint64)
        self.initial = {False: None, True: int(intervals(0, 7)), "rows": self._lead}[initial]
        value = np.where(kept != 0, intervals(self._before, self._after), np.uint64(POISON))
        self.value = np.ascontiguousarray(self._as_given(value))

    def scanned(self, *, exclusive: bool = False, include_initial: bool = False) -> Array:
        """The expected scan of `value`."""
        before, after = self._known(self._before), self._known(self._after)
        if include_initial:
            parts = (before, after[..., -1:]) if exclusive else (self._lead[..., None], after)
            return self._as_given(np.concatenate(parts, -1))
        return self._as_given(before if exclusive else after)

    def last(self) -> Array:
        """The last state of each row."""
        return self._known(self._after)[..., -1]

    def _known(self, end: Array) -> Array:
        return np.where(end == self._start, np.uint64(IDENTITY), intervals(self._start, end))

    def _in_scan_order(self, array: Array) -> Array:
        moved = np.moveaxis(array, self._axis, -1)
        return moved[..., ::-1] if self._reverse else moved

    def _as_given(self, scanned: Array) -> Array:
        return np.moveaxis(scanned[..., ::-1] if self._reverse else scanned, -1, self._axis)


class ShortExample:
    """Rows of short intervals: [base, base + 1), [base + 1, base + 2), ...; each row has a base of its own."""

    def __init__(self, shape: tuple[int, int], *, initial: bool = False) -> None:
        rows, length = shape
        base = 7 + (0 if initial else 500) * np.arange(rows)[:, None]
        assert base.max() + length < 2**16 - 2
        self._end = base + np.arange(1, length + 1)
        self._start = np.zeros_like(base) if initial else base
        self.initial = 7 << 16 if initial else None
        self.value = self._intervals(self._end - 1, self._end)

    def scanned(self, *, exclusive: bool = False) -> Array:
        """The expected scan of `value`."""
        end = self._end - exclusive
        known = self._intervals(self._start, end)
        return np.where(end == self._start, np.uint32(SHORT_IDENTITY), known)

    @staticmethod
    def _intervals(begin: Array, end: Array) -> Array:
        return (begin | end << 16).astype(np.uint32)


# Shape, axis and SMs by kernel family, for units of 256 elements, or 256 steps of columns. In some, rows are aligned,
# so that tiles are copied in bulk. "own": enough strips for each block to have its own; "alone": one block takes all
# tiles.
FAMILIES = {
    "rows": ((40, 60), -1, 4),
    "thread-rows": ((150, 27), -1, 4),
    "staged-rows": ((40, 123), -1, 4),
    "cluster-of-one": ((5, 250), -1, 4),
    "cluster": ((3, 1300), -1, 4),
    "cluster-shifted": ((2, 1701), -1, 4),
    "cluster-pairs": ((1, 31 * 256 + 3), -1, 32),
    "tile-a-row": ((5, 250), -1, 4),
    "tiles-shared": ((3, 1300), -1, 4),
    "tiles-of-a-group": ((1, 31 * 256 + 3), -1, 16),
    "tiles-shifted": ((7, 1301), -1, 4),
    "tiles-shared-groups": ((2, 70 * 256 + 3), -1, 4),
    "tiles-alone": ((18, 35 * 256 + 2), -1, 1),
    "tiles-alone-shifted": ((9, 35 * 256 + 1), -1, 1),
    "panels": ((4, 50, 9), 1, 4),
    "panels-shared": ((2, 700, 9), 1, 4),
    "panels-shared-groups": ((3, 35 * 256 + 9, 5), 1, 4),
    "panels-kept": ((9, 35 * 256 + 9, 5), 1, 1),
    "strips": ((2, 5 * 256 + 10, 8), 1, 4),
    "strips-groups": ((69 * 256 + 10, 2), 0, 4),
    "strips-own": ((2, 5 * 256 + 10, 96), 1, 1),
}


def target_of(family: str) -> Target:
    """The GPU for a family. Only families of clusters have clusters, which would otherwise replace tiles."""
    return Target(90, FAMILIES[family][2], cluster=16 if family.startswith("cluster") else 0)
