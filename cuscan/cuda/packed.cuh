// Sums of integers of one or two bytes, taken several to a 32-bit word. They wrap to their width, so that only the low bits
// of anything count, and may be associated in any way: no bit of a result changes. What a thread computes an element is the
// limit for types this small: at copy speed an SM of an H200 has about 15 instructions a byte.
#pragma once
#include "elements.cuh"

namespace cuscan {

template <class Op>
constexpr bool kIsSum = false;
template <class T>
constexpr bool kIsSum<Add<T>> = kIsInteger<T>;

// The vectors of a thread, as words. To be used where kFits; what comes before a first element is 0.
template <class Config>
struct Packed {
    using Value = typename OperandOf<0, typename Config::Values>::Is::Type;
    using Result = typename OperandOf<0, typename Config::Results>::Is::Type;
    static constexpr bool kFits = kIsSum<typename Config::Op> && Config::Values::kCount == 1 && kIsSmallInteger<Value> &&
                                  kIsSmallInteger<Result> && sizeof(Value) == sizeof(Result) &&
                                  Config::kItems * sizeof(Value) % 4 == 0 && Config::kSegments == Segments::kNone &&
                                  Config::Last::kAccess == Access::kNone && Config::CarryOut::kCount == 0;
    static constexpr int kInWord = 4 / sizeof(Value);
    using Run = Vector<Value, Config::kItems>;

    // Without the elements whose bit of `keep`, from `first` on, is not set.
    template <class Bits>
    static CUSCAN_DEVICE Run masked(Run run, const Bits& keep, int first) {
        CUSCAN_UNROLL
        for (int i = 0; i < Run::kWords; ++i, first += kInWord) {
            const uint32 bits = keep.word[first / Bits::kWord] >> first % Bits::kWord & ((1u << kInWord) - 1);
            // Each bit goes to the top of its element, then to all of it.
            run.word[i] &= kInWord == 4 ? target::pick_bytes<0xba98>(bits * 0x10204080u, 0)
                                        : target::pick_bytes<0xbb99>(bits * 0x40008000u, 0);
        }
        return run;
    }
    static CUSCAN_DEVICE uint32 total(const Run& run) {
        uint32 sum = 0;
        CUSCAN_UNROLL
        for (uint32 word : run.word) sum = kInWord == 4 ? target::add_bytes(word, sum) : target::add_halves(word, sum);
        return sum;
    }
    static CUSCAN_DEVICE void scan(const Run& run, uint32 before, Vector<Result, Config::kItems>& results) {
        if (kInWord == 4) before = target::pick_bytes<0x4040>(before, 0);
        CUSCAN_UNROLL
        for (int i = 0; i < Run::kWords; ++i)
            results.word[i] = kInWord == 4 ? scan_bytes(run.word[i], before) : scan_halves(run.word[i], before);
    }

private:
    // Bytes 0 and 2, and 1 and 3, in lanes of 16 bits: a byte from before, which is in both, and four of a word do not
    // overflow them.
    static CUSCAN_DEVICE uint32 scan_bytes(uint32 word, uint32& before) {
        const uint32 even = word & 0x00ff00ffu, odd = target::pick_bytes<0x4341>(word, 0);
        const uint32 through_odd = (even + odd) * 0x00010001u + before;
        const uint32 through_even = through_odd - odd;
        before = target::pick_bytes<0x4242>(through_odd, 0);
        return Config::kExclusive ? target::pick_bytes<0x6240>(through_even - even, through_even)
                                  : target::pick_bytes<0x6240>(through_even, through_odd);
    }
    static CUSCAN_DEVICE uint32 scan_halves(uint32 word, uint32& before) {
        const uint32 start = before, middle = start + word;  // in their low halves
        before = middle + (word >> 16);
        return Config::kExclusive ? target::pick_bytes<0x5410>(start, middle) : target::pick_bytes<0x5410>(middle, before);
    }
};

}  // namespace cuscan
