// strips: the scanned axis is not the contiguous one, and the columns beside it lie so that 16 bytes of them move at once.
// A block works through tiles (strip_tile.cuh), whose rows go through a ring of kStages stages in shared memory. Every warp
// has one task, and every stage a barrier for each:
//
// * loaders send for a tile, as soon as its stage is free;
// * folders add up the tile's runs;
// * summers, where blocks share strips, add those up, from run to run, and publish the totals of units;
// * walkers find what precedes the units, from when the tile is sent for: a lane for a column of one;
// * finishers write the results over the values, and store them.
//
// So some tiles are on their way, others wait for what precedes them, and nobody waits for a tile but those who need it.
//
// Blocks have strips of their own (then a unit can be several tiles), or share them, by ticket (column_chain.cuh).
#pragma once
#include "../column_chain.cuh"
#include "../schedule.cuh"
#include "../strip_tile.cuh"

namespace cuscan {

template <class Config>
struct StripsShared {
    using Tile = StripTile<Config>;

    struct Stage {
        typename Tile::Values values;
        typename Tile::Exchange exchange;  // totals of runs, then what precedes them in their units
        typename Tile::OfUnits units;      // totals, then what precedes them
        Turn turn;
        target::Barrier known, arrived, folded, summed, prefixed, free;
    };
    Stage stages[Config::kStages];
    uint32 tag;  // of the launch, where blocks share strips
    typename Choose<Config::kInPlace, NoBuffer<void>, typename Tile::Results>::Type results;
};

template <class Config>
struct Strips {
    using Layout = StripLayout<Config>;
    using Tile = StripTile<Config>;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using CarryOp = typename Element::CarryOp;
    using Stage = typename StripsShared<Config>::Stage;
    static constexpr int kWarps = Config::kWarps, kLoaders = Config::kLoaders, kStages = Config::kStages;
    static constexpr int kUnits = Layout::kUnits, kParts = Layout::kParts;
    // The warps, in this order; teams of walkers take turns.
    static constexpr int kWalkers = Config::kWalkers, kTeams = Config::kTeams;
    static constexpr int kSlice = Layout::kSlice;
    static constexpr int kLoading = 1;  // the number of the loaders' own barrier, where all warps meet in the beginning
    static_assert(kTeams <= kStages, "no team skips a turn of a stage");
    static constexpr int kThreads = (kLoaders + 2 * kWarps + kWalkers * (kTeams + Config::kGrid)) * target::kWarp;

    StripsShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;

    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stages[k % kStages]; }
    static CUSCAN_DEVICE uint32 phase(uint32 k) { return k / kStages; }
    static CUSCAN_DEVICE int lane() { return target::thread_index() % target::kWarp; }

    CUSCAN_DEVICE uint32 side_by_side() const {
        return uint32((geometry.column.size + Layout::kColumns - 1) / Layout::kColumns);
    }
    CUSCAN_DEVICE uint64 strips() const { return geometry.rows * side_by_side(); }
    CUSCAN_DEVICE uint32 tiles() const {  // of a strip
        return uint32((geometry.axis.size + Layout::kRows - 1) / Layout::kRows);
    }
    CUSCAN_DEVICE int64 first_column(const Turn& turn) const {
        return int64(turn.strip % side_by_side()) * Layout::kColumns;
    }
    CUSCAN_DEVICE Tile tile(const Turn& turn) const {
        const int64 position = int64(turn.unit) * Layout::kRows, column = first_column(turn);
        Row<Config> first = origin.at(geometry, turn.strip / side_by_side());
        first.advance(geometry.column, column);
        first.advance(geometry.axis, position);
        return {{},
                geometry,
                first,
                position,
                clamp(geometry.axis.size - position, Layout::kRows),
                clamp(geometry.column.size - column, Layout::kColumns)};
    }
    // By folders, a stage each: the hardware makes one barrier after the other for the threads of a warp.
    CUSCAN_DEVICE void make_barriers(int warp) {
        if (warp >= kStages || lane() != 0) return;
        Stage& stage = shared.stages[warp];
        stage.known.init(1);
        stage.arrived.init(kLoaders * target::kWarp + 1);
        stage.folded.init(kWarps * target::kWarp);
        stage.summed.init(kWalkers * target::kWarp);
        stage.prefixed.init(kWalkers * target::kWarp);
        stage.free.init(kWarps * target::kWarp);
        target::fence_after_init();
        static_assert(kStages <= kWarps, "a warp for each");
    }

