"""An operator that knows where its operands come from: intervals of positions, which combine only where they meet.

An element is [begin, end), begin in the low 32 bits. The scan of [0, 1), [1, 2), ... is [0, 1), [0, 2), ...; an element
that is lost, taken twice or out of order poisons every result that it enters. Addition forgives all of this to a
test whose numbers happen to cancel; intervals never do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cuscan.dtypes import Kind
from cuscan.operators import Monoid

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
    """The elements [begin, end), of two arrays that broadcast."""
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


class Example:
    """An array of intervals whose scan is known: the kept elements of each row, numbered in scan order from a base on.

    Rows have bases of their own, so that no row can pass for another; with an `initial` value they share one. Masked
    elements hold poison, which must not be touched.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        axis: int = -1,
        *,
        reverse: bool = False,
        mask: Array | None = None,
        initial: bool = False,
    ) -> None:
        kept = np.ones(shape, np.uint64) if mask is None else mask.astype(np.uint64)
        inclusive = np.flip(np.cumsum(np.flip(kept, axis), axis), axis) if reverse else np.cumsum(kept, axis)
        rows = np.delete(shape, axis)
        base = np.arange(int(np.prod(rows)), dtype=np.uint64) * np.uint64(not initial) * np.uint64(
            shape[axis]
        ) + np.uint64(7)
        self._base = np.expand_dims(base.reshape(rows), axis)
        self._before, self._after = self._base + inclusive - kept, self._base + inclusive
        self._start = np.uint64(0) if initial else self._base
        self.initial = int(intervals(0, 7)) if initial else None
        self.value = np.where(kept != 0, intervals(self._before, self._after), np.uint64(POISON))

    def scanned(self, *, exclusive: bool = False) -> Array:
        """What the scan of `value` must be."""
        end = self._before if exclusive else self._after
        return np.where(end == self._start, np.uint64(IDENTITY), intervals(self._start, end))
