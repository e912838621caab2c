// strips: scans an axis that is not the contiguous one, where the columns beside it are contiguous, or that is the
// contiguous one of some arrays. Parts of rows begin at multiples of kAligned bytes, or anywhere; tiles beside each
// other may overlap (tile_rows.cuh). A block works through tiles (strip_tile.cuh), whose rows go through a ring of
// kStages stages in shared memory. Every warp has one task, and every stage has a barrier for each task:
//
// * producers load a tile as soon as its stage is free; where blocks share strips, a locator takes tickets for them and
//   finds where each tile lies;
// * reduce warps compute the totals of the tile's runs;
// * scan warps fold these totals, from run to run, and compute what precedes the units; a lane handles one column of a
//   unit;
// * store warps compute the results and store them; with kInPlace, they write them over the first value in the stage.
//   Where blocks share strips, kGroups groups of kWarps warps take tiles in turn, if all warps together would have more
//   lanes than a tile has work for.
//
// So some tiles are loading, others wait for what precedes them, and a warp waits only for the tile that it needs.
//
// Blocks either have strips of their own or share strips, by batches of tiles (batches.cuh). A unit is a part of a
// tile, a tile, or several tiles. Where blocks share strips, three kinds of warps take the place of a scan warp:
//
// * a scan warp folds the totals of runs, and publishes the total of a batch;
// * look-back warps compute what precedes the batch, the last part of it once all of the batch is there; kWalks walks,
//   each of kLookBackWarps warps for the columns of a scan warp, take turns;
// * a spreader computes what precedes the units.
#pragma once
#include "../batches.cuh"
#include "../strip_tile.cuh"

namespace cuscan {

// A turn, and where its strip lies: the row of the batch, and the strip's number in this row. One warp alone divides to
// find them. Where that is a locator, it also counts the rows of the tile that have results: in a strip's last batch
// some tiles may have none. Elsewhere each warp counts them, as it lacks a register to keep their number in.
struct StripTurn : Turn {
    uint32 row, number;
    int rows;
};

template <class Config>
struct StripsShared {
    using Tile = StripTile<Config>;
    using Carry = typename Tile::Carry;
    using Layout = StripLayout<Config>;
    static constexpr bool kGrid = Config::kGrid;  // blocks share strips
    using Walk = BatchWalk<Carry, typename Tile::CarryOp, kGrid ? Layout::kSlice : 1, Layout::kBatchUnits,
                           Config::kLookBackWarps, Config::kLooks, Config::kHasInitial>;

    // Its base holds what precedes the unit with a column's last element, where a carry goes out.
    struct Stage : Behind<Tile::kCarriesOut, Carry, Config::kColumns> {
        alignas(kGrid ? target::kLine : 16) typename Tile::Values values;
        typename Tile::Exchange exchange;  // totals of runs, then what precedes them in their units
        typename Tile::OfUnits units;      // totals, then what precedes them
        StripTurn turn;
        Carry prefix[kGrid ? Config::kColumns : 1];  // what precedes the batch that begins here
        target::Barrier known, arrived, folded, summed, sought, prefixed, free;
    };
    Stage stages[Config::kStages];
    uint32 epoch;  // epoch of the launch, where blocks share strips
    typename Walk::Exchange exchange[kGrid ? Config::kScanWarps * Config::kWalks : 1];
    // One per column, where a block has strips of its own, and one for lanes without a column.
    using Chain = SectionCarry<Carry, typename Tile::CarryOp, 1, Config::kHasInitial>;
    typename Chain::Sections sections[kGrid ? 1 : Config::kColumns + 1];
    alignas(kGrid ? target::kLine : 16)
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
    static constexpr int kWarps = Config::kWarps, kProducers = Config::kProducers, kStages = Config::kStages;
    static constexpr int kReduceWarps = Config::kReduceWarps;  // number of reduce warps
    static constexpr int kGroups = Config::kGroups, kStoreWarps = kGroups * kWarps;
    static constexpr int kUnits = Layout::kUnits, kParts = Layout::kParts;
    static constexpr uint32 kBatch = Config::kBatch;
    // Where blocks share strips, each scan warp has a spreader, and kWalks walks of kLookBackWarps look-back warps.
    static constexpr int kScanWarps = Config::kScanWarps;
    static constexpr int kLookBackWarps = Config::kLookBackWarps;
    static constexpr int kWalks = Config::kWalks;
    static constexpr int kSlice = Layout::kSlice;
    // Numbers of named barriers: the producers' own, where all warps meet at the start; the first one of the look-back
    // warps.
    static constexpr int kLookingBack = 2;
    static_assert(kLookingBack + kScanWarps * kWalks <= 16, "");
    static_assert(kBatch * kWalks <= kStages, "a walk has the stages of a batch, as its last step waits for all of it");
    static_assert(kGroups == 1 || (Config::kGrid && Config::kInPlace), "groups would share a buffer of results");
    // Behind a block's last tile are so many that do not exist: one for each group of store warps, and for each walk,
    // where its next batch would begin.
    static constexpr int kWalkEnds = (kWalks - 1) * int(kBatch) + 1, kEnds = kWalkEnds > kGroups ? kWalkEnds : kGroups;
    static constexpr int kLocators = Config::kGrid;
    static constexpr int kThreads = (kLocators + kProducers + kReduceWarps + kStoreWarps +
                                     kScanWarps * (Config::kGrid ? 2 + kWalks * kLookBackWarps : 1)) *
                                    target::kWarp;

    StripsShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;

    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stages[k % kStages]; }
    static CUSCAN_DEVICE uint32 phase(uint32 k) { return k / kStages; }
    static CUSCAN_DEVICE int lane() { return target::thread_index() % target::kWarp; }

    CUSCAN_DEVICE uint32 side_by_side() const {
        return Config::kFlat ? 1 : uint32((geometry.column.size + Layout::kOwn - 1) / Layout::kOwn);
    }
    // Memory holds fewer than 2^32 strips, so numbers of strips are divided in 32 bits, which is fast.
    CUSCAN_DEVICE uint64 strips() const { return geometry.rows * side_by_side(); }
    CUSCAN_DEVICE uint32 tiles() const {  // tiles of a strip
        return uint32((geometry.axis.size + Layout::kRows - 1) / Layout::kRows);
    }
    CUSCAN_DEVICE StripTurn located(const Turn& turn) const {
        const uint32 strip = uint32(turn.strip), side_by_side = this->side_by_side();
        return {turn, strip / side_by_side, strip % side_by_side, 0};
    }
    static CUSCAN_DEVICE int64 first_column(const StripTurn& turn) { return int64(turn.number) * Layout::kOwn; }
    CUSCAN_DEVICE Tile tile(const StripTurn& turn) const {
        const int64 position = int64(turn.unit) * Layout::kRows, column = first_column(turn);
        Row<Config> first = origin.at(geometry, turn.row);
        first.advance(geometry.column, column);
        first.advance(geometry.axis, position);
        return {{},
                geometry,
                origin,
                initial,
                first,
                position,
                Config::kGrid ? turn.rows : rows(turn),
                clamp(geometry.column.size - column, Layout::kColumns),
                {column == 0, by_sectors()}};
    }
    // Tiles store whole sectors if they overlap, unless results take the place of values in memory: what a tile finds
    // in its halo is then undefined.
    CUSCAN_DEVICE bool by_sectors() const {
        bool found = Config::kHalo == 0;
        CUSCAN_UNROLL
        for (int result = Tile::Numbers::kResults; result < Tile::Numbers::kMask; ++result) CUSCAN_UNROLL
        for (int value = 0; value < Tile::Numbers::kResults; ++value)
            found |= origin.array[result] == origin.array[value];
        return !found;
    }
    // The number of the last row that has values, counted from the first row of a tile; whether it lies in the tile.
    CUSCAN_DEVICE int64 last_row(const Turn& turn) const {
        return geometry.elements() - 1 - int64(turn.unit) * Layout::kRows;
    }
    CUSCAN_DEVICE bool ends_in(const Turn& turn) const { return last_row(turn) >= 0 && last_row(turn) < Layout::kRows; }
    // Called by the reduce warps, each for some stages: the hardware makes one barrier after the other for the lanes of
    // a warp.
    CUSCAN_DEVICE void make_barriers(int warp) {
        if (lane() != 0) return;
        for (int i = warp; i < kStages; i += kReduceWarps) make_barriers(shared.stages[i]);
        target::fence_after_init();
    }
    static CUSCAN_DEVICE void make_barriers(Stage& stage) {
        stage.known.init(1);
        stage.arrived.init(kProducers * target::kWarp + 1);
        stage.folded.init(kReduceWarps * target::kWarp);
        stage.summed.init(kScanWarps * target::kWarp);
        stage.sought.init(kScanWarps * kLookBackWarps * target::kWarp);
        stage.prefixed.init(kScanWarps * target::kWarp);
        stage.free.init(kWarps * target::kWarp);
    }

