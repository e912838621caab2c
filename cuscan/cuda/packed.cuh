// Scans of 1-byte or 2-byte integers and bools, several to a 32-bit word, by operators for which any association gives
// the same bits: sums, which wrap to their width, extrema, and operators on bits. Types this small are bound by
// instructions per element: at copy speed an SM of an H200 has about 15 instructions per byte.
#pragma once
#include "elements.cuh"
#include "on_words.cuh"

namespace cuscan {

// Operators whose words combine in 16-bit halves.
template <class Op>
constexpr bool kOfHalves = false;
template <class N>
constexpr bool kOfHalves<Min<N>> = true;
template <class N>
constexpr bool kOfHalves<Max<N>> = true;
template <class N>
constexpr bool kOfHalves<And<N>> = true;
template <class N>
constexpr bool kOfHalves<Or<N>> = true;
template <class N>
constexpr bool kOfHalves<Xor<N>> = true;

// Whether scans with results of T work on words. A carry may be beyond the range of T: sums may wrap it before they
// add elements, extrema and operators on bools may not.
template <class Op, class T, bool kCarriesIn>
constexpr bool kInWords = kOfHalves<Op> && !kCarriesIn && (kIsSmallInteger<T> || kIsBoolean<T>);
template <class N, class T, bool kCarriesIn>
constexpr bool kInWords<Add<N>, T, kCarriesIn> = kIsInteger<N> && kIsSmallInteger<T>;

// The elements of a word, by any of these operators but sums: they combine in 16-bit halves, which hold bytes with
// their signs. What precedes a word is in both halves of `before`.
template <class Op, class T>
struct InWord {
    using Pairs = Halves16<Op, T>;

    static CUSCAN_DEVICE uint32 even(uint32 word) {
        return target::pick_bytes<kIsSigned<T> ? 0xa280 : 0x4240>(word, 0);
    }
    static CUSCAN_DEVICE uint32 odd(uint32 word) { return target::pick_bytes<kIsSigned<T> ? 0xb391 : 0x4341>(word, 0); }
    // The elements of a word, and those of words before it, as two halves; then as one, the low half.
    static CUSCAN_DEVICE uint32 of_word(uint32 word) {
        return sizeof(T) == 1 ? Pairs::combine(even(word), odd(word)) : word;
    }
    static CUSCAN_DEVICE uint32 join(uint32 earlier, uint32 word) { return Pairs::combine(earlier, of_word(word)); }
    static CUSCAN_DEVICE uint32 whole(uint32 halves) { return Pairs::combine(halves, halves >> 16); }
    static CUSCAN_DEVICE uint32 start(uint32 before) { return target::pick_bytes<0x1010>(before, 0); }
    template <bool kExclusive>
    static CUSCAN_DEVICE uint32 scan(uint32 word, uint32& before) {
        const uint32 start = before, own = of_word(word);
        // Prefixes through bytes 1 and 3, or through both halves; then through bytes 0 and 2.
        const uint32 neutral = uint32(arithmetic(convert<T>(Op::template identity<T>())));
        const uint32 through = Pairs::combine(start, Pairs::combine(own, target::pick_bytes<0x1054>(own, neutral)));
        const uint32 earlier = target::pick_bytes<0x5410>(start, through);
        before = target::pick_bytes<0x3232>(through, 0);
        if (sizeof(T) == 2) return kExclusive ? earlier : through;
        const uint32 through_even = Pairs::combine(earlier, even(word));
        return kExclusive ? target::pick_bytes<0x6240>(earlier, through_even)
                          : target::pick_bytes<0x6240>(through_even, through);
    }
};
// Sums. Only low bits matter.
template <class N, class T>
struct InWord<Add<N>, T> {
    static CUSCAN_DEVICE uint32 of_word(uint32 word) { return join(0, word); }
    static CUSCAN_DEVICE uint32 join(uint32 earlier, uint32 word) {
        return sizeof(T) == 1 ? target::add_bytes(word, earlier) : target::add_halves(word, earlier);
    }
    static CUSCAN_DEVICE uint32 whole(uint32 sum) { return sum; }
    static CUSCAN_DEVICE uint32 start(uint32 before) {
        return sizeof(T) == 1 ? target::pick_bytes<0x4040>(before, 0) : before;
    }
    template <bool kExclusive>
    static CUSCAN_DEVICE uint32 scan(uint32 word, uint32& before) {
        return sizeof(T) == 1 ? scan_bytes<kExclusive>(word, before) : scan_halves<kExclusive>(word, before);
    }

private:
    // Works on bytes 0 and 2, and on bytes 1 and 3, in 16-bit halves. `before` has the byte prefix in both halves; the
    // prefix plus the four bytes of a word does not overflow 16 bits.
    template <bool kExclusive>
    static CUSCAN_DEVICE uint32 scan_bytes(uint32 word, uint32& before) {
        const uint32 even = word & 0x00ff00ffu, odd = target::pick_bytes<0x4341>(word, 0);
        const uint32 through_odd = (even + odd) * 0x00010001u + before;
        const uint32 through_even = through_odd - odd;
        before = target::pick_bytes<0x4242>(through_odd, 0);
        return kExclusive ? target::pick_bytes<0x6240>(through_even - even, through_even)
                          : target::pick_bytes<0x6240>(through_even, through_odd);
    }
    template <bool kExclusive>
    static CUSCAN_DEVICE uint32 scan_halves(uint32 word, uint32& before) {
        const uint32 start = before, middle = start + word;  // only the low halves matter
        before = middle + (word >> 16);
        return kExclusive ? target::pick_bytes<0x5410>(start, middle) : target::pick_bytes<0x5410>(middle, before);
    }
};

// Totals and scans of a thread's vectors, as words, without segments. Valid only if kFits.
template <class Config>
struct Packed {
    using Value = typename OperandOf<0, typename Config::Values>::Is::Type;
    using Result = typename OperandOf<0, typename Config::Results>::Is::Type;
    using State = typename Elements<Config>::State;
    static constexpr bool kFits = kInWords<typename Config::Op, Result, Elements<Config>::kCarriesIn> &&
                                  Config::Values::kCount == 1 && sizeof(Value) == sizeof(Result) &&
                                  kIsSmallInteger<Value> == kIsSmallInteger<Result> &&
                                  kIsBoolean<Value> == kIsBoolean<Result> && Config::kItems * sizeof(Value) % 4 == 0 &&
                                  Config::Last::kAccess == Access::kNone && Config::CarryOut::kCount == 0;
    static constexpr int kInWord = 4 / sizeof(Value);
    using Word = InWord<typename Config::Op, Result>;
    using Run = Vector<Value, Config::kItems>;

