// A tile of a panel in shared memory: neighbouring columns, side by side, and some steps along the axis. Every array
// lies there as far beyond a multiple of 16 bytes as in global memory, so that 16 bytes move at a time wherever rows
// begin, and long segments in bulk. For kernels/panels.cuh: a lane per array computes how the array moves
// (PanelTile::pieces, moved), all workers of a block load and store it; the caller synchronises.
#pragma once
#include "elements.cuh"
#include "schedule.cuh"

namespace cuscan {

// The axes of a tile: along the scan, across columns, across rows of the batch. Where columns are those of several
// short rows (ColumnGaps): along the scan, across short rows, across rows of the batch, along a short row.
enum PanelAxis { kStep, kColumn, kOuter, kInner };

// How an array of the tile lies in shared memory. Its pitches equal the strides of the array modulo 16 bytes. Where
// bulk copies move rows of columns, they equal them modulo 32 bytes: such copies are faster. Segments of values may
// contain small gaps, and one behind the last item.
struct PanelArray {
    int64 region;      // where it begins, in bytes; negative: threads access global memory
    int64 pitch[3];    // bytes from neighbour to neighbour along each axis; of steps, within a row of threads
    int64 thread_row;  // bytes from a row of threads to the one below it
    int64 order;       // two bits per axis, the fastest first; from kAxes on the number of axes in a segment, and flags
    int64 across;      // threads side by side that move the pieces of a segment
    int64 rows;        // segments that a block moves at once
    int64 reciprocal;  // of `across`: (thread * reciprocal) >> kReciprocalBits is thread / across

    static constexpr int kAxes = 8;          // bits of the axes
    static constexpr int kInBulk = 1 << 11;  // bulk copies move the segments
    static constexpr int kSplit = 1 << 12;   // a segment is what one row of threads reads; segments lie apart
    static constexpr int kPacked = 1 << 13;  // columns lie side by side

    CUSCAN_DEVICE int axis(int number) const { return int(order >> 2 * number) & 3; }
    CUSCAN_DEVICE int dense() const { return int(order >> kAxes) & 7; }
    CUSCAN_DEVICE bool is_in_bulk() const { return (order & kInBulk) != 0; }
    CUSCAN_DEVICE bool is_split() const { return (order & kSplit) != 0; }
    CUSCAN_DEVICE bool is_packed() const { return (order & kPacked) != 0; }
};

// The columns of several short rows, as one axis (planning/gaps.py): after every so many of them, the next one lies
// further by a gap, which may be negative, in each array, and by another gap in the tile.
template <int kArrays>
struct ColumnGaps {
    static constexpr int kReciprocalBits = 28;

    int64 every, reciprocal;  // (column * reciprocal) >> kReciprocalBits is column / every
    int64 bytes[kArrays], bytes_in_tile[kArrays];

