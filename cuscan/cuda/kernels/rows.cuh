// rows: a contiguous axis so short that one warp holds a row. A row takes kLanes lanes and kVectors vectors a lane; the
// warp works on 32 / kLanes rows side by side, and on kRowsPerThread of those sets at once to keep loads in flight.
#pragma once
#include "../warp_tile.cuh"
#include "../workspace.cuh"

namespace cuscan {

template <class Config>
CUSCAN_DEVICE void rows(Row<typename Config::Value, typename Config::Result> origin, Workspace* /* no row is shared */,
                        const typename Config::Carry& initial, const Geometry<Config::kBatchDims>& geometry) {
    using Tile = WarpTile<Config, Config::kVectors, Config::kLanes>;
    using Accumulator = typename Config::Accumulator;
    constexpr int kRowsPerWarp = target::kWarp / Config::kLanes;
    const int warp = target::thread_index() / target::kWarp;
    const int lane = target::thread_index() % Config::kLanes;
    const int place = target::thread_index() % target::kWarp / Config::kLanes;
    const uint64 first_row =
        (uint64(target::block_index()) * Config::kWarps + warp) * (kRowsPerWarp * Config::kRowsPerThread) + place;

    Tile tiles[Config::kRowsPerThread];
    // A row past the last one has no elements.
    auto axis_of = [&](uint64 row) {
        Dimension axis = geometry.axis;
        if (row >= geometry.rows) axis.size = 0;
        return axis;
    };

    // ---- load
    CUSCAN_UNROLL
    for (int k = 0; k < Config::kRowsPerThread; ++k) {
        const uint64 row = first_row + k * kRowsPerWarp;
        tiles[k].load_mask(origin.at(geometry, row), axis_of(row), 0, lane);
        tiles[k].load_values(origin.at(geometry, row), axis_of(row), 0, lane);
    }
    // ---- scan
    CUSCAN_UNROLL
    for (int k = 0; k < Config::kRowsPerThread; ++k) tiles[k].scan(lane);
    // ---- store
    CUSCAN_UNROLL
    for (int k = 0; k < Config::kRowsPerThread; ++k) {
        const uint64 row = first_row + k * kRowsPerWarp;
        tiles[k].store(origin.at(geometry, row), axis_of(row), 0, lane, Config::kHasInitial, convert<Accumulator>(initial));
    }
}

}  // namespace cuscan
