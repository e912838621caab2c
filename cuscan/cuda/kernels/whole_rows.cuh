// whole_rows: scans an axis that is not the contiguous one, where few columns lie beside it, without gaps. Then a tile
// of whole rows is one stretch of memory: a bulk copy moves it each way, wherever it begins. So rows need not be
// aligned, and only neighbouring tiles share a sector. Masks and segment starts lie beside the values
// (staged_flags.cuh). A tile has kRows rows, at most a unit, in kShares shares; a
// thread takes one share of a column.
//
// A strip is what one carry passes along. Blocks take parts by ticket, strip after strip; a part is kBatch tiles, which
// are a fraction of a unit, or some units. Tiles go through a ring of kStages stages in shared memory. Every warp has
// one task, and every stage has a barrier for each task:
//
// * the producer loads a tile as soon as its stage is free;
// * reduce warps compute the totals of a tile's columns, and publish the total of a part;
// * gatherers read the totals of earlier parts of the group, and publish the total of the group if the part is its
//   last;
// * look-back warps compute what precedes the group, from the totals of all earlier groups (GroupWalk), and then what
//   precedes the unit;
// * store warps write the results over the values;
// * the storer stores them.
//
// While memory is busy, a look at another block's total takes almost as long as a tile takes to pass. So parts have
// several tiles, groups have many parts, and looks travel together. No warp waits for more than two steps through
// memory, and the total of a group waits for one.
#pragma once
#include "../column_chain.cuh"
#include "../staged_flags.cuh"

namespace cuscan {

template <class Config>
struct WholeRowsLayout {
    static constexpr int kColumns = Config::kColumns, kRows = Config::kRows, kBatch = Config::kBatch, kSteps = 8;
    // Shares of a column; runs of a share.
    static constexpr int kShares = Config::kShares, kRuns = kRows / kSteps / kShares;
    static constexpr int kTiles = kSteps * target::kWarp / kRows;         // tiles of a unit
    static constexpr int kParts = kTiles > kBatch ? kTiles / kBatch : 1;  // parts of a unit
    static constexpr int kPartUnits = kBatch > kTiles ? kBatch / kTiles : 1, kPartTiles = kBatch / kPartUnits;
    static_assert(kPartUnits == 1 || kTiles == 1, "a part is of one unit, or of units that are a tile each");
    static constexpr int kGroupParts = Config::kGroupParts,
                         kNodes = kGroupParts / kParts;  // nodes of a group: units, or parts
    // Slices that a warp takes at a time: of one column per lane; of one share per lane.
    static constexpr int kSlices = (kColumns + target::kWarp - 1) / target::kWarp;
    static constexpr int kShareSlices = (kColumns * kShares + target::kWarp - 1) / target::kWarp;
    static constexpr int kSought = target::kWarp / Config::kEntries;           // columns of a look-back warp
    static constexpr int kLookBackWarps = (kColumns + kSought - 1) / kSought;  // look-back warps
    static constexpr int kPiece = 16;  // bulk copies move multiples of so many bytes
    // Columns of a table of totals, so many that every part or group begins on a line.
    static constexpr int kChains = (kColumns + kLineWords - 1) / kLineWords * kLineWords;

    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    static constexpr bool kManyUnits = kPartUnits > 1;
    using Part = typename Choose<kManyUnits, Carry, State>::Type;  // total of a part
    using PartOp = typename Choose<kManyUnits, typename Element::CarryOp, typename Element::Op>::Type;
    // Folds, and what they combine.
    using Nodes = PairedFold<typename Element::CarryOp, levels_of(kNodes), Carry>;  // nodes of a group
    using Parts = PairedFold<PartOp, levels_of(kParts), Part>;                      // parts of a unit
    using Units = PairedFold<PartOp, levels_of(kPartUnits), Part>;                  // units of a part
    using Tiles = PairedFold<typename Element::Op, levels_of(kPartTiles), State>;   // tiles of a part, in one unit
    using Shares = PairedFold<typename Element::Op, levels_of(kShares), State>;     // shares of a tile
    using Runs = PairedFold<typename Element::Op, levels_of(kRuns), State>;         // runs of a share

