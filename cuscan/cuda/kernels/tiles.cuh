// tiles: a contiguous axis of any length. A row is cut, from its start, into tiles of kWarps warp tiles; blocks take tiles
// by ticket, so the order of work is the order of tickets, however the hardware schedules blocks, and the carry runs from
// tile to tile through the chain (chain.cuh).
//
// A block is a short pipeline with one barrier a tile. Between two barriers its workers scan a tile in itself and store the
// one before, its control warp publishes the aggregate of the tile that was scanned last, sends for another, and looks
// back for the carry. So a tile's aggregate never waits for the carry of the tile before it in the same block.
#pragma once
#include "../chain.cuh"
#include "../stage.cuh"
#include "../tickets.cuh"
#include "../warp_tile.cuh"

namespace cuscan {

constexpr int kStages = 3;  // tiles of a block: one sent for, one scanned in itself, one being stored

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
    using Index = typename Ticket<Config::kChained>::type;
    Stage<Config, TilesLayout<Config>::kElements> stage[kStages];
    Index ticket[kStages];
    TilePrefix<typename Config::Carry> prefix[2];
    typename Config::Accumulator warp_aggregate[2][Config::kWarps];
};

// A tile's place in the array, and in the block's pipeline.
template <class Config>
struct TilePlace {
    using Index = typename Ticket<Config::kChained>::type;
    bool exists;
    uint64 row;
    uint32 unit;
    int64 first;  // position in the row

    CUSCAN_DEVICE TilePlace() : exists(false) {}
    CUSCAN_DEVICE TilePlace(Index ticket, uint64 rows, uint64 units) {
        exists = ticket < rows * units;
        row = ticket / Index(units);
        unit = uint32(ticket % Index(units));
        first = int64(unit) * TilesLayout<Config>::kElements;
    }
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
    using Place = TilePlace<Config>;
    using Stage = cuscan::Stage<Config, TilesLayout<Config>::kElements>;

    TilesShared<Config>& shared;
    const Row<Value, Result>& origin;
    Workspace* workspace;
    const Carry& initial;
    const Geometry<Config::kBatchDims>& geometry;
    const int warp, lane;

    CUSCAN_DEVICE Place place(uint32 k) const { return Place(shared.ticket[k % kStages], geometry.rows, geometry.units); }
    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stage[k % kStages]; }

    // ---- control ---------------------------------------------------------------------------------------------------

    // The ticket of the block's tile number k. One thread.
    CUSCAN_DEVICE void take_ticket(uint32 k) {
        if constexpr (Config::kChained)
            shared.ticket[k % kStages] = target::atomic_increment(&workspace->ticket);
        else
            shared.ticket[k % kStages] = target::block_index() + uint64(k) * target::block_count();
    }
    CUSCAN_DEVICE void send_for(uint32 k) {
        const Place tile = place(k);
        if (tile.exists && Stage::is_sent_for(geometry.axis, tile.first))
            stage(k).send_for(origin.at(geometry, tile.row), tile.first);
    }

    // Tile k is scanned in itself: publish its aggregate, find what precedes it.
    CUSCAN_DEVICE void find_prefix(uint32 k, const Place& tile) {
        Carry carry[1] = {initial};
        bool has_carry = Config::kHasInitial;
        if constexpr (Config::kChained) {
            const auto& totals = shared.warp_aggregate[k % 2];
            Accumulator aggregate[1] = {totals[0]};
            CUSCAN_UNROLL
            for (int w = 1; w < Config::kWarps; ++w) aggregate[0] = Op::combine(aggregate[0], totals[w]);
            Chains<Accumulator, Carry, CarryOp, Config::kLevels> chain(workspace, geometry.rows, geometry.units, tile.row);
            if (lane == 0) chain.publish(0, tile.unit, aggregate[0]);
            has_carry = chain.prefix(tile.unit, aggregate, has_carry, carry);
        }
        if (lane == 0) shared.prefix[k % 2] = {carry[0], has_carry};
    }

    CUSCAN_DEVICE void run_control() {
        if (lane == 0) {
            for (int s = 0; s < kStages; ++s) stage(s).init();
            take_ticket(0);
            send_for(0);
        }
        target::sync_block();
        // The second ticket waits for the first tile, so that every block has its first before any takes its second.
        if (place(0).exists && Stage::is_sent_for(geometry.axis, place(0).first)) stage(0).wait(0);
        if (lane == 0) take_ticket(1);
        for (uint32 k = 0;; ++k) {
            const Place tile = place(k);
            target::sync_block();
            if (!tile.exists) return;
            if (lane == 0) send_for(k + 1);
            find_prefix(k, tile);
            if (lane == 0) take_ticket(k + 2);
            target::sync_warp();
        }
    }

    // ---- workers ---------------------------------------------------------------------------------------------------

    // Tile k arrives and is scanned in itself. Bit s of `sent` is the parity of the loads that stage s has had.
    CUSCAN_DEVICE void scan(uint32 k, uint32& sent, const Place& place, Tile& tile) {
        const int start = warp * Tile::kElements;
        if (Stage::is_sent_for(geometry.axis, place.first)) {
            stage(k).wait(sent >> k % kStages);
            sent ^= 1u << k % kStages;
            tile.read_mask(stage(k), start, lane);
            tile.read_values(stage(k), start, lane);
        } else {
            tile.load(origin.at(geometry, place.row), geometry.axis, place.first + start, lane);
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

    CUSCAN_DEVICE void store(uint32 k, const Place& place, Tile& tile, const Accumulator& before) {
        const auto& prefix = shared.prefix[k % 2];
        const int start = warp * Tile::kElements;
        const Accumulator carry = convert<Accumulator>(prefix.carry);
        tile.read_values(stage(k), start, lane);
        tile.store(origin.at(geometry, place.row), geometry.axis, place.first + start, lane, prefix.exists || warp > 0,
                   warp > 0 ? join<Op>(prefix.exists, carry, before) : carry);
    }

    CUSCAN_DEVICE void run_worker() {
        target::sync_block();
        Place last, next;
        Tile last_tile, next_tile;
        Accumulator last_before{}, next_before{};
        uint32 sent = 0;
        for (uint32 k = 0;; ++k) {
            next = place(k);
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
    leave<Config::kChained>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
