"""Timing on the current GPU. Importing this module imports CuPy."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence

import cupy

from cuscan.bench import gather
from cuscan.bench.layouts import touched_bytes
from cuscan.bench.machine import Array, Run, Yardstick
from cuscan.bench.timing import BUDGET_SECONDS, Timing, in_turn, sample
from cuscan.planning.config import Target

BLOCK = 256
COLD_CACHES = 4  # times that the rotating buffers fill the L2 cache
MAX_TURNS = 256
WORK_BYTES = 128 << 20  # copied as other work
MOST_HELD = 0.01  # seconds that the GPU waits at most for the host to queue a run
REPLAYED = 32  # runs in one graph
MOST_COPIED = 8 << 30  # bytes; the speed of larger copies is constant, so their time is extrapolated

# 16 bytes per thread, one vector per thread, the whole grid at once: no other copy measured here is faster.
_COPY = r"""
extern "C" __global__ void cuscan_bench_copy(const uint4* source, uint4* target, long long vectors) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < vectors) target[i] = source[i];
}
"""

# Enough loads in flight. The sum is stored only if it equals the argument `wanted`, so that no load is optimised away.
_READ_VECTORS = 8
_READ = r"""
extern "C" __global__ void cuscan_bench_read(const uint4* source, uint4* target, long long vectors, unsigned wanted) {
    const long long first = (long long)blockIdx.x * blockDim.x * VECTORS + threadIdx.x;
    uint4 seen[VECTORS];
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        const long long i = first + (long long)k * blockDim.x;
        seen[k] = source[i < vectors ? i : first];
    }
    unsigned sum = 0;
    #pragma unroll
    for (int k = 0; k < VECTORS; ++k) sum += seen[k].x ^ seen[k].y ^ seen[k].z ^ seen[k].w;
    if (sum == wanted) target[threadIdx.x] = seen[0];
}
""".replace("VECTORS", str(_READ_VECTORS))

# Keeps the stream busy while the host queues the runs that follow, so that their time is GPU time alone.
_HOLD = r"""
extern "C" __global__ void cuscan_bench_hold(long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while ((long long)(now - start) < nanoseconds);
}
"""

# A multiplicative hash of the index. CuPy's own random numbers need cuRAND, which its wheels do not include.
_UNIFORM = """
unsigned long long h = (seed + i + 1) * 0x9E3779B97F4A7C15ull;
h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9ull;
u = float((h ^ (h >> 32)) >> 40 & 0xFFFFFF) / 16777216.0f;
"""


class Gpu:
    """The current GPU; see `machine.Machine`."""

    xp = cupy

    def __init__(self) -> None:
        self._copy = cupy.RawKernel(_COPY, "cuscan_bench_copy")
        self._hold = cupy.RawKernel(_HOLD, "cuscan_bench_hold")
        self._read = cupy.RawKernel(_READ, "cuscan_bench_read")
        self._uniform = cupy.ElementwiseKernel("uint64 seed", "float32 u", _UNIFORM, "cuscan_bench_uniform")
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
        self._cache_bytes = int(properties["l2CacheSize"])
        self._work = self.yardstick(2 * WORK_BYTES).run
        self.target = Target(
            10 * properties["major"] + properties["minor"],
            properties["multiProcessorCount"],
            cupy.cuda.Device().attributes["MaxSharedMemoryPerMultiprocessor"],
        )

    def uniform(self, count: int, seed: int) -> Array:
        return self._uniform(cupy.uint64(seed), cupy.empty(count, cupy.float32))

    def time(self, runs: Sequence[Run], budget: float = BUDGET_SECONDS) -> Timing:
        turn = itertools.cycle(runs)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        queueing = 0.0  # seconds that the host takes to queue one run

        def once(launches: int) -> float:
            nonlocal queueing
            self._hold((1,), (1,), (int(1.5e9 * queueing * launches) + 10_000,))
            start = time.perf_counter()
            begin.record()
            for _ in range(launches):
                next(turn)()
            end.record()
            queueing = (time.perf_counter() - start) / launches
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3 / launches

        self.synchronize()
        start = time.perf_counter()
        next(turn)()
        self.synchronize()
        return sample(time.perf_counter() - start, once, next(turn), budget)

    def after_work(self, runs: Sequence[Run], budget: float = BUDGET_SECONDS) -> list[Timing]:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        queueing = dict.fromkeys(runs, 0.0)  # seconds that the host takes to queue a run

        def once(run: Run) -> float:
            self._hold((1,), (1,), (int(1.5e9 * min(queueing[run], MOST_HELD)) + 10_000,))
            self._work()
            start = time.perf_counter()
            begin.record()
            run()
            end.record()
            queueing[run] = time.perf_counter() - start
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3

        for run in (self._work, *runs):  # compile and load before the timed calls
            run()
        self.synchronize()
        return in_turn(runs, once, budget)

    def replay(self, run: Run, *, by_torch: bool = False) -> Timing:
        run()
        self.synchronize()
        return self.time([_captured_by_torch(run) if by_torch else _captured(run)]).divided(REPLAYED)

    def yardstick(self, nbytes: int) -> Yardstick:
        moved = min(nbytes, MOST_COPIED)
        vectors = max(moved // 32, 1)
        source, target = cupy.zeros((2, vectors * 16), cupy.uint8)
        grid = (-(-vectors // BLOCK),)
        return Yardstick(lambda: self._copy(grid, (BLOCK,), (source, target, vectors)), nbytes / max(moved, 1))

    def read(self, arrays: Sequence[Array]) -> Yardstick:
        target = cupy.empty(BLOCK * 16, cupy.uint8)

        def run() -> None:
            for array in arrays:
                vectors = array.nbytes // 16
                grid = (-(-vectors // (BLOCK * _READ_VECTORS)),)
                self._read(grid, (BLOCK,), (array, target, vectors, cupy.uint32(0x9E3779B9)))

        return Yardstick(run)

    def gather(self, view: Array, nbytes: int) -> Yardstick:
        pieces = gather.pieces_of(view.shape, view.strides, view.dtype.itemsize, view.data.ptr)
        kernel = cupy.RawKernel(pieces.source, "cuscan_bench_gather")
        target = cupy.empty(view.nbytes, cupy.uint8)
        source = cupy.ndarray((1,), cupy.uint8, view.data)
        factor = nbytes / (touched_bytes(view) + view.nbytes)
        return Yardstick(lambda: kernel((pieces.grid,), (gather.BLOCK,), (source, target)), factor)

    def copy(self, nbytes: int, *, replayed: bool = False) -> Timing:
        if replayed:
            return self.replay(self.yardstick(nbytes).run)
        turns = [self.yardstick(nbytes) for _ in range(self.turns(min(nbytes, MOST_COPIED)))]
        return self.time([turn.run for turn in turns]).scaled(turns[0].factor)

    def turns(self, nbytes: int) -> int:
        return min(max(-(-COLD_CACHES * self._cache_bytes // max(nbytes, 1)), 1), MAX_TURNS)

    def synchronize(self) -> None:
        cupy.cuda.Device().synchronize()

    def release(self) -> None:
        cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()

    def free_bytes(self) -> int:
        return int(cupy.cuda.Device().mem_info[0])


def _captured(run: Run) -> Run:
    """Return a graph of many runs that queue on CuPy's current stream."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        run()
        stream.synchronize()
        stream.begin_capture()
        try:
            for _ in range(REPLAYED):
                run()
        finally:
            graph = stream.end_capture()
    launch: Run = graph.launch
    return launch


def _captured_by_torch(run: Run) -> Run:
    """Return a graph of many runs that queue on torch's current stream and allocate from its pool."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPLAYED):
            run()
    replay: Run = graph.replay
    return replay