    CUSCAN_DEVICE int columns_of_row() const { return int(every); }
    CUSCAN_DEVICE int gaps_before(int column) const {
        return int(uint64(column) * uint64(reciprocal) >> kReciprocalBits);
    }
    CUSCAN_DEVICE int64 gap(int array) const { return bytes[array]; }
    CUSCAN_DEVICE int gap_in_tile(int array) const { return int(bytes_in_tile[array]); }
};
template <>
struct ColumnGaps<0> {
    static CUSCAN_DEVICE int gaps_before(int) { return 0; }
    static CUSCAN_DEVICE int64 gap(int) { return 0; }
    static CUSCAN_DEVICE int gap_in_tile(int) { return 0; }
};

// planning/panels.py writes these words after those of Geometry.
template <class Config>
struct PanelGeometry : Geometry<Config>, ColumnGaps<Config::kGaps ? Arrays<Config>::kCount : 0> {
    int64 columns, outers;  // of a tile: columns of a row of the batch; rows of the batch
    int64 panels, blocks;   // panels across all columns; blocks of rows along the first axis of the batch
    int64 abreast;          // panels side by side that precede those of the next block of rows
    int64 thread_rows;      // number of rows of threads
    int64 stack_rows;       // rows of threads of a stack: those of a tile; of a chunk, or of a part of it, where shared
    int64 exchange, kept;   // in bytes: where threads exchange totals; where carries are kept
    int64 levels;           // number of levels of blocks of units whose totals are kept
    int64 part_levels;      // a unit has 2^part_levels stacks
    int64 unit_levels;      // a stack has 2^unit_levels units
    int64 chunk_levels;     // a block takes 2^chunk_levels stacks at a time, where blocks share panels
    int64 chunk_tiles;      // and the tiles of so many, of which the last one may have fewer rows of threads
    int64 lanes;            // 2^lanes lanes combine the totals of a column of a stack
    uint64 number, tiles;   // number of panels; number of tiles of a panel
    int64 lacking;          // bytes that the last word of a row lacks, if columns are words
    PanelArray tile[Arrays<Config>::kInitial];
};

// What exists of a tile.
struct PanelSizes {
    static constexpr int kReciprocalBits = 28;

    int columns, outers;
    int steps, results;  // number of its steps that have elements; that have results
    int lacking;         // bytes that its last column lacks, if columns are words; otherwise 0
    uint32 reciprocal;   // of `columns`, from which it follows

    CUSCAN_DEVICE bool operator==(const PanelSizes& other) const {
        return columns == other.columns && outers == other.outers && steps == other.steps && results == other.results &&
               lacking == other.lacking;
    }
    CUSCAN_DEVICE int width() const { return columns * outers; }
    // The row of the batch in which a column lies, of all columns of the tile.
    CUSCAN_DEVICE int outer_of(int column) const {
        return outers == 1 ? 0 : int(uint64(column) * reciprocal >> kReciprocalBits);
    }
};

// Where a tile lies in the scan.
template <class Config>
struct PanelPlace : PanelSizes {
    Row<Config> first;  // address of its first step, column and row of the batch, in each array
    int64 position;     // scan position of its first step
};

// Groups of segments from two axes: after every `of_set` of them, the next one lies so much further.
template <bool kExist>
struct GroupSets {
    int64 gap;
    int gap_there;  // in shared memory
    int of_set;

    CUSCAN_DEVICE int64 gap_behind_set() const { return gap; }
    CUSCAN_DEVICE int64 gap_before(int group) const { return group / of_set * gap; }
    CUSCAN_DEVICE int gap_there_before(int group) const { return group / of_set * gap_there; }
};
template <>
struct GroupSets<false> {
    static CUSCAN_DEVICE int64 gap_behind_set() { return 0; }
    static CUSCAN_DEVICE int64 gap_before(int) { return 0; }
    static CUSCAN_DEVICE int gap_there_before(int) { return 0; }
};

// The pieces of 16 bytes in which an array of a tile moves between global and shared memory: `groups` groups of
// `segments` segments of `bytes` bytes each, from `low` on. The last segment of a group may be shorter: it lacks the
// first `skipped` bytes, and has `tail` bytes. kSets: groups come from two axes.
template <bool kSets>
struct Pieces : GroupSets<kSets> {
    static constexpr int kPiece = 16, kReciprocalBits = 20;

    char* low;
    int64 stride, group_stride;     // bytes between segments; between groups
    int64 further, groups_further;  // bytes between the segments that a thread moves; between the groups
    int place;                      // where `low` lies in shared memory
    int pitch, group_pitch;         // bytes between segments there; between groups there
    int segments, groups;
    int bytes, tail, skipped;
    int first;                       // where the first step lies in shared memory
    uint16 abreast, groups_abreast;  // segments of a group that a block moves at once; groups
    int reciprocal;                  // of `abreast`
    int inside;  // whether all pieces lie between the ends of the array; as a bool it would leave padding, and then
                 // copies of the structure move single bytes

