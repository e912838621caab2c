// cluster: scans rows of a contiguous axis that are longer than a warp holds: rows so few and so short that the GPU
// works on all of them at once, or many rows of a few units, which clusters take in turn. One cluster of kCluster
// blocks scans a row. A block has kUnits units of kWarps warp tiles; a warp holds one warp tile in registers from its
// load to its store. All threads of a block take part; the blocks of a cluster synchronise before they send totals.
//
// There is no workspace: a block sends the totals of its units straight to the shared memory of the blocks with later
// units. So a row takes hardly longer than its loads, its stores and one message between them.
#pragma once
#include "../warp_tile.cuh"
#include "../workspace.cuh"

namespace cuscan {

template <class Config>
struct ClusterShared {
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    using State = typename Tile::State;
    static constexpr int kRowUnits = Config::kCluster * Config::kUnits;  // units of a row, at most

    alignas(16) State warp_total[Config::kUnits][Config::kWarps];
    alignas(16) target::Words<State> unit_total[kRowUnits];  // of the units before the block's last unit
    target::Barrier totals;                                  // all of these have arrived
};

template <class Config>
CUSCAN_DEVICE void cluster(Row<Config> origin, Workspace* /* unused: blocks send to each other */,
                           const typename Elements<Config>::Initial& initial, const Geometry<Config>& geometry) {
    using Shared = ClusterShared<Config>;
    using Tile = typename Shared::Tile;
    using State = typename Shared::State;
    using Element = Elements<Config>;
    using Carry = typename Element::Carry;
    using CarryOp = typename Element::CarryOp;
    constexpr int kCluster = Config::kCluster, kUnits = Config::kUnits, kWarps = Config::kWarps;
    constexpr bool kSends = Shared::kRowUnits > 1;
    static_assert(sizeof(Shared) <= Config::kSharedBytes, "planning/cluster.py must request more shared memory");
    static_assert(Shared::kRowUnits <= target::kWarp, "one lane per unit");
    auto& shared = target::shared_memory<Shared>();

    // ---- the barrier, while the previous kernel ends
    if (kSends && target::thread_index() == 0) {
        const int block = int(target::block_index() % kCluster);
        shared.totals.init();
        target::fence_after_init();
        shared.totals.expect((block * kUnits + kUnits - 1) * sizeof(target::Words<State>));
    }
    target::wait_for_previous_kernel();
    target::allow_next_kernel();

    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    const int block = int(target::block_index() % kCluster), warp_in_unit = warp % kWarps;
    const int unit = block * kUnits + warp / kWarps, units = int(geometry.units);
    if (kCluster > 1 && block * kUnits >= units) return;  // no block sends to blocks beyond the end of the row

    // ---- load: values first, because all else waits for them
    const auto row = origin.at(geometry, target::block_index() / kCluster);
    const int64 first = int64(unit * kWarps + warp_in_unit) * Tile::kElements;
    Tile tile;
    tile.load_values(FromMemory{origin}, row, geometry, geometry.elements(), first, lane);
    if (kSends && kCluster > 1) target::cluster_arrive();
    tile.find_segments(row, geometry, first, lane, initial);
    tile.load_flags(FromMemory{origin}, row, geometry, geometry.elements(), first, lane);
    Carry carry = Element::start(geometry, row, initial);

    // ---- scan
    auto& totals = shared.warp_total[warp / kWarps];
    const State total = tile.scan(lane);
    if (lane == 0) totals[warp_in_unit] = total;
    if (kCluster > 1) target::cluster_wait();  // the barriers of all blocks are ready
    target::sync_block();
    if (kSends && warp_in_unit == 0) {
        // Lane i sends to block i if that has units after this one and, where no results are stored, the row's end.
        const auto words = target::to_words(fold_warps<typename Element::Op>(totals, kWarps));
        const bool wants = Element::kStores || lane == (units - 1) / kUnits;
        if (wants && lane < kCluster && unit < lane * kUnits + kUnits - 1 && lane * kUnits < units)
            shared.totals.send(lane, &shared.unit_total[unit], words);
        target::sync_warp();
    }
    if (!Element::kStores && !Tile::has_end(geometry, first)) return;
    const State before = fold_warps<typename Element::Op>(totals, warp_in_unit);

    // ---- the carry of the unit, in the order of look_back.cuh
    bool has_carry = Config::kHasInitial;
    if (kSends && unit > 0) {
        shared.totals.wait_together(0);
        const auto seen = target::from_words<State>(shared.unit_total[lane < unit ? lane : 0]);
        const Carry all = WarpScan<CarryOp, Shared::kRowUnits, Carry>(convert<Carry>(seen), lane).inclusive();
        carry = join<CarryOp>(has_carry, carry, target::broadcast(all, unit - 1));
        has_carry = true;
    }
    const State prefix = convert<State>(carry);

    // ---- store
    if constexpr (Element::kCarriesOut)
        tile.sum_to_end(FromMemory{origin}, row, geometry, first, lane, [&](const State& of_warp) {
            const State of_unit = join<typename Element::Op>(warp_in_unit > 0, before, of_warp);
            Element::store_carry(geometry, row, 0, has_carry, carry, of_unit);
        });
    tile.store(FromMemory{origin}, row, geometry, geometry.axis.size, first, lane, has_carry || warp_in_unit > 0,
               warp_in_unit > 0 ? join<typename Element::Op>(has_carry, prefix, before) : prefix);
}

}  // namespace cuscan
