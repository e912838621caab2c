// Segmented scans: any operator, over states that say whether a segment starts in them, by a flag or, in linear
// recurrences, by a mark. Segments are given by flags, by changing keys, or by one bit per position; a thread keeps the
// bits of its own elements (elements.cuh).
#pragma once
#include "scans.cuh"

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
    using Plain = Op;
    using Inner = typename Op::State;
    using State = Restartable<Inner>;

    static CUSCAN_DEVICE State state(const Inner& value, bool restarts) { return {value, restarts}; }
    template <class Given>
    static CUSCAN_DEVICE State element(const Inner& value, bool restarts) {
        return {value, restarts};
    }
    static CUSCAN_DEVICE const Inner& value(const State& state) { return state.value; }
    static CUSCAN_DEVICE bool restarts(const State& state) { return state.restarts; }
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

// A linear recurrence needs no flag: no result depends on the decay of a range in which a segment starts, so this decay
// can be a NaN that stands for nothing else. NaN decays of the caller become another NaN, so arithmetic never makes
// this one. If the caller gets the decay in a carry, states keep the flag.
template <class T>
struct MarkedStep {
    T decay, state;
};
template <class Op>
constexpr bool kMarksRestarts = false;
template <class T>
constexpr bool kMarksRestarts<LinearRecurrence<T>> = true;

template <class T>
struct DecayMark {
    static constexpr uint32 kUpper = 0x7ffd5a5a;  // upper 32 bits of a NaN

    static CUSCAN_DEVICE bool is_in(T decay) { return target::upper_bits(decay) == kUpper; }
    static CUSCAN_DEVICE T set(T decay, bool marked) {
        return target::with_upper_bits(decay, marked ? kUpper : target::upper_bits(decay));
    }
    // The same decay, or another NaN.
    static CUSCAN_DEVICE T unlike(T decay) { return decay != decay ? target::with_upper_bits(decay, ~0u) : decay; }
};
template <class Part>
struct DecayMark<complex<Part>> {
    using Real = DecayMark<Part>;

    static CUSCAN_DEVICE bool is_in(complex<Part> decay) { return Real::is_in(decay.real); }
    static CUSCAN_DEVICE complex<Part> set(complex<Part> decay, bool marked) {
        return {Real::set(decay.real, marked), decay.imag};
    }
    static CUSCAN_DEVICE complex<Part> unlike(complex<Part> decay) {
        return {Real::unlike(decay.real), Real::unlike(decay.imag)};
    }
};

// The step of one element, without a mark, and whether a segment starts at it.
template <class T>
struct MarkedElement {
    T decay, state;
    bool restarts;

    CUSCAN_DEVICE operator MarkedStep<T>() const { return {DecayMark<T>::set(decay, restarts), state}; }
};

template <class Op>
struct Marking;
template <class T>
struct Marking<LinearRecurrence<T>> {
    using Plain = LinearRecurrence<T>;
    using Inner = AffineStep<T>;
    using Element = MarkedElement<T>;
    using State = MarkedStep<T>;
    using Mark = DecayMark<T>;

    // Without `restarts`, the decay is no mark, unless nothing precedes the value (a carry of the caller).
    static CUSCAN_DEVICE State state(const Inner& value, bool restarts) {
        return {Mark::set(value.decay, restarts), value.state};
    }
    // `Given` is the type of decays in memory. Halves have fewer bits than the mark.
    template <class Given>
    static CUSCAN_DEVICE Element element(const Inner& value, bool restarts) {
        return {sizeof(Given) > 2 ? Mark::unlike(value.decay) : value.decay, value.state, restarts};
    }
    static CUSCAN_DEVICE Inner value(const State& state) { return {state.decay, state.state}; }
    static CUSCAN_DEVICE bool restarts(const Element& element) { return element.restarts; }
    static CUSCAN_DEVICE bool restarts(const State& state) { return Mark::is_in(state.decay); }
    template <class Later>
    static CUSCAN_DEVICE State combine(const State& earlier, const Later& later) {
        const Inner both = Plain::combine(value(earlier), {later.decay, later.state});
        return {Mark::set(both.decay, restarts(earlier) || restarts(later)),
                restarts(later) ? later.state : both.state};
    }
};
template <class T>
struct Narrow<MarkedStep<T>> {
    template <class From>
    static CUSCAN_DEVICE MarkedStep<T> from(const MarkedStep<From>& state) {
        return {DecayMark<T>::set(convert<T>(state.decay), DecayMark<From>::is_in(state.decay)),
                convert<T>(state.state)};
    }
};

template <class Op>
constexpr bool kHasFlags<Restarting<Op>> = true;
template <class Op>
constexpr bool kHasRestarts<Restarting<Op>> = true;
template <class Op>
constexpr bool kHasRestarts<Marking<Op>> = true;

}  // namespace cuscan
