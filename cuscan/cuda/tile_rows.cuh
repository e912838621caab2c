// Parts of rows of one array, in a tile in shared memory. Each part lies as far beyond a multiple of 16 bytes as in
// global memory, so that it is loaded in pieces of 16 bytes wherever rows begin. No piece belongs to two rows.
//
// Memory reads a sector before it writes a part of it. So, where rows begin anywhere in a sector, tiles beside each
// other may overlap by kHalo columns: of each row, a tile stores the sectors that begin in its own columns, the first
// ones. The last of these sectors may end in the halo, and the tile before stores what precedes the first one.
#pragma once
#include "vectors.cuh"

namespace cuscan {

// Whether a tile has the first columns of its rows, and whether it stores sectors or just its own columns.
struct Edges {
    bool first, by_sectors;
};

// kRows rows of kColumns neighbouring items. Rows begin at multiples of kAligned bytes, 16 or fewer, and of an item.
// With kGap, they may end anywhere, and rows that begin at multiples of 16 bytes are kGap bytes apart in the tile:
// lanes that read the same items of neighbouring rows then mostly meet in no bank.
template <class T, int kColumns, int kHalo, int kRows, int kAligned, int kGap = 0>
struct TileRows {
    static constexpr int kSize = sizeof(T), kPiece = 16, kSector = 32;
    static constexpr int kUnit = kAligned > kSize ? kAligned : kSize;  // bytes to which rows are aligned
    static constexpr bool kTight = kUnit >= kPiece;                    // rows follow each other in the tile
    static constexpr bool kEndsInPiece = kTight && kGap == 0;          // rows end at a multiple of 16 bytes
    static constexpr int kRowBytes = kColumns * kSize;
    // Whether a warp stores a row by units, a lane for each, and not by pieces, of which the first and the last one of
    // a row may be partial.
    static constexpr bool kByUnits = kHalo == 0 && kRowBytes / kUnit <= target::kWarp;
    // Bytes from row to row: congruent to those in global memory, and enough for the pieces of a row.
    static constexpr int kLeast = kRowBytes + (kTight ? kGap : kPiece - kUnit);
    static constexpr int kMost = kTight ? kLeast : kLeast + kPiece - kUnit;
    static constexpr int kBytes = (kRows * kMost + kPiece - 1) / kPiece * kPiece;  // as in planning/strip_tile.py

    char* first;  // in global memory: row 0, column 0
    int64 along;  // bytes from row to row there

    CUSCAN_DEVICE int pitch() const {
        return kTight ? kLeast : kLeast + int((uint32(along) - uint32(kLeast)) % kPiece);
    }
    // An item in memory, and where it lies in the tile.
    CUSCAN_DEVICE T* item(int row, int column) const { return (T*)(first + row * along) + column; }
    CUSCAN_DEVICE int place(int row, int column) const { return beyond(first) + row * pitch() + column * kSize; }

