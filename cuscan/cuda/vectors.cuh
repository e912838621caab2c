// Vectors of neighbouring elements, loaded and stored in one access where the layout allows. An item's index is its
// place in scan order, whatever the direction in memory. Threads call these functions on their own; nothing is
// synchronised.
#pragma once
#include "geometry.cuh"

namespace cuscan {

// The largest power of two that divides a number.
constexpr int power_in(int number) { return number & -number; }

template <class T, int kItems, bool kPacked = sizeof(T) < 4 && sizeof(T) * kItems % 4 == 0>
struct alignas(power_in(sizeof(T) * kItems)) Vector {
    T item[kItems];

    // Element i, or the number of an arithmetic type that it represents.
    CUSCAN_DEVICE T number(int i) const { return item[i]; }
    CUSCAN_DEVICE Vector reversed() const {
        Vector other;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) other.item[i] = item[kItems - 1 - i];
        return other;
    }
};
// Elements smaller than a word stay packed in words until one of them is used: if they were unpacked at the load, every
// load would wait for the previous one.
template <class T, int kItems>
struct alignas(power_in(sizeof(T) * kItems)) Vector<T, kItems, true> {
    static constexpr int kWords = sizeof(T) * kItems / 4;
    union {
        T item[kItems];
        uint32 word[kWords];
    };

    CUSCAN_DEVICE auto number(int i) const {
        if constexpr (kIsHalf<T>)
            return i % 2 ? Halves<T>::high(word[i / 2]) : Halves<T>::low(word[i / 2]);
        else
            return item[i];
    }
    CUSCAN_DEVICE Vector reversed() const {
        constexpr uint32 kTurned = sizeof(T) == 1 ? 0x0123 : 0x1032;
        Vector other;
        CUSCAN_UNROLL
        for (int i = 0; i < kWords; ++i) other.word[i] = target::pick_bytes<kTurned>(word[kWords - 1 - i], 0);
        return other;
    }
};

// A vector of converted numbers, of which number(i) is the one of item i. One instruction converts two numbers to
// halves.
template <class T, int kItems, class Number>
CUSCAN_DEVICE Vector<T, kItems> convert_all(Number number) {
    Vector<T, kItems> vector;
    if constexpr (kIsHalf<T> && kItems % 2 == 0) {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; i += 2)
            vector.word[i / 2] = Halves<T>::word(convert<float32>(number(i)), convert<float32>(number(i + 1)));
    } else {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) vector.item[i] = convert<T>(number(i));
    }
    return vector;
}

// Loads a whole vector, in accesses of 16 bytes where it is larger.
template <class T, int kItems>
CUSCAN_DEVICE Vector<T, kItems> load_whole(const T* item) {
    constexpr int kMost = 16 / sizeof(T);
    if constexpr (kItems <= kMost) {
        return target::load_vector(reinterpret_cast<const Vector<T, kItems>*>(item));
    } else {
        Vector<T, kItems> vector;
        CUSCAN_UNROLL
        for (int first = 0; first < kItems; first += kMost) {
            const auto part = load_whole<T, kMost>(item + first);
            CUSCAN_UNROLL
            for (int i = 0; i < kMost; ++i) vector.item[first + i] = part.item[i];
        }
        return vector;
    }
}
template <class T, int kItems>
CUSCAN_DEVICE void store_whole(T* item, const Vector<T, kItems>& vector) {
    constexpr int kMost = 16 / sizeof(T);
    if constexpr (kItems <= kMost) {
        target::store_vector(reinterpret_cast<Vector<T, kItems>*>(item), vector);
    } else {
        CUSCAN_UNROLL
        for (int first = 0; first < kItems; first += kMost) {
            Vector<T, kMost> part;
            CUSCAN_UNROLL
            for (int i = 0; i < kMost; ++i) part.item[i] = vector.item[first + i];
            store_whole(item + first, part);
        }
    }
}

// The address `index` elements further in scan order; `step` counts bytes.
template <Access kAccess, class T>
CUSCAN_DEVICE T* advance(T* item, int64 step, int64 index) {
    if (kAccess == Access::kVector || kAccess == Access::kShifted) return item + index;
    if (is_reversed(kAccess)) return item - index;
    if (kAccess == Access::kBroadcast) return item;
    return (T*)((char*)item + index * step);
}

