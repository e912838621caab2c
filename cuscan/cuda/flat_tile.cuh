// A tile of whole rows in shared memory, laid out as in global memory: row after row without gaps. With kBack the
// last row of the scan comes first. A thread reads and writes a chunk at a time: kSteps rows of kAcross neighbouring
// columns. It moves vectors. A vector is a part of a row or, where a thread has all columns, a part of the chunk,
// across the ends of rows. Neighbouring threads have neighbouring columns, then the next chunk.
//
// A chunk lies kSteps rows behind the previous one, so the same vector of all chunks would lie in a few banks: with up
// to 4 columns of 4 bytes, every access would become 2 to 8 accesses. So threads whose chunks would meet in a bank take
// their vectors in different orders: vector i ^ swizzle comes i-th. That leaves no conflicts if the number of columns
// is a power of two, and otherwise two accesses for one (for 17 columns three).
#pragma once
#include "vectors.cuh"

namespace cuscan {

template <class T, int kColumns, int kAcross, int kRows, int kSteps, bool kBack>
struct FlatTile {
    static constexpr int lower(int a, int b) { return a < b ? a : b; }
    static constexpr int power_of_two(int number) { return number < 2 ? 1 : 2 * power_of_two(number / 2); }

    static constexpr bool kWhole = kAcross == kColumns;  // a chunk is one stretch of memory
    static constexpr int kStretch = kSteps * kColumns * int(sizeof(T));
    static constexpr int kItems = kWhole ? lower(power_in(kStretch), 16) / int(sizeof(T)) : kAcross;  // of a vector
    static constexpr int kVectors = kSteps * kAcross / kItems;
    using Vector = cuscan::Vector<T, kItems>;

    static constexpr int kAbreast = kColumns / kAcross;             // threads side by side
    static constexpr int kSweep = 128 / int(sizeof(Vector));        // consecutive vectors that cover every bank once
    static constexpr int kTogether = lower(kSweep, target::kWarp);  // lanes that access the banks at once
    static constexpr int kChunk = kVectors * kAbreast;              // vectors from one chunk to the next
    static constexpr int kPeriod = kSweep / lower(power_in(kChunk), kSweep);  // chunks after which the banks repeat
    static constexpr int kSwizzles = lower(power_of_two(kTogether / (kAbreast * kPeriod)), kVectors);

    // The lowest address of the tile in an array. `first` is the element in row 0, column 0 of the tile.
    template <class Element>
    static CUSCAN_DEVICE Element* lowest(Element* first) {
        return kBack ? first - (kRows - 1) * kColumns : first;
    }
    // The number of the first element that exists, if `rows` rows of the tile exist.
    static CUSCAN_DEVICE int begin(int rows) { return kBack ? (kRows - rows) * kColumns : 0; }

    static CUSCAN_DEVICE void read(const T* tile, int chunk, int column, T (&item)[kSteps][kAcross]) {
        const int swizzle = chunk / kPeriod % kSwizzles;
        Vector vector[kVectors];
        CUSCAN_UNROLL
        for (int i = 0; i < kVectors; ++i)
            vector[i] = *reinterpret_cast<const Vector*>(tile + index(chunk, i ^ swizzle, column));
        turn(vector, swizzle);
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
        for (int c = 0; c < kAcross; ++c) item[s][c] = vector[number(s, c) / kItems].item[number(s, c) % kItems];
    }
    static CUSCAN_DEVICE void write(T* tile, int chunk, int column, const T (&item)[kSteps][kAcross]) {
        const int swizzle = chunk / kPeriod % kSwizzles;
        Vector vector[kVectors];
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
        for (int c = 0; c < kAcross; ++c) vector[number(s, c) / kItems].item[number(s, c) % kItems] = item[s][c];
        turn(vector, swizzle);
        CUSCAN_UNROLL
        for (int i = 0; i < kVectors; ++i)
            *reinterpret_cast<Vector*>(tile + index(chunk, i ^ swizzle, column)) = vector[i];
    }

private:
    static CUSCAN_DEVICE int index(int chunk, int vector, int column) {
        const int row = (kBack ? kRows / kSteps - 1 - chunk : chunk) * kSteps;
        return row * kColumns + vector * (kWhole ? kItems : kColumns) + column;
    }
    // The number of an item of a thread's chunk, in the order of memory.
    static CUSCAN_DEVICE constexpr int number(int step, int column) {
        return (kBack ? kSteps - 1 - step : step) * kAcross + column;
    }

    // Moves vector i to place i ^ swizzle; a second call moves it back.
    static CUSCAN_DEVICE void turn(Vector (&vector)[kVectors], int swizzle) {
        CUSCAN_UNROLL
        for (int bit = 1; bit < kSwizzles; bit *= 2) {
            CUSCAN_UNROLL
            for (int i = 0; i < kVectors; ++i) {
                if (i & bit) continue;
                const Vector one = vector[i], other = vector[i | bit];
                vector[i] = swizzle & bit ? other : one;
                vector[i | bit] = swizzle & bit ? one : other;
            }
        }
    }
};

}  // namespace cuscan
