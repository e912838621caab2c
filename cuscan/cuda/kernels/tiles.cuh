// tiles: a contiguous axis of any length. A row is cut, from its start, into tiles of kWarps warp tiles. Where there are
// rows enough, a block works on a row at a time; else many blocks share a row (schedule.cuh).
//
// A block is a short pipeline of a tile that is sent for, one that is scanned in itself, and one that waits for what
// precedes it, is stored, and makes room. Its workers publish a tile's aggregate as soon as they have scanned it; a warp
// of its own, the walker, looks back meanwhile. So a tile's aggregate, for which the tiles after it wait, never waits
// for the walk of the tile before it in the same block, only for that of the one before that: delays can heal.
#pragma once
#include "../block_chain.cuh"
#include "../grid_chain.cuh"
#include "../pipeline.cuh"
#include "../schedule.cuh"
#include "../stage.cuh"
#include "../warp_tile.cuh"

namespace cuscan {

template <class Config>
struct TilesLayout {
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    static constexpr int kElements = Config::kWarps * Tile::kElements;
    static constexpr int kWorkers = Config::kWarps * target::kWarp;  // threads
    static constexpr int kThreads = kWorkers + target::kWarp;
};

// What precedes a tile, from the walker to the workers.
template <class Carry>
struct TilePrefix {
    Carry carry;
    bool exists;
};

template <class Config>
struct TilesShared {
    Stage<Config, TilesLayout<Config>::kElements> stage[Config::kStages];
    uint32 ticket[Config::kStages];
    TilePrefix<typename Elements<Config>::Carry> prefix[2];
    typename Elements<Config>::State warp_aggregate[2][Config::kWarps];
    Boundaries<Config, Config::kWarps, TilesLayout<Config>::Tile::kBoundaryWords> boundaries;
};

template <class Config>
struct Tiles {
    using Tile = typename TilesLayout<Config>::Tile;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using CarryOp = typename Element::CarryOp;
    static constexpr int kStages = Config::kStages;
    using Pipeline = cuscan::Pipeline<TilesLayout<Config>::kThreads>;
    static_assert(kStages >= 3, "one tile is sent for, one is scanned in itself, one is stored");
    using Layout = TilesLayout<Config>;
    using GridChain = GridChains<State, Carry, CarryOp, Config::kLevels>;
    using Stage = cuscan::Stage<Config, TilesLayout<Config>::kElements>;

    TilesShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;
    const int warp, lane;

    CUSCAN_DEVICE Turn turn(uint32 k) const {
        const Schedule<Config::kGrid> schedule{geometry.rows, uint32(geometry.units), 1};
        return schedule.turn(Config::kGrid ? shared.ticket[k % kStages] : k);
    }
    CUSCAN_DEVICE uint32 take_ticket() { return Config::kGrid ? target::atomic_increment(&workspace->ticket) : 0; }
    CUSCAN_DEVICE GridChain grid_chain(const Turn& tile) const {
        return GridChain(workspace, geometry.rows, geometry.units, tile.strip);
    }
    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stage[k % kStages]; }
    CUSCAN_DEVICE void send_for(uint32 k) {
        const Turn tile = turn(k);
        if (tile.exists && is_sent_for(tile)) stage(k).send_for(origin.at(geometry, tile.strip), geometry, first(tile));
    }
    // The position in its row at which a tile begins, and whether it is sent for.
    static CUSCAN_DEVICE int64 first(const Turn& turn) { return int64(turn.unit) * TilesLayout<Config>::kElements; }
    CUSCAN_DEVICE bool is_sent_for(const Turn& turn) const {
        if constexpr (Stage::kShifted)
            return Stage::takes_shifted(origin, origin.at(geometry, turn.strip), geometry, first(turn));
        else
            return Stage::takes(geometry.elements() - first(turn));
    }

    // ---- the walker ------------------------------------------------------------------------------------------------

    // What precedes tile k.
    template <class BlockChain>
    CUSCAN_DEVICE void find_prefix(uint32 k, const Turn& tile, BlockChain& block_chain) {
        Carry carry[1] = {Element::start(origin.at(geometry, tile.strip), initial)};
        bool has_carry = Config::kHasInitial;
        if constexpr (Config::kLevels > 0) {
            const State own[1] = {aggregate(k)};
            if constexpr (Config::kGrid)
                has_carry = grid_chain(tile).prefix(tile.unit, own, has_carry, carry);
            else
                has_carry = block_chain.prefix(tile.unit, own, has_carry, carry);
        }
        if (lane == 0) shared.prefix[k % 2] = {carry[0], has_carry};
    }

    CUSCAN_DEVICE void run_walker() {
        BlockChains<State, Carry, CarryOp, Config::kLevels> block_chain;
        target::sync_block();
        for (uint32 k = 0;; ++k) {
            Pipeline::template sync<kScanned>(k);
            const Turn tile = turn(k);
            if (!tile.exists) return;
            find_prefix(k, tile, block_chain);
            Pipeline::template arrive<kPrefixed>(k);
        }
    }

