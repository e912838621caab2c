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
        if (sizeof(T) > 16 && !has_earlier) continue;
        const T both = Op::combine(earlier, value);
        value = has_earlier ? both : value;
    }
    return value;
}

// The first `count` warps' totals, from left to right; no meaning if there are none.
template <class Op, int kWarps, class State>
CUSCAN_DEVICE State fold_warps(const State (&totals)[kWarps], int count) {
    State all = totals[0];
    CUSCAN_UNROLL
    for (int w = 1; w < kWarps; ++w)
        if (w < count) all = Op::combine(all, totals[w]);
    return all;
}

// Totals in a row, combined in pairs, the pairs in pairs, and so on up to 2^kLevels. What precedes total number i is made of
// the blocks that the bits of i stand for, the largest first. Totals come one after the other, from number 0 on.
template <class Op, int kLevels, class T>
struct PairedFold {
    T block[kLevels > 0 ? kLevels : 1];

    // Takes total number `number`; gives the largest block that ends with it.
    CUSCAN_DEVICE T push(int number, T total) {
        CUSCAN_UNROLL
        for (int level = 0; level < kLevels; ++level) {
            if ((number >> level & 1) == 0) {
                block[level] = total;
                return total;
            }
            total = Op::combine(block[level], total);
        }
        return total;
    }
    // `prefix`, if there is one, and the totals before number `number`, block by block.
    CUSCAN_DEVICE T before(int number, bool has_prefix, T prefix) const {
        CUSCAN_UNROLL
        for (int level = kLevels - 1; level >= 0; --level) {
            if (number >> level & 1) {
                prefix = join<Op>(has_prefix, prefix, block[level]);
                has_prefix = true;
            }
        }
        return prefix;
    }
    // `prefix`, if there is one, and the totals before number `number` as a whole.
    CUSCAN_DEVICE T after(bool has_prefix, const T& prefix, int number) const {
        return number > 0 ? join<Op>(has_prefix, prefix, before(number, false, prefix)) : prefix;
    }
};

// The same of totals that groups of kLanes lanes hold, one each.
template <class Op, int kLanes, class T>
struct PairedLanes {
    static constexpr int kLevels = kLanes > 16 ? 5 : kLanes > 8 ? 4 : kLanes > 4 ? 3 : kLanes > 2 ? 2 : kLanes - 1;
    PairedFold<Op, kLevels, T> left;  // the blocks before this lane
    T total;                          // of all

    CUSCAN_DEVICE PairedLanes(const T& own, int lane) : total(own) {
        CUSCAN_UNROLL
        for (int level = 0; level < kLevels; ++level) {
            const T other = target::shuffle_xor(total, 1 << level);
            left.block[level] = other;
            total = lane >> level & 1 ? Op::combine(other, total) : Op::combine(total, other);
        }
    }
};

}  // namespace cuscan