    // Run by one warp where blocks share strips.
    CUSCAN_DEVICE void run_locator() {
        SharedStrips tickets(workspace, strips(), batches(), geometry.workspace_words, abreast());
        StripTurn now{};
        if (lane() == 0) tickets.open();
        target::wait_for_previous_kernel();  // for all warps, which meet this one at the barrier
        if (lane() == 0) {
            now = located(tickets.first());
            shared.epoch = tickets.epoch();
        }
        target::barrier_sync<1>(kThreads);
        Loading<Config::kAhead, kStages> loading;
        for (uint32 k = 0, part = 0; lane() == 0; ++k, ++part) {
            Stage& stage = free_stage(k);
            if (part == kBatch) now = located(tickets.next()), part = 0;
            if (!now.exists) {
                for (int i = 0; i < kEnds; ++i) end(k + i);
                break;
            }
            stage.turn = now;
            stage.turn.unit = now.unit * kBatch + part;
            stage.turn.rows = rows(stage.turn);
            if (stage.turn.rows > 0)
                loading.push(k, [&](uint32 earlier) { this->stage(earlier).arrived.wait(phase(earlier)); });
            stage.known.arrive();
        }
        target::sync_warp();
        workspace->allow_next_kernel(shared.epoch);
    }
    CUSCAN_DEVICE void run_producer(int producer) {
        const int thread = producer * target::kWarp + lane();
        const Schedule own{strips(), tiles()};
        if (!Config::kGrid)
            target::wait_for_previous_kernel();  // for all warps, which meet the producers at the barrier
        target::barrier_sync<1>(kThreads);
        for (uint32 k = 0, ends = 0; ends < kGroups; ++k) {
            Stage& stage = this->stage(k);
            StripTurn now;
            if constexpr (Config::kGrid) {
                stage.known.wait(phase(k));
                now = stage.turn;
            } else {
                free_stage(k);
                now = located(own.turn(k));
                if (thread == 0) stage.turn = now;
            }
            if (Config::kGrid ? now.rows > 0 : now.exists)
                tile(now).template load<kProducers * target::kWarp>(stage.values, stage.arrived, thread);
            else if (thread == 0)
                stage.arrived.arrive();
            stage.arrived.arrive_loaded();
            ends += !now.exists;
        }
        if (!Config::kGrid) target::allow_next_kernel();
    }

    CUSCAN_DEVICE int rows(const Turn& turn) const {
        return turn.exists ? clamp(geometry.axis.size - int64(turn.unit) * Layout::kRows, Layout::kRows) : 0;
    }
    CUSCAN_DEVICE Stage& free_stage(uint32 k) {
        Stage& stage = this->stage(k);
        if (k >= kStages) stage.free.wait(phase(k) - 1);
        return stage;
    }
    // Publishes that tile k of the block does not exist. Tile k - kStages, if there is one, has results, so its stage
    // becomes free.
    CUSCAN_DEVICE void end(uint32 k) {
        Stage& stage = free_stage(k);
        stage.turn.exists = false, stage.turn.rows = 0;
        stage.known.arrive();
    }