    // Called by kThreads threads: loads this thread's pieces of `rows` rows of `width` items. The whole array lies
    // between `lowest` and `end`. With kUnrolls, the loop over rows is unrolled, unless pieces may lie partly beyond
    // the array.
    template <int kThreads, bool kUnrolls = true>
    CUSCAN_DEVICE void load(char* tile, target::Barrier& arrived, int thread, int rows, int width, const char* lowest,
                            const char* end) const {
        const char* const last = first + (rows - 1) * along;
        const char* const top = along < 0 ? last : first;
        const char* const bottom = (along < 0 ? first : last) + width * kSize;
        if (kEndsInPiece || (top - kPiece >= lowest && bottom + kPiece <= end)) {
            each_piece<kThreads, kUnrolls>(tile, thread, rows, width, [&](char* from, char* to, int) {
                arrived.load((Piece*)to, (const Piece*)from);
            });
            return;
        }
        bool copies = false;
        each_piece<kThreads, false>(tile, thread, rows, width, [&](char* from, char* to, int at) {
            if (from >= lowest && from + kPiece <= end) return arrived.load((Piece*)to, (const Piece*)from);
            copy_part<T>(to, from, -at, width * kSize - at);
            copies = true;
        });
        if (copies) target::fence();  // arrive_loaded waits for copies of pieces only
    }
    // Called by a warp: stores `rows` rows from `row` on, of kBreadth columns from `column` on, of which those below
    // `width` exist. They lie in the tile as those of `placed` do: of this array, or, if kByUnits, of any other.
    template <int kBreadth>
    CUSCAN_DEVICE void store(const char* tile, const TileRows& placed, int row, int rows, int column, int width,
                             const Edges& edges, int lane) const {
        char* const begin = first + row * along + column * kSize;
        const char* const from = tile + placed.place(row, column);
        const int left = width - column, pitch = placed.pitch();
        if constexpr (kByUnits) {
            store_units<kBreadth>(from, pitch, begin, rows, left, lane);
        } else {
            store_sectors<kBreadth>(from, pitch, begin, rows, left, edges, lane);
        }
    }
    // Reads or writes kSteps rows from `row` on, of kWide columns from `column` on.
    template <int kSteps, int kWide>
    CUSCAN_DEVICE void read(const char* tile, int row, int column, T (&item)[kSteps][kWide]) const {
        constexpr int kTogether = TileRows::template kTogether<kWide>;
        const char* from = tile + place(row, column);
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            CUSCAN_UNROLL
            for (int c = 0; c < kWide; c += kTogether) {
                const auto part = *(const Vector<T, kTogether>*)(from + c * kSize);
                CUSCAN_UNROLL
                for (int j = 0; j < kTogether; ++j) item[s][c + j] = part.item[j];
            }
            from += pitch();
        }
    }
    template <int kSteps, int kWide>
    CUSCAN_DEVICE void write(char* tile, int row, int column, const T (&item)[kSteps][kWide]) const {
        constexpr int kTogether = TileRows::template kTogether<kWide>;
        char* to = tile + place(row, column);
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            CUSCAN_UNROLL
            for (int c = 0; c < kWide; c += kTogether) {
                Vector<T, kTogether> part;
                CUSCAN_UNROLL
                for (int j = 0; j < kTogether; ++j) part.item[j] = item[s][c + j];
                *(Vector<T, kTogether>*)(to + c * kSize) = part;
            }
            to += pitch();
        }
    }

