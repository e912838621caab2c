// whole_rows: the scanned axis is not the contiguous one, and beside it lie so few columns, without gaps, that a tile can be
// whole rows, one stretch of memory: a bulk copy each way, wherever it begins. So rows need not be aligned, and no sector is
// shared but by neighbouring tiles. A tile is kRows rows, a part of a unit; a thread has a column of it.
//
// Blocks take parts by ticket, kBatch tiles each, strip after strip (a strip is what the carry goes down), and tiles go
// through a ring of kStages stages in shared memory. Every warp has one task, and every stage a barrier for each:
//
// * the loader sends for a tile, as soon as its stage is free;
// * folders add up a tile's columns, and publish what a part adds up to;
// * gatherers look at the earlier parts of its group, and publish what the group adds up to if the part is its last;
// * seekers find what precedes the group, from what all earlier ones add up to (GroupWalk), and then the unit;
// * finishers write the results over the values;
// * the storer stores them.
//
// A look at another block's total takes almost as long as a tile takes to pass, while memory is busy: so parts are of
// several tiles, groups of many parts, and all looks of a part travel together. Nobody waits for more than two steps
// through memory, and a group's total for one.
#pragma once
#include "../column_chain.cuh"
#include "../elements.cuh"

namespace cuscan {

template <class Config>
struct WholeRowsLayout {
    static constexpr int kColumns = Config::kColumns, kRows = Config::kRows, kSteps = 8;
    static constexpr int kUnitRows = kSteps * target::kWarp;
    static constexpr int kRuns = kRows / kSteps, kBatch = Config::kBatch, kParts = kUnitRows / (kRows * kBatch);
    static constexpr int kGroupParts = Config::kGroupParts, kGroupUnits = kGroupParts / kParts;
    static constexpr int kSlices = (kColumns + target::kWarp - 1) / target::kWarp;  // a warp's columns each
    static constexpr int kPiece = 16;                                               // bytes that bulk copies are multiples of

    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Units = PairedFold<typename Element::CarryOp, levels_of(kGroupUnits), Carry>;  // of a group
    using Parts = PairedFold<typename Element::Op, levels_of(kParts), State>;            // of a unit
    using Tiles = PairedFold<typename Element::Op, levels_of(kBatch), State>;            // of a part
    using Runs = PairedFold<typename Element::Op, levels_of(kRuns), State>;              // of a tile
    // Totals that travel together to a lane.
    template <class T>
    static constexpr int kLooks = Tagged<T>::kWords == 1 ? Config::kLooks : Tagged<T>::kWords == 2 ? Config::kLooks / 2 : 2;

