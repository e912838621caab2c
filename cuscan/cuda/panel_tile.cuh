// A tile of panels in shared memory: neighbouring columns, side by side, and some steps along the axis. Every array lies
// there as far beyond a multiple of 16 bytes as in global memory, so that 16 bytes move at a time wherever rows begin.
#pragma once
#include "elements.cuh"
#include "schedule.cuh"

namespace cuscan {

// The axes of a tile.
enum PanelAxis { kStep, kColumn, kOuter };

// How an array of the tile lies in shared memory. Its pitches are as far beyond multiples of 16 as the strides of the array.
struct PanelArray {
    int64 region;      // bytes: where its place begins; negative: threads access global memory
    int64 pitch[3];    // from neighbour to neighbour along each axis
    int64 order;       // two bits for each axis, the fastest first; then how many of them lie in a segment (struct Pieces)
    int64 across;      // threads that take the pieces of a segment, side by side
    int64 rows;        // segments that a block takes at once
    int64 reciprocal;  // of `across`: (thread * reciprocal) >> kReciprocalBits is thread / across

    CUSCAN_DEVICE int axis(int number) const { return int(order >> 2 * number) & 3; }
    CUSCAN_DEVICE int dense() const { return axis(3); }
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
    int64 chunk_levels;     // of tiles that a block takes at a time, where blocks share panels
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

// The pieces of 16 bytes in which an array of a tile moves between global and shared memory: `groups` of `segments` of
// `bytes` each, from `low` on.
struct Pieces {
    static constexpr int kPiece = 16, kReciprocalBits = 20;

    char* low;
    int64 stride, group_stride;  // between segments; between groups
    int place;                   // in shared memory, of `low`
    int pitch, group_pitch;      // between segments there; between groups
    int segments, groups;
    int bytes;
    int first;    // in shared memory, of the first step
    bool inside;  // all pieces lie between the ends of the array

    // Calls take(the pieces of a group) for each of them.
    template <class Take>
    CUSCAN_DEVICE void each_group(Take take) const {
        Pieces group = *this;
        CUSCAN_NO_UNROLL
        for (int left = groups;;) {
            take(group);
            if (--left == 0) return;
            group.low += group_stride, group.place += group_pitch;
        }
    }
    // Calls visit(address, place in shared memory, and how far behind the segment's first byte) for each piece of a group.
    // Threads side by side take a segment from the multiple of kFrom before it on, those behind them the next one.
    template <int kFrom, class Visit>
    CUSCAN_DEVICE void each(const PanelArray& array, Visit visit) const {
        const int thread = target::thread_index(), across = int(array.across), at_once = int(array.rows);
        const int row = int(uint32(thread) * uint32(array.reciprocal) >> kReciprocalBits);
        if (row >= at_once) return;
        const int column = (thread - row * across) * kPiece;
        char* begin = low + row * this->stride;
        int there = place + row * pitch;
        const auto skipped = [&] { return int(reinterpret_cast<uint64>(begin) % kFrom); };
        if (at_once == 1) {
            CUSCAN_NO_UNROLL
            for (int segment = 0; segment < segments; ++segment, begin += stride, there += pitch) {
                CUSCAN_NO_UNROLL
                for (int at = column - skipped(); at < bytes; at += across * kPiece) visit(begin + at, there + at, at);
            }
        } else {  // threads enough for a whole segment
            const int64 further = at_once * stride;
            CUSCAN_NO_UNROLL
            for (int segment = row; segment < segments; segment += at_once, begin += further, there += at_once * pitch) {
                const int at = column - skipped();
                if (at < bytes) visit(begin + at, there + at, at);
            }
        }
    }
    // Calls visit(address, place in shared memory) for each item of the pieces that a group's segments have a part of.
    // Threads side by side take a piece.
    template <class T, int kThreads, class Visit>
    CUSCAN_DEVICE void each_at_edges(Visit visit) const {
        constexpr int kItems = kPiece / int(sizeof(T)), kOfSegment = 2 * kItems;
        if ((reinterpret_cast<uint64>(low) | uint64(stride) | uint64(bytes)) % kPiece == 0) return;
        CUSCAN_NO_UNROLL
        for (int i = target::thread_index(); i < segments * kOfSegment; i += kThreads) {
            const int segment = i / kOfSegment, item = i % kItems;
            char* const begin = low + segment * stride;
            const int skipped = int(reinterpret_cast<uint64>(begin) % kPiece), last = (skipped + bytes) / kPiece * kPiece;
            const bool is_last = i % kOfSegment >= kItems;
            const int at = (is_last ? last : 0) - skipped + item * int(sizeof(T));
            const bool is_edge = is_last ? last > 0 || skipped == 0 : skipped > 0;
            if (is_edge && at >= 0 && at < bytes) visit(begin + at, place + segment * pitch + at);
        }
    }
};

// A tile that a block takes: whether there is one, where, and how its arrays move. `sums`: only for what it adds up to.
template <class Config>
struct PanelTurn {
    Turn turn;
    bool sums;
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
    // Columns lie side by side there.
    CUSCAN_DEVICE bool is_packed(int array) const { return is_staged(array) && geometry.tile[array].axis(0) == kColumn; }
    // The arrays where a column of the tile begins.
    CUSCAN_DEVICE Row<Config> row(const PanelPlace<Config>& place, int column) const {
        Row<Config> here = place.first;
        here.advance(geometry.batch[0], column / place.columns);
        here.advance(geometry.column, column % place.columns);
        return here;
    }
    // How an array moves, where it is staged.
    CUSCAN_DEVICE Pieces pieces(const PanelPlace<Config>& place, int array) const {
        const PanelArray& tile = geometry.tile[array];
        const bool is_result = array >= Numbers::kResults && array < Numbers::kMask;
        const int steps = is_result ? place.results : place.steps;
        const int64 along = geometry.axis.stride[array];
        const auto extent = [&](int axis) { return axis == kStep ? steps : axis == kColumn ? place.columns : place.outers; };
        const auto stride = [&](int axis) {
            return axis == kStep     ? (along < 0 ? -along : along)
                   : axis == kColumn ? geometry.column.stride[array]
                                     : geometry.batch[0].stride[array];
        };
        const auto pitch = [&](int axis) { return int(tile.pitch[axis] < 0 ? -tile.pitch[axis] : tile.pitch[axis]); };
        const int first = tile.axis(0), second = tile.axis(1), third = tile.axis(2), dense = tile.dense();
        const int backwards = along < 0 ? steps - 1 : 0;  // steps
        Pieces all;
        all.low = place.first.array[array] + backwards * along;
        all.place = int(tile.region) + int(reinterpret_cast<uint64>(all.low) % 16);
        all.first = all.place - backwards * int(tile.pitch[kStep]);
        all.bytes = extent(first) * pitch(first);
        if (dense > 1) all.bytes *= extent(second);
        if (dense > 2) all.bytes *= extent(third);
        // Of the axes that are left, the one of which there is most leads from segment to segment.
        const bool turned = dense == 1 && extent(third) > extent(second);
        const int next = dense == 1 && !turned ? second : third, last = turned ? second : third;
        all.segments = steps == 0 ? 0 : dense < 3 ? extent(next) : 1, all.groups = dense == 1 ? extent(last) : 1;
        all.stride = stride(next), all.group_stride = dense == 1 ? stride(last) : 0;
        all.pitch = pitch(next), all.group_pitch = dense == 1 ? pitch(last) : 0;
        const char* const lowest = origin.array[array] + geometry.span[array].lowest;
        const char* const end = origin.array[array] + geometry.span[array].end;
        const int64 behind = (all.segments - 1) * all.stride + (all.groups - 1) * all.group_stride;
        all.inside = all.low - 15 >= lowest && all.low + behind + all.bytes + 15 <= end;
        return all;
    }

