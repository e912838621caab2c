// What a tile is read from, array by array: a stage in shared memory that one thread has filled ahead of time, where the
// hardware copies in bulk and the layout allows it (Port::kSent), or else global memory.
//
// A stage holds the 16-byte pieces that the elements of a tile lie in. Where not all of these lie in the array, threads put
// the elements there one by one. Aligned rows fill them, and the elements of shifted rows (Access::kShifted) lie in the
// stage as far beyond a multiple of 16 bytes as in memory. What is there beside the tile's own elements may be old or new,
// or nothing at all; no result that is stored depends on it.
#pragma once
#include "shifted.cuh"

namespace cuscan {

// Where arrays lie in a stage: kElements of each that is sent for, of those from kFrom to kTo, one after the other.
template <class Config, int kElements, int kFrom, int kTo>
struct StageLayout {
    static constexpr int kPiece = 16;  // bytes

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        return target::kHasBulkCopy && kArray >= kFrom && kArray < kTo && PortOfArray<Config, kArray>::kSent;
    }
    template <int kArray>
    static CUSCAN_DEVICE constexpr int offset() {
        if constexpr (kArray <= kFrom) {
            return 0;
        } else {
            using Port = PortOfArray<Config, kArray - 1>;
            constexpr int kRoom = kElements * int(sizeof(typename Port::Type)) + is_shifted(Port::kAccess) * kPiece;
            return offset<kArray - 1>() + holds<kArray - 1>() * kRoom;
        }
    }
};

template <class Config, int kElements, int kFrom, int kTo>
struct Stage {
    using Layout = StageLayout<Config, kElements, kFrom, kTo>;
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
    // Of the tile whose first element in scan order is at position `first` of `row`; `origin` is row 0. By one thread.
    static CUSCAN_DEVICE bool can_be_filled(const Place& origin, const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        bool inside = count > 0;
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            const Pieces<kArray> pieces(row.array[kArray], first, count);
            const int64 from = pieces.from - origin.array[kArray];
            inside = inside && from >= geometry.span[kArray].lowest && from + pieces.bytes <= geometry.span[kArray].end;
        });
        return inside;
    }
    static CUSCAN_DEVICE uint32 bytes(const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        uint32 bytes = 0;
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            bytes += Pieces<kArray>(row.array[kArray], first, count).bytes;
        });
        return bytes;
    }
    // The barrier expects the bytes.
    CUSCAN_DEVICE void fill(target::Barrier& barrier, const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            const Pieces<kArray> pieces(row.array[kArray], first, count);
            barrier.load(data + Layout::template offset<kArray>() + pieces.place, pieces.from, pieces.bytes);
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
                *element<kArray>(row, i) = *advance<Port::kAccess>(item, geometry.axis.stride[kArray], first + i);
        });
    }

    // The element of an array at scan position `index` of the tile of `row`.
    template <int kArray>
    CUSCAN_DEVICE auto* element(const Place& row, int index) {
        using Port = PortOfArray<Config, kArray>;
        auto* item = reinterpret_cast<typename Port::Type*>(data + Layout::template offset<kArray>());
        if constexpr (is_shifted(Port::kAccess)) item += shift<Port>(row.array[kArray]) / int(sizeof(*item));
        return is_mirrored(Port::kAccess) ? item + (kElements - 1 - index) : item + index;
    }

private:
    template <int kArray = kFrom, class Visit>
    static CUSCAN_DEVICE void for_each_array(Visit&& visit) {
        if constexpr (kArray < kTo) {
            if constexpr (holds<kArray>()) visit(Number<kArray>());
            for_each_array<kArray + 1>(visit);
        }
    }

    // Bytes from a multiple of 16 to a tile's lowest address; tiles of one row have one.
    template <class Port>
    static CUSCAN_DEVICE int shift(const char* row) {
        const char* lowest = is_mirrored(Port::kAccess) ? row + sizeof(typename Port::Type) : row;
        return int(reinterpret_cast<uint64>(lowest) % kPiece);
    }

    // The pieces that some elements of a tile lie in: the first `count` from position `first` of a row on.
    template <int kArray>
    struct Pieces {
        using Port = PortOfArray<Config, kArray>;
        const char* from;
        int place;  // in the stage, bytes
        int bytes;

        CUSCAN_DEVICE Pieces(const char* row, int64 first, int count) {
            constexpr bool kMirrored = is_mirrored(Port::kAccess);
            constexpr int kSize = sizeof(typename Port::Type);
            static_assert(kElements * kSize % kPiece == 0, "tiles are whole pieces, were they aligned");
            const char* lowest = row + (kMirrored ? -(first + kElements - 1) : first) * kSize;  // of the tile, were it whole
            const int begin = shift<Port>(row) + (kMirrored ? kElements - count : 0) * kSize;
            place = begin / kPiece * kPiece;
            bytes = (begin + count * kSize + kPiece - 1) / kPiece * kPiece - place;
            from = lowest - shift<Port>(row) + place;
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
            return values.template element<kArray>(row, start + index);
        else
            return flags.template element<kArray>(row, start + index);
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
