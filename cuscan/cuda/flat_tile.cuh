// A tile of a few columns in shared memory, as it lies in global memory: row after row without gaps; kBack: the last row
// of the scan comes first. A thread reads and writes a chunk, kSteps elements of one column, which are kColumns elements
// apart. Neighbouring threads take neighbouring columns, then the next chunk.
//
// A chunk is kSteps rows further than the one before, so the same step of all chunks would be in a few banks: each of 8
// accesses for 1, 2 or 4 columns of 4 bytes. So threads whose chunks would meet in a bank take their steps in a different
// order, step i ^ twist as the i-th. That leaves no conflicts where the columns are a power of two, and two accesses (17
// and 21 columns: three) where they are not.
#pragma once
#include "geometry.cuh"

namespace cuscan {

template <class T, int kColumns, int kRows, int kSteps, bool kBack>
struct FlatTile {
    static constexpr int kBankBytes = 128;  // of all banks together
    static constexpr int lower(int a, int b) { return a < b ? a : b; }
    static constexpr int power_of_two(int number) { return number < 2 ? 1 : 2 * power_of_two(number / 2); }

    static constexpr int kElements = kRows * kColumns;
    static constexpr int kSweep = kBankBytes / sizeof(T);  // elements
    static constexpr int kChunk = kSteps * kColumns;
    static constexpr int kPeriod = kSweep / lower(kChunk & -kChunk, kSweep);  // chunks until the banks are the same again
    static constexpr int kTwists = lower(power_of_two(target::kWarp / (kColumns * kPeriod)), kSteps);

    // Where the element in `row` of the scan is.
    static CUSCAN_DEVICE int index(int row, int column) { return (kBack ? kRows - 1 - row : row) * kColumns + column; }
    // The lowest address of the tile in an array, of which `first` is the element in row 0, column 0 of the tile.
    template <class Element>
    static CUSCAN_DEVICE Element* lowest(Element* first) {
        return kBack ? first - (kRows - 1) * kColumns : first;
    }
    // Of the tile's elements the first, if no more than `rows` of it exist.
    static CUSCAN_DEVICE int begin(int rows) { return kBack ? (kRows - rows) * kColumns : 0; }

    static CUSCAN_DEVICE void read(const T* tile, int chunk, int column, T (&item)[kSteps]) {
        const int twist = chunk / kPeriod % kTwists, first = index(chunk * kSteps, column);
        CUSCAN_UNROLL
        for (int i = 0; i < kSteps; ++i) item[i] = tile[first + step(i ^ twist)];
        turn(item, twist);
    }
    static CUSCAN_DEVICE void write(T* tile, int chunk, int column, T (&item)[kSteps]) {
        const int twist = chunk / kPeriod % kTwists, first = index(chunk * kSteps, column);
        turn(item, twist);
        CUSCAN_UNROLL
        for (int i = 0; i < kSteps; ++i) tile[first + step(i ^ twist)] = item[i];
    }

private:
    static CUSCAN_DEVICE int step(int count) { return (kBack ? -count : count) * kColumns; }

    // From item i to item i ^ twist, and back.
    static CUSCAN_DEVICE void turn(T (&item)[kSteps], int twist) {
        CUSCAN_UNROLL
        for (int bit = 1; bit < kTwists; bit *= 2) {
            CUSCAN_UNROLL
            for (int i = 0; i < kSteps; ++i) {
                if (i & bit) continue;
                const T one = item[i], other = item[i | bit];
                item[i] = twist & bit ? other : one;
                item[i | bit] = twist & bit ? one : other;
            }
        }
    }
};

}  // namespace cuscan
