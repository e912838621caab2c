// How a value gets from block to block: it travels with the epoch of its launch in the same 64-bit words of the workspace,
// so a relaxed access is enough, a torn value is noticed, and nothing has to be cleared between launches.
#pragma once
#include "workspace.cuh"

namespace cuscan {

// A value of T as words of {32 bits of the value, 32 bits of epoch}.
template <class T>
struct Published {
    static constexpr int kWords = target::Words<T>::kCount;

    static CUSCAN_DEVICE void publish(uint64* slot, const T& value, uint32 epoch) {
        target::Words<T> parts = target::to_words(value);
        auto word = [&](int i) { return uint64(epoch) << 32 | parts.word[i]; };
        if constexpr (kWords % 2 == 0) {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; i += 2) target::store_relaxed(slot + i, word(i), word(i + 1));
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; ++i) target::store_relaxed(slot + i, word(i));
        }
    }

    // One look, whatever is there.
    static CUSCAN_DEVICE void look(const uint64* slot, uint64 (&words)[kWords]) {
        if constexpr (kWords % 2 == 0) {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; i += 2) target::load_relaxed(slot + i, words[i], words[i + 1]);
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; ++i) words[i] = target::load_relaxed(slot + i);
        }
    }
    // The same if it is wanted; else the words stay as they are.
    static CUSCAN_DEVICE void look(bool wanted, const uint64* slot, uint64 (&words)[kWords]) {
        constexpr int kStep = kWords % 2 == 0 ? 2 : 1;
        CUSCAN_UNROLL
        for (int i = 0; i < kWords; i += kStep) {
            if constexpr (kStep == 2)
                target::load_relaxed(wanted, slot + i, words[i], words[i + 1]);
            else
                target::load_relaxed(wanted, slot + i, words[i]);
        }
    }
    // True, and the value, if the whole of it was there.
    static CUSCAN_DEVICE bool is_there(const uint64 (&words)[kWords], uint32 epoch, T& value) {
        target::Words<T> parts;
        bool complete = true;
        CUSCAN_UNROLL
        for (int i = 0; i < kWords; ++i) {
            parts.word[i] = uint32(words[i]);
            complete = complete && uint32(words[i] >> 32) == epoch;
        }
        value = target::from_words(parts);
        return complete;
    }
    static CUSCAN_DEVICE bool ready(const uint64* slot, uint32 epoch, T& value) {
        uint64 words[kWords];
        look(slot, words);
        return is_there(words, epoch, value);
    }
};

// By a warp: the first `count` of kMost values, `step` words apart, when all of those of all lanes are there. Looks travel
// together, and only at what is missing: many blocks look at the same words.
template <class T, int kMost>
CUSCAN_DEVICE void await_all(const uint64* words, uint32 step, uint32 epoch, int count, T (&value)[kMost]) {
    uint64 found[kMost][Published<T>::kWords] = {};
    bool here[kMost];
    CUSCAN_UNROLL
    for (int i = 0; i < kMost; ++i) here[i] = i >= count;
    for (;;) {
        CUSCAN_UNROLL
        for (int i = 0; i < kMost; ++i) Published<T>::look(!here[i], words + uint64(i) * step, found[i]);
        bool all = true;
        CUSCAN_UNROLL
        for (int i = 0; i < kMost; ++i) {
            here[i] = Published<T>::is_there(found[i], epoch, value[i]) || here[i];
            all = all && here[i];
        }
        if (target::ballot(all) == ~0u) return;
    }
}

}  // namespace cuscan
