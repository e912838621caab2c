// Sums of exponentials of a warp tile relative to one term: its greatest, and where results are made the greater of that
// and of what precedes the tile. A combination is a sum then, where that of two states of LogAddExp takes nine
// instructions; an element takes an exponential when it is scanned and another when it is stored.
//
// A running sum may be small beside a term that comes only later, and its logarithm costs up to 2 eps for each e that it
// is smaller. Hence kFar, and at least kBefore elements before: the documented error of theirs leaves room for it. Where
// that does not hold, or a term is no finite number, states are combined after all.
#pragma once
#include "elements.cuh"

namespace cuscan {

template <class Config>
struct RelativeSums {
    static constexpr bool kFits =
        kIsLogSum<typename Config::Op> && Config::kSegments == Segments::kNone && Config::kLevels > 0;
};

// Those of a thread's kVectors vectors.
template <class Config, int kVectors>
struct RelativeTile {
    using Op = typename Config::Op;
    using State = typename Op::State;
    using T = typename Op::Initial;
    static constexpr int kBefore = 64, kFar = 64;

    T top;               // the warp tile's greatest term
    T before[kVectors];  // of vector r: the sum of what precedes it in the warp tile, relative to that

    // read(r) brings vector r, of which term(r, i) is that of an element. Returns the aggregate of the warp tile, in every
    // lane.
    template <int kItems, class Read, class Term>
    CUSCAN_DEVICE State scan(int lane, Read read, Term term) {
        top = FloatRange::lowest();
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            read(r);
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) top = target::larger_or_nan(top, term(r, i));
        }
        top = target::largest_in_warp(top);
        const bool is_finite = top - top == T(0);
        const T one = is_finite ? top : T(0);
        T all = 0;
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            read(r);
            T total = target::exponential(term(r, 0) - one);
            CUSCAN_UNROLL
            for (int i = 1; i < kItems; ++i) total += target::exponential(term(r, i) - one);
            const T inclusive = warp_inclusive_scan<Add<T>, target::kWarp>(total, lane);
            const T exclusive = target::shuffle_up(inclusive, 1);
            before[r] = lane > 0 ? all + exclusive : all;
            all += target::broadcast(inclusive, target::kWarp - 1);
        }
        return {top, is_finite ? all : T(1)};
    }
    // Whether running sums from here on may be relative, after kBefore elements or more whose state is `so_far`.
    CUSCAN_DEVICE bool holds(const State& so_far) const {
        return so_far.top < FloatRange::highest() && top - so_far.top <= T(kFar);
    }
    // The term that they are relative to, and what precedes vector r. `prefix`: what precedes the warp tile, if anything.
    CUSCAN_DEVICE T common(bool has_prefix, const State& prefix) const {
        return has_prefix ? target::larger_or_nan(top, prefix.top) : top;
    }
    CUSCAN_DEVICE State start(int r, bool has_prefix, const State& prefix, T one) const {
        const T earlier = has_prefix ? prefix.sum * target::exponential(prefix.top - one) : T(0);
        return {one, target::multiply_add(before[r], target::exponential(top - one), earlier)};
    }
};

}  // namespace cuscan