    CUSCAN_DEVICE void run_loader(int loader) {
        const int thread = loader * target::kWarp + lane();
        const Schedule own{strips(), tiles()};
        SharedStrips tickets(workspace, strips(), tiles());
        Turn first{};
        target::await_predecessors();        // for all: they meet these warps at the barrier
        if (Config::kGrid && thread == 0) {  // while barriers are made
            first = tickets.first(geometry.workspace_words);
            shared.tag = tickets.tag;
        }
        target::barrier_sync<1>(kThreads);
        for (uint32 k = 0, ends = 0; ends < kTeams; ++k) {
            Stage& stage = this->stage(k);
            if (k >= kStages) stage.free.wait(phase(k) - 1);
            Turn now;
            if constexpr (Config::kGrid) {
                if (thread == 0) {
                    stage.turn = k == 0 ? first : tickets.next();
                    // A block that sent for tiles far ahead of its work would hold up all others.
                    if (k >= Config::kAhead) this->stage(k - Config::kAhead).arrived.wait(phase(k - Config::kAhead));
                    stage.known.arrive();
                }
                target::barrier_sync<kLoading>(kLoaders * target::kWarp);
                now = stage.turn;
            } else {
                now = own.turn(k);
                if (thread == 0) stage.turn = now;
            }
            if (now.exists && tile(now).lies_together()) {
                if (thread == 0) tile(now).send_together(stage.values, stage.arrived);
            } else {
                if (thread == 0) stage.arrived.arrive();
                if (now.exists) tile(now).template send_for<kLoaders * target::kWarp>(stage.values, stage.arrived, thread);
            }
            stage.arrived.arrive_loaded();
            ends += !now.exists;
        }
        target::admit_successor();
    }

    CUSCAN_DEVICE void run_folder(int warp) {
        for (uint32 k = 0, ends = 0; ends < kTeams; ++k) {
            Stage& stage = this->stage(k);
            stage.arrived.wait(phase(k));
            const Turn now = stage.turn;
            if (now.exists) tile(now).fold(stage.values, stage.exchange, warp);
            stage.folded.arrive();
            ends += !now.exists;
        }
    }

    // This lane's column: of its unit, in the tile.
    struct Place {
        int unit, column;
        bool exists;
    };
    static CUSCAN_DEVICE Place place(int walker) {
        const int unit = lane() / kSlice, column = walker * kSlice + lane() % kSlice;
        return {unit, column, unit < kUnits && column < Layout::kColumns};
    }
    CUSCAN_DEVICE Carry start(const Turn& turn, int column) const {
        const int64 of_row = first_column(turn) + column;
        Row<Config> at = origin.at(geometry, turn.strip / side_by_side());
        at.advance(geometry.column, of_row < geometry.column.size ? of_row : 0);
        return Element::start(at, initial);
    }

