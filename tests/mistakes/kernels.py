"""Mistakes in the kernels, which scans of intervals notice, under many schedules."""

from __future__ import annotations

import functools
from unittest import mock

import numpy as np
from chains import look_back
from interval import INTERVAL, Example
from simulator import DeviceCode, Simulation, misaligned, new_workspace, prepare, small_units

from cuscan.planning.config import Target
from mistakes import Kind, Mistake

GPU, ONE_SM, TWO_SMS = (Target(90, sms, cluster=0) for sms in (4, 1, 2))
OLDER = Target(80, 1, cluster=0)  # threads move pieces of 16 bytes, for lack of bulk copies
LITTLE = Target(80, 1, shared_bytes=24 * 1024, cluster=0)  # tiles have fewer columns than threads
CLUSTERS, PAIRS = Target(90, 16), Target(90, 16, cluster=4)  # blocks of one unit, and of two
MANY_SMS = Target(90, 200, cluster=0)  # a part of whole rows is a tile
TIGHT = Target(90, 2, shared_bytes=9 * 1024 + 512, cluster=0)  # a block of tiles has 3 stages for 12 groups

# Shape, axis and GPU. Rows are aligned, except in tiles-shifted and -misaligned, where they begin anywhere. "own":
# there are enough strips for each block to have its own. In tiles-few, each block takes its share of tickets.
SHAPES = {
    "rows": ((1, 101), -1, GPU),
    "thread-rows": ((151, 27), -1, GPU),
    "staged-rows": ((71, 123), -1, GPU),
    "staged-rows-apart": ((3, 5, 7, 122), -1, GPU),
    "cluster": ((2, 5 * 256 + 101), -1, CLUSTERS),
    "cluster-pairs": ((2, 5 * 256 + 101), -1, PAIRS),
    "tiles": ((2, 100 * 256 + 4), -1, GPU),
    "tiles-tight": ((5, 20 * 256 + 4), -1, TIGHT),
    "tiles-few": ((2, 6 * 256 + 4), -1, GPU),
    "tiles-sections": ((1030 * 64 + 4,), 0, GPU),
    "tile-a-row": ((60, 200), -1, ONE_SM),
    "tiles-shifted": ((5, 3 * 256 + 5), -1, GPU),
    "tiles-misaligned": ((5, 3 * 256 + 4), -1, GPU),
    "panels": ((2, 35 * 256 + 9, 5), 1, GPU),
    "panels-kept": ((9, 35 * 256 + 9, 5), 1, ONE_SM),
    "panels-kept-units": ((9, 16 * 256 + 9, 2), 1, ONE_SM),
    "panels-whole": ((70, 9, 5), 1, GPU),
    "panels-misaligned": ((4, 70, 45), 1, GPU),
    "panels-wide": ((2, 300, 257), 1, ONE_SM),
    "panels-parts": ((1, 700, 31), 1, GPU),
    "panels-apart": ((2, 2, 2, 3, 70, 5), 4, GPU),
    "strips": ((37 * 256 + 8, 12), 0, GPU),
    "strips-abreast": ((3, 5 * 256 + 10, 8), 1, GPU),
    "strips-spans": ((282 * 256, 12), 0, GPU),
    "strips-own": ((3 * 256 + 9, 98), 0, ONE_SM),
    "strips-own-long": ((17 * 256 + 9, 98), 0, ONE_SM),
    "strips-pairs": ((69 * 256 + 10, 2), 0, GPU),
    "whole-rows": ((3, 5 * 256 + 9, 37), 1, GPU),
    "whole-rows-long": ((17 * 16 * 128 + 9, 33), 0, MANY_SMS),
}
# Axes along which the array is part of a larger one, so that axes of the batch cannot be joined, or rows have gaps.
GAPS = {"panels-apart": (1, 2, 3), "panels-parts": (2,), "staged-rows-apart": (1, 3)}
# Sums of float32. Their states have 4 bytes, unlike intervals: then blocks of tiles take tickets ahead, threads of
# strips hold their values, and a part of whole rows is two units. In panels-strided every fifth number is a value; in
# panels-turned values lie along the scanned axis, and results across it. Rows of clusters end behind a whole vector of
# a warp's second ones, or within it; those of tiles-first and tiles-second, which begin anywhere, within a warp's first
# vectors or its second ones.
SUMS = {
    "cluster-vectors": ((1, 3 * 512 - 84), -1, CLUSTERS),
    "cluster-elements": ((1, 3 * 512 - 82), -1, CLUSTERS),
    "tiles-ahead": ((500 * 512 + 4,), 0, GPU),
    "tiles-first": ((5, 3 * 512 + 127), -1, GPU),
    "tiles-second": ((5, 3 * 512 + 131), -1, GPU),
    "panels-sums": ((300, 2111), 0, OLDER),
    "panels-slots": ((5, 2111), 0, OLDER),
    "panels-narrow": ((300, 33), 0, TWO_SMS),
    "panels-strided": ((300, 33), 0, ONE_SM),
    "panels-turned": ((8, 301), 0, LITTLE),
    "strips-held": ((37 * 256 + 8, 4), 0, GPU),
    "whole-rows-units": ((53 * 256 + 9, 17), 0, GPU),
}
# Sums whose results have another order of axes in memory than the values: along the scanned axis, and across a tile.
TURNED = {
    "panels-along": ((256, 5, 41), 0, (1, 2, 0), ONE_SM),
    "panels-crossing": ((20, 64, 41), 0, (0, 2, 1), ONE_SM),
    "panels-abreast": ((33, 64, 60), 0, (0, 2, 1), ONE_SM),
    "panels-pairs-along": ((30, 6, 40), 0, (1, 2, 0), ONE_SM),
}
# Units of chains that only look_back.cuh walks. Aggregate and carry take 16 bytes in the first, 8 in the other.
WALKS = {"walk": ("interval", 2, 1300), "walk-short": ("short", 3, 300)}
SEEDS = 9
STALLS = {SEEDS - 2: 200, SEEDS - 1: 20}  # seeds with long stalls, and the odds of one per turn


