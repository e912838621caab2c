// What a tile is read from, array by array: a stage in shared memory that a warp has filled ahead of time, where the
// hardware copies in bulk and the layout allows it (Port::kSent), or else global memory.
//
// A stage holds the 16-byte pieces that the elements of a tile lie in. Where not all of these lie in the array, threads put
// the elements there one by one. Aligned rows fill them, and the elements of shifted rows (Access::kShifted) lie in the
// stage as far beyond a multiple of kShiftedFrom as in memory. Where shifted results take the place of the first value, each
// warp has its share of that to itself, with the pieces at either end, so that none reads where another writes. What is
// there beside the tile's own elements may be old or new, or nothing at all; no result that is stored depends on it.
#pragma once
#include "shifted.cuh"

namespace cuscan {

// Where arrays lie in a stage: kElements of each that is sent for, of those from kFrom to kTo, one after the other; kShare
// of them are a warp's.
template <class Config, int kElements, int kShare, int kFrom, int kTo>
struct StageLayout {
    static constexpr int kPiece = 16;  // bytes

    // Elements that lie together, and the bytes that they have. Results that are shifted take the place of the first value.
    template <int kArray>
    static constexpr int kTogether =
        kArray == 0 && is_shifted(PortOfArray<Config, Arrays<Config>::kResults>::kAccess) ? kShare : kElements;
    template <int kArray>
    static constexpr int kRoom =
        kTogether<kArray> * int(sizeof(typename PortOfArray<Config, kArray>::Type)) +
        is_shifted(PortOfArray<Config, kArray>::kAccess) * kShiftedFrom<PortOfArray<Config, kArray>>;

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        return target::kHasBulkCopy && kArray >= kFrom && kArray < kTo && PortOfArray<Config, kArray>::kSent;
    }
    template <int kArray>
    static CUSCAN_DEVICE constexpr int offset() {
        if constexpr (kArray <= kFrom) {
            return 0;
        } else {
            constexpr int kBefore = kArray - 1;
            return offset<kBefore>() + holds<kBefore>() * (kElements / kTogether<kBefore> * kRoom<kBefore>);
        }
    }
};

template <class Config, int kElements, int kShare, int kFrom, int kTo>
struct Stage {
    using Layout = StageLayout<Config, kElements, kShare, kFrom, kTo>;
    static constexpr int kPiece = Layout::kPiece;
    static constexpr int kBytes = Layout::template offset<kTo>();
    static constexpr bool kAny = kBytes > 0;
    using Place = Row<Config>;
    using Shape = Geometry<Config>;

    alignas(kPiece) char data[kAny ? kBytes : kPiece];

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        return Layout::template holds<kArray>();
    }
    // Of the tile whose first element in scan order is at position `first` of `row`; `origin` is row 0.
    static CUSCAN_DEVICE bool can_be_filled(const Place& origin, const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        bool inside = count > 0;
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            const Tile<kArray> tile(row.array[kArray], first, count);
            const auto lies_inside = [&](int part) {
                const auto pieces = tile.pieces(part);
                const int64 from = pieces.from - origin.array[kArray];
                return from >= geometry.span[kArray].lowest && from + pieces.bytes <= geometry.span[kArray].end;
            };
            inside = inside && lies_inside(0) && (tile.parts() == 1 || lies_inside(tile.parts() - 1));
        });
        return inside;
    }
    static CUSCAN_DEVICE uint32 bytes(const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        uint32 bytes = 0;
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            const Tile<kArray> tile(row.array[kArray], first, count);
            const int last = tile.parts() - 1;  // all others are alike
            bytes += last * tile.pieces(0).bytes + tile.pieces(last).bytes;
        });
        return bytes;
    }
    // By a warp, a part by each lane. The barrier expects the bytes.
    CUSCAN_DEVICE void fill(target::Barrier& barrier, const Place& row, const Shape& geometry, int64 first, int lane) {
        const int count = clamp(geometry.elements() - first, kElements);
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            const Tile<kArray> tile(row.array[kArray], first, count);
            if (lane >= tile.parts()) return;
            const auto pieces = tile.pieces(lane);
            char* const to = place<kArray>(lane) + pieces.place;
            barrier.load(to, pieces.from, pieces.bytes);
        });
    }

    // By a warp: the `count` elements from `start` on of the tile that begins at position `first` of the row.
    CUSCAN_DEVICE void fill_one_by_one(const Place& row, const Shape& geometry, int64 first, int start, int count,
                                       int lane) {
        const int end = clamp(geometry.elements() - first, start + count);
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            using Port = PortOfArray<Config, kArray>;
            const auto* item = (const typename Port::Type*)row.array[kArray];
            for (int i = start + lane; i < end; i += target::kWarp)
                *element<kArray>(row, start, i - start) =
                    *advance<Port::kAccess>(item, geometry.axis.stride[kArray], first + i);
        });
    }

    // The element of an array `index` places in scan order from the beginning of a warp's part, which is `start` elements
    // into the tile.
    template <int kArray>
    CUSCAN_DEVICE auto* element(const Place& row, int start, int index) {
        using Port = PortOfArray<Config, kArray>;
        using Item = typename Port::Type;
        constexpr int kTogether = Layout::template kTogether<kArray>;
        constexpr bool kInShares = kTogether < kElements;
        Item* item = reinterpret_cast<Item*>(place<kArray>(kInShares ? start / kTogether : 0));
        if constexpr (is_shifted(Port::kAccess)) item += shift<Port>(row.array[kArray]) / int(sizeof(Item));
        const int at = kInShares ? index : start + index;
        return is_mirrored(Port::kAccess) ? item + (kTogether - 1 - at) : item + at;
    }
    // The share of an array that begins `start` elements into the tile: its room, a multiple of pieces.
    template <int kArray>
    CUSCAN_DEVICE char* share(int start) {
        static_assert(Layout::template kTogether<kArray> == kShare, "no other array has shares");
        return place<kArray>(start / kShare);
    }

