"""The defined order of a scan: which partial results are combined with which.

The bits of a floating-point result depend on the association of its sums. Here the association is a function of
the dtypes, the operator and the memory layout alone, never of the run, the GPU, the number of rows or the place
of a row among them. Along a contiguous axis:

1. `items` consecutive elements are combined one by one;
2. 32 such runs ("lanes") are combined by a warp scan with doubling distances (Kogge & Stone 1973);
3. `vectors` such warp scans are combined from left to right, then `warps` of those from left to right. The
   result is one *unit*;
4. in the type of carries, 32 units make a *group* and 32 groups a *section*: a Kogge-Stone scan over the units
   of a group, another over the groups of a section, and from left to right over sections. The carry into a
   unit is (sections before . groups before) . units before.

An element's result is ((carry . warps before) . (vectors before . lanes before)) . items up to it.
Absent parts are skipped, not replaced by an identity. The association of out[i] therefore depends on i, never on
later elements.

Along any other axis (a `paired` order) steps 2 to 4 are:

2. 32 runs make a unit. Their totals are combined in pairs, those of the pairs in pairs, and so on;
3. in the type of carries, 4096 units make a section, whose totals are combined in the same way; sections are
   combined from left to right.

The prefix of a unit is the sections before it and then, one by one, the blocks of 2048, 1024, ... 1 units that
the bits of its number within the section stand for. The prefix of a run is that . (the blocks of 16, 8, 4, 2 and
1 runs that the bits of its number within the unit stand for, one by one). One thread can walk down a column with
one running value per level, and many threads can reduce their parts in parallel.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

LANES = 32
GROUP = 32  # units
SECTION = GROUP * 32  # units
PAIRED_SECTION = 4096  # units, of a paired order


@dataclass(frozen=True)
class Order:
    """The numbers that define an order; see the module docstring."""

    items: int
    vectors: int
    warps: int
    paired: bool = False

    @functools.cached_property
    def vector(self) -> int:
        """Elements per warp scan."""
        return self.items * LANES

    @functools.cached_property
    def warp_tile(self) -> int:
        """Elements per warp."""
        return self.vector * self.vectors

    @functools.cached_property
    def unit(self) -> int:
        """Elements per unit."""
        return self.warp_tile * self.warps


# ---- the tables ----

TILE_BYTES = 32 * 1024  # bytes of a unit's values, at most; several values per element mean fewer vectors
TOTALS_BYTES = 96  # bytes of the totals of a thread's vectors, at most: more do not fit in its registers

# A contiguous axis, by the item size of the widest value or result: `items` of that size fill one load. Values that
# do not change along the axis take no memory and do not count, unless none of them changes.
CONTIGUOUS = {
    1: Order(items=16, vectors=8, warps=8),
    2: Order(items=8, vectors=8, warps=8),
    4: Order(items=4, vectors=8, warps=8),
    8: Order(items=2, vectors=8, warps=8),
    16: Order(items=1, vectors=4, warps=8),
}

# 1-byte values with 8-byte results: a tile of 4,096 elements moves in less time than its look-back takes (0.79 of copy
# speed; 10, 12, 14, 16 vectors: 0.89, 0.94, 0.89, 0.85).
BYTES_TO_WORDS = Order(items=2, vectors=12, warps=8)

# Any other axis: one order for all types.
COLUMNS = Order(items=8, vectors=1, warps=1, paired=True)

SECTOR = 32  # bytes per memory transaction; lines are few if one element of each takes less
