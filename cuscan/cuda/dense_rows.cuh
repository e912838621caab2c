// Dense rows lie one after another without gaps: those of a block are one stretch of memory in each array. All threads
// of a block call DenseRows::pass, which takes the stretch through shared memory, whatever the length and alignment of
// its rows. One bulk copy loads the 16-byte pieces, and all threads store them; the few elements before the first piece
// and after the last take a thread each. pass() synchronises the block before the scan and after it.
#pragma once
#include "vectors.cuh"

namespace cuscan {

// Shared memory for a stretch of up to kElements elements, and the barrier of its bulk copy.
template <class T, int kElements>
struct Stretch {
    static constexpr int kBytes = 16, kPiece = kBytes / sizeof(T);
    static constexpr int kMargin = 2 * kBytes;  // on either side; threads may read it, no result depends on it
    using Piece = Vector<uint32, 4>;            // for elements of all types

    alignas(kBytes) unsigned char bytes[(kElements * sizeof(T) + 2 * kBytes - 1) / kBytes * kBytes + 2 * kMargin];
    target::Barrier barrier;

    // Numbers of elements before the first whole piece, of pieces, and of elements after the last one.
    struct Cut {
        int head, pieces, tail;

        CUSCAN_DEVICE Cut(const T* array, int count) {
            head = (kBytes - misalignment(array)) % kBytes / int(sizeof(T));
            head = head < count ? head : count;
            pieces = (count - head) / kPiece;
            tail = count - head - pieces * kPiece;
        }
    };

    // Where the stretch at `array` begins in shared memory: as far beyond a multiple of 16 bytes.
    CUSCAN_DEVICE T* first(const T* array) { return reinterpret_cast<T*>(bytes + kMargin + misalignment(array)); }

    // Called by all threads; sync_block and then wait() must follow.
    CUSCAN_DEVICE void load(const T* array, int count) {
        const Cut cut(array, count);
        const int thread = target::thread_index(), last = count - 1 - thread;
        T* here = first(array);
        if (thread == 0 && cut.pieces > 0) {
            barrier.init();
            target::fence_after_init();
            target::fence_before_copies();
            barrier.expect(cut.pieces * kBytes);
            barrier.load(here + cut.head, array + cut.head, cut.pieces * kBytes);
        }
        if (thread < cut.head) here[thread] = array[thread];
        if (thread < cut.tail) here[last] = array[last];
    }
    CUSCAN_DEVICE void wait(const T* array, int count) {
        if (Cut(array, count).pieces > 0) barrier.wait(0);
    }

    template <int kThreads>
    CUSCAN_DEVICE void store(T* array, int count) {
        const Cut cut(array, count);
        const int thread = target::thread_index(), last = count - 1 - thread;
        const T* here = first(array);
        const Piece* from = reinterpret_cast<const Piece*>(here + cut.head);
        Piece* to = reinterpret_cast<Piece*>(array + cut.head);
        for (int k = thread; k < cut.pieces; k += kThreads) {
            const Piece piece = from[k];
            target::store_vector(to + k, piece);
        }
        if (thread < cut.head) array[thread] = here[thread];
        if (thread < cut.tail) array[last] = here[last];
    }

private:
    static CUSCAN_DEVICE int misalignment(const T* array) { return int(reinterpret_cast<uint64>(array) % kBytes); }
};

template <class Config>
struct DenseRows {
    using Place = Plain<Config>;
    using Value = typename Place::Value;
    using Result = typename Place::Result;
    static constexpr int kElements = Config::kRows * Config::kLongest;  // elements of a block, at most
    static constexpr int kThreads = Config::kWarps * target::kWarp;
    static constexpr bool kMasked = Place::kMasked;
    static constexpr bool kReversed = Place::ValueOperand::kAccess == Access::kReversed;  // either all arrays or none

    struct Shared {
        Stretch<Value, kElements> value;
        Stretch<boolean, kMasked ? kElements : 0> mask;
        Stretch<Result, Config::kInPlace ? 0 : kElements> other_result;

        // Results take the place of values of the same size and alignment: the thread that writes a result has read the
        // value there.
        CUSCAN_DEVICE Stretch<Result, kElements>& result() {
            if constexpr (Config::kInPlace)
                return reinterpret_cast<Stretch<Result, kElements>&>(value);
            else
                return other_result;
        }
    };

    // Loads the rows of this block to shared memory, calls scan(here, count) with scan position 0 of the first row
    // there and the number of rows, and stores the results.
    template <class Scan>
    static CUSCAN_DEVICE void pass(const Place& origin, int64 length, uint64 rows, Scan scan) {
        static_assert(sizeof(Shared) <= Config::kSharedBytes, "planning/dense_rows.py must request more shared memory");
        auto& shared = target::shared_memory<Shared>();
        const uint64 first_row = uint64(target::block_index()) * Config::kRows;
        const int count = clamp(int64(rows - first_row), Config::kRows), elements = count * int(length);
        const int to_origin = kReversed ? int(length) - 1 : 0;  // elements from the lowest address of a row
        const int64 lowest = int64(first_row) * length - to_origin;
        const Place from{origin.value + lowest, origin.result + lowest, origin.mask + lowest};

        shared.value.load(from.value, elements);
        if constexpr (kMasked) shared.mask.load(from.mask, elements);
        target::sync_block();
        shared.value.wait(from.value, elements);
        if constexpr (kMasked) shared.mask.wait(from.mask, elements);

        Value* values = shared.value.first(from.value) + to_origin;
        Place here{values, nullptr, kMasked ? shared.mask.first(from.mask) + to_origin : nullptr};
        if constexpr (Config::kInPlace)
            here.result = reinterpret_cast<Result*>(values);
        else
            here.result = shared.other_result.first(from.result) + to_origin;
        scan(here, count);
        target::sync_block();
        shared.result().template store<kThreads>(from.result, elements);
    }
};

}  // namespace cuscan
