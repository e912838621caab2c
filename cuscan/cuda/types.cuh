// Element types and the conversions between them. `convert<To>(from)` rounds once, wraps between integers, and maps any
// nonzero value to true. Floating point to integer truncates to 64 bits with saturation (a NaN gives 0) and wraps from
// there: C++ leaves out-of-range conversions undefined, and machines differ.
#pragma once
#include "target.cuh"

namespace cuscan {

// A bool in memory: any nonzero byte is true.
struct boolean {
    uint8 bits;
};
template <class T>
constexpr bool kIsBoolean = false;
template <>
constexpr bool kIsBoolean<boolean> = true;
struct float16 {
    uint16 bits;
};
struct bfloat16 {
    uint16 bits;
};
template <class Part>
struct alignas(2 * sizeof(Part)) complex {
    Part real, imag;
};
using complex64 = complex<float32>;
using complex128 = complex<float64>;
// The bytes of four neighbouring columns, the first in the lowest bits (on_words.cuh). Memory may hold it anywhere.
template <class Item>
struct word {
    uint32 bits;
};
template <class T>
constexpr bool kIsWord = false;
template <class Item>
constexpr bool kIsWord<word<Item>> = true;
// The type of the items in memory.
template <class T>
struct Single {
    using Type = T;
};
template <class Item>
struct Single<word<Item>> {
    using Type = Item;
};

// ---- widening to an arithmetic type ----
template <class T>
CUSCAN_DEVICE T arithmetic(T value) {
    return value;
}
CUSCAN_DEVICE uint32 arithmetic(boolean value) { return value.bits != 0; }
template <class Item>
CUSCAN_DEVICE uint32 arithmetic(word<Item> value) {
    return value.bits;
}
// Bools that are 0 or 1: the sum carries into the top bit of each byte that has a lower bit.
CUSCAN_DEVICE uint32 arithmetic(word<boolean> value) {
    return (((value.bits & 0x7f7f7f7fu) + 0x7f7f7f7fu) | value.bits) >> 7 & 0x01010101u;
}
CUSCAN_DEVICE float32 arithmetic(float16 value) { return target::half_to_float(value.bits); }
CUSCAN_DEVICE float32 arithmetic(bfloat16 value) { return target::bits_to_float(uint32(value.bits) << 16); }

// 16-bit floats packed two to a word, the first in the low half: one instruction per conversion.
template <class T>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<float16> = true;
template <>
constexpr bool kIsHalf<bfloat16> = true;
template <class T>
struct Halves;
template <>
struct Halves<float16> {
    static CUSCAN_DEVICE float32 low(uint32 word) { return target::half_to_float(uint16(word)); }
    static CUSCAN_DEVICE float32 high(uint32 word) { return target::high_half_to_float(word); }
    static CUSCAN_DEVICE uint32 word(float32 low, float32 high) { return target::floats_to_halves(low, high); }
};
template <>
struct Halves<bfloat16> {
    static CUSCAN_DEVICE float32 low(uint32 word) { return target::bits_to_float(word << 16); }
    static CUSCAN_DEVICE float32 high(uint32 word) { return target::bits_to_float(word & 0xffff0000u); }
    static CUSCAN_DEVICE uint32 word(float32 low, float32 high) { return target::floats_to_bfloats(low, high); }
};

// ---- narrowing from an arithmetic type ----
template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float32> = true;
template <>
constexpr bool kIsFloat<float64> = true;

template <class T>
constexpr bool kIsInteger = false;
template <>
constexpr bool kIsInteger<int32> = true;
template <>
constexpr bool kIsInteger<uint32> = true;
template <>
constexpr bool kIsInteger<int64> = true;
template <>
constexpr bool kIsInteger<uint64> = true;

// Integers smaller than a word.
template <class T>
constexpr bool kIsSmallInteger = false;
template <>
constexpr bool kIsSmallInteger<int8> = true;
template <>
constexpr bool kIsSmallInteger<uint8> = true;
template <>
constexpr bool kIsSmallInteger<int16> = true;
template <>
constexpr bool kIsSmallInteger<uint16> = true;

template <class Float>
CUSCAN_DEVICE int64 truncate_signed(Float value) {
    constexpr Float kEnd = Float(9223372036854775808.0);  // 2^63
    if (value != value) return 0;
    if (value >= kEnd) return 9223372036854775807LL;
    return value < -kEnd ? -9223372036854775807LL - 1 : int64(value);
}
template <class Float>
CUSCAN_DEVICE uint64 truncate_unsigned(Float value) {
    constexpr Float kEnd = Float(18446744073709551616.0);  // 2^64
    if (value >= kEnd) return ~0ull;
    return value >= kEnd / 2 ? uint64(value) : uint64(truncate_signed(value));
}

template <class To>
struct Narrow {
    template <class From>
    static CUSCAN_DEVICE To from(From value) {
        if constexpr (kIsFloat<From> && !kIsFloat<To>)
            return To(sizeof(To) == 8 && To(-1) > To(0) ? truncate_unsigned(value) : uint64(truncate_signed(value)));
        else
            return To(value);
    }
};
template <>
struct Narrow<boolean> {
    template <class From>
    static CUSCAN_DEVICE boolean from(From value) {
        return boolean{uint8(value != From(0))};
    }
};
template <>
struct Narrow<float16> {
    template <class From>
    static CUSCAN_DEVICE float16 from(From value) {
        return float16{target::float_to_half(float32(value))};
    }
};
template <>
struct Narrow<bfloat16> {
    template <class From>
    static CUSCAN_DEVICE bfloat16 from(From value) {
        return bfloat16{target::float_to_bfloat(float32(value))};
    }
};
template <class Part>
struct Narrow<complex<Part>> {
    template <class From>
    static CUSCAN_DEVICE complex<Part> from(From value) {
        return {Part(value), Part(0)};
    }
    template <class Other>
    static CUSCAN_DEVICE complex<Part> from(complex<Other> value) {
        return {Part(value.real), Part(value.imag)};
    }
};

template <class Item>
struct Narrow<word<Item>> {
    static CUSCAN_DEVICE word<Item> from(uint32 value) { return {value}; }
};

template <class To, class From>
CUSCAN_DEVICE To convert(From value) {
    return Narrow<To>::from(arithmetic(value));
}

template <class T>
CUSCAN_DEVICE bool is_nan(T value) {
    if constexpr (kIsFloat<T>)
        return value != value;
    else
        return false;
}
template <class Part>
CUSCAN_DEVICE bool is_nan(complex<Part> value) {
    return value.real != value.real || value.imag != value.imag;
}

}  // namespace cuscan
