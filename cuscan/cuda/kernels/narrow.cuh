// narrow: a few columns that lie in memory without gaps, scanned along the other axis. A tile is one stretch of memory:
// kUnits units of all kColumns columns. Their number is a power of two, so a tile never straddles a group of the chain.
// The order of the scan is that of columns.cuh: a chunk of kSteps elements one by one, the 32 chunks of a unit by
// warp_inclusive_scan, the units along the chain.
//
// A block is the pipeline of tiles.cuh: one tile is sent for, one is scanned in itself, one waits for what precedes it
// and is stored. Workers publish the aggregates of a tile's units; walkers find what precedes all units of a tile at once,
// each for some of the columns. Results take the place of the values in shared memory where they can (kInPlace), and
// leave from there in the order of memory.
#pragma once
#include "../grid_chain.cuh"
#include "../narrow_tile.cuh"
#include "../pipeline.cuh"
#include "../schedule.cuh"

namespace cuscan {

template <class Config>
struct NarrowShared {
    using Layout = NarrowLayout<Config>;

    alignas(16) typename Plain<Config>::Value values[Config::kStages][Layout::kElements];
    alignas(16) typename Plain<Config>::Result results[Config::kInPlace ? 1 : Layout::kElements];
    typename Layout::Exchange exchange[2];  // totals of chunks, and then what precedes them in their units
    typename Layout::OfUnits aggregate[2], prefix[2];
    target::BulkBarrier arrived[Config::kStages];
    Turn turn[Config::kStages];
};

template <class Config>
struct NarrowColumns {
    using Layout = NarrowLayout<Config>;
    using Tile = NarrowTile<Config>;
    using Element = Elements<Config>;
    using Value = typename Plain<Config>::Value;
    using Result = typename Plain<Config>::Result;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using CarryOp = typename Element::CarryOp;
    static constexpr int kColumns = Layout::kColumns, kUnits = Layout::kUnits;
    static constexpr int kAbreast = Config::kAbreast;  // columns that a walker takes at a time
    using GridChain = GridChains<State, Carry, CarryOp, Config::kLevels, kAbreast>;
    static constexpr int kStages = Config::kStages;
    using Pipeline = cuscan::Pipeline<Layout::kThreads>;
    static_assert(kStages >= 3, "one tile is sent for, one is scanned in itself, one is stored");

    NarrowShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;
    const int thread, warp, lane;

    CUSCAN_DEVICE GridChain chain(const Turn& turn, int column) const {
        return GridChain(workspace, geometry.rows * kColumns, geometry.units, turn.strip * kColumns + column);
    }
    static CUSCAN_DEVICE uint32 first_unit(const Turn& turn) { return turn.unit * kUnits; }
    CUSCAN_DEVICE Tile tile(const Turn& turn) const {
        const int64 position = int64(turn.unit) * Layout::kRows;
        Row<Config> first = origin.at(geometry, turn.strip);
        first.advance(geometry.axis, position);
        return {{}, Plain<Config>::at(first), clamp(geometry.axis.size - position, Layout::kRows), 0};
    }
    static CUSCAN_DEVICE bool is_sent_for(const Tile& tile) { return Layout::kStaged && tile.whole(); }
    CUSCAN_DEVICE Value* values(uint32 k) { return shared.values[k % kStages]; }
    CUSCAN_DEVICE Result* results(uint32 k) {
        if constexpr (Config::kInPlace)
            return values(k);
        else
            return shared.results;
    }

    // ---- walkers ---------------------------------------------------------------------------------------------------

    // What precedes the units of tile k: lane i works on unit i of their group.
    CUSCAN_DEVICE void find_prefixes(uint32 k, const Turn& turn, int walker) {
        const uint32 first = first_unit(turn);
        const bool in_tile = lane / kUnits == int(first % target::kWarp) / kUnits;
        for (int c = walker * kAbreast; c < kColumns; c += Config::kWalkers * kAbreast) {
            // The last columns reach back to be kAbreast; what is found twice is the same.
            const int column = c < kColumns - kAbreast ? c : kColumns - kAbreast;
            State own[kAbreast];
            Carry carry[kAbreast];
            CUSCAN_UNROLL
            for (int i = 0; i < kAbreast; ++i) {
                own[i] = shared.aggregate[k % 2][lane % kUnits][column + i];
                carry[i] = Element::start(origin, initial);
            }
            chain(turn, column).template prefixes<kUnits>(first, own, Config::kHasInitial, carry);
            CUSCAN_UNROLL
            for (int i = 0; i < kAbreast; ++i)
                if (in_tile) shared.prefix[k % 2][lane % kUnits][column + i] = convert<State>(carry[i]);
        }
    }

    CUSCAN_DEVICE void run_walker(int walker) {
        target::sync_block();
        for (uint32 k = 0;; ++k) {
            Pipeline::template sync<kScanned>(k);
            const Turn now = shared.turn[k % kStages];
            if (!now.exists) return;
            find_prefixes(k, now, walker);
            Pipeline::template arrive<kPrefixed>(k);
        }
    }

