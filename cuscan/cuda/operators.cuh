// The operators: combine(earlier, later) in scan order, and identity<Result>(), the value that a masked element counts as.
// No kernel combines a value with an identity of its own making, so an identity need not be neutral to the bit.
#pragma once
#include "types.cuh"

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

// Integers wrap: their sums and products are taken unsigned, where C++ defines the overflow.
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
    return {sum(product(a.real, b.real), -product(a.imag, b.imag)), sum(product(a.real, b.imag), product(a.imag, b.real))};
}

// The ends of a type's range, as values that convert to any accumulator.
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

// Each functor works in its value type T, an accumulator; Result is the element type that the identity must fit.
template <class T>
struct Add {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return sum(earlier, later); }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(0);
    }
};
template <class T>
struct Mul {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return product(earlier, later); }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(1);
    }
};
// A NaN wins over every number, as in numpy.minimum and numpy.maximum; of equal values the earlier one stays.
template <class T>
struct Min {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier <= later || earlier != earlier ? earlier : later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(Range<Result>::highest());
    }
};
template <class T>
struct Max {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier >= later || earlier != earlier ? earlier : later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return convert<T>(Range<Result>::lowest());
    }
};
template <class T>
struct And {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier & later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return T(~T(0));
    }
};
template <class T>
struct Or {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier | later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return T(0);
    }
};
template <class T>
struct Xor {
    static CUSCAN_DEVICE T combine(T earlier, T later) { return earlier ^ later; }
    template <class Result>
    static CUSCAN_DEVICE T identity() {
        return T(0);
    }
};

}  // namespace cuscan