    // The elements as words. Masked ones, whose bit of `keep`, from number `first` on, is not set, are neutral.
    template <class Bits>
    static CUSCAN_DEVICE Run words(Run run, const Bits& keep, int first) {
        CUSCAN_UNROLL
        for (int i = 0; i < Run::kWords; ++i, first += kInWord) {
            if constexpr (kIsBoolean<Value>) run.word[i] = arithmetic(word<boolean>{run.word[i]});
            if constexpr (Elements<Config>::kMasked) {
                const uint32 bits = keep.word[first / Bits::kWord] >> first % Bits::kWord & ((1u << kInWord) - 1);
                // The product moves each bit to the top of its element; pick_bytes replicates it over the element.
                const uint32 kept = kInWord == 4 ? target::pick_bytes<0xba98>(bits * 0x10204080u, 0)
                                                 : target::pick_bytes<0xbb99>(bits * 0x40008000u, 0);
                run.word[i] = (run.word[i] & kept) | (neutral() & ~kept);
            }
        }
        return run;
    }
    static CUSCAN_DEVICE State total(const Run& run) {
        uint32 total = Word::of_word(run.word[0]);
        CUSCAN_UNROLL
        for (int i = 1; i < Run::kWords; ++i) total = Word::join(total, run.word[i]);
        return State(number(Word::whole(total) & 0xffffu));
    }
    static CUSCAN_DEVICE void scan(const Run& run, const Running<Config>& running,
                                   Vector<Result, Config::kItems>& results) {
        uint32 before = Word::start(number(running.present ? running.value : Elements<Config>::identity()));
        CUSCAN_UNROLL
        for (int i = 0; i < Run::kWords; ++i)
            results.word[i] = Word::template scan<Config::kExclusive>(run.word[i], before);
    }

private:
    template <class From>
    static CUSCAN_DEVICE uint32 number(From from) {
        return uint32(arithmetic(convert<Result>(from)));
    }
    // An element that does not count, in all places of a word.
    static CUSCAN_DEVICE uint32 neutral() {
        return kInWord == 4 ? (number(Elements<Config>::identity()) & 0xffu) * 0x01010101u
                            : (number(Elements<Config>::identity()) & 0xffffu) * 0x00010001u;
    }
};

}  // namespace cuscan
