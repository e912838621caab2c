// Decoupled look-back (Merrill & Garland 2016) along a chain of units that different blocks work on, in two levels.
//
// Every unit publishes its aggregate. The units of a chain are folded in groups of 32: by a warp scan inside a group,
// from left to right over groups, in the wider Carry type. The unit that ends a group publishes the carry into the next
// one, so a walk starts at the nearest published carry, never further back than it must. Because the groups are fixed,
// so is the association, whichever carries a walk happens to meet: every run gives the same bits.
//
// A value travels with the tag of its launch in the same 64-bit words, so a relaxed access is enough, a torn pair is
// noticed, and nothing has to be cleared between launches.
//
// Progress: a unit waits only for units of lower index in its chain. Callers hand units out in that order (tickets).
#pragma once
#include "scans.cuh"
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

// kCount neighbouring chains, walked together by a whole warp: lane i looks at unit i of a group, in each of them.
// CarryOp is the operator on the Carry type.
template <class Acc, class Carry, class CarryOp, int kCount = 1>
struct Chains {
    static constexpr int kGroup = target::kWarp;
    static constexpr int kAccWords = Tagged<Acc>::kWords;
    static constexpr int kCarryWords = Tagged<Carry>::kWords;

    uint64 units, groups;
    uint64* aggregates;  // of unit 0 of the first chain
    uint64* carries;     // into its group 0 (never written: the initial value stands for it)
    uint32 tag;

    // `total`: all chains of the launch; `first`: the first of these.
    CUSCAN_DEVICE Chains(Workspace* workspace, uint64 total, uint64 units_each, uint64 first) {
        units = units_each;
        groups = (units + kGroup - 1) / kGroup;
        aggregates = workspace->words() + first * units * kAccWords;
        carries = workspace->words() + total * units * kAccWords + first * groups * kCarryWords;
        tag = workspace->tag();
    }

    CUSCAN_DEVICE void publish(int chain, uint32 unit, const Acc& aggregate) {
        Tagged<Acc>::publish(aggregates + (chain * units + unit) * kAccWords, aggregate, tag);
    }

    // What precedes `unit` in each chain, in every lane: carry[], of which nothing exists if the result is false. On
    // entry carry[] is the chain's initial value, if there is one; own[] are the unit's aggregates, already published.
    // The unit that ends a group publishes the carries into the next.
    CUSCAN_DEVICE bool prefix(uint32 unit, const Acc (&own)[kCount], bool has_carry, Carry (&carry)[kCount]) {
        const int lane = target::thread_index() % target::kWarp;
        const uint32 group = unit / kGroup;
        const int place = int(unit % kGroup);
        Carry scanned[kCount];

        for (uint32 g = start(group, lane, has_carry, carry); g < group; ++g) {
            scan_group(g, kGroup, lane, own, scanned);
            fold(has_carry, carry, scanned, kGroup - 1);
        }
        if (place == 0) return has_carry;

        scan_group(group, place, lane, own, scanned);
        if (place == kGroup - 1 && group + 1 < groups) {
            bool has_next = has_carry;
            Carry next[kCount];
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) next[c] = carry[c];
            fold(has_next, next, scanned, kGroup - 1);
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c)
                if (lane == 0) Tagged<Carry>::publish(carries + (c * groups + group + 1) * kCarryWords, next[c], tag);
        }
        fold(has_carry, carry, scanned, place - 1);
        return true;
    }

private:
    CUSCAN_DEVICE void fold(bool& has_carry, Carry (&carry)[kCount], const Carry (&scanned)[kCount], int lane) {
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) carry[c] = join<CarryOp>(has_carry, carry[c], target::broadcast(scanned[c], lane));
        has_carry = true;
    }

    // The first group whose units still have to be folded; carry[] becomes what precedes it. That is the nearest group
    // with published carries, of the last 32, or the chain's start.
    CUSCAN_DEVICE uint32 start(uint32 group, int lane, bool& has_carry, Carry (&carry)[kCount]) {
        while (group > 0) {
            const bool exists = uint32(lane) < group;  // lane 0 looks at the carry into `group`, lane 1 one group earlier
            const uint64* slot = carries + (exists ? group - lane : group) * kCarryWords;
            bool all_ready = exists;
            Carry seen[kCount];
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) {
                const bool ready = Tagged<Carry>::ready(slot + c * groups * kCarryWords, tag, seen[c]);
                all_ready = all_ready && ready;
            }
            const uint32 found = target::ballot(all_ready);
            if (found != 0) {
                const int nearest = target::first_set_bit(found);
                CUSCAN_UNROLL
                for (int c = 0; c < kCount; ++c) carry[c] = target::broadcast(seen[c], nearest);
                has_carry = true;
                return group - nearest;
            }
            if (group < uint32(target::kWarp)) break;
        }
        return 0;
    }

    // Inclusive scans over units 0 ... count - 1 of a group, once they are there, with own[] as the unit at `count`.
    // Later lanes have no meaning.
    CUSCAN_DEVICE void scan_group(uint32 group, int count, int lane, const Acc (&own)[kCount], Carry (&scanned)[kCount]) {
        const uint64* slot = aggregates + (uint64(group) * kGroup + (lane < count ? lane : 0)) * kAccWords;
        Acc value[kCount];
        bool all_ready;
        do {
            all_ready = true;
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) {
                const bool ready = Tagged<Acc>::ready(slot + c * units * kAccWords, tag, value[c]);
                all_ready = all_ready && ready;
            }
        } while (target::ballot(all_ready) != ~0u);
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c)
            scanned[c] = warp_inclusive_scan<CarryOp, kGroup>(convert<Carry>(lane < count ? value[c] : own[c]), lane);
    }
};

}  // namespace cuscan
