"""A discrete-event model of blocks that share a chain: how delays spread, and what a design does about it.

`python -m benchmarks.model` prints the share of copy speed that each design reaches on one long row, by the spread of
latencies. It knows of shared memory bandwidth, latencies, tickets, and that a walk ends once all earlier tiles are
published; of nothing else. It was fitted to nothing: judge it by the designs that were measured (NOTES.md).
"""

from __future__ import annotations

import functools
import heapq
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

SMS = 132
BANDWIDTH = 4.28e3  # KB a microsecond, both directions together
LATENCY, TICKET, VISIBLE = 0.9, 0.7, 0.6  # us: a load, an atomic, from a publication to who looks for it
SCAN, STORE = 0.7, 0.5  # us: a block's work on a tile of 32 KB, when no other wants the SM


@dataclass
class Event:
    """Something that happens once; who comes later does not wait."""

    happened: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)


Process = Generator["float | Event", None, None]  # yields how long to wait, or for what


@dataclass
class Design:
    """How a block works: `groups` of warps take tiles in turn from `stages` of shared memory.

    A group publishes a tile when it is scanned; `behind` tiles may wait for their walks while the
    next is scanned. `registers`: a scanned tile leaves its stage. `joined`: a barrier makes the
    publication of a tile wait for the walk of the one before, too.
    """

    name: str
    blocks_per_sm: int
    groups: int
    stages: int
    behind: int
    registers: bool = False
    joined: bool = False


DESIGNS = (
    Design("ring, look-ahead warp, 3 groups (tiles.cuh; measured: 0.95)", 1, 3, 6, 0, registers=True),
    Design("the same, 2 groups (measured: 0.65)", 1, 2, 6, 0, registers=True),
    Design("one stage, walk before the next tile (0.34)", 3, 1, 1, 0, registers=True),
    Design("one barrier for workers and walk", 2, 1, 3, 1, joined=True),
    Design("walker with barriers of its own (0.75)", 2, 1, 3, 1),
    Design("7 stages, 1 group, 4 tiles behind", 1, 1, 7, 4),
    Design("7 stages, 3 groups, 1 tile behind each", 1, 3, 7, 1),
)


class Model:
    """One launch on one long row."""

    def __init__(self, design: Design, tiles: int, walk: float, jitter: float, tile_kb: int = 32) -> None:
        self.design, self.tiles, self.walk, self.jitter, self.tile_kb = design, tiles, walk, jitter, tile_kb
        self.random = random.Random(0)
        self.now = self.memory_free = 0.0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.tickets = self.order = self.frontier = 0
        self.published = [False] * tiles
        self.walking: list[tuple[int, int, Event]] = []

    def run(self) -> float:
        """The share of copy speed."""
        for _ in range(SMS * self.design.blocks_per_sm):
            self.later(self.random.random(), self.start_block)
        while self.queue:
            self.now, _, action = heapq.heappop(self.queue)
            action()
        return self.tiles * self.tile_kb * 2 / BANDWIDTH / self.now

    # ---- time
    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.queue, (self.now + delay, self.order, action))

    def proceed(self, process: Process) -> None:
        wanted = next(process, None)
        if isinstance(wanted, Event) and not wanted.happened:
            wanted.waiting.append(lambda: self.proceed(process))
        elif wanted is not None:
            self.later(0.0 if isinstance(wanted, Event) else wanted, lambda: self.proceed(process))

    def happen(self, event: Event) -> None:
        event.happened = True
        for action in event.waiting:
            action()
        event.waiting.clear()

    def spread(self, duration: float) -> float:
        return duration * (1 + self.jitter * self.random.random())

    # ---- memory and the chain
    def transfer(self) -> float:
        self.memory_free = max(self.memory_free, self.now) + self.tile_kb / BANDWIDTH
        return self.memory_free - self.now

    def load(self) -> float:
        return self.transfer() + LATENCY * (1 + self.jitter * self.random.expovariate(1))

    def publish(self, tile: int) -> None:
        def seen() -> None:
            self.published[tile] = True
            while self.frontier < self.tiles and self.published[self.frontier]:
                self.frontier += 1
            while self.walking and self.walking[0][0] <= self.frontier:
                self.end_walk(heapq.heappop(self.walking)[2])

        self.later(VISIBLE, seen)

    def end_walk(self, event: Event) -> None:
        self.later(self.spread(self.walk), lambda: self.happen(event))

    def start_walk(self, tile: int) -> Event:
        event = Event()
        self.order += 1
        if tile <= self.frontier:
            self.end_walk(event)
        else:
            heapq.heappush(self.walking, (tile, self.order, event))
        return event

    # ---- a block
    def start_block(self) -> None:
        block = Block(self)
        self.proceed(block.send())
        for group in range(self.design.groups):
            self.proceed(block.work(group))


class Block:
    """The processes of a block: one sends for tiles, each group works on every so many of them."""

    def __init__(self, model: Model) -> None:
        self.model, self.design = model, model.design
        self.tile: dict[int, int | None] = {}
        self.arrived: dict[int, Event] = {}
        self.free = self.design.stages
        self.freed = Event()

    def arrival(self, k: int) -> Event:
        return self.arrived.setdefault(k, Event())

    def release(self) -> None:
        self.free += 1
        freed, self.freed = self.freed, Event()
        self.model.happen(freed)

    def send(self) -> Process:
        k = 0
        while True:
            while self.free == 0:
                yield self.freed
            self.free -= 1
            yield TICKET
            ticket = self.model.tickets
            self.model.tickets += 1
            if ticket >= self.model.tiles:
                for end in range(k, k + self.design.groups):
                    self.tile[end] = None
                    self.model.happen(self.arrival(end))
                return
            self.tile[k] = ticket
            self.model.later(self.model.load(), functools.partial(self.model.happen, self.arrival(k)))
            k += 1

    def work(self, group: int) -> Process:
        model, design, walks = self.model, self.design, list[Event]()
        k = group
        while True:
            yield self.arrival(k)
            tile = self.tile[k]
            if tile is not None:
                yield model.spread(SCAN)
                if design.joined and walks:
                    yield walks[-1]
                if design.registers:
                    self.release()
                model.publish(tile)
                walks.append(model.start_walk(tile))
            while walks and (len(walks) > design.behind or tile is None):
                yield walks.pop(0)
                yield model.spread(STORE)
                model.transfer()
                if not design.registers:
                    self.release()
            if tile is None:
                return
            k += design.groups


def main() -> None:
    """Print the table."""
    jitters = (0.3, 1.0, 1.8)
    for walk in (2.2, 1.0):
        print(f"a walk of {walk} us; spread of latencies: " + ", ".join(map(str, jitters)))
        for design in DESIGNS:
            shares = [Model(design, 8192, walk, jitter).run() for jitter in jitters]
            print(f"  {design.name:<50}" + "".join(f"{share:7.2f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
