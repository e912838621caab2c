// rows: scans rows of a contiguous axis, each of which a warp holds in registers, or one warp tile after the other if
// kLong. kLanes lanes hold a row, with kVectors vectors each; a warp works on 32 / kLanes rows side by side, and on
// kRowsPerThread such sets at once to keep loads in flight. All threads of a block take part; warps do not synchronise
// with each other.
#pragma once
#include "../warp_tile.cuh"
#include "../workspace.cuh"

namespace cuscan {

template <class Config>
CUSCAN_DEVICE void rows(Row<Config> origin, Workspace* /* unused: no row is shared */,
                        const typename Elements<Config>::Initial& initial, const Geometry<Config>& geometry) {
    using Tile = WarpTile<Config, Config::kVectors, Config::kLanes>;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Op = typename Element::Op;
    constexpr int kRowsPerWarp = target::kWarp / Config::kLanes;
    const int warp = target::thread_index() / target::kWarp;
    const int lane = target::thread_index() % Config::kLanes;
    const int group = target::thread_index() % target::kWarp / Config::kLanes;
    const uint64 first_row =
        (uint64(target::block_index()) * Config::kWarps + warp) * (kRowsPerWarp * Config::kRowsPerThread) + group;

    Tile tiles[Config::kRowsPerThread];
    State sums[Config::kRowsPerThread];  // of the row's warp tiles before this one
    // A row past the last one has no elements, and the addresses of the first row.
    auto length = [&](uint64 row, int64 of_a_row) { return row < geometry.rows ? of_a_row : 0; };
    auto place_of = [&](uint64 row) { return origin.at(geometry, row < geometry.rows ? row : 0); };
    target::wait_for_previous_kernel();
    target::allow_next_kernel();

    for (int64 first = 0; first < (Config::kLong ? geometry.axis.size : 1); first += Tile::kElements) {
        // ---- load
        CUSCAN_UNROLL
        for (int k = 0; k < Config::kRowsPerThread; ++k) {
            const uint64 row = first_row + k * kRowsPerWarp;
            const auto place = place_of(row);
            const int64 elements = length(row, geometry.elements());
            tiles[k].find_segments(place, geometry, first, lane, initial);
            tiles[k].load_flags(FromMemory{origin}, place, geometry, elements, first, lane);
            tiles[k].load_values(FromMemory{origin}, place, geometry, elements, first, lane);
        }
        // ---- scan
        State totals[Config::kRowsPerThread];
        CUSCAN_UNROLL
        for (int k = 0; k < Config::kRowsPerThread; ++k) totals[k] = tiles[k].scan(lane);
        // ---- store
        CUSCAN_UNROLL
        for (int k = 0; k < Config::kRowsPerThread; ++k) {
            const uint64 row = first_row + k * kRowsPerWarp;
            const auto place = place_of(row);
            const auto start = Element::start(geometry, place, initial);
            if constexpr (Element::kCarriesOut)
                tiles[k].sum_to_end(FromMemory{origin}, place, geometry, first, lane, [&](const State& of_tile) {
                    const State all = join<Op>(first > 0, sums[k], of_tile);
                    if (row < geometry.rows) Element::store_carry(geometry, place, 0, Config::kHasInitial, start, all);
                });
            const State before = convert<State>(start);
            tiles[k].store(FromMemory{origin}, place, geometry, length(row, geometry.axis.size), first, lane,
                           Config::kHasInitial || first > 0,
                           first > 0 ? join<Op>(Config::kHasInitial, before, sums[k]) : before);
            sums[k] = join<Op>(first > 0, sums[k], totals[k]);
        }
    }
}

}  // namespace cuscan