    struct Stage {
        // As far from a multiple of 16 bytes as in memory.
        alignas(kPiece) char data[kColumns * kRows * sizeof(typename Plain<Config>::Value) + kPiece];
        State column[kColumns];  // what the tile adds up to; then what precedes its unit
        State before[kColumns];  // what the unit's tiles before this one add up to
        Units units[kColumns];   // of the group, before the tile's
        Turn turn;
        target::Barrier arrived, folded, gathered, sought, finished, free;
    };
};

template <class Config>
struct WholeRowsShared {
    typename WholeRowsLayout<Config>::Stage stages[Config::kStages];
    uint32 tag;  // of the launch
};

// A walk down one column for each lane, over the totals of groups: what precedes group after group. Looks are sent for a
// window of groups ahead, so that most are answered when they are asked for; a total is kept as long as its window lasts.
template <class Config>
class GroupWalk {
    using Layout = WholeRowsLayout<Config>;
    using Carry = typename Layout::Carry;
    using CarryOp = typename Layout::Element::CarryOp;
    static constexpr int kWords = Tagged<Carry>::kWords, kStep = Layout::kColumns * kWords;
    static constexpr int kWindow = Layout::template kLooks<Carry>;
    using Windows = SectionCarry<Carry, CarryOp, kWindow * Layout::kGroupUnits, Config::kHasInitial>;

public:
    // `groups`: of a strip.
    CUSCAN_DEVICE GroupWalk(const TotalsTable<Carry>& table, int column, uint32 groups)
        : first_(table.words + column * kWords), tag_(table.tag), groups_(groups) {}
    CUSCAN_DEVICE void begin(uint64 strip, const Carry& initial) {
        words_ = first_ + strip * groups_ * kStep;
        passed_ = 0;
        windows_.begin(sections_, initial);
        send();
    }
    // What precedes a group, if there is an earlier one or an initial value. Groups come in order.
    CUSCAN_DEVICE Carry prefix(uint32 group) {
        CUSCAN_NO_UNROLL
        for (;;) {
            const bool ends = !Config::kLong || group < (passed_ + 1) * kWindow;
            const int count = ends ? int(group - passed_ * kWindow) : kWindow;
            Carry value[kWindow];
            await(count, value);
            PairedFold<CarryOp, levels_of(kWindow) + !Config::kLong, Carry> groups;  // all of a window, too
            Carry total;
            CUSCAN_UNROLL
            for (int i = 0; i < kWindow; ++i)
                if (i < count) total = groups.push(i, value[i]);
            if (ends) return groups.before(count, Windows::precedes(passed_), windows_.before(passed_));
            windows_.pass(sections_, passed_, total);
            ++passed_;
            words_ += kWindow * kStep;
            send();
        }
    }

private:
    CUSCAN_DEVICE void send() {
        CUSCAN_UNROLL
        for (int i = 0; i < kWindow; ++i) {
            CUSCAN_UNROLL
            for (int w = 0; w < kWords; ++w) found_[i][w] = 0;  // no launch's tag
            Tagged<Carry>::look(passed_ * kWindow + i + 1 < groups_, words_ + i * kStep, found_[i]);
        }
    }
    // By a warp, until the first `count` of the window are there for all lanes.
    CUSCAN_DEVICE void await(int count, Carry (&value)[kWindow]) {
        for (;;) {
            bool here[kWindow], all = true;
            CUSCAN_UNROLL
            for (int i = 0; i < kWindow; ++i) {
                here[i] = Tagged<Carry>::is_there(found_[i], tag_, value[i]) || i >= count;
                all = all && here[i];
            }
            if (target::ballot(all) == ~0u) return;
            CUSCAN_UNROLL
            for (int i = 0; i < kWindow; ++i) Tagged<Carry>::look(!here[i], words_ + i * kStep, found_[i]);
        }
    }

    const uint64* first_;
    const uint64* words_;  // of the window
    const uint32 tag_, groups_;
    uint32 passed_;  // windows
    Windows windows_;
    typename Windows::Sections sections_;
    uint64 found_[kWindow][kWords];
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
    static_assert(sizeof(Value) == sizeof(Result), "results take the place of values");
    static constexpr int kColumns = Layout::kColumns, kRows = Layout::kRows, kSteps = Layout::kSteps;
    static constexpr int kSlices = Layout::kSlices, kPiece = Layout::kPiece;
    static constexpr uint32 kParts = Layout::kParts, kBatch = Layout::kBatch, kGroupParts = Layout::kGroupParts;
    static constexpr int kFolders = Config::kFolders, kFinishers = Config::kFinishers, kStages = Config::kStages;
    static constexpr int kRowBytes = kColumns * int(sizeof(Value));
    static constexpr int kThreads = (2 + kFolders + kFinishers + 2 * kSlices) * target::kWarp;

    WholeRowsShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;

    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stages[k % kStages]; }
    static CUSCAN_DEVICE uint32 phase(uint32 k) { return k / kStages; }
    static CUSCAN_DEVICE int lane() { return target::thread_index() % target::kWarp; }

    // Of a strip.
    CUSCAN_DEVICE uint32 parts() const { return uint32((geometry.axis.size + kRows * kBatch - 1) / (kRows * kBatch)); }
    CUSCAN_DEVICE uint32 groups() const { return (parts() + kGroupParts - 1) / kGroupParts; }

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
        int rows;        // that exist; of a strip's last part, some tiles may have none

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

