// Dense rows lie one after the other without gaps: those of a block are one stretch of memory in each array. It passes
// through shared memory in 16-byte pieces, whatever the length and alignment of its rows. The threads of the block share
// the pieces out, and the few elements before the first and after the last that are no whole piece.
#pragma once
#include "vectors.cuh"

namespace cuscan {

// Room in shared memory for a stretch of up to kElements, by a block of kThreads.
template <class T, int kElements, int kThreads>
struct Stretch {
    static constexpr int kPiece = 16 / sizeof(T);  // elements
    static constexpr int kInFlight = 8;            // pieces that a thread sends for before it waits for the first
    using Piece = Vector<T, kPiece>;

    alignas(16) unsigned char bytes[(kElements * sizeof(T) + 2 * 16 - 1) / 16 * 16];

    // Where the stretch that begins at `array` begins here: as far beyond a multiple of 16 bytes.
    CUSCAN_DEVICE T* first(const T* array) { return reinterpret_cast<T*>(bytes + misalignment(array)); }

    CUSCAN_DEVICE void load(const T* array, int count) {
        const Cut cut(array, count);
        const int thread = target::thread_index(), last = count - 1 - thread;
        T* here = first(array);
        T head, tail;
        if (thread < cut.head) head = array[thread];
        if (thread < cut.tail) tail = array[last];
        const Piece* from = reinterpret_cast<const Piece*>(array + cut.head);
        Piece* to = reinterpret_cast<Piece*>(here + cut.head);
        for (int start = thread; start < cut.pieces; start += kInFlight * kThreads) {
            Piece piece[kInFlight];
            CUSCAN_UNROLL
            for (int k = 0; k < kInFlight; ++k)
                if (start + k * kThreads < cut.pieces) piece[k] = target::load_streaming(from + start + k * kThreads);
            CUSCAN_UNROLL
            for (int k = 0; k < kInFlight; ++k)
                if (start + k * kThreads < cut.pieces) to[start + k * kThreads] = piece[k];
        }
        if (thread < cut.head) here[thread] = head;
        if (thread < cut.tail) here[last] = tail;
    }

    CUSCAN_DEVICE void store(T* array, int count) {
        const Cut cut(array, count);
        const int thread = target::thread_index(), last = count - 1 - thread;
        const T* here = first(array);
        const Piece* from = reinterpret_cast<const Piece*>(here + cut.head);
        Piece* to = reinterpret_cast<Piece*>(array + cut.head);
        for (int k = thread; k < cut.pieces; k += kThreads) target::store_streaming(to + k, from[k]);
        if (thread < cut.head) array[thread] = here[thread];
        if (thread < cut.tail) array[last] = here[last];
    }

private:
    static CUSCAN_DEVICE int misalignment(const T* array) { return int(reinterpret_cast<uint64>(array) % 16); }

    // Elements before the first whole piece, pieces, elements after the last.
    struct Cut {
        int head, pieces, tail;

        CUSCAN_DEVICE Cut(const T* array, int count) {
            head = (16 - misalignment(array)) % 16 / int(sizeof(T));
            head = head < count ? head : count;
            pieces = (count - head) / kPiece;
            tail = count - head - pieces * kPiece;
        }
    };
};

template <class Config>
struct DenseRows {
    using Value = typename Config::Value;
    using Result = typename Config::Result;
    using Place = Row<Value, Result>;
    static constexpr int kElements = Config::kRows * Config::kLongest;  // of a block, at most
    static constexpr int kThreads = Config::kWarps * target::kWarp;
    static constexpr bool kMasked = Config::kMaskAccess != Access::kNone;
    static constexpr bool kMirrored = Config::kValueAccess == Access::kMirrored;  // all arrays are, or none is

    struct Shared {
        Stretch<Value, kElements, kThreads> value;
        Stretch<boolean, kMasked ? kElements : 0, kThreads> mask;
        Stretch<Result, Config::kInPlace ? 0 : kElements, kThreads> other_result;

        // In place of the values if they are as large and lie alike: who writes a result has read the value there.
        CUSCAN_DEVICE Stretch<Result, kElements, kThreads>& result() {
            if constexpr (Config::kInPlace)
                return reinterpret_cast<Stretch<Result, kElements, kThreads>&>(value);
            else
                return other_result;
        }
    };

    // Brings the rows of this block to shared memory, calls scan(here, count) with scan position 0 of the first row there
    // and the number of rows, and takes the results away.
    template <class Scan>
    static CUSCAN_DEVICE void pass(const Place& origin, int64 length, uint64 rows, Scan scan) {
        static_assert(sizeof(Shared) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
        auto& shared = target::shared_memory<Shared>();
        const uint64 first_row = uint64(target::block_index()) * Config::kRows;
        const int count = clamp(int64(rows - first_row), Config::kRows), elements = count * int(length);
        const int to_origin = kMirrored ? int(length) - 1 : 0;  // from the lowest address of a row
        const int64 lowest = int64(first_row) * length - to_origin;

        shared.value.load(origin.value + lowest, elements);
        if constexpr (kMasked) shared.mask.load(origin.mask + lowest, elements);
        target::sync_block();
        scan(Place{shared.value.first(origin.value + lowest) + to_origin,
                   shared.result().first(origin.result + lowest) + to_origin,
                   kMasked ? shared.mask.first(origin.mask + lowest) + to_origin : nullptr},
             count);
        target::sync_block();
        shared.result().store(origin.result + lowest, elements);
    }
};

}  // namespace cuscan
