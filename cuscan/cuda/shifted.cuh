// Vectors of neighbouring elements that are not aligned, from shared memory and to it, and on to global memory.
#pragma once
#include "vectors.cuh"

namespace cuscan {

// A vector out of the two pieces of its size that it lies in, `beyond` bytes from where they begin.
template <class T, int kItems>
CUSCAN_DEVICE Vector<T, kItems> out_of_two(const uint32* low, const uint32* high, int beyond) {
    constexpr int kWords = target::Words<Vector<T, kItems>>::kCount;
    uint32 word[2 * kWords];
    CUSCAN_UNROLL
    for (int i = 0; i < kWords; ++i) word[i] = low[i], word[kWords + i] = high[i];
    CUSCAN_UNROLL
    for (int by = kWords / 2; by > 0 && 4 * by >= int(sizeof(T)); by /= 2) {
        CUSCAN_UNROLL
        for (int i = 0; i + by < 2 * kWords; ++i) word[i] = beyond & (4 * by) ? word[i + by] : word[i];
    }
    target::Words<Vector<T, kItems>> words;
    CUSCAN_UNROLL
    for (int i = 0; i < kWords; ++i)
        words.word[i] = sizeof(T) < 4 ? uint32((uint64(word[i + 1]) << 32 | word[i]) >> (beyond % 4 * 8)) : word[i];
    return target::from_words<Vector<T, kItems>>(words);
}

// kItems neighbours in shared memory at any address, the lowest of which is `item`: out of the two aligned pieces that they
// lie in. These may reach less than two pieces beyond the neighbours, where there must be room; what lies there means
// nothing.
template <int kItems, class T>
CUSCAN_DEVICE Vector<T, kItems> read_anywhere(const T* item) {
    constexpr int kWords = target::Words<Vector<T, kItems>>::kCount;
    using Piece = Vector<uint32, kWords>;
    const int beyond = int(reinterpret_cast<uint64>(item) % sizeof(Piece));  // bytes from the first piece's address
    const Piece* piece = reinterpret_cast<const Piece*>(reinterpret_cast<const unsigned char*>(item) - beyond);
    const Piece low = piece[0], high = piece[1];
    return out_of_two<T, kItems>(low.item, high.item, beyond);
}
// In scan order. Two elements are read one by one: these are no more words than two pieces.
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE Vector<T, kItems> read_shifted(const T* item) {
    if constexpr (kItems == 2 && sizeof(T) >= 4) return {item[0], *advance<kAccess>(item, 0, 1)};
    if constexpr (is_mirrored(kAccess)) return read_anywhere<kItems>(item - (kItems - 1)).mirrored();
    return read_anywhere<kItems>(item);
}

// Writes the lanes' runs of kItems neighbours to shared memory, element by element: rows may begin anywhere, and the last
// run of a row has fewer elements. A run is 16 bytes at most, so several lanes' runs begin in the same bank; each of these
// lanes begins a bank further in its run than the one before it.
template <Access kAccess, int kItems, class T>
struct TurnedRuns {
    static constexpr int kBank = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // elements of a bank, or one
    static constexpr int kStep = kBank < kItems ? kBank : kItems;
    static constexpr int kSteps = kItems / kStep;
    static constexpr int kLanesAround = 32 * 4 / (kItems * int(sizeof(T)));  // whose runs meet all banks once
    static_assert((kItems & (kItems - 1)) == 0, "runs are turned by powers of two");
    using Run = Vector<T, kItems>;
    using Words = target::Words<Run>;

    const int first, turn;  // the position of this lane's run, the step that it begins with

    CUSCAN_DEVICE explicit TurnedRuns(int lane) : first(lane * kItems), turn((lane / kLanesAround) & (kSteps - 1)) {}

    // The run `distance` elements further in the row, of which `count` elements exist.
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

// Copies `count` neighbours from shared to global memory, by a warp. Both may begin anywhere; 16-byte pieces of global
// memory are stored whole, the few elements before the first piece and after the last by a lane each.
template <class T>
CUSCAN_DEVICE void copy_out(T* to, const T* from, int count, int lane) {
    constexpr int kBytes = 16, kItems = kBytes / sizeof(T);
    const int beyond = int(reinterpret_cast<uint64>(to) % kBytes) / int(sizeof(T));
    const int head = clamp(beyond == 0 ? 0 : kItems - beyond, count), pieces = (count - head) / kItems;
    const int tail = head + pieces * kItems;
    if (lane < head) to[lane] = from[lane];
    if (tail + lane < count) to[tail + lane] = from[tail + lane];
    const auto copy_pieces = [&](auto read) {
        for (int p = lane; p < pieces; p += target::kWarp)
            store_whole(to + head + p * kItems, read(from + head + p * kItems));
    };
    if (reinterpret_cast<uint64>(from + head) % kBytes == 0)
        copy_pieces([](const T* item) { return read_shared<Access::kVector, Vector<T, kItems>>(item); });
    else
        copy_pieces([](const T* item) { return read_anywhere<kItems>(item); });
}

}  // namespace cuscan
