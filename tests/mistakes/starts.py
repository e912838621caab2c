"""Mistakes in the kernels that compute segment starts as bits."""

from __future__ import annotations

import itertools

import numpy as np
from segment_bits import CHUNK, bits_of, found, found_in, sorted_offsets, starts_in
from simulator import DeviceCode

from cuscan.planning.config import StartsConfig
from mistakes import Kind, Mistake

HEADER = "kernels/segment_starts.cuh"
PIECE, PIECE_OF_ITEMS = (StartsConfig("int64", given).piece for given in ("offsets", "keys"))  # positions

MISTAKES = (
    Mistake("first-of-a-chunk-lost", Kind.BOUND, "starts", HEADER, "start > 0 ? start : 1", "start + 1"),
    Mistake("start-of-the-row-marked", Kind.BOUND, "starts", HEADER, "start > 0 ? start : 1", "start"),
    Mistake("last-of-a-chunk-lost", Kind.BOUND, "starts", HEADER, "offset[k] < to) mark", "offset[k] < to - 1) mark"),
    Mistake("reverse-from-too-late", Kind.BOUND, "starts", HEADER, "? of.length - to + 1 :", "? of.length - to + 2 :"),
    Mistake("reverse-to-too-early", Kind.BOUND, "starts", HEADER, "? of.length - from + 1 :", "? of.length - from :"),
    Mistake(
        "reverse-is-not-reversed",
        Kind.ORDER,
        "starts",
        HEADER,
        "(of.reverse ? of.length - offset : offset)",
        "(offset)",
    ),
    Mistake("reverse-is-one-off", Kind.BOUND, "starts", HEADER, "? of.length - offset :", "? of.length - 1 - offset :"),
    Mistake("search-for-more", Kind.BOUND, "search", HEADER, "entry(probe) < bound", "entry(probe) <= bound"),
    Mistake("search-goes-too-far", Kind.BOUND, "starts", HEADER, "(found - 1) * stride + 1", "found * stride"),
    Mistake(
        "cursor-not-kept", Kind.BOUND, "starts", HEADER, "target::count_bits(~beyond & (beyond - 1));", "target::kWarp;"
    ),
    Mistake(
        "cursor-one-too-far", Kind.BOUND, "starts", HEADER, "at += target::count_bits(", "at += 1 + target::count_bits("
    ),
    Mistake("cursor-stands-still", Kind.BOUND, "starts", HEADER, "                at += target::kWarp;", ""),
    Mistake("run-of-empties-skipped-too-far", Kind.BOUND, "starts", HEADER, "seek(last + 1)", "seek(last + 2)"),
    Mistake(
        "read-beyond-the-entries",
        Kind.BOUND,
        "starts",
        HEADER,
        "ahead < left ? entry(at + ahead) : 0;",
        "entry(at + ahead);",
    ),
    Mistake("chunk-not-cleared", Kind.STALE, "starts", HEADER, "words[w] = 0", ""),
    Mistake(
        "marked-before-all-is-cleared",
        Kind.WAIT,
        "starts",
        HEADER,
        "        target::sync_warp();\n        // In",
        "        // In",
    ),
    Mistake(
        "writes-beyond-the-bits",
        Kind.BOUND,
        "starts",
        HEADER,
        "of.run < of.positions - begin ? of.run : of.positions - begin",
        "of.run",
    ),
    Mistake(
        "items-not-reversed", Kind.ORDER, "items", HEADER, "step = of.reverse ? -of.step : of.step", "step = of.step"
    ),
    Mistake(
        "items-of-a-reverse-one-off",
        Kind.BOUND,
        "items",
        HEADER,
        "(of.length - 1) * of.step : 0",
        "of.length * of.step : 0",
    ),
    Mistake("items-close-together", Kind.BOUND, "items", HEADER, "(at + lane) * step", "at * step + lane"),
    Mistake("items-behind-the-end", Kind.BOUND, "items", HEADER, "if (w * 32 + lane < count) item", "item"),
    Mistake("key-before-a-run-lost", Kind.BOUND, "items", HEADER, "kKeys && begin > 0 && begin < end", "false"),
    Mistake("key-before-a-run-one-off", Kind.BOUND, "items", HEADER, "(begin - 1) * step", "begin * step"),
    Mistake(
        "key-before-a-word-lost", Kind.BOUND, "items", HEADER, "last = target::broadcast(one, target::kWarp - 1);", ""
    ),
    Mistake("first-key-starts", Kind.BOUND, "items", HEADER, " && (w > 0 || lane > 0 || at > 0)", ""),
    Mistake(
        "first-of-a-piece-lost", Kind.BOUND, "items", HEADER, "(w > 0 || lane > 0 || at > 0)", "(w > 0 || lane > 0)"
    ),
    Mistake("end-starts", Kind.BOUND, "items", HEADER, " && w * 32 + lane < count && ", " && "),
    Mistake(
        "keys-by-their-bytes",
        Kind.ORDER,
        "items",
        HEADER,
        "const auto one = arithmetic(item[w]);",
        "const auto one = uint32((unsigned char&)item[w]);",
    ),
    Mistake("word-of-another-lane", Kind.ORDER, "items", HEADER, "lane == w", "lane == kWords - 1 - w"),
    Mistake("zeros-behind-a-chunk", Kind.BOUND, "items", HEADER, "if (lane < kWords) bits", "bits"),
    Mistake(
        "run-of-items-too-long",
        Kind.BOUND,
        "items",
        HEADER,
        "begin + of.run < of.positions ? begin + of.run : of.positions",
        "begin + of.run",
    ),
)


def check(code: DeviceCode) -> None:
    """Offsets on both sides of chunk borders, runs of empty segments, a last warp with nothing to do."""
    for length, run in ((7 * PIECE - 3, 1), (2 * CHUNK + 3 * PIECE + 5, 19), (2 * CHUNK + 77, 10)):
        for seed, (offsets, reverse) in enumerate(itertools.product(sorted_offsets(length).values(), (False, True))):
            got = found(offsets, length, run=run, reverse=reverse, seed=seed, code=code)
            np.testing.assert_array_equal(got, bits_of(offsets, length, reverse))


def check_search(code: DeviceCode) -> None:
    """Searches that find where each warp begins at their first step."""
    length = 32 * PIECE - 1
    for reverse in (False, True):
        offsets = np.arange(length + 1)
        np.testing.assert_array_equal(
            found(offsets, length, reverse=reverse, code=code), bits_of(offsets, length, reverse)
        )


def check_items(code: DeviceCode) -> None:
    """Flags and keys, also apart and in reverse; NaN and -0; a last warp with nothing to do."""
    rng = np.random.default_rng(0)
    for length, run in ((9 * PIECE_OF_ITEMS - 3, 1), (3 * PIECE_OF_ITEMS - 3, 2), (70, 1)):
        keys = np.repeat(rng.choice([0.0, -0.0, 1.0, 2.0], length), 2)[:length]
        keys[[0, 5, -1]] = np.nan
        for seed, (items, reverse, stride) in enumerate(
            itertools.product((~(keys >= 1), keys, keys.astype("float16")), (False, True), (1, -3))
        ):
            given = "reset" if items.dtype == bool else "keys"
            got = found_in(given, items, run=run, reverse=reverse, stride=stride, seed=seed, code=code)
            np.testing.assert_array_equal(got, starts_in(given, items, reverse))


CASES = {"starts": check, "search": check_search, "items": check_items}
