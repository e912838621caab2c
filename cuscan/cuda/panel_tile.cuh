// A tile of panels in shared memory: neighbouring columns, side by side, and some steps along the axis. Every array lies
// there as far beyond a multiple of 16 bytes as in global memory, so that 16 bytes move at a time wherever rows begin.
#pragma once
#include "elements.cuh"

namespace cuscan {

// An array of the tile in shared memory. Its pitches are as far beyond multiples of 16 as the strides of the array.
struct PanelArray {
    int64 region;       // bytes: where its place begins; negative: threads access global memory
    int64 pitch;        // between steps
    int64 outer_pitch;  // between rows of the batch
    int64 flat;         // 1: steps lie one behind the other without gaps; 2: so do rows of the batch
};

// panels.py writes these words behind those of Geometry.
template <class Config>
struct PanelGeometry : Geometry<Config> {
    int64 columns, outers;  // of a tile: columns of a row of the batch, and rows
    int64 panels, blocks;   // of all columns; of all rows along the first axis of the batch
    int64 thread_rows;      // threads along the axis
    int64 exchange, kept;   // bytes: where threads exchange totals, and where carries are kept
    int64 levels;           // of blocks of units, which are kept
    PanelArray tile[Arrays<Config>::kInitial];
};

// The place of a tile in the scan.
template <class Config>
struct PanelPlace {
    Row<Config> first;  // its first step, column and row of the batch
    int64 position;     // of its first step
    int columns, outers;

    CUSCAN_DEVICE int width() const { return columns * outers; }
};

// The pieces of 16 bytes that a block moves between global and shared memory: `segments` of `bytes` each, from `low` on. A
// row of threads begins at a multiple of kLine, so that no two warps store parts of the same sector.
template <int kLine>
struct Pieces {
    static constexpr uint32 kPiece = 16, kOfLine = kLine / kPiece;

    char* low;
    int64 stride;  // between segments
    int pitch;     // the same in shared memory
    int segments;
    uint32 bytes;

    // Calls visit(address, offset in shared memory from where 16-byte pieces of the first segment begin, the segment's
    // first byte, and its end).
    template <int kThreads, class Visit>
    CUSCAN_DEVICE void each(Visit visit) const {
        const uint32 of_segment = (bytes + 2 * kLine - 2) / kLine * kOfLine;
        const uint32 thread = target::thread_index(), skipped = kThreads / of_segment, rest = kThreads % of_segment;
        uint32 segment = thread / of_segment, piece = thread % of_segment;
        const uint32 beyond = uint32(reinterpret_cast<uint64>(low)) % kPiece;
        while (segment < uint32(segments)) {
            char* const begin = low + segment * stride;
            char* const line = begin - reinterpret_cast<uint64>(begin) % kLine;
            char* const at = line + piece * kPiece;
            if (at + kPiece > begin && at < begin + bytes)
                visit(at, int(at - begin) + int(beyond) + int(segment) * pitch, begin);
            segment += skipped, piece += rest;
            if (piece >= of_segment) piece -= of_segment, ++segment;
        }
    }
};

template <class Config>
struct PanelTile {
    static constexpr int kThreads = Config::kThreads;
    using Numbers = Arrays<Config>;

    const PanelGeometry<Config>& geometry;
    const Row<Config>& origin;
    char* shared;

    CUSCAN_DEVICE bool is_staged(int array) const { return geometry.tile[array].region >= 0; }

    // Steps that an array has in a tile.
    CUSCAN_DEVICE int steps(const PanelPlace<Config>& place, int array, int64 length) const {
        return clamp(length - place.position, int(geometry.thread_rows) * Config::kSteps * Config::kRuns);
    }
    // Where the first step and column of an array are in shared memory, of a tile with so many steps.
    CUSCAN_DEVICE char* first(const PanelPlace<Config>& place, int array, int steps) const {
        const PanelArray& tile = geometry.tile[array];
        const int64 stride = geometry.axis.stride[array];
        const int back = stride < 0 ? steps - 1 : 0;
        const char* const low = place.first.array[array] + back * stride;
        return shared + tile.region + reinterpret_cast<uint64>(low) % 16 - back * int(tile.pitch);
    }

    // Sends for what there is of an array in the tile.
    template <int kArray, class Port>
    CUSCAN_DEVICE void load(Port, const PanelPlace<Config>& place, target::Barrier& arrived) const {
        using T = typename Port::Type;
        if (!is_staged(kArray)) return;
        const auto pieces = this->pieces<16, T>(place, kArray, geometry.elements());
        const char *const lowest = origin.array[kArray] + geometry.span[kArray].lowest, *const end =
                                                                                            origin.array[kArray] +
                                                                                            geometry.span[kArray].end;
        char* const region = shared + geometry.tile[kArray].region;
        pieces.template each<kThreads>([&](char* at, int offset, char* begin) {
            if (at >= lowest && at + 16 <= end)
                arrived.load((Piece*)(region + offset), (const Piece*)at);
            else
                each_item<T>(at, begin, begin + pieces.bytes,
                             [&](int byte) { *(T*)(region + offset + byte) = *(const T*)(at + byte); });
        });
    }
    // Stores what there is of a result in the tile.
    template <int kArray, class Port>
    CUSCAN_DEVICE void store(Port, const PanelPlace<Config>& place) const {
        using T = typename Port::Type;
        if (!is_staged(kArray)) return;
        const auto pieces = this->pieces<target::kLine, T>(place, kArray, geometry.axis.size);
        const char* const region = shared + geometry.tile[kArray].region;
        pieces.template each<kThreads>([&](char* at, int offset, char* begin) {
            if (at >= begin && at + 16 <= begin + pieces.bytes)
                target::store_vector((Piece*)at, *(const Piece*)(region + offset));
            else
                each_item<T>(at, begin, begin + pieces.bytes,
                             [&](int byte) { *(T*)(at + byte) = *(const T*)(region + offset + byte); });
        });
    }

private:
    using Piece = Vector<uint32, 4>;

    template <int kLine, class T>
    CUSCAN_DEVICE Pieces<kLine> pieces(const PanelPlace<Config>& place, int array, int64 length) const {
        const PanelArray& tile = geometry.tile[array];
        const int64 along = geometry.axis.stride[array];
        const int steps = this->steps(place, array, length);
        char* const low = place.first.array[array] + (along < 0 ? (steps - 1) * along : 0);
        const uint32 row = place.columns * uint32(sizeof(T));
        if (steps == 0) return {low, 0, 0, 0, 16};
        if (tile.flat == 2) return {low, 0, 0, 1, place.outers * uint32(steps) * row};
        if (tile.flat == 1) return {low, geometry.batch[0].stride[array], int(tile.outer_pitch), place.outers, steps * row};
        const int pitch = int(tile.pitch);
        return {low, along < 0 ? -along : along, pitch < 0 ? -pitch : pitch, steps, row};
    }
    // The items between `begin` and `end` of a piece, by their bytes from its beginning.
    template <class T, class Use>
    static CUSCAN_DEVICE void each_item(const char* at, const char* begin, const char* end, Use use) {
        CUSCAN_UNROLL
        for (int byte = 0; byte < 16; byte += int(sizeof(T)))
            if (at + byte >= begin && at + byte < end) use(byte);
    }
};

}  // namespace cuscan