    // Lets a block move `most` segments at once: as many of a group as there are, and as many groups as then fit.
    CUSCAN_DEVICE void spread(int most) {
        const int of_group = segments == 0 ? 1 : clamp(segments, most);
        abreast = uint16(of_group), groups_abreast = uint16(segments == 0 ? 0 : clamp(groups, most / of_group));
        reciprocal = (1 << kReciprocalBits) / of_group + 1;
        further = abreast * stride, groups_further = groups_abreast * group_stride;
    }
    // Calls visit(address, address in shared memory, offset from the segment's first byte) for each piece. Neighbouring
    // threads take one segment, from the multiple of kFrom at or before its beginning on; the threads after them take
    // the next one.
    template <int kFrom, class Visit>
    CUSCAN_DEVICE void each(const PanelArray& array, char* shared, Visit visit) const {
        const auto whole = [](int number, int by) { return int(uint32(number) * uint32(by) >> kReciprocalBits); };
        const int thread = target::thread_index(), across = int(array.across);
        const int row = whole(thread, int(array.reciprocal)), of_group = whole(row, reciprocal);
        if (of_group >= groups_abreast) return;
        const int segment = row - of_group * abreast, column = (thread - row * across) * kPiece;
        // Values that the innermost loops need, in registers.
        const int bytes = this->bytes, segments = this->segments, abreast = this->abreast,
                  further_there = abreast * pitch;
        const int64 further = this->further;
        char* group_begin = begin_of(of_group, segment);
        char* group_there = shared + place_of(of_group, segment);
        int group = of_group;
        do {
            char *begin = group_begin, *there = group_there;
            int i = segment;
            const auto first = [&] { return column - int(reinterpret_cast<uint64>(begin) % kFrom); };
            const auto next = [&] { return begin += further, there += further_there, (i += abreast) < segments; };
            if (across * kPiece >= bytes + kFrom - 1) {  // enough threads for a whole segment
                do {
                    const int at = first();
                    if (at < bytes) visit(begin + at, there + at, at);
                } while (next());
            } else {
                do {
                    CUSCAN_NO_UNROLL
                    for (int at = first(); at < bytes; at += across * kPiece) visit(begin + at, there + at, at);
                } while (next());
            }
            if constexpr (kSets) {
                const int next = group + groups_abreast;
                group_begin = begin_of(next, segment), group_there = shared + place_of(next, segment);
            } else {
                group_begin += groups_further, group_there += groups_abreast * group_pitch;
            }
        } while ((group += groups_abreast) < groups);
    }
    // Calls visit(address, address in shared memory, bytes) for each segment, by one of kThreads threads. Neighbouring
    // segments go to different warps, whose lanes send bulk copies one after the other.
    template <int kThreads, class Visit>
    CUSCAN_DEVICE void each_segment(int thread, char* shared, Visit visit) const {
        constexpr int kWarps = kThreads / target::kWarp;
        CUSCAN_NO_UNROLL
        for (int i = thread % target::kWarp * kWarps + thread / target::kWarp; i < segments * groups; i += kThreads) {
            const int group = groups == 1 ? 0 : int(uint32(i) / uint32(segments)), segment = i - group * segments;
            const int skipped = skipped_of(segment);
            visit(begin_of(group, segment) + skipped, shared + place_of(group, segment) + skipped, bytes_of(segment));
        }
    }
    // Calls visit(address, address in shared memory, begin, end) for each piece that lies only partly in a segment. The
    // segment begins and ends that many bytes from the first byte of the piece. A thread takes one piece at a time.
    template <int kThreads, class Visit>
    CUSCAN_DEVICE void each_edge(char* shared, Visit visit) const {
        const uint64 steps = uint64(stride) | uint64(group_stride) | uint64(this->gap_behind_set());
        if ((reinterpret_cast<uint64>(low) | steps | uint64(bytes | tail)) % kPiece == 0) return;
        CUSCAN_NO_UNROLL
        for (int i = target::thread_index(); i < 2 * segments * groups; i += kThreads) {
            const int group = groups == 1 ? 0 : int(uint32(i / 2) / uint32(segments)),
                      segment = i / 2 - group * segments;
            const int bytes = bytes_of(segment), from = skipped_of(segment);
            char* const begin = begin_of(group, segment) + from;
            const int beyond = int(reinterpret_cast<uint64>(begin) % kPiece), last = (beyond + bytes) / kPiece * kPiece;
            const bool is_last = i % 2 != 0;
            const int at = (is_last ? last : 0) - beyond;
            const bool is_edge = is_last ? at < bytes && (last > 0 || beyond == 0) : beyond > 0;
            if (is_edge) visit(begin + at, shared + place_of(group, segment) + from + at, -at, bytes - at);
        }
    }

