// tiles: a contiguous axis of any length. A row is cut, from its start, into tiles of kWarps warp tiles. Where there are
// rows enough, a block works on a row at a time; else many blocks share a row (schedule.cuh).
//
// A block is a short pipeline with one barrier a tile. Between two barriers its workers store a tile and scan the next one
// in itself; its control warp sends for another tile, publishes the aggregate of the one that was scanned last, and finds
// what precedes it. So a tile's aggregate never waits for the carry of the tile before it in the same block.
#pragma once
#include "../block_chain.cuh"
#include "../grid_chain.cuh"
#include "../schedule.cuh"
#include "../stage.cuh"
#include "../warp_tile.cuh"

namespace cuscan {

template <class Config>
struct TilesLayout {
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    static constexpr int kElements = Config::kWarps * Tile::kElements;
};

// What control tells the workers of a tile's prefix.
template <class Carry>
struct TilePrefix {
    Carry carry;
    bool exists;
};

template <class Config>
struct TilesShared {
    Stage<Config, TilesLayout<Config>::kElements> stage[Config::kStages];
    uint32 ticket[Config::kStages];
    TilePrefix<typename Config::Carry> prefix[2];
    typename Config::Accumulator warp_aggregate[2][Config::kWarps];
};

template <class Config>
struct Tiles {
    using Tile = typename TilesLayout<Config>::Tile;
    using Value = typename Config::Value;
    using Result = typename Config::Result;
    using Accumulator = typename Config::Accumulator;
    using Carry = typename Config::Carry;
    using Op = typename Config::template Op<Accumulator>;
    using CarryOp = typename Config::template Op<Carry>;
    static constexpr int kStages = Config::kStages;
    static_assert(kStages >= 3, "of a block's tiles one is sent for, one is scanned in itself, one is stored");
    using Stage = cuscan::Stage<Config, TilesLayout<Config>::kElements>;

    TilesShared<Config>& shared;
    const Row<Value, Result>& origin;
    Workspace* workspace;
    const Carry& initial;
    const Geometry<Config::kBatchDims>& geometry;
    const int warp, lane;

    CUSCAN_DEVICE Turn turn(uint32 k) const {
        const Schedule<Config::kGrid> schedule{geometry.rows, uint32(geometry.units), 1};
        return schedule.turn(Config::kGrid ? shared.ticket[k % kStages] : k);
    }
    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stage[k % kStages]; }
    // The position in its row at which a tile begins, and whether it is sent for.
    static CUSCAN_DEVICE int64 first(const Turn& turn) { return int64(turn.unit) * TilesLayout<Config>::kElements; }
    CUSCAN_DEVICE bool is_sent_for(const Turn& turn) const { return Stage::takes(geometry.axis.size - first(turn)); }

    // ---- control ---------------------------------------------------------------------------------------------------

    // The ticket of the block's tile number k. One thread.
    CUSCAN_DEVICE void take_ticket(uint32 k) {
        if constexpr (Config::kGrid) shared.ticket[k % kStages] = target::atomic_increment(&workspace->ticket);
    }
    CUSCAN_DEVICE void send_for(uint32 k) {
        const Turn tile = turn(k);
        if (tile.exists && is_sent_for(tile)) stage(k).send_for(origin.at(geometry, tile.strip), first(tile));
    }

    // Tile k is scanned in itself: find what precedes it.
    template <class BlockChain>
    CUSCAN_DEVICE void find_prefix(uint32 k, const Turn& tile, BlockChain& block_chain) {
        Carry carry[1] = {initial};
        bool has_carry = Config::kHasInitial;
        if constexpr (Config::kLevels > 0) {
            const auto& totals = shared.warp_aggregate[k % 2];
            Accumulator aggregate[1] = {totals[0]};
            CUSCAN_UNROLL
            for (int w = 1; w < Config::kWarps; ++w) aggregate[0] = Op::combine(aggregate[0], totals[w]);
            if constexpr (Config::kGrid) {
                GridChains<Accumulator, Carry, CarryOp, Config::kLevels> chain(workspace, geometry.rows, geometry.units,
                                                                               tile.strip);
                if (lane == 0) chain.publish(0, tile.unit, aggregate[0]);
                has_carry = chain.prefix(tile.unit, aggregate, has_carry, carry);
            } else {
                has_carry = block_chain.prefix(tile.unit, aggregate, has_carry, carry);
            }
        }
        if (lane == 0) shared.prefix[k % 2] = {carry[0], has_carry};
    }

