// A tile's values, from the time it is sent for until its result is stored. On hardware that copies in bulk they wait in
// shared memory: where the layout allows it (Config::kStaged) one thread sends for whole tiles ahead of time, others are
// put there by the threads that will need them. Each thread reads back only what is its own, so that takes no barrier.
// On older hardware there is no stage, and the threads keep the elements in registers; so they do with a value that is the
// same for all elements.
#pragma once
#include "vectors.cuh"

namespace cuscan {

template <class Config, int kElements>
struct Stage {
    static constexpr bool kShared = target::kHasBulkCopy;
    static constexpr bool kBulk = Config::kStaged && kShared;
    using Place = Row<Config>;

    template <class Port>
    static CUSCAN_DEVICE constexpr bool holds() {
        return kShared && Port::kAccess != Access::kUniform;
    }
    // The elements keep their order in memory, as a bulk copy leaves them.
    template <class Port>
    static CUSCAN_DEVICE constexpr Access access() {
        return Port::kAccess == Access::kMirrored ? Access::kMirrored : Access::kVector;
    }
    template <class Port>
    struct Buffer {
        alignas(16) typename Port::Type item[holds<Port>() ? kElements : 1];
    };
    Pack<Buffer, typename Config::Values> values;
    target::BulkBarrier barrier;

    // ---- one thread
    CUSCAN_DEVICE void init() {
        if constexpr (kBulk) barrier.init();
    }
    // The tile whose first element in scan order is at position `first` of the row.
    CUSCAN_DEVICE void send_for(const Place& row, int64 first) {
        if constexpr (kBulk) {
            uint32 bytes = 0;
            for_each_value<Config>([&](auto k, auto port) {
                if constexpr (holds<decltype(port)>()) bytes += sizeof(values.at(k).item);
            });
            barrier.expect(bytes);
            for_each_value<Config>([&](auto k, auto port) {
                using Port = decltype(port);
                if constexpr (holds<Port>()) {
                    const auto* item = (const typename Port::Type*)row.array[decltype(k)::value];
                    const auto* lowest = access<Port>() == Access::kMirrored ? item - first - (kElements - 1) : item + first;
                    barrier.load(values.at(k).item, lowest, sizeof(values.at(k).item));
                }
            });
        }
    }

    // ---- all threads
    // Whether a tile is sent for, with so many elements of its row from its start on.
    static CUSCAN_DEVICE bool takes(int64 elements) { return kBulk && elements >= kElements; }
    CUSCAN_DEVICE void wait(uint32 load) {
        if constexpr (kBulk) barrier.wait(load);
    }
    // The element of a value at scan position `index` of the tile.
    template <class Index, class Port>
    CUSCAN_DEVICE typename Port::Type* value(Index k, Port, int index) {
        auto& item = values.at(k).item;
        return advance<access<Port>()>(access<Port>() == Access::kMirrored ? item + (kElements - 1) : item, 0, index);
    }
};

}  // namespace cuscan
