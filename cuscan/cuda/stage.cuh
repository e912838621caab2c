// A tile's values, from the time it is sent for until its result is stored. On hardware that copies in bulk they wait in
// shared memory: where the layout allows it (Config::kStaged) one thread sends for whole tiles ahead of time, others are
// put there by the threads that will need them. Each thread reads back only what is its own, so that takes no barrier.
// On older hardware there is no stage, and the threads keep the elements in registers.
#pragma once
#include "vectors.cuh"

namespace cuscan {

template <class Config, int kElements>
struct Stage {
    using Value = typename Config::Value;
    using Place = Row<Value, typename Config::Result>;
    static constexpr bool kShared = target::kHasBulkCopy;
    static constexpr bool kBulk = Config::kStaged && kShared;
    // The elements keep their order in memory, as a bulk copy leaves them.
    static constexpr Access kAccess = Config::kValueAccess == Access::kMirrored ? Access::kMirrored : Access::kVector;

    alignas(16) Value values[kShared ? kElements : 1];
    target::BulkBarrier barrier;

    // ---- one thread
    CUSCAN_DEVICE void init() {
        if constexpr (kBulk) barrier.init();
    }
    // The tile whose first element in scan order is at position `first` of the row.
    CUSCAN_DEVICE void send_for(const Place& row, int64 first) {
        if constexpr (kBulk) {
            const Value* lowest = kAccess == Access::kMirrored ? row.value - first - (kElements - 1) : row.value + first;
            barrier.expect(sizeof(values));
            barrier.load(values, lowest, sizeof(values));
        }
    }

    // ---- all threads
    // Whether a tile is sent for, with so many elements of its row from its start on.
    static CUSCAN_DEVICE bool takes(int64 elements) { return kBulk && elements >= kElements; }
    CUSCAN_DEVICE void wait(uint32 load) {
        if constexpr (kBulk) barrier.wait(load);
    }
    // The element at scan position `index` of the tile.
    CUSCAN_DEVICE Value* value(int index) {
        return advance<kAccess>(kAccess == Access::kMirrored ? values + (kElements - 1) : values, 0, index);
    }
};

}  // namespace cuscan
