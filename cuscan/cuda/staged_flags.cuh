// The mask and the segment starts of a tile in shared memory, beside its values: an item for each element or for each
// row of the tile, or, where starts are bits, a bit for each row. They lie as far beyond a multiple of 16 bytes as in
// global memory, wherever rows begin. So they move in bulk; where rows lie apart, in pieces of 16 bytes; bits, and what
// bulk copies cannot take, in words.
#pragma once
#include "elements.cuh"
#include "tile_rows.cuh"

namespace cuscan {

// Pieces of 16 bytes for the flags of array kArray; if there are none, it takes no space as a base.
template <int kArray, int kPieces>
struct FlagsBuffer {
    Vector<uint32, 4> piece[kPieces];
};
template <int kArray>
struct FlagsBuffer<kArray, 0> {};

// The flags of array kArray, the mask or the segments, in a tile of kRows rows of kColumns columns. kFlat, kBack: as
// for FlatTile.
template <class Config, int kArray, int kRows, int kColumns, bool kFlat, bool kBack>
struct StagedFlags {
    static constexpr bool kIsMask = kArray == Arrays<Config>::kMask;
    using Operand = typename Choose<kIsMask, typename Config::Mask, typename Config::SegmentOperand>::Type;
    using Item = typename Operand::Type;
    static constexpr bool kThere = Operand::kAccess != Access::kNone;
    static constexpr bool kBits = !kIsMask && Config::kSegments == Segments::kBits;
    static constexpr bool kEach = kThere && !kBits && Operand::kAccess == Access::kVector;  // an item for each element
    static constexpr bool kOfRows = kThere && !kEach;                                       // one for each row
    static constexpr bool kApart = kEach && !kFlat;  // each row of the tile is a stretch; otherwise there is one
    static constexpr int kWord = 4, kPiece = 16;
    static constexpr int kSize = kEach ? sizeof(Item) : 1;
    static constexpr int kRowBytes = (kEach ? kColumns : 1) * kSize;
    using Apart = TileRows<uint8, kRowBytes, 0, kRows, 1>;
    // If rows do not lie apart: bytes of the stretch, at most; words that hold it.
    static constexpr int kStretch = kBits ? (kRows + 31) / 32 * kWord : kRows * kRowBytes;
    static constexpr int kWords = (kStretch + 2 * kWord - 2) / kWord;
    // As in planning/staged_flags.py. A word behind the last one is read, too.
    static constexpr int kBytes = !kThere  ? 0
                                  : kApart ? Apart::kBytes
                                           : (kStretch + 2 * kPiece - 2) / kPiece * kPiece + kWord;
    using Buffer = FlagsBuffer<kArray, (kBytes + kPiece - 1) / kPiece>;

    const char* first;         // in memory: the item of row 0, column 0; or the word of row 0
    int64 along;               // bytes from row to row
    int rows, width;           // rows and columns that exist
    int skipped;               // bits of the first word that precede row 0
    const char *lowest, *end;  // of the whole array

    // `at`: row 0, column 0 of the tile, which has this position along the axis.
    static CUSCAN_DEVICE StagedFlags of(const Geometry<Config>& geometry, const Row<Config>& origin,
                                        const Row<Config>& at, int64 position, int rows, int width) {
        const char* const begin = origin.array[kArray];
        const Span& span = geometry.span[kArray];
        if constexpr (kBits) {
            const char* const end = begin + (geometry.elements() + 31) / 32 * kWord;
            return {begin + position / 32 * kWord, 0, rows, width, int(position % 32), begin, end};
        } else {
            const int64 along = geometry.axis.stride[kArray];
            return {at.array[kArray], along, rows, width, 0, begin + span.lowest, begin + span.end};
        }
    }

