// Where warps read a tile from, array by array: a stage in shared memory, which a producer warp fills ahead of time
// where the hardware copies in bulk and the layout allows it (Operand::kStaged), or else global memory. The caller
// waits for the barrier of a stage before it reads the stage.
//
// A stage holds the 16-byte pieces in which the elements of a tile lie. Where not all of these lie in the array, warps
// copy the elements one by one. Aligned rows fill their pieces; elements of shifted rows (Access::kShifted) lie in the
// stage as far beyond a multiple of kShiftedFrom as in memory. What a stage holds beside the tile's own elements is
// undefined; no stored result depends on it.
#pragma once
#include "shifted.cuh"

namespace cuscan {

// Where arrays lie in a stage: kElements elements of each staged array from kFrom up to but not including kTo, one
// array after another.
template <class Config, int kElements, int kFrom, int kTo>
struct StageLayout {
    static constexpr int kPiece = 16;  // bytes

    template <int kArray>
    static constexpr int kRoom = kElements * int(sizeof(typename OperandOfArray<Config, kArray>::Type)) +
                                 is_shifted(OperandOfArray<Config, kArray>::kAccess) * kShiftedFrom;

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        return target::kHasBulkCopy && kArray >= kFrom && kArray < kTo && OperandOfArray<Config, kArray>::kStaged;
    }
    template <int kArray>
    static CUSCAN_DEVICE constexpr int offset() {
        if constexpr (kArray <= kFrom) {
            return 0;
        } else {
            constexpr int kBefore = kArray - 1;
            return offset<kBefore>() + holds<kBefore>() * kRoom<kBefore>;
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
    // Whether all pieces of the tile at scan position `first` of `row` lie in the arrays; `origin` is row 0.
    static CUSCAN_DEVICE bool can_be_filled(const Place& origin, const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        bool inside = count > 0;
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            const auto pieces = pieces_of<kArray>(row, first, count);
            const int64 from = pieces.from - origin.array[kArray];
            inside = inside && from >= geometry.span[kArray].lowest && from + pieces.bytes <= geometry.span[kArray].end;
        });
        return inside;
    }
    static CUSCAN_DEVICE uint32 bytes(const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        uint32 bytes = 0;
        for_each_array([&](auto k) { bytes += pieces_of<decltype(k)::value>(row, first, count).bytes; });
        return bytes;
    }
    // Called by one thread, after `barrier` has been made to expect bytes().
    CUSCAN_DEVICE void fill(target::Barrier& barrier, const Place& row, const Shape& geometry, int64 first) {
        const int count = clamp(geometry.elements() - first, kElements);
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            const auto pieces = pieces_of<kArray>(row, first, count);
            barrier.load(place<kArray>() + pieces.place, pieces.from, pieces.bytes);
        });
    }

    // Called by a warp: copies the `count` elements from `start` on of the tile at position `first` of the row.
    CUSCAN_DEVICE void fill_one_by_one(const Place& row, const Shape& geometry, int64 first, int start, int count,
                                       int lane) {
        const int left = clamp(geometry.elements() - first - start, count);
        for_each_array([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            using Operand = OperandOfArray<Config, kArray>;
            const int64 step = geometry.axis.stride[kArray];
            const auto* from =
                advance<Operand::kAccess>((const typename Operand::Type*)row.array[kArray], step, first + start);
            auto* to = element<kArray>(row, start);
            for (int i = lane; i < left; i += target::kWarp)
                *advance<Operand::kAccess>(to, step, i) = *advance<Operand::kAccess>(from, step, i);
        });
    }

    // Where the stage holds the element `index` places in scan order from the beginning of the tile.
    template <int kArray>
    CUSCAN_DEVICE auto* element(const Place& row, int index) {
        using Operand = OperandOfArray<Config, kArray>;
        using Item = typename Operand::Type;
        Item* item = reinterpret_cast<Item*>(place<kArray>());
        if constexpr (is_shifted(Operand::kAccess)) item += shift<Operand>(row.array[kArray]) / int(sizeof(Item));
        return is_reversed(Operand::kAccess) ? item + (kElements - 1 - index) : item + index;
    }

private:
    template <int kArray = kFrom, class Visit>
    static CUSCAN_DEVICE void for_each_array(Visit&& visit) {
        if constexpr (kArray < kTo) {
            if constexpr (holds<kArray>()) visit(Number<kArray>());
            for_each_array<kArray + 1>(visit);
        }
    }

    // Bytes from a multiple of kShiftedFrom, or of a piece, to a tile's lowest address; equal for all tiles of a row.
    template <class Operand>
    static CUSCAN_DEVICE int shift(const char* row) {
        const char* lowest = is_reversed(Operand::kAccess) ? row + sizeof(typename Operand::Type) : row;
        return int(reinterpret_cast<uint64>(lowest) % (is_shifted(Operand::kAccess) ? kShiftedFrom : kPiece));
    }

    // Where an array begins in the stage.
    template <int kArray>
    CUSCAN_DEVICE char* place() {
        return data + Layout::template offset<kArray>();
    }

    // The pieces in memory that contain the first `count` elements from position `first` of a row on.
    struct Pieces {
        const char* from;
        int place;  // bytes from where the array begins in the stage
        int bytes;
    };
    template <int kArray>
    static CUSCAN_DEVICE Pieces pieces_of(const Place& row, int64 first, int count) {
        using Operand = OperandOfArray<Config, kArray>;
        constexpr bool kReversed = is_reversed(Operand::kAccess);
        constexpr int kSize = sizeof(typename Operand::Type);
        static_assert(kElements * kSize % kPiece == 0, "an aligned tile consists of whole pieces");
        const char* const at = row.array[kArray];
        const char* lowest = at + (kReversed ? -(first + kElements - 1) : first) * kSize;  // of a whole tile
        const int begin = shift<Operand>(at) + (kReversed ? kElements - count : 0) * kSize;
        const int place = begin / kPiece * kPiece;
        const int bytes = (begin + count * kSize + kPiece - 1) / kPiece * kPiece - place;
        return {lowest - shift<Operand>(at) + place, place, bytes};
    }
};

// Source of a warp's part of a tile, which begins `start` elements into the tile: arrays that a stage for values or one
// for flags holds are read from there.
template <class Values, class Flags>
struct FromStages {
    static constexpr bool kKeeps = false;  // whether all staged values are loaded into registers at once
    static constexpr bool kFill = false;   // whether all vectors of a warp tile but the last fill the row

    Values& values;
    Flags& flags;
    const typename Values::Place &origin, &row;  // row 0, and this row
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
// Source of a tile of which no array is staged.
template <class Place>
struct FromMemory {
    static constexpr bool kKeeps = false, kFill = false;

    const Place& origin;

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        return false;
    }
};
template <class Place>
FromMemory(const Place&) -> FromMemory<Place>;

}  // namespace cuscan
