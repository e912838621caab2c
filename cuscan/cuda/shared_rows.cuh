// The rows of a block in shared memory, whatever their length, their alignment, and the gaps between them. A row lies
// there as far beyond a multiple of 16 bytes as in memory, so it moves in pieces of 16 bytes; the elements before its
// first piece and after its last one move by themselves. Rows with small gaps between them, or none, are loaded as one
// row; stretches of rows without gaps are stored as one.
#pragma once
#include "warp_tile.cuh"

namespace cuscan {

// Where an array's rows lie in shared memory, in bytes: the first row, the distance from row to row, and the gap behind
// each stretch of rows. Rows are `together` if they lie so in memory, too; else the distance is a multiple of 16, or 0
// if all rows are the same, and there are no gaps.
struct RowsOfArray {
    int64 region, pitch, together, gap;
};

// A run is `run` rows that are neighbours along the first batch axis, or the first two, or all rows. blocks_of_run
// blocks share a run, and each takes up to rows_of_block of its rows. With gaps, these are whole stretches of `stretch`
// rows.
template <class Config>
struct RowsGeometry : Geometry<Config> {
    int64 rows_of_block, run, blocks_of_run, stretch;
    RowsOfArray rows_of[Arrays<Config>::kInitial];
};

// Neighbours in memory, and their place in shared memory, as far beyond a multiple of 16 bytes. Where bulk copies load
// them it is a multiple of 32, or the copies take a tenth longer.
struct Stretch {
    static constexpr int kPiece = 16, kSector = 32;
    using Piece = Vector<uint32, 4>;

    char* at;
    char* there;
    int bytes;

    CUSCAN_DEVICE int skipped() const { return int(reinterpret_cast<uint64>(at) % kPiece); }
    // The number of pieces in which the stretch lies, and of those the first and the last that it fills.
    CUSCAN_DEVICE int pieces() const { return (skipped() + bytes + kPiece - 1) / kPiece; }
    CUSCAN_DEVICE int first_whole() const { return skipped() > 0; }
    CUSCAN_DEVICE int end_whole() const { return (skipped() + bytes) / kPiece; }
    // Calls visit(a piece in memory, in shared memory, bytes from there to the stretch, and to its end).
    template <class Visit>
    CUSCAN_DEVICE void piece(int number, Visit&& visit) const {
        const int behind = number * kPiece - skipped();
        visit(at + behind, there + behind, -behind, bytes - behind);
    }
};

// With kTogether, the rows of all staged arrays are together.
template <class Config>
struct SharedRows {
    using Place = Row<Config>;
    using Shape = RowsGeometry<Config>;
    static constexpr int kThreads = Config::kWarps * target::kWarp;

    const Shape& geometry;
    const Place& origin;
    const uint32 run;    // of the block
    const int64 in_run;  // place of its first row there
    const uint64 first_row;
    const Place first;
    const int count;  // rows of the block

    CUSCAN_DEVICE SharedRows(const Place& all_rows, const Shape& shape)
        : geometry(shape),
          origin(all_rows),
          run(target::block_index() / uint32(shape.blocks_of_run)),
          in_run(int64(target::block_index() - run * uint32(shape.blocks_of_run)) * shape.rows_of_block),
          first_row(uint64(run) * uint64(shape.run) + uint64(in_run)),
          first(all_rows.at(shape, first_row)),
          count(clamp(shape.run - in_run, int(shape.rows_of_block))) {}

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        if constexpr (kArray < Numbers::kInitial)
            return OperandOfArray<Config, kArray>::kStaged;
        else
            return false;
    }
    // Scan position 0 of a row in shared memory; `place` is the row in memory.
    template <int kArray>
    CUSCAN_DEVICE auto* row(const Place& place, int number) const {
        using T = Type<kArray>;
        return reinterpret_cast<T*>(in_shared<kArray>(lowest_of<kArray>(place), number)) + back<kArray>();
    }

    // Lets a row's pointers to the arrays that pass through shared memory point there.
    CUSCAN_DEVICE void point_into_shared(Place& place, int number) const {
        static_assert(Config::kTogether, "the first row says where the others lie");
        for_each_array<0, Numbers::kInitial>([&](auto k) {
            constexpr int kArray = decltype(k)::value;
            place.array[kArray] = (char*)row<kArray>(first, number);
        });
    }