    // For a part: the nodes of its group before it. Once these are used, and where a carry goes out and a strip ends in
    // the part: what precedes the unit in which the strip ends.
    union Before {
        Nodes nodes;
        Carry last;
    };
    template <int kArray>
    using Flags = StagedFlags<Config, kArray, kRows, kColumns, true, Config::kBack>;
    using Mask = Flags<Arrays<Config>::kMask>;
    using Starts = Flags<Arrays<Config>::kSegments>;
    static constexpr bool kHasFlags = Mask::kThere || Starts::kThere;
    struct Stage : Mask::Buffer, Starts::Buffer {
        // The tile lies as far beyond a multiple of a line as in global memory.
        alignas(target::kLine) char data[kColumns * kRows * sizeof(typename Plain<Config>::Value) + target::kLine];
        State column[kColumns];           // total of the tile; then what precedes its unit
        State before[kShares][kColumns];  // totals of shares; then what precedes them in the unit
        Turn turn;
        target::Barrier arrived, folded, gathered, sought, finished, free;
    };
};

// A walk down columns, over the totals of groups, window after window. It computes what precedes one group after
// another. A lane reads kEach consecutive groups of a window, in one column; with kLong, also as many of the next
// window, so that one look is enough. It keeps what it has read until the walk leaves the window. Without kLong, all
// groups of a strip lie in one window.
template <class Config>
class GroupWalk {
    using Layout = WholeRowsLayout<Config>;
    using Carry = typename Layout::Carry;
    using CarryOp = typename Layout::Element::CarryOp;
    static constexpr uint32 kEntries = Config::kEntries, kEach = Config::kEach, kWindow = kEntries * kEach;
    static constexpr uint32 kWindows = Config::kLong ? 2 : 1;  // windows that a lane reads at once
    static constexpr int kWords = Published<Carry>::kWords, kStep = Layout::kChains * kWords;
    using Windows = SectionCarry<Carry, CarryOp, kWindow * Layout::kNodes * Layout::kPartUnits, Config::kHasInitial>;
    // The groups of a lane. Without kLong, all of them may precede a group, which takes a level more.
    using Groups = PairedFold<CarryOp, levels_of(kEach) + !Config::kLong, Carry>;
    using Lanes = PairedLanes<CarryOp, kEntries, Carry, Layout::kSought>;

public:
    // What precedes a group: valid in the lane of each column where `here` is true, if there is an earlier group or an
    // initial value.
    struct Found {
        bool here;
        Carry carry;
    };

    // How far a long walk down a column has come.
    struct Place {
        typename Windows::Sections sections;
        Windows windows;
    };

    // `exists`: the lane has a column.
    CUSCAN_DEVICE GroupWalk(Place& place, bool exists, uint32 epoch)
        : place_(place),
          epoch_(epoch),
          entry_(target::thread_index() % target::kWarp / Layout::kSought),
          keeps_(exists && entry_ == 0) {}
    // Called at the beginning of a strip. `words`: those of its first group, in the lane's column.
    CUSCAN_DEVICE void begin(const uint64* words, const Carry& initial) {
        words_ = words + entry_ * kEach * kStep;
        passed_ = 0;
        if (!Config::kLong) initial_ = initial;
        target::sync_warp();  // all lanes have read what was there
        if (Config::kLong && entry_ == 0) place_.windows.begin(place_.sections, initial);
        target::sync_warp();
        CUSCAN_UNROLL
        for (auto& window : seen_) forget(window);
    }
    // Called by whole warps, for groups of the strip in ascending order.
    CUSCAN_DEVICE Found prefix(uint32 group) {
        CUSCAN_NO_UNROLL
        for (;;) {
            const uint32 ahead = group - passed_ * kWindow, of_lane = least(ahead, 0);
            await(ahead);
            Groups groups;
            Carry total, one;
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kEach; ++i)
                if (i < of_lane && Published<Carry>::is_there(seen_[0][i], epoch_, one)) total = groups.push(i, one);
            const Lanes lanes(total, entry_);
            if (!Config::kLong || ahead < kWindow) {
                const bool precedes = Windows::precedes(passed_);
                const Carry before = Config::kLong ? place_.windows.before(passed_) : initial_;
                const Carry carry = lanes.left.before(entry_, precedes, before);
                return {kEntries == 1 || ahead / kEach == entry_,
                        groups.before(of_lane, precedes || entry_ > 0, carry)};
            }
            target::sync_warp();
            if (keeps_) place_.windows.pass(place_.sections, passed_, lanes.total);
            target::sync_warp();
            ++passed_;
            words_ += kWindow * kStep;
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kEach; ++i) CUSCAN_UNROLL
            for (int w = 0; w < kWords; ++w) seen_[0][i][w] = seen_[kWindows - 1][i][w];
            forget(seen_[kWindows - 1]);
        }
    }

