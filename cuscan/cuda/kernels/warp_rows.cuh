// warp_rows: dense rows of more than 16 runs of items, up to a warp tile, whose vectors are not aligned. They pass through
// shared memory (dense_rows.cuh), where a warp scans one row at a time.
#pragma once
#include "../dense_rows.cuh"
#include "../warp_tile.cuh"
#include "../workspace.cuh"

namespace cuscan {

// The lanes' runs of kItems neighbours in shared memory, element by element. A run is 16 bytes at most, so several lanes'
// runs begin in the same bank. Each of these lanes begins with another element, a bank further than the one before it.
template <Access kAccess, int kItems, class T>
struct TurnedRuns {
    static constexpr int kBank = sizeof(T) < 4 ? 4 / sizeof(T) : 1;           // elements of a bank, or one
    static constexpr int kLanesAround = 32 * 4 / (kItems * int(sizeof(T)));  // whose runs meet all banks once
    static constexpr int kTurns = kItems > kBank ? kItems / kBank : 1;
    static_assert((kItems & (kItems - 1)) == 0, "elements are turned by powers of two");

    const int first, turn;  // the position of this lane's run, the element that it begins with

    CUSCAN_DEVICE explicit TurnedRuns(int lane) : first(lane * kItems), turn(lane / kLanesAround % kTurns * kBank) {}

    // The run `distance` elements further in the row, of which `count` elements exist.
    CUSCAN_DEVICE Vector<T, kItems> read(const T* row, int distance, int count) const {
        Vector<T, kItems> run = {};
        CUSCAN_UNROLL
        for (int j = 0; j < kItems; ++j)
            if (at(j) < count) run.item[j] = *advance<kAccess>(advance<kAccess>(row, 0, first + at(j)), 0, distance);
        CUSCAN_UNROLL
        for (int by = kBank; by < kItems; by *= 2) run = turned(run, kItems - by, turn & by);
        return run;
    }
    CUSCAN_DEVICE void write(T* row, int distance, int count, Vector<T, kItems> run) const {
        CUSCAN_UNROLL
        for (int by = kBank; by < kItems; by *= 2) run = turned(run, by, turn & by);
        CUSCAN_UNROLL
        for (int j = 0; j < kItems; ++j)
            if (at(j) < count) *advance<kAccess>(advance<kAccess>(row, 0, first + at(j)), 0, distance) = run.item[j];
    }

private:
    // The element that is taken in step j.
    CUSCAN_DEVICE int at(int j) const { return (j + turn) & (kItems - 1); }
    static CUSCAN_DEVICE Vector<T, kItems> turned(const Vector<T, kItems>& run, int by, bool really) {
        Vector<T, kItems> other;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) other.item[i] = really ? run.item[(i + by) % kItems] : run.item[i];
        return other;
    }
};

template <class Config>
struct WarpRow {
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    using Accumulator = typename Config::Accumulator;
    using Op = typename Config::template Op<Accumulator>;
    using Place = Row<typename Config::Value, typename Config::Result>;
    static constexpr int kItems = Config::kItems, kVectors = Config::kVectors;

    Tile tile;
    const int length, lane;

    // Of the run of this lane in vector r: how many elements exist. Only the last vector can be cut.
    CUSCAN_DEVICE int count(int r) const {
        return r + 1 < kVectors ? kItems : clamp(length - r * Tile::kStride - lane * kItems, kItems);
    }

    CUSCAN_DEVICE void load(const Place& row) {
        const TurnedRuns<Config::kValueAccess, kItems, typename Config::Value> values(lane);
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) tile.items.raw[r] = values.read(row.value, r * Tile::kStride, count(r));
        tile.items.clear();
        if constexpr (Config::kMaskAccess != Access::kNone) {
            const TurnedRuns<Config::kMaskAccess, kItems, boolean> masks(lane);
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r) tile.items.set_mask(r, masks.read(row.mask, r * Tile::kStride, count(r)));
        }
    }

    CUSCAN_DEVICE void store(const Place& row, Accumulator initial) {
        const TurnedRuns<Config::kResultAccess, kItems, typename Config::Result> results(lane);
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            const bool inside = r > 0 || lane > 0;
            Running<Config> running;
            running.present = inside || Config::kHasInitial;
            running.value = inside ? join<Op>(Config::kHasInitial, initial, tile.before[r]) : initial;
            Vector<typename Config::Result, kItems> output;
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) output.item[i] = running.step(tile.items.get(r, i));
            results.write(row.result, r * Tile::kStride, count(r), output);
        }
    }
};

template <class Config>
CUSCAN_DEVICE void warp_rows(Row<typename Config::Value, typename Config::Result> origin, Workspace* /* not shared */,
                             const typename Config::Carry& initial, const Geometry<Config::kBatchDims>& geometry) {
    using Rows = DenseRows<Config>;
    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    Rows::pass(origin, geometry.axis.size, geometry.rows, [&](const typename Rows::Place& here, int count) {
        const int length = int(geometry.axis.size);
        for (int k = warp; k < count; k += Config::kWarps) {
            const typename Rows::Place place{here.value + k * length, here.result + k * length, here.mask + k * length};
            WarpRow<Config> row{{}, length, lane};
            row.load(place);
            row.tile.scan(lane);
            row.store(place, convert<typename Config::Accumulator>(initial));
        }
    });
}

}  // namespace cuscan
