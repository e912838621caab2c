// A tile of a few columns in shared memory, as it lies in global memory: row after row without gaps; kBack: the last
// row of the scan comes first. A thread reads and writes a chunk: kSteps rows of kAcross neighbouring columns, by
// vectors of a part of a row or, where a thread has all columns, of several rows. Neighbouring threads have
// neighbouring columns, then the next chunk.
//
// A chunk is kSteps rows further than the one before, so the same vector of all chunks would be in a few banks: for up
// to 4 columns of 4 bytes every access would be 2 to 8. So threads whose chunks would meet in a bank take their vectors
// in a different order, vector i ^ swizzle as the i-th. That leaves no conflicts where the columns are a power of two,
// and two accesses for one (17 columns: three) where they are not.
#pragma once
#include "vectors.cuh"

namespace cuscan {

template <class T, int kColumns, int kAcross, int kRows, int kSteps, bool kBack>
struct FlatTile {
    static constexpr int lower(int a, int b) { return a < b ? a : b; }
    static constexpr int power_of_two(int number) { return number < 2 ? 1 : 2 * power_of_two(number / 2); }

    static constexpr int kDeep =
        kAcross < kColumns ? 1 : lower(16 / int(sizeof(T) * kColumns), kSteps);  // rows of a vector
    static constexpr int kVectors = kSteps / kDeep;
    using Vector = cuscan::Vector<T, kDeep * kAcross>;

    static constexpr int kAbreast = kColumns / kAcross;             // threads
    static constexpr int kSweep = 128 / int(sizeof(Vector));        // vectors that take every bank once
    static constexpr int kTogether = lower(kSweep, target::kWarp);  // lanes that access the banks at a time
    static constexpr int kChunk = kVectors * kAbreast;              // vectors to the next chunk
    static constexpr int kPeriod =
        kSweep / lower(kChunk & -kChunk, kSweep);  // chunks until the banks are the same again
    static constexpr int kSwizzles = lower(power_of_two(kTogether / (kAbreast * kPeriod)), kVectors);

    // The lowest address of the tile in an array, of which `first` is the element in row 0, column 0 of the tile.
    template <class Element>
    static CUSCAN_DEVICE Element* lowest(Element* first) {
        return kBack ? first - (kRows - 1) * kColumns : first;
    }
    // Of the tile's elements the first, if no more than `rows` of its rows exist.
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
        for (int c = 0; c < kAcross; ++c) item[s][c] = vector[s / kDeep].item[in_vector(s, c)];
    }
    static CUSCAN_DEVICE void write(T* tile, int chunk, int column, const T (&item)[kSteps][kAcross]) {
        const int swizzle = chunk / kPeriod % kSwizzles;
        Vector vector[kVectors];
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
        for (int c = 0; c < kAcross; ++c) vector[s / kDeep].item[in_vector(s, c)] = item[s][c];
        turn(vector, swizzle);
        CUSCAN_UNROLL
        for (int i = 0; i < kVectors; ++i)
            *reinterpret_cast<Vector*>(tile + index(chunk, i ^ swizzle, column)) = vector[i];
    }

private:
    static CUSCAN_DEVICE int index(int chunk, int vector, int column) {
        const int row = chunk * kSteps + vector * kDeep;
        return (kBack ? kRows - kDeep - row : row) * kColumns + column;
    }
    static CUSCAN_DEVICE int in_vector(int step, int column) {
        return (kBack ? kDeep - 1 - step % kDeep : step % kDeep) * kAcross + column;
    }

    // From vector i to vector i ^ swizzle, and back.
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
