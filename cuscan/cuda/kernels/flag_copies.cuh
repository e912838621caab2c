// flag_copies: copies a mask or reset flags, whose own fastest axis the scan's tiles do not span, into the order of the
// results, in a launch of its own before the scan. A block transposes a tile of up to 32 KiB in shared memory: its
// threads load patches of 4 by 4 flags, as words along the flags' fastest axis, and store words along the rows of the
// copy. A tile is at most as wide as the flags are, and threads load whole words at its sides, too. Rows of the copy,
// each of which may be several short rows of flags, are a multiple of 16 bytes apart. What lies between them is
// undefined.
#pragma once
#include "../vectors.cuh"

namespace cuscan {

// The host writes this struct as 64-bit words (planning/flag_copies.py). Strides are in bytes, a flag is a byte.
struct FlagCopy {
    static constexpr int kOthers = 4;
    struct Axis {
        int64 size, from, to;  // strides of the flags and of their copy
    };

    Axis across, along;    // the flags' fastest axis; the one along the rows of the copy
    Axis others[kOthers];  // the fastest first
    uint64 tiles_across, tiles_along;
    int64 wide, high;   // patches of a tile across, at most as many as lanes of a warp, and along, a multiple of that
    int64 lowest, end;  // the range of bytes that the flags cover, counted from the first one
};

// The first `count` of four flags, `step` bytes apart, as bytes of a word. `lowest` and `end` bound the whole array.
CUSCAN_DEVICE uint32 four_flags(const char* from, int64 step, int64 count, const char* lowest, const char* end) {
    if (count >= 4 && step == 1 && from - 3 >= lowest && from + 8 <= end) return word_at(from);
    uint32 flags = 0;
    CUSCAN_UNROLL
    for (int i = 0; i < 4; ++i)
        if (i < count) flags |= uint32(*(const uint8*)(from + i * step)) << 8 * i;
    return flags;
}

template <int kThreads, int kPatches>
struct FlagTile {
    // A column of the tile takes the words of its patches, and some more, so that lanes store them in different banks.
    static constexpr int kWords = 4 * kPatches + 4 * target::kWarp;

    static constexpr uint32 kOne = 1 << 16;  // in numbers with a binary point
    static_assert(kPatches * target::kWarp <= int(kOne), "otherwise divisions by `wide` are not exact");

    uint32* const words;
    const int wide, high, pitch;  // patches across and along; words of a column
    const uint32 of_wide;         // a division by `wide` is a product with this

    CUSCAN_DEVICE FlagTile(uint32* words, int wide, int high)
        : words(words), wide(wide), high(high), pitch(high + target::kWarp / wide), of_wide((kOne - 1) / wide + 1) {}

    CUSCAN_DEVICE void load(const char* from, const FlagCopy& of, int64 across, int64 along, const char* lowest,
                            const char* end) const {
        const int64 step = of.across.from, to_next = of.along.from;
        const int rows = clamp(of.along.size - along, 4 * high), patches = wide * ((rows + 3) / 4);
        const char* const first = from + across * step + along * to_next;
        const char* const last = first + (rows - 1) * to_next;
        const char *const low = first < last ? first : last, *const top = first < last ? last : first;
        // The words of all columns exist, wherever they begin, also those beyond the flags of a row. The last row takes
        // the place of those behind it.
        if (step == 1 && low - 3 >= lowest && top + 4 * wide + 4 <= end)
            return load_patches<4>(patches, [&](const Patch& patch, uint32(&flags)[4]) {
                const int row = 4 * patch.along;
                const char* at = first + 4 * patch.across + row * to_next;
                CUSCAN_UNROLL
                for (int j = 0; j < 4; ++j) {
                    flags[j] = word_at(at);
                    if (row + j + 1 < rows) at += to_next;
                }
            });
        load_patches<1>(patches, [&](const Patch& patch, uint32(&flags)[4]) {
            const int64 columns = of.across.size - across - 4 * patch.across;
            const char* const at = first + 4 * patch.across * step + 4 * patch.along * to_next;
            CUSCAN_UNROLL
            for (int j = 0; j < 4; ++j) {
                const bool exists = columns > 0 && 4 * patch.along + j < rows;
                flags[j] = exists ? four_flags(at + j * to_next, step, columns, lowest, end) : 0;
            }
        });
    }
    // Each warp stores columns of the tile, as far as they exist.
    CUSCAN_DEVICE void store(char* to, const FlagCopy& of, int64 across, int64 along) const {
        const int columns = clamp(of.across.size - across, 4 * wide);
        const int words = (clamp(of.along.size - along, 4 * high) + 3) / 4;
        for (int c = target::thread_index() / target::kWarp; c < columns; c += kThreads / target::kWarp) {
            uint32* const first = (uint32*)(to + (across + c) * of.across.to + along);
            const uint32* const from = column(c / 4, c % 4);
            for (int w = target::thread_index() % target::kWarp; w < words; w += target::kWarp) first[w] = from[w];
        }
    }

private:
    // A patch of a thread. The last one takes the place of those that do not exist, so that all threads load.
    struct Patch {
        bool exists;
        int along, across;

        CUSCAN_DEVICE Patch(const FlagTile& tile, int patches, int i) {
            const int number = target::thread_index() + i * kThreads;
            exists = number < patches;
            const int present = exists ? number : patches - 1;
            along = int(present * tile.of_wide / kOne);
            across = present - along * tile.wide;
        }
    };

    // Column `number` of the four of each patch at place `across`.
    CUSCAN_DEVICE uint32* column(int across, int number) const { return words + (number * wide + across) * pitch; }

    // load(patch, flags) loads the words of its rows. A thread loads kAtATime patches before it stores them in the
    // tile; more than one would spill where words are tested.
    template <int kAtATime, class Load>
    CUSCAN_DEVICE void load_patches(int patches, Load load) const {
        CUSCAN_NO_UNROLL
        for (int from = 0; from * kThreads < patches; from += kAtATime) {
            uint32 rows[kAtATime][4];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) load(Patch(*this, patches, from + i), rows[i]);
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) {
                const Patch patch(*this, patches, from + i);
                if (!patch.exists) return;
                CUSCAN_UNROLL
                for (int half = 0; half < 2; ++half) {  // columns 0 and 1, then 2 and 3
                    const auto pairs = [&](uint32 row, uint32 next) {
                        return half ? target::pick_bytes<0x7362>(row, next) : target::pick_bytes<0x5140>(row, next);
                    };
                    const uint32 upper = pairs(rows[i][0], rows[i][1]), lower = pairs(rows[i][2], rows[i][3]);
                    column(patch.across, 2 * half)[patch.along] = target::pick_bytes<0x5410>(upper, lower);
                    column(patch.across, 2 * half + 1)[patch.along] = target::pick_bytes<0x7632>(upper, lower);
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
    const Tile tile(target::shared_memory<Shared>().words, int(of.wide), int(of.high));
    // The last tile comes first, then the first one: those at the ends of the flags take the most time, so they begin
    // early.
    const uint32 block = target::block_index();
    uint32 rest = block > 0 ? block - 1 : target::block_count() - 1;
    const auto next = [&](uint64 count) {
        if (count == 1) return int64(0);  // saves a division
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
