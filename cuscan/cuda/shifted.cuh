// Vectors of neighbouring elements that are not aligned, from shared memory and to global memory, in accesses that are.
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

// Stores a run of kItems of each lane of a warp, by the whole warp. The runs follow each other and begin anywhere, all as
// far beyond a multiple of their size. A lane stores the aligned piece that its run shares with the run before it in scan
// order: that of the lane below or, for lane 0, that of the last lane in the warp's vector before this one, which `before`
// keeps as it lies in memory. The first lane of the first vector and the last of the last share a piece with another
// warp: they store item by item, so that nothing but the warp's own elements is ever written.
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE void store_shifted(T* item, int lane, bool is_first, bool is_last, const Vector<T, kItems>& run,
                                 Vector<T, kItems>& before) {
    using Run = Vector<T, kItems>;
    constexpr int kBytes = sizeof(Run);
    static_assert(kBytes % 4 == 0, "pieces of whole words");
    constexpr bool kMirrored = is_mirrored(kAccess);
    T* lowest = kMirrored ? item - (kItems - 1) : item;
    const Run own = kMirrored ? run.mirrored() : run;
    const int beyond = kItems > 2 ? int(reinterpret_cast<uint64>(lowest) % kBytes) : int(sizeof(T));
    if (reinterpret_cast<uint64>(lowest) % kBytes == 0) return store_whole(lowest, own);

    Run other = {};
    if constexpr (kItems == 2) {
        constexpr int kEdge = kMirrored ? 0 : 1;
        other.item[kEdge] = target::rotate_up(lane == target::kWarp - 1 ? before.item[kEdge] : own.item[kEdge]);
    } else {
        other = target::rotate_up(lane == target::kWarp - 1 ? before : own);
    }
    const auto low = target::to_words(kMirrored ? own : other), high = target::to_words(kMirrored ? other : own);
    const Run piece = out_of_two<T, kItems>(low.word, high.word, kBytes - beyond);
    const bool begins = is_first && lane == 0, ends = is_last && lane == target::kWarp - 1;
    char* place = reinterpret_cast<char*>(lowest) + (kMirrored ? kBytes : 0) - beyond;
    if (!begins) store_whole(reinterpret_cast<T*>(place), piece);
    if (is_first || is_last) {
        const int shared = (kMirrored ? beyond : kBytes - beyond) / int(sizeof(T));  // with the run before
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i)
            if (i < shared ? begins : ends) *advance<kAccess>(item, 0, i) = run.item[i];
    }
    before = own;
}

}  // namespace cuscan
