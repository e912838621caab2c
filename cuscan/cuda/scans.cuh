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

template <class Op>
constexpr bool kIsLogSum = false;
template <class T>
constexpr bool kIsLogSum<LogAddExp<T>> = true;

// Of log sums, whose bits are not defined: all those of a warp that count, kMany a lane, in every lane. They are taken
// relative to the greatest term of all, so that none waits for the exponential of another.
template <class Op, int kMany>
CUSCAN_DEVICE typename Op::State warp_log_sum(const typename Op::State (&value)[kMany], const bool (&counts)[kMany],
                                              int lane) {
    using Number = typename Op::Initial;
    Number top = FloatRange::lowest(), sum = 0;
    CUSCAN_UNROLL
    for (int i = 0; i < kMany; ++i)
        if (counts[i]) top = target::larger_or_nan(top, value[i].top);
    top = target::largest_in_warp(top);
    const bool is_finite = top - top == Number(0);
    const Number one = is_finite ? top : Number(0);
    CUSCAN_UNROLL
    for (int i = 0; i < kMany; ++i) {
        const Number part = value[i].sum * target::exponential(value[i].top - one);
        sum += counts[i] ? part : Number(0);
    }
    sum = target::broadcast(warp_inclusive_scan<Add<Number>, target::kWarp>(sum, lane), target::kWarp - 1);
    return {top, is_finite ? sum : Number(1)};
}
// What lanes 0 to `last` hold, in every lane.
template <class Op, class T>
CUSCAN_DEVICE T warp_total(const T& value, int lane, int last) {
    if constexpr (kIsLogSum<Op>) {
        const T values[1] = {value};
        const bool counts[1] = {lane <= last};
        return warp_log_sum<Op>(values, counts, lane);
    } else {
        return target::broadcast(warp_inclusive_scan<Op, target::kWarp>(value, lane), last);
    }
}

}  // namespace cuscan