private:
    using Piece = Vector<uint32, 4>;
    template <int kWide>
    static constexpr int kTogether = kUnit / kSize < kWide ? kUnit / kSize : kWide;  // items that move at once

    static CUSCAN_DEVICE int beyond(const char* at) { return kTight ? 0 : int(reinterpret_cast<uint64>(at) % kPiece); }
    // Bytes from an address to the next multiple of kMultiple.
    template <int kMultiple>
    static CUSCAN_DEVICE int up_to(const char* at) {
        return int(-uint32(reinterpret_cast<uint64>(at)) % kMultiple);
    }
    // Calls visit(address, address in the tile, bytes behind the first one of the row) for this thread's pieces.
    template <int kThreads, bool kUnrolls, class Visit>
    CUSCAN_DEVICE void each_piece(char* tile, int thread, int rows, int width, Visit visit) const {
        constexpr int kOfRow = ((kTight ? kRowBytes : kLeast) + kPiece - 1) / kPiece;
        constexpr int kAbreast = kOfRow < kThreads ? kOfRow : kThreads, kStep = kThreads / kAbreast;
        static_assert(!kTight || kRowBytes % kPiece == 0, "");
        const int row = thread / kAbreast;
        if (row >= kStep) return;
        char* here = first + row * along;
        char* there = tile + place(row, 0);
        const auto take_row = [&] {
            CUSCAN_UNROLL
            for (int piece = 0; piece < kOfRow; piece += kAbreast) {
                const int at = (piece + thread % kAbreast) * kPiece - beyond(here);
                if (at < width * kSize) visit(here + at, there + at, at);
            }
            here += kStep * along, there += kStep * pitch();
        };
        if constexpr (kUnrolls) {
            CUSCAN_UNROLL_EIGHT
            for (int r = row; r < rows; r += kStep) take_row();
        } else {
            CUSCAN_NO_UNROLL
            for (int r = row; r < rows; r += kStep) take_row();
        }
    }
    // Stores rows of kBreadth columns, of which `left` exist, a unit at a time.
    template <int kBreadth>
    CUSCAN_DEVICE void store_units(const char* from, int pitch, char* to, int rows, int left, int lane) const {
        constexpr int kOfRow = kBreadth * kSize / kUnit, kStep = target::kWarp / kOfRow;
        static_assert(kStep > 0 && kBreadth * kSize % kUnit == 0, "planning/strip_tile.py makes rows of 1 to 32 units");
        using Unit = Vector<T, kUnit / kSize>;
        const int row = lane / kOfRow, at = lane % kOfRow * kUnit;
        if (row >= kStep || at >= left * kSize) return;
        const char* there = from + row * pitch + at;
        char* here = to + row * along + at;
        const auto each_row = [&](auto copy) {
            CUSCAN_UNROLL_EIGHT
            for (int r = row; r < rows; r += kStep) {
                copy(here, there);
                here += kStep * along, there += kStep * pitch;
            }
        };
        if (kEndsInPiece || at + kUnit <= left * kSize)
            each_row([](char* to, const char* from) { *(Unit*)to = *(const Unit*)from; });
        else
            each_row([&](char* to, const char* from) {
                for (int i = 0; at + i < left * kSize; i += kSize) *(T*)(to + i) = *(const T*)(from + i);
            });
    }
    // Stores rows of kBreadth columns, of which `left` exist: whole pieces first, then what lies before and behind
    // them.
    template <int kBreadth>
    CUSCAN_DEVICE void store_sectors(const char* from, int pitch, char* to, int rows, int left, const Edges& edges,
                                     int lane) const {
        // A row's sectors that begin in its own columns have up to kOfRow pieces.
        constexpr int kOwnBytes = (kBreadth - kHalo) * kSize;
        constexpr int kOfRow = (kOwnBytes + kSector - 1) / kSector * (kSector / kPiece);
        constexpr int kAbreast = kOfRow < target::kWarp ? kOfRow : target::kWarp, kStep = target::kWarp / kAbreast;
        static_assert(kOwnBytes % kUnit == 0, "");
        static_assert(kHalo == 0 || (kHalo * kSize >= kSector - kUnit && kBreadth == kColumns), "");
        const int exist = left * kSize, own = exist < kOwnBytes ? exist : kOwnBytes;
        // Pieces of a row begin so many bytes behind its first column, and end here.
        const auto skipped = [&](const char* of_row) {
            return edges.by_sectors ? up_to<kSector>(of_row) : up_to<kPiece>(of_row);
        };
        const auto end_of = [&](const char* of_row) {
            if (exist <= kOwnBytes || !edges.by_sectors) return own;
            const int end = kOwnBytes + up_to<kSector>(of_row + kOwnBytes);
            return end < exist ? end : exist;
        };
        if (lane < kStep * kAbreast) {
            char* here = to + lane / kAbreast * along;
            const char* there = from + lane / kAbreast * pitch;
            CUSCAN_UNROLL_EIGHT
            for (int r = lane / kAbreast; r < rows; r += kStep) {
                CUSCAN_UNROLL
                for (int piece = 0; piece < kOfRow; piece += kAbreast) {
                    const int at = (piece + lane % kAbreast) * kPiece + skipped(here);
                    if (at + kPiece <= end_of(here)) *(Piece*)(here + at) = *(const Piece*)(there + at);
                }
                here += kStep * along, there += kStep * pitch;
            }
        }
        if (edges.by_sectors ? left >= kColumns && !edges.first : kTight && (kEndsInPiece || own % kPiece == 0)) return;
        CUSCAN_NO_UNROLL
        for (int edge = lane; edge < 3 * rows; edge += target::kWarp) {  // two pieces before them, and one behind them
            const int r = edge / 3, which = edge % 3;
            char* const here = to + r * along;
            const int skip = skipped(here), end = end_of(here);
            const int behind = skip < end ? skip + (end - skip) / kPiece * kPiece : end;
            const int at = which < 2 ? skip - (2 - which) * kPiece : behind;
            const int low = which == 2 ? behind : edges.by_sectors && !edges.first ? skip : 0;
            const int high = which < 2 && skip < end ? skip : end;
            if (at + kPiece <= low || at >= high) continue;
            const char* const there = from + r * pitch + at;
            if (at >= low && at + kPiece <= high)
                *(Piece*)(here + at) = *(const Piece*)there;
            else
                copy_part<T>(here + at, there, low - at, high - at);
        }
    }
};

}  // namespace cuscan
