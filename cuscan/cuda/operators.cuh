// The operators. Each is a struct over an accumulator type T with
//
//     State                          the combined type: a number, or a few fields
//     combine(earlier, later)        combines two states, in scan order
//     lift<Result>(values...)        the state of an element; Result is the type of the first result
//     identity<Result>()             the state that replaces a masked element
//     Initial, start(initial)        the user's initial value as a state
//     lower(state, Number<k>())      result number k of a state
//     field(state, Number<k>())      field number k of a state, as stored in carries
//
// Scalar provides everything but combine and identity for operators over one number. Kernels never insert identities of
// their own, so an identity need not be bitwise neutral.
#pragma once
#include "operands.cuh"

namespace cuscan {

template <class T>
struct Unsigned {
    using type = T;
};
template <>
struct Unsigned<int32> {
    using type = uint32;
};
template <>
struct Unsigned<int64> {
    using type = uint64;
};

// Integers wrap: sums and products are computed in the unsigned type, where C++ defines overflow.
template <class T>
CUSCAN_DEVICE T sum(T a, T b) {
    using U = typename Unsigned<T>::type;
    return T(U(a) + U(b));
}
CUSCAN_DEVICE float32 sum(float32 a, float32 b) { return target::add_rn(a, b); }
CUSCAN_DEVICE float64 sum(float64 a, float64 b) { return target::add_rn(a, b); }
template <class Part>
CUSCAN_DEVICE complex<Part> sum(complex<Part> a, complex<Part> b) {
    return {sum(a.real, b.real), sum(a.imag, b.imag)};
}

template <class T>
CUSCAN_DEVICE T product(T a, T b) {
    using U = typename Unsigned<T>::type;
    return T(U(a) * U(b));
}
CUSCAN_DEVICE float32 product(float32 a, float32 b) { return target::mul_rn(a, b); }
CUSCAN_DEVICE float64 product(float64 a, float64 b) { return target::mul_rn(a, b); }
template <class Part>
CUSCAN_DEVICE complex<Part> product(complex<Part> a, complex<Part> b) {
    return {sum(product(a.real, b.real), -product(a.imag, b.imag)),
            sum(product(a.real, b.imag), product(a.imag, b.real))};
}

// The limits of an element type, as values that convert to any accumulator.
template <class T>
struct Range {
    static constexpr bool kSigned = T(-1) < T(0);
    static constexpr int kBits = 8 * sizeof(T);
    static CUSCAN_DEVICE T highest() { return T(kSigned ? ~(uint64(1) << 63) >> (64 - kBits) : ~uint64(0)); }
    static CUSCAN_DEVICE T lowest() { return kSigned ? T(-highest() - 1) : T(0); }
};
template <>
struct Range<boolean> {
    static CUSCAN_DEVICE uint32 highest() { return 1; }
    static CUSCAN_DEVICE uint32 lowest() { return 0; }
};
struct FloatRange {
    static CUSCAN_DEVICE float32 highest() { return target::bits_to_float(0x7f800000u); }
    static CUSCAN_DEVICE float32 lowest() { return target::bits_to_float(0xff800000u); }
};
template <>
struct Range<float16> : FloatRange {};
template <>
struct Range<bfloat16> : FloatRange {};
template <>
struct Range<float32> : FloatRange {};
template <>
struct Range<float64> : FloatRange {};

template <class T>
struct Scalar {
    using State = T;
    using Initial = T;

    // Integers wrap to the result's width first. Floating point converts straight to the accumulator, so that it is
    // rounded only once, on store.
    template <class Result, class Value>
    static CUSCAN_DEVICE T lift(Value value) {
        if constexpr (kIsInteger<T>)
            return convert<T>(convert<Result>(value));
        else
            return convert<T>(value);
    }
    static CUSCAN_DEVICE T start(T initial) { return initial; }
    static CUSCAN_DEVICE T lower(T state, Number<0>) { return state; }
    static CUSCAN_DEVICE T field(T state, Number<0>) { return state; }
};

template <class T>
struct Add : Scalar<T> {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return sum(earlier, later); }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(0);
    }
};
template <class T>
struct Mul : Scalar<T> {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return product(earlier, later); }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(1);
    }
};
// NaNs propagate, as in numpy.minimum and numpy.maximum; -0 is less than +0, as in IEEE 754-2019.
template <class T>
struct Min : Scalar<T> {
    static CUSCAN_DEVICE T combine(T earlier, T later) {
        if constexpr (kIsFloat<T>)
            return target::smaller_or_nan(earlier, later);
        else
            return earlier <= later ? earlier : later;
    }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(Range<Result>::highest());
    }
};
template <class T>
struct Max : Scalar<T> {
    static CUSCAN_DEVICE T combine(T earlier, T later) {
        if constexpr (kIsFloat<T>)
            return target::larger_or_nan(earlier, later);
        else
            return earlier >= later ? earlier : later;
    }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(Range<Result>::lowest());
    }
};
// Whether a neutral value exists: one that lifts to the identity, so that it can take the place of a masked one.
template <class Op, class Value, class Result>
constexpr bool kHasNeutral = false;
template <class T, class Value, class Result>
constexpr bool kHasNeutral<Add<T>, Value, Result> = kIsFloat<T> || kIsInteger<T>;
template <class T, class Value, class Result>
constexpr bool kHasNeutral<Mul<T>, Value, Result> = kIsFloat<T> || kIsInteger<T>;
template <class T, class Value>
constexpr bool kHasNeutral<Min<T>, Value, Value> = true;
template <class T, class Value>
constexpr bool kHasNeutral<Max<T>, Value, Value> = true;

