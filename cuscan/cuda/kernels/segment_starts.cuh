// segment_starts: computes segment starts as bits, from offsets, flags or keys that all rows share, in a launch of its
// own before the scan. Bit i % 32 of word i / 32 is set if a segment starts at scan position i. Each warp handles a run
// of positions. Warps do not synchronise with each other.
#pragma once
#include "../types.cuh"

namespace cuscan {

// The host writes this struct as 64-bit words (planning/segment_starts.py).
struct Segmentation {
    uint64 count;     // number of offsets
    int64 step;       // bytes from one offset, flag or key to the next
    int64 length;     // elements along the axis
    int64 positions;  // number of bits: the length, rounded up to whole pieces
    int64 run;        // positions of a warp, a number of pieces
    int64 reverse;
};

// A place in the array of offsets, from which a warp reads on. All lanes of the warp call seek and pass together.
template <class Offset>
struct OffsetCursor {
    static constexpr int kLoads = 4;  // loads that a lane has in flight

    const char* const first;
    const int64 step;
    const uint64 count;
    const int lane;
    uint64 at;  // the next entry

    // Moves to the first entry from here on that is not below `bound`, in steps that divide the rest by 32, or to one
    // of the few before it that `pass` then reads with it.
    CUSCAN_DEVICE void seek(int64 bound) {
        uint64 high = count;
        while (at + kLoads * target::kWarp < high) {
            const uint64 stride = (high - at + target::kWarp - 1) / target::kWarp, probe = at + lane * stride;
            const bool below = probe < high && entry(probe) < bound;
            const uint64 found = target::count_bits(target::ballot(below));
            if (found == 0) return;
            const uint64 next = at + found * stride;
            at += (found - 1) * stride + 1;
            if (next < high) high = next;
        }
    }
    // Moves to the first entry that is not below `to`. Calls mark(offset) for the entries in [from, to) on the way, at
    // least once for duplicates; a lane marks the entries that it reads. `from` is 1 or more.
    template <class Mark>
    CUSCAN_DEVICE void pass(int64 from, int64 to, Mark mark) {
        while (at < count) {
            const int left = count - at < kLoads * target::kWarp ? int(count - at) : kLoads * target::kWarp;
            Offset offset[kLoads];
            CUSCAN_UNROLL
            for (int k = 0; k < kLoads; ++k) {
                const int ahead = k * target::kWarp + lane;
                offset[k] = ahead < left ? entry(at + ahead) : 0;  // 0 is not marked
            }
            CUSCAN_UNROLL
            for (int k = 0; k < kLoads; ++k) {
                if (offset[k] >= from && offset[k] < to) mark(int64(offset[k]));
                const uint32 beyond = target::ballot(offset[k] >= to);
                if (beyond != 0) {
                    at += target::count_bits(~beyond & (beyond - 1));  // entries before the first such one
                    return;
                }
                at += target::kWarp;
            }
            // Skips a run of empty segments.
            const int64 last = target::broadcast(offset[kLoads - 1], target::kWarp - 1);
            if (target::broadcast(offset[0], 0) == last) seek(last + 1);
        }
    }