    // Bytes from the first group to the last one.
    CUSCAN_DEVICE int64 last_group() const {
        return (groups - 1) * group_stride + (kSets ? this->gap_before(groups - 1) : 0);
    }

private:
    CUSCAN_DEVICE char* begin_of(int group, int segment) const {
        return low + uint64(uint32(segment)) * uint64(stride) + uint64(uint32(group)) * uint64(group_stride) +
               this->gap_before(group);
    }
    CUSCAN_DEVICE int place_of(int group, int segment) const {
        return place + segment * pitch + group * group_pitch + this->gap_there_before(group);
    }
    CUSCAN_DEVICE int bytes_of(int segment) const { return segment + 1 < segments ? bytes : tail; }
    CUSCAN_DEVICE int skipped_of(int segment) const { return segment + 1 < segments ? 0 : skipped; }
};

// A tile that a block takes: whether there is one, where it lies, and how its arrays move. Where blocks share panels:
// `sums`: only for its total; `stays`: it is the tile before, which is still in shared memory.
template <class Config>
struct PanelTurn {
    Turn turn;
    bool sums, stays;
    PanelPlace<Config> place;
    Pieces<Config::kGaps> pieces[Arrays<Config>::kInitial];
};

template <class Config>
struct PanelTile {
    static constexpr int kThreads = Config::kThreads - target::kWarp;  // workers; one more warp locates tiles
    static constexpr bool kBulk = target::kHasBulkCopy;                // whether long segments move in bulk
    static constexpr int kLong = Config::kRuns * Config::kSteps;       // steps of a thread
    // Threads above each other that hold a unit, of 256 steps; one, if a thread holds fewer than 8 steps.
    static constexpr int kUnitRows = kLong < 8 ? 1 : 256 / kLong;
    // Whether the last warp sends bulk copies of a few segments. That takes longer, but workers have less to do: where
    // no tile waits for the one before it, another block of the multiprocessor works meanwhile.
    static constexpr bool kLastLoads = kBulk && !Config::kKept && !Config::kGrid;
    static constexpr int kFew = 2 * target::kWarp;
    using Numbers = Arrays<Config>;
    using Pieces = cuscan::Pieces<Config::kGaps>;
    // Whether a column is a word of small items.
    static constexpr bool kOnWords = kIsWord<typename OperandOf<0, typename Config::Values>::Is::Type>;

    const PanelGeometry<Config>& geometry;
    const Row<Config>& origin;
    char* shared;