    CUSCAN_DEVICE void run_control() {
        BlockChains<Accumulator, Carry, CarryOp, Config::kLevels> block_chain;
        if (lane == 0) {
            for (int s = 0; s < kStages; ++s) stage(s).init();
            take_ticket(0);
            send_for(0);
        }
        target::sync_block();
        // The second ticket waits for the first tile, so that every block has its first before any takes its second.
        const Turn first_tile = turn(0);
        if (first_tile.exists && is_sent_for(first_tile)) stage(0).wait(0);
        if (lane == 0) take_ticket(1);
        for (uint32 k = 0;; ++k) {
            const Turn tile = turn(k);
            target::sync_block();
            if (!tile.exists) return;
            if (lane == 0) send_for(k + 1);
            find_prefix(k, tile, block_chain);
            if (lane == 0) take_ticket(k + 2);
        }
    }

    // ---- workers ---------------------------------------------------------------------------------------------------

    // Tile k arrives and is scanned in itself. Bit s of `sent` is the parity of the loads that stage s has had.
    CUSCAN_DEVICE void scan(uint32 k, uint32& sent, const Turn& turn, Tile& tile) {
        const int start = warp * Tile::kElements;
        const auto row = origin.at(geometry, turn.strip);
        tile.load_mask(row, geometry.axis, first(turn) + start, lane);
        if (is_sent_for(turn)) {
            stage(k).wait(sent >> k % kStages);
            sent ^= 1u << k % kStages;
            tile.read_values(stage(k), start, lane);
        } else {
            tile.load_values(row, geometry.axis, first(turn) + start, lane);
            tile.write_values(stage(k), start, lane);
        }
        const Accumulator aggregate = tile.scan(lane);
        if (lane == 0) shared.warp_aggregate[k % 2][warp] = aggregate;
    }

    // What the warps before this one hold of tile k; no meaning in warp 0.
    CUSCAN_DEVICE Accumulator before_warp(uint32 k) const {
        const auto& totals = shared.warp_aggregate[k % 2];
        Accumulator before = totals[0];
        CUSCAN_UNROLL
        for (int w = 1; w + 1 < Config::kWarps; ++w)
            if (w < warp) before = Op::combine(before, totals[w]);
        return before;
    }

    CUSCAN_DEVICE void store(uint32 k, const Turn& turn, Tile& tile, const Accumulator& before) {
        const auto& prefix = shared.prefix[k % 2];
        const int start = warp * Tile::kElements;
        const Accumulator carry = convert<Accumulator>(prefix.carry);
        tile.read_values(stage(k), start, lane);
        tile.store(origin.at(geometry, turn.strip), geometry.axis, first(turn) + start, lane, prefix.exists || warp > 0,
                   warp > 0 ? join<Op>(prefix.exists, carry, before) : carry);
    }

    CUSCAN_DEVICE void run_worker() {
        target::sync_block();
        Turn last = {}, next;
        Tile last_tile, next_tile;
        Accumulator last_before{}, next_before{};
        uint32 sent = 0;
        for (uint32 k = 0;; ++k) {
            next = turn(k);
            if (next.exists) scan(k, sent, next, next_tile);
            target::sync_block();
            if (next.exists) next_before = before_warp(k);
            if (last.exists) store(k - 1, last, last_tile, last_before);
            if (!next.exists) return;
            last = next;
            last_tile = next_tile;
            last_before = next_before;
        }
    }
};

template <class Config>
CUSCAN_DEVICE void tiles(Row<typename Config::Value, typename Config::Result> origin, Workspace* workspace,
                         const typename Config::Carry& initial, const Geometry<Config::kBatchDims>& geometry) {
    static_assert(sizeof(TilesShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    auto& shared = target::shared_memory<TilesShared<Config>>();
    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    Tiles<Config> kernel{shared, origin, workspace, initial, geometry, warp, lane};
    if (warp == Config::kWarps)
        kernel.run_control();
    else
        kernel.run_worker();
    leave<Config::kGrid>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