    // Strips of the block's own: the carry stays in the lane.
    CUSCAN_DEVICE void run_own_walker(int walker) {
        const Place place = this->place(walker);
        const int column = place.exists ? place.column : 0;
        ColumnCarry<Carry, CarryOp, Config::kHasInitial> carry;
        PairedFold<Op, 2, State> parts;  // of the unit
        State unit_prefix;
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.folded.wait(phase(k));
            const Turn now = stage.turn;
            if (!now.exists) return stage.prefixed.arrive();
            const uint32 unit = now.unit / kParts, part = now.unit % kParts;
            if (now.unit == 0) {
                carry.sections = start(now, column);
                unit_prefix = convert<State>(carry.sections);
            }
            const State total = put_before_runs(stage, walker, place, part > 0, parts.before(part, false, unit_prefix));
            of_lane(stage, walker) = unit_prefix;
            const State of_unit = parts.push(part, total);
            stage.prefixed.arrive();
            if (part < kParts - 1) continue;
            carry.pass(unit, convert<Carry>(of_unit));  // while nobody waits
            unit_prefix = convert<State>(carry.before(unit + 1));
        }
    }

    static CUSCAN_DEVICE State& of_lane(Stage& stage, int walker) {
        return stage.units.state[walker * target::kWarp + lane()];
    }
    // From totals of runs to what precedes them in their unit, for the tile's part of it: the unit's parts before that, if
    // there are any, and the runs before in the part. Gives what all add up to. Some are read before any is overwritten: a
    // load waits for the stores before it.
    CUSCAN_DEVICE State put_before_runs(Stage& stage, int walker, const Place& place, bool has_parts, const State& parts) {
        constexpr int kRuns = Layout::kPartRuns, kAtATime = kRuns < 8 ? kRuns : 8;
        // Lanes without a column have a place of their own, where nothing is read.
        State* const first = place.exists ? &stage.exchange.at(place.unit * kRuns, place.column) : &of_lane(stage, walker);
        const int step = place.exists ? Layout::kColumns : 0;
        PairedFold<Op, 5, State> pairs;
        State total;
        CUSCAN_UNROLL
        for (int from = 0; from < kRuns; from += kAtATime) {
            State own[kAtATime];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) own[i] = first[(from + i) * step];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) {
                first[(from + i) * step] = pairs.before(from + i, has_parts, parts);
                total = pairs.push(from + i, own[i]);
            }
        }
        return total;
    }

    using Tables = ColumnTables<State, Carry>;
    CUSCAN_DEVICE Tables tables() const {
        return Tables(workspace, shared.tag, strips(), strips() * Layout::kColumns, geometry.units);
    }
    CUSCAN_DEVICE uint64 first_chain(const Turn& turn, int walker) const {
        return turn.strip * Layout::kColumns + walker * kSlice;
    }
    CUSCAN_DEVICE void run_summer(int walker) {
        const Place place = this->place(walker);
        Tables tables = this->tables();
        for (uint32 k = 0, ends = 0; ends < kTeams; ++k) {
            Stage& stage = this->stage(k);
            stage.folded.wait(phase(k));
            const Turn now = stage.turn;
            if (now.exists) {
                const State total = put_before_runs(stage, walker, place, false, State{});
                ColumnRun<State, Carry, CarryOp, kSlice, kUnits>::publish(tables, first_chain(now, walker),
                                                                          now.unit * kUnits, total);
                of_lane(stage, walker) = total;
            }
            stage.summed.arrive();
            ends += !now.exists;
        }
    }
    CUSCAN_DEVICE void run_sharing_walker(int walker, int team) {
        const Place place = this->place(walker);
        const int column = place.exists ? place.column : 0;
        ColumnWalk<State, Carry, CarryOp, kSlice, kUnits, Config::kHasInitial> walk(tables());
        uint64 strip = ~uint64(0);
        for (uint32 k = team;; k += kTeams) {
            Stage& stage = this->stage(k);
            stage.known.wait(phase(k));
            const Turn now = stage.turn;
            if (now.exists) {
                if (now.strip != strip) walk.begin(first_chain(now, walker), start(now, column));
                strip = now.strip;
                const Carry prefix = walk.prefix(now.unit * kUnits, [&] {
                    stage.summed.wait(phase(k));
                    return of_lane(stage, walker);
                });
                of_lane(stage, walker) = convert<State>(prefix);
            }
            stage.prefixed.arrive();
            if (!now.exists) return;
        }
    }

    CUSCAN_DEVICE void run_finisher(int warp) {
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.prefixed.wait(phase(k));
            stage.arrived.wait(phase(k));
            const Turn now = stage.turn;
            if (!now.exists) return;
            const Tile tile = this->tile(now);
            auto& results = this->results(stage);
            tile.finish(stage.values, results, stage.exchange, stage.units, warp);
            target::sync_warp();
            tile.store(results, warp, lane());
            stage.free.arrive();
            target::sync_warp();  // the next tile's results may take the place of these
        }
    }
    CUSCAN_DEVICE typename Tile::Results& results(Stage& stage) {
        if constexpr (Config::kInPlace)
            return reinterpret_cast<typename Tile::Results&>(stage.values);
        else
            return shared.results;
    }
};

template <class Config>
CUSCAN_DEVICE void strips(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                          const Geometry<Config>& geometry) {
    static_assert(sizeof(StripsShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    using Kernel = Strips<Config>;
    Kernel kernel{target::shared_memory<StripsShared<Config>>(), origin, workspace, initial, geometry};
    int warp = target::thread_index() / target::kWarp;
    if (warp < Kernel::kLoaders) {
        kernel.run_loader(warp);
    } else if ((warp -= Kernel::kLoaders) < Kernel::kWarps) {
        kernel.make_barriers(warp);
        target::barrier_sync<1>(Kernel::kThreads);
        kernel.run_folder(warp);
    } else if ((warp -= Kernel::kWarps) < Kernel::kWarps) {
        target::barrier_sync<1>(Kernel::kThreads);
        kernel.run_finisher(warp);
    } else {
        target::barrier_sync<1>(Kernel::kThreads);
        warp -= Kernel::kWarps;
        if constexpr (!Config::kGrid)
            kernel.run_own_walker(warp);
        else if (warp < Kernel::kWalkers)
            kernel.run_summer(warp);
        else
            kernel.run_sharing_walker(warp % Kernel::kWalkers, warp / Kernel::kWalkers - 1);
    }
    if constexpr (Config::kGrid) workspace->leave(kernel.shared.tag, geometry.workspace_words);
}

}  // namespace cuscan