    // ---- workers ---------------------------------------------------------------------------------------------------

    // Tile k arrives and is scanned in itself. Bit s of `sent` is the parity of the loads that stage s has had.
    CUSCAN_DEVICE void scan(uint32 k, uint32& sent, const Turn& turn, Tile& tile) {
        const int start = warp * Tile::kElements;
        const auto row = origin.at(geometry, turn.strip);
        const int64 length = geometry.elements(), position = first(turn) + start;
        tile.load_flags(row, geometry, length, position, lane, initial, shared.boundaries.of(warp));
        if (is_sent_for(turn)) {
            tile.template load_values<Stage>(row, geometry, length, position, lane);
            stage(k).wait(sent >> k % kStages);
            sent ^= 1u << k % kStages;
            tile.read_values(stage(k), start, lane, row, true, length - position);
        } else {
            tile.load_values(row, geometry, length, position, lane);
            tile.write_values(stage(k), start, lane, row);
        }
        const State aggregate = tile.scan(lane);
        if (lane == 0) shared.warp_aggregate[k % 2][warp] = aggregate;
    }

    // What the warps before this one hold of tile k; no meaning in warp 0.
    CUSCAN_DEVICE State before_warp(uint32 k) const {
        const auto& totals = shared.warp_aggregate[k % 2];
        State before = totals[0];
        CUSCAN_UNROLL
        for (int w = 1; w + 1 < Config::kWarps; ++w)
            if (w < warp) before = Op::combine(before, totals[w]);
        return before;
    }
    CUSCAN_DEVICE State aggregate(uint32 k) const {
        const auto& totals = shared.warp_aggregate[k % 2];
        State all = totals[0];
        CUSCAN_UNROLL
        for (int w = 1; w < Config::kWarps; ++w) all = Op::combine(all, totals[w]);
        return all;
    }

    // By one thread: tile k is scanned in itself, and the stage of tile k - 2 is free.
    CUSCAN_DEVICE void lead(uint32 k, const Turn& tile, uint32 next_ticket) {
        if constexpr (Config::kGrid) {
            if (tile.exists) grid_chain(tile).publish(0, tile.unit, aggregate(k));
            shared.ticket[(k + 1) % kStages] = next_ticket;
        }
        if (tile.exists) send_for(k + 1);
    }

    CUSCAN_DEVICE void store(uint32 k, const Turn& turn, Tile& tile, const State& before) {
        const auto& prefix = shared.prefix[k % 2];
        const int start = warp * Tile::kElements;
        const State carry = convert<State>(prefix.carry);
        tile.read_values(stage(k), start, lane, origin.at(geometry, turn.strip), is_sent_for(turn),
                         geometry.elements() - first(turn) - start);
        tile.store(origin.at(geometry, turn.strip), geometry, geometry.axis.size, first(turn) + start, lane,
                   prefix.exists || warp > 0, warp > 0 ? join<Op>(prefix.exists, carry, before) : carry);
    }

    CUSCAN_DEVICE void run_worker() {
        const bool leader = warp == 0 && lane == 0;
        if (leader) {
            for (int s = 0; s < kStages; ++s) stage(s).init();
            shared.ticket[0] = take_ticket();
            send_for(0);
        }
        target::sync_block();
        Turn last = {}, next;
        Tile last_tile, next_tile;
        State last_before{}, next_before{};
        uint32 sent = 0;
        for (uint32 k = 0;; ++k) {
            next = turn(k);
            uint32 ticket = 0;
            if (leader && next.exists) ticket = take_ticket();  // travels while the tile is scanned
            if (next.exists) scan(k, sent, next, next_tile);
            target::barrier_sync<kWorkersMeet>(Layout::kWorkers);
            if (leader) lead(k, next, ticket);
            if (next.exists) next_before = before_warp(k);
            Pipeline::template arrive<kScanned>(k);
            // Either barrier also shows the workers the ticket of tile k + 1.
            if (last.exists) {
                Pipeline::template sync<kPrefixed>(k - 1);
                store(k - 1, last, last_tile, last_before);
            } else {
                target::barrier_sync<kWorkersMeet>(Layout::kWorkers);
            }
            if (!next.exists) return;
            last = next;
            last_tile = next_tile;
            last_before = next_before;
        }
    }
};

template <class Config>
CUSCAN_DEVICE void tiles(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                         const Geometry<Config>& geometry) {
    static_assert(sizeof(TilesShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    auto& shared = target::shared_memory<TilesShared<Config>>();
    const int warp = target::thread_index() / target::kWarp, lane = target::thread_index() % target::kWarp;
    Tiles<Config> kernel{shared, origin, workspace, initial, geometry, warp, lane};
    if (warp == Config::kWarps)
        kernel.run_walker();
    else
        kernel.run_worker();
    leave<Config::kGrid>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
