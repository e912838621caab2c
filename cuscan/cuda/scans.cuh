// Scans within a thread and within a warp. They combine existing elements only: where a part may be absent (nothing
// precedes the first element), a flag says so and `join` returns the other part. So no result depends on a bitwise
// neutral identity, and operators without a neutral element need no second code path.
#pragma once
#include "operators.cuh"

namespace cuscan {

template <class Op, class T, class Later>
CUSCAN_DEVICE T join(bool has_earlier, T earlier, Later later) {
    return has_earlier ? Op::combine(earlier, later) : T(later);
}

// Combines a lane's value with those of the `reach` lanes below it, with doubling distances (Kogge & Stone 1973). The
// association depends on `reach` alone, which is less than kLanes in the lanes whose results are used.
template <class Op, int kLanes, class T>
CUSCAN_DEVICE T combine_lanes(T value, int reach) {
    CUSCAN_UNROLL
    for (int distance = 1; distance < kLanes; distance *= 2) {
        const T earlier = target::shuffle_up(value, distance);
        const bool has_earlier = reach >= distance;
        // Small states are combined in all lanes, without a branch: independent scans then hide each other's latency.
        if (sizeof(T) > 16 && !has_earlier) continue;
        const T both = Op::combine(earlier, value);
        value = has_earlier ? both : value;
    }
    return value;
}

// Whether states say that a segment starts in their range, and whether by a flag (segments.cuh).
template <class Op>
constexpr bool kHasRestarts = false;
template <class Op>
constexpr bool kHasFlags = false;

// A scan over each group of kLanes lanes. A lane's result does not depend on the width of the group.
template <class Op, int kLanes, class State, bool = kHasRestarts<Op>>
class WarpScan {
public:
    CUSCAN_DEVICE WarpScan(const State& own, int lane_in_group)
        : inclusive_(combine_lanes<Op, kLanes>(own, lane_in_group)) {}
    CUSCAN_DEVICE State inclusive() const { return inclusive_; }
    // The total of the lanes before this one; undefined in the first lane of a group.
    CUSCAN_DEVICE State exclusive() const { return target::shuffle_up(inclusive_, 1); }
    // The total of a group that is a warp.
    CUSCAN_DEVICE State total() const { return target::broadcast(inclusive_, target::kWarp - 1); }

private:
    State inclusive_;
};
// With segments, a vote shows how many lanes below the last start is, so no lane exchanges or combines flags.
template <class Op, int kLanes, class State>
class WarpScan<Op, kLanes, State, true> {
public:
    CUSCAN_DEVICE WarpScan(const State& own, int lane_in_group)
        : starts_(target::ballot(Op::restarts(own))), lane_in_group_(lane_in_group) {
        const int start = last_start(0);
        inclusive_ =
            combine_lanes<typename Op::Plain, kLanes>(Op::value(own), start < lane_in_group ? start : lane_in_group);
    }
    CUSCAN_DEVICE State inclusive() const { return Op::state(inclusive_, last_start(0) <= lane_in_group_); }
    CUSCAN_DEVICE State exclusive() const {
        return Op::state(target::shuffle_up(inclusive_, 1), last_start(1) < lane_in_group_);
    }
    CUSCAN_DEVICE State total() const {
        return Op::state(target::broadcast(inclusive_, target::kWarp - 1), starts_ != 0);
    }

private:
    // How many lanes below the lane `below` this one the last start is. The number reaches beyond the group if no lane
    // of the group up to there has a start.
    CUSCAN_DEVICE int last_start(int below) const {
        return target::leading_zeros(starts_ << (target::kWarp - 1 - target::thread_index() % target::kWarp) << below);
    }