    CUSCAN_DEVICE bool is_staged(int array) const { return geometry.tile[array].region >= 0; }
    // The arrays at the beginning of a column of the tile.
    CUSCAN_DEVICE Row<Config> row(const PanelPlace<Config>& place, int column) const {
        Row<Config> here = place.first;
        const int outer = place.outer_of(column), in_row = column - outer * place.columns;
        here.advance(geometry.batch[0], outer);
        here.advance(geometry.column, in_row);
        if constexpr (Config::kGaps) {
            const int gaps = geometry.gaps_before(in_row);
            CUSCAN_UNROLL
            for (int a = 0; a < Numbers::kCount; ++a) here.array[a] += gaps * geometry.gap(a);
        }
        return here;
    }
    // How a staged array moves.
    CUSCAN_DEVICE Pieces pieces(const PanelPlace<Config>& place, int array) const {
        const PanelArray& tile = geometry.tile[array];
        const bool is_result = array >= Numbers::kResults && array < Numbers::kMask;
        const int steps = is_result ? place.results : place.steps;
        if (tile.is_split()) return split_pieces(place, array, steps);
        const int64 along = geometry.axis.stride[array];
        const auto is_column = [](int axis) { return axis == kColumn || (Config::kGaps && axis == kInner); };
        const auto extent = [&](int axis) {
            return axis == kStep ? steps : is_column(axis) ? columns_along(axis, place.columns) : place.outers;
        };
        const auto stride = [&](int axis) {
            return axis == kStep     ? (along < 0 ? -along : along)
                   : is_column(axis) ? across(axis, geometry.column.stride[array], geometry.gap(array))
                                     : geometry.batch[0].stride[array];
        };
        const auto pitch = [&](int axis) {
            if (Config::kGaps && is_column(axis))
                return int(across(axis, tile.pitch[kColumn], geometry.gap_in_tile(array)));
            return int(tile.pitch[axis] < 0 ? -tile.pitch[axis] : tile.pitch[axis]);
        };
        const int first = tile.axis(0), second = tile.axis(1), third = tile.axis(2), dense = tile.dense();
        const int backwards = along < 0 ? steps - 1 : 0;  // steps
        Pieces all;
        all.low = place.first.array[array] + backwards * along;
        all.place = int(tile.region) + beyond_piece(all, array);
        all.first = all.place - backwards * int(tile.pitch[kStep]);
        all.bytes = extent(first) * pitch(first);  // including the gaps between values that move together
        if (dense > 1) all.bytes += (extent(second) - 1) * pitch(second);
        if (dense > 2) all.bytes += (extent(third) - 1) * pitch(third);
        if (Config::kGaps && dense > 3) all.bytes += (extent(tile.axis(3)) - 1) * pitch(tile.axis(3));
        if (kOnWords && stride(kColumn) != 0) all.bytes -= place.lacking;  // flags may hold for all columns
        all.tail = all.bytes, all.skipped = 0;
        if constexpr (Config::kGaps) {  // the axes from `dense` on: of segments, of groups, of their sets
            const auto has = [&](int beyond) { return dense + beyond < 4; };
            const int next = tile.axis(dense), group = tile.axis(dense + 1), set = tile.axis(dense + 2);
            all.segments = steps == 0 ? 0 : has(0) ? extent(next) : 1;
            all.stride = has(0) ? stride(next) : 0, all.pitch = has(0) ? pitch(next) : 0;
            // Not 0, as it divides numbers of groups.
            all.of_set = has(1) && steps > 0 ? extent(group) : 1, all.groups = all.of_set * (has(2) ? extent(set) : 1);
            all.group_stride = has(1) ? stride(group) : 0, all.group_pitch = has(1) ? pitch(group) : 0;
            all.gap = has(2) ? stride(set) - all.of_set * stride(group) : 0;
            all.gap_there = has(2) ? pitch(set) - all.of_set * pitch(group) : 0;
        } else {
            // Of the remaining axes, the one with the larger extent leads from segment to segment.
            const bool turned = dense == 1 && extent(third) > extent(second);
            const int next = dense == 1 && !turned ? second : third, last = turned ? second : third;
            all.segments = steps == 0 ? 0 : dense < 3 ? extent(next) : 1, all.groups = dense == 1 ? extent(last) : 1;
            all.stride = stride(next), all.group_stride = dense == 1 ? stride(last) : 0;
            all.pitch = pitch(next), all.group_pitch = dense == 1 ? pitch(last) : 0;
        }
        all.spread(int(tile.rows));
        all.inside = is_inside(all, array);
        return all;
    }
    // The same pieces, so many bytes further.
    CUSCAN_DEVICE Pieces moved(Pieces all, int array, int64 bytes) const {
        const int beyond = beyond_piece(all, array);
        all.low += bytes;
        const int further = beyond_piece(all, array) - beyond;
        all.place += further, all.first += further;
        all.inside = is_inside(all, array);
        return all;
    }

