"""Device code with one mistake each, put there on purpose: the simulator must notice every one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import simulator
from interval import INTERVAL, Example
from simulator import CODE, DeviceCode, Simulation, SimulationError, new_workspace, prepare, small_units

from cuscan.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

# Shape, axis and SMs. Rows are aligned, so that tiles are copied in bulk, but those of tiles-shifted.
SHAPES = {
    "rows": ((1, 101), -1, 4),
    "thread-rows": ((151, 27), -1, 4),
    "warp-rows": ((41, 123), -1, 4),
    "tiles": ((2, 70 * 256 + 4), -1, 4),
    "tiles-own": ((12, 34 * 256 + 4), -1, 1),
    "tiles-shifted": ((5, 3 * 256 + 5), -1, 4),
    "columns": ((2, 35 * 256 + 9, 5), 1, 4),
    "columns-own": ((9, 35 * 256 + 9, 5), 1, 1),
    "strips": ((37 * 256 + 8, 32), 0, 4),
    "strips-own": ((3 * 256 + 9, 96), 0, 1),
    "strips-pairs": ((69 * 256 + 10, 2), 0, 4),
}
SEEDS = 8


@dataclass(frozen=True)
class Mistake:
    """What is wrong, and what to put in the place of what in which header, for the scans of which family."""

    name: str
    family: str
    header: str
    old: str
    new: str


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
    Mistake("runs-not-turned", "warp-rows", "kernels/warp_rows.cuh", "kSteps), turn & by", "kSteps), false"),
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
        "for (int w = 1; w < Config::kWarps; ++w) all",
        "for (int w = 1; w + 1 < Config::kWarps; ++w) all",
    ),
    Mistake(
        "tiles-without-a-barrier",
        "tiles",
        "kernels/tiles.cuh",
        "target::barrier_sync<kWorkersMeet>(Layout::kWorkers);\n            if (leader) lead",
        "if (leader) lead",
    ),
    Mistake(
        "workers-do-not-wait-for-the-walker",
        "tiles",
        "kernels/tiles.cuh",
        "sync<kPrefixed>(k - 1);",
        "arrive<kPrefixed>(k - 1);",
    ),
    Mistake(
        "the-walker-does-not-wait-for-workers",
        "tiles-own",
        "kernels/tiles.cuh",
        "sync<kScanned>(k);",
        "arrive<kScanned>(k);",
    ),
    Mistake(
        "one-ticket-too-few",
        "tiles",
        "kernels/tiles.cuh",
        "shared.ticket[(k + 1) % kStages] = next_ticket;",
        "shared.ticket[k % kStages] = next_ticket;",
    ),
    Mistake("one-stage-too-few", "tiles", "kernels/tiles.cuh", "shared.stage[k % kStages]", "shared.stage[k % 2]"),
    Mistake(
        "nobody-waits-for-the-bulk-copy",
        "tiles",
        "kernels/tiles.cuh",
        "stage(k).wait(sent >> k % kStages);",
        "",
    ),
    Mistake(
        "what-ends-beyond-an-array-sent-for",
        "tiles-shifted",
        "stage.cuh",
        " && from + pieces.bytes <= geometry.span[kArray].end",
        "",
    ),
    Mistake("shifted-tiles-read-as-if-aligned", "tiles-shifted", "stage.cuh", "if (sent) item", "if (false) item"),
    Mistake("first-piece-stored-whole", "tiles-shifted", "shifted.cuh", "if (!begins) store_whole", "store_whole"),
    Mistake("last-piece-not-stored", "tiles-shifted", "shifted.cuh", "? begins : ends", "? begins : false"),
    Mistake(
        "pieces-of-one-vector-alone",
        "tiles-shifted",
        "shifted.cuh",
        "lane == target::kWarp - 1 ? before.item[kEdge] : own.item[kEdge]",
        "own.item[kEdge]",
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
        "stage.arrived.wait(phase(k));\n            const Turn now = stage.turn;\n            if",
        "stage.known.wait(phase(k));\n            const Turn now = stage.turn;\n            if",
    ),
    Mistake(
        "walked-before-it-is-folded",
        "strips-own",
        "kernels/strips.cuh",
        "stage.folded.wait(phase(k));\n            const Turn now = stage.turn;\n            if (!now",
        "stage.arrived.wait(phase(k));\n            const Turn now = stage.turn;\n            if (!now",
    ),
    Mistake("summed-too-late", "strips", "kernels/strips.cuh", "stage.summed.wait(phase(k));", ""),
    Mistake("finished-before-it-is-walked", "strips-own", "kernels/strips.cuh", "stage.prefixed.wait(phase(k));", ""),
    Mistake("stage-taken-before-it-is-free", "strips-own", "kernels/strips.cuh", "stage.free.wait(phase(k) - 1);", ";"),
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
        "Op::combine(block[level], total)",
        "Op::combine(total, block[level])",
    ),
    Mistake(
        "left-half-forgotten",
        "columns-own",
        "scans.cuh",
        "level = kLevels - 1; level >= 0",
        "level = kLevels - 2; level >= 0",
    ),
    Mistake(
        "totals-of-groups-not-published",
        "strips-pairs",
        "column_chain.cuh",
        "if (lane() < kColumns && group + 1 < tables.groups)",
        "if (false)",
    ),
    Mistake(
        "the-walk-over-columns-does-not-wait",
        "strips",
        "column_chain.cuh",
        "while (target::ballot(here) != ~0u) {",
        "while (target::ballot(here) == 0) {",
    ),
    Mistake(
        "group-passed-too-early",
        "columns-own",
        "column_chain.cuh",
        "(unit + 1) % kGroupUnits == 0",
        "(unit + 2) % kGroupUnits == 0",
    ),
    Mistake("counter-of-another-launch", "strips", "column_chain.cuh", "uint64(workspace->tag()) << 32", "uint64(0)"),
    Mistake(
        "group-ended-too-early",
        "tiles-own",
        "block_chain.cuh",
        "place == kLanes - 1) end_group",
        "place == kLanes - 2) end_group",
    ),
    Mistake("group-before-forgotten", "tiles-own", "block_chain.cuh", "group > 0) fold", "group > 1) fold"),
    Mistake("unit-not-remembered", "tiles-own", "block_chain.cuh", "if (lane >= place)", "if (lane > place)"),
    Mistake(
        "the-walk-does-not-wait-for-all",
        "tiles",
        "grid_chain.cuh",
        "while (target::ballot(units_here) != ~0u) {",
        "while (target::ballot(units_here) == 0) {",
    ),
    Mistake("tags-are-not-looked-at", "columns", "chain_tables.cuh", "uint32(words[i] >> 32) == tag", "true"),
    Mistake(
        "lanes-part-in-the-walk",
        "tiles",
        "grid_chain.cuh",
        "while (target::ballot(units_here) != ~0u) {",
        "while (lane != 0 && target::ballot(units_here) != ~0u) {",
    ),
    Mistake(
        "group-totals-not-published", "tiles", "grid_chain.cuh", "if (ends_group) publish_all", "if (false) publish_all"
    ),
    Mistake("ticket-not-reset", "tiles", "workspace.cuh", "        ticket = 0;\n", ""),
    Mistake("finished-not-reset", "columns", "workspace.cuh", "        finished = 0;\n", ""),
    Mistake("tag-not-changed", "tiles", "workspace.cuh", "epoch = tag_now;", ""),
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
    shape, axis, sms = SHAPES[family]
    examples = [Example(shape, axis, initial=initial) for initial in (False, True)]
    with small_units(2, 2):
        return [
            (
                prepare(example.value, INTERVAL, axis=axis, initial=example.initial, target=Target(90, sms)),
                example.scanned(),
            )
            for example in examples
        ]


def check(family: str, code: DeviceCode) -> None:
    """What each copy of the device code has to pass: scans after each other in one workspace, under many schedules."""
    planned = scans(family)
    nbytes = max(simulation.plan.workspace_bytes for simulation, _ in planned)
    for seed in range(SEEDS):
        workspace = new_workspace(nbytes)
        for simulation, expected in 2 * planned:
            np.testing.assert_array_equal(simulation.run(seed, code=code, workspace=workspace), expected)


@pytest.mark.parametrize("family", SHAPES)
def test_good_code_passes(family: str) -> None:
    check(family, CODE)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_noticed(mistake: Mistake) -> None:
    code = CODE.broken(mistake.header, mistake.old, mistake.new)
    with pytest.raises(AssertionError) as caught:
        check(mistake.family, code)
    assert isinstance(caught.value, SimulationError) or "not equal" in str(caught.value)
