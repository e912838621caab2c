"""Walks along strips that blocks share: how many take turns, how many warps look back, and how far (batches.cuh)."""

from __future__ import annotations

from cuscan.order import LANES, PAIRED_SECTION
from cuscan.planning.assemble import power_of_two
from cuscan.planning.hardware import WORD_BYTES

LOOK_BACK_WARPS = 8  # most look-back warps for the same columns
FEW_COLUMNS = 8  # most columns for so many look-back warps; more have half of them, with twice the looks
LOOKING_WARPS = 20  # most warps of a block in which all looks travel together; in larger blocks half of them do
SPAN_LOOKS = 4  # least looks of a lane that travel together, where nodes have totals and a section has room for them
SPARE_BATCHES = 2  # least batches that load, or leave, while each walk has one
LIGHT_CARRY = 8  # most bytes of a carry for LOOK_BACK_WARPS; with wider ones warps lack registers


def look_back_warps_of(columns: int, most: int, carry: int) -> int:
    """Return the number of look-back warps for the same columns, of all walks: a power of two, at most `most`."""
    many = columns <= FEW_COLUMNS and carry <= LIGHT_CARRY
    most = max(min(most, LOOK_BACK_WARPS if many else LOOK_BACK_WARPS // 2), 1)
    return 1 << most.bit_length() - 1


def walks_of(stages: int, taken: int, most: int) -> int:
    """Return how many walks take turns in a block with so many stages, at most `most`: a power of two.

    Each has the stages of a batch, of `taken` tiles, and SPARE_BATCHES more batches fit beside these.
    """
    walks = 1
    while 2 * walks <= most and (2 * walks + SPARE_BATCHES) * taken <= stages:
        walks *= 2
    return walks


def looks_of_walk(columns: int, look_back_warps: int, most: int, carry: int, warps: int, units: int) -> int:
    """Return how many looks of a lane travel together, where a scan warp has so many columns.

    `carry`: bytes of a carry. `warps`: of the block. `units`: of a batch. Where nodes have totals, these are
    SPAN_LOOKS or more, or as many as a section has room for.
    """
    if carry > 2 * WORD_BYTES:
        most = 2 if carry <= 4 * WORD_BYTES else 1
    elif warps > LOOKING_WARPS:
        most //= 2
    looks = max(most, SPAN_LOOKS)
    while looks and not has_nodes(span_of_walk(columns, look_back_warps, looks), units):
        looks //= 2
    return looks or most


def span_of_walk(columns: int, look_back_warps: int, looks: int) -> int:
    """Return how many totals a walk looks at together, where a scan warp has so many columns."""
    return look_back_warps * power_of_two(LANES // columns, down=True) * looks


def has_nodes(span: int, units: int) -> bool:
    """Return whether nodes of `span` batches, of so many units, have totals: a section has `span` of them, or more."""
    return span * span * units <= PAIRED_SECTION


def totals_of_walk(batches: int, span: int, units: int) -> tuple[int, ...]:
    """Return how many totals of a strip are published at each level: of batches, of nodes, and of sections at last.

    `span`: totals that a walk looks at together. `units`: of a batch.
    """
    numbers, section = [batches], PAIRED_SECTION // units if has_nodes(span, units) else 1
    while section > 1:
        children = min(span, section)
        numbers.append(numbers[-1] // children)
        section //= children
    return tuple(numbers)