// `item`: the vector's first element in scan order. `count`: how many elements of the vector exist. The others are
// zero, or copies with broadcast access; no stored result may depend on them.
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE Vector<T, kItems> load_vector(const T* item, int64 step, int count) {
    using V = Vector<T, kItems>;
    if (kAccess == Access::kVector && count >= kItems) return load_whole<T, kItems>(item);
    if (kAccess == Access::kReversed && count >= kItems) return load_whole<T, kItems>(item - (kItems - 1)).reversed();
    V vector = {};
    if (kAccess == Access::kBroadcast) {
        if (count > 0) vector.item[0] = *item;
        CUSCAN_UNROLL
        for (int i = 1; i < kItems; ++i) vector.item[i] = vector.item[0];
        return vector;
    }
    CUSCAN_UNROLL
    for (int i = 0; i < kItems; ++i)
        if (i < count) vector.item[i] = *advance<kAccess>(item, step, i);
    return vector;
}

template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE void store_vector(T* item, int64 step, int count, const Vector<T, kItems>& vector) {
    if (kAccess == Access::kVector && count >= kItems) return store_whole(item, vector);
    if (kAccess == Access::kReversed && count >= kItems) return store_whole(item - (kItems - 1), vector.reversed());
    CUSCAN_UNROLL
    for (int i = 0; i < kItems; ++i)
        if (i < count) *advance<kAccess>(item, step, i) = vector.item[i];
}

// Read and write whole vectors in shared memory, in either direction.
template <Access kAccess, class V, class T>
CUSCAN_DEVICE V read_shared(const T* item) {
    constexpr int kItems = sizeof(V) / sizeof(T);
    if (kAccess == Access::kReversed) return reinterpret_cast<const V*>(item - (kItems - 1))->reversed();
    return *reinterpret_cast<const V*>(item);
}
template <Access kAccess, class V, class T>
CUSCAN_DEVICE void write_shared(T* item, const V& vector) {
    constexpr int kItems = sizeof(V) / sizeof(T);
    if (kAccess == Access::kReversed)
        *reinterpret_cast<V*>(item - (kItems - 1)) = vector.reversed();
    else
        *reinterpret_cast<V*>(item) = vector;
}

// Copies vectors of kItems elements, aligned in source and destination, from small ones to large ones and back. Returns
// where the next smaller ones continue.
template <class T, int kItems = 1>
CUSCAN_DEVICE int copy_items(char* to, const char* from, int begin, int end) {
    constexpr int kBytes = kItems * int(sizeof(T));
    if constexpr (kBytes < 16) {
        const auto copy = [&] {
            const auto items = *(const Vector<T, kItems>*)(from + begin);
            *(Vector<T, kItems>*)(to + begin) = items;
            begin += kBytes;
        };
        if ((begin & kBytes) != 0 && begin + kBytes <= end) copy();
        begin = copy_items<T, 2 * kItems>(to, from, begin, end);
        if (begin + kBytes <= end) copy();
    }
    return begin;
}
// Copies the bytes from `begin` to `end` of a piece of 16 bytes, as far as they lie in it.
template <class T>
CUSCAN_DEVICE void copy_part(char* to, const char* from, int begin, int end) {
    copy_items<T>(to, from, begin < 0 ? 0 : begin, end > 16 ? 16 : end);
}

// `count`, but at least 0 and at most `limit`, as an int: a 64-bit number of elements, cut to what a tile can use.
CUSCAN_DEVICE int clamp(int64 count, int limit) { return count < limit ? int(count < 0 ? 0 : count) : limit; }

CUSCAN_DEVICE int round_up(int number, int multiple) { return (number + multiple - 1) / multiple * multiple; }

// A word at any address. Up to seven bytes behind a multiple of four below it are read, too.
CUSCAN_DEVICE uint32 word_at(const char* from) {
    const uint32 beyond = uint32(reinterpret_cast<uint64>(from));
    const auto* const words = (const uint32*)(from - beyond % 4);
    return target::word_between(words[0], words[1], 8 * beyond);
}

}  // namespace cuscan