    // Called by one thread: the bytes that it may load in bulk; 0 if it may load none.
    CUSCAN_DEVICE uint32 bytes_in_bulk() const {
        if constexpr (!kThere || kApart || kBits || !target::kHasBulkCopy) return 0;
        const Stretch stretch = this->stretch();
        const char* const from = stretch.begin - beyond(stretch.begin);
        const char* const to = stretch.end + (kPiece - beyond(stretch.end)) % kPiece;
        return rows > 0 && from >= lowest && to <= end ? uint32(to - from) : 0;
    }
    CUSCAN_DEVICE void load_in_bulk(Buffer& buffer, target::Barrier& arrived) const {
        const uint32 bytes = bytes_in_bulk();
        if constexpr (kThere && !kApart && !kBits) {
            if (bytes == 0) return;
            const char* const begin = stretch().begin;
            arrived.load(memory(buffer) + place(begin) - beyond(begin), begin - beyond(begin), bytes);
        }
    }
    // Called by kThreads threads: loads this thread's part of what does not move in bulk.
    template <int kThreads>
    CUSCAN_DEVICE void load_rest(Buffer& buffer, target::Barrier& arrived, int thread) const {
        if constexpr (kApart) {
            apart().template load<kThreads, false>(memory(buffer), arrived, thread, rows, width * kSize, lowest, end);
        } else if constexpr (kThere) {
            if (bytes_in_bulk() == 0) load_words<kThreads>(buffer, arrived, thread);
        }
    }
    // Whether a segment may start at a row: the result behind the last element does not restart.
    CUSCAN_DEVICE bool may_start(int row) const { return !Config::kIncludesInitial || row < rows; }
    // Calls take(step, column of kWide, item) for kSteps rows from `row` on, of kWide columns from `column` on.
    template <int kSteps, int kWide, class Take>
    CUSCAN_DEVICE void each(const Buffer& buffer, int row, int column, Take take) const {
        if constexpr (kBits) {
            static_assert(32 % kSteps == 0, "the bits lie in one word");
            const int at = row + skipped;
            const uint32 bits = *(const uint32*)(memory(buffer) + beyond(first) + at / 32 * kWord) >> at % 32;
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
            for (int c = 0; c < kWide; ++c) take(s, c, boolean{uint8(bits >> s & 1)});
        } else if constexpr (kThere) {
            const char* at = of_row(buffer, row) + (kEach ? column * kSize : 0);
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s) {
                if constexpr (kEach && kWide % kWord == 0 && kSize == 1) {
                    CUSCAN_UNROLL
                    for (int c = 0; c < kWide; c += kWord) {
                        const uint32 bytes = word_at(at + c);
                        CUSCAN_UNROLL
                        for (int j = 0; j < kWord; ++j) take(s, c + j, Item{uint8(bytes >> 8 * j)});
                    }
                } else {
                    CUSCAN_UNROLL
                    for (int c = 0; c < kWide; ++c) take(s, c, item(at + (kEach ? c * kSize : 0)));
                }
                at += pitch();
            }
        }
    }

private:
    struct Stretch {
        const char *begin, *end;
    };
    CUSCAN_DEVICE Stretch stretch() const {
        if constexpr (kBits) {
            return {first, first + (skipped + rows + 31) / 32 * kWord};
        } else {
            const char* const begin = first - (descends() ? (rows - 1) * kRowBytes : 0);
            return {begin, begin + rows * kRowBytes};
        }
    }
    template <int kThreads>
    CUSCAN_DEVICE void load_words(Buffer& buffer, target::Barrier& arrived, int thread) const {
        const Stretch stretch = this->stretch();
        bool copies = false;
        CUSCAN_NO_UNROLL
        for (int i = thread; i < kWords; i += kThreads) {
            const int behind = i * kWord - int(reinterpret_cast<uint64>(stretch.begin) % kWord);
            const char* const from = stretch.begin + behind;
            if (from >= stretch.end) continue;
            char* const to = memory(buffer) + place(stretch.begin) + behind;
            if (from >= lowest && from + kWord <= end) {
                arrived.load((uint32*)to, (const uint32*)from);
                continue;
            }
            for (int j = 0; j < kWord; ++j)
                if (from + j >= stretch.begin && from + j < stretch.end) to[j] = from[j];
            copies = true;
        }
        if (copies) target::fence();  // arrive_loaded waits for copies only
    }
    CUSCAN_DEVICE Apart apart() const { return {const_cast<char*>(first), along}; }
    CUSCAN_DEVICE bool descends() const { return kEach ? kBack : along < 0; }
    static CUSCAN_DEVICE int beyond(const char* at) { return int(reinterpret_cast<uint64>(at) % kPiece); }
    // The first item of a whole tile in memory.
    CUSCAN_DEVICE const char* lowest_of_tile() const {
        return kBits || !descends() ? first : first - (kRows - 1) * kRowBytes;
    }
    // Where a stretch that begins at `begin` lies in the buffer.
    CUSCAN_DEVICE int place(const char* begin) const {
        const char* const lowest = lowest_of_tile();
        return beyond(lowest) + int(begin - lowest);
    }
    CUSCAN_DEVICE const char* of_row(const Buffer& buffer, int row) const {
        if constexpr (kApart) return memory(buffer) + apart().place(row, 0);
        return memory(buffer) + beyond(lowest_of_tile()) + (descends() ? kRows - 1 - row : row) * kRowBytes;
    }
    // Bytes from row to row.
    CUSCAN_DEVICE int pitch() const {
        if constexpr (kApart) return apart().pitch();
        return descends() ? -kRowBytes : kRowBytes;
    }
    static CUSCAN_DEVICE Item item(const char* at) {
        if constexpr (sizeof(Item) == kWord)
            return {word_at(at)};
        else
            return *(const Item*)at;
    }
    static CUSCAN_DEVICE char* memory(Buffer& buffer) { return (char*)buffer.piece; }
    static CUSCAN_DEVICE const char* memory(const Buffer& buffer) { return (const char*)buffer.piece; }
};

// Reads the flags of kSteps rows from `row` on, of kWide columns from `column` on, and masks the values. `memory` is
// the buffer of both.
template <int kSteps, int kWide, class Items, class Mask, class Starts, class Memory>
CUSCAN_DEVICE void read_flags(Items& items, const Mask& mask, const Starts& starts, const Memory& memory, int row,
                              int column) {
    mask.template each<kSteps, kWide>(memory, row, column, [&](int s, int c, auto kept) {
        if constexpr (Items::kReplaces) {
            auto& item = items.raw.first.vector[s].item[c];
            item = masked(item, kept, Items::neutral());
        } else {
            items.keep.set(s * kWide + c, kept.bits != 0);
        }
    });
    starts.template each<kSteps, kWide>(memory, row, column, [&](int s, int c, auto start) {
        items.set_start(s, c, start.bits != 0 && starts.may_start(row + s));
    });
}

}  // namespace cuscan
