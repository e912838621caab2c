"""Mistakes in segments, indices, carries, packed sums and states, which calls of these features notice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from draws import drawn, draws, initial_of, odd_steps, steps, tied
from feature_cases import TURNS, Case, of_family
from operator_examples import AFFINE, MATRIX_PRODUCT

from cuscan import Operator
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.planning.config import StartsConfig
from mistakes import Kind, Mistake

BACKWARDS, EXCLUSIVE, LAST = {"reverse": True}, {"exclusive": True}, {"return_last": True}
LEADING = {"include_initial": True, "exclusive": True}
MAX = INDEXED["max", "first"]
CARRY_IN = {"draw": steps(), "initial": "rows"}
MATRICES = {"draw": drawn(MATRIX_PRODUCT), "initial": initial_of(MATRIX_PRODUCT)}

# Fails on input that is no element: elements are not negative, unlike memory that was never written.
UPRIGHT = Operator(
    "upright",
    """
    if (earlier < 0 || later < 0) simulator::grid->fail("the operator got what is no element");
    return earlier < later ? later : earlier;
    """,
    0,
    numpy=np.maximum,
)


def upright(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> tuple[np.ndarray, ...]:
    return (np.sort(rng.integers(0, 10**9, shape, np.int32), axis),)


CALLS = {
    "reset": of_family("tiles-shared", "", "add", segments="reset"),
    "reset-groups": Case("", "add", (255, 24), sms=2, segments="reset-thin"),
    "reset-chain": Case("", "add", (40 * 512,), segments="reset"),
    "reset-exclusive": of_family("tiles-shared", "", "add", segments="reset", initial=2.0, call=EXCLUSIVE),
    "reset-leading": Case("", "add", (3, 1301), segments="reset-still", initial=2.0, call=LEADING),
    "reset-leading-panels": Case("", "add", (50, 9), 0, segments="reset-still", initial=2.0, call=LEADING),
    "reset-leading-strips": Case(
        "", "add", (9001, 12), 0, sms=2, segments="reset-all", initial=2.0, units=None, call=LEADING
    ),
    "reset-matrices": of_family("tiles-shared", "", MATRIX_PRODUCT.operator(), segments="reset", **MATRICES),
    "keys": of_family("tiles-shared", "", "add", segments="keys"),
    "keys-tiles": Case("", "add", (160 * 128,), segments="keys", units=(1, 1)),
    "keys-older": of_family("tiles-older", "", "add", segments="keys"),
    "keys-one-by-one": Case("", "add", (3, 3 * 512 + 401), segments="keys"),
    "keys-panels": of_family("panels-shared", "", "add", segments="keys"),
    "keys-panels-carry": of_family("panels-shared", "", LINEAR_RECURRENCE, segments="keys", **CARRY_IN),
    "offsets": of_family("tiles-shared", "", "add", segments="offsets-each"),
    "offsets-backwards": of_family("tiles-shared", "", "add", segments="offsets-each", call=BACKWARDS),
    "offsets-carry": of_family("tiles-shared", "", LINEAR_RECURRENCE, segments="offsets", **CARRY_IN),
    "offsets-words": Case("", "max", (2 * 16384,), draw=draws("int8"), segments="offsets-each", units=None, seeds=1),
    "offsets-panels": of_family("panels-shared", "", "add", draw=draws("float64"), segments="offsets"),
    "offsets-panels-kept": of_family("panels-kept", "", "add", segments="offsets"),
    "offsets-leading": Case("", "add", (2, 2 * StartsConfig("int64").piece), segments="offsets", call=LEADING),
    "offsets-leading-panels": Case(
        "", "add", (2, 2 * StartsConfig("int64").piece, 9), 1, segments="offsets", call=LEADING
    ),
    "index": of_family("tiles-shared", "", MAX, draw=tied("float32", 0.003), call=BACKWARDS),
    "index-forward": of_family("tiles-shared", "", MAX, draw=tied("float32", 0.003)),
    "index-last": of_family("tiles-shared", "", INDEXED["max", "last"], draw=tied("bool"), masked=True),
    "index-latest": of_family("tiles-shared", "", INDEXED["max", "last"], draw=tied("float32", 0.003)),
    "index-initial": of_family("tiles-shared", "", MAX, draw=tied("float32"), initial=-3.0),
    "index-leading": of_family("rows", "", MAX, draw=tied("float32"), call={**BACKWARDS, "include_initial": True}),
    "recurrence": of_family("tiles-shared", "", LINEAR_RECURRENCE, draw=steps()),
    "marked": of_family(
        "tiles-shared", "", LINEAR_RECURRENCE, draw=odd_steps("float32"), segments="reset", initial=2.0
    ),
    "marked-carries": Case("", LINEAR_RECURRENCE, (40 * 512,), draw=steps(), segments="reset"),
    "last": of_family("tiles-shared", "", LINEAR_RECURRENCE, draw=steps(), call=LAST),
    "last-panels": of_family("panels-shared", "", LINEAR_RECURRENCE, draw=steps(), call=LAST, segments="reset"),
    "beyond": of_family("tiles-shared", "", UPRIGHT, draw=upright),
    "rows-of-one-tile": TURNS,
    "carry-in-tiles": of_family("tiles-shared", "", LINEAR_RECURRENCE, **CARRY_IN),
    "shifted-backwards": Case("", "add", (3, 3 * 512 + 401), call=BACKWARDS),
    "carry-in": of_family("panels-kept", "", LINEAR_RECURRENCE, segments="reset", **CARRY_IN),
    "bytes": of_family("tiles-shared", "", "add", draw=draws("uint8"), call={"dtype": "uint8"}),
    "bytes-masked": of_family("tiles-shared", "", "add", draw=draws("int8"), masked=True, call={"dtype": "int8"}),
    "bytes-max": of_family("tiles-shared", "", "max", draw=draws("int8"), call={"exclusive": True}),
    "bytes-min-masked": of_family("tiles-shared", "", "min", draw=draws("uint8"), masked=True),
    "bytes-in-segments": of_family(
        "tiles-shared",
        "",
        "add",
        shape=(3, 9000),
        draw=draws("uint8"),
        segments="reset-rare",
        seeds=1,
        call={"dtype": "uint8"},
    ),
    "thread-rows-reset": of_family(
        "thread-rows", "", "add", draw=draws("uint8"), segments="reset", masked=True, call={"dtype": "uint8"}
    ),
    "thread-rows-offsets": of_family("thread-rows", "", "max", shape=(40, 57), segments="offsets-random"),
    "thread-rows-keys": of_family("thread-rows", "", "add", segments="keys-full"),
    "thread-rows-decays": of_family(
        "thread-rows", "", LINEAR_RECURRENCE, draw=steps("float32", "scalar"), initial="rows"
    ),
    "thread-rows-indices": of_family("thread-rows", "", INDEXED["max", "first"], draw=tied("float32")),
    "bools-xor": of_family("tiles-shared", "", "xor", draw=draws("bool")),
    "halves": of_family("tiles-shared", "", "add", draw=draws("int16"), call={"dtype": "int16"}),
    "complex": of_family("tiles-shared", "", "add", draw=draws("complex64")),
    "skipna-pairs": of_family("rows", "", AFFINE.operator(), draw=draws("float32", 2, nan=0.1), call={"skipna": True}),
}


STARTS = "kernels/segment_starts.cuh"
COMBINE = "later.restarts ? later.value : Op::combine(earlier.value, later.value)"
FLAGS_READ = """\
        if (has_results(first)) {
            tile.load_flags(source, row, geometry, length, first, lane);
            tile.load_values(source, row, geometry, length, first, lane);
            const State total = tile.scan(source, row, geometry, first, lane, [&] {
                if (leaves_early(first)) shared.empty[k % kStages].arrive();
            });
            if (lane == 0) totals[warp_in_group] = total;
        }
        if (FlagStage::kAny) shared.flags_empty[k % kFlagStages].arrive();"""
MISTAKES = (
    Mistake(
        "restart-ignored", Kind.MEANING, "reset", "segments.cuh", COMBINE, "Op::combine(earlier.value, later.value)"
    ),
    Mistake(
        "restart-forgotten",
        Kind.MEANING,
        "reset",
        "segments.cuh",
        "earlier.restarts | later.restarts",
        "later.restarts",
    ),
    Mistake(
        "restart-not-carried",
        Kind.MEANING,
        "reset-chain",
        "segments.cuh",
        "(state.value), state.restarts}",
        "(state.value), 0}",
    ),
    Mistake(
        "mark-ignored",
        Kind.MEANING,
        "marked",
        "segments.cuh",
        "restarts(later) ? later.state : both.state",
        "both.state",
    ),
    Mistake(
        "mark-forgotten",
        Kind.MEANING,
        "marked",
        "segments.cuh",
        "both.decay, restarts(earlier) || restarts(later)",
        "restarts(earlier) ? T(1) : both.decay, restarts(later)",
    ),
    Mistake(
        "mark-of-the-later-range-lost",
        Kind.MEANING,
        "marked",
        "segments.cuh",
        "restarts(earlier) || restarts(later)",
        "restarts(earlier)",
    ),
    Mistake(
        "decay-that-is-a-mark", Kind.MEANING, "marked", "segments.cuh", "decay != decay ? target", "false ? target"
    ),
    Mistake(
        "mark-not-carried",
        Kind.MEANING,
        "marked-carries",
        "segments.cuh",
        "DecayMark<From>::is_in(state.decay)",
        "false",
    ),
    Mistake(
        "start-of-the-next-lane",
        Kind.BOUND,
        "reset",
        "scans.cuh",
        "kWarp - 1 - target::thread",
        "kWarp - 2 - target::thread",
    ),
    Mistake(
        "starts-ignored-in-the-warp",
        Kind.MEANING,
        "reset",
        "scans.cuh",
        "start < lane_in_group ? start",
        "false ? start",
    ),
    Mistake(
        "start-before-the-group",
        Kind.BOUND,
        "reset-groups",
        "scans.cuh",
        "start < lane_in_group ? start : lane_in_group",
        "start",
    ),
    Mistake(
        "own-start-precedes",
        Kind.BOUND,
        "reset",
        "scans.cuh",
        "last_start(1) < lane_in_group_",
        "last_start(0) <= lane_in_group_",
    ),
    Mistake("start-in-the-warp-lost", Kind.LOST, "reset", "scans.cuh", "kWarp - 1), starts_ != 0", "kWarp - 1), false"),
    Mistake("flag-of-the-first-state", Kind.PLACE, "reset", "scans.cuh", "restarts_ >> number & 1", "restarts_ & 1"),
    Mistake("boundary-of-a-run-lost", Kind.BOUND, "offsets", STARTS, "start > 0 ? start : 1", "start + 1"),
    Mistake("last-boundary-lost", Kind.BOUND, "offsets", STARTS, "offset[k] < to) mark", "offset[k] < to - 1) mark"),
    Mistake("row-start-is-a-boundary", Kind.BOUND, "offsets-carry", STARTS, "start > 0 ? start : 1", "start"),
    Mistake("reverse-off-by-one", Kind.BOUND, "offsets-backwards", STARTS, "of.length - from + 1", "of.length - from"),
    Mistake("only-32-offsets", Kind.BOUND, "offsets", STARTS, "                at += target::kWarp;", "return;"),
    Mistake(
        "bits-of-the-first-vector", Kind.PLACE, "offsets-words", "warp_tile.cuh", "words[r * kStride / 32]", "words[0]"
    ),
    Mistake("bits-of-the-first-lane", Kind.PLACE, "offsets", "warp_tile.cuh", "word[r] >> position % 32", "word[r]"),
    Mistake("bits-of-the-next-lane-too", Kind.BOUND, "offsets-carry", "warp_tile.cuh", " & ((1u << kItems) - 1)", ""),
    Mistake(
        "bits-beyond-the-end",
        Kind.BOUND,
        "offsets-leading",
        "warp_tile.cuh",
        "geometry.elements() - position, kElements",
        "geometry.axis.size - position, kElements",
    ),
    Mistake("bits-of-the-first-chunk", Kind.PLACE, "offsets-panels", "panel_share.cuh", ">> first % 32 : 0", ": 0"),
    Mistake(
        "bits-of-the-first-chunks",
        Kind.PLACE,
        "offsets-panels-kept",
        "panel_share.cuh",
        "words[first / 32]",
        "words[0]",
    ),
    Mistake(
        "bits-beyond-the-columns",
        Kind.BOUND,
        "offsets-leading-panels",
        "panel_share.cuh",
        "steps > 0 ? words",
        "results > 0 ? words",
    ),
    Mistake(
        "exclusive-goes-on",
        Kind.MEANING,
        "reset-exclusive",
        "elements.cuh",
        "if (Base::Op::restarts(next)) shown = segment_started;",
        ";",
    ),
    Mistake(
        "a-restart-behind-the-last-element",
        Kind.BOUND,
        "reset-leading",
        "warp_tile.cuh",
        "reset.item[i] = {};",
        ";",
    ),
    Mistake(
        "a-restart-behind-the-last-step",
        Kind.BOUND,
        "reset-leading-panels",
        "panel_share.cuh",
        "(!Config::kIncludesInitial || s < steps)",
        "true",
    ),
    Mistake(
        "a-restart-behind-the-last-row",
        Kind.BOUND,
        "reset-leading-strips",
        "staged_flags.cuh",
        "!Config::kIncludesInitial || row < rows",
        "true",
    ),
    Mistake(
        "segment-without-initial",
        Kind.MEANING,
        "reset-matrices",
        "elements.cuh",
        "if (starts) value = Base::Inner::combine(segment_started, value);",
        "",
    ),
    Mistake(
        "initial-after-its-segment",
        Kind.ORDER,
        "reset-matrices",
        "elements.cuh",
        "combine(segment_started, value)",
        "combine(value, segment_started)",
    ),
    Mistake("keys-of-the-vector-before", Kind.PLACE, "keys", "warp_tile.cuh", "before = vector.item[i];", ""),
    Mistake(
        "keys-of-the-next",
        Kind.PLACE,
        "keys",
        "warp_tile.cuh",
        "element<kArray>(reader.lane * kItems + r * kStride - 1)",
        "element<kArray>(reader.lane * kItems + r * kStride)",
    ),
    Mistake(
        "keys-of-the-next-in-memory",
        Kind.PLACE,
        "keys-older",
        "warp_tile.cuh",
        "element<kArray>(r * kStride - 1)",
        "element<kArray>(r * kStride)",
    ),
    Mistake(
        "a-tile-begins-with-its-own-key",
        Kind.PLACE,
        "keys-tiles",
        "warp_tile.cuh",
        "element<kArray>(-1)",
        "element<kArray>(0)",
    ),
    Mistake(
        "the-key-before-a-tile-looked-for-in-the-stage",
        Kind.PLACE,
        "keys-tiles",
        "warp_tile.cuh",
        "const bool starts = r == 0 &&",
        "const bool starts = false &&",
    ),
    Mistake(
        "keys-filled-one-by-one-are-not-waited-for",
        Kind.WAIT,
        "keys-one-by-one",
        "kernels/tiles.cuh",
        "Tile::kElements, lane);\n            group_meets(group);",
        "Tile::kElements, lane);",
    ),
    Mistake(
        "keys-not-filled-one-by-one",
        Kind.LOST,
        "keys-one-by-one",
        "kernels/tiles.cuh",
        "source.flags.fill_one_by_one(row, geometry, first - start, start, Tile::kElements, lane);",
        "",
    ),
    Mistake(
        "flags-loaded-while-others-are-read",
        Kind.WAIT,
        "reset-chain",
        "kernels/tiles.cuh",
        "shared.flags_empty[f].wait_together(k / kFlagStages - 1);",
        ";",
    ),
    Mistake(
        "flags-given-back-before-they-are-read",
        Kind.WAIT,
        "reset-chain",
        "kernels/tiles.cuh",
        FLAGS_READ,
        "\n".join([FLAGS_READ.splitlines()[-1], *FLAGS_READ.splitlines()[:-1]]),
    ),
    Mistake(
        "flags-of-another-tile",
        Kind.PLACE,
        "reset-chain",
        "kernels/tiles.cuh",
        "shared.flags[k % kFlagStages], origin",
        "shared.flags[0], origin",
    ),
    Mistake(
        "nothing-cleared-beyond-the-end",
        Kind.BOUND,
        "beyond",
        "warp_tile.cuh",
        "if constexpr (Config::kClearsBeyond)",
        "if constexpr (false)",
    ),
    Mistake(
        "the-last-elements-cleared", Kind.BOUND, "beyond", "warp_tile.cuh", "i >= left) vector", "i + 1 >= left) vector"
    ),
    Mistake(
        "a-group-looks-at-the-stage-before-the-slot",
        Kind.WAIT,
        "rows-of-one-tile",
        "kernels/tiles.cuh",
        "shared.begun[k % kRing].wait_together(k / kRing);\n            const bool exists",
        "shared.full[k % kStages].wait_together(k / kStages);\n"
        "            shared.begun[k % kRing].wait_together(k / kRing);\n            const bool exists",
    ),
    Mistake(
        "carry-of-another-row",
        Kind.PLACE,
        "carry-in-tiles",
        "kernels/tiles.cuh",
        "Element::start(geometry, origin.at(geometry, strip), initial)",
        "Element::start(geometry, origin, initial)",
    ),
    Mistake("keys-of-the-chunk-before", Kind.PLACE, "keys-panels", "panel_share.cuh", "before[i + j] = key;", ""),
    Mistake(
        "first-key-differs",
        Kind.BOUND,
        "keys-panels-carry",
        "panel_share.cuh",
        "(!is_first || Element::kCarriesIn)",
        "true",
    ),
    Mistake(
        "index-from-the-wrong-end",
        Kind.BOUND,
        "index",
        "elements.cuh",
        "elements() - 1 - position",
        "elements() - position",
    ),
    Mistake("index-runs-backwards", Kind.ORDER, "index", "elements.cuh", "index - along :", "index + along :"),
    Mistake(
        "one-element-too-many",
        Kind.BOUND,
        "index-leading",
        "geometry.cuh",
        "axis.size - Config::kIncludesInitial",
        "axis.size",
    ),
    Mistake(
        "last-of-ties",
        Kind.MEANING,
        "index-forward",
        "operators.cuh",
        "!reaches(earlier.value, later",
        "reaches(later.value, earlier",
    ),
    Mistake(
        "first-of-ties", Kind.MEANING, "index-last", "operators.cuh", "(kLatest || earlier.index", "(earlier.index"
    ),
    Mistake("masked-wins-tie", Kind.MEANING, "index-last", "operators.cuh", "later.index != kNowhere && (", "("),
    Mistake(
        "initial-wins-tie",
        Kind.MEANING,
        "index-initial",
        "operators.cuh",
        "kLatest || earlier.index == kNowhere",
        "kLatest",
    ),
    Mistake(
        "number-beats-nan",
        Kind.MEANING,
        "index-forward",
        "operators.cuh",
        "&& !earlier_nan;",
        "&& !earlier_nan && !later_nan;",
    ),
    Mistake("later-nan-wins", Kind.MEANING, "index-forward", "operators.cuh", "&& !earlier_nan;", ";"),
    Mistake(
        "number-beats-last-nan",
        Kind.MEANING,
        "index-latest",
        "operators.cuh",
        "earlier.value) || later_nan",
        "earlier.value)",
    ),
    Mistake(
        "decay-of-the-wrong-step",
        Kind.PLACE,
        "recurrence",
        "operators.cuh",
        "(later.decay, earlier.state)",
        "(earlier.decay, earlier.state)",
    ),
    Mistake("last-one-early", Kind.BOUND, "last", "warp_tile.cuh", "left == i + 1", "left == i + 2"),
    Mistake(
        "last-of-columns-early",
        Kind.BOUND,
        "last-panels",
        "panel_share.cuh",
        "+ s == tile.geometry.axis.size - 1)",
        "+ s == tile.geometry.axis.size - 2)",
    ),
    Mistake(
        "carry-of-another-column",
        Kind.PLACE,
        "carry-in",
        "panel_tile.cuh",
        "here.advance(geometry.column, in_row);",
        "",
    ),
    Mistake(
        "imaginary-part-lost",
        Kind.MEANING,
        "complex",
        "types.cuh",
        "{Part(value.real), Part(value.imag)}",
        "{Part(value.real), Part(0)}",
    ),
    Mistake(
        "shifted-tiles-not-reversed",
        Kind.ORDER,
        "shifted-backwards",
        "operands.cuh",
        "return access == Access::kReversed || access == Access::kShiftedReversed;",
        "return access == Access::kReversed;",
    ),
    Mistake("bytes-overflow", Kind.BOUND, "bytes", "packed.cuh", "word & 0x00ff00ffu", "word"),
    Mistake(
        "bytes-before-a-word-lost",
        Kind.LOST,
        "bytes",
        "packed.cuh",
        "before = target::pick_bytes<0x4242>(through_odd, 0);",
        "",
    ),
    Mistake("mask-of-the-first-word", Kind.PLACE, "bytes-masked", "packed.cuh", "++i, first += kInWord)", "++i)"),
    Mistake("bytes-without-their-signs", Kind.MEANING, "bytes-max", "packed.cuh", "0xb391", "0x4341"),
    Mistake(
        "exclusive-bytes-a-byte-late",
        Kind.PLACE,
        "bytes-max",
        "packed.cuh",
        "pick_bytes<0x6240>(earlier, through_even)",
        "pick_bytes<0x6240>(through_even, through)",
    ),
    Mistake(
        "elements-of-a-word-count-twice",
        Kind.MEANING,
        "bools-xor",
        "packed.cuh",
        "pick_bytes<0x1054>(own, neutral)",
        "pick_bytes<0x1054>(own, own)",
    ),
    Mistake(
        "half-of-a-total-forgotten",
        Kind.LOST,
        "bools-xor",
        "packed.cuh",
        "return Pairs::combine(halves, halves >> 16);",
        "return halves;",
    ),
    Mistake(
        "masked-bytes-are-zero",
        Kind.MEANING,
        "bytes-min-masked",
        "packed.cuh",
        "| (neutral() & ~kept)",
        "| (0 & ~kept)",
    ),
    Mistake(
        "words-cross-segments",
        Kind.BOUND,
        "bytes-in-segments",
        "warp_tile.cuh",
        "if (!segment_starts(r)) return Words",
        "if (true) return Words",
    ),
    Mistake(
        "words-are-a-segment",
        Kind.MEANING,
        "bytes-in-segments",
        "warp_tile.cuh",
        "return Op::state(value, false);",
        "return Op::state(value, true);",
    ),
    Mistake(
        "starts-of-half-a-vector",
        Kind.LOST,
        "bytes-in-segments",
        "elements.cuh",
        "uint32((uint64(1) << kSome) - 1)",
        "uint32((uint64(1) << kSome / 2) - 1)",
    ),
    Mistake(
        "words-after-nothing",
        Kind.LOST,
        "bytes-in-segments",
        "elements.cuh",
        "running.present = present;",
        "running.present = false;",
    ),
    Mistake(
        "bits-of-a-word-unshifted",
        Kind.PLACE,
        "thread-rows-offsets",
        "kernels/thread_rows.cuh",
        ">> position % 32",
        ">> 0",
    ),
    Mistake(
        "bits-of-the-first-word", Kind.PLACE, "thread-rows-offsets", "kernels/thread_rows.cuh", "[position / 32]", "[0]"
    ),
    Mistake(
        "no-key-begins-a-run",
        Kind.LOST,
        "thread-rows-keys",
        "kernels/thread_rows.cuh",
        "if (position + i > 0)",
        "if (i > 0)",
    ),
    Mistake(
        "keys-against-a-runs-first",
        Kind.PLACE,
        "thread-rows-keys",
        "kernels/thread_rows.cuh",
        "(position + i - 1)",
        "(position)",
    ),
    Mistake(
        "starts-taken-for-a-mask",
        Kind.MEANING,
        "thread-rows-reset",
        "kernels/thread_rows.cuh",
        "part.restarts.set_vector(0,",
        "part.keep.set_vector(0,",
    ),
    Mistake(
        "all-rows-begin-as-the-first",
        Kind.PLACE,
        "thread-rows-decays",
        "kernels/thread_rows.cuh",
        "rows.first_row + number",
        "rows.first_row",
    ),
    Mistake(
        "initials-of-rows-forgotten",
        Kind.LOST,
        "thread-rows-decays",
        "kernels/thread_rows.cuh",
        "join<Op>(Config::kHasInitial, beginning, before) : beginning",
        "before : beginning",
    ),
    Mistake(
        "positions-count-from-each-run",
        Kind.MEANING,
        "thread-rows-indices",
        "kernels/thread_rows.cuh",
        "part.clear(geometry, position, initial);",
        "part.clear(geometry, 0, initial);",
    ),
    Mistake("halves-not-parted", Kind.LOST, "halves", "packed.cuh", "middle + (word >> 16)", "middle + word"),
    Mistake(
        "only-the-last-field-is-nan",
        Kind.MEANING,
        "skipna-pairs",
        "elements.cuh",
        "any = any || is_nan",
        "any = is_nan",
    ),
)


# At least four schedules, since a race does not show in every one.
CASES = {name: replace(case, seeds=max(case.seeds, 4)).check for name, case in CALLS.items()}
