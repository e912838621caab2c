"""Mistakes in scans of bytes on words, wherever rows begin and however many bytes the last word of a row lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from draws import draws
from feature_cases import Case, of_family

from mistakes import Kind, Mistake

BYTES: dict[str, Any] = {"draw": draws("uint8"), "call": {"dtype": "uint8"}}
CALLS: dict[str, Case] = {
    "words-whole": of_family("panels", "words", "add", shape=(4, 5, 1031), **BYTES),
    "words-kept": of_family("panels-kept", "words", "add", shape=(1, 300, 4099), sms=1, **BYTES),
    "words-one-tile": of_family("panels-kept", "words", "add", shape=(1, 30, 4607), sms=1, **BYTES),
    "words-shared": of_family("panels-shared", "words", "add", shape=(2, 9003, 9), sms=16, **BYTES),
    "words-max": of_family("panels", "words", "max", shape=(4, 5, 1031), draw=draws("uint8")),
    "words-signed": of_family("panels", "words", "min", shape=(4, 5, 1031), draw=draws("int8")),
    "words-mul": of_family("panels", "words", "mul", shape=(4, 5, 1031), **BYTES),
    "words-bool": of_family("panels", "words", "xor", shape=(4, 5, 1031), draw=draws("bool")),
    "words-masked": of_family(
        "panels-kept", "words", "max", shape=(1, 300, 4099), sms=1, masked=True, draw=draws("int8")
    ),
    "words-initial": of_family("panels", "words", "add", shape=(4, 5, 1031), initial=3, **BYTES),
}

WORDS, TYPES, TILE, SHARE = "on_words.cuh", "types.cuh", "panel_tile.cuh", "panel_share.cuh"
KERNEL, VECTORS = "kernels/panels.cuh", "vectors.cuh"
MISTAKES = (
    Mistake("bytes-that-carry-into-the-next", Kind.MEANING, "words-whole", WORDS, "0x80808080u", "0u"),
    Mistake("the-top-bits-of-one-side", Kind.MEANING, "words-whole", WORDS, "(earlier ^ later) & kTop", "later & kTop"),
    Mistake(
        "halves-decide-for-the-lower-byte",
        Kind.MEANING,
        "words-max",
        WORDS,
        "earlier << 8, later << 8",
        "earlier, later",
    ),
    Mistake("bytes-of-halves-swapped", Kind.ORDER, "words-max", WORDS, "pick_bytes<0x7351>", "pick_bytes<0x3715>"),
    Mistake(
        "signs-are-ignored",
        Kind.MEANING,
        "words-signed",
        WORDS,
        "constexpr bool kIsSigned<int8> = true",
        "constexpr bool kIsSigned<int8> = false",
    ),
    Mistake(
        "a-product-beyond-its-byte",
        Kind.MEANING,
        "words-mul",
        WORDS,
        "uint32(uint8(number)) << at",
        "uint32(number) << at",
    ),
    Mistake("bools-of-any-bits", Kind.MEANING, "words-bool", TYPES, "value.bits) >> 7 & 0x01010101u", "value.bits)"),
    Mistake("an-initial-value-for-one-byte", Kind.LOST, "words-initial", WORDS, "* 0x01010101u", "* 1u"),
    Mistake(
        "the-next-word-is-left-out",
        Kind.PLACE,
        "words-kept",
        VECTORS,
        "word_between(words[0], words[1],",
        "word_between(words[0], words[0],",
    ),
    Mistake(
        "as-far-as-bytes-not-bits", Kind.PLACE, "words-kept", VECTORS, "words[1], 8 * beyond)", "words[1], beyond)"
    ),
    Mistake(
        "bytes-behind-the-row-are-stored", Kind.BOUND, "words-shared", SHARE, "? 4 - place.lacking : 4;", "? 4 : 4;"
    ),
    Mistake(
        "the-word-before-lacks-bytes",
        Kind.BOUND,
        "words-kept",
        SHARE,
        "within(slot).column + 1 == place.columns",
        "within(slot).column + 2 == place.columns",
    ),
    Mistake("no-panel-lacks-more", Kind.BOUND, "words-one-tile", TILE, "lacking == other.lacking;", "true;"),
    Mistake("every-panel-lacks-bytes", Kind.BOUND, "words-kept", KERNEL, "kOnWords && is_last ?", "kOnWords ?"),
    Mistake(
        "the-first-of-four-masked", Kind.PLACE, "words-masked", WORDS, "arithmetic(kept) * 0xffu", "arithmetic(kept)"
    ),
    Mistake("masked-bytes-are-zero", Kind.MEANING, "words-masked", WORDS, "(neutral.bits & ~bytes)", "0u"),
    Mistake("segments-with-the-lacking-bytes", Kind.BOUND, "words-kept", TILE, ") all.bytes -= place.lacking;", ");"),
)

CASES = {name: replace(case, seeds=2).check for name, case in CALLS.items()}