private:
    template <int kArray = kFrom, class Visit>
    static CUSCAN_DEVICE void for_each_array(Visit&& visit) {
        if constexpr (kArray < kTo) {
            if constexpr (holds<kArray>()) visit(Number<kArray>());
            for_each_array<kArray + 1>(visit);
        }
    }

    // Bytes from a multiple of kShiftedFrom, or of a piece, to a tile's lowest address; tiles of one row have one.
    template <class Port>
    static CUSCAN_DEVICE int shift(const char* row) {
        const char* lowest = is_mirrored(Port::kAccess) ? row + sizeof(typename Port::Type) : row;
        return int(reinterpret_cast<uint64>(lowest) % (is_shifted(Port::kAccess) ? kShiftedFrom<Port> : kPiece));
    }

    // Where a part of an array's tile begins: what lies together.
    template <int kArray>
    CUSCAN_DEVICE char* place(int part) {
        return data + Layout::template offset<kArray>() + part * Layout::template kRoom<kArray>;
    }

    struct Pieces {
        const char* from;
        int place;  // in the part, bytes
        int bytes;
    };
    // A tile in memory: the first `count` elements from position `first` of a row on, in parts that lie together in a stage.
    template <int kArray>
    struct Tile {
        using Port = PortOfArray<Config, kArray>;
        static constexpr bool kMirrored = is_mirrored(Port::kAccess);
        static constexpr int kSize = sizeof(typename Port::Type), kPart = Layout::template kTogether<kArray>;
        static_assert(kPart * kSize % kPiece == 0, "parts are whole pieces, were they aligned");
        static_assert(kElements / kPart <= target::kWarp, "a lane for each part");
        const char* row;
        const int64 first;
        const int count;

        CUSCAN_DEVICE Tile(const char* row, int64 first, int count) : row(row), first(first), count(count) {}
        CUSCAN_DEVICE int parts() const { return kPart == kElements ? 1 : (count + kPart - 1) / kPart; }
        // Those that a part's elements lie in.
        CUSCAN_DEVICE Pieces pieces(int part) const {
            const int64 start = first + part * kPart;
            const int elements = clamp(count - part * kPart, kPart);
            const char* lowest = row + (kMirrored ? -(start + kPart - 1) : start) * kSize;  // of the part, were it whole
            const int begin = shift<Port>(row) + (kMirrored ? kPart - elements : 0) * kSize;
            const int place = begin / kPiece * kPiece;
            const int bytes = (begin + elements * kSize + kPiece - 1) / kPiece * kPiece - place;
            return {lowest - shift<Port>(row) + place, place, bytes};
        }
    };
};

// A warp's part of a tile, which begins `start` elements into it: what a stage for values and one for flags hold is read
// from there,
template <class Values, class Flags>
struct FromStages {
    Values& values;
    Flags& flags;
    const typename Values::Place& row;
    int start;

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        return Values::template holds<kArray>() || Flags::template holds<kArray>();
    }
    template <int kArray>
    CUSCAN_DEVICE auto* element(int index) const {
        if constexpr (Values::template holds<kArray>())
            return values.template element<kArray>(row, start, index);
        else
            return flags.template element<kArray>(row, start, index);
    }
    // The share of a shifted value.
    template <int kArray>
    CUSCAN_DEVICE char* share() const {
        return values.template share<kArray>(start);
    }
};
// or nothing is.
struct FromMemory {
    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        return false;
    }
};

}  // namespace cuscan
