// warp_rows: dense rows of more than 16 runs of items, up to a warp tile, whose vectors are not aligned. They pass through
// shared memory (dense_rows.cuh), where a warp scans one row at a time.
#pragma once
#include "../dense_rows.cuh"
#include "../shifted.cuh"
#include "../warp_tile.cuh"
#include "../workspace.cuh"

namespace cuscan {

// Writes the lanes' runs of kItems neighbours to shared memory, element by element: rows may begin anywhere, and the last
// run of a row has fewer elements. A run is 16 bytes at most, so several lanes' runs begin in the same bank; each of these
// lanes begins a bank further in its run than the one before it.
template <Access kAccess, int kItems, class T>
struct TurnedRuns {
    static constexpr int kBank = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // elements of a bank, or one
    static constexpr int kStep = kBank < kItems ? kBank : kItems;
    static constexpr int kSteps = kItems / kStep;
    static constexpr int kLanesAround = 32 * 4 / (kItems * int(sizeof(T)));  // whose runs meet all banks once
    static_assert((kItems & (kItems - 1)) == 0, "runs are turned by powers of two");
    using Run = Vector<T, kItems>;
    using Words = target::Words<Run>;

    const int first, turn;  // the position of this lane's run, the step that it begins with

    CUSCAN_DEVICE explicit TurnedRuns(int lane) : first(lane * kItems), turn((lane / kLanesAround) & (kSteps - 1)) {}

    // The run `distance` elements further in the row, of which `count` elements exist.
    CUSCAN_DEVICE void write(T* row, int distance, int count, const Run& run) const {
        Words words = target::to_words(run);
        CUSCAN_UNROLL
        for (int by = 1; by < kSteps; by *= 2) words = turned(words, by * (Words::kCount / kSteps), turn & by);
        const Run other = target::from_words<Run>(words);
        CUSCAN_UNROLL
        for (int step = 0; step < kSteps; ++step) {
            const int place = ((step + turn) & (kSteps - 1)) * kStep;
            T* item = advance<kAccess>(row, 0, first + place);
            CUSCAN_UNROLL
            for (int i = 0; i < kStep; ++i)
                if (place + i < count) *advance<kAccess>(item, 0, distance + i) = other.item[step * kStep + i];
        }
    }

private:
    static CUSCAN_DEVICE Words turned(const Words& words, int by, bool really) {
        Words other;
        CUSCAN_UNROLL
        for (int i = 0; i < Words::kCount; ++i)
            other.word[i] = really ? words.word[(i + by) % Words::kCount] : words.word[i];
        return other;
    }
};

template <class Config>
struct WarpRow {
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    using Place = Plain<Config>;
    using Result = typename Place::Result;
    using State = typename Elements<Config>::State;
    using Op = typename Elements<Config>::Op;
    using Runs = TurnedRuns<Place::ResultPort::kAccess, Config::kItems, Result>;
    static constexpr int kItems = Config::kItems, kVectors = Config::kVectors;

    const int length, lane;
    Tile tile;

    // The run of this lane in vector r. Only the last vector can be cut; lanes beyond its end take its last run.
    template <Access kAccess, class T>
    CUSCAN_DEVICE Vector<T, kItems> read(const T* row, int r) const {
        int position = r * Tile::kStride + lane * kItems;
        if (r == kVectors - 1) position = clamp(position, (length - 1) / kItems * kItems);
        if constexpr (kAccess == Access::kMirrored) return read_anywhere<kItems>(row - position - (kItems - 1)).mirrored();
        return read_anywhere<kItems>(row + position);
    }
    CUSCAN_DEVICE void load(const Place& row) {
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r)
            tile.items.raw.at(Number<0>()).vector[r] = read<Place::ValuePort::kAccess>(row.value, r);
        tile.items.keep.clear();
        if constexpr (Place::kMasked) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r) tile.items.keep.set_vector(r, read<Config::Mask::kAccess>(row.mask, r));
        }
    }

    CUSCAN_DEVICE void store(const Place& row, const Runs& runs, const State& initial) {
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            const bool inside = r > 0 || lane > 0;
            Running<Config> running;
            running.present = inside || Config::kHasInitial;
            running.value = inside ? join<Op>(Config::kHasInitial, initial, tile.before[r]) : initial;
            Pack<Tile::template Output, typename Config::Results> output;
            tile.run(r, running, output, [](int, const auto&) {});
            const int left = length - r * Tile::kStride - lane * kItems;
            runs.write(row.result, r * Tile::kStride, r < kVectors - 1 ? kItems : left, output.at(Number<0>()).vector);
        }
    }
};

template <class Config>
CUSCAN_DEVICE void warp_rows(Row<Config> origin, Workspace* /* not shared */,
                             const typename Elements<Config>::Initial& initial, const Geometry<Config>& geometry) {
    using Rows = DenseRows<Config>;
    using Runs = typename WarpRow<Config>::Runs;
    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    const int length = int(geometry.axis.size);
    const auto before_all = convert<typename Elements<Config>::State>(Elements<Config>::start(origin, initial));
    Rows::pass(Plain<Config>::at(origin), length, geometry.rows, [&](const typename Rows::Place& here, int count) {
        const Runs runs(lane);
        const int step = Config::kWarps * length;
        typename Rows::Place place{here.value + warp * length, here.result + warp * length, here.mask + warp * length};
        for (int k = warp; k < count; k += Config::kWarps) {
            WarpRow<Config> row{length, lane, {}};
            row.load(place);
            row.tile.scan(lane);
            row.store(place, runs, before_all);
            place = {place.value + step, place.result + step, place.mask + step};
        }
    });
}

}  // namespace cuscan
