// staged_rows: scans rows as rows.cuh does, but of any alignment. The rows of a block pass through shared memory
// (shared_rows.cuh). All threads of a block take part; SharedRows synchronises them.
#pragma once
#include "../shared_rows.cuh"
#include "../workspace.cuh"

namespace cuscan {

template <class Config>
CUSCAN_DEVICE void staged_rows(Row<Config> origin, Workspace* /* unused: no row is shared */,
                               const typename Elements<Config>::Initial& initial,
                               const RowsGeometry<Config>& geometry) {
    using Tile = WarpTile<Config, Config::kVectors, Config::kLanes>;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Op = typename Element::Op;
    using Rows = SharedRows<Config>;
    constexpr int kRowsPerWarp = target::kWarp / Config::kLanes;
    const int warp = target::uniform(target::thread_index() / target::kWarp);
    const int lane = target::thread_index() % Config::kLanes;
    const int group = target::thread_index() % target::kWarp / Config::kLanes;
    const Rows rows(origin, geometry);
    rows.load();
    const int64 elements = geometry.elements();
    for (int set = warp * kRowsPerWarp; set < rows.count; set += Config::kWarps * kRowsPerWarp) {
        // A row past the last one has no elements, and the addresses of the first row.
        const bool exists = set + group < rows.count;
        const int number = exists ? set + group : 0;
        const auto place = origin.at(geometry, rows.first_row + number);
        const auto start = Element::start(geometry, place, initial);
        State sum;  // of the row's warp tiles before this one
        for (int first = 0; first < (Config::kLong ? int(geometry.axis.size) : 1); first += Tile::kElements) {
            const FromRows<Config, true> values{rows, place, number, first};
            const FromRows<Config, false> results{rows, place, number, first};
            Tile tile;
            // Values come before flags: in the other order ptxas 13.0 overwrites the predicates that hold segment
            // starts.
            tile.load_values(values, place, geometry, exists ? elements : 0, first, lane);
            tile.find_segments(place, geometry, first, lane, initial);
            tile.load_flags(values, place, geometry, exists ? elements : 0, first, lane);
            const State total = tile.scan(lane);
            if constexpr (Element::kCarriesOut)
                tile.sum_to_end(results, place, geometry, first, lane, [&](const State& of_tile) {
                    const State all = join<Op>(first > 0, sum, of_tile);
                    if (exists) Element::store_carry(geometry, place, 0, Config::kHasInitial, start, all);
                });
            const State before = convert<State>(start);
            tile.store(results, place, geometry, exists ? geometry.axis.size : 0, first, lane,
                       Config::kHasInitial || first > 0,
                       first > 0 ? join<Op>(Config::kHasInitial, before, sum) : before);
            sum = join<Op>(first > 0, sum, total);
        }
    }
    rows.store();
}

}  // namespace cuscan
