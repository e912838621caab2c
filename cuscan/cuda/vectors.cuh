// Vectors of neighbouring elements, loaded and stored at once where the layout allows. An item's index is its place in
// scan order, whichever way the memory runs.
#pragma once
#include "geometry.cuh"

namespace cuscan {

enum class Access {
    kNone,      // there is no such array
    kVector,    // step +1, vectors aligned to their size
    kMirrored,  // step -1, vectors aligned to their size
    kElement,   // any step and alignment: item by item
};

template <class T, int kItems>
struct alignas(sizeof(T) * kItems) Vector {
    T item[kItems];

    CUSCAN_DEVICE Vector mirrored() const {
        Vector other;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) other.item[i] = item[kItems - 1 - i];
        return other;
    }
};

// The address `index` elements further in scan order.
template <Access kAccess, class T>
CUSCAN_DEVICE T* advance(T* item, int64 step, int64 index) {
    if (kAccess == Access::kVector) return item + index;
    if (kAccess == Access::kMirrored) return item - index;
    return item + index * step;
}

// `item` is the vector's first element in scan order, `count` how many of the vector exist. The others are zero; no
// result that is stored depends on them.
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE Vector<T, kItems> load_vector(const T* item, int64 step, int count) {
    using V = Vector<T, kItems>;
    if (kAccess == Access::kVector && count >= kItems) return target::load_streaming(reinterpret_cast<const V*>(item));
    if (kAccess == Access::kMirrored && count >= kItems)
        return target::load_streaming(reinterpret_cast<const V*>(item - (kItems - 1))).mirrored();
    V vector = {};
    CUSCAN_UNROLL
    for (int i = 0; i < kItems; ++i)
        if (i < count) vector.item[i] = *advance<kAccess>(item, step, i);
    return vector;
}

template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE void store_vector(T* item, int64 step, int count, const Vector<T, kItems>& vector) {
    using V = Vector<T, kItems>;
    if (kAccess == Access::kVector && count >= kItems) return target::store_streaming(reinterpret_cast<V*>(item), vector);
    if (kAccess == Access::kMirrored && count >= kItems)
        return target::store_streaming(reinterpret_cast<V*>(item - (kItems - 1)), vector.mirrored());
    CUSCAN_UNROLL
    for (int i = 0; i < kItems; ++i)
        if (i < count) *advance<kAccess>(item, step, i) = vector.item[i];
}

// Whole vectors in shared memory, in either direction.
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE Vector<T, kItems> read_shared(const T* item) {
    using V = Vector<T, kItems>;
    if (kAccess == Access::kMirrored) return reinterpret_cast<const V*>(item - (kItems - 1))->mirrored();
    return *reinterpret_cast<const V*>(item);
}
template <Access kAccess, int kItems, class T>
CUSCAN_DEVICE void write_shared(T* item, const Vector<T, kItems>& vector) {
    using V = Vector<T, kItems>;
    if (kAccess == Access::kMirrored)
        *reinterpret_cast<V*>(item - (kItems - 1)) = vector.mirrored();
    else
        *reinterpret_cast<V*>(item) = vector;
}

// min(count, limit) as an int: a 64-bit number of elements, cut to what a tile can use.
CUSCAN_DEVICE int clamp(int64 count, int limit) { return count < limit ? int(count < 0 ? 0 : count) : limit; }

}  // namespace cuscan
