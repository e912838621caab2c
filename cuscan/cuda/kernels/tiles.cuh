// tiles: a contiguous axis of any length. A row is cut, from its start, into tiles of kWarps warp tiles; a block takes a
// tile at a time, and the carry runs from tile to tile through the chain (chain.cuh). Blocks stay and take further
// tiles by ticket, so the order of work is the order of tickets, however the hardware schedules blocks.
#pragma once
#include "../chain.cuh"
#include "../tickets.cuh"
#include "../warp_tile.cuh"

namespace cuscan {

template <class Config>
struct TilesShared {
    typename Ticket<Config::kChained>::type ticket;
    bool has_carry;
    typename Config::Carry carry;
    typename Config::Accumulator warp_aggregate[Config::kWarps];
};

template <class Config>
CUSCAN_DEVICE void tiles(Row<typename Config::Value, typename Config::Result> origin, Workspace* workspace,
                         const typename Config::Carry& initial, const Geometry<Config::kBatchDims>& geometry) {
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    using Accumulator = typename Config::Accumulator;
    using Carry = typename Config::Carry;
    using Index = typename Ticket<Config::kChained>::type;
    using Op = typename Config::template Op<Accumulator>;
    constexpr int64 kTile = int64(Config::kWarps) * Tile::kElements;
    auto& shared = target::shared_memory<TilesShared<Config>>();
    const int warp = target::thread_index() / target::kWarp;
    const int lane = target::thread_index() % target::kWarp;
    const uint64 tiles = geometry.rows * geometry.units;

    Index ticket = first_ticket<Config::kChained>(shared, workspace);
    while (ticket < tiles) {
        const Index row_index = ticket / Index(geometry.units);
        const uint32 unit = uint32(ticket % Index(geometry.units));
        const auto row = origin.at(geometry, row_index);
        const int64 first = unit * kTile + int64(warp) * Tile::kElements;

        // ---- load; the ticket after this one travels meanwhile
        Tile tile;
        tile.load(row, geometry.axis, first, lane);
        if (target::thread_index() == 0) shared.ticket = next_ticket<Config::kChained>(ticket, workspace);

        // ---- scan within the warps
        const Accumulator warp_aggregate = tile.scan(lane);
        if (lane == 0) shared.warp_aggregate[warp] = warp_aggregate;
        target::sync_block();
        ticket = shared.ticket;

        // ---- fold the warps' aggregates; publish the tile's, look back for the carry
        Accumulator before_warp = warp_aggregate;
        Accumulator aggregate = shared.warp_aggregate[0];
        CUSCAN_UNROLL
        for (int w = 1; w < Config::kWarps; ++w) {
            if (w == warp) before_warp = aggregate;
            aggregate = Op::combine(aggregate, shared.warp_aggregate[w]);
        }
        Accumulator prefix;
        bool has_prefix = Config::kHasInitial;
        if constexpr (Config::kChained) {
            if (warp == 0) {
                using CarryOp = typename Config::template Op<Carry>;
                Chains<Accumulator, Carry, CarryOp> chain(workspace, geometry.rows, geometry.units, row_index);
                if (lane == 0) chain.publish(0, unit, aggregate);
                const Accumulator own[1] = {aggregate};
                Carry carry[1] = {initial};
                const bool has_carry = chain.prefix(unit, own, Config::kHasInitial, carry);
                if (lane == 0) shared.carry = carry[0];
                if (lane == 0) shared.has_carry = has_carry;
            }
            target::sync_block();
            prefix = convert<Accumulator>(shared.carry);
            has_prefix = shared.has_carry;
        } else {
            target::sync_block();
            prefix = convert<Accumulator>(initial);
        }

        // ---- store
        prefix = warp == 0 ? prefix : join<Op>(has_prefix, prefix, before_warp);
        has_prefix = has_prefix || warp > 0;
        tile.store(row, geometry.axis, first, lane, has_prefix, prefix);
    }
    leave<Config::kChained>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
