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
    "columns": ((35 * 256 + 9, 6), 0, 4),
    "columns-own": ((9, 35 * 256 + 9, 5), 1, 1),
    "narrow": ((69 * 256 + 10, 2), 0, 4),
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
        "target::sync_block();\n            scan_chunks(now);\n            target::sync_block();",
        "scan_chunks(now);\n            target::sync_block();",
    ),
    Mistake(
        "own-columns-without-the-second-barrier",
        "columns-own",
        "kernels/columns.cuh",
        "scan_chunks(now);\n            target::sync_block();",
        "scan_chunks(now);",
    ),
    Mistake(
        "shared-columns-without-the-first-barrier",
        "columns",
        "kernels/columns.cuh",
        "target::sync_block();\n            scan_chunks(now);\n            if (leader)",
        "scan_chunks(now);\n            if (leader)",
    ),
    Mistake(
        "shared-columns-without-the-second-barrier",
        "columns",
        "kernels/columns.cuh",
        "->ticket);\n            target::sync_block();",
        "->ticket);",
    ),
    Mistake(
        "columns-twisted-one-way-only",
        "narrow",
        "flat_tile.cuh",
        "turn(vector, twist);\n        CUSCAN_UNROLL\n        for (int s",
        "CUSCAN_UNROLL\n        for (int s",
    ),
    Mistake(
        "chunks-scanned-before-they-are-folded",
        "narrow",
        "kernels/narrow.cuh",
        "target::barrier_sync<kWorkersMeet>(Layout::kWorkers);\n            if (leader && next.exists) begin",
        "if (leader && next.exists) begin",
    ),
    Mistake(
        "results-leave-before-they-are-found",
        "narrow",
        "kernels/narrow.cuh",
        "target::barrier_sync<kWorkersMeet>(Layout::kWorkers);\n            if (last.exists) last_tile.store",
        "if (last.exists) last_tile.store",
    ),
    Mistake(
        "narrow-workers-do-not-wait-for-walkers",
        "narrow",
        "kernels/narrow.cuh",
        "sync<kPrefixed>(k - 1);",
        "arrive<kPrefixed>(k - 1);",
    ),
    Mistake(
        "one-stage-too-few-for-narrow-tiles",
        "narrow",
        "kernels/narrow.cuh",
        "return shared.values[k % kStages]",
        "return shared.values[k % 2]",
    ),
    Mistake(
        "units-of-a-run-mixed-up",
        "narrow",
        "grid_chain.cuh",
        "lane < place ? aggregate[c]",
        "lane <= place ? aggregate[c]",
    ),
    Mistake("group-that-ends-with-a-run-missed", "narrow", "grid_chain.cuh", "kLanes - kRun &&", "kLanes - 1 &&"),
    Mistake(
        "group-ended-too-early",
        "tiles-own",
        "block_chain.cuh",
        "place == kLanes - 1) end_group",
        "place == kLanes - 2) end_group",
    ),
    Mistake("group-before-forgotten", "columns-own", "block_chain.cuh", "group > 0) fold", "group > 1) fold"),
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
