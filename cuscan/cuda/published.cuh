// Values that one thread publishes in the workspace and other blocks poll. Every 64-bit word carries the epoch of its
// launch beside 32 bits of the value, so relaxed accesses suffice, a torn value is detected, and nothing has to be
// cleared between launches. Single threads publish and poll; a whole warp calls await_all.
#pragma once
#include "workspace.cuh"

namespace cuscan {

// A value of T as 64-bit words: 32 bits of the value in the low half of each, the epoch in the high half.
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

    // Loads the words once, published or not.
    static CUSCAN_DEVICE void look(const uint64* slot, uint64 (&words)[kWords]) {
        if constexpr (kWords % 2 == 0) {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; i += 2) target::load_relaxed(slot + i, words[i], words[i + 1]);
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kWords; ++i) words[i] = target::load_relaxed(slot + i);
        }
    }
    // The same if `wanted`; otherwise the words stay unchanged.
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
    // Whether all words carry `epoch`; only then is `value` valid.
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

constexpr uint32 kPatience = 250;  // nanoseconds between two polls for values that are needed later

// Called by a warp: each lane gets the first `count` of its kMost values, `step` words apart, once those of all lanes
// are published. A lane issues its loads together, and only for missing values: many blocks poll the same words. A
// warp that is `patient` pauses between two polls.
template <class T, int kMost>
CUSCAN_DEVICE void await_all(const uint64* words, uint32 step, uint32 epoch, int count, T (&value)[kMost],
                             bool patient = false) {
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
        if (patient) target::pause(kPatience);
    }
}

}  // namespace cuscan
