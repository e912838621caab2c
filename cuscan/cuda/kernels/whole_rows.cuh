// whole_rows: the scanned axis is not the contiguous one, and beside it lie so few columns, without gaps, that a tile can be
// whole rows, one stretch of memory: a bulk copy each way, wherever it begins. So rows need not be aligned, and no sector is
// shared but by neighbouring tiles. A tile is kRows rows, a part of a unit; a thread has a column of it.
//
// Blocks take tiles by ticket, strip after strip (a strip is what the carry goes down), and tiles go through a ring of
// kStages stages in shared memory. Every warp has one task, and every stage a barrier for each:
//
// * the loader sends for a tile, as soon as its stage is free;
// * folders add up a tile's columns, and publish that;
// * gatherers look at the earlier tiles of its group, and publish what the group adds up to if the tile is its last;
// * seekers find what precedes the group, from what all earlier ones add up to, and then the unit;
// * finishers write the results over the values;
// * the storer stores them.
//
// So nobody waits for more than two steps through memory, and what others wait for waits for no step but one.
#pragma once
#include "../column_chain.cuh"
#include "../elements.cuh"

namespace cuscan {

template <class Config>
struct WholeRowsLayout {
    static constexpr int kColumns = Config::kColumns, kRows = Config::kRows, kSteps = 8;
    static constexpr int kUnitRows = kSteps * target::kWarp;
    static constexpr int kRuns = kRows / kSteps, kParts = kUnitRows / kRows;
    static constexpr int kGroupTiles = kParts > 16 ? kParts : 16, kGroupUnits = kGroupTiles / kParts;
    static constexpr int kSlices = (kColumns + target::kWarp - 1) / target::kWarp;  // a warp's columns each
    static constexpr int kPiece = 16;                                               // bytes that bulk copies are multiples of

    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Units = PairedFold<typename Element::CarryOp, levels_of(kGroupUnits), Carry>;  // of a group
    using Parts = PairedFold<typename Element::Op, levels_of(kParts), State>;            // of a unit
    using Chain = SectionCarry<Carry, typename Element::CarryOp, kGroupUnits, Config::kHasInitial>;

    struct Stage {
        // As far from a multiple of 16 bytes as in memory.
        alignas(kPiece) char data[kColumns * kRows * sizeof(typename Plain<Config>::Value) + kPiece];
        State column[kColumns];  // what the tile adds up to; then what precedes its unit
        State parts[kColumns];   // what the unit's parts before the tile add up to
        Units units[kColumns];   // the units of the group before the tile's
        Turn turn;
        target::Barrier arrived, folded, gathered, sought, finished, free;
    };
};

template <class Config>
struct WholeRowsShared {
    typename WholeRowsLayout<Config>::Stage stages[Config::kStages];
    uint32 tag;  // of the launch
};

template <class Config>
struct WholeRows {
    using Layout = WholeRowsLayout<Config>;
    using Element = typename Layout::Element;
    using Op = typename Element::Op;
    using State = typename Layout::State;
    using Carry = typename Layout::Carry;
    using Value = typename Plain<Config>::Value;
    using Result = typename Plain<Config>::Result;
    using Stage = typename Layout::Stage;
    using Chain = typename Layout::Chain;
    static_assert(sizeof(Value) == sizeof(Result), "results take the place of values");
    static constexpr int kColumns = Layout::kColumns, kRows = Layout::kRows, kSteps = Layout::kSteps;
    static constexpr int kSlices = Layout::kSlices, kParts = Layout::kParts, kPiece = Layout::kPiece;
    static constexpr int kFolders = Config::kFolders, kFinishers = Config::kFinishers, kStages = Config::kStages;
    static constexpr int kRowBytes = kColumns * int(sizeof(Value));
    static constexpr int kThreads = (2 + kFolders + kFinishers + 2 * kSlices) * target::kWarp;
    // Totals that travel together to a lane.
    template <class T>
    static constexpr int kLooks = Tagged<T>::kWords == 1 ? Config::kLooks : Tagged<T>::kWords == 2 ? Config::kLooks / 2 : 2;

    WholeRowsShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;

    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stages[k % kStages]; }
    static CUSCAN_DEVICE uint32 phase(uint32 k) { return k / kStages; }
    static CUSCAN_DEVICE int lane() { return target::thread_index() % target::kWarp; }

    CUSCAN_DEVICE uint32 tiles() const { return uint32((geometry.axis.size + kRows - 1) / kRows); }  // of a strip
    CUSCAN_DEVICE uint32 groups() const { return (tiles() + Layout::kGroupTiles - 1) / Layout::kGroupTiles; }

    // ---- a tile ----------------------------------------------------------------------------------------------------