    // ---- workers ---------------------------------------------------------------------------------------------------

    // By one thread: which tile is tile k, and a whole one is sent for, ahead of time.
    CUSCAN_DEVICE void begin(uint32 k, uint32 ticket) {
        const uint32 tiles = uint32((geometry.units + kUnits - 1) / kUnits);
        const Turn turn = Schedule<true>{geometry.rows, tiles, 1}.turn(ticket);
        shared.turn[k % kStages] = turn;
        if (!turn.exists || !is_sent_for(tile(turn))) return;
        shared.arrived[k % kStages].expect(sizeof(shared.values[0]));
        shared.arrived[k % kStages].load(values(k), Layout::Values::lowest(tile(turn).first.value),
                                         sizeof(shared.values[0]));
    }
    // Tile k arrives, and its chunks are folded. Bit s of `sent` is the parity of the loads that stage s has had.
    CUSCAN_DEVICE void fold(uint32 k, uint32& sent, Tile& tile) {
        tile.load_mask(geometry, thread);
        if (is_sent_for(tile)) {
            shared.arrived[k % kStages].wait(sent >> k % kStages);
            sent ^= 1u << k % kStages;
        } else {
            tile.load_values(values(k), thread);
            target::barrier_sync<kWorkersMeet>(Layout::kWorkers);
        }
        tile.fold(values(k), shared.exchange[k % 2], thread);
    }

    // The chunks of tile k, from totals to what precedes them in their units; the units' aggregates are published. A warp
    // takes a column of a unit at a time, a lane a chunk.
    CUSCAN_DEVICE void scan_units(uint32 k, const Turn& turn) {
        constexpr int kAll = kUnits * kColumns, kEach = (kAll + Config::kWarps - 1) / Config::kWarps;
        static_assert(kEach <= target::kWarp, "a lane for each aggregate");
        State own{};  // aggregate number `lane` of this warp
        CUSCAN_UNROLL
        for (int number = 0; number < kEach; ++number) {
            const int i = number * Config::kWarps + warp;
            if (i >= kAll) break;
            State& chunk = shared.exchange[k % 2][i / kColumns * target::kWarp + lane][i % kColumns];
            const State inclusive = warp_inclusive_scan<Op, target::kWarp>(chunk, lane);
            const State aggregate = target::broadcast(inclusive, target::kWarp - 1);
            chunk = target::shuffle_up(inclusive, 1);
            if (lane == number) own = aggregate;
        }
        const int i = lane * Config::kWarps + warp;
        if (lane >= kEach || i >= kAll) return;
        const int unit = i / kColumns, column = i % kColumns;
        shared.aggregate[k % 2][unit][column] = own;
        if (first_unit(turn) + unit < geometry.units) chain(turn, column).publish(0, first_unit(turn) + unit, own);
    }

    CUSCAN_DEVICE void run_worker() {
        const bool leader = thread == 0;
        if (leader) {
            if constexpr (Layout::kStaged)
                for (auto& barrier : shared.arrived) barrier.init();
            begin(0, target::atomic_increment(&workspace->ticket));
        }
        target::sync_block();
        Turn last = {}, next;
        Tile last_tile = {}, next_tile = {};
        uint32 sent = 0;
        for (uint32 k = 0;; ++k) {
            next = shared.turn[k % kStages];
            uint32 ticket = 0;
            if (leader && next.exists) ticket = target::atomic_increment(&workspace->ticket);  // travels meanwhile
            if (next.exists) {
                next_tile = tile(next);
                fold(k, sent, next_tile);
            }
            target::barrier_sync<kWorkersMeet>(Layout::kWorkers);
            if (leader && next.exists) begin(k + 1, ticket);  // all are done with tile k - 2, whose stage it takes
            if (next.exists) scan_units(k, next);
            Pipeline::template arrive<kScanned>(k);
            if (last.exists) {
                Pipeline::template sync<kPrefixed>(k - 1);
                last_tile.finish(values(k - 1), results(k - 1), shared.exchange[(k - 1) % 2], shared.prefix[(k - 1) % 2],
                                 Config::kHasInitial || last.unit > 0, thread);
            }
            // Shows the workers all results, and which tile is tile k + 1.
            target::barrier_sync<kWorkersMeet>(Layout::kWorkers);
            if (last.exists) last_tile.store(results(k - 1), thread);
            if (!next.exists) return;
            last = next;
            last_tile = next_tile;
        }
    }
};

template <class Config>
CUSCAN_DEVICE void narrow(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                          const Geometry<Config>& geometry) {
    static_assert(sizeof(NarrowShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    auto& shared = target::shared_memory<NarrowShared<Config>>();
    const int thread = target::thread_index(), warp = thread / target::kWarp, lane = thread % target::kWarp;
    NarrowColumns<Config> kernel{shared, origin, workspace, initial, geometry, thread, warp, lane};
    if (warp < Config::kWarps)
        kernel.run_worker();
    else
        kernel.run_walker(warp - Config::kWarps);
    leave<true>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
