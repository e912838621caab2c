// Operators on words: the bytes of four neighbouring columns combine at once, mostly in fewer instructions. They are
// exact on integers, so that results are those of single bytes. Masks are words, too, unless they hold for all columns.
// packed.cuh uses the operators on 16-bit halves for the neighbours of a line.
#pragma once
#include "operators.cuh"

namespace cuscan {

template <class Item>
constexpr bool kIsSigned = false;
template <>
constexpr bool kIsSigned<int8> = true;
template <>
constexpr bool kIsSigned<int16> = true;

// combine(earlier, later) for words of two 16-bit integers, of the sign of Item.
template <class Op, class Item>
struct Halves16;
template <class T, class Item>
struct Halves16<And<T>, Item> : And<uint32> {};
template <class T, class Item>
struct Halves16<Or<T>, Item> : Or<uint32> {};
template <class T, class Item>
struct Halves16<Xor<T>, Item> : Xor<uint32> {};
template <class T, class Item>
struct Halves16<Min<T>, Item> {
    static CUSCAN_DEVICE uint32 combine(uint32 earlier, uint32 later) {
        return target::smaller_halves<kIsSigned<Item>>(earlier, later);
    }
};
template <class T, class Item>
struct Halves16<Max<T>, Item> {
    static CUSCAN_DEVICE uint32 combine(uint32 earlier, uint32 later) {
        return target::larger_halves<kIsSigned<Item>>(earlier, later);
    }
};

// combine(earlier, later) for words of Item, by the operator Op on numbers. Without a specialisation, byte by byte.
template <class Op, class Item>
struct Bytes {
    static CUSCAN_DEVICE uint32 combine(uint32 earlier, uint32 later) {
        using Number = typename Op::State;
        uint32 all = 0;
        CUSCAN_UNROLL
        for (int at = 0; at < 32; at += 8) {
            const Number number = Op::combine(Number(Item(earlier >> at)), Number(Item(later >> at)));
            all |= uint32(uint8(number)) << at;
        }
        return all;
    }
};
template <class T, class Item>
struct Bytes<And<T>, Item> : And<uint32> {};
template <class T, class Item>
struct Bytes<Or<T>, Item> : Or<uint32> {};
template <class T, class Item>
struct Bytes<Xor<T>, Item> : Xor<uint32> {};
template <class T, class Item>
struct Bytes<Add<T>, Item> {
    // The top bits are added apart, so that nothing carries to the next byte.
    static CUSCAN_DEVICE uint32 combine(uint32 earlier, uint32 later) {
        constexpr uint32 kTop = 0x80808080u;
        return ((earlier & ~kTop) + (later & ~kTop)) ^ ((earlier ^ later) & kTop);
    }
};
// Halves compare in one instruction. The upper one of their two bytes decides; then the lower one, shifted up.
template <class Op, class Item>
struct ByHalves {
    static CUSCAN_DEVICE uint32 combine(uint32 earlier, uint32 later) {
        using Both = Halves16<Op, Item>;
        return target::pick_bytes<0x7351>(Both::combine(earlier << 8, later << 8), Both::combine(earlier, later));
    }
};
template <class T, class Item>
struct Bytes<Min<T>, Item> : ByHalves<Min<T>, Item> {};
template <class T, class Item>
struct Bytes<Max<T>, Item> : ByHalves<Max<T>, Item> {};

template <class Op, class Item>
struct OnWords : Bytes<Op, Item> {
    using State = uint32;
    using Initial = typename Op::Initial;

    template <class Result>
    static CUSCAN_DEVICE uint32 lift(word<Item> items) {
        return arithmetic(items);
    }
    template <class Result>
    static CUSCAN_DEVICE uint32 identity() {
        return start(Op::template identity<Item>());
    }
    static CUSCAN_DEVICE uint32 start(Initial initial) {
        return uint32(uint8(arithmetic(convert<Item>(initial)))) * 0x01010101u;
    }
    static CUSCAN_DEVICE uint32 lower(uint32 state, Number<0>) { return state; }
};

template <class Op, class Item>
constexpr bool kHasNeutral<OnWords<Op, Item>, word<Item>, word<Item>> = true;

// Replaces the bytes of a word that are masked.
template <class Item>
CUSCAN_DEVICE word<Item> masked(word<Item> items, word<boolean> kept, word<Item> neutral) {
    const uint32 bytes = arithmetic(kept) * 0xffu;
    return {(items.bits & bytes) | (neutral.bits & ~bytes)};
}
template <class T>
CUSCAN_DEVICE T masked(T item, boolean kept, T neutral) {
    return kept.bits != 0 ? item : neutral;
}

}  // namespace cuscan