private:
    using Seen = uint64[kEach][kWords];

    // The number of groups that the lane reads in a window, among the first `ahead`.
    CUSCAN_DEVICE uint32 least(uint32 ahead, uint32 window) const {
        const uint32 first = window * kWindow + entry_ * kEach;
        return ahead < first ? 0 : ahead - first < kEach ? ahead - first : kEach;
    }
    static CUSCAN_DEVICE void forget(Seen& seen) {
        CUSCAN_UNROLL
        for (auto& words : seen) CUSCAN_UNROLL
        for (uint64& word : words) word = 0;  // no launch has this epoch
    }
    // Called by the whole warp. Waits until the first `ahead` groups are there, as far as lanes read them.
    CUSCAN_DEVICE void await(uint32 ahead) {
        for (;;) {
            bool here[kWindows][kEach], all = true;
            CUSCAN_UNROLL
            for (uint32 n = 0; n < kWindows; ++n) {
                const uint32 of_lane = least(ahead, n);
                CUSCAN_UNROLL
                for (uint32 i = 0; i < kEach; ++i) {
                    Carry one;
                    here[n][i] = i >= of_lane || Published<Carry>::is_there(seen_[n][i], epoch_, one);
                    all = all && here[n][i];
                }
            }
            if (target::ballot(all) == ~0u) return;
            CUSCAN_UNROLL
            for (uint32 n = 0; n < kWindows; ++n) CUSCAN_UNROLL
            for (uint32 i = 0; i < kEach; ++i)
                Published<Carry>::look(!here[n][i], words_ + (n * kWindow + i) * kStep, seen_[n][i]);
        }
    }

    Place& place_;  // of the lane's column
    const uint32 epoch_, entry_;
    const bool keeps_;     // this lane updates place_, which all lanes of the column read
    const uint64* words_;  // words of the first group that the lane reads
    uint32 passed_;        // number of windows behind the walk
    Carry initial_;        // the initial value, without kLong
    Seen seen_[kWindows];
};

template <class Config>
struct WholeRowsShared {
    using Layout = WholeRowsLayout<Config>;
    static constexpr uint32 kPartsHere = (Config::kStages + Config::kBatch - 1) / Config::kBatch;

    typename Layout::Stage stages[Config::kStages];
    typename Layout::Before before[kPartsHere][Layout::kColumns];  // for each part
    typename GroupWalk<Config>::Place
        places[Config::kLong ? Layout::kColumns + 1 : 1];  // one for lanes without a column
    uint32 epoch;                                          // epoch of the launch
};

template <class Config>
struct WholeRows {
    using Layout = WholeRowsLayout<Config>;
    using Element = typename Layout::Element;
    using Op = typename Element::Op;
    using State = typename Layout::State;
    using Carry = typename Layout::Carry;
    using Part = typename Layout::Part;
    using Value = typename Plain<Config>::Value;
    using Result = typename Plain<Config>::Result;
    using Stage = typename Layout::Stage;
    static_assert(sizeof(Value) == sizeof(Result), "results take the place of values");
    static constexpr int kColumns = Layout::kColumns, kRows = Layout::kRows, kSteps = Layout::kSteps;
    static constexpr int kShares = Layout::kShares, kSlices = Layout::kSlices, kShareSlices = Layout::kShareSlices;
    static constexpr int kPiece = Layout::kPiece;
    static constexpr uint32 kTiles = Layout::kTiles, kParts = Layout::kParts, kBatch = Layout::kBatch;
    static constexpr uint32 kPartTiles = Layout::kPartTiles, kGroupParts = Layout::kGroupParts;
    static constexpr int kReduceWarps = Config::kReduceWarps, kStoreWarps = Config::kStoreWarps,
                         kStages = Config::kStages;
    static constexpr int kRowBytes = kColumns * int(sizeof(Value));
    static constexpr uint32 kPassing = 4;  // where only carries are stored, one part in so many walks along
    static constexpr int kFolding = 2;     // number of the reduce warps' own barrier; all warps meet at number 1
    static constexpr int kThreads = (2 + kReduceWarps + kStoreWarps + kSlices + Layout::kLookBackWarps) * target::kWarp;

    WholeRowsShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;

    CUSCAN_DEVICE Stage& stage(uint32 k) { return shared.stages[k % kStages]; }
    static CUSCAN_DEVICE uint32 phase(uint32 k) { return k / kStages; }
    CUSCAN_DEVICE auto& before_part(uint32 k) { return shared.before[k / kBatch % shared.kPartsHere]; }
    static constexpr int least(int a, int b) { return a < b ? a : b; }
    static CUSCAN_DEVICE int lane() { return target::thread_index() % target::kWarp; }