    CUSCAN_DEVICE void run_reduce(int warp) {
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.arrived.wait(phase(k));
            const StripTurn now = stage.turn;
            CUSCAN_NO_UNROLL
            for (int w = warp; w < kWarps && now.exists; w += kReduceWarps)
                tile(now).fold(stage.values, stage.exchange, w);
            stage.folded.arrive();
            if (!now.exists) return;
        }
    }

    // The unit of the tile and the column that a lane handles, if it handles one.
    struct Place {
        int unit, column;
        bool exists;
    };
    static CUSCAN_DEVICE Place place(int scan_warp) {
        const int unit = lane() / kSlice, column = scan_warp * kSlice + lane() % kSlice;
        return {unit, column, unit < kUnits && column < Layout::kColumns};
    }
    CUSCAN_DEVICE Carry start(const StripTurn& turn, int column) const {
        const int64 of_row = first_column(turn) + column;
        Row<Config> at = origin.at(geometry, turn.row);
        at.advance(geometry.column, of_row < geometry.column.size ? of_row : 0);
        return Element::start(geometry, at, initial);
    }

    // Run by scan warps where a block has strips of its own: the carry stays in the lane.
    CUSCAN_DEVICE void run_own_scan(int scan_warp) {
        const Place place = this->place(scan_warp);
        const int column = place.exists ? place.column : 0;
        typename StripsShared<Config>::Chain carry;
        auto& sections = shared.sections[place.exists ? column : Layout::kColumns];
        PairedFold<Op, 2, State> parts;  // earlier parts of the unit
        State unit_prefix;
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.folded.wait(phase(k));
            const StripTurn now = stage.turn;
            if (!now.exists) return stage.prefixed.arrive();
            const uint32 unit = now.unit / kParts, part = now.unit % kParts;
            if (now.unit == 0) {
                carry.begin(sections, start(now, column));
                unit_prefix = convert<State>(sections.before);
            }
            const State total =
                put_before_runs(stage, scan_warp, place, part > 0, parts.before(part, false, unit_prefix));
            of_lane(stage, scan_warp) = unit_prefix;
            if constexpr (Element::kCarriesOut)
                if (place.exists && ends_in(now)) stage.behind[column] = carry.before(unit);
            const State of_unit = parts.push(part, total);
            stage.prefixed.arrive();
            if (part < kParts - 1) continue;
            carry.pass(sections, unit, convert<Carry>(of_unit));  // no warp waits for this
            unit_prefix = convert<State>(carry.before(unit + 1));
        }
    }

    static CUSCAN_DEVICE State& of_lane(Stage& stage, int scan_warp) {
        return stage.units.state[scan_warp * target::kWarp + lane()];
    }
    // The totals of the runs of the lane's unit, in a tile. Lanes without a column have a place of their own.
    struct OfRuns {
        State* first;
        int step;
        CUSCAN_DEVICE State& operator[](int run) const { return first[run * step]; }
    };
    static CUSCAN_DEVICE OfRuns of_runs(Stage& stage, int scan_warp, const Place& place) {
        if (!place.exists) return {&of_lane(stage, scan_warp), 0};
        return {&stage.exchange.at(place.unit * Layout::kPartRuns, place.column), Layout::kColumns};
    }
    // Replaces the totals of runs by what precedes each run in its unit: the parts of the unit before this tile, if
    // there are any, and the earlier runs of the tile's part. Returns the total of the part. Reads some totals before
    // it overwrites any, because a load waits for the stores before it.
    CUSCAN_DEVICE State put_before_runs(Stage& stage, int scan_warp, const Place& place, bool has_parts,
                                        const State& parts) {
        constexpr int kRuns = Layout::kPartRuns, kAtATime = kRuns < 8 ? kRuns : 8;
        const OfRuns of_runs = this->of_runs(stage, scan_warp, place);
        PairedFold<Op, 5, State> pairs;
        State total;
        CUSCAN_UNROLL
        for (int from = 0; from < kRuns; from += kAtATime) {
            State own[kAtATime];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) own[i] = of_runs[from + i];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) {
                of_runs[from + i] = pairs.before(from + i, has_parts, parts);
                total = pairs.push(from + i, own[i]);
            }
        }
        return total;
    }

    // ---- shared strips ---------------------------------------------------------------------------------------------

    using Units = PairedLanes<CarryOp, kUnits, Carry, kSlice>;
    // The tiles of a batch; or its units, if these have parts: each part then replaces what the one before it has
    // pushed, and that of the last part counts.
    using Tiles = PairedFold<CarryOp, levels_of(kBatch / kParts), Carry>;

    // A walk begins anew at each batch if strips are abreast: in long strips that takes longer than neighbours save.
    CUSCAN_DEVICE bool abreast() const { return strips() == 1 || batches() <= StripsShared<Config>::Walk::kFew; }
    CUSCAN_DEVICE uint32 batches() const { return (tiles() + kBatch - 1) / kBatch; }
    // The number of a tile, or of its unit, in its batch.
    static CUSCAN_DEVICE uint32 of_batch(const Turn& turn) { return turn.unit % kBatch / kParts; }
    CUSCAN_DEVICE uint64 chain(const Turn& turn, int column) const { return turn.strip * Layout::kColumns + column; }
    CUSCAN_DEVICE TotalsTable<Carry> table() const {
        const uint64 strips = this->strips();
        return {workspace->words() + TotalsTable<Carry>::whole_lines(strips), strips * Layout::kColumns, shared.epoch};
    }
    // The total of a unit.
    static CUSCAN_DEVICE State total(const OfRuns& of_runs) {
        constexpr int kRuns = Layout::kPartRuns, kAtATime = kRuns < 8 ? kRuns : 8;
        PairedFold<Op, levels_of(kRuns / kAtATime), State> parts;
        State total;
        CUSCAN_UNROLL
        for (int from = 0; from < kRuns; from += kAtATime) {
            State own[kAtATime];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) own[i] = of_runs[from + i];
            PairedFold<Op, levels_of(kAtATime), State> pairs;
            State part;
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) part = pairs.push(i, own[i]);
            total = parts.push(from / kAtATime, part);
        }
        return total;
    }
    CUSCAN_DEVICE void run_scan(int scan_warp) {
        const Place place = this->place(scan_warp);
        const TotalsTable<Carry> table = this->table();
        PairedFold<Op, 2, State> parts;  // earlier parts of the unit
        Tiles tiles;
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.folded.wait(phase(k));
            const StripTurn now = stage.turn;
            if (!now.exists) return;
            const uint32 part = now.unit % kParts;
            const State before = parts.before(part, false, State{});
            const State of_unit = parts.push(part, total(of_runs(stage, scan_warp, place)));
            const Units units(convert<Carry>(of_unit), place.unit);
            const Carry total = tiles.push(of_batch(now), units.total);
            if (now.unit % kBatch == kBatch - 1 && place.exists && place.unit == 0)
                table.publish(now.unit / kBatch, chain(now, place.column), total);
            put_before_runs(stage, scan_warp, place, part > 0, before);  // while the total travels to other blocks
            of_lane(stage, scan_warp) = of_unit;
            target::sync_warp();
            stage.summed.arrive();
        }
    }
    // Walks take turns: each handles every kWalks-th batch of the block.
    CUSCAN_DEVICE void run_look_back(int scan_warp, int walk_number, int look_back_warp) {
        const int index = walk_number * kScanWarps + scan_warp;
        typename StripsShared<Config>::Walk walk(shared.exchange[index], look_back_warp, kLookingBack + index);
        const int own = scan_warp * kSlice + walk.column(), last = Layout::kColumns - 1;
        const int column = own < last ? own : last;  // where the last warp has fewer columns, lanes repeat its last one
        uint64 strip = ~uint64(0);
        for (uint32 k = walk_number * kBatch;; k += kWalks * kBatch) {
            Stage& first = stage(k);
            first.known.wait(phase(k));
            const StripTurn now = first.turn;
            if (!now.exists) return;
            const uint32 end = k + kBatch;
            if (now.strip != strip) walk.begin(start(now, column));
            strip = now.strip;
            const auto found = walk.prefix(table(), batches(), chain(now, column), now.unit / kBatch,
                                           [&] { stage(end - 1).summed.wait(phase(end - 1)); });
            if (found.here && own == column) first.prefix[column] = found.carry;
            for (uint32 i = k; i < end; ++i) stage(i).sought.arrive();
        }
    }
    CUSCAN_DEVICE void run_spreader(int scan_warp) {
        const Place place = this->place(scan_warp);
        const int column = place.exists ? place.column : 0;
        Carry prefix;  // what precedes the batch
        Tiles tiles;   // earlier ones of the batch
        for (uint32 k = 0, ends = 0; ends < kGroups; ++k) {
            Stage& stage = this->stage(k);
            stage.known.wait(phase(k));
            const StripTurn now = stage.turn;
            if (!now.exists) {
                ++ends;
                stage.prefixed.arrive();
                continue;
            }
            stage.summed.wait(phase(k));
            State& unit = of_lane(stage, scan_warp);
            const Units units(convert<Carry>(unit), place.unit);
            stage.sought.wait(phase(k));
            if (now.unit % kBatch == 0) prefix = stage.prefix[column];
            const Carry before = tiles.before(of_batch(now), Config::kHasInitial || now.unit >= kBatch, prefix);
            const Carry before_unit = units.left.before(place.unit, Config::kHasInitial || now.unit >= kParts, before);
            unit = convert<State>(before_unit);
            if constexpr (Element::kCarriesOut)
                if (place.exists && ends_in(now) && place.unit == last_row(now) / (Layout::kRows / kUnits))
                    stage.behind[column] = before_unit;
            stage.prefixed.arrive();
            tiles.push(of_batch(now), units.total);
        }
    }

    CUSCAN_DEVICE void run_store(int store_warp) {
        const int warp = store_warp % kWarps;
        for (uint32 k = store_warp / kWarps;; k += kGroups) {
            Stage& stage = this->stage(k);
            if (!Config::kHolds) stage.prefixed.wait(phase(k));
            stage.arrived.wait(phase(k));
            const StripTurn now = stage.turn;
            if (!now.exists) return;
            const Tile tile = this->tile(now);
            auto& results = this->results(stage);
            if constexpr (Element::kCarriesOut) {
                if (ends_in(now)) {  // before the tile occupies registers
                    if (Config::kHolds) stage.prefixed.wait(phase(k));
                    sum_to_end(stage, tile, warp);
                }
            }
            typename Tile::Held held;
            if constexpr (Config::kHolds) {
                tile.take(stage.values, held, warp);
                stage.prefixed.wait(phase(k));
            }
            if constexpr (!Element::kStores) {
                target::sync_warp();
                stage.free.arrive();
                continue;
            }
            tile.finish(stage.values, held, results, stage.exchange, stage.units, warp);
            if constexpr (Config::kBulkStores && Tile::template kLieTogether<typename Config::Results>) {
                target::fence_before_copies();
                target::sync_warp();
                tile.store_together(results, warp, lane());
            } else {
                target::sync_warp();
                tile.store(results, warp, lane());
            }
            target::sync_warp();
            stage.free.arrive();
            target::sync_warp();  // the results of the next tile may overwrite these
        }
    }
    CUSCAN_DEVICE void sum_to_end(Stage& stage, const Tile& tile, int warp) {
        tile.sum_to_end(stage.values, stage.exchange, warp, [&](int column, bool has_before, const State& of_unit) {
            Row<Config> here = tile.at;
            here.advance(geometry.column, column);
            Element::store_carry(geometry, here, tile.position, has_before, stage.behind[column], of_unit);
        });
    }
    CUSCAN_DEVICE typename Tile::Results& results(Stage& stage) {
        if constexpr (Config::kInPlace)
            return reinterpret_cast<typename Tile::Results&>(stage.values.at(Number<Tile::kReplaced>{}));
        else
            return shared.results;
    }
};