    // A tile in memory and in its stage: `begin` to `end` are its bytes, counted in the stage from an address that is
    // `memory` in an array.
    struct Stretch {
        char* memory;
        int begin, end;
    };
    static CUSCAN_DEVICE int down(int bytes) { return bytes / kPiece * kPiece; }
    static CUSCAN_DEVICE int up(int bytes) { return down(bytes + kPiece - 1); }

    struct Tile {
        Row<Config> at;  // row 0, column 0
        int64 position;  // of row 0 along the axis
        int rows;        // that exist

        // From a multiple of 16 bytes to the tile's lowest element, were it whole.
        CUSCAN_DEVICE int shift() const { return int(reinterpret_cast<uint64>(lowest(0)) % kPiece); }
        CUSCAN_DEVICE char* lowest(int array) const {
            return at.array[array] - (Config::kBack ? (kRows - 1) * kRowBytes : 0);
        }
        CUSCAN_DEVICE Stretch stretch(int array) const {
            const int shift = this->shift(), begin = shift + (Config::kBack ? (kRows - rows) * kRowBytes : 0);
            return {lowest(array) - shift, begin, begin + rows * kRowBytes};
        }
        template <class T>
        CUSCAN_DEVICE T* item(Stage& stage, int row, int column) const {
            return reinterpret_cast<T*>(stage.data + shift()) + (Config::kBack ? kRows - 1 - row : row) * kColumns + column;
        }
    };
    CUSCAN_DEVICE Tile tile(const Turn& turn) const {
        const int64 position = int64(turn.unit) * kRows;
        Row<Config> at = origin.at(geometry, turn.strip);
        at.advance(geometry.axis, position);
        return {at, position, clamp(geometry.axis.size - position, kRows)};
    }
    // Some rows of a column, and what they add up to.
    using Run = Items<Config, kSteps, 1>;
    CUSCAN_DEVICE void read(Stage& stage, const Tile& tile, int row, int column, Run& run) const {
        run.clear(geometry, tile.position + row, typename Element::Initial());
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s)
            run.raw.at(Number<0>()).vector[s].item[0] = *tile.template item<Value>(stage, row + s, column);
    }
    static CUSCAN_DEVICE State total(const Run& run) {
        State total = run.get(0, 0, 0);
        CUSCAN_UNROLL
        for (int s = 1; s < kSteps; ++s) total = Op::combine(total, run.get(s, 0, s));
        return total;
    }

    // ---- what blocks publish ---------------------------------------------------------------------------------------

    CUSCAN_DEVICE TotalsTable<State> of_tiles() const { return {workspace->words(), kColumns, shared.tag}; }
    CUSCAN_DEVICE TotalsTable<Carry> of_groups() const {
        return {of_tiles().end(geometry.rows * tiles()), kColumns, shared.tag};
    }
    // By a warp, a column each: hands over `count` totals in order, when they are there.
    template <class T, class Take>
    static CUSCAN_DEVICE void each_total(const TotalsTable<T>& table, uint64 first, uint32 count, int column, Take take) {
        constexpr int kTogether = kLooks<T>, kWords = Tagged<T>::kWords;
        const bool exists = column < kColumns;
        const uint64* words = table.words + (first * kColumns + (exists ? column : 0)) * kWords;
        CUSCAN_NO_UNROLL
        for (uint32 from = 0; from < count; from += kTogether, words += kTogether * kColumns * kWords) {
            T total[kTogether];
            await_all(words, kColumns * kWords, table.tag, exists ? int(count - from) : 0, total);
            CUSCAN_UNROLL
            for (int i = 0; i < kTogether; ++i)
                if (from + i < count) take(from + i, total[i]);
        }
    }

    // ---- tasks -----------------------------------------------------------------------------------------------------

    CUSCAN_DEVICE void make_barriers(int warp) {
        if (lane() != 0) return;
        for (int i = warp; i < kStages; i += kFolders) {
            Stage& stage = shared.stages[i];
            stage.arrived.init(target::kWarp);
            stage.folded.init(kFolders * target::kWarp);
            stage.gathered.init(kSlices * target::kWarp);
            stage.sought.init(kSlices * target::kWarp);
            stage.finished.init(kFinishers * target::kWarp);
            stage.free.init(target::kWarp);
        }
        target::fence_after_init();
    }

    CUSCAN_DEVICE void run_loader() {
        const uint32 tiles = this->tiles();
        SharedStrips tickets(workspace, 1, uint32(geometry.rows * tiles), geometry.workspace_words);
        Turn ticket{};
        if (lane() == 0) tickets.open();
        target::await_predecessors();
        if (lane() == 0) {
            ticket = tickets.first();
            shared.tag = tickets.tag();
        }
        target::barrier_sync<1>(kThreads);
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            if (k >= kStages) stage.free.wait(phase(k) - 1);
            if (lane() == 0) {
                if (k > 0) ticket = tickets.next();
                stage.turn = {ticket.exists, ticket.unit / tiles, ticket.unit % tiles};
                // A block that sent for tiles far ahead of its work would hold up all others.
                if (k >= Config::kAhead) this->stage(k - Config::kAhead).arrived.wait(phase(k - Config::kAhead));
            }
            target::sync_warp();
            const Turn now = stage.turn;
            if (!now.exists) {
                stage.arrived.arrive();
                break;
            }
            send_for(stage, tile(now));
        }
        workspace->admit_successor(shared.tag);
    }
    CUSCAN_DEVICE void send_for(Stage& stage, const Tile& tile) const {
        const Stretch stretch = tile.stretch(0);
        const int begin = down(stretch.begin), bytes = up(stretch.end) - begin;
        const int64 from = stretch.memory + begin - origin.array[0];
        const bool whole = from >= geometry.span[0].lowest && from + bytes <= geometry.span[0].end;
        if (whole && lane() == 0) {
            target::fence_before_copies();
            stage.arrived.expect(bytes);
            stage.arrived.load(stage.data + begin, stretch.memory + begin, bytes);
            return;
        }
        for (int i = whole ? stretch.end : stretch.begin + lane() * int(sizeof(Value)); i < stretch.end;
             i += target::kWarp * sizeof(Value))
            *reinterpret_cast<Value*>(stage.data + i) = *reinterpret_cast<const Value*>(stretch.memory + i);
        stage.arrived.arrive();
    }

    CUSCAN_DEVICE void run_folder(int warp) {
        const TotalsTable<State> table = of_tiles();
        const uint32 tiles = this->tiles();
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.arrived.wait(phase(k));
            const Turn now = stage.turn;
            const Tile tile = this->tile(now);
            CUSCAN_NO_UNROLL
            for (int slice = warp; slice < kSlices && now.exists && now.unit + 1 < tiles; slice += kFolders) {
                const int column = slice * target::kWarp + lane();
                if (column >= kColumns) break;
                PairedFold<Op, levels_of(Layout::kRuns), State> runs;
                State total;
                CUSCAN_UNROLL
                for (int r = 0; r < Layout::kRuns; ++r) {
                    Run run;
                    read(stage, tile, r * kSteps, column, run);
                    total = runs.push(r, this->total(run));
                }
                table.publish(now.strip * tiles + now.unit, column, total);
                stage.column[column] = total;
            }
            stage.folded.arrive();
            if (!now.exists) return;
        }
    }

    CUSCAN_DEVICE void run_gatherer(int slice) {
        const TotalsTable<State> table = of_tiles();
        const TotalsTable<Carry> of_groups = this->of_groups();
        const uint32 tiles = this->tiles(), groups = this->groups();
        const int column = slice * target::kWarp + lane();
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            // When the tile is there, others are as well: looks before that would only be in their way.
            stage.folded.wait(phase(k));
            const Turn now = stage.turn;
            if (!now.exists) return;
            const uint32 group = now.unit / Layout::kGroupTiles, place = now.unit % Layout::kGroupTiles;
            typename Layout::Parts parts;
            typename Layout::Units units;
            Carry total;
            const auto pass = [&](uint32 number, const State& part) {
                const State unit = parts.push(number % kParts, part);
                if (number % kParts == kParts - 1) total = units.push(number / kParts, convert<Carry>(unit));
            };
            each_total(table, now.strip * tiles + now.unit - place, place, column, pass);
            if (column < kColumns) {
                const State before = parts.before(place % kParts, false, State{});
                stage.units[column] = units;
                if (place == Layout::kGroupTiles - 1 && group + 1 < groups) {
                    pass(place, stage.column[column]);
                    of_groups.publish(now.strip * groups + group, column, total);
                }
                stage.parts[column] = before;
            }
            stage.gathered.arrive();
        }
    }
    CUSCAN_DEVICE Carry start(const Turn& turn, int column) const {
        Row<Config> at = origin.at(geometry, turn.strip);
        at.advance(geometry.column, column < kColumns ? column : 0);
        return Element::start(at, initial);
    }
    CUSCAN_DEVICE void run_seeker(int slice) {
        const TotalsTable<Carry> table = of_groups();
        const uint32 groups = this->groups();
        const int column = slice * target::kWarp + lane();
        uint64 strip = ~uint64(0);
        uint32 seen = 0;  // groups of the strip
        Chain chain;
        typename Chain::Sections sections;
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.folded.wait(phase(k));
            const Turn now = stage.turn;
            if (!now.exists) return stage.sought.arrive();
            if (now.strip != strip) chain.begin(sections, start(now, column)), seen = 0;
            strip = now.strip;
            const uint32 group = now.unit / Layout::kGroupTiles, place = now.unit % Layout::kGroupTiles;
            each_total(table, now.strip * groups + seen, group - seen, column,
                       [&](uint32 i, const Carry& total) { chain.pass(sections, seen + i, total); });
            seen = group;
            stage.gathered.wait(phase(k));
            if (column < kColumns)
                stage.column[column] = convert<State>(
                    stage.units[column].before(place / kParts, Config::kHasInitial || group > 0, chain.before(group)));
            stage.sought.arrive();
        }
    }

    CUSCAN_DEVICE void run_finisher(int warp) {
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.sought.wait(phase(k));
            const Turn now = stage.turn;
            const Tile tile = this->tile(now);
            CUSCAN_NO_UNROLL
            for (int slice = warp; slice < kSlices && now.exists; slice += kFinishers) {
                const int column = slice * target::kWarp + lane();
                if (column < kColumns) finish(stage, tile, now.unit, column);
            }
            target::fence_before_copies();
            stage.finished.arrive();
            if (!now.exists) return;
        }
    }
    CUSCAN_DEVICE void finish(Stage& stage, const Tile& tile, uint32 number, int column) const {
        const bool has_prefix = Config::kHasInitial || number >= kParts, has_parts = number % kParts > 0;
        const State prefix = stage.column[column], before = stage.parts[column];
        PairedFold<Op, levels_of(Layout::kRuns), State> runs;
        CUSCAN_UNROLL
        for (int r = 0; r < Layout::kRuns; ++r) {
            Run run;
            read(stage, tile, r * kSteps, column, run);
            Running<Config> running;
            const bool is_first = r == 0 && !has_parts;  // of the unit
            running.present = has_prefix || !is_first;
            running.value = is_first ? prefix : join<Op>(has_prefix, prefix, runs.before(r, has_parts, before));
            if (r + 1 < Layout::kRuns) runs.push(r, total(run));
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s) {
                const int row = r * kSteps + s;
                const auto state = running.step(run.get(s, 0, s), run.segment_started);
                *tile.template item<Result>(stage, row, column) = convert<Result>(Config::Op::lower(state, Number<0>()));
                if constexpr (Config::Last::kAccess != Access::kNone) {
                    if (tile.position + row + 1 == geometry.axis.size) {
                        Row<Config> here = tile.at;
                        here.advance(geometry.column, column);
                        store_last(here, state);
                    }
                }
            }
        }
    }

    CUSCAN_DEVICE void run_storer() {
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.finished.wait(phase(k));
            const Turn now = stage.turn;
            if (!now.exists) return;
            store(stage, tile(now));
            stage.free.arrive();
        }
    }
    // Whole pieces in bulk, and the elements at either end, in pieces that others have a part of, one by one.
    CUSCAN_DEVICE void store(Stage& stage, const Tile& tile) const {
        const Stretch stretch = tile.stretch(1);
        const int first = up(stretch.begin), last = down(stretch.end);
        const auto store_items = [&](int from, int to) {
            const int i = from + lane() * int(sizeof(Result));
            if (i < to)
                *reinterpret_cast<Result*>(stretch.memory + i) = *reinterpret_cast<const Result*>(stage.data + i);
        };
        store_items(stretch.begin, first < stretch.end ? first : stretch.end);
        store_items(last > first ? last : first, stretch.end);
        if (lane() == 0 && last > first) target::store_in_bulk(stretch.memory + first, stage.data + first, last - first);
    }
};

template <class Config>
CUSCAN_DEVICE void whole_rows(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                              const Geometry<Config>& geometry) {
    static_assert(sizeof(WholeRowsShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    using Kernel = WholeRows<Config>;
    Kernel kernel{target::shared_memory<WholeRowsShared<Config>>(), origin, workspace, initial, geometry};
    int warp = target::thread_index() / target::kWarp;
    if (warp == 0) {
        kernel.run_loader();
    } else if ((warp -= 1) < Kernel::kFolders) {
        kernel.make_barriers(warp);
        target::barrier_sync<1>(Kernel::kThreads);
        kernel.run_folder(warp);
    } else {
        target::barrier_sync<1>(Kernel::kThreads);
        if ((warp -= Kernel::kFolders) < Kernel::kSlices)
            kernel.run_gatherer(warp);
        else if ((warp -= Kernel::kSlices) < Kernel::kSlices)
            kernel.run_seeker(warp);
        else if ((warp -= Kernel::kSlices) < Kernel::kFinishers)
            kernel.run_finisher(warp);
        else
            kernel.run_storer();
    }
    workspace->leave(kernel.shared.tag, geometry.workspace_words);
}

}  // namespace cuscan