    // Whether the first segment in scan order is empty. Called by one lane.
    CUSCAN_DEVICE bool first_is_empty(bool reverse, int64 length) const {
        return count > 1 && (reverse ? entry(count - 2) == length : entry(1) == 0);
    }

private:
    CUSCAN_DEVICE Offset entry(uint64 number) const { return *(const Offset*)(first + int64(number) * step); }
};

// Position 0 does not count as a start, except with kCarries where the first segment is empty.
//
// A warp handles a chunk of kWords words at a time, in shared memory. It searches for the first offset of its run and
// goes on from there, chunk by chunk in the order of ascending offsets: from last to first in a reversed scan. Whatever
// the offsets are, nothing outside the arrays is read or written, and every loop ends.
template <class Offset, int kWarps, int kWords, bool kCarries>
CUSCAN_DEVICE void starts_of_offsets(const char* offsets, uint32* bits, const Segmentation& of) {
    target::wait_for_previous_kernel();
    target::allow_next_kernel();
    struct Shared {
        uint32 words[kWarps][kWords];
    };
    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    uint32* const words = target::shared_memory<Shared>().words[warp];
    const int64 begin = (int64(target::block_index()) * kWarps + warp) * of.run;
    int64 rest = of.run < of.positions - begin ? of.run : of.positions - begin;
    int64 start = of.reverse ? begin + rest : begin;  // start of the next chunk; if reversed, its end
    OffsetCursor<Offset> cursor{offsets, of.step, of.count, lane, 0};
    for (bool found = false; rest > 0; found = true) {
        const int size = rest < 32 * kWords ? int(rest) : 32 * kWords;
        rest -= size;
        if (of.reverse) start -= size;
        for (int w = lane; w < size / 32; w += target::kWarp) words[w] = 0;
        target::sync_warp();
        // In a reversed scan, the segment that ends at an offset starts there.
        const int64 from = start > 0 ? start : 1, to = start + size < of.length ? start + size : of.length;
        const int64 lowest = of.reverse ? of.length - to + 1 : from, limit = of.reverse ? of.length - from + 1 : to;
        if (!found) cursor.seek(lowest);
        cursor.pass(lowest, limit, [&](int64 offset) {
            const uint32 place = uint32((of.reverse ? of.length - offset : offset) - start);
            target::set_bits(words + place / 32, 1u << place % 32);
        });
        target::sync_warp();
        if constexpr (kCarries) {
            if (lane == 0 && start == 0 && cursor.first_is_empty(of.reverse, of.length)) words[0] |= 1;
            target::sync_warp();
        }
        for (int w = lane; w < size / 32; w += target::kWarp) bits[start / 32 + w] = words[w];
        if (!of.reverse) start += size;
    }
}

// A segment starts at each true flag; or, with kKeys, where a key differs from the one before it in the scan, so not at
// position 0. A warp handles a chunk of kWords words at a time, whose items are in flight together; its lanes read the
// items of one word together.
template <class Item, int kWarps, int kWords, bool kKeys>
CUSCAN_DEVICE void starts_of_items(const char* items, uint32* bits, const Segmentation& of) {
    target::wait_for_previous_kernel();
    target::allow_next_kernel();
    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    const int64 begin = (int64(target::block_index()) * kWarps + warp) * of.run;
    const int64 end = begin + of.run < of.positions ? begin + of.run : of.positions;
    const int64 step = of.reverse ? -of.step : of.step;
    const char* const first = items + (of.reverse ? (of.length - 1) * of.step : 0);
    auto last = arithmetic(Item{});  // the key before the next word
    if (kKeys && begin > 0 && begin < end) last = arithmetic(*(const Item*)(first + (begin - 1) * step));
    for (int64 at = begin; at < end; at += 32 * kWords) {
        const int count = of.length - at < 32 * kWords ? int(of.length - at) : 32 * kWords;
        const char* here = first + (at + lane) * step;
        Item item[kWords];
        CUSCAN_UNROLL
        for (int w = 0; w < kWords; ++w) {
            item[w] = {};
            if (w * 32 + lane < count) item[w] = *(const Item*)here;
            here += 32 * step;
            target::settle(here);  // one address at a time, or all occupy registers
        }
        uint32 word = 0;
        CUSCAN_UNROLL
        for (int w = 0; w < kWords; ++w) {
            const auto one = arithmetic(item[w]);
            bool starts = one != 0;
            if constexpr (kKeys) {
                auto before = target::shuffle_up(one, 1);
                if (lane == 0) before = last;
                last = target::broadcast(one, target::kWarp - 1);
                starts = one != before && w * 32 + lane < count && (w > 0 || lane > 0 || at > 0);
            }
            const uint32 found = target::ballot(starts);
            if (lane == w) word = found;
        }
        if (lane < kWords) bits[at / 32 + lane] = word;
    }
}

}  // namespace cuscan
