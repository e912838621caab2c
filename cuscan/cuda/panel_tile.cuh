// A tile of panels in shared memory: neighbouring columns, side by side, and some steps along the axis. Every array lies
// there as far beyond a multiple of 16 bytes as in global memory, so that 16 bytes move at a time wherever rows begin.
#pragma once
#include "elements.cuh"
#include "schedule.cuh"

namespace cuscan {

// How an array of the tile lies in shared memory. Its pitches are as far beyond multiples of 16 as the strides of the array.
struct PanelArray {
    int64 region;       // bytes: where its place begins; negative: threads access global memory
    int64 pitch;        // between steps
    int64 outer_pitch;  // between rows of the batch
    int64 flat;         // 1: steps lie one behind the other without gaps; 2: so do rows of the batch
    int64 item;         // bytes of an element
    int64 across;       // threads that take the pieces of a segment (struct Pieces), side by side
    int64 rows;         // segments that a block takes at once
    int64 reciprocal;   // of `across`: (thread * reciprocal) >> kReciprocalBits is thread / across
};

// panels.py writes these words behind those of Geometry.
template <class Config>
struct PanelGeometry : Geometry<Config> {
    int64 columns, outers;  // of a tile: columns of a row of the batch, and rows
    int64 panels, blocks;   // of all columns; of all rows along the first axis of the batch
    int64 thread_rows;      // threads along the axis
    int64 exchange, kept;   // bytes: where threads exchange totals, and where carries are kept
    int64 levels;           // of blocks of units, which are kept
    int64 part_levels;      // of tiles that a unit has
    int64 unit_levels;      // of units that a tile has
    int64 lanes;            // as many as there are rows of threads, or more: a power of two, as its exponent
    uint64 number, tiles;   // of panels; of tiles of a panel
    PanelArray tile[Arrays<Config>::kInitial];
};

// The place of a tile in the scan.
template <class Config>
struct PanelPlace {
    Row<Config> first;  // its first step, column and row of the batch
    int64 position;     // of its first step
    int columns, outers;
    int steps, results;  // that it has, of elements and of results

    CUSCAN_DEVICE int width() const { return columns * outers; }
};

// The pieces of 16 bytes in which an array of a tile moves between global and shared memory: `segments` of `bytes` each,
// from `low` on.
struct Pieces {
    static constexpr int kPiece = 16, kReciprocalBits = 20;

    char* low;
    int64 stride;  // between segments
    int place;     // in shared memory, of `low`
    int pitch;     // between segments there
    int segments;
    int bytes;
    int first;    // in shared memory, of the first step
    bool inside;  // all pieces lie between the ends of the array

    // Calls visit(address, place in shared memory, and how far behind the segment's first byte) for each piece. Threads side
    // by side take a segment from the multiple of kFrom before it on, those behind them the next one.
    template <int kFrom, class Visit>
    CUSCAN_DEVICE void each(const PanelArray& array, Visit visit) const {
        const int thread = target::thread_index(), across = int(array.across), at_once = int(array.rows);
        const int row = int(uint32(thread) * uint32(array.reciprocal) >> kReciprocalBits);
        if (row >= at_once) return;
        const int column = (thread - row * across) * kPiece;
        char* begin = low + row * this->stride;
        int there = place + row * pitch;
        const auto beyond = [&] { return int(reinterpret_cast<uint64>(begin) % kFrom); };
        if (at_once == 1) {
            CUSCAN_NO_UNROLL
            for (int segment = 0; segment < segments; ++segment, begin += stride, there += pitch) {
                CUSCAN_NO_UNROLL
                for (int at = column - beyond(); at < bytes; at += across * kPiece) visit(begin + at, there + at, at);
            }
        } else {  // threads enough for a whole segment
            const int64 further = at_once * stride;
            CUSCAN_NO_UNROLL
            for (int segment = row; segment < segments; segment += at_once, begin += further, there += at_once * pitch) {
                const int at = column - beyond();
                if (at < bytes) visit(begin + at, there + at, at);
            }
        }
    }
    // Calls visit(address, place in shared memory) for each item of the pieces that segments have a part of. Threads side by
    // side take a piece.
    template <class T, int kThreads, class Visit>
    CUSCAN_DEVICE void each_at_edges(Visit visit) const {
        constexpr int kItems = kPiece / int(sizeof(T)), kOfSegment = 2 * kItems;
        if ((reinterpret_cast<uint64>(low) | uint64(stride) | uint64(bytes)) % kPiece == 0) return;
        CUSCAN_NO_UNROLL
        for (int i = target::thread_index(); i < segments * kOfSegment; i += kThreads) {
            const int segment = i / kOfSegment, item = i % kItems;
            char* const begin = low + segment * stride;
            const int beyond = int(reinterpret_cast<uint64>(begin) % kPiece), last = (beyond + bytes) / kPiece * kPiece;
            const bool is_last = i % kOfSegment >= kItems;
            const int at = (is_last ? last : 0) - beyond + item * int(sizeof(T));
            const bool is_edge = is_last ? last > 0 || beyond == 0 : beyond > 0;
            if (is_edge && at >= 0 && at < bytes) visit(begin + at, place + segment * pitch + at);
        }
    }
};

// A tile that a block takes: whether there is one, where, and how its arrays move.
template <class Config>
struct PanelTurn {
    Turn turn;
    PanelPlace<Config> place;
    Pieces pieces[Arrays<Config>::kInitial];
};

template <class Config>
struct PanelTile {
    static constexpr int kThreads = Config::kThreads - target::kWarp;  // one warp finds what is next
    using Numbers = Arrays<Config>;