    // Starts to load those elements of an array that exist in the tile, but for what load_few() loads. The caller then
    // arrives at `arrived`, and expects as many bytes as this returns.
    template <int kArray, class Operand>
    CUSCAN_DEVICE uint32 load(Operand, const PanelTurn<Config>& turn, target::Barrier& arrived) const {
        using T = typename Single<typename Operand::Type>::Type;
        if (!is_staged(kArray)) return 0;
        const Pieces& pieces = turn.pieces[kArray];
        const PanelArray& array = geometry.tile[kArray];
        if constexpr (kBulk)
            if (array.is_in_bulk() && pieces.inside)
                return has_few(pieces) ? 0 : load_in_bulk<kThreads>(pieces, arrived, target::thread_index());
        const auto send = [&](char* at, char* there, int) { arrived.load((Piece*)there, (const Piece*)at); };
        if (pieces.inside) {
            pieces.template each<16>(array, shared, send);
            return 0;
        }
        const char* const lowest = origin.array[kArray] + geometry.span[kArray].lowest;
        const char* const end = origin.array[kArray] + geometry.span[kArray].end;
        pieces.template each<16>(array, shared, [&](char* at, char* there, int behind) {
            if (at >= lowest && at + 16 <= end) return send(at, there, behind);
            const int begin = clamp(lowest - at, 16);
            copy_part<T>(there, at, begin > -behind ? begin : -behind, clamp(end - at, pieces.bytes - behind));
        });
        return 0;
    }
    // The same by the last warp, for an array whose segments move in bulk and are few.
    template <int kArray>
    CUSCAN_DEVICE uint32 load_few(const PanelTurn<Config>& turn, target::Barrier& arrived) const {
        if (!is_staged(kArray)) return 0;
        const Pieces& pieces = turn.pieces[kArray];
        const bool loads = geometry.tile[kArray].is_in_bulk() && pieces.inside && has_few(pieces);
        return loads ? load_in_bulk<target::kWarp>(pieces, arrived, target::thread_index() % target::kWarp) : 0;
    }
    // Stores those elements of a result that exist in the tile. No two warps store parts of the same sector, except at
    // the edges of the tile. Bulk copies read the tile until wait_for_bulk_stores().
    template <int kArray, class Operand>
    CUSCAN_DEVICE void store(Operand, const PanelTurn<Config>& turn) const {
        using T = typename Single<typename Operand::Type>::Type;
        if (!is_staged(kArray)) return;
        const Pieces& pieces = turn.pieces[kArray];
        const PanelArray& array = geometry.tile[kArray];
        const int bytes = pieces.bytes;
        if (kBulk && array.is_in_bulk()) {
            store_in_bulk(pieces);
        } else {
            pieces.template each<target::kSector>(array, shared, [&](char* at, char* there, int behind) {
                if (behind < 0 || behind + 16 > bytes) return;
                const Piece piece = *(const Piece*)there;
                target::store_vector((Piece*)at, piece);
            });
        }
        pieces.template each_edge<kThreads>(shared, copy_part<T>);
    }

private:
    using Piece = Vector<uint32, 4>;