    // All threads of the block call load() first and store() last; the rows are in shared memory in between. load()
    // waits for the previous kernel.
    CUSCAN_DEVICE void load() const {
        auto& barrier = target::shared_memory<target::Barrier>();
        if (target::thread_index() == 0) {
            barrier.init(kThreads + 1);
            target::fence_after_init();
        }
        target::sync_block();
        target::wait_for_previous_kernel();
        target::allow_next_kernel();
        uint32 bulk = 0;
        const auto load_one = [&](auto k) { bulk += load_array<decltype(k)::value>(barrier); };
        for_each_array<0, Numbers::kResults>(load_one);
        for_each_array<Numbers::kMask, Numbers::kInitial>(load_one);
        if (target::thread_index() == 0) barrier.expect(bulk);
        barrier.arrive_loaded();
        barrier.wait_together(0);
    }
    CUSCAN_DEVICE void store() const {
        target::sync_block();
        for_each_array<Numbers::kResults, Numbers::kMask>([&](auto k) {
            using T = Type<decltype(k)::value>;
            each_stretch<decltype(k)::value>([&](const Stretch& stretch, int thread, int threads) {
                const int first_whole = stretch.first_whole(), end_whole = stretch.end_whole();
                const auto store_part = [](char* at, const char* there, int begin, int end) {
                    copy_part<T>(at, there, begin, end);
                };
                for (int i = first_whole + thread; i < end_whole; i += threads)
                    stretch.piece(i, [](char* at, const char* there, int, int) {
                        const Piece piece = *(const Piece*)there;
                        target::store_vector((Piece*)at, piece);
                    });
                if (thread == 0 && first_whole > 0) stretch.piece(0, store_part);
                if (thread == threads - 1 && end_whole >= first_whole && end_whole < stretch.pieces())
                    stretch.piece(end_whole, store_part);
            });
        });
    }

private:
    using Numbers = Arrays<Config>;
    using Piece = Stretch::Piece;
    template <int kArray>
    using Type = typename OperandOfArray<Config, kArray>::Type;

    template <int kFrom, int kTo, class Visit>
    static CUSCAN_DEVICE void for_each_array(Visit&& visit) {
        if constexpr (kFrom < kTo) {
            if constexpr (holds<kFrom>()) visit(Number<kFrom>());
            for_each_array<kFrom + 1, kTo>(visit);
        }
    }
    template <int kArray>
    CUSCAN_DEVICE int length() const {
        return int(kArray >= Numbers::kResults && kArray < Numbers::kMask ? geometry.axis.size : geometry.elements());
    }
    // Elements from the lowest address of a row to scan position 0.
    template <int kArray>
    CUSCAN_DEVICE int back() const {
        return is_reversed(OperandOfArray<Config, kArray>::kAccess) ? length<kArray>() - 1 : 0;
    }
    template <int kArray>
    CUSCAN_DEVICE char* lowest_of(const Place& place) const {
        return place.array[kArray] - back<kArray>() * int(sizeof(Type<kArray>));
    }
    template <int kArray>
    CUSCAN_DEVICE char* in_shared(const char* lowest, int number) const {
        const RowsOfArray& rows = geometry.rows_of[kArray];
        if (Config::kTogether || rows.together) lowest = lowest_of<kArray>(first);
        const bool in_bulk = Config::kTogether || rows.together || rows.pitch == 0;
        const int beyond = int(reinterpret_cast<uint64>(lowest) % (in_bulk ? Stretch::kSector : Stretch::kPiece));
        return &target::shared_memory<char>() + int(rows.region) + beyond + distance<kArray>(number);
    }
    // Bytes from the first row to another one.
    template <int kArray>
    CUSCAN_DEVICE int distance(int number) const {
        const RowsOfArray& rows = geometry.rows_of[kArray];
        const int bytes = number * int(rows.pitch);
        if (!Config::kTogether || rows.gap == 0) return bytes;
        return bytes + int(uint32(number) / uint32(geometry.stretch)) * int(rows.gap);
    }