GIVEN_BACK = """\
        if (Element::kStores && has_results(first)) {
            bool has_carry = Config::kHasInitial;
            Carry carry;
            if constexpr (Shared::kLooksBack) {
                shared.prefixed[k % kRing].wait_together(k / kRing);
                has_carry = shared.prefix[k % kRing].exists;
                carry = shared.prefix[k % kRing].carry;
            } else {
                carry = start_of(slot.strip);
            }
            const State prefix = convert<State>(carry);
            part.tile.store(source(row, k, start), row, geometry, geometry.axis.size, first, lane,
                            has_carry || warp_in_group > 0,
                            warp_in_group > 0 ? join<Op>(has_carry, prefix, part.before) : prefix);
        }
        if (!leaves_early(first)) shared.empty[k % kStages].arrive();"""

MISTAKES = (
    Mistake(
        "operands-swapped-in-join",
        Kind.ORDER,
        "tiles",
        "scans.cuh",
        "Op::combine(earlier, later) : T(later)",
        "Op::combine(T(later), earlier) : T(later)",
    ),
    Mistake(
        "operands-swapped-in-warp-scan",
        Kind.ORDER,
        "rows",
        "scans.cuh",
        "Op::combine(earlier, value)",
        "Op::combine(value, earlier)",
    ),
    Mistake("warp-scan-stops-early", Kind.BOUND, "rows", "scans.cuh", "distance < kLanes", "2 * distance < kLanes"),
    Mistake(
        "lanes-of-a-thread-look-too-late",
        Kind.BOUND,
        "thread-rows",
        "kernels/thread_rows.cuh",
        "lane >= 1 << d",
        "lane > 1 << d",
    ),
    Mistake("runs-not-turned", Kind.ORDER, "staged-rows", "shifted.cuh", "kSteps), turn & by", "kSteps), false"),
    Mistake(
        "no-whole-vector-at-the-end",
        Kind.BOUND,
        "cluster-vectors",
        "warp_tile.cuh",
        "left - r * kStride >= kItems",
        "left - r * kStride > kItems",
    ),
    Mistake(
        "the-last-elements-in-the-first-vector",
        Kind.PLACE,
        "cluster-elements",
        "warp_tile.cuh",
        "if (r == last) vector",
        "if (r == 0) vector",
    ),
    Mistake(
        "the-last-elements-from-the-first-vector",
        Kind.PLACE,
        "cluster-elements",
        "warp_tile.cuh",
        "load(place_of(last)",
        "load(place_of(0)",
    ),
    Mistake(
        "the-last-run-written-whole",
        Kind.BOUND,
        "staged-rows",
        "warp_tile.cuh",
        "Source::kFill && r + 1 < kVectors ? kItems : some(r)",
        "kItems",
    ),
    Mistake(
        "the-last-vector-not-stored",
        Kind.BOUND,
        "tiles-second",
        "warp_tile.cuh",
        "(count + kStride - 1) / kStride : 1",
        "count / kStride : 1",
    ),
    Mistake(
        "the-last-lane-not-finished",
        Kind.PLACE,
        "tiles-first",
        "warp_tile.cuh",
        "finish(exist, some(exist));",
        "finish(exist - 1, some(exist));",
    ),
    Mistake(
        "staged-rows-not-waited-for",
        Kind.WAIT,
        "staged-rows",
        "shared_rows.cuh",
        "barrier.wait_together(0);",
        "",
    ),
    Mistake(
        "staged-rows-begin-without-plain-copies",
        Kind.WAIT,
        "staged-rows-apart",
        "shared_rows.cuh",
        "barrier.init(kThreads + 1)",
        "barrier.init(1)",
    ),
    Mistake(
        "staged-rows-leave-too-early",
        Kind.WAIT,
        "staged-rows",
        "shared_rows.cuh",
        "target::sync_block();\n        for_each_array",
        "for_each_array",
    ),
    Mistake(
        "a-piece-beyond-the-array",
        Kind.BOUND,
        "staged-rows",
        "shared_rows.cuh",
        "at >= lowest && at + Stretch::kPiece <= end",
        "at >= lowest",
    ),
    Mistake(
        "rows-with-gaps-as-far-beyond-a-piece-as-the-first",
        Kind.BOUND,
        "staged-rows-apart",
        "shared_rows.cuh",
        "if (Config::kTogether || rows.together) lowest",
        "lowest",
    ),
    Mistake(
        "the-end-of-staged-rows-forgotten",
        Kind.BOUND,
        "staged-rows",
        "shared_rows.cuh",
        "end_whole >= first_whole && end_whole < stretch.pieces()",
        "end_whole >= first_whole && end_whole + 1 < stretch.pieces()",
    ),
    Mistake(
        "aggregate-published-before-it-is-complete",
        Kind.WAIT,
        "tiles",
        "kernels/tiles.cuh",
        "fold_warps<Op>(totals, Config::kWarps)",
        "fold_warps<Op>(totals, Config::kWarps - 1)",
    ),
    Mistake(
        "a-group-does-not-meet",
        Kind.WAIT,
        "tiles",
        "kernels/tiles.cuh",
        "kFlagStages].arrive();\n        group_meets(group);",
        "kFlagStages].arrive();",
    ),
    Mistake(
        "totals-of-warps-not-waited-for",
        Kind.WAIT,
        "cluster",
        "kernels/cluster.cuh",
        "    target::sync_block();\n    if (kSends",
        "    if (kSends",
    ),
    Mistake(
        "sent-before-all-blocks-have-begun",
        Kind.WAIT,
        "cluster",
        "kernels/cluster.cuh",
        "if (kCluster > 1) target::cluster_wait();",
        "",
    ),
    Mistake(
        "waited-for-without-arriving",
        Kind.WAIT,
        "cluster",
        "kernels/cluster.cuh",
        "if (kSends && kCluster > 1) target::cluster_arrive();",
        "",
    ),
    Mistake(
        "totals-of-units-not-waited-for",
        Kind.WAIT,
        "cluster",
        "kernels/cluster.cuh",
        "shared.totals.wait_together(0);",
        "",
    ),
    Mistake(
        "totals-not-expected",
        Kind.WAIT,
        "cluster",
        "kernels/cluster.cuh",
        "shared.totals.expect((block * kUnits + kUnits - 1) * sizeof(target::Words<State>));",
        "shared.totals.expect(0);",
    ),
    Mistake(
        "one-total-too-few-expected",
        Kind.WAIT,
        "cluster-pairs",
        "kernels/cluster.cuh",
        "expect((block * kUnits + kUnits - 1)",
        "expect((block * kUnits)",
    ),
    Mistake(
        "sent-to-blocks-that-do-not-want-it",
        Kind.PLACE,
        "cluster",
        "kernels/cluster.cuh",
        "&& unit < lane * kUnits + kUnits - 1 ",
        "",
    ),
    Mistake(
        "sent-to-blocks-that-have-returned",
        Kind.WAIT,
        "cluster",
        "kernels/cluster.cuh",
        " && lane * kUnits < units)",
        ")",
    ),
    Mistake(
        "not-sent-within-the-block",
        Kind.PLACE,
        "cluster-pairs",
        "kernels/cluster.cuh",
        "unit < lane * kUnits + kUnits - 1",
        "unit < lane * kUnits",
    ),
    Mistake(
        "sent-to-a-wrong-place",
        Kind.PLACE,
        "cluster",
        "kernels/cluster.cuh",
        "&shared.unit_total[unit]",
        "&shared.unit_total[0]",
    ),
    Mistake(
        "the-last-warp-not-in-the-total",
        Kind.LOST,
        "cluster",
        "scans.cuh",
        "for (int w = 1; w < kWarps; ++w)",
        "for (int w = 1; w + 1 < kWarps; ++w)",
    ),
    Mistake(
        "a-unit-precedes-itself",
        Kind.PLACE,
        "cluster",
        "kernels/cluster.cuh",
        "broadcast(all, unit - 1)",
        "broadcast(all, unit)",
    ),
    Mistake(
        "units-of-a-block-are-one",
        Kind.PLACE,
        "cluster-pairs",
        "kernels/cluster.cuh",
        "unit = block * kUnits + warp / kWarps",
        "unit = block * kUnits",
    ),
    Mistake(
        "groups-meet-together", Kind.WAIT, "tiles", "kernels/tiles.cuh", "barrier_sync(1 + group,", "barrier_sync(1,"
    ),
    Mistake(
        "a-warp-overwrites-the-totals-of-the-tile-before",
        Kind.PLACE,
        "tile-a-row",
        "kernels/tiles.cuh",
        "shared.totals[k % kGroups][k / kGroups % 2]",
        "shared.totals[group][0]",
    ),
    Mistake(
        "groups-do-not-wait-for-the-look-back-warp",
        Kind.WAIT,
        "tiles",
        "kernels/tiles.cuh",
        "shared.prefixed[k % kRing].wait_together(k / kRing);",
        "",
    ),
    Mistake(
        "the-look-back-warp-does-not-wait-for-the-slot",
        Kind.WAIT,
        "tiles-tight",
        "kernels/tiles.cuh",
        "shared.begun[r].wait_together(k / kRing);\n            TileSlot tile",
        "if (k < kRing) shared.begun[r].wait_together(k / kRing);\n            TileSlot tile",
    ),
    Mistake(
        "a-group-does-not-wait-for-the-slot",
        Kind.WAIT,
        "tiles-tight",
        "kernels/tiles.cuh",
        "shared.begun[k % kRing].wait_together(k / kRing);",
        "if (k < kRing) shared.begun[k % kRing].wait_together(k / kRing);",
    ),
    Mistake(
        "nobody-waits-for-the-bulk-copy",
        Kind.WAIT,
        "tiles",
        "kernels/tiles.cuh",
        "shared.full[k % kStages].wait_together(k / kStages);",
        "",
    ),
    Mistake(
        "a-stage-filled-while-it-is-read",
        Kind.WAIT,
        "tiles-tight",
        "kernels/tiles.cuh",
        "if (k >= kStages && ended == 0) shared.empty[s].wait_together(k / kStages - 1);",
        "",
    ),
    Mistake(
        "a-stage-given-back-before-it-is-read-again",
        Kind.WAIT,
        "tiles-tight",
        "kernels/tiles.cuh",
        GIVEN_BACK,
        "\n".join([GIVEN_BACK.splitlines()[-1], *GIVEN_BACK.splitlines()[:-1]]),
    ),
    Mistake(
        "the-producer-waits-for-tiles-that-nobody-had",
        Kind.WAIT,
        "tiles-tight",
        "kernels/tiles.cuh",
        "k >= kStages && ended == 0",
        "k >= kStages",
    ),
    Mistake(
        "a-tile-too-few-on-the-ring",
        Kind.BOUND,
        "tiles-tight",
        "kernels/tiles.cuh",
        "kStages + Config::kGroups;",
        "kStages;",
    ),
    Mistake(
        "two-look-back-warps-take-each-tile",
        Kind.PLACE,
        "tiles-sections",
        "kernels/tiles.cuh",
        "k += Shared::kLookBackWarps",
        "++k",
    ),
    Mistake(
        "every-second-tile-without-look-back",
        Kind.WAIT,
        "tiles-sections",
        "kernels/tiles.cuh",
        "run_look_back(warp - kWorkers - kProducers)",
        "run_look_back(0)",
    ),
    Mistake("only-one-group-is-told-the-end", Kind.WAIT, "tiles", "kernels/tiles.cuh", "ended < kGroups", "ended < 1"),
    Mistake(
        "the-workspace-renewed-one-ticket-too-early",
        Kind.STALE,
        "tiles",
        "kernels/tiles.cuh",
        "tickets() + blocks * kProducers;",
        "tickets() + blocks * kProducers - 1;",
    ),
    Mistake(
        "a-ticket-beyond-the-share",
        Kind.BOUND,
        "tiles-few",
        "kernels/tiles.cuh",
        "taken == share",
        "taken == share + 1",
    ),
    Mistake("a-share-too-small", Kind.BOUND, "tiles-few", "kernels/tiles.cuh", "+ uint32(blocks) - 1) /", ") /"),
    Mistake(
        "renewed-before-all-have-their-share",
        Kind.STALE,
        "tiles-few",
        "kernels/tiles.cuh",
        "share * blocks :",
        "share * blocks - 1 :",
    ),
    Mistake(
        "the-workspace-never-renewed",
        Kind.STALE,
        "tile-a-row",
        "workspace.cuh",
        "ticket.number + 1 != tickets ||",
        "true ||",
    ),
    Mistake(
        "the-workspace-of-strips-never-renewed",
        Kind.STALE,
        "strips-in-turn",
        "column_chain.cuh",
        "if (!abreast) workspace->renew_after(ticket, target::block_count(), words_used);",
        "",
    ),
    Mistake(
        "the-workspace-of-strips-renewed-too-early",
        Kind.STALE,
        "strips-in-turn",
        "column_chain.cuh",
        "ticket, target::block_count(), words_used",
        "ticket, target::block_count() - 1, words_used",
    ),
    Mistake(
        "the-workspace-of-strips-abreast-never-renewed",
        Kind.STALE,
        "strips-abreast",
        "column_chain.cuh",
        "workspace->renew_after(ticket, all + target::block_count(), words_used);",
        "",
    ),
    Mistake(
        "the-workspace-of-strips-abreast-renewed-too-early",
        Kind.STALE,
        "panels",
        "column_chain.cuh",
        "all + target::block_count(), words_used",
        "all + target::block_count() - 1, words_used",
    ),
    Mistake(
        "strips-abreast-end-too-early",
        Kind.BOUND,
        "strips-abreast",
        "column_chain.cuh",
        "const uint64 all = strips * pieces;",
        "const uint64 all = strips * pieces - 1;",
    ),
    Mistake(
        "pieces-of-strips-abreast-in-another-order",
        Kind.PLACE,
        "panels",
        "column_chain.cuh",
        "ticket.number / uint32(strips)}",
        "ticket.number % pieces}",
    ),
    Mistake(
        "the-workspace-not-left-when-epochs-wrap",
        Kind.STALE,
        "tiles",
        "workspace.cuh",
        "if (!epochs_wrap(epoch)) return;",
        "return;",
    ),
    Mistake("old-epochs-not-forgotten", Kind.STALE, "tiles", "workspace.cuh", "        renew(words_used, 0);\n", ""),
    Mistake(
        "ticket-not-reset",
        Kind.STALE,
        "tiles",
        "workspace.cuh",
        "(launches) << 32;",
        "(launches) << 32 | uint32(counts);",
    ),
    Mistake("epoch-not-changed", Kind.STALE, "tiles", "workspace.cuh", "(launches) << 32;", "(launches - 1) << 32;"),
    Mistake(
        "what-ends-beyond-an-array-loaded",
        Kind.BOUND,
        "tiles-shifted",
        "stage.cuh",
        " && from + pieces.bytes <= geometry.span[kArray].end",
        "",
    ),
    Mistake(
        "what-begins-before-an-array-loaded",
        Kind.BOUND,
        "tiles-misaligned",
        "stage.cuh",
        "from >= geometry.span[kArray].lowest && ",
        "",
    ),
    Mistake(
        "the-last-piece-of-a-tile-not-loaded",
        Kind.BOUND,
        "tiles-shifted",
        "stage.cuh",
        "kSize + kPiece - 1) / kPiece * kPiece - place",
        "kSize) / kPiece * kPiece - place",
    ),
    Mistake(
        "all-but-the-last-filled-one-by-one",
        Kind.BOUND,
        "tiles-shifted",
        "stage.cuh",
        "int i = lane; i < left;",
        "int i = lane; i + 1 < left;",
    ),
    Mistake(
        "all-but-the-first-filled-one-by-one",
        Kind.BOUND,
        "tiles-misaligned",
        "stage.cuh",
        "int i = lane; i < left;",
        "int i = lane + (start == 0); i < left;",
    ),
    Mistake(
        "the-next-filled-one-by-one",
        Kind.PLACE,
        "tiles-shifted",
        "stage.cuh",
        "step, first + start);",
        "step, first + start + 1);",
    ),
    Mistake(
        "shifted-tiles-read-as-if-aligned",
        Kind.PLACE,
        "tiles-shifted",
        "stage.cuh",
        "if constexpr (is_shifted(Operand::kAccess)) item +=",
        "if constexpr (false) item +=",
    ),
    Mistake(
        "a-chain-goes-on-in-the-next",
        Kind.STALE,
        "walk",
        "look_back.cuh",
        "if (chain != chain_) {",
        "if (chain_ > chain) {",
    ),
    Mistake(
        "a-chain-begins-with-old-groups", Kind.STALE, "tiles", "look_back.cuh", "            next_group_ = 0;\n", ""
    ),
    Mistake(
        "a-chain-begins-with-the-old-section",
        Kind.STALE,
        "walk",
        "look_back.cuh",
        "            has_section_ = has_carry;\n",
        "",
    ),
    Mistake(
        "sections-forgotten", Kind.LOST, "walk", "look_back.cuh", "if (kLevels > 2 && count >= room) {", "if (false) {"
    ),
    Mistake(
        "the-groups-behind-a-section-lost",
        Kind.LOST,
        "walk",
        "look_back.cuh",
        "total, 0, room, count - room",
        "total, 0, 0, 0",
    ),
    Mistake(
        "own-and-other-swapped",
        Kind.ORDER,
        "walk",
        "scans.cuh",
        "(choose(is_later, other, own)), convert<Total>(choose(is_later, own, other))",
        "(choose(is_later, own, other)), convert<Total>(choose(is_later, other, own))",
    ),
    Mistake(
        "the-wrong-half-given-away",
        Kind.ORDER,
        "walk-short",
        "scans.cuh",
        "choose(is_later, part[2 * j], part[2 * j + 1])",
        "choose(is_later, part[2 * j + 1], part[2 * j])",
    ),
    Mistake("one-group-is-not-taken", Kind.LOST, "tiles", "look_back.cuh", "&& whole > 0) take", "&& whole > 1) take"),
    Mistake(
        "the-unit-before-not-waited-for",
        Kind.WAIT,
        "tiles-tight",
        "look_back.cuh",
        "here[j] = first + j * kLanes >= end;",
        "here[j] = first + j * kLanes + 1 >= end;",
    ),
    Mistake(
        "the-unit-before-not-loaded",
        Kind.PLACE,
        "walk",
        "look_back.cuh",
        "j * kLanes >= end);",
        "j * kLanes + 1 >= end);",
    ),
    Mistake(
        "the-walk-ahead-does-not-wait-for-all",
        Kind.WAIT,
        "tiles-tight",
        "look_back.cuh",
        "if (target::ballot(all) == ~0u) return;\n            }",
        "if (target::ballot(all) != 0) return;\n            }",
    ),
    Mistake(
        "lanes-part-in-the-walk-ahead",
        Kind.WAIT,
        "tiles-tight",
        "look_back.cuh",
        "if (target::ballot(all) == ~0u) return;\n            }",
        "if (all || target::ballot(all) == ~0u) return;\n            }",
    ),
    Mistake(
        "what-was-loaded-is-not-waited-for",
        Kind.WAIT,
        "walk",
        "look_back.cuh",
        "if (target::ballot(all) == ~0u) return;\n                look(end);",
        "return;",
    ),
    Mistake(
        "what-was-loaded-is-of-other-groups",
        Kind.PLACE,
        "walk",
        "look_back.cuh",
        "if (kPrefetches) look(units_);  // in flight while these groups are combined",
        "",
    ),
    Mistake(
        "loaded-before-there-is-a-stage",
        Kind.WAIT,
        "tiles-ahead",
        "kernels/tiles.cuh",
        "if (early) await_stage();",
        "",
    ),
    Mistake(
        "a-tile-is-stored-as-the-next", Kind.PLACE, "tiles", "kernels/tiles.cuh", "kScansAhead ? k - kGroups : k", "k"
    ),
    Mistake(
        "the-last-tile-is-not-stored",
        Kind.LOST,
        "tiles",
        "kernels/tiles.cuh",
        "kScansAhead ? k >= kGroups : exists",
        "exists",
    ),
    Mistake(
        "nobody-knows-the-epoch", Kind.STALE, "tiles", "kernels/tiles.cuh", "shared.epoch[producer] = ticket.epoch;", ""
    ),
    Mistake(
        "a-group-in-the-place-of-the-next",
        Kind.PLACE,
        "walk",
        "look_back.cuh",
        "lane_ >= place) groups_",
        "lane_ > place) groups_",
    ),
    Mistake(
        "a-group-too-many", Kind.BOUND, "walk", "look_back.cuh", "int(group % kLanes) - 1)", "int(group % kLanes))"
    ),
    Mistake(
        "units-of-the-group-before",
        Kind.PLACE,
        "walk-short",
        "look_back.cuh",
        "if (j == whole) units",
        "if (j + 1 == whole) units",
    ),
    Mistake(
        "a-tile-taken-for-short",
        Kind.BOUND,
        "tile-a-row",
        "warp_tile.cuh",
        "size - first <= kStride",
        "size - first <= 2 * kStride",
    ),
    Mistake(
        "a-warp-with-results-taken-for-idle",
        Kind.BOUND,
        "tiles",
        "kernels/tiles.cuh",
        "(first < geometry.axis.size)",
        "(first + 4 < geometry.axis.size)",
    ),
    Mistake(
        "columns-swizzled-one-way-only",
        Kind.ORDER,
        "strips-pairs",
        "flat_tile.cuh",
        "turn(vector, swizzle);\n        CUSCAN_UNROLL\n        for (int s",
        "CUSCAN_UNROLL\n        for (int s",
    ),
    Mistake(
        "folded-before-it-is-there",
        Kind.WAIT,
        "strips",
        "kernels/strips.cuh",
        "stage.arrived.wait(phase(k));\n            const StripTurn now = stage.turn;\n            CUSCAN_NO_UNROLL",
        "stage.known.wait(phase(k));\n            const StripTurn now = stage.turn;\n            CUSCAN_NO_UNROLL",
    ),
    Mistake(
        "walked-before-it-is-folded",
        Kind.WAIT,
        "strips-own",
        "kernels/strips.cuh",
        "stage.folded.wait(phase(k));\n            const StripTurn now = stage.turn;\n"
        "            if (!now.exists) return stage",
        "stage.arrived.wait(phase(k));\n            const StripTurn now = stage.turn;\n"
        "            if (!now.exists) return stage",
    ),
    Mistake("summed-too-late", Kind.WAIT, "strips", "kernels/strips.cuh", "stage.summed.wait(phase(k));", ""),
    Mistake(
        "not-waited-for-what-is-sought", Kind.WAIT, "strips", "kernels/strips.cuh", "stage.sought.wait(phase(k));", ""
    ),
    Mistake(
        "not-all-look-back-warps-arrive",
        Kind.WAIT,
        "strips",
        "kernels/strips.cuh",
        "stage.sought.init(kScanWarps * kLookBackWarps * target::kWarp);",
        "stage.sought.init(target::kWarp);",
    ),
    Mistake(
        "a-batch-published-with-its-first-tile",
        Kind.LOST,
        "strips",
        "kernels/strips.cuh",
        "now.unit % kBatch == kBatch - 1",
        "now.unit % kBatch == 0",
    ),
    Mistake(
        "every-tile-of-a-batch-starts-as-the-first",
        Kind.LOST,
        "strips",
        "kernels/strips.cuh",
        "stage.prefixed.arrive();\n            tiles.push(of_batch(now), units.total);",
        "stage.prefixed.arrive();",
    ),
    Mistake(
        "a-ticket-for-one-tile",
        Kind.LOST,
        "strips",
        "kernels/strips.cuh",
        "if (part == kBatch)",
        "if (part == 1)",
    ),
    Mistake(
        "the-walk-does-not-wait",
        Kind.WAIT,
        "strips",
        "published.cuh",
        "if (target::ballot(all) == ~0u) return;",
        "return;",
    ),
    Mistake(
        "a-span-is-not-passed",
        Kind.LOST,
        "strips-passes",
        "batches.cuh",
        "passed_.pass(sections_, number_, seen.total);",
        "",
    ),
    Mistake(
        "windows-before-they-are-added-up",
        Kind.WAIT,
        "strips",
        "batches.cuh",
        "target::barrier_sync(barrier_, kWarps * target::kWarp);\n            Carry of_windows",
        "Carry of_windows",
    ),
    Mistake(
        "windows-of-two-spans-in-one-place",
        Kind.PLACE,
        "strips-spans",
        "batches.cuh",
        "& totals = exchange_.total[turn_ ^= 1]",
        "& totals = exchange_.total[turn_]",
    ),
    Mistake(
        "windows-before-forgotten",
        Kind.LOST,
        "strips-spans",
        "batches.cuh",
        "precedes || warp_ > 0 || entry() > 0, carry",
        "precedes || entry() > 0, carry",
    ),
    Mistake(
        "held-before-it-is-there",
        Kind.WAIT,
        "strips-held",
        "kernels/strips.cuh",
        "stage.arrived.wait(phase(k));\n            const StripTurn now = stage.turn;\n            if (!now",
        "stage.known.wait(phase(k));\n            const StripTurn now = stage.turn;\n            if (!now",
    ),
    Mistake(
        "held-until-nothing-is-known",
        Kind.WAIT,
        "strips-held",
        "kernels/strips.cuh",
        "held, warp);\n                stage.prefixed.wait(phase(k));",
        "held, warp);",
    ),
    Mistake(
        "finished-before-it-is-walked",
        Kind.WAIT,
        "strips-own",
        "kernels/strips.cuh",
        "if (!Config::kHolds) stage.prefixed.wait(phase(k));",
        "",
    ),
    Mistake(
        "stage-taken-before-it-is-free",
        Kind.WAIT,
        "strips-own",
        "kernels/strips.cuh",
        "stage.free.wait(phase(k) - 1);",
        ";",
    ),
    Mistake(
        "whole-rows-folded-before-they-are-there",
        Kind.WAIT,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage.arrived.expect(all);",
        "stage.arrived.arrive();",
    ),
    Mistake(
        "gathered-before-all-of-the-part-is-folded",
        Kind.WAIT,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage(k + kBatch - 1).folded.wait(phase(k + kBatch - 1));",
        "",
    ),
    Mistake(
        "sought-before-the-units-are-gathered",
        Kind.WAIT,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage(k).gathered.wait(phase(k));",
        "",
    ),
    Mistake(
        "finished-before-it-is-sought",
        Kind.WAIT,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage.sought.wait(phase(k + i));",
        "",
    ),
    Mistake(
        "whole-rows-stored-before-they-are-finished",
        Kind.WAIT,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage.finished.wait(phase(k + i));",
        "",
    ),
    Mistake(
        "whole-rows-loaded-before-their-stage-is-free",
        Kind.WAIT,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "if (k >= kStages) stage.free.wait(phase(k) - 1);",
        "",
    ),
    Mistake(
        "a-part-published-with-its-first-tile",
        Kind.LOST,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "number == kBatch - 1 && part",
        "number == 0 && part",
    ),
    Mistake(
        "a-group-without-its-last-part",
        Kind.LOST,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "pass(place, total_of_part(k, column));",
        "",
    ),
    Mistake(
        "all-tiles-of-a-part-begin-as-the-first",
        Kind.LOST,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "tiles.before(number, has_parts, parts)",
        "parts",
    ),
    Mistake(
        "every-tile-begins-a-unit",
        Kind.LOST,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "has_before = number % kTiles > 0 ||",
        "has_before =",
    ),
    Mistake(
        "all-shares-of-a-tile-begin-as-the-first",
        Kind.LOST,
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "shares.before(s, has_parts || number > 0, before)",
        "before",
    ),
    Mistake(
        "a-part-published-before-all-of-it-is-folded",
        Kind.WAIT,
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "if (kShares > 1)\n                    target::barrier_sync<kFolding>(kReduceWarps * target::kWarp);",
        "",
    ),
    Mistake(
        "all-units-of-a-part-begin-as-the-first",
        Kind.LOST,
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "units.before(i, precedes, carry)",
        "carry",
    ),
    Mistake(
        "a-part-published-with-its-last-unit-alone",
        Kind.LOST,
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "part = units.push(u, convert<Part>(total));",
        "part = convert<Part>(total);",
    ),
    Mistake(
        "the-units-of-two-parts-in-one-place",
        Kind.PLACE,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "kPartsHere = (Config::kStages + Config::kBatch - 1) / Config::kBatch",
        "kPartsHere = 1",
    ),
    Mistake(
        "a-piece-stored-that-others-have-a-part-of",
        Kind.BOUND,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "first = up(stretch.begin)",
        "first = down(stretch.begin)",
    ),
    Mistake(
        "a-piece-read-beyond-the-end-of-an-array",
        Kind.BOUND,
        "whole-rows",
        "kernels/whole_rows.cuh",
        " && from + bytes <= geometry.span[0].end",
        "",
    ),
    Mistake(
        "the-walk-over-groups-does-not-wait",
        Kind.WAIT,
        "whole-rows",
        "kernels/whole_rows.cuh",
        "if (target::ballot(all) == ~0u) return;",
        "return;",
    ),
    Mistake(
        "a-window-is-not-passed",
        Kind.LOST,
        "whole-rows-long",
        "kernels/whole_rows.cuh",
        "if (keeps_) place_.windows.pass(place_.sections, passed_, lanes.total);",
        "",
    ),
    Mistake(
        "a-window-is-not-forgotten",
        Kind.STALE,
        "whole-rows-long",
        "kernels/whole_rows.cuh",
        "forget(seen_[kWindows - 1]);",
        "",
    ),
    Mistake(
        "an-entry-before-forgotten",
        Kind.LOST,
        "whole-rows-long",
        "kernels/whole_rows.cuh",
        "precedes || entry_ > 0, carry",
        "precedes, carry",
    ),
    Mistake(
        "loaded-before-it-is-located",
        Kind.WAIT,
        "strips",
        "kernels/strips.cuh",
        "stage.known.wait(phase(k));\n                now",
        "now",
    ),
    Mistake(
        "blocks-of-runs-swapped",
        Kind.ORDER,
        "strips",
        "scans.cuh",
        "Op::combine(block, total)",
        "Op::combine(total, block)",
    ),
    Mistake(
        "left-half-forgotten",
        Kind.LOST,
        "strips-own-long",
        "scans.cuh",
        "number & 1 ? join<Op>",
        "number & 1 && kLevels > 1 ? join<Op>",
    ),
    Mistake(
        "group-passed-too-early",
        Kind.LOST,
        "strips-own-long",
        "column_chain.cuh",
        "if ((number + 1) % kGroup != 0) return;",
        "if ((number + 2) % kGroup != 0) return;",
    ),
    Mistake(
        "counter-of-another-launch",
        Kind.STALE,
        "strips-in-turn",
        "column_chain.cuh",
        "uint64(ticket.epoch) << 32",
        "uint64(0)",
    ),
    Mistake("epochs-are-not-read", Kind.STALE, "tiles", "published.cuh", "uint32(words[i] >> 32) == epoch", "true"),
    Mistake("finished-not-reset", Kind.STALE, "panels", "workspace.cuh", "        finished = 0;\n", ""),
    Mistake(
        "an-initial-value-that-is-none",
        Kind.MEANING,
        "rows",
        "kernels/rows.cuh",
        "Config::kHasInitial || first > 0,",
        "true,",
    ),
    Mistake(
        "an-initial-value-of-staged-rows-that-is-none",
        Kind.MEANING,
        "staged-rows",
        "kernels/staged_rows.cuh",
        "Config::kHasInitial || first > 0,",
        "true,",
    ),
    Mistake(
        "the-runs-before-the-last-elements-forgotten",
        Kind.STALE,
        "thread-rows",
        "kernels/thread_rows.cuh",
        "after(first > 0, before)",
        "after(false, before)",
    ),
    Mistake(
        "a-strip-begins-with-its-second-unit",
        Kind.PLACE,
        "strips-own",
        "schedule.cuh",
        "number % units}",
        "(number + 1) % units}",
    ),
    Mistake(
        "every-tile-stands-at-the-first-row",
        Kind.PLACE,
        "strips",
        "strip_tile.cuh",
        "const int64 row = position + run * kRunRows;",
        "const int64 row = run * kRunRows;",
    ),
    Mistake(
        "one-item-too-many-stored",
        Kind.BOUND,
        "rows",
        "vectors.cuh",
        "if (i < count) *advance",
        "if (i < count || (count > 0 && i == count)) *advance",
    ),
)