    CUSCAN_DEVICE TotalsTable<State> of_parts() const { return {workspace->words(), kColumns, shared.tag}; }
    CUSCAN_DEVICE TotalsTable<Carry> of_groups() const {
        return {of_parts().end(geometry.rows * parts()), kColumns, shared.tag};
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
        const uint32 parts = this->parts();
        SharedStrips tickets(workspace, 1, uint32(geometry.rows * parts), geometry.workspace_words);
        Turn ticket{};
        if (lane() == 0) tickets.open();
        target::await_predecessors();
        if (lane() == 0) {
            ticket = tickets.first();
            shared.tag = tickets.tag();
        }
        target::barrier_sync<1>(kThreads);
        for (uint32 k = 0, number = 0;; ++k, ++number) {
            Stage& stage = this->stage(k);
            if (k >= kStages) stage.free.wait(phase(k) - 1);
            if (lane() == 0) {
                if (number == kBatch) ticket = tickets.next(), number = 0;
                stage.turn = {ticket.exists, ticket.unit / parts, ticket.unit % parts * kBatch + number};
                // A block that sent for tiles far ahead of its work would hold up all others.
                if (k >= Config::kAhead) this->stage(k - Config::kAhead).arrived.wait(phase(k - Config::kAhead));
            }
            target::sync_warp();
            const Turn now = stage.turn;
            const bool in_bulk = now.exists && send_for(stage, tile(now));
            if (!in_bulk) stage.arrived.arrive();
            if (!now.exists) break;
        }
        workspace->admit_successor(shared.tag);
    }
    // True for the lane that has, with it, arrived at the stage's barrier.
    CUSCAN_DEVICE bool send_for(Stage& stage, const Tile& tile) const {
        const Stretch stretch = tile.stretch(0);
        const int begin = down(stretch.begin), bytes = up(stretch.end) - begin;
        const int64 from = stretch.memory + begin - origin.array[0];
        if (from >= geometry.span[0].lowest && from + bytes <= geometry.span[0].end) {
            if (lane() != 0) return false;
            target::fence_before_copies();
            stage.arrived.expect(bytes);
            stage.arrived.load(stage.data + begin, stretch.memory + begin, bytes);
            return true;
        }
        for (int i = stretch.begin + lane() * int(sizeof(Value)); i < stretch.end; i += target::kWarp * sizeof(Value))
            *reinterpret_cast<Value*>(stage.data + i) = *reinterpret_cast<const Value*>(stretch.memory + i);
        return false;
    }

