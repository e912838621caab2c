// flag_copies: copies a mask or reset flags, which lie across the scanned axis, into the order of the values, in a
// launch of its own before the scan. A block transposes a tile of 16 KiB in shared memory: its threads load patches of
// 4 by 4 flags, as words along the array's own fastest axis, and store words along the scanned one.
#pragma once
#include "../vectors.cuh"

namespace cuscan {

// The host writes this struct as 64-bit words (planning/flag_copies.py). Strides are in bytes, a flag is a byte.
struct FlagCopy {
    static constexpr int kOthers = 4;
    struct Axis {
        int64 size, from, to;  // strides of the flags and of their copy
    };

    Axis across, along;    // the flags' fastest axis; the scanned axis
    Axis others[kOthers];  // the fastest first
    uint64 tiles_across, tiles_along;
    int64 level;        // binary logarithm of the patches of a tile across
    int64 lowest, end;  // the range of bytes that the flags cover, counted from the first one
};

// The first `count` of four flags, `step` bytes apart, as bytes of a word. `lowest` and `end` bound the whole array.
CUSCAN_DEVICE uint32 four_flags(const char* from, int64 step, int64 count, const char* lowest, const char* end) {
    if (count >= 4 && step == 1) {
        const uint32 beyond = uint32(reinterpret_cast<uint64>(from)) % 4;
        if (beyond == 0) return *(const uint32*)from;
        if (from - beyond >= lowest && from - beyond + 8 <= end) return word_at(from);
    }
    uint32 flags = 0;
    CUSCAN_UNROLL
    for (int i = 0; i < 4; ++i)
        if (i < count) flags |= uint32(*(const uint8*)(from + i * step)) << 8 * i;
    return flags;
}

template <int kThreads, int kPatches>
struct FlagTile {
    static constexpr int kEach = kPatches / kThreads;  // patches of a thread
    // A column of the tile takes the words of its patches, and some more, so that lanes store them in different banks.
    static constexpr int kWords = 4 * kPatches + 4 * target::kWarp;

    uint32* const words;
    const int level;              // binary logarithm of the patches across
    const int wide, high, pitch;  // patches across and along; words of a column

    CUSCAN_DEVICE FlagTile(uint32* words, int level)
        : words(words),
          level(level),
          wide(1 << level),
          high(kPatches >> level),
          pitch(high + (target::kWarp >> level)) {}

    CUSCAN_DEVICE uint32* column(int number) const { return words + (number % 4 * wide + number / 4) * pitch; }
    CUSCAN_DEVICE void load(const char* from, const FlagCopy& of, int64 across, int64 along, const char* lowest,
                            const char* end) const {
        uint32 rows[kEach][4];
        CUSCAN_UNROLL
        for (int i = 0; i < kEach; ++i) {
            const int patch = target::thread_index() + i * kThreads;
            const int64 first = across + patch % wide * 4, row = along + (patch >> level) * 4;
            CUSCAN_UNROLL
            for (int j = 0; j < 4; ++j) {
                rows[i][j] = 0;
                if (first < of.across.size && row + j < of.along.size)
                    rows[i][j] = four_flags(from + first * of.across.from + (row + j) * of.along.from, of.across.from,
                                            of.across.size - first, lowest, end);
            }
        }
        CUSCAN_UNROLL
        for (int i = 0; i < kEach; ++i) {
            const int patch = target::thread_index() + i * kThreads;
            CUSCAN_UNROLL
            for (int c = 0; c < 4; ++c) {
                uint32 word = 0;
                CUSCAN_UNROLL
                for (int j = 0; j < 4; ++j) word |= (rows[i][j] >> 8 * c & 255) << 8 * j;
                column(patch % wide * 4 + c)[patch >> level] = word;
            }
        }
    }
    // Each warp stores columns of the tile, as far as they exist.
    CUSCAN_DEVICE void store(char* to, const FlagCopy& of, int64 across, int64 along) const {
        const int columns = clamp(of.across.size - across, 4 * wide), count = clamp(of.along.size - along, 4 * high);
        const int lane = target::thread_index() % target::kWarp;
        for (int c = target::thread_index() / target::kWarp; c < columns; c += kThreads / target::kWarp) {
            const char* const flags = (const char*)column(c);
            char* const first = to + (across + c) * of.across.to + along;
            const int beyond = int(reinterpret_cast<uint64>(first) % 4);
            for (int at = 4 * lane - beyond; at < count; at += 4 * target::kWarp) {
                if (at >= 0 && at + 4 <= count) {
                    *(uint32*)(first + at) = word_at(flags + at);
                } else {
                    for (int i = 0; i < 4; ++i)
                        if (at + i >= 0 && at + i < count) first[at + i] = flags[at + i];
                }
            }
        }
    }
};

template <int kThreads, int kPatches>
CUSCAN_DEVICE void copy_flags(const char* given, char* copy, const FlagCopy& of) {
    using Tile = FlagTile<kThreads, kPatches>;
    struct Shared {
        uint32 words[Tile::kWords];
    };
    target::wait_for_previous_kernel();
    target::allow_next_kernel();
    const Tile tile(target::shared_memory<Shared>().words, int(of.level));
    uint32 rest = target::block_index();
    const auto next = [&](uint64 count) {
        const uint32 number = rest % uint32(count);
        rest /= uint32(count);
        return int64(number);
    };
    const int64 across = next(of.tiles_across) * 4 * tile.wide, along = next(of.tiles_along) * 4 * tile.high;
    const char* from = given;
    char* to = copy;
    CUSCAN_UNROLL
    for (int i = 0; i < FlagCopy::kOthers; ++i) {
        const int64 number = next(of.others[i].size);
        from += number * of.others[i].from;
        to += number * of.others[i].to;
    }
    tile.load(from, of, across, along, given + of.lowest, given + of.end);
    target::sync_block();
    tile.store(to, of, across, along);
}

}  // namespace cuscan