    const uint32 starts_;  // a bit for each lane of the warp
    const int lane_in_group_;
    typename Op::Plain::State inclusive_;
};

// Some states of a thread. Their flags share a word.
template <class Op, class State, int kCount, bool = kHasFlags<Op>>
class States {
public:
    // By value, since by reference float64 recurrences spill 52 bytes (NVRTC 12.9).
    CUSCAN_DEVICE void set(int number, State state) { state_[number] = state; }
    CUSCAN_DEVICE State get(int number) const { return state_[number]; }

private:
    State state_[kCount];
};
template <class Op, class State, int kCount>
class States<Op, State, kCount, true> {
public:
    CUSCAN_DEVICE void set(int number, const State& state) {
        value_[number] = Op::value(state);
        restarts_ = (restarts_ & ~(1u << number)) | uint32(Op::restarts(state)) << number;
    }
    CUSCAN_DEVICE State get(int number) const { return Op::state(value_[number], restarts_ >> number & 1); }

private:
    static_assert(kCount <= 32, "a word has no more bits");
    typename Op::Plain::State value_[kCount];
    uint32 restarts_ = 0;
};

// first ? one : other, word by word in registers: selecting between addresses would put the values in local memory.
template <class T>
CUSCAN_DEVICE T choose(bool first, const T& one, const T& other) {
    auto words = target::to_words(one);
    const auto others = target::to_words(other);
    CUSCAN_UNROLL
    for (int i = 0; i < decltype(words)::kCount; ++i) words.word[i] = first ? words.word[i] : others.word[i];
    return target::from_words<T>(words);
}

// Reduces kMany parts per lane (a power of two) across the warp. The total of part j ends up in the lanes whose number
// ends in the bits of j. The association is that of a scan: neighbours first, then pairs of neighbours, and so on. Each
// step halves the number of parts per lane.
template <class Op, class Total, int kDistance = 1, class Part, int kMany>
CUSCAN_DEVICE Total warp_totals(const Part (&part)[kMany], int lane) {
    const bool is_later = lane & kDistance;
    // Combines the lane's own part with the one that its partner at kDistance sends.
    const auto with_partner = [&](const Part& own, const Part& given) {
        const Part other = target::shuffle_xor(given, kDistance);
        return Op::combine(convert<Total>(choose(is_later, other, own)), convert<Total>(choose(is_later, own, other)));
    };
    if constexpr (kMany > 1) {
        Total half[kMany / 2];
        CUSCAN_UNROLL
        for (int j = 0; j < kMany / 2; ++j)
            half[j] = with_partner(choose(is_later, part[2 * j + 1], part[2 * j]),
                                   choose(is_later, part[2 * j], part[2 * j + 1]));
        return warp_totals<Op, Total, 2 * kDistance>(half, lane);
    } else if constexpr (kDistance < target::kWarp) {
        const Total both[1] = {with_partner(part[0], part[0])};
        return warp_totals<Op, Total, 2 * kDistance>(both, lane);
    } else {
        return part[0];
    }
}

// Folds the totals of the first `count` warps from left to right; undefined if `count` is 0.
template <class Op, int kWarps, class State>
CUSCAN_DEVICE State fold_warps(const State (&totals)[kWarps], int count) {
    State all = totals[0];
    CUSCAN_UNROLL
    for (int w = 1; w < kWarps; ++w)
        if (w < count) all = Op::combine(all, totals[w]);
    return all;
}

// log2 of `number`, a power of two: the levels of a paired fold of so many totals.
constexpr int levels_of(uint32 number) { return number > 1 ? 1 + levels_of(number / 2) : 0; }

// Up to 2^kLevels totals in a row, combined in pairs, the pairs in pairs, and so on. The prefix of total number i
// consists of the blocks that the set bits of i stand for, the largest first. Totals are pushed in order, from number 0
// on.
//
// One member per level instead of an array: the compiler keeps dynamically indexed arrays in local memory.
template <class Op, int kLevels, class T>
struct PairedFold : PairedFold<Op, kLevels - 1, T> {
    using Rest = PairedFold<Op, kLevels - 1, T>;  // the fold of pairs
    // The last total with an even number. Initialised: the register of an undefined value stays occupied around a loop.
    T block{};

    // Pushes total number `number`; returns the largest block that ends with it.
    CUSCAN_DEVICE T push(uint32 number, const T& total) {
        if (number & 1) return Rest::push(number / 2, Op::combine(block, total));
        block = total;
        return total;
    }
    // `prefix`, if it exists, combined with the totals before number `number`, block by block.
    CUSCAN_DEVICE T before(uint32 number, bool has_prefix, const T& prefix) const {
        const T larger = Rest::before(number / 2, has_prefix, prefix);
        return number & 1 ? join<Op>(has_prefix || number > 1, larger, block) : larger;
    }
};
template <class Op, class T>
struct PairedFold<Op, 0, T> {
    CUSCAN_DEVICE T push(uint32, const T& total) { return total; }
    CUSCAN_DEVICE T before(uint32, bool, const T& prefix) const { return prefix; }
};

// The same for kLanes totals held by lanes kStep apart, one per lane; `number` is the number of the calling lane's
// total. `lanes`, a smaller power of two, may restrict the number of totals.
template <class Op, int kLanes, class T, int kStep = 1>
struct PairedLanes {
    PairedFold<Op, levels_of(kLanes), T> left;  // the blocks before this lane's total
    T total;                                    // the total of all lanes

    CUSCAN_DEVICE PairedLanes(const T& own, uint32 number, int lanes = kLanes) : total(own) {
        combine<kStep>(left, number, lanes);
    }

private:
    template <int kDistance, int kLevels>
    CUSCAN_DEVICE void combine(PairedFold<Op, kLevels, T>& left, uint32 number, int lanes) {
        if constexpr (kLevels > 0) {
            if (lanes <= 1) return;
            PairedFold<Op, kLevels - 1, T>& rest = left;
            const bool is_later = number & 1;
            const T other = other_of<kDistance>(is_later);
            left.block = other;
            total = is_later ? Op::combine(other, total) : Op::combine(total, other);
            combine<2 * kDistance>(rest, number / 2, lanes / 2);
        }
    }
    template <int kDistance>
    CUSCAN_DEVICE T other_of(bool is_later) const {
        if ((kDistance & (kDistance - 1)) == 0) return target::shuffle_xor(total, kDistance);
        const int lane = target::thread_index() % target::kWarp;
        return target::shuffle(total, (is_later ? lane - kDistance : lane + kDistance) % target::kWarp);
    }
};

}  // namespace cuscan
