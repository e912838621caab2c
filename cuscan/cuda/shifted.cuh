// Vectors of neighbouring elements that are not aligned: read from shared memory (read_anywhere, read_shifted) and
// written to it (TurnedRuns) by threads on their own, loaded from global memory and stored to it (PiecedRuns) by all
// lanes of a warp together.
#pragma once
#include "vectors.cuh"

namespace cuscan {

// Extracts a vector from the two pieces of its size in which it lies, `beyond` bytes from where they begin; `beyond` is
// at most its size.
template <class T, int kItems>
CUSCAN_DEVICE Vector<T, kItems> out_of_two(const uint32* low, const uint32* high, int beyond) {
    constexpr int kWords = target::Words<Vector<T, kItems>>::kCount;
    uint32 word[2 * kWords];
    CUSCAN_UNROLL
    for (int i = 0; i < kWords; ++i) word[i] = low[i], word[kWords + i] = high[i];
    CUSCAN_UNROLL
    for (int by = kWords; by > 0 && 4 * by >= int(sizeof(T)); by /= 2) {
        CUSCAN_UNROLL
        for (int i = 0; i + by < 2 * kWords; ++i) word[i] = beyond & (4 * by) ? word[i + by] : word[i];
    }
    target::Words<Vector<T, kItems>> words;
    CUSCAN_UNROLL
    for (int i = 0; i < kWords; ++i)
        words.word[i] = sizeof(T) < 4 ? uint32((uint64(word[i + 1]) << 32 | word[i]) >> (beyond % 4 * 8)) : word[i];
    return target::from_words<Vector<T, kItems>>(words);
}

// Reads kItems neighbours at any address in shared memory, the lowest of which is `item`, from the two aligned pieces
// in which they lie. The pieces reach less than two pieces beyond the neighbours, where there must be room; the result
// does not depend on what lies there.
template <int kItems, class T>
CUSCAN_DEVICE Vector<T, kItems> read_anywhere(const T* item) {
    constexpr int kWords = target::Words<Vector<T, kItems>>::kCount;
    using Piece = Vector<uint32, kWords>;
    const int beyond = int(reinterpret_cast<uint64>(item) % sizeof(Piece));  // bytes from the first piece's address
    const Piece* piece = reinterpret_cast<const Piece*>(reinterpret_cast<const unsigned char*>(item) - beyond);
    const Piece low = piece[0], high = piece[1];
    return out_of_two<T, kItems>(low.item, high.item, beyond);
}
// The same in scan order. Elements are read one by one where this takes no more words than two pieces, and in parts of
// 16 bytes where they are more.
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE Vector<T, kItems> read_shifted(const T* item) {
    constexpr int kBytes = kItems * int(sizeof(T)), kMost = 16 / sizeof(T);
    Vector<T, kItems> vector;
    if constexpr (kItems == 1 || (kItems == 2 && sizeof(T) >= 4) || kBytes % 4 != 0) {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) vector.item[i] = *advance<kAccess>(item, 0, i);
    } else if constexpr (kBytes > 16) {
        CUSCAN_UNROLL
        for (int first = 0; first < kItems; first += kMost) {
            const auto part = read_shifted<kAccess, kMost>(advance<kAccess>(item, 0, first));
            CUSCAN_UNROLL
            for (int i = 0; i < kMost; ++i) vector.item[first + i] = part.item[i];
        }
    } else if constexpr (is_reversed(kAccess)) {
        return read_anywhere<kItems>(item - (kItems - 1)).reversed();
    } else {
        return read_anywhere<kItems>(item);
    }
    return vector;
}

// Writes the lanes' runs of kItems neighbours to shared memory, element by element: rows may begin anywhere, and the
// last run of a row may have fewer elements. A run takes up to 16 bytes, so the runs of several lanes begin in the same
// bank; each of these lanes starts one bank further into its run than the lane before it.
template <Access kAccess, int kItems, class T>
struct TurnedRuns {
    static constexpr int kBank = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // elements of a bank, at least one
    static constexpr int kStep = kBank < kItems ? kBank : kItems;
    static constexpr int kSteps = kItems / kStep;
    static constexpr int kLanesAround = 32 * 4 / (kItems * int(sizeof(T)));  // lanes whose runs cover all banks once
    static_assert((kItems & (kItems - 1)) == 0, "runs are rotated by powers of two");
    using Run = Vector<T, kItems>;
    using Words = target::Words<Run>;

    const int first, turn;  // position of this lane's run; the step with which it starts

    CUSCAN_DEVICE explicit TurnedRuns(int lane) : first(lane * kItems), turn((lane / kLanesAround) & (kSteps - 1)) {}

