"""Mistakes in the kernel that copies flags into the order of the values."""

from __future__ import annotations

from copied_flags import ACROSS, check_copy
from simulator import DeviceCode

from mistakes import Kind, Mistake

HEADER = "kernels/flag_copies.cuh"


def mistake(name: str, kind: Kind, old: str, new: str) -> Mistake:
    return Mistake(name, kind, "copies", HEADER, old, new)


MISTAKES = (
    mistake("columns-close-together", Kind.PLACE, "if (count >= 4 && step == 1)", "if (count >= 4)"),
    mistake("flag-beyond-the-columns", Kind.BOUND, "if (i < count) flags |=", "flags |="),
    mistake("flags-close-together", Kind.PLACE, "(from + i * step)", "(from + i)"),
    mistake("rows-beyond-the-flags", Kind.BOUND, " && row + j < of.along.size", ""),
    mistake("not-transposed", Kind.ORDER, "rows[i][j] >> 8 * c & 255", "rows[i][c] >> 8 * j & 255"),
    mistake("a-column-of-another-block", Kind.PLACE, "number % 4 * wide + number / 4", "number / 4 * wide"),
    mistake("store-beyond-the-rows", Kind.BOUND, "if (at >= 0 && at + 4 <= count)", "if (at >= 0)"),
    mistake("store-before-the-rows", Kind.BOUND, "if (at >= 0 && at + 4 <= count)", "if (at + 4 <= count)"),
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
