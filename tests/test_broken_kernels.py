"""Device code with one mistake each, put there on purpose: the simulator must notice every one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import simulator
from interval import INTERVAL, Example
from simulator import DeviceCode, Memory, Simulation, SimulationError, new_workspace, prepare, small_units
from test_interval import CHAINS_ALONE, look_ahead

from cuscan.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

GPU, ONE_SM = Target(90, 4, cluster=0), Target(90, 1, cluster=0)
CLUSTERS, PAIRS = Target(90, 16), Target(90, 16, cluster=4)  # blocks of one unit, and of two
MANY_SMS = Target(90, 200, cluster=0)  # a part of whole rows is a tile
TIGHT = Target(90, 2, shared_bytes=9 * 1024 + 512, cluster=0)  # a block of tiles has 3 stages for 12 groups

# Shape, axis and GPU. Rows are aligned, but those of tiles-shifted and tiles-misaligned, which begin anywhere. "own":
# strips enough that each is a block's own. Of tiles-few, each block takes its share of tickets.
SHAPES = {
    "rows": ((1, 101), -1, GPU),
    "thread-rows": ((151, 27), -1, GPU),
    "warp-rows": ((41, 123), -1, GPU),
    "cluster": ((2, 5 * 256 + 101), -1, CLUSTERS),
    "cluster-pairs": ((2, 5 * 256 + 101), -1, PAIRS),
    "tiles": ((2, 100 * 256 + 4), -1, GPU),
    "tiles-tight": ((5, 20 * 256 + 4), -1, TIGHT),
    "tiles-few": ((2, 6 * 256 + 4), -1, GPU),
    "tile-a-row": ((60, 200), -1, ONE_SM),
    "tiles-shifted": ((5, 3 * 256 + 5), -1, GPU),
    "tiles-misaligned": ((5, 3 * 256 + 4), -1, GPU),
    "columns": ((2, 35 * 256 + 9, 5), 1, GPU),
    "columns-own": ((9, 35 * 256 + 9, 5), 1, ONE_SM),
    "strips": ((37 * 256 + 8, 12), 0, GPU),
    "strips-spans": ((282 * 256, 12), 0, GPU),
    "strips-own": ((3 * 256 + 9, 98), 0, ONE_SM),
    "strips-pairs": ((69 * 256 + 10, 2), 0, GPU),
    "whole-rows": ((3, 5 * 256 + 9, 37), 1, GPU),
    "whole-rows-long": ((17 * 16 * 128 + 9, 33), 0, MANY_SMS),
}
# Sums of float32, of 4 bytes a state, which intervals are not: tickets of tiles are taken ahead, threads of strips hold
# their values, and a part of whole rows is two units.
SUMS = {
    "tiles-ahead": ((500 * 512 + 4,), 0, GPU),
    "strips-held": ((37 * 256 + 8, 4), 0, GPU),
    "whole-rows-units": ((53 * 256 + 9, 16), 0, GPU),
}
# Units of chains that only look_ahead.cuh walks; the first of 16 bytes for aggregate and carry, the other of 8.
WALKS = {"walk": ("interval", 2, 1300), "walk-short": ("short", 3, 300)}
SEEDS = 9
STALLS = {SEEDS - 2: 200, SEEDS - 1: 20}  # odds of long ones, turn by turn


@dataclass(frozen=True)
class Mistake:
    """What is wrong, and what to put in the place of what in which header, for the scans of which family."""

    name: str
    family: str
    header: str
    old: str
    new: str


GIVEN_BACK = """\
        if (has_results(first)) {
            bool has_carry = Config::kHasInitial;
            Carry carry;
            if constexpr (Shared::kWalks) {
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
        shared.empty[k % kStages].arrive();"""

MISTAKES = (
    Mistake(
        "operands-swapped-in-join",
        "tiles",
        "scans.cuh",
        "Op::combine(earlier, later) : later",
        "Op::combine(later, earlier) : later",
    ),
    Mistake(
        "operands-swapped-in-warp-scan",
        "rows",
        "scans.cuh",
        "Op::combine(earlier, value)",
        "Op::combine(value, earlier)",
    ),
    Mistake("warp-scan-stops-early", "rows", "scans.cuh", "distance < kLanes", "2 * distance < kLanes"),
    Mistake(
        "lanes-of-a-thread-look-too-late", "thread-rows", "kernels/thread_rows.cuh", "lane >= 1 << d", "lane > 1 << d"
    ),
    Mistake("runs-not-turned", "warp-rows", "shifted.cuh", "kSteps), turn & by", "kSteps), false"),
    Mistake(
        "the-last-run-written-whole",
        "warp-rows",
        "kernels/warp_rows.cuh",
        "r < kVectors - 1 ? kItems : left",
        "left > 0 ? kItems : 0",
    ),
    Mistake(
        "dense-rows-not-waited-for",
        "thread-rows",
        "dense_rows.cuh",
        "shared.value.wait(from.value, elements);",
        "",
    ),
    Mistake(
        "dense-rows-leave-too-early",
        "warp-rows",
        "dense_rows.cuh",
        "scan(here, count);\n        target::sync_block();",
        "scan(here, count);",
    ),
    Mistake(
        "the-end-of-a-stretch-forgotten",
        "thread-rows",
        "dense_rows.cuh",
        "if (thread < cut.tail) array[last] = here[last];",
        "",
    ),
    Mistake(
        "aggregate-published-before-it-is-complete",
        "tiles",
        "kernels/tiles.cuh",
        "fold_warps<Op>(totals, Config::kWarps)",
        "fold_warps<Op>(totals, Config::kWarps - 1)",
    ),
    Mistake(
        "a-group-does-not-meet",
        "tiles",
        "kernels/tiles.cuh",
        "kFlagStages].arrive();\n        group_meets(group);",
        "kFlagStages].arrive();",
    ),
    Mistake(
        "totals-of-warps-not-waited-for",
        "cluster",
        "kernels/cluster.cuh",
        "    target::sync_block();\n    if (kSends",
        "    if (kSends",
    ),
    Mistake(
        "sent-before-all-blocks-have-begun",
        "cluster",
        "kernels/cluster.cuh",
        "if (kCluster > 1) target::cluster_wait();",
        "",
    ),
    Mistake(
        "waited-for-without-arriving",
        "cluster",
        "kernels/cluster.cuh",
        "if (kCluster > 1) target::cluster_arrive();",
        "",
    ),
    Mistake("totals-of-units-not-waited-for", "cluster", "kernels/cluster.cuh", "shared.totals.wait_together(0);", ""),
    Mistake(
        "totals-not-expected",
        "cluster",
        "kernels/cluster.cuh",
        "shared.totals.expect((block * kUnits + kUnits - 1) * sizeof(target::Words<State>));",
        "shared.totals.expect(0);",
    ),
    Mistake(
        "one-total-too-few-expected",
        "cluster-pairs",
        "kernels/cluster.cuh",
        "expect((block * kUnits + kUnits - 1)",
        "expect((block * kUnits)",
    ),
    Mistake(
        "sent-to-blocks-that-do-not-want-it",
        "cluster",
        "kernels/cluster.cuh",
        "&& unit < lane * kUnits + kUnits - 1 ",
        "",
    ),
    Mistake("sent-to-blocks-that-have-returned", "cluster", "kernels/cluster.cuh", " && lane * kUnits < units)", ")"),
    Mistake(
        "not-sent-within-the-block",
        "cluster-pairs",
        "kernels/cluster.cuh",
        "unit < lane * kUnits + kUnits - 1",
        "unit < lane * kUnits",
    ),
    Mistake(
        "sent-to-a-wrong-place", "cluster", "kernels/cluster.cuh", "&shared.unit_total[unit]", "&shared.unit_total[0]"
    ),
    Mistake(
        "the-last-warp-not-in-the-total",
        "cluster",
        "scans.cuh",
        "for (int w = 1; w < kWarps; ++w)",
        "for (int w = 1; w + 1 < kWarps; ++w)",
    ),
    Mistake(
        "a-unit-precedes-itself", "cluster", "kernels/cluster.cuh", "broadcast(all, unit - 1)", "broadcast(all, unit)"
    ),
    Mistake(
        "units-of-a-block-are-one",
        "cluster-pairs",
        "kernels/cluster.cuh",
        "unit = block * kUnits + warp / kWarps",
        "unit = block * kUnits",
    ),
    Mistake("groups-meet-together", "tiles", "kernels/tiles.cuh", "barrier_sync(1 + group,", "barrier_sync(1,"),
    Mistake(
        "a-warp-overwrites-the-totals-of-the-tile-before",
        "tile-a-row",
        "kernels/tiles.cuh",
        "shared.totals[group][k / kGroups % 2]",
        "shared.totals[group][0]",
    ),
    Mistake(
        "groups-do-not-wait-for-the-walker",
        "tiles",
        "kernels/tiles.cuh",
        "shared.prefixed[k % kRing].wait_together(k / kRing);",
        "",
    ),
    Mistake(
        "the-walker-does-not-wait-for-the-slot",
        "tiles-tight",
        "kernels/tiles.cuh",
        "shared.begun[r].wait_together(k / kRing);\n            TileSlot tile",
        "if (k < kRing) shared.begun[r].wait_together(k / kRing);\n            TileSlot tile",
    ),
    Mistake(
        "a-group-does-not-wait-for-the-slot",
        "tiles-tight",
        "kernels/tiles.cuh",
        "shared.begun[k % kRing].wait_together(k / kRing);",
        "if (k < kRing) shared.begun[k % kRing].wait_together(k / kRing);",
    ),
    Mistake(
        "nobody-waits-for-the-bulk-copy",
        "tiles",
        "kernels/tiles.cuh",
        "shared.full[k % kStages].wait_together(k / kStages);",
        "",
    ),
    Mistake(
        "a-stage-filled-while-it-is-read",
        "tiles-tight",
        "kernels/tiles.cuh",
        "if (k >= kStages && ended == 0) shared.empty[s].wait_together(k / kStages - 1);",
        "",
    ),
    Mistake(
        "a-stage-given-back-before-it-is-read-again",
        "tiles-tight",
        "kernels/tiles.cuh",
        GIVEN_BACK,
        "\n".join([GIVEN_BACK.splitlines()[-1], *GIVEN_BACK.splitlines()[:-1]]),
    ),
    Mistake(
        "the-loader-waits-for-tiles-that-nobody-had",
        "tiles-tight",
        "kernels/tiles.cuh",
        "k >= kStages && ended == 0",
        "k >= kStages",
    ),
    Mistake("a-tile-too-few-on-the-ring", "tiles-tight", "kernels/tiles.cuh", "kStages + Config::kGroups;", "kStages;"),
    Mistake("only-one-group-is-told-the-end", "tiles", "kernels/tiles.cuh", "ended < kGroups", "ended < 1"),
    Mistake(
        "the-workspace-renewed-one-ticket-too-early",
        "tiles",
        "kernels/tiles.cuh",
        "tickets() + blocks * kLoaders;",
        "tickets() + blocks * kLoaders - 1;",
    ),
    Mistake("a-ticket-beyond-the-share", "tiles-few", "kernels/tiles.cuh", "taken == share", "taken == share + 1"),
    Mistake("a-share-too-small", "tiles-few", "kernels/tiles.cuh", "+ uint32(blocks) - 1) /", ") /"),
    Mistake(
        "renewed-before-all-have-their-share",
        "tiles-few",
        "kernels/tiles.cuh",
        "share * blocks :",
        "share * blocks - 1 :",
    ),
    Mistake("the-workspace-never-renewed", "tile-a-row", "workspace.cuh", "ticket.number + 1 != tickets ||", "true ||"),
    Mistake(
        "the-workspace-of-strips-never-renewed",
        "columns",
        "column_chain.cuh",
        "workspace->renew_after(ticket, target::block_count(), words_used);",
        ";",
    ),
    Mistake(
        "the-workspace-of-strips-renewed-too-early",
        "columns",
        "column_chain.cuh",
        "ticket, target::block_count(), words_used",
        "ticket, target::block_count() - 1, words_used",
    ),
    Mistake(
        "the-workspace-of-a-single-strip-never-renewed",
        "strips",
        "column_chain.cuh",
        "workspace->renew_after(ticket, pieces + target::block_count(), words_used);",
        "",
    ),
    Mistake(
        "the-workspace-of-a-single-strip-renewed-too-early",
        "strips",
        "column_chain.cuh",
        "pieces + target::block_count(), words_used",
        "pieces + target::block_count() - 1, words_used",
    ),
    Mistake(
        "the-workspace-not-left-when-tags-wrap", "tiles", "workspace.cuh", "if (!tags_wrap(tag)) return;", "return;"
    ),
    Mistake("old-tags-not-forgotten", "tiles", "workspace.cuh", "        renew(words_used, 0);\n", ""),
    Mistake("ticket-not-reset", "tiles", "workspace.cuh", "(launches) << 32;", "(launches) << 32 | uint32(counts);"),
    Mistake("tag-not-changed", "tiles", "workspace.cuh", "(launches) << 32;", "(launches - 1) << 32;"),
    Mistake(
        "what-ends-beyond-an-array-sent-for",
        "tiles-shifted",
        "stage.cuh",
        " && from + pieces.bytes <= geometry.span[kArray].end",
        "",
    ),
    Mistake(
        "what-begins-before-an-array-sent-for",
        "tiles-misaligned",
        "stage.cuh",
        "from >= geometry.span[kArray].lowest && ",
        "",
    ),
    Mistake(
        "the-last-piece-of-a-tile-not-sent-for",
        "tiles-shifted",
        "stage.cuh",
        "kSize + kPiece - 1) / kPiece * kPiece - place",
        "kSize) / kPiece * kPiece - place",
    ),
    Mistake(
        "all-but-the-last-filled-one-by-one",
        "tiles-shifted",
        "stage.cuh",
        "i = start + lane; i < end;",
        "i = start + lane; i + 1 < end;",
    ),
    Mistake(
        "all-but-the-first-filled-one-by-one",
        "tiles-misaligned",
        "stage.cuh",
        "i = start + lane; i < end;",
        "i = start + lane + (start == 0); i < end;",
    ),
    Mistake(
        "the-next-filled-one-by-one",
        "tiles-shifted",
        "stage.cuh",
        "axis.stride[kArray], first + i)",
        "axis.stride[kArray], first + i + 1)",
    ),
    Mistake(
        "shifted-tiles-read-as-if-aligned",
        "tiles-shifted",
        "stage.cuh",
        "if constexpr (kShifted) item +=",
        "if constexpr (false) item +=",
    ),
    Mistake("a-chain-goes-on-in-the-next", "walk", "look_ahead.cuh", "if (chain != chain_) {", "if (chain_ > chain) {"),
    Mistake("a-chain-begins-with-old-groups", "tiles", "look_ahead.cuh", "            next_group_ = 0;\n", ""),
    Mistake(
        "a-chain-begins-with-the-old-section", "walk", "look_ahead.cuh", "            has_section_ = has_carry;\n", ""
    ),
    Mistake("sections-forgotten", "walk", "look_ahead.cuh", "if (kLevels > 2 && count >= room) {", "if (false) {"),
    Mistake(
        "the-groups-behind-a-section-lost", "walk", "look_ahead.cuh", "total, 0, room, count - room", "total, 0, 0, 0"
    ),
    Mistake(
        "own-and-other-swapped",
        "walk",
        "look_ahead.cuh",
        "(choose(is_later, other, own)), convert<Carry>(choose(is_later, own, other))",
        "(choose(is_later, own, other)), convert<Carry>(choose(is_later, other, own))",
    ),
    Mistake(
        "the-wrong-half-given-away",
        "walk-short",
        "look_ahead.cuh",
        "choose(is_later, part[2 * j], part[2 * j + 1])",
        "choose(is_later, part[2 * j + 1], part[2 * j])",
    ),
    Mistake("one-group-is-not-taken", "tiles", "look_ahead.cuh", "&& whole > 0) take", "&& whole > 1) take"),
    Mistake(
        "the-unit-before-not-waited-for",
        "tiles-tight",
        "look_ahead.cuh",
        "here[j] = first + j * kLanes >= end;",
        "here[j] = first + j * kLanes + 1 >= end;",
    ),
    Mistake("the-unit-before-not-sent-for", "walk", "look_ahead.cuh", "j * kLanes >= end);", "j * kLanes + 1 >= end);"),
    Mistake(
        "the-walk-ahead-does-not-wait-for-all",
        "tiles-tight",
        "look_ahead.cuh",
        "if (target::ballot(all) == ~0u) return;\n            }",
        "if (target::ballot(all) != 0) return;\n            }",
    ),
    Mistake(
        "lanes-part-in-the-walk-ahead",
        "tiles-tight",
        "look_ahead.cuh",
        "if (target::ballot(all) == ~0u) return;\n            }",
        "if (all || target::ballot(all) == ~0u) return;\n            }",
    ),
    Mistake(
        "what-was-sent-for-is-not-waited-for",
        "walk",
        "look_ahead.cuh",
        "if (target::ballot(all) == ~0u) return;\n                look(end);",
        "return;",
    ),
    Mistake(
        "what-was-sent-for-is-of-other-groups",
        "walk",
        "look_ahead.cuh",
        "if (kSendsAhead) look(units_);  // on its way while these are added up",
        "",
    ),
    Mistake("sent-for-before-there-is-a-stage", "tiles-ahead", "kernels/tiles.cuh", "if (early) await_stage();", ""),
    Mistake("a-tile-is-stored-as-the-next", "tiles", "kernels/tiles.cuh", "kScansAhead ? k - kGroups : k", "k"),
    Mistake(
        "the-last-tile-is-not-stored", "tiles", "kernels/tiles.cuh", "kScansAhead ? k >= kGroups : exists", "exists"
    ),
    Mistake("nobody-knows-the-tag", "tiles", "kernels/tiles.cuh", "shared.tag[loader] = ticket.tag;", ""),
    Mistake(
        "a-group-in-the-place-of-the-next",
        "walk",
        "look_ahead.cuh",
        "lane_ >= place) groups_",
        "lane_ > place) groups_",
    ),
    Mistake("a-group-too-many", "walk", "look_ahead.cuh", "int(group % kLanes) - 1)", "int(group % kLanes))"),
    Mistake(
        "units-of-the-group-before",
        "walk-short",
        "look_ahead.cuh",
        "if (j == whole) units",
        "if (j + 1 == whole) units",
    ),
    Mistake(
        "first-piece-stored-whole",
        "tiles-shifted",
        "shifted.cuh",
        "clamp(beyond == 0 ? 0 : kItems - beyond, count)",
        "0",
    ),
    Mistake(
        "results-take-the-place-of-values-to-be-read",
        "tiles-shifted",
        "warp_tile.cuh",
        "(Shifted::kAny) target::sync_warp();  // all",
        "(false) ;  // all",
    ),
    Mistake(
        "a-tile-taken-for-short",
        "tile-a-row",
        "warp_tile.cuh",
        "size - first <= kStride",
        "size - first <= 2 * kStride",
    ),
    Mistake(
        "a-warp-with-results-taken-for-idle",
        "tiles",
        "kernels/tiles.cuh",
        "(first < geometry.axis.size)",
        "(first + 4 < geometry.axis.size)",
    ),
    Mistake("last-elements-not-stored", "tiles-shifted", "shifted.cuh", "if (tail + lane < count)", "if (false)"),
    Mistake(
        "results-leave-before-all-are-there",
        "tiles-shifted",
        "warp_tile.cuh",
        "            target::sync_warp();\n            const int count = clamp(length - first",
        "            const int count = clamp(length - first",
    ),
    Mistake(
        "own-columns-without-the-first-barrier",
        "columns-own",
        "kernels/columns.cuh",
        "target::sync_block();\n            scan_chunks(now, find);\n            target::sync_block();",
        "scan_chunks(now, find);\n            target::sync_block();",
    ),
    Mistake(
        "own-columns-without-the-second-barrier",
        "columns-own",
        "kernels/columns.cuh",
        "scan_chunks(now, find);\n            target::sync_block();",
        "scan_chunks(now, find);",
    ),
    Mistake(
        "shared-columns-without-the-first-barrier",
        "columns",
        "kernels/columns.cuh",
        "target::sync_block();\n            scan_chunks(now, find);\n            if (leader)",
        "scan_chunks(now, find);\n            if (leader)",
    ),
    Mistake(
        "shared-columns-without-the-second-barrier",
        "columns",
        "kernels/columns.cuh",
        "schedule.next();\n            target::sync_block();",
        "schedule.next();",
    ),
    Mistake(
        "columns-twisted-one-way-only",
        "strips-pairs",
        "flat_tile.cuh",
        "turn(vector, twist);\n        CUSCAN_UNROLL\n        for (int s",
        "CUSCAN_UNROLL\n        for (int s",
    ),
    Mistake(
        "folded-before-it-is-there",
        "strips",
        "kernels/strips.cuh",
        "stage.arrived.wait(phase(k));\n            const Turn now = stage.turn;\n            CUSCAN_NO_UNROLL",
        "stage.known.wait(phase(k));\n            const Turn now = stage.turn;\n            CUSCAN_NO_UNROLL",
    ),
    Mistake(
        "walked-before-it-is-folded",
        "strips-own",
        "kernels/strips.cuh",
        "stage.folded.wait(phase(k));\n            const Turn now = stage.turn;\n"
        "            if (!now.exists) return stage",
        "stage.arrived.wait(phase(k));\n            const Turn now = stage.turn;\n"
        "            if (!now.exists) return stage",
    ),
    Mistake("summed-too-late", "strips", "kernels/strips.cuh", "stage.summed.wait(phase(k));", ""),
    Mistake("not-waited-for-what-is-sought", "strips", "kernels/strips.cuh", "stage.sought.wait(phase(k));", ""),
    Mistake(
        "not-all-seekers-arrive",
        "strips",
        "kernels/strips.cuh",
        "stage.sought.init(kWalkers * kSeekers * target::kWarp);",
        "stage.sought.init(target::kWarp);",
    ),
    Mistake(
        "a-batch-published-with-its-first-tile",
        "strips",
        "kernels/strips.cuh",
        "now.unit % kBatch == kBatch - 1",
        "now.unit % kBatch == 0",
    ),
    Mistake(
        "every-tile-of-a-batch-starts-as-the-first",
        "strips",
        "kernels/strips.cuh",
        "tiles.push(part, units.total);",
        "",
    ),
    Mistake(
        "a-ticket-for-one-tile",
        "strips",
        "kernels/strips.cuh",
        "if (part == kBatch)",
        "if (part == 1)",
    ),
    Mistake("the-walk-does-not-wait", "strips", "tagged.cuh", "if (target::ballot(all) == ~0u) return;", "return;"),
    Mistake("a-span-is-not-passed", "strips-spans", "batches.cuh", "spans_.pass(sections_, seen_, total);", ""),
    Mistake(
        "windows-before-they-are-added-up",
        "strips",
        "batches.cuh",
        "target::barrier_sync(barrier_, kWarps * target::kWarp);",
        "",
    ),
    Mistake("windows-of-two-spans-in-one-place", "strips-spans", "batches.cuh", "turn_ ^= 1", "turn_"),
    Mistake(
        "windows-before-forgotten",
        "strips-spans",
        "batches.cuh",
        "precedes || warp_ > 0 || entry() > 0, carry",
        "precedes || entry() > 0, carry",
    ),
    Mistake(
        "stored-before-all-is-written",
        "strips",
        "kernels/strips.cuh",
        "target::sync_warp();\n            if (Config::kBulkStores && tile",
        "if (Config::kBulkStores && tile",
    ),
    Mistake(
        "held-before-it-is-there",
        "strips-held",
        "kernels/strips.cuh",
        "stage.arrived.wait(phase(k));\n            const Turn now = stage.turn;\n            if (!now.exists) return;",
        "stage.known.wait(phase(k));\n            const Turn now = stage.turn;\n            if (!now.exists) return;",
    ),
    Mistake(
        "held-until-nothing-is-known",
        "strips-held",
        "kernels/strips.cuh",
        "held, warp);\n                stage.prefixed.wait(phase(k));",
        "held, warp);",
    ),
    Mistake(
        "finished-before-it-is-walked",
        "strips-own",
        "kernels/strips.cuh",
        "if (!Config::kHolds) stage.prefixed.wait(phase(k));",
        "",
    ),
    Mistake("stage-taken-before-it-is-free", "strips-own", "kernels/strips.cuh", "stage.free.wait(phase(k) - 1);", ";"),
    Mistake(
        "whole-rows-folded-before-they-are-there",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage.arrived.expect(bytes);",
        "stage.arrived.arrive();",
    ),
    Mistake(
        "gathered-before-all-of-the-part-is-folded",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage(k + kBatch - 1).folded.wait(phase(k + kBatch - 1));",
        "",
    ),
    Mistake(
        "sought-before-the-units-are-gathered",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage(k).gathered.wait(phase(k));",
        "",
    ),
    Mistake(
        "finished-before-it-is-sought",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage.sought.wait(phase(k + i));",
        "",
    ),
    Mistake(
        "whole-rows-stored-before-they-are-finished",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "stage.finished.wait(phase(k + i));",
        "",
    ),
    Mistake(
        "whole-rows-sent-for-before-their-stage-is-free",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "if (k >= kStages) stage.free.wait(phase(k) - 1);",
        "",
    ),
    Mistake(
        "a-part-published-with-its-first-tile",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "number == kBatch - 1 && part",
        "number == 0 && part",
    ),
    Mistake(
        "a-group-without-its-last-part",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "pass(place, total_of_part(k, column));",
        "",
    ),
    Mistake(
        "all-tiles-of-a-part-begin-as-the-first",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "tiles.before(number, has_parts, parts)",
        "parts",
    ),
    Mistake(
        "every-tile-begins-a-unit",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "has_before = number % kTiles > 0 ||",
        "has_before =",
    ),
    Mistake(
        "all-shares-of-a-tile-begin-as-the-first",
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "shares.before(s, has_parts || number > 0, before)",
        "before",
    ),
    Mistake(
        "a-part-published-before-all-of-it-is-folded",
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "if (kShares > 1) target::barrier_sync<kFolding>(kFolders * target::kWarp);",
        "",
    ),
    Mistake(
        "all-units-of-a-part-begin-as-the-first",
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "units.before(i, precedes, carry)",
        "carry",
    ),
    Mistake(
        "a-part-published-with-its-last-unit-alone",
        "whole-rows-units",
        "kernels/whole_rows.cuh",
        "part = units.push(u, convert<Part>(total));",
        "part = convert<Part>(total);",
    ),
    Mistake(
        "the-units-of-two-parts-in-one-place",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "kPartsHere = (Config::kStages + Config::kBatch - 1) / Config::kBatch",
        "kPartsHere = 1",
    ),
    Mistake(
        "a-piece-stored-that-others-have-a-part-of",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "first = up(stretch.begin)",
        "first = down(stretch.begin)",
    ),
    Mistake(
        "a-piece-read-beyond-the-end-of-an-array",
        "whole-rows",
        "kernels/whole_rows.cuh",
        " && from + bytes <= geometry.span[0].end",
        "",
    ),
    Mistake(
        "the-walk-over-groups-does-not-wait",
        "whole-rows",
        "kernels/whole_rows.cuh",
        "if (target::ballot(all) == ~0u) return;",
        "return;",
    ),
    Mistake(
        "a-window-is-not-passed",
        "whole-rows-long",
        "kernels/whole_rows.cuh",
        "if (keeps_) place_.windows.pass(place_.sections, passed_, lanes.total);",
        "",
    ),
    Mistake(
        "a-window-is-not-forgotten",
        "whole-rows-long",
        "kernels/whole_rows.cuh",
        "forget(seen_[kWindows - 1]);",
        "",
    ),
    Mistake(
        "an-entry-before-forgotten",
        "whole-rows-long",
        "kernels/whole_rows.cuh",
        "precedes || entry_ > 0, carry",
        "precedes, carry",
    ),
    Mistake(
        "loaders-do-not-meet",
        "strips",
        "kernels/strips.cuh",
        "target::barrier_sync<kLoading>(kLoaders * target::kWarp);",
        "",
    ),
    Mistake(
        "blocks-of-runs-swapped",
        "strips",
        "scans.cuh",
        "Op::combine(block, total)",
        "Op::combine(total, block)",
    ),
    Mistake(
        "left-half-forgotten",
        "columns-own",
        "scans.cuh",
        "number & 1 ? join<Op>",
        "number & 1 && kLevels > 1 ? join<Op>",
    ),
    Mistake(
        "totals-of-groups-not-published",
        "columns",
        "column_chain.cuh",
        "if (group + 1 < tables_.groups)",
        "if (false)",
    ),
    Mistake(
        "the-walk-over-columns-does-not-wait",
        "columns",
        "column_chain.cuh",
        "while (target::ballot(here) != ~0u) {",
        "while (target::ballot(here) == 0) {",
    ),
    Mistake(
        "group-passed-too-early",
        "columns-own",
        "column_chain.cuh",
        "if ((number + 1) % kGroup != 0) return;",
        "if ((number + 2) % kGroup != 0) return;",
    ),
    Mistake("counter-of-another-launch", "columns", "column_chain.cuh", "uint64(ticket.tag) << 32", "uint64(0)"),
    Mistake("tags-are-not-looked-at", "tiles", "tagged.cuh", "uint32(words[i] >> 32) == tag", "true"),
    Mistake("finished-not-reset", "columns", "workspace.cuh", "        finished = 0;\n", ""),
    Mistake(
        "one-item-too-many-stored",
        "rows",
        "vectors.cuh",
        "if (i < count) *advance",
        "if (i < count || (count > 0 && i == count)) *advance",
    ),
)


def scans(family: str) -> list[tuple[Simulation, np.ndarray]]:
    """Scans with and without an initial value, and their results."""
    if family in WALKS:
        return [look_ahead(*WALKS[family], initial) for initial in (False, True)]
    if family in SUMS:
        shape, axis, gpu = SUMS[family]
        value = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
        with small_units(2, 2):
            return [(prepare(value, "add", axis=axis, target=gpu), np.cumsum(value, axis))]
    shape, axis, gpu = SHAPES[family]
    examples = [Example(shape, axis, initial=initial) for initial in (False, True)]
    if family == "tiles-misaligned":
        for example in examples:
            example.value = _misaligned(example.value)
    with small_units(2, 2):
        return [
            (
                prepare(example.value, INTERVAL, axis=axis, initial=example.initial, target=gpu),
                example.scanned(),
            )
            for example in examples
        ]


def _misaligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins 8 bytes behind a multiple of 16."""
    copy = Memory.empty(array.shape, array.strides, array.dtype, 8).array
    copy[...] = array
    return copy


def check(family: str, code: DeviceCode) -> None:
    """What each copy of the device code has to pass: scans after each other in one workspace, under many schedules."""
    planned = scans(family)
    nbytes = max(simulation.plan.workspace_bytes for simulation, _ in planned)
    for seed in range(SEEDS):
        workspace = new_workspace(nbytes, epoch=2**32 - 3 if seed == SEEDS - 3 else 0)  # tags wrap after two launches
        chosen = {"stall_odds": STALLS[seed], "stall_turns": 30_000} if seed in STALLS else {}
        for simulation, expected in 2 * planned:
            np.testing.assert_array_equal(simulation.run(seed, code=code, workspace=workspace, **chosen), expected)
            np.testing.assert_array_equal(workspace.array[::2][:2], 0)  # tickets, and blocks that are done


@pytest.mark.parametrize("family", [*SHAPES, *SUMS, *WALKS])
def test_good_code_passes(family: str) -> None:
    check(family, CHAINS_ALONE)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_noticed(mistake: Mistake) -> None:
    code = CHAINS_ALONE.broken(mistake.header, mistake.old, mistake.new)
    with pytest.raises(AssertionError) as caught:
        check(mistake.family, code)
    assert isinstance(caught.value, SimulationError) or "not equal" in str(caught.value)