    CUSCAN_DEVICE void run_folder(int warp) {
        const TotalsTable<State> table = of_parts();
        const uint32 parts = this->parts();
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.arrived.wait(phase(k));
            const Turn now = stage.turn;
            const Tile tile = this->tile(now);
            const uint32 part = now.unit / kBatch, number = now.unit % kBatch;
            CUSCAN_NO_UNROLL
            for (int slice = warp; slice < kSlices && now.exists; slice += kFolders) {
                const int column = slice * target::kWarp + lane();
                if (column >= kColumns) break;
                typename Layout::Runs runs;
                State total;
                CUSCAN_UNROLL
                for (int r = 0; r < Layout::kRuns; ++r) {
                    Run run;
                    read(stage, tile, r * kSteps, column, run);
                    total = runs.push(r, this->total(run));
                }
                stage.column[column] = total;
                if (number < kBatch - 1 || part == parts - 1) continue;  // a strip's last part is nobody's business
                typename Layout::Tiles tiles;
                CUSCAN_UNROLL
                for (uint32 i = 0; i < kBatch; ++i) total = tiles.push(i, this->stage(k - number + i).column[column]);
                table.publish(now.strip * parts + part, column, total);
            }
            stage.folded.arrive();
            if (!now.exists) return;
        }
    }

    CUSCAN_DEVICE void run_gatherer(int slice) {
        constexpr int kTogether = Layout::template kLooks<State>, kWords = Tagged<State>::kWords;
        const TotalsTable<State> of_parts = this->of_parts();
        const TotalsTable<Carry> of_groups = this->of_groups();
        const uint32 parts = this->parts(), groups = this->groups();
        const int column = slice * target::kWarp + lane();
        const bool exists = column < kColumns;
        for (uint32 k = 0;; k += kBatch) {
            stage(k).folded.wait(phase(k));
            const Turn now = stage(k).turn;
            if (!now.exists) return;
            // When the part is there, others are as well: looks before that would only be in their way.
            stage(k + kBatch - 1).folded.wait(phase(k + kBatch - 1));
            const uint32 part = now.unit / kBatch, group = part / kGroupParts, place = part % kGroupParts;
            typename Layout::Parts of_unit;
            typename Layout::Units units;
            Carry total;
            const auto pass = [&](uint32 number, const State& part) {
                const State unit = of_unit.push(number % kParts, part);
                if (number % kParts == kParts - 1) total = units.push(number / kParts, convert<Carry>(unit));
            };
            CUSCAN_UNROLL
            for (uint32 from = 0; from < kGroupParts; from += kTogether) {
                if (from >= place) break;
                State seen[kTogether];
                await_all(of_parts.entry(now.strip * parts + part - place + from, exists ? column : 0), kColumns * kWords,
                          of_parts.tag, exists ? int(place - from) : 0, seen);
                CUSCAN_UNROLL
                for (uint32 i = 0; i < kTogether; ++i)
                    if (from + i < place) pass(from + i, seen[i]);
            }
            if (exists) {
                const State before = of_unit.before(place % kParts, false, State{});
                stage(k).units[column] = units;
                typename Layout::Tiles tiles;
                State own;
                CUSCAN_UNROLL
                for (uint32 i = 0; i < kBatch; ++i) {
                    stage(k + i).before[column] = tiles.before(i, place % kParts > 0, before);
                    own = tiles.push(i, stage(k + i).column[column]);
                }
                if (place == kGroupParts - 1 && group + 1 < groups) {
                    pass(place, own);
                    of_groups.publish(now.strip * groups + group, column, total);
                }
            }
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kBatch; ++i) stage(k + i).gathered.arrive();
        }
    }

    CUSCAN_DEVICE Carry start(const Turn& turn, int column) const {
        Row<Config> at = origin.at(geometry, turn.strip);
        at.advance(geometry.column, column);
        return Element::start(at, initial);
    }
    CUSCAN_DEVICE void run_seeker(int slice) {
        const int column = slice * target::kWarp + lane(), existing = column < kColumns ? column : 0;
        GroupWalk<Config> walk(of_groups(), existing, groups());
        uint64 strip = ~uint64(0);
        for (uint32 k = 0;; k += kBatch) {
            stage(k).folded.wait(phase(k));
            const Turn now = stage(k).turn;
            if (!now.exists) return stage(k).sought.arrive();
            if (now.strip != strip) walk.begin(now.strip, start(now, existing));
            strip = now.strip;
            const uint32 part = now.unit / kBatch, group = part / kGroupParts, place = part % kGroupParts;
            const Carry before = walk.prefix(group);
            stage(k).gathered.wait(phase(k));
            if (column < kColumns) {
                const auto& units = stage(k).units[column];
                const State prefix = convert<State>(units.before(place / kParts, Config::kHasInitial || group > 0, before));
                CUSCAN_UNROLL
                for (uint32 i = 0; i < kBatch; ++i) stage(k + i).column[column] = prefix;
            }
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kBatch; ++i) stage(k + i).sought.arrive();
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
        constexpr uint32 kTiles = kParts * kBatch;  // of a unit
        const bool has_prefix = Config::kHasInitial || number >= kTiles, has_tiles = number % kTiles > 0;
        const State prefix = stage.column[column], before = stage.before[column];
        typename Layout::Runs runs;
        CUSCAN_UNROLL
        for (int r = 0; r < Layout::kRuns; ++r) {
            Run run;
            read(stage, tile, r * kSteps, column, run);
            Running<Config> running;
            const bool is_first = r == 0 && !has_tiles;  // of the unit
            running.present = has_prefix || !is_first;
            running.value = is_first ? prefix : join<Op>(has_prefix, prefix, runs.before(r, has_tiles, before));
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
