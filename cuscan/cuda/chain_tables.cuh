// Where the chains of grid_chain.cuh lie in the workspace, and how a value gets from block to block: it travels with the tag
// of its launch in the same 64-bit words, so a relaxed access is enough, a torn value is noticed, and nothing has to be
// cleared between launches.
#pragma once
#include "workspace.cuh"

namespace cuscan {

// A value of T as words of {32 bits of the value, 32 bits of tag}.
template <class T>
struct Tagged {
    static constexpr int kWords = target::Words<T>::kCount;

    static CUSCAN_DEVICE void publish(uint64* slot, const T& value, uint32 tag) {
        target::Words<T> parts = target::to_words(value);
        auto word = [&](int i) { return uint64(tag) << 32 | parts.word[i]; };
        if constexpr (kWords % 2 == 0) {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; i += 2) target::store_relaxed(slot + i, word(i), word(i + 1));
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; ++i) target::store_relaxed(slot + i, word(i));
        }
    }

    // One look: true, and the value, once the whole of it is there.
    static CUSCAN_DEVICE bool ready(const uint64* slot, uint32 tag, T& value) {
        uint64 words[kWords];
        if constexpr (kWords % 2 == 0) {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; i += 2) target::load_relaxed(slot + i, words[i], words[i + 1]);
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; ++i) words[i] = target::load_relaxed(slot + i);
        }
        target::Words<T> parts;
        bool complete = true;
        CUSCAN_UNROLL
        for (int i = 0; i < kWords; ++i) {
            parts.word[i] = uint32(words[i]);
            complete = complete && uint32(words[i] >> 32) == tag;
        }
        value = target::from_words(parts);
        return complete;
    }
};

// The words of a launch's chains (assemble.py counts the same): the tables one after the other, each ordered by chain.
template <class Acc, class Carry>
struct ChainTables {
    static constexpr uint64 kGroup = target::kWarp;
    static constexpr uint64 kSection = kGroup * kGroup;

    uint64 units, groups, sections;
    uint64* aggregates;  // of units
    uint64* group_totals;
    uint64* section_totals;
    uint64* carries;  // into sections; that into section 0 is never written, the initial value stands for it

    CUSCAN_DEVICE ChainTables(uint64* words, uint64 chains, uint64 units_each) {
        units = units_each;
        groups = (units + kGroup - 1) / kGroup;
        sections = (units + kSection - 1) / kSection;
        aggregates = words;
        // Pairs of words are accessed at once, so every table begins at an even word.
        group_totals = aggregates + (chains * units * Tagged<Acc>::kWords + 1) / 2 * 2;
        section_totals = group_totals + (chains * groups * Tagged<Carry>::kWords + 1) / 2 * 2;
        carries = section_totals + (chains * sections * Tagged<Carry>::kWords + 1) / 2 * 2;
    }
};

}  // namespace cuscan
