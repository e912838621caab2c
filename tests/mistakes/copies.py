"""Mistakes in the kernel that copies flags into the order of the values."""

from __future__ import annotations

from copied_flags import ACROSS, check_copy
from simulator import DeviceCode

from mistakes import Kind, Mistake

HEADER = "kernels/flag_copies.cuh"


def mistake(name: str, kind: Kind, old: str, new: str) -> Mistake:
    return Mistake(name, kind, "copies", HEADER, old, new)


MISTAKES = (
    mistake("columns-close-together", Kind.PLACE, "if (count >= 4 && step == 1 &&", "if (count >= 4 &&"),
    mistake("flag-beyond-the-columns", Kind.BOUND, "if (i < count) flags |=", "flags |="),
    mistake("flags-close-together", Kind.PLACE, "(from + i * step)", "(from + i)"),
    mistake("rows-beyond-the-flags", Kind.BOUND, "columns > 0 && 4 * patch.along + j < rows", "columns > 0"),
    mistake("rows-behind-the-last", Kind.BOUND, "if (row + j + 1 < rows) at +=", "at +="),
    mistake(
        "words-beyond-the-flags", Kind.BOUND, "low - 3 >= lowest && top + 4 * wide + 4 <= end", "low - 3 >= lowest"
    ),
    mistake("patches-of-another-row", Kind.PLACE, "present - along * tile.wide", "present - along * (tile.wide - 1)"),
    mistake("a-tile-twice", Kind.PLACE, "block > 0 ? block - 1", "block > 1 ? block - 1"),
    mistake("columns-swapped", Kind.ORDER, "pick_bytes<0x7362>", "pick_bytes<0x6273>"),
    mistake("rows-swapped", Kind.ORDER, "pick_bytes<0x5410>(upper, lower)", "pick_bytes<0x5410>(lower, upper)"),
    mistake("a-column-of-another-block", Kind.PLACE, "number * wide + across", "number + across"),
    mistake("store-beyond-the-rows", Kind.BOUND, "of.along.size - along, 4 * high) + 3", "4 * high, 4 * high) + 3"),
    mistake("a-rows-last-flags-not-stored", Kind.LOST, "4 * high) + 3) / 4;", "4 * high)) / 4;"),
    mistake("column-not-stored", Kind.LOST, "c += kThreads / target::kWarp", "c += 2 * kThreads / target::kWarp"),
    mistake("stores-before-the-tile-is-there", Kind.WAIT, "    target::sync_block();\n", ""),
    mistake("reads-before-the-previous-kernel", Kind.WAIT, "    target::wait_for_previous_kernel();\n", ""),
    mistake("an-axis-lost", Kind.PLACE, "from += number * of.others[i].from", "from += of.others[i].from"),
    mistake("an-axis-of-the-copy-lost", Kind.PLACE, "to += number * of.others[i].to", "to += of.others[i].to"),
    mistake("tiles-along-first", Kind.ORDER, "across = next(of.tiles_across)", "across = next(of.tiles_along)"),
)


def check(code: DeviceCode) -> None:
    for case in ACROSS.values():
        check_copy(case, code)


CASES = {"copies": check}
