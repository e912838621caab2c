// A tile's values, from the time it is sent for until its result is stored. On hardware that copies in bulk they wait in
// shared memory: where the layout allows it (Config::kStaged) one thread sends for tiles ahead of time, others are put
// there by the threads that will need them. On older hardware there is no stage, and the threads keep the elements in
// registers; so they do with a value that is the same for all elements.
//
// Tiles of aligned rows are sent for if they are whole. Those of shifted rows (Access::kShifted) come with the rest of the
// 16-byte pieces that they begin and end in, if that lies in the array too, whole or not. What is there beside the tile's
// own elements may be old or new, or nothing at all, and is never used. Shifted elements lie in the stage as far beyond a
// multiple of 16 bytes as in memory if they were sent for, and aligned if threads put them there; a thread reads pieces
// that others have put there, between the barriers that keep a stage from being filled while it is read.
#pragma once
#include "shifted.cuh"

namespace cuscan {

template <class Config, int kElements>
struct Stage {
    static constexpr bool kShared = target::kHasBulkCopy;
    static constexpr bool kBulk = Config::kStaged && kShared;
    static constexpr bool kShifted = Config::Values::kAnyShifted && kBulk;  // then all values are that it holds
    static constexpr int kBytes = 16;                                       // of a piece of a bulk copy
    using Place = Row<Config>;
    using Shape = Geometry<Config>;

    template <class Port>
    static CUSCAN_DEVICE constexpr bool holds() {
        return kShared && Port::kAccess != Access::kUniform;
    }
    // The elements keep their order in memory, as a bulk copy leaves them.
    template <class Port>
    static CUSCAN_DEVICE constexpr Access access() {
        return is_mirrored(Port::kAccess) ? Access::kMirrored : Access::kVector;
    }
    template <class Port>
    struct Buffer {
        using Element = typename Port::Type;
        alignas(kBytes) Element item[holds<Port>() ? kElements + (kShifted ? kBytes / sizeof(Element) : 0) : 1];
    };
    Pack<Buffer, typename Config::Values> values;
    target::BulkBarrier barrier;

    // The pieces that some elements of a tile lie in: the first `count` from position `first` of a row on.
    template <class Port>
    struct Pieces {
        using Element = typename Port::Type;
        const char* from;
        int place;  // in the stage, bytes
        int bytes;

        CUSCAN_DEVICE Pieces(const char* row, int64 first, int count) {
            constexpr bool kMirrored = is_mirrored(Port::kAccess);
            constexpr int kSize = sizeof(Element);
            const char* lowest = row + (kMirrored ? -(first + kElements - 1) : first) * kSize;  // of the tile, were it whole
            const int begin = shift<Port>(row) + (kMirrored ? kElements - count : 0) * kSize;
            place = begin / kBytes * kBytes;
            bytes = (begin + count * kSize + kBytes - 1) / kBytes * kBytes - place;
            from = lowest - shift<Port>(row) + place;
        }
    };

    // ---- one thread
    CUSCAN_DEVICE void init() {
        if constexpr (kBulk) barrier.init();
    }
    // The tile whose first element in scan order is at position `first` of the row.
    CUSCAN_DEVICE void send_for(const Place& row, const Shape& geometry, int64 first) {
        if constexpr (kShifted) {
            const int count = clamp(geometry.elements() - first, kElements);
            uint32 bytes = 0;
            for_each_value<Config>([&](auto k, auto port) {
                using Port = decltype(port);
                if constexpr (holds<Port>()) bytes += Pieces<Port>(row.array[decltype(k)::value], first, count).bytes;
            });
            barrier.expect(bytes);
            for_each_value<Config>([&](auto k, auto port) {
                using Port = decltype(port);
                if constexpr (holds<Port>()) {
                    const Pieces<Port> pieces(row.array[decltype(k)::value], first, count);
                    barrier.load((char*)values.at(k).item + pieces.place, pieces.from, pieces.bytes);
                }
            });
        } else if constexpr (kBulk) {
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
    // The same for shifted rows: the tile that begins at position `first` of `row`; `origin` is row 0.
    static CUSCAN_DEVICE bool takes_shifted(const Place& origin, const Place& row, const Shape& geometry, int64 first) {
        const int64 elements = geometry.elements() - first;
        bool inside = elements > 0;
        for_each_value<Config>([&](auto k, auto port) {
            using Port = decltype(port);
            constexpr int kArray = decltype(k)::value;
            if constexpr (holds<Port>()) {
                const Pieces<Port> pieces(row.array[kArray], first, clamp(elements, kElements));
                const int64 from = pieces.from - origin.array[kArray];
                inside = inside && from >= geometry.span[kArray].lowest && from + pieces.bytes <= geometry.span[kArray].end;
            }
        });
        return inside;
    }
    CUSCAN_DEVICE void wait(uint32 load) {
        if constexpr (kBulk) barrier.wait(load);
    }
    // The element of a value at scan position `index` of a tile of `row`, which was sent for or not.
    template <class Index, class Port>
    CUSCAN_DEVICE typename Port::Type* value(Index k, Port, int index, const Place& row, bool sent) {
        auto* item = values.at(k).item;
        if constexpr (kShifted)
            if (sent) item += shift<Port>(row.array[Index::value]) / int(sizeof(*item));
        return advance<access<Port>()>(access<Port>() == Access::kMirrored ? item + (kElements - 1) : item, 0, index);
    }

private:
    // Bytes from a multiple of 16 to a tile's lowest address; tiles of one row have one.
    template <class Port>
    static CUSCAN_DEVICE int shift(const char* row) {
        static_assert(kElements * sizeof(typename Port::Type) % kBytes == 0, "tiles are whole pieces, were they aligned");
        const char* lowest = is_mirrored(Port::kAccess) ? row + sizeof(typename Port::Type) : row;
        return int(reinterpret_cast<uint64>(lowest) % kBytes);
    }
};

}  // namespace cuscan