def scans(family: str) -> list[tuple[Simulation, np.ndarray]]:
    """Scans with and without an initial value, and their results."""
    if family in WALKS:
        return [look_back(*WALKS[family], initial) for initial in (False, True)]
    if family in SUMS:
        shape, axis, gpu = SUMS[family]
        value = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
        if family.endswith("-strided"):
            value = np.repeat(value, 5, -1)[..., ::5]
        turned = {}
        if family.endswith("-turned"):
            value, turned = np.asfortranarray(value), {"out": np.zeros(shape, np.float32)}
        with small_units(2, 2):
            return [(prepare(value, "add", axis=axis, target=gpu, **turned), np.cumsum(value, axis))]
    if family in TURNED:
        shape, axis, order, gpu = TURNED[family]
        value = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
        out = np.zeros([shape[a] for a in order], np.float32).transpose(np.argsort(order))
        calls = [{}, {"reverse": True}]
        with mock.patch("cuscan.planning.panels.ABREAST", 3):
            return [
                (
                    prepare(value, "add", axis=axis, out=out, target=gpu, **call),
                    np.flip(np.cumsum(np.flip(value, axis), axis), axis) if call else np.cumsum(value, axis),
                )
                for call in calls
            ]
    shape, axis, gpu = SHAPES[family]
    examples = [Example(shape, axis, initial=initial) for initial in (False, True)]
    if family.endswith("-misaligned"):
        for example in examples:
            example.value = misaligned(example.value, 8)
    if family in GAPS:
        for example in examples:
            example.value = _apart(example.value, GAPS[family])
    sections = family == "tiles-sections"  # exclusive, for two look-back warps
    with small_units(1, 1) if sections else small_units(2, 2):
        return [
            (
                prepare(example.value, INTERVAL, axis=axis, initial=example.initial, target=gpu, exclusive=sections),
                example.scanned(exclusive=sections),
            )
            for example in examples
        ]