    const PanelGeometry<Config>& geometry;
    const Row<Config>& origin;
    char* shared;

    CUSCAN_DEVICE bool is_staged(int array) const { return geometry.tile[array].region >= 0; }
    // The arrays where a column of the tile begins.
    CUSCAN_DEVICE Row<Config> row(const PanelPlace<Config>& place, int column) const {
        Row<Config> here = place.first;
        here.advance(geometry.batch[0], column / int(geometry.columns));
        here.advance(geometry.column, column % int(geometry.columns));
        return here;
    }
    // How an array moves, where it is staged.
    CUSCAN_DEVICE Pieces pieces(const PanelPlace<Config>& place, int array) const {
        const PanelArray& tile = geometry.tile[array];
        const bool is_result = array >= Numbers::kResults && array < Numbers::kMask;
        const int64 along = geometry.axis.stride[array];
        const int steps = is_result ? place.results : place.steps, row = place.columns * int(tile.item);
        char* const low = place.first.array[array] + (along < 0 ? (steps - 1) * along : 0);
        const int there = int(tile.region) + int(reinterpret_cast<uint64>(low) % 16), pitch = int(tile.pitch);
        Pieces all{low, along < 0 ? -along : along, there, pitch < 0 ? -pitch : pitch, steps, row};
        all.first = there - (along < 0 ? (steps - 1) * pitch : 0);
        if (tile.flat == 1)
            all.stride = geometry.batch[0].stride[array], all.pitch = int(tile.outer_pitch), all.segments = place.outers,
            all.bytes = steps * row;
        if (tile.flat == 2) all.segments = 1, all.bytes = place.outers * steps * row;
        if (steps == 0) all.segments = 0;
        const char* const lowest = origin.array[array] + geometry.span[array].lowest;
        const char* const end = origin.array[array] + geometry.span[array].end;
        all.inside = low - 15 >= lowest && low + (all.segments - 1) * all.stride + all.bytes + 15 <= end;
        return all;
    }

    // Sends for what there is of an array in the tile.
    template <int kArray, class Port>
    CUSCAN_DEVICE void load(Port, const PanelTurn<Config>& turn, target::Barrier& arrived) const {
        using T = typename Port::Type;
        if (!is_staged(kArray)) return;
        const Pieces pieces = turn.pieces[kArray];
        if (pieces.inside) {
            pieces.each<16>(geometry.tile[kArray],
                            [&](char* at, int place, int) { arrived.load((Piece*)(shared + place), (const Piece*)at); });
        } else {
            const char* const lowest = origin.array[kArray] + geometry.span[kArray].lowest;
            const char* const end = origin.array[kArray] + geometry.span[kArray].end;
            pieces.each<16>(geometry.tile[kArray], [&](char* at, int place, int behind) {
                if (at >= lowest && at + 16 <= end)
                    arrived.load((Piece*)(shared + place), (const Piece*)at);
                else
                    each_item<T>(behind, pieces.bytes,
                                 [&](int byte) { *(T*)(shared + place + byte) = *(const T*)(at + byte); });
            });
        }
    }
    // Stores what there is of a result in the tile. No two warps store parts of the same sector, but at its edges.
    template <int kArray, class Port>
    CUSCAN_DEVICE void store(Port, const PanelTurn<Config>& turn) const {
        using T = typename Port::Type;
        if (!is_staged(kArray)) return;
        const Pieces pieces = turn.pieces[kArray];
        pieces.each<target::kSector>(geometry.tile[kArray], [&](char* at, int place, int behind) {
            if (behind < 0 || behind + 16 > pieces.bytes) return;
            const Piece piece = *(const Piece*)(shared + place);
            target::store_vector((Piece*)at, piece);
        });
        pieces.each_at_edges<T, kThreads>([&](char* at, int place) { *(T*)at = *(const T*)(shared + place); });
    }

private:
    using Piece = Vector<uint32, 4>;

    // The items of a piece that lie in a segment of so many bytes, by their bytes from the piece's beginning.
    template <class T, class Use>
    static CUSCAN_DEVICE void each_item(int behind, int bytes, Use use) {
        CUSCAN_UNROLL
        for (int byte = 0; byte < 16; byte += int(sizeof(T)))
            if (behind + byte >= 0 && behind + byte < bytes) use(byte);
    }
};

}  // namespace cuscan