    // Writes the run `distance` elements further in the row, of which `count` elements exist.
    CUSCAN_DEVICE void write(T* row, int distance, int count, const Run& run) const {
        Words words = target::to_words(run);
        CUSCAN_UNROLL
        for (int by = 1; by < kSteps; by *= 2) words = turned(words, by * (Words::kCount / kSteps), turn & by);
        const Run other = target::from_words<Run>(words);
        CUSCAN_UNROLL
        for (int step = 0; step < kSteps; ++step) {
            const int place = ((step + turn) & (kSteps - 1)) * kStep;
            T* item = advance<kAccess>(row, 0, first + place);
            CUSCAN_UNROLL
            for (int i = 0; i < kStep; ++i)
                if (place + i < count) *advance<kAccess>(item, 0, distance + i) = other.item[step * kStep + i];
        }
    }

private:
    static CUSCAN_DEVICE Words turned(const Words& words, int by, bool really) {
        Words other;
        CUSCAN_UNROLL
        for (int i = 0; i < Words::kCount; ++i)
            other.word[i] = really ? words.word[(i + by) % Words::kCount] : words.word[i];
        return other;
    }
};

// Elements in scan order from the beginning of the aligned piece, of kItems elements, in which `item` lies.
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE int elements_beyond(const T* item) {
    const uint64 address = reinterpret_cast<uint64>(item);
    return int((is_reversed(kAccess) ? 0 - (address + sizeof(T)) : address) % (kItems * sizeof(T))) / int(sizeof(T));
}

// Loads and stores the runs of kItems neighbours that the lanes of a warp have of an array in global memory, wherever
// the array begins. Accesses are to aligned pieces of a run's size: a lane accesses the piece in which its run begins,
// and lanes exchange what lies in the next piece. The vectors of a warp follow one another in a row.
template <Access kAccess, int kItems, class T>
struct PiecedRuns {
    using Run = Vector<T, kItems>;
    static constexpr Access kAligned = is_reversed(kAccess) ? Access::kReversed : Access::kVector;
    static_assert(sizeof(Run) >= 4 && kItems > 1, "runs are whole words");

    int lane, beyond;  // beyond: elements from where a piece begins to the run that begins in it
    Run other;         // stores: the run before the first lane's; loads: the piece after the last lane's

    // `item`: the first element of a run, in scan order.
    CUSCAN_DEVICE void begin(const T* item, int its_lane) {
        lane = its_lane, beyond = elements_beyond<kAccess, kItems>(item), other = {};
    }

    // Loads the piece in which a run begins, in scan order.
    CUSCAN_DEVICE Run load(const T* item) const {
        return load_vector<kAligned, kItems>(advance<kAccess>(item, 0, -beyond), 0, kItems);
    }
    // run() extracts a lane's run from the pieces of all lanes, for the vectors from the last to the first.
    // begin_with() comes before: `next` is the piece after the last one.
    CUSCAN_DEVICE void begin_with(const Run& next) { other = next; }
    CUSCAN_DEVICE Run run(const Run& piece) {
        const Run next = target::shuffle(piece, (lane + 1) % target::kWarp);
        const Run behind = lane == target::kWarp - 1 ? other : next;
        other = next;
        return moved(piece, behind, beyond);
    }

    // Stores the runs of a vector, for the vectors from the first to the last, except the elements of the last lane's
    // run that lie in the next piece. `count`: the elements that exist from the run's first on; negative if earlier
    // ones do not exist, either.
    CUSCAN_DEVICE void store(T* item, const Run& run, int count, bool is_first_vector) {
        const Run own = target::shuffle(run, (lane + target::kWarp - 1) % target::kWarp);
        const Run before = lane == 0 ? other : own;
        other = own;
        put(item, moved(before, run, kItems - beyond), count, lane > 0 || !is_first_vector);
    }
    // Stores the remaining elements. `item` and `count` are those of a vector after the last one.
    CUSCAN_DEVICE void finish(T* item, int count) const {
        if (lane == 0) put(item, moved(other, other, kItems - beyond), count < 0 ? count : 0, true);
    }

private:
    static CUSCAN_DEVICE Run moved(const Run& low, const Run& high, int by) {
        const auto one = target::to_words(low), two = target::to_words(high);
        return out_of_two<T, kItems>(one.word, two.word, by * int(sizeof(T)));
    }
    CUSCAN_DEVICE void put(T* item, const Run& piece, int count, bool has_before) const {
        T* first = advance<kAccess>(item, 0, -beyond);
        if (has_before && count >= kItems) return store_vector<kAligned>(first, 0, kItems, piece);
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i)
            if ((has_before || i >= beyond) && i - beyond < count) *advance<kAccess>(first, 0, i) = piece.item[i];
    }
};

}  // namespace cuscan