    // Parts and groups of a strip.
    CUSCAN_DEVICE uint32 parts() const { return uint32((geometry.axis.size + kRows * kBatch - 1) / (kRows * kBatch)); }
    CUSCAN_DEVICE uint32 groups() const { return (parts() + kGroupParts - 1) / kGroupParts; }
    // The tile that holds a strip's last element.
    CUSCAN_DEVICE uint32 last_tile() const { return uint32((geometry.axis.size - 1) / kRows); }
    // Whether the block needs what precedes a part. Where only carries are stored, it needs that for a strip's last
    // part alone.
    CUSCAN_DEVICE bool needs_before(uint32 part) const { return Element::kStores || part + 1 == parts(); }

    // ---- a tile ----------------------------------------------------------------------------------------------------

    // A tile in memory and in its stage. Its bytes go from `begin` to `end`, counted from the beginning of the stage's
    // data and, in the array, from `memory`.
    struct Stretch {
        char* memory;
        int begin, end;
    };
    static CUSCAN_DEVICE int down(int bytes) { return bytes / kPiece * kPiece; }
    static CUSCAN_DEVICE int up(int bytes) { return down(bytes + kPiece - 1); }

    struct Tile {
        Row<Config> at;  // addresses of row 0, column 0
        int64 position;  // position of row 0 along the axis
        int rows;        // number of rows that exist; in a strip's last part, some tiles may have none