def _apart(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """A copy inside an array that is larger along some axes."""
    more = np.zeros([n + (a in axes) for a, n in enumerate(array.shape)], array.dtype)
    copy = more[tuple(slice(n) for n in array.shape)]
    copy[...] = array
    return copy


def check(family: str, code: DeviceCode) -> None:
    """The test of each copy of the device code: successive scans in one workspace, under many schedules."""
    planned = scans(family)
    nbytes = max(simulation.plan.workspace_bytes for simulation, _ in planned)
    for seed in range(SEEDS):
        workspace = new_workspace(nbytes, epoch=2**32 - 3 if seed == SEEDS - 3 else 0)  # epochs wrap after two launches
        chosen = {"stall_odds": STALLS[seed], "stall_turns": 30_000} if seed in STALLS else {}
        for simulation, expected in 2 * planned:
            np.testing.assert_array_equal(simulation.run(seed, code=code, workspace=workspace, **chosen), expected)
            np.testing.assert_array_equal(workspace.array[::2][:2], 0)  # tickets; blocks that are done


def check_in_turn(code: DeviceCode) -> None:
    """The test of strips that blocks take one after the other, as they do if these are long."""
    check("strips-abreast", code.broken("batches.cuh", "kHasNodes ? 2 * kEach * kBatches : 200", "1"))


CASES = {family: functools.partial(check, family) for family in (*SHAPES, *SUMS, *TURNED, *WALKS)}
CASES["strips-in-turn"] = check_in_turn
