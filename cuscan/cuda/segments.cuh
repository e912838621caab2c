// Scans that start anew at the boundaries of segments: any operator, over states that say whether a segment starts in
// them. That comes as flags, as keys that change, or as bits of all elements; a thread keeps its own bits (elements.cuh).
#pragma once
#include "operators.cuh"

namespace cuscan {

enum class Segments {
    kNone,
    kReset,  // bool: a segment starts at this element
    kKeys,   // a segment starts where the key differs from that of the element before
    kBits,   // a bit for each position of the scan, in all rows alike: offsets (kernels/segment_starts.cuh)
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

}  // namespace cuscan
