// Scans within a thread and within a warp. Every combination is of two elements that exist: where a part may be absent
// (nothing comes before the first element), a flag says so and `join` passes the other part through. So no result
// depends on an identity being neutral to the bit, and operators without a neutral element need no second code path.
#pragma once
#include "operators.cuh"

namespace cuscan {

template <class Op, class T>
CUSCAN_DEVICE T join(bool has_earlier, T earlier, T later) {
    return has_earlier ? Op::combine(earlier, later) : later;
}

// The inclusive scan over groups of `kLanes` lanes, by doubling distances (Kogge & Stone 1973). The association of a
// lane's result depends on its place in the group alone, not on the group's width.
template <class Op, int kLanes, class T>
CUSCAN_DEVICE T warp_inclusive_scan(T value, int lane_in_group) {
    CUSCAN_UNROLL
    for (int distance = 1; distance < kLanes; distance *= 2) {
        const T earlier = target::shuffle_up(value, distance);
        const bool has_earlier = lane_in_group >= distance;
        // Small ones in all lanes, without a branch: scans side by side fill each other's waits.
        if (sizeof(T) > 8 && !has_earlier) continue;
        const T both = Op::combine(earlier, value);
        value = has_earlier ? both : value;
    }
    return value;
}

}  // namespace cuscan