template <class Config>
CUSCAN_DEVICE void strips(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                          const Geometry<Config>& geometry) {
    static_assert(sizeof(StripsShared<Config>) <= Config::kSharedBytes,
                  "planning/strip_tile.py must ask for more shared memory");
    using Kernel = Strips<Config>;
    Kernel kernel{target::shared_memory<StripsShared<Config>>(), origin, workspace, initial, geometry};
    int warp = target::thread_index() / target::kWarp;
    if (warp < Kernel::kLocators) {
        kernel.run_locator();
    } else if ((warp -= Kernel::kLocators) < Kernel::kProducers) {
        kernel.run_producer(warp);
    } else if ((warp -= Kernel::kProducers) < Kernel::kReduceWarps) {
        kernel.make_barriers(warp);
        target::barrier_sync<1>(Kernel::kThreads);
        kernel.run_reduce(warp);
    } else if ((warp -= Kernel::kReduceWarps) < Kernel::kStoreWarps) {
        target::barrier_sync<1>(Kernel::kThreads);
        kernel.run_store(warp);
    } else {
        target::barrier_sync<1>(Kernel::kThreads);
        warp -= Kernel::kStoreWarps;
        if constexpr (!Config::kGrid)
            kernel.run_own_scan(warp);
        else if (warp < Kernel::kScanWarps)
            kernel.run_scan(warp);
        else if ((warp -= Kernel::kScanWarps) < Kernel::kScanWarps)
            kernel.run_spreader(warp);
        else if ((warp -= Kernel::kScanWarps) >= 0)
            kernel.run_look_back(warp % Kernel::kScanWarps, warp / Kernel::kScanWarps % Kernel::kWalks,
                                 warp / (Kernel::kScanWarps * Kernel::kWalks));
    }
    if constexpr (Config::kGrid) workspace->leave(kernel.shared.epoch, geometry.workspace_words);
}

}  // namespace cuscan
