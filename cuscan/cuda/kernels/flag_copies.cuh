// flag_copies: copies a mask or reset flags, which lie across the scanned axis, into the order of the values, in a
// launch of its own before the scan. A block transposes a tile of 16 KiB in shared memory: its threads load patches of
// 4 by 4 flags, as words along the array's own fastest axis, and store words along the scanned one. Rows of the copy
// are a multiple of 16 bytes apart. What lies between them is undefined.
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
        const int rows = clamp(of.along.size - along, 4 * high);
        const char* const first = from + across * of.across.from + along * of.along.from;
        const char* const last = first + (rows - 1) * of.along.from;
        const char *const low = first < last ? first : last, *const top = first < last ? last : first;
        // Words of all columns exist, wherever they begin. The last row takes the place of those behind it.
        if (of.across.from == 1 && across + 4 * wide <= of.across.size && low - 3 >= lowest &&
            top + 4 * wide + 4 <= end)
            return load_patches<kEach>([&](int column, int row) {
                return word_at(first + column + (row < rows ? row : rows - 1) * of.along.from);
            });
        load_patches<2>([&](int column, int row) {
            if (row >= rows || across + column >= of.across.size) return 0u;
            return four_flags(first + column * of.across.from + row * of.along.from, of.across.from,
                              of.across.size - across - column, lowest, end);
        });
    }
    // Each warp stores columns of the tile, as far as they exist.
    CUSCAN_DEVICE void store(char* to, const FlagCopy& of, int64 across, int64 along) const {
        const int columns = clamp(of.across.size - across, 4 * wide);
        const int words = (clamp(of.along.size - along, 4 * high) + 3) / 4;
        for (int c = target::thread_index() / target::kWarp; c < columns; c += kThreads / target::kWarp) {
            uint32* const first = (uint32*)(to + (across + c) * of.across.to + along);
            for (int w = target::thread_index() % target::kWarp; w < words; w += target::kWarp) first[w] = column(c)[w];
        }
    }

private:
    // word(column, row): four flags of a row. A thread loads kAtATime patches before it stores them in the tile: more
    // would spill where words are tested.
    template <int kAtATime, class Word>
    CUSCAN_DEVICE void load_patches(Word word) const {
        static_assert(kEach % kAtATime == 0, "");
        CUSCAN_UNROLL
        for (int from = 0; from < kEach; from += kAtATime) {
            uint32 rows[kAtATime][4];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) {
                const int patch = target::thread_index() + (from + i) * kThreads;
                CUSCAN_UNROLL
                for (int j = 0; j < 4; ++j) rows[i][j] = word(patch % wide * 4, (patch >> level) * 4 + j);
            }
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) {
                const int patch = target::thread_index() + (from + i) * kThreads;
                const int first = patch % wide * 4, at = patch >> level;
                CUSCAN_UNROLL
                for (int half = 0; half < 2; ++half) {  // columns 0 and 1, then 2 and 3
                    const auto pairs = [&](uint32 row, uint32 next) {
                        return half ? target::pick_bytes<0x7362>(row, next) : target::pick_bytes<0x5140>(row, next);
                    };
                    const uint32 upper = pairs(rows[i][0], rows[i][1]), lower = pairs(rows[i][2], rows[i][3]);
                    column(first + 2 * half)[at] = target::pick_bytes<0x5410>(upper, lower);
                    column(first + 2 * half + 1)[at] = target::pick_bytes<0x7632>(upper, lower);
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
    // Neighbours in memory first: rows of flags may be narrower than a sector.
    const int64 across = next(of.tiles_across) * 4 * tile.wide;
    const char* from = given;
    char* to = copy;
    CUSCAN_UNROLL
    for (int i = 0; i < FlagCopy::kOthers; ++i) {
        const int64 number = next(of.others[i].size);
        from += number * of.others[i].from;
        to += number * of.others[i].to;
    }
    const int64 along = next(of.tiles_along) * 4 * tile.high;
    tile.load(from, of, across, along, given + of.lowest, given + of.end);
    target::sync_block();
    tile.store(to, of, across, along);
}

}  // namespace cuscan