        // Bytes from a multiple of a line to the lowest element of the tile, as if all its rows existed.
        CUSCAN_DEVICE int shift() const { return int(reinterpret_cast<uint64>(lowest(0)) % target::kLine); }
        CUSCAN_DEVICE char* lowest(int array) const {
            return at.array[array] - (Config::kBack ? (kRows - 1) * kRowBytes : 0);
        }
        CUSCAN_DEVICE Stretch stretch(int array) const {
            const int shift = this->shift(), begin = shift + (Config::kBack ? (kRows - rows) * kRowBytes : 0);
            return {lowest(array) - shift, begin, begin + rows * kRowBytes};
        }
        template <class T>
        CUSCAN_DEVICE T* item(Stage& stage, int row, int column) const {
            return reinterpret_cast<T*>(stage.data + shift()) + (Config::kBack ? kRows - 1 - row : row) * kColumns +
                   column;
        }
    };
    CUSCAN_DEVICE Tile tile(const Turn& turn) const {
        const int64 position = int64(turn.unit) * kRows;
        Row<Config> at = origin.at(geometry, turn.strip);
        at.advance(geometry.axis, position);
        return {at, position, clamp(geometry.axis.size - position, kRows)};
    }
    // Some rows of a column, and their total.
    using Run = Items<Config, kSteps, 1, Element::kReplaces>;
    CUSCAN_DEVICE void read(Stage& stage, const Tile& tile, int row, int column, Run& run) const {
        run.clear(geometry, tile.position + row, initial);
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s)
            run.raw.first.vector[s].item[0] = *tile.template item<Value>(stage, row + s, column);
        read_flags<kSteps, 1>(run, mask(tile), starts(tile), stage, row, column);
    }
    static CUSCAN_DEVICE State total(const Run& run) {
        State total = run.get(0, 0, 0);
        CUSCAN_UNROLL
        for (int s = 1; s < kSteps; ++s) total = Op::combine(total, run.get(s, 0, s));
        return total;
    }

    // ---- what blocks publish ---------------------------------------------------------------------------------------

    CUSCAN_DEVICE TotalsTable<Part> of_parts() const { return {workspace->words(), Layout::kChains, shared.epoch}; }
    CUSCAN_DEVICE TotalsTable<Carry> of_groups() const {
        return {of_parts().end(geometry.rows * parts()), Layout::kChains, shared.epoch};
    }

    // ---- tasks -----------------------------------------------------------------------------------------------------

    CUSCAN_DEVICE void make_barriers(int warp) {
        if (lane() != 0) return;
        for (int i = warp; i < kStages; i += kReduceWarps) {
            Stage& stage = shared.stages[i];
            stage.arrived.init(target::kWarp + 1);
            stage.folded.init(kReduceWarps * target::kWarp);
            stage.gathered.init(kSlices * target::kWarp);
            stage.sought.init(Layout::kLookBackWarps * target::kWarp);
            stage.finished.init(kStoreWarps * target::kWarp);
            stage.free.init(target::kWarp);
        }
        target::fence_after_init();
    }

    CUSCAN_DEVICE void run_producer() {
        const uint32 parts = this->parts();
        SharedStrips tickets(workspace, 1, uint32(geometry.rows * parts), geometry.workspace_words, true);
        Turn ticket{};
        if (lane() == 0) tickets.open();
        target::wait_for_previous_kernel();
        if (lane() == 0) {
            ticket = tickets.first();
            shared.epoch = tickets.epoch();
        }
        target::barrier_sync<1>(kThreads);
        Loading<Config::kAhead, kStages> loading;
        for (uint32 k = 0, number = 0;; ++k, ++number) {
            Stage& stage = this->stage(k);
            if (k >= kStages) stage.free.wait(phase(k) - 1);
            if (lane() == 0) {
                if (number == kBatch) ticket = tickets.next(), number = 0;
                stage.turn = turn(ticket, parts, number);
            }
            target::sync_warp();
            const Turn now = stage.turn;
            const Tile tile = this->tile(now);
            if (now.exists && tile.rows > 0) {
                loading.push(k, [&](uint32 earlier) { this->stage(earlier).arrived.wait(phase(earlier)); });
                load(stage, tile);
            } else if (lane() == 0) {
                stage.arrived.arrive();
            }
            if constexpr (Layout::kHasFlags)
                stage.arrived.arrive_loaded();
            else
                stage.arrived.arrive();
            if (!now.exists) break;
        }
        workspace->allow_next_kernel(shared.epoch);
    }
    // A tile of the part that a ticket stands for. Short strips take turns, some at a time, part by part: then what
    // precedes a part is there when the part is.
    CUSCAN_DEVICE Turn turn(const Turn& ticket, uint32 parts, uint32 tile) const {
        if (!ticket.exists) return {};
        const uint32 chunk = ticket.unit / (Config::kAbreast * parts), rest = ticket.unit % (Config::kAbreast * parts);
        const uint32 first = chunk * Config::kAbreast, left = uint32(geometry.rows) - first;
        const uint32 abreast = Config::kAbreast > 1 && left < Config::kAbreast ? left : Config::kAbreast;
        return {true, first + rest % abreast, rest / abreast * kBatch + tile};
    }
    template <int kArray>
    CUSCAN_DEVICE auto flags(const Tile& tile) const {
        using Flags = typename Layout::template Flags<kArray>;
        return Flags::of(geometry, origin, tile.at, tile.position, tile.rows, kColumns);
    }
    CUSCAN_DEVICE auto mask(const Tile& tile) const { return flags<Arrays<Config>::kMask>(tile); }
    CUSCAN_DEVICE auto starts(const Tile& tile) const { return flags<Arrays<Config>::kSegments>(tile); }
    // Called by the whole warp: starts to load a tile. The first lane arrives once more than the others.
    CUSCAN_DEVICE void load(Stage& stage, const Tile& tile) const {
        const Stretch stretch = tile.stretch(0);
        const int begin = down(stretch.begin), bytes = up(stretch.end) - begin;
        const int64 from = stretch.memory + begin - origin.array[0];
        const bool in_bulk = tile.rows > 0 && from >= geometry.span[0].lowest && from + bytes <= geometry.span[0].end;
        const auto mask = this->mask(tile);
        const auto starts = this->starts(tile);
        if (lane() == 0) {
            const uint32 all = (in_bulk ? bytes : 0) + mask.bytes_in_bulk() + starts.bytes_in_bulk();
            if (all > 0) {
                target::fence_before_copies();
                stage.arrived.expect(all);
                if (in_bulk) stage.arrived.load(stage.data + begin, stretch.memory + begin, bytes);
                mask.load_in_bulk(stage, stage.arrived);
                starts.load_in_bulk(stage, stage.arrived);
            } else {
                stage.arrived.arrive();
            }
        }
        mask.template load_rest<target::kWarp>(stage, stage.arrived, lane());
        starts.template load_rest<target::kWarp>(stage, stage.arrived, lane());
        if (in_bulk) return;
        for (int i = stretch.begin + lane() * int(sizeof(Value)); i < stretch.end; i += target::kWarp * sizeof(Value))
            *reinterpret_cast<Value*>(stage.data + i) = *reinterpret_cast<const Value*>(stretch.memory + i);
        if constexpr (Layout::kHasFlags) target::fence();  // arrive_loaded waits for copies only
    }

    // The share of a column that a lane takes, if it takes one.
    struct Share {
        int column, number;
        bool exists;

        CUSCAN_DEVICE int row() const { return number * Layout::kRuns * kSteps; }
    };
    static CUSCAN_DEVICE Share share(int slice) {
        const int i = slice * target::kWarp + lane();
        return {i % kColumns, i / kColumns, i < kColumns * kShares};
    }
    CUSCAN_DEVICE void run_reduce(int warp) {
        const TotalsTable<Part> table = of_parts();
        const uint32 parts = this->parts();
        for (uint32 k = 0;; ++k) {
            Stage& stage = this->stage(k);
            stage.arrived.wait(phase(k));
            const Turn now = stage.turn;
            const Tile tile = this->tile(now);
            CUSCAN_NO_UNROLL
            for (int slice = warp; slice < kShareSlices && now.exists; slice += kReduceWarps) {
                const Share share = this->share(slice);
                if (share.exists && share.row() < tile.rows)
                    stage.before[share.number][share.column] = fold(stage, tile, share);
            }
            const uint32 part = now.unit / kBatch, number = now.unit % kBatch;
            if (now.exists && number == kBatch - 1 && part < parts - 1) {  // the total of the last part is not read
                if (kShares > 1)
                    target::barrier_sync<kFolding>(kReduceWarps * target::kWarp);  // else lanes read their own shares
                CUSCAN_NO_UNROLL
                for (int column = warp * target::kWarp + lane(); column < kColumns;
                     column += kReduceWarps * target::kWarp)
                    table.publish(now.strip * parts + part, column, total_of_part(k - number, column));
            }
            stage.folded.arrive();
            if (!now.exists) return;
        }
    }
    CUSCAN_DEVICE State fold(Stage& stage, const Tile& tile, const Share& share) const {
        typename Layout::Runs runs;
        State total;
        CUSCAN_UNROLL
        for (int r = 0; r < Layout::kRuns; ++r) {
            Run run;
            read(stage, tile, share.row() + r * kSteps, share.column, run);
            total = runs.push(r, this->total(run));
        }
        return total;
    }
    CUSCAN_DEVICE State total_of_tile(const Stage& stage, int column) const {
        typename Layout::Shares shares;
        State total;
        CUSCAN_UNROLL
        for (int s = 0; s < kShares; ++s) total = shares.push(s, stage.before[s][column]);
        return total;
    }
    // The total of the part whose first tile is number k.
    CUSCAN_DEVICE Part total_of_part(uint32 k, int column) {
        typename Layout::Units units;
        Part part;
        CUSCAN_UNROLL
        for (int u = 0; u < Layout::kPartUnits; ++u) {
            typename Layout::Tiles tiles;
            State total;
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kPartTiles; ++i)
                total = tiles.push(i, total_of_tile(stage(k + u * kPartTiles + i), column));
            part = units.push(u, convert<Part>(total));
        }
        return part;
    }

    CUSCAN_DEVICE void run_gatherer(int slice) {
        constexpr int kTogether = Config::kLooks, kWords = Published<Part>::kWords;
        const TotalsTable<Part> of_parts = this->of_parts();
        const TotalsTable<Carry> of_groups = this->of_groups();
        const uint32 parts = this->parts(), groups = this->groups();
        const int column = slice * target::kWarp + lane();
        const bool exists = column < kColumns;
        for (uint32 k = 0;; k += kBatch) {
            stage(k).folded.wait(phase(k));
            const Turn now = stage(k).turn;
            if (!now.exists) return;
            // Once the part is complete, earlier ones usually are, too; looking sooner would slow other blocks down.
            stage(k + kBatch - 1).folded.wait(phase(k + kBatch - 1));
            const uint32 part = now.unit / kBatch, group = part / kGroupParts, place = part % kGroupParts;
            const bool publishes = place == kGroupParts - 1 && group + 1 < groups;
            // Number of earlier parts of the group that the warp reads.
            const uint32 looked_at = publishes || needs_before(part) ? place : 0;
            typename Layout::Parts of_unit;
            typename Layout::Nodes nodes;
            Carry total;
            const auto pass = [&](uint32 number, const Part& part) {
                const Part node = of_unit.push(number % kParts, part);
                if (number % kParts == kParts - 1) total = nodes.push(number / kParts, convert<Carry>(node));
            };
            CUSCAN_UNROLL
            for (uint32 from = 0; from < kGroupParts; from += kTogether) {
                if (from >= looked_at) break;
                Part seen[kTogether];
                await_all(of_parts.entry(now.strip * parts + part - place + from, exists ? column : 0),
                          Layout::kChains * kWords, of_parts.epoch, exists ? int(looked_at - from) : 0, seen);
                CUSCAN_UNROLL
                for (uint32 i = 0; i < kTogether; ++i)
                    if (from + i < looked_at) pass(from + i, seen[i]);
            }
            if (exists) {
                before_part(k)[column].nodes = nodes;
                if (publishes) {  // first: other blocks wait for it
                    pass(place, total_of_part(k, column));
                    of_groups.publish(now.strip * groups + group, column, total);
                }
                if (needs_before(part))
                    put_before_shares(k, column, place % kParts > 0,
                                      convert<State>(of_unit.before(place % kParts, false, Part{})));
            }
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kBatch; ++i) stage(k + i).gathered.arrive();
        }
    }
    // Replaces the totals of shares by what precedes each share in its unit: the parts of the unit before this one, if
    // there are any, then the earlier tiles of the part, and so on. Computes the totals of tiles, too.
    CUSCAN_DEVICE void put_before_shares(uint32 k, int column, bool has_parts, const State& parts) {
        typename Layout::Tiles tiles;
        CUSCAN_UNROLL
        for (uint32 i = 0; i < kBatch; ++i) {
            Stage& stage = this->stage(k + i);
            State own[kShares];  // all are read before any is overwritten
            CUSCAN_UNROLL
            for (int s = 0; s < kShares; ++s) own[s] = stage.before[s][column];
            const uint32 number = i % kPartTiles;
            const State before = tiles.before(number, has_parts, parts);
            typename Layout::Shares shares;
            State total;
            CUSCAN_UNROLL
            for (int s = 0; s < kShares; ++s) {
                stage.before[s][column] = shares.before(s, has_parts || number > 0, before);
                total = shares.push(s, own[s]);
            }
            stage.column[column] = total;
            tiles.push(number, total);
        }
    }

    CUSCAN_DEVICE Carry start(const Turn& turn, int column) const {
        Row<Config> at = origin.at(geometry, turn.strip);
        at.advance(geometry.column, column);
        return Element::start(geometry, at, initial);
    }
    CUSCAN_DEVICE void run_look_back(int look_back_warp) {
        const int column = look_back_warp * Layout::kSought + lane() % Layout::kSought,
                  existing = column < kColumns ? column : 0;
        GroupWalk<Config> walk(shared.places[Config::kLong ? least(column, kColumns) : 0], column < kColumns,
                               shared.epoch);
        uint32 strip = ~0u;  // no strip has this number
        for (uint32 k = 0;; k += kBatch) {
            stage(k).folded.wait(phase(k));
            const Turn now = stage(k).turn;
            if (!now.exists) return;
            if (uint32(now.strip) != strip)
                walk.begin(of_groups().entry(now.strip * groups(), existing), start(now, existing));
            strip = uint32(now.strip);
            const uint32 part = now.unit / kBatch, group = part / kGroupParts, place = part % kGroupParts;
            stage(k).gathered.wait(phase(k));  // other blocks are not ready before that, either
            if (!needs_before(part)) {
                CUSCAN_UNROLL
                for (uint32 i = 0; i < kBatch; ++i) stage(k + i).sought.arrive();
                // One part in kPassing walks along, so that the way to the last part is short. No warp waits for it.
                if (Config::kLong && k / kBatch % kPassing == 0) walk.prefix(group);
                continue;
            }
            const auto found = walk.prefix(group);
            if (column < kColumns && found.here) {
                const bool precedes = Config::kHasInitial || group > 0;
                put_prefixes(k, now, column, Config::kHasInitial || part > 0,
                             before_part(k)[column].nodes.before(place / kParts, precedes, found.carry));
            }
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kBatch; ++i) stage(k + i).sought.arrive();
        }
    }

    // Computes what precedes each unit of a part, from what precedes the first of them, if anything does.
    CUSCAN_DEVICE void put_prefixes(uint32 k, const Turn& now, int column, bool precedes, const Carry& carry) {
        typename Layout::Units units;
        CUSCAN_UNROLL
        for (uint32 i = 0; i < kBatch; ++i) {
            State& of_tile = stage(k + i).column[column];
            if constexpr (Layout::kManyUnits) {
                const Carry own = convert<Carry>(of_tile);
                const Carry before = units.before(i, precedes, carry);
                of_tile = convert<State>(before);
                if (Element::kCarriesOut && now.unit + i == last_tile()) before_part(k)[column].last = before;
                units.push(i, own);
            } else {
                of_tile = convert<State>(carry);
                if (Element::kCarriesOut && now.unit + i == last_tile()) before_part(k)[column].last = carry;
            }
        }
    }

    CUSCAN_DEVICE void run_store(int warp) {
        for (uint32 k = 0;; k += kBatch) {
            int slice = warp;
            CUSCAN_NO_UNROLL
            for (uint32 i = 0; i < kBatch; ++i, slice -= kShareSlices) {
                Stage& stage = this->stage(k + i);
                stage.folded.wait(phase(k + i));
                const Turn now = stage.turn;
                if (!now.exists) return;
                const Tile tile = this->tile(now);
                stage.sought.wait(phase(k + i));
                CUSCAN_NO_UNROLL
                for (; slice < kShareSlices; slice += kStoreWarps) {
                    const Share share = this->share(slice);
                    if (share.exists && share.row() < tile.rows &&
                        (Element::kStores || tile.position + tile.rows == geometry.axis.size))
                        finish(stage, tile, now.unit, share, before_part(k)[share.column].last);
                }
                target::fence_before_copies();
                stage.finished.arrive();
            }
        }
    }
    CUSCAN_DEVICE void finish(Stage& stage, const Tile& tile, uint32 number, const Share& share,
                              const Carry& last) const {
        const int column = share.column;
        const bool has_prefix = Config::kHasInitial || number >= kTiles;
        const bool has_before = number % kTiles > 0 || (kShares > 1 && share.number > 0);
        const State prefix = stage.column[column], before = stage.before[share.number][column];
        typename Layout::Runs runs;
        Run run, next;
        read(stage, tile, share.row(), column, run);
        CUSCAN_UNROLL
        for (int r = 0; r < Layout::kRuns; ++r, run = next) {
            if (r + 1 < Layout::kRuns)
                read(stage, tile, share.row() + (r + 1) * kSteps, column, next);  // loads wait for earlier stores
            Running<Config> running;
            const bool is_first = r == 0 && !has_before;  // the first run of the unit
            running.present = has_prefix || !is_first;
            running.value = is_first ? prefix : join<Op>(has_prefix, prefix, runs.before(r, has_before, before));
            if constexpr (Element::kCarriesOut) {
                const int64 end = geometry.axis.size - 1 - tile.position - share.row() - r * kSteps;
                if (end >= 0 && end < kSteps) {
                    State sum = is_first ? State{} : runs.before(r, has_before, before);
                    CUSCAN_UNROLL
                    for (int s = 0; s < kSteps; ++s)
                        if (s <= end) sum = join<Op>(!is_first || s > 0, sum, run.get(s, 0, s));
                    Row<Config> here = tile.at;
                    here.advance(geometry.column, column);
                    Element::store_carry(geometry, here, tile.position, has_prefix, last, sum);
                }
            }
            if (r + 1 < Layout::kRuns) runs.push(r, total(run));
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps && Element::kStores; ++s) {
                const int row = share.row() + r * kSteps + s;
                const auto state = running.step(run.get(s, 0, s), run.segment_started);
                *tile.template item<Result>(stage, row, column) =
                    convert<Result>(Config::Op::lower(state, Number<0>()));
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
        for (uint32 k = 0;; k += kBatch) {
            CUSCAN_UNROLL
            for (uint32 i = 0; i < kBatch; ++i) {
                Stage& stage = this->stage(k + i);
                stage.folded.wait(phase(k + i));
                const Turn now = stage.turn;
                if (!now.exists) return;
                const Tile tile = this->tile(now);
                stage.finished.wait(phase(k + i));
                if constexpr (Element::kStores) {
                    store(stage, tile);
                    target::wait_for_bulk_stores();
                }
                stage.free.arrive();
            }
        }
    }
    // Stores whole pieces in bulk. Other tiles have a part of the pieces at either end; elements there are stored one
    // by one.
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
        if (lane() == 0 && last > first)
            target::store_in_bulk(stretch.memory + first, stage.data + first, last - first);
    }
};

