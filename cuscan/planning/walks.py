"""Walks along strips that blocks share: how many warps look back at once, and how far (batches.cuh)."""

from __future__ import annotations

from cuscan.order import COLUMNS, LANES, PAIRED_SECTION
from cuscan.planning.assemble import power_of_two

LOOK_BACK_WARPS = 8  # most look-back warps for the same columns
FEW_COLUMNS = 8  # most columns for so many look-back warps; more have half of them, with twice the looks
LOOKING_WARPS = 20  # most warps of a block in which all looks travel together; in larger blocks half of them do
SPAN_LOOKS = 4  # least looks of a lane that travel together, where there are totals of spans and a section has room
LIGHT_CARRY = 8  # most bytes of a carry for LOOK_BACK_WARPS; with wider ones warps lack registers


def warps_of_walk(columns: int, most: int, carry: int) -> int:
    """Return the number of look-back warps for the same columns: a power of two, at most `most`."""
    many = columns <= FEW_COLUMNS and carry <= LIGHT_CARRY
    most = max(min(most, LOOK_BACK_WARPS if many else LOOK_BACK_WARPS // 2), 1)
    return 1 << most.bit_length() - 1


def looks_of_walk(most: int, words: int, warps: int) -> int:
    """Return how many looks of a lane travel together, at totals of `words` words, in a block of `warps` warps."""
    if words > 2:
        return 2 if words <= 4 else 1
    return most if warps <= LOOKING_WARPS else most // 2


def batches_of_span(columns: int, look_back_warps: int, looks: int) -> int:
    """Return the batches of a span, where a scan warp has so many columns (BatchWalk in batches.cuh)."""
    return look_back_warps * power_of_two(LANES // columns, down=True) * looks


def looks_of_span(columns: int, look_back_warps: int, most: int, rows: int) -> int:
    """Return how many looks of a lane travel together if spans have totals, at batches of so many rows.

    A section has whole spans of spans. If one look already makes them too large, there are no spans, and this is 0.
    """
    looks, units = max(most, SPAN_LOOKS), max(rows // COLUMNS.unit, 1)
    while looks and batches_of_span(columns, look_back_warps, looks) ** 2 * units > PAIRED_SECTION:
        looks //= 2
    return looks