    // Calls visit(stretch, number of this thread, of threads) for the stretches that this thread takes part in.
    template <int kArray, class Visit>
    CUSCAN_DEVICE void each_stretch(Visit&& visit) const {
        constexpr bool kIsResult = kArray >= Numbers::kResults && kArray < Numbers::kMask;
        const RowsOfArray& rows = geometry.rows_of[kArray];
        const bool together = Config::kTogether || rows.together;
        const int thread = target::thread_index();
        int bytes = length<kArray>() * int(sizeof(Type<kArray>));
        const bool have_gaps = rows.pitch != bytes, are_apart = kIsResult && (have_gaps || rows.gap != 0);
        if ((together && !(Config::kTogether && are_apart)) || rows.pitch == 0) {
            char* const at = lowest_of<kArray>(first);
            const Stretch stretch{at, in_shared<kArray>(at, 0), bytes + distance<kArray>(count - 1)};
            return visit(stretch, thread, kThreads);
        }
        const int in_stretch = have_gaps ? 1 : int(geometry.stretch);
        bytes *= in_stretch;
        // As many threads to a stretch as it has pieces, or a warp.
        int levels = 0;
        while (levels < 5 && Stretch::kPiece << levels < bytes) ++levels;
        const int threads = 1 << levels;
        for (int number = (thread >> levels) * in_stretch; number < count;
             number += (kThreads >> levels) * in_stretch) {
            char* const at = together ? lowest_of<kArray>(first) + distance<kArray>(number)
                                      : lowest_of<kArray>(origin.at(geometry, first_row + number));
            visit(Stretch{at, in_shared<kArray>(at, number), bytes}, thread & (threads - 1), threads);
        }
    }
    // Returns the bytes of bulk copies. Pieces that lie in the array are loaded whole.
    template <int kArray>
    CUSCAN_DEVICE uint32 load_array(target::Barrier& barrier) const {
        uint32 bulk = 0;
        const char* const lowest = origin.array[kArray] + geometry.span[kArray].lowest;
        const char* const end = origin.array[kArray] + geometry.span[kArray].end;
        each_stretch<kArray>([&](const Stretch& stretch, int thread, int threads) {
            int first_whole = stretch.pieces(), end_whole = first_whole;  // of those that move in bulk
            if (target::kHasBulkCopy && threads == kThreads && stretch.first_whole() < stretch.end_whole()) {
                first_whole = stretch.first_whole(), end_whole = stretch.end_whole();
                if (thread == 0)
                    stretch.piece(first_whole, [&](const char* at, char* there, int, int) {
                        bulk = (end_whole - first_whole) * Stretch::kPiece;
                        barrier.load(there, at, bulk);
                    });
            }
            for (int i = thread; i < stretch.pieces() - (end_whole - first_whole); i += threads)
                stretch.piece(i < first_whole ? i : i + (end_whole - first_whole),
                              [&](const char* at, char* there, int begin, int behind) {
                                  if (at >= lowest && at + Stretch::kPiece <= end)
                                      return barrier.load((Piece*)there, (const Piece*)at);
                                  copy_part<Type<kArray>>(there, at, begin, behind);
                                  target::fence();  // arrive_loaded waits for copies only
                              });
        });
        return bulk;
    }
};

// Source of a row in shared memory, and its destination. With kReads it holds all staged arrays, else only results:
// values stay in registers.
template <class Config, bool kReads>
struct FromRows {
    static constexpr bool kKeeps = true, kFill = Config::kFill;
    static constexpr int start = 0;

    const SharedRows<Config>& rows;
    const Row<Config>& place;
    const int number;
    const int first;  // position in the row that the warp tile begins at

    template <int kArray>
    static CUSCAN_DEVICE constexpr bool holds() {
        constexpr bool kIsResult = kArray >= Arrays<Config>::kResults && kArray < Arrays<Config>::kMask;
        return SharedRows<Config>::template holds<kArray>() && (kReads || kIsResult);
    }
    // Lanes beyond the end of the row read its last run.
    template <int kArray>
    CUSCAN_DEVICE auto* element(int index) const {
        const int elements = int(rows.geometry.elements());
        const int last = (elements - 1) / Config::kItems * Config::kItems;
        return advance<OperandOfArray<Config, kArray>::kAccess>(rows.template row<kArray>(place, number), 0,
                                                                first + index < last ? first + index : last);
    }
    template <int kArray>
    CUSCAN_DEVICE auto* result(int index) const {
        return advance<OperandOfArray<Config, kArray>::kAccess>(rows.template row<kArray>(place, number), 0, index);
    }
};

}  // namespace cuscan
