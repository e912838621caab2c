"""Mistakes in masks and segment starts that lie beside the values of a tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from draws import draws
from feature_cases import Case
from simulator import misaligned

from mistakes import Kind, Mistake


def odd(*shape: int) -> np.ndarray:
    """A mask that begins 3 bytes beyond an aligned address."""
    return misaligned(np.random.default_rng(5).random(shape) < 0.7, 3)


CALLS = (
    Case("flags-odd", "add", (4500, 2), 0, call={"mask": odd(4500, 2)}, units=None),
    Case("flags-odd-backwards", "max", (4500, 2), 0, call={"mask": odd(4500, 2), "reverse": True}, units=None),
    Case("flags-wide", "max", (530, 160), 0, sms=8, call={"mask": odd(530, 163)[:, :160]}, units=None),
    Case("flags-in-bulk", "max", (4500, 2), 0, masked=True, units=None),
    Case("flags-of-bytes", "max", (1100, 64), 0, draw=draws("uint8"), masked=True, segments="reset", units=None),
    Case("flags-words", "max", (1100, 64), 0, draw=draws("uint8"), masked=True, units=None),
    Case("flags-thin-backwards", "add", (2, 601, 17), 1, segments="reset-thin", units=None, call={"reverse": True}),
    Case("flags-bits", "add", (600, 300), 0, masked=True, segments="offsets-random", units=None),
    Case("flags-bits-of-pairs", "max", (600, 320), 0, draw=draws("int16"), segments="offsets-random", units=None),
    Case("flags-bits-of-units", "max", (4500, 2), 0, segments="offsets-random", units=None),
)

FLAGS, TILE = "staged_flags.cuh", "strip_tile.cuh"
MISTAKES = (
    Mistake(
        "flags-of-the-row-before",
        Kind.PLACE,
        "flags-wide",
        FLAGS,
        "apart().place(row, 0)",
        "apart().place(row ^ 1, 0)",
    ),
    Mistake(
        "each-row-as-far-from-a-piece-as-the-first",
        Kind.PLACE,
        "flags-wide",
        FLAGS,
        "return apart().pitch();",
        "return Apart::kLeast;",
    ),
    Mistake(
        "flags-as-if-they-were-aligned",
        Kind.PLACE,
        "flags-odd",
        FLAGS,
        "return beyond(lowest) + int(begin - lowest);",
        "return int(begin - lowest);",
    ),
    Mistake(
        "bits-of-the-word-not-of-the-tile",
        Kind.PLACE,
        "flags-bits",
        FLAGS,
        "const int at = row + skipped;",
        "const int at = row;",
    ),
    Mistake(
        "bits-of-the-first-word-alone",
        Kind.LOST,
        "flags-bits-of-units",
        FLAGS,
        "beyond(first) + at / 32 * kWord)",
        "beyond(first))",
    ),
    Mistake(
        "rows-in-the-order-of-memory",
        Kind.ORDER,
        "flags-odd-backwards",
        FLAGS,
        "descends() ? kRows - 1 - row : row",
        "row",
    ),
    Mistake(
        "flags-of-rows-that-only-elements-reverse",
        Kind.ORDER,
        "flags-thin-backwards",
        FLAGS,
        "kEach ? kBack : along < 0",
        "kEach && kBack",
    ),
    Mistake(
        "a-word-beyond-the-array",
        Kind.BOUND,
        "flags-odd",
        FLAGS,
        "from >= lowest && from + kWord <= end",
        "from >= lowest && from < end",
    ),
    Mistake(
        "a-word-before-the-array",
        Kind.BOUND,
        "flags-odd",
        FLAGS,
        "if (from >= lowest && from + kWord <= end) {",
        "if (from + kWord <= end) {",
    ),
    Mistake(
        "a-piece-beyond-the-array",
        Kind.BOUND,
        "flags-odd",
        FLAGS,
        "rows > 0 && from >= lowest && to <= end",
        "rows > 0 && from >= lowest",
    ),
    Mistake(
        "a-last-piece-that-is-left-out",
        Kind.BOUND,
        "flags-odd",
        FLAGS,
        "* const to = stretch.end + (kPiece - beyond(stretch.end)) % kPiece;",
        "* const to = stretch.end - beyond(stretch.end);",
    ),
    Mistake(
        "flags-of-one-row",
        Kind.PLACE,
        "flags-wide",
        FLAGS,
        "const_cast<char*>(first), along}",
        "const_cast<char*>(first), 0}",
    ),
    Mistake(
        "starts-of-columns-apart",
        Kind.PLACE,
        "flags-bits-of-pairs",
        "elements.cuh",
        "restarts.get(kTogether ? vector : bit)",
        "restarts.get(bit)",
    ),
    Mistake("single-flags-of-their-neighbours", Kind.PLACE, "flags-odd", FLAGS, "to[j] = from[j];", "to[j] = from[0];"),
    Mistake(
        "a-byte-of-a-word-of-flags",
        Kind.MEANING,
        "flags-words",
        FLAGS,
        "if constexpr (sizeof(Item) == kWord)\n            return {word_at(at)};",
        "if constexpr (sizeof(Item) == kWord)\n            return {uint8(word_at(at))};",
    ),
    Mistake(
        "flags-of-columns-in-another-order",
        Kind.ORDER,
        "flags-of-bytes",
        FLAGS,
        "bytes >> 8 * j",
        "bytes >> (24 - 8 * j)",
    ),
    Mistake(
        "flags-that-nothing-waits-for",
        Kind.WAIT,
        "flags-in-bulk",
        TILE,
        "uint32 bytes = mask().bytes_in_bulk() + starts().bytes_in_bulk();",
        "uint32 bytes = starts().bytes_in_bulk();",
    ),
)

CASES = {case.name: replace(case, seeds=4).check for case in CALLS}
