// Sums of 1-byte or 2-byte integers, several to a 32-bit word. Sums wrap to their width, so only low bits matter and
// any association gives the same bits. Types this small are bound by instructions per element: at copy speed an SM of
// an H200 has about 15 instructions per byte.
#pragma once
#include "elements.cuh"

namespace cuscan {

template <class Op>
constexpr bool kIsSum = false;
template <class T>
constexpr bool kIsSum<Add<T>> = kIsInteger<T>;

// Totals and scans of a thread's vectors, as words. Valid only if kFits; the prefix of the first element is 0.
template <class Config>
struct Packed {
    using Value = typename OperandOf<0, typename Config::Values>::Is::Type;
    using Result = typename OperandOf<0, typename Config::Results>::Is::Type;
    static constexpr bool kFits =
        kIsSum<typename Config::Op> && Config::Values::kCount == 1 && kIsSmallInteger<Value> &&
        kIsSmallInteger<Result> && sizeof(Value) == sizeof(Result) && Config::kItems * sizeof(Value) % 4 == 0 &&
        Config::kSegments == Segments::kNone && Config::Last::kAccess == Access::kNone && Config::CarryOut::kCount == 0;
    static constexpr int kInWord = 4 / sizeof(Value);
    using Run = Vector<Value, Config::kItems>;

    // Zeroes the elements whose bit of `keep`, from number `first` on, is not set.
    template <class Bits>
    static CUSCAN_DEVICE Run masked(Run run, const Bits& keep, int first) {
        CUSCAN_UNROLL
        for (int i = 0; i < Run::kWords; ++i, first += kInWord) {
            const uint32 bits = keep.word[first / Bits::kWord] >> first % Bits::kWord & ((1u << kInWord) - 1);
            // The product moves each bit to the top of its element; pick_bytes replicates it over the element.
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
    // Works on bytes 0 and 2, and on bytes 1 and 3, in 16-bit halves. `before` has the byte prefix in both halves; the
    // prefix plus the four bytes of a word does not overflow 16 bits.
    static CUSCAN_DEVICE uint32 scan_bytes(uint32 word, uint32& before) {
        const uint32 even = word & 0x00ff00ffu, odd = target::pick_bytes<0x4341>(word, 0);
        const uint32 through_odd = (even + odd) * 0x00010001u + before;
        const uint32 through_even = through_odd - odd;
        before = target::pick_bytes<0x4242>(through_odd, 0);
        return Config::kExclusive ? target::pick_bytes<0x6240>(through_even - even, through_even)
                                  : target::pick_bytes<0x6240>(through_even, through_odd);
    }
    static CUSCAN_DEVICE uint32 scan_halves(uint32 word, uint32& before) {
        const uint32 start = before, middle = start + word;  // only the low halves matter
        before = middle + (word >> 16);
        return Config::kExclusive ? target::pick_bytes<0x5410>(start, middle)
                                  : target::pick_bytes<0x5410>(middle, before);
    }
};

}  // namespace cuscan