    // The columns of a tile across short rows, or along one (kInner).
    CUSCAN_DEVICE int columns_along(int axis, int columns) const {
        if constexpr (Config::kGaps)
            return axis == kInner ? geometry.columns_of_row() : geometry.gaps_before(columns);
        else
            return columns;
    }
    // The bytes between neighbours there, given those between columns of a row and the gap behind it.
    CUSCAN_DEVICE int64 across(int axis, int64 column, int64 gap) const {
        if constexpr (Config::kGaps)
            if (axis == kColumn) return geometry.columns_of_row() * column + gap;
        return column;
    }
    static CUSCAN_DEVICE bool has_few(const Pieces& pieces) {
        return kLastLoads && pieces.segments * pieces.groups <= kFew;
    }
    // How an array moves whose rows of threads lie apart. The last one may have fewer steps. They descend in memory,
    // and so do their segments here, if the scan goes against the array's order.
    CUSCAN_DEVICE Pieces split_pieces(const PanelPlace<Config>& place, int array, int steps) const {
        const PanelArray& tile = geometry.tile[array];
        const int64 along = geometry.axis.stride[array];
        const int of_step = int(along < 0 ? -tile.pitch[kStep] : tile.pitch[kStep]), row = int(tile.thread_row);
        const int behind = along < 0 ? kLong - 1 : 0;                              // steps of a row that lie lower
        const int below = along < 0 ? (int(geometry.thread_rows) - 1) * -row : 0;  // bytes of lower rows
        Pieces all;
        all.low = place.first.array[array] + behind * along;
        all.place = int(tile.region) + round_up(below, target::kSector) + beyond_piece(all, array);
        all.first = all.place + behind * of_step;
        all.segments = (steps + kLong - 1) / kLong, all.groups = place.outers;
        all.stride = kLong * along, all.group_stride = geometry.batch[0].stride[array];
        all.pitch = row, all.group_pitch = int(tile.pitch[kOuter]);
        if constexpr (Config::kGaps) all.of_set = all.groups, all.gap = 0, all.gap_there = 0;
        all.bytes = kLong * of_step, all.tail = (steps - (all.segments - 1) * kLong) * of_step;
        all.skipped = along < 0 ? all.bytes - all.tail : 0;
        all.spread(int(tile.rows));
        all.inside = is_inside(all, array);
        return all;
    }
    // Bytes from a multiple of 16, or of 32 for bulk copies, to the first piece.
    CUSCAN_DEVICE int beyond_piece(const Pieces& all, int array) const {
        return int(reinterpret_cast<uint64>(all.low) %
                   (geometry.tile[array].is_in_bulk() ? target::kSector : Pieces::kPiece));
    }
    CUSCAN_DEVICE bool is_inside(const Pieces& all, int array) const {
        const char* const lowest = origin.array[array] + geometry.span[array].lowest;
        const char* const end = origin.array[array] + geometry.span[array].end;
        const int64 descends = all.stride < 0 ? (all.segments - 1) * all.stride : 0;
        const int64 behind = (all.segments - 1) * all.stride - descends + all.last_group();
        return all.low + descends - 15 >= lowest && all.low + behind + all.bytes + 15 <= end;
    }

    CUSCAN_DEVICE void store_in_bulk(const Pieces& pieces) const {
        pieces.template each_segment<kThreads>(target::thread_index(), shared, [&](char* at, char* there, int bytes) {
            const int first = int(-reinterpret_cast<uint64>(at) % 16);
            const int last = bytes - int((reinterpret_cast<uint64>(at) + bytes) % 16);
            if (last > first) target::store_in_bulk(at + first, there + first, last - first);
        });
    }
    template <int kLoading>
    CUSCAN_DEVICE uint32 load_in_bulk(const Pieces& pieces, target::Barrier& arrived, int thread) const {
        uint32 sum = 0;
        target::fence_before_copies();
        pieces.template each_segment<kLoading>(thread, shared, [&](char* at, char* there, int bytes) {
            const int skipped = int(reinterpret_cast<uint64>(at) % 16), whole = round_up(skipped + bytes, 16);
            arrived.load(there - skipped, at - skipped, whole);
            sum += whole;
        });
        return sum;
    }
};

}  // namespace cuscan
