// warp_rows: scans dense rows of more than 16 runs of items, up to a warp tile, whose vectors are not aligned. They
// pass through shared memory (dense_rows.cuh), where a warp scans one row at a time. All threads of a block take part;
// DenseRows::pass synchronises them.
#pragma once
#include "../dense_rows.cuh"
#include "../warp_tile.cuh"
#include "../workspace.cuh"

namespace cuscan {

template <class Config>
struct WarpRow {
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    using Place = Plain<Config>;
    using Result = typename Place::Result;
    using State = typename Elements<Config>::State;
    using Op = typename Elements<Config>::Op;
    using Runs = TurnedRuns<Place::ResultOperand::kAccess, Config::kItems, Result>;
    static constexpr int kItems = Config::kItems, kVectors = Config::kVectors;

    const int length, lane;
    Tile tile;

    // This lane's run of vector r. Only the last vector may be incomplete; lanes beyond its end read its last run.
    template <Access kAccess, class T>
    CUSCAN_DEVICE Vector<T, kItems> read(const T* row, int r) const {
        int position = r * Tile::kStride + lane * kItems;
        if (r == kVectors - 1) position = clamp(position, (length - 1) / kItems * kItems);
        if constexpr (kAccess == Access::kReversed)
            return read_anywhere<kItems>(row - position - (kItems - 1)).reversed();
        return read_anywhere<kItems>(row + position);
    }
    CUSCAN_DEVICE void load(const Place& row) {
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r)
            tile.items.raw.at(Number<0>()).vector[r] = read<Place::ValueOperand::kAccess>(row.value, r);
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
CUSCAN_DEVICE void warp_rows(Row<Config> origin, Workspace* /* unused: no row is shared */,
                             const typename Elements<Config>::Initial& initial, const Geometry<Config>& geometry) {
    target::wait_for_previous_kernel();
    target::allow_next_kernel();
    using Rows = DenseRows<Config>;
    using Runs = typename WarpRow<Config>::Runs;
    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    const int length = int(geometry.axis.size);
    const auto before_all =
        convert<typename Elements<Config>::State>(Elements<Config>::start(geometry, origin, initial));
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
