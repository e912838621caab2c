// Segmented scans: any operator, over states with a flag that says whether a segment starts in them. Segments are given
// by flags, by changing keys, or by one bit per position; a thread keeps the bits of its own elements (elements.cuh).
#pragma once
#include "operators.cuh"

namespace cuscan {

enum class Segments {
    kNone,
    kReset,  // bools: a segment starts at each true element
    kKeys,   // a segment starts where the key differs from the previous element's
    kBits,   // one bit per scan position, shared by all rows (kernels/segment_starts.cuh)
};

template <class Value>
struct Restartable {
    Value value;      // aggregate since the last segment start
    uint32 restarts;  // whether a segment starts in the range
};
template <class Op>
struct Restarting {
    using State = Restartable<typename Op::State>;

    static CUSCAN_DEVICE State combine(const State& earlier, const State& later) {
        return {later.restarts ? later.value : Op::combine(earlier.value, later.value),
                earlier.restarts | later.restarts};
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
