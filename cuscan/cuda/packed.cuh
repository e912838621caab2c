// Sums of integers of one or two bytes, taken several to a 32-bit word. They wrap to their width, so that only the low bits
// of anything count, and may be associated in any way: no bit of a result changes. What a thread computes an element is the
// limit for types this small.
#pragma once
#include "elements.cuh"

namespace cuscan {

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

template <class Op>
constexpr bool kIsSum = false;
template <class T>
constexpr bool kIsSum<Add<T>> = kIsInteger<T>;

// The vectors of a thread, as words. To be used where kFits; what comes before a first element is 0.
template <class Config>
struct Packed {
    using Value = typename PortOf<0, typename Config::Values>::Is::Type;
    using Result = typename PortOf<0, typename Config::Results>::Is::Type;
    static constexpr bool kFits =
        kIsSum<typename Config::Op> && Config::Values::kCount == 1 && kIsSmallInteger<Value> && kIsSmallInteger<Result> &&
        sizeof(Value) == sizeof(Result) && Config::kItems * sizeof(Value) % 4 == 0 && Config::kSegments == Segments::kNone &&
        Config::Last::kAccess == Access::kNone;
    static constexpr int kInWord = 4 / sizeof(Value);
    using Words = target::Words<Vector<Value, Config::kItems>>;

    // Word i without the elements whose bit of `keep`, from `first` on, is not set.
    template <class Bits>
    static CUSCAN_DEVICE uint32 masked(uint32 word, const Bits& keep, int first) {
        const uint32 bits = keep.word[first / Bits::kWord] >> first % Bits::kWord & ((1u << kInWord) - 1);
        // Each bit goes to the top of its element, then to all of it.
        return word & (kInWord == 4 ? target::pick_bytes<0xba98>(bits * 0x10204080u, 0)
                                    : target::pick_bytes<0xbb99>(bits * 0x40008000u, 0));
    }
    static CUSCAN_DEVICE uint32 total(const Words& words) {
        uint32 sum = 0;
        CUSCAN_UNROLL
        for (uint32 word : words.word)
            sum = kInWord == 4 ? target::add_bytes(word, sum) : target::add_halves(word, sum);
        return sum;
    }
    static CUSCAN_DEVICE Words run(Words words, uint32 before) {
        CUSCAN_UNROLL
        for (uint32& word : words.word) word = kInWord == 4 ? run_bytes(word, before) : run_halves(word, before);
        return words;
    }

private:
    // Bytes 0 and 2, and 1 and 3, in lanes of 16 bits: a byte from before and four of a word do not overflow them.
    static CUSCAN_DEVICE uint32 run_bytes(uint32 word, uint32& before) {
        const uint32 even = word & 0x00ff00ffu, odd = target::pick_bytes<0x4341>(word, 0);
        const uint32 through_odd = (even + odd) * 0x00010001u + target::pick_bytes<0x4040>(before, 0);
        const uint32 through_even = through_odd - odd;
        before = through_odd >> 16;
        return Config::kExclusive ? target::pick_bytes<0x6240>(through_even - even, through_even)
                                  : target::pick_bytes<0x6240>(through_even, through_odd);
    }
    static CUSCAN_DEVICE uint32 run_halves(uint32 word, uint32& before) {
        const uint32 start = before, middle = start + word;  // in their low halves
        before = middle + (word >> 16);
        return Config::kExclusive ? target::pick_bytes<0x5410>(start, middle) : target::pick_bytes<0x5410>(middle, before);
    }
};

}  // namespace cuscan
