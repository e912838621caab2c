// The barriers between the workers of a block and its walkers, who are a tile apart. Two take turns where one tile's may
// still be in use when the next one's is.
#pragma once
#include "target.cuh"

namespace cuscan {

enum PipelineBarrier : int {
    kWorkersMeet = 1,
    kScanned = 2,   // and 3: the workers tell the walkers that a tile is scanned in itself
    kPrefixed = 4,  // and 5: the walkers tell the workers what precedes it
};

// For kThreads, workers and walkers; `k` is the number of the tile.
template <int kThreads>
struct Pipeline {
    template <int kBarrier>
    static CUSCAN_DEVICE void sync(uint32 k) {
        if (k % 2 == 0)
            target::barrier_sync<kBarrier>(kThreads);
        else
            target::barrier_sync<kBarrier + 1>(kThreads);
    }
    template <int kBarrier>
    static CUSCAN_DEVICE void arrive(uint32 k) {
        if (k % 2 == 0)
            target::barrier_arrive<kBarrier>(kThreads);
        else
            target::barrier_arrive<kBarrier + 1>(kThreads);
    }
};

}  // namespace cuscan
