// Scans that start anew at the boundaries of segments: any operator, over states that say whether a segment starts in
// them. Boundaries come as flags, as keys that change, or as offsets; a thread keeps them as bits of a word (elements.cuh).
#pragma once
#include "operators.cuh"
#include "vectors.cuh"

namespace cuscan {

enum class Segments {
    kNone,
    kReset,    // bool: a segment starts at this element
    kKeys,     // a segment starts where the key differs from that of the element before
    kOffsets,  // positions along the axis, in ascending order
};

template <class Value>
struct Restartable {
    Value value;      // of the last segment in it
    uint32 restarts;  // whether a segment starts in it
};
template <class Op>
struct Restarting {
    using State = Restartable<typename Op::State>;

    static CUSCAN_DEVICE State combine(const State& earlier, const State& later) {
        return {later.restarts ? later.value : Op::combine(earlier.value, later.value), earlier.restarts | later.restarts};
    }
};
template <class Value>
struct Narrow<Restartable<Value>> {
    template <class From>
    static CUSCAN_DEVICE Restartable<Value> from(const Restartable<From>& state) {
        return {convert<Value>(state.value), state.restarts};
    }
};

// The offsets of all segments. Whatever they hold, nothing outside of the array is read, and every search ends.
template <class Offset>
struct SegmentOffsets {
    const char* first;
    int64 step;  // bytes
    uint64 count;

    // Calls mark(offset) for the offsets in [from, to), duplicates at least once. By all lanes of a warp together; each
    // marks those that it finds.
    template <class Mark>
    CUSCAN_DEVICE void for_each(int64 from, int64 to, int lane, Mark mark) const {
        uint64 at = first_not_below(0, from, lane);
        while (at < count) {
            const bool inside = at + lane < count;
            const int64 offset = inside ? offset_at(at + lane) : to;
            if (offset >= from && offset < to) mark(offset);
            if (target::ballot(offset >= to) != 0) return;
            const int64 last = target::broadcast(offset, target::kWarp - 1);
            at += target::kWarp;
            // A run of empty segments: go to where it ends.
            if (target::broadcast(offset, 0) == last) at = first_not_below(at, last + 1, lane);
        }
    }

private:
    CUSCAN_DEVICE int64 offset_at(uint64 entry) const { return *(const Offset*)(first + int64(entry) * step); }

    // The first offset from entry `low` on that is not below `bound`, in steps that divide what is left by 32.
    CUSCAN_DEVICE uint64 first_not_below(uint64 low, int64 bound, int lane) const {
        uint64 high = count;
        while (low < high) {
            const uint64 step = (high - low + target::kWarp - 1) / target::kWarp, probe = low + lane * step;
            const bool below = probe < high && offset_at(probe) < bound;
            const uint64 found = target::count_bits(target::ballot(below));
            if (found == 0) return low;
            const uint64 next = low + found * step;
            low += (found - 1) * step + 1;
            if (next < high) high = next;
        }
        return low;
    }
};

// Words in shared memory for each warp of a block, where segments are given by offsets.
template <class Config, int kWarps, int kWords>
struct Boundaries {
    static constexpr bool kUsed = Config::kSegments == Segments::kOffsets;
    uint32 words[kUsed ? kWarps * kWords : 1];

    CUSCAN_DEVICE uint32* of(int warp) { return words + (kUsed ? warp * kWords : 0); }
};

// Calls mark(place) for the places among `count` from position `first` on at which a segment starts that offsets give;
// the start of the row is none. By whole warps.
template <class Config, class Mark>
CUSCAN_DEVICE void find_boundaries(const Row<Config>& row, const Geometry<Config>& geometry, int64 first, int count,
                                   Mark mark) {
    using Offset = typename Config::SegmentPort::Type;
    const SegmentOffsets<Offset> offsets{row.array[Arrays<Config>::kSegments], geometry.segment_step,
                                         geometry.segment_offsets};
    const int lane = target::thread_index() % target::kWarp;
    const int64 length = geometry.elements();
    const int64 from = first > 0 ? first : 1, to = first + count < length ? first + count : length;
    if (from >= to) return;
    if (Config::kReverse)  // the segment that ends at an offset starts there
        offsets.for_each(length - to + 1, length - from + 1, lane,
                         [&](int64 offset) { mark(int(length - offset - first)); });
    else
        offsets.for_each(from, to, lane, [&](int64 offset) { mark(int(offset - first)); });
}

}  // namespace cuscan