    // Sends for what there is of an array in the tile.
    template <int kArray, class Port>
    CUSCAN_DEVICE void load(Port, const PanelTurn<Config>& turn, target::Barrier& arrived) const {
        using T = typename Port::Type;
        if (!is_staged(kArray)) return;
        turn.pieces[kArray].each_group([&](const Pieces& pieces) {
            if (pieces.inside) {
                pieces.each<16>(geometry.tile[kArray],
                                [&](char* at, int place, int) { arrived.load((Piece*)(shared + place), (const Piece*)at); });
                return;
            }
            const char* const lowest = origin.array[kArray] + geometry.span[kArray].lowest;
            const char* const end = origin.array[kArray] + geometry.span[kArray].end;
            pieces.each<16>(geometry.tile[kArray], [&](char* at, int place, int behind) {
                if (at >= lowest && at + 16 <= end)
                    arrived.load((Piece*)(shared + place), (const Piece*)at);
                else
                    each_item<T>(behind, pieces.bytes,
                                 [&](int byte) { *(T*)(shared + place + byte) = *(const T*)(at + byte); });
            });
        });
    }
    // Stores what there is of a result in the tile. No two warps store parts of the same sector, but at its edges.
    template <int kArray, class Port>
    CUSCAN_DEVICE void store(Port, const PanelTurn<Config>& turn) const {
        using T = typename Port::Type;
        if (!is_staged(kArray)) return;
        turn.pieces[kArray].each_group([&](const Pieces& pieces) {
            pieces.each<target::kSector>(geometry.tile[kArray], [&](char* at, int place, int behind) {
                if (behind < 0 || behind + 16 > pieces.bytes) return;
                const Piece piece = *(const Piece*)(shared + place);
                target::store_vector((Piece*)at, piece);
            });
            pieces.each_at_edges<T, kThreads>([&](char* at, int place) { *(T*)at = *(const T*)(shared + place); });
        });
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