template <class Config>
CUSCAN_DEVICE void whole_rows(Row<Config> origin, Workspace* workspace,
                              const typename Elements<Config>::Initial& initial, const Geometry<Config>& geometry) {
    static_assert(sizeof(WholeRowsShared<Config>) <= Config::kSharedBytes,
                  "planning/whole_rows.py must ask for more shared memory");
    using Kernel = WholeRows<Config>;
    Kernel kernel{target::shared_memory<WholeRowsShared<Config>>(), origin, workspace, initial, geometry};
    int warp = target::thread_index() / target::kWarp;
    if (warp == 0) {
        kernel.run_producer();
    } else if ((warp -= 1) < Kernel::kReduceWarps) {
        kernel.make_barriers(warp);
        target::barrier_sync<1>(Kernel::kThreads);
        kernel.run_reduce(warp);
    } else {
        target::barrier_sync<1>(Kernel::kThreads);
        if ((warp -= Kernel::kReduceWarps) < Kernel::kSlices)
            kernel.run_gatherer(warp);
        else if ((warp -= Kernel::kSlices) < Kernel::Layout::kLookBackWarps)
            kernel.run_look_back(warp);
        else if ((warp -= Kernel::Layout::kLookBackWarps) < Kernel::kStoreWarps)
            kernel.run_store(warp);
        else
            kernel.run_storer();
    }
    workspace->leave(kernel.shared.epoch, geometry.workspace_words);
}

}  // namespace cuscan