template <class T>
struct And : Scalar<T> {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier & later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return T(~T(0));
    }
};
template <class T>
struct Or : Scalar<T> {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier | later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return T(0);
    }
};
template <class T>
struct Xor : Scalar<T> {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier ^ later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return T(0);
    }
};

// The running maximum (kSign = 1) or minimum (kSign = -1) and its position. Index counts along the axis; states that
// stem from no element (initial values, identities) have kNowhere and occur only if kSparse. Of equal values the first
// is kept, or with kLatest the last; an element takes precedence over a state without one, and a NaN over all numbers.
template <class T, class Index, int kSign, bool kLatest, bool kSparse>
struct Extremum {
    static constexpr Index kNowhere = ~Index(0);
    struct State {
        T value;
        Index index;
    };
    using Initial = T;

    static CUSCAN_DEVICE State combine(State earlier, State later) {
        return later_wins(earlier, later) ? later : earlier;
    }
    template <class Result, class Value>
    static CUSCAN_DEVICE State lift(Value value, Index index) {
        return {Scalar<T>::template lift<Result>(value), index};
    }
    template <class Result>
    static CUSCAN_DEVICE State identity() {
        return start(convert<T>(kSign > 0 ? Range<Result>::lowest() : Range<Result>::highest()));
    }
    static CUSCAN_DEVICE State start(T initial) { return {initial, kNowhere}; }
    static CUSCAN_DEVICE T lower(State state, Number<0>) { return state.value; }
    static CUSCAN_DEVICE int64 lower(State state, Number<1>) {
        return kSparse && state.index == kNowhere ? -1 : int64(state.index);
    }
    template <int kField>
    static CUSCAN_DEVICE auto field(State state, Number<kField> k) {
        return lower(state, k);
    }

private:
    static CUSCAN_DEVICE bool reaches(T value, T other) { return kSign > 0 ? value >= other : value <= other; }
    static CUSCAN_DEVICE bool later_wins(State earlier, State later) {
        const bool earlier_nan = earlier.value != earlier.value, later_nan = later.value != later.value;
        if (!kSparse && kLatest) return reaches(later.value, earlier.value) || later_nan;
        const bool beyond = !reaches(earlier.value, later.value) && !earlier_nan;  // also if only the later is a NaN
        if (!kSparse) return beyond;
        const bool equal = earlier_nan ? later_nan : later.value == earlier.value;
        return beyond || (equal && later.index != kNowhere && (kLatest || earlier.index == kNowhere));
    }
};

// log(exp(earlier) + exp(later)), kept as the largest term so far and the sum of all terms relative to it: one
// exponential per combination, one logarithm per result, and no overflow.
template <class T>
struct Exponentials {
    T top, sum;
};
template <class T>
struct LogAddExp {
    using State = Exponentials<T>;
    using Initial = T;

    static CUSCAN_DEVICE State combine(State earlier, State later) {
        // The distance of two equal infinities is a NaN; smaller_number drops it, and the sum does not matter then.
        const T part = target::exponential(target::smaller_number(-target::distance(earlier.top, later.top), T(0)));
        const T sum = earlier.top >= later.top ? target::multiply_add(later.sum, part, earlier.sum)
                                               : target::multiply_add(earlier.sum, part, later.sum);
        return {target::larger_or_nan(earlier.top, later.top), sum};
    }
    template <class Result, class Value>
    static CUSCAN_DEVICE State lift(Value value) {
        return start(convert<T>(value));
    }
    template <class Result>
    static CUSCAN_DEVICE State identity() {
        return {convert<T>(FloatRange::lowest()), T(0)};
    }
    static CUSCAN_DEVICE State start(T initial) { return {initial, T(1)}; }
    static CUSCAN_DEVICE T lower(State state, Number<0>) { return target::add_logarithm(state.top, state.sum); }
    static CUSCAN_DEVICE T field(State state, Number<0>) { return state.top; }
    static CUSCAN_DEVICE T field(State state, Number<1>) { return state.sum; }
};
template <class T>
struct Narrow<Exponentials<T>> {
    template <class From>
    static CUSCAN_DEVICE Exponentials<T> from(Exponentials<From> value) {
        return {T(value.top), T(value.sum)};
    }
};

// h -> decay * h + state, the step of a linear recurrence. Two consecutive steps compose into one.
template <class T>
struct AffineStep {
    T decay, state;
};
template <class T>
struct LinearRecurrence {
    using State = AffineStep<T>;
    using Initial = T;

    static CUSCAN_DEVICE State combine(State earlier, State later) {
        return {product(earlier.decay, later.decay), sum(product(later.decay, earlier.state), later.state)};
    }
    template <class Result, class Decay, class Value>
    static CUSCAN_DEVICE State lift(Decay decay, Value value) {
        return {convert<T>(decay), convert<T>(value)};
    }
    template <class Result>
    static CUSCAN_DEVICE State identity() {
        return {convert<T>(1), convert<T>(0)};
    }
    static CUSCAN_DEVICE State start(T initial) { return {convert<T>(1), initial}; }
    static CUSCAN_DEVICE T lower(State state, Number<0>) { return state.state; }
    static CUSCAN_DEVICE T field(State state, Number<0>) { return state.decay; }
    static CUSCAN_DEVICE T field(State state, Number<1>) { return state.state; }
};
template <class T>
struct Narrow<AffineStep<T>> {
    template <class From>
    static CUSCAN_DEVICE AffineStep<T> from(AffineStep<From> value) {
        return {convert<T>(value.decay), convert<T>(value.state)};
    }
};

}  // namespace cuscan
