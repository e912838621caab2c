// panels: scans an axis that is not the contiguous one. A block works through tiles of neighbouring columns and some
// steps along the axis (panel_tile.cuh), which move to shared memory and back in pieces of 16 bytes, or in bulk,
// wherever rows begin. In between, every thread holds some columns of some steps in registers (panel_share.cuh);
// threads above each other exchange the totals of their steps. The order of the scan, per column: the steps of a run
// one by one, the runs of a unit in pairs, the units as in panel_carry.cuh.
//
// Either a tile has all steps of its columns; or a block takes the tiles of a panel one after another, and keeps the
// carry of the next one (kKept); or blocks share panels, and take chunks of some tiles by ticket (kGrid). In that case
// a block goes through the tiles of a chunk twice: for the totals of all rows of threads, which it combines once per
// chunk, and back again, from the cache, for the results. So the time that a total takes from block to block is short
// compared with that of a chunk. A stack is as many rows of threads as one warp scans at once. The next tile loads
// while the present one is finished, and the last warp of the block computes where the one after it lies.
#pragma once
#include "../panel_carry.cuh"
#include "../panel_share.cuh"

namespace cuscan {

template <class Config>
struct PanelShared {
    static constexpr int kTurns = 3;  // the tile before, the present one, and the next one, which loads
    target::Barrier arrived;
    uint32 epoch;        // epoch of the launch, where blocks share panels
    Row<Config> origin;  // a lane indexes it at run time, which registers do not allow
    PanelTurn<Config> turns[kTurns];
};
// The bytes that planning/panel_tile.py reserves for PanelShared.
constexpr int panel_header(int arrays, int tiled, bool gaps) {
    return 280 + 4 * 8 * arrays + 3 * (gaps ? 104 : 88) * tiled;
}

template <class Config>
struct Panels {
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using CarryOp = typename Element::CarryOp;
    using Share = PanelShare<Config>;
    using Place = PanelPlace<Config>;
    using Kept = KeptCarry<Config>;
    using Sought = SoughtCarry<Config>;
    static constexpr int kThreads = PanelTile<Config>::kThreads, kSlots = Config::kSlots, kPack = Config::kPack;
    static constexpr int kUnitRows = PanelTile<Config>::kUnitRows;
    static constexpr int kMany = Config::kMany < kUnitRows ? Config::kMany : kUnitRows;
    static constexpr int kLanes = kUnitRows / kMany;  // lanes that combine the totals of a unit
    // Up to so many rows of threads of a whole axis, one thread scans the totals of a column.
    static constexpr int kFewRows = 10;
    static constexpr bool kChain = Config::kKept || Config::kGrid;  // tiles may precede a tile
    // Whether threads test once whether their share is whole: branches around each slot would keep many slots of few
    // steps apart.
    static constexpr bool kTestsOnce = Share::kIsShort && (kSlots > kPack) && Element::kStores &&
                                       !Element::kCarriesOut && Config::Last::kAccess == Access::kNone &&
                                       !PanelTile<Config>::kOnWords;
    static_assert(!Share::kIsShort || !kChain, "an axis of fewer steps than a run lies in one tile");
    static constexpr bool kBulk = PanelTile<Config>::kBulk, kLastLoads = PanelTile<Config>::kLastLoads;

    char* const memory;
    PanelShared<Config>& shared;
    const PanelGeometry<Config>& geometry;
    const Row<Config>& origin;
    const typename Element::Initial& initial;
    Workspace* const workspace;
    const PanelTile<Config> tile;
    const int rows, apart;  // rows of threads; threads side by side
    const int row, column;  // row and column of this thread

    CUSCAN_DEVICE Panels(char* memory, const PanelGeometry<Config>& geometry, const typename Element::Initial& initial,
                         Workspace* workspace)
        : memory(memory),
          shared(*(PanelShared<Config>*)memory),
          geometry(geometry),
          origin(shared.origin),
          initial(initial),
          workspace(workspace),
          tile{geometry, origin, memory},
          rows(int(geometry.thread_rows)),
          apart(kThreads / rows),
          row(target::thread_index() / apart),
          column(target::thread_index() % apart) {}

    CUSCAN_DEVICE int width() const { return int(geometry.columns * geometry.outers); }  // width of a whole tile
    CUSCAN_DEVICE int height() const { return rows * Share::kLong; }
    CUSCAN_DEVICE PanelCarry<Config> carry() const {
        return {memory + geometry.kept, width(), int(geometry.levels),
                PanelTree{int(geometry.part_levels), int(geometry.unit_levels), int(geometry.chunk_levels)}};
    }
    // Where blocks share panels: the number of a tile in its chunk, and that of the chunk's first stack in the tree.
    CUSCAN_DEVICE int of_chunk(uint32 tile) const { return int(tile % uint32(geometry.chunk_tiles)); }
    CUSCAN_DEVICE uint32 first_stack(uint32 tile) const {
        return tile / uint32(geometry.chunk_tiles) << int(geometry.chunk_levels);
    }
    CUSCAN_DEVICE int chunk_rows() const { return int(geometry.stack_rows) << int(geometry.chunk_levels); }
    // The rows of threads whose totals are in shared memory, and that precede a tile's.
    CUSCAN_DEVICE int rows_before(uint32 tile) const { return Config::kGrid ? of_chunk(tile) * rows : 0; }
    // The rows of threads of a tile: the last one of a chunk may have fewer.
    CUSCAN_DEVICE int rows_of(uint32 tile) const {
        return Config::kGrid ? clamp(chunk_rows() - rows_before(tile), rows) : rows;
    }
    // The first step of a tile, and of the one after it.
    CUSCAN_DEVICE int64 position(uint32 tile) const {
        if (!Config::kGrid) return int64(tile) * height();
        return (int64(tile / uint32(geometry.chunk_tiles)) * chunk_rows() + rows_before(tile)) * Share::kLong;
    }
    CUSCAN_DEVICE int64 end(uint32 tile) const { return position(tile) + rows_of(tile) * Share::kLong; }

    // Calls load(number, operand) for each array that a tile loads, and returns the sum of what that returns.
    template <class Load>
    static CUSCAN_DEVICE uint32 each_loaded(Load load) {
        using Numbers = Arrays<Config>;
        uint32 bytes = 0;
        for_each_value<Config>([&](auto k, auto operand) { bytes += load(k, operand); });
        if constexpr (Element::kMasked) bytes += load(Number<Numbers::kMask>(), typename Config::Mask());
        if constexpr (Config::kSegments == Segments::kReset || Config::kSegments == Segments::kKeys)
            bytes += load(Number<Numbers::kSegments>(), typename Config::SegmentOperand());
        return bytes;
    }
    CUSCAN_DEVICE void load(const PanelTurn<Config>& turn) {
        auto& arrived = shared.arrived;
        const uint32 bytes = each_loaded(
            [&](auto k, auto operand) { return tile.template load<decltype(k)::value>(operand, turn, arrived); });
        arrived.arrive_loaded();
        if constexpr (kBulk)
            arrived.expect(bytes);  // and arrives for the elements that this thread has stored itself
        else
            arrived.arrive();
    }
    // The same by the last warp, for what it loads.
    CUSCAN_DEVICE void load_few(const PanelTurn<Config>& turn) {
        auto& arrived = shared.arrived;
        arrived.expect(
            each_loaded([&](auto k, auto) { return tile.template load_few<decltype(k)::value>(turn, arrived); }));
    }

    // The total of a thread's steps, for the threads above and below it.
    CUSCAN_DEVICE State& total(int of_row, int of_column) const {
        return ((State*)(memory + geometry.exchange))[of_row * (width() | 1) + of_column];
    }
    // The initial carry of a column of a tile.
    CUSCAN_DEVICE Carry start(const Place& place, int of_column) const {
        return Element::start(geometry, tile.row(place, of_column), initial);
    }
    // The totals of a stack of rows of threads in a column, from row `first` on. A lane takes kMany rows; neighbouring
    // lanes, those of a unit first, take rows above each other. Called by whole warps.
    struct Stack {
        using Parts = PairedLanes<Op, kLanes, State>;
        using Units = PairedLanes<CarryOp, target::kWarp / kLanes, Carry, kLanes>;
        const int part, unit;
        const int column, first, count;  // of the rows that this lane takes
        Parts parts;
        Units units;

        CUSCAN_DEVICE Stack(const Panels& panels, int lane, int column, int first, int rows)
            : part(lane % kLanes),
              unit(lane / kLanes),
              column(column),
              first(first + lane * kMany),
              count(clamp(rows - lane * kMany, kMany)),
              parts(sum(panels), part, panels.lanes() < kLanes ? panels.lanes() : kLanes),
              units(convert<Carry>(parts.total), unit, panels.lanes() / kLanes) {}
        CUSCAN_DEVICE State sum(const Panels& panels) const {
            PairedFold<Op, levels_of(kMany), State> fold;
            State sum{};
            CUSCAN_UNROLL
            for (int i = 0; i < kMany; ++i)
                if (i < count) sum = fold.push(i, panels.total(first + i, column));
            return sum;
        }
        // Replaces totals by what precedes them in their unit; `left`, if `has_left`, precedes the first.
        CUSCAN_DEVICE void spread(const Panels& panels, bool has_left, const State& left) const {
            const State prefix = parts.left.before(part, has_left, left);
            PairedFold<Op, levels_of(kMany), State> before;
            CUSCAN_UNROLL
            for (int i = 0; i < kMany; ++i) {
                if (i >= count) break;
                const State own = panels.total(first + i, column);
                panels.total(first + i, column) = before.before(i, has_left || part > 0, prefix);
                before.push(i, own);
            }
        }
        // Computes what precedes each unit of the stack, after what precedes its first one, `begin`.
        CUSCAN_DEVICE void spread_units(const PanelCarry<Config>& carry, uint32 number, int begin) const {
            if (count > 0 && unit > 0 && part == 0)
                carry.before(column, begin + unit) =
                    units.left.before(unit, carry.has_before(number), carry.before(column, begin));
        }
    };
    CUSCAN_DEVICE int lanes() const { return 1 << int(geometry.lanes); }  // per column of a stack
    // Calls visit(Stack, its number, whether this lane is the first of an existing column) by all lanes of whole warps.
    // There are `all` rows of threads.
    template <class Visit>
    CUSCAN_DEVICE void each_stack(int columns, int all, Visit visit) const {
        const int most = int(geometry.stack_rows), stacks = Config::kGrid ? (all + most - 1) / most : 1;
        const int levels = int(geometry.lanes), exist = columns * stacks;
        const int threads = ((exist << levels) + target::kWarp - 1) / target::kWarp * target::kWarp;
        CUSCAN_NO_UNROLL
        for (int at = target::thread_index(); at < threads; at += kThreads) {
            const int lane = at & (lanes() - 1), index = at >> levels;
            const int number = Config::kGrid ? index / columns : 0, row = number * most;
            const Stack stack(*this, lane, index - number * columns, row, index < exist ? clamp(all - row, most) : 0);
            visit(stack, number, index < exist && lane == 0);
        }
    }
    // Called by all workers of a block that has a panel of its own, unless has_two_rows(): replaces the totals of a
    // tile's rows of threads by what precedes them in their units, and computes what precedes each unit.
    CUSCAN_DEVICE void scan_rows(const Turn& now, const Place& place) {
        if (!kChain && (kUnitRows <= kFewRows || rows <= kFewRows))  // a whole axis is at most a unit
            each_column(place.width(), [&](int column) { scan_column(column); });
        else
            scan_stacks(now, place);
        sync_workers();
    }
    // The same for a column of few rows, which nothing precedes. Reads a few totals at once, then overwrites them,
    // because a load waits for the stores before it.
    CUSCAN_DEVICE void scan_column(int column) const {
        constexpr int kAtATime = sizeof(State) > 8 ? 1 : sizeof(State) > 4 ? 2 : 5;
        PairedFold<Op, levels_of(2 * kFewRows - 1), State> above;
        CUSCAN_UNROLL
        for (int from = 0; from < kFewRows; from += kAtATime) {
            State own[kAtATime];
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i)
                if (from + i < rows) own[i] = total(from + i, column);
            CUSCAN_UNROLL
            for (int i = 0; i < kAtATime; ++i) {
                if (from + i >= rows) return;
                total(from + i, column) = above.before(from + i, false, State{});
                above.push(from + i, own[i]);
            }
        }
    }
    // The same for more rows, or where tiles precede the tile: lanes combine the totals of a column.
    CUSCAN_DEVICE void scan_stacks(const Turn& now, const Place& place) {
        each_stack(place.width(), rows, [&](const Stack& stack, int, bool is_first) {
            State left{};
            if constexpr (kChain) {
                const Kept kept(carry());
                if (stack.count > 0) left = kept.left(now.unit, stack.column);
                target::sync_warp();
                if (is_first) {
                    kept.open(now.unit, stack.column, [&] { return start(place, stack.column); });
                    kept.close(now.unit, stack.column, stack.parts.total, stack.units.total);
                }
                target::sync_warp();
                if constexpr (Config::kUnits) stack.spread_units(kept, now.unit, 0);
            }
            stack.spread(*this, kChain && carry().tree.has_parts(now.unit), left);
        });
    }
    // Called by all workers of a block that shares panels, when the totals of a whole chunk are there: publishes that
    // of the chunk, unless it is the panel's last, and computes what precedes its rows of threads in their units, and
    // its units. Until then before() holds the totals of units; behind all units of the chunk it holds the totals of
    // stacks, if these have several units. The caller synchronises before it reads what this writes.
    CUSCAN_DEVICE void scan_chunk(const Turn& now, const Place& place) {
        const int all = rows_before(now.unit) + rows_of(now.unit), most = int(geometry.stack_rows),
                  stacks = (all + most - 1) / most;
        const int columns = place.width(), units = 1 << int(geometry.unit_levels);
        const int behind = units > 1 ? units << int(geometry.chunk_levels) : 0;
        const uint32 first = first_stack(now.unit);
        const bool is_last = now.unit + 1 == geometry.tiles;
        const bool has_results = Element::kStores || is_last;
        const Sought sought(carry(), table());
        sync_workers();
        each_stack(columns, all, [&](const Stack& stack, int number, bool is_first) {
            if (is_first) sought.before(stack.column, behind + number) = stack.units.total;
            if (!has_results) return;
            if (units > 1 && stack.count > 0 && stack.part == 0)
                sought.before(stack.column, number * units + stack.unit) = convert<Carry>(stack.parts.total);
            stack.spread(*this, false, State{});
        });
        seek(now, place, !is_last);
        sync_workers();
        if (!is_last) {
            each_column(columns, [&](int column) {
                for (int i = 0; i < stacks; ++i) {
                    const Carry total = sought.before(column, behind + i);
                    if (i + 1 < stacks)
                        sought.close(first + i, column, State{}, total);
                    else
                        sought.publish(first + i, chain(now) + column, column, total);
                }
            });
            if (!has_results) return;
            sync_workers();
            seek(now, place, false);
            sync_workers();
        }
        each_column(columns, [&](int column) {
            sought.open_chunk(first, column);
            for (int i = 0; i < stacks; ++i) {
                const Carry total = sought.before(column, behind + i);
                sought.begin(first + i, column, behind + i);
                if (i + 1 < stacks) sought.close(first + i, column, State{}, total);
            }
        });
        if (units == 1) return;
        sync_workers();
        scan_units(sought, now, columns, all, behind);
    }
    // Replaces the totals of units of a chunk with `all` rows of threads by what precedes them, after what precedes
    // their stacks, which lies from `behind` on. Each lane takes a unit; neighbouring lanes have those of a stack, of
    // which the last may lack some.
    CUSCAN_DEVICE void scan_units(const Sought& sought, const Turn& now, int columns, int all, int behind) const {
        const int levels = int(geometry.unit_levels), most = int(geometry.stack_rows);
        const int lanes = columns * ((all + most - 1) / most) << levels;
        CUSCAN_NO_UNROLL
        for (int at = target::thread_index(); at < round_up(lanes, target::kWarp); at += kThreads) {
            const int index = at >> levels, unit = at & ((1 << levels) - 1);
            const int stack = index / columns, column = index - stack * columns, number = (stack << levels) + unit;
            const bool exists = at < lanes && number * kUnitRows < all;
            Carry own{};
            if (exists) own = sought.before(column, number);
            const PairedLanes<CarryOp, target::kWarp / kLanes, Carry> units(own, unit, 1 << levels);
            if (exists)
                sought.before(column, number) = units.left.before(
                    unit, sought.has_before(first_stack(now.unit) + stack), sought.before(column, behind + stack));
        }
    }
    template <class Visit>
    static CUSCAN_DEVICE void each_column(int columns, Visit visit) {
        CUSCAN_NO_UNROLL
        for (int i = target::thread_index(); i < columns; i += kThreads) visit(i);
    }
    // Waits for totals of other blocks that precede the chunk; or, if `sums`, for those that are published with its
    // own.
    CUSCAN_DEVICE void seek(const Turn& now, const Place& place, bool sums) const {
        const Sought sought(carry(), table());
        const uint32 first = first_stack(now.unit), last = first + (1u << int(geometry.chunk_levels)) - 1;
        sought.seek(sums ? last : first, sums, chain(now), place.width(), target::thread_index(), kThreads,
                    [&](int column) { return start(place, column); });
    }
    CUSCAN_DEVICE uint64 chain(const Turn& now) const { return now.strip * width(); }  // chain of column 0
    CUSCAN_DEVICE TotalsTable<Carry> table() const {
        return {workspace->words(), geometry.number * width(), shared.epoch};
    }
    // Whether threads exchange totals. An axis of fewer steps than a run has one row of threads.
    CUSCAN_DEVICE bool exchanges() const { return Config::kGrid || (!Share::kIsShort && rows > 1); }
    // Whether a whole axis has two rows of threads: the total of the first one is all that precedes the second.
    CUSCAN_DEVICE bool has_two_rows() const { return !kChain && rows == 2; }
    CUSCAN_DEVICE bool ends_chunk(const Turn& now) const {
        return now.unit + 1 == geometry.tiles || of_chunk(now.unit + 1) == 0;
    }

    // Stores the results of a thread's columns that are side by side, from `slot` on. kWhole: see PanelShare::store.
    template <bool kWhole>
    CUSCAN_DEVICE void finish(Share& share, const Turn& now, const Place& place, int slot) {
        if (!kWhole && !share.exists(slot)) return;
        const int row_of_chunk = rows_before(now.unit) + row, unit = row_of_chunk / kUnitRows;
        const uint32 number = Config::kGrid ? first_stack(now.unit) : now.unit;
        const bool has_left = row_of_chunk % kUnitRows > 0 || (Config::kKept && carry().tree.has_parts(number));
        const bool has_before = Config::kHasInitial || (kChain && (unit > 0 || carry().has_before(number)));
        State before[kPack]{}, left[kPack]{};
        CUSCAN_UNROLL
        for (int j = 0; j < kPack; ++j) {
            const int of_column = kWhole ? share.existing_column_of(slot + j) : share.column_of(slot + j);
            Carry of_unit{};
            if (exchanges() && has_left) left[j] = total(has_two_rows() ? 0 : row_of_chunk, of_column);
            if constexpr (kChain) {
                const Kept carry(this->carry());
                if (!exchanges()) {
                    left[j] = carry.left(now.unit, of_column);
                    carry.open(now.unit, of_column, [&] { return start(place, of_column); });
                    const State total = share.total(slot + j);
                    carry.close(now.unit, of_column, total, convert<Carry>(total));
                }
                of_unit = carry.before(of_column, unit);
            } else if constexpr (Config::kHasInitial) {
                of_unit = start(place, of_column);
            }
            if constexpr (Element::kCarriesOut)
                share.sum_to_end(slot + j, has_left, left[j], [&](const State& rest) {
                    Element::store_carry(geometry, tile.row(place, of_column), place.position, has_before, of_unit,
                                         rest);
                });
            before[j] = convert<State>(of_unit);
        }
        if constexpr (Element::kStores) share.template store<kWhole>(slot, has_before, before, has_left, left);
    }
    // The same for all columns of a thread.
    CUSCAN_DEVICE void finish_all(Share& share, const Turn& now, const Place& place) {
        if constexpr (Element::kStores) share.locate_results();
        if (kTestsOnce && share.exists(0) && share.is_whole()) {
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; i += kPack) finish<kTestsOnce>(share, now, place, i);
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; i += kPack) finish<false>(share, now, place, i);
        }
    }

    // Works through tiles in the order of `schedule`. The last warp computes where they lie, each while the one
    // before it loads, sends some of their copies, and synchronises with the other warps once per tile. It locates the
    // first one while the previous kernel ends, unless blocks take tickets.
    template <class Schedule>
    CUSCAN_DEVICE void run(Schedule schedule) {
        const bool finds = target::thread_index() >= kThreads;
        auto& turns = shared.turns;
        if constexpr (Config::kGrid) target::wait_for_previous_kernel();  // tickets may renew the workspace
        if (finds) {
            if (target::thread_index() == kThreads) schedule.first(turns[0]);
            target::sync_warp();
            if (turns[0].turn.exists) locate(nullptr, turns[0]);
        }
        target::sync_block();
        if constexpr (!Config::kGrid) {
            target::wait_for_previous_kernel();
            target::allow_next_kernel();
        }
        if (!finds && turns[0].turn.exists) load(turns[0]);
        if constexpr (kLastLoads)
            if (finds && turns[0].turn.exists) load_few(turns[0]);
        constexpr uint32 kTurns = PanelShared<Config>::kTurns;
        for (uint32 k = 0, loads = 0;; ++k) {
            const auto &now = turns[k % kTurns], &before = turns[(k + 2) % kTurns];
            auto& next = turns[(k + 1) % kTurns];
            if constexpr (Config::kGrid)
                if (!finds && k > 0 && before.sums && ends_chunk(before.turn)) scan_chunk(before.turn, before.place);
            if (!now.turn.exists) break;
            if (finds) {
                find_after(now, next, schedule);
                target::sync_block();
                if constexpr (kLastLoads)
                    if (next.turn.exists) load_few(next);
            } else {
                take(now, next, loads);
            }
        }
        if constexpr (kBulk) target::wait_for_bulk_stores();  // which read shared memory
    }
    static CUSCAN_DEVICE bool stays(const PanelTurn<Config>& turn) { return Config::kGrid && turn.stays; }
    // Called by all other warps: waits for a tile, scans it and stores its results, while the next one loads.
    CUSCAN_DEVICE void take(const PanelTurn<Config>& here, const PanelTurn<Config>& next, uint32& loads) {
        Share share(tile, here, row, column, apart);
        const bool is_in = row < rows_of(here.turn.unit);  // this thread is in one of the rows
        if (!stays(here)) shared.arrived.wait(loads++);
        if (is_in) share.read(initial);
        if constexpr (kBulk) target::wait_for_bulk_stores();
        target::sync_block();  // all threads have read this tile and stored the previous one: the next may load
        if (next.turn.exists && !stays(next)) load(next);
        if (Config::kGrid ? here.sums : exchanges()) {
            const int first = rows_before(here.turn.unit);
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; ++i)
                if (is_in && share.exists(i)) total(first + row, share.column_of(i)) = share.total(i);
            if constexpr (Config::kGrid) return;
            sync_workers();
            if constexpr (!Config::kGrid)
                if (!has_two_rows()) scan_rows(here.turn, here.place);
        }
        if (is_in) finish_all(share, here.turn, here.place);
        if constexpr (kBulk) target::fence_before_copies();
        sync_workers();  // all results are written
        for_each_result<Config>([&](auto k, auto operand) {
            if constexpr (Element::kStores)
                tile.template store<Arrays<Config>::kResults + decltype(k)::value>(operand, here);
        });
    }
    static CUSCAN_DEVICE void sync_workers() { target::barrier_sync<1>(kThreads); }

    // Called by one warp: one lane takes the next turn; then the lanes compute where arrays lie, and how they move.
    // Takes no ticket after the last tile.
    template <class Schedule>
    CUSCAN_DEVICE void find_after(const PanelTurn<Config>& before, PanelTurn<Config>& found, Schedule& schedule) const {
        if (target::thread_index() == kThreads) {
            found.turn.exists = before.turn.exists;
            if (before.turn.exists) schedule.next(before, found);
        }
        target::sync_warp();
        if (found.turn.exists) locate(&before, found);
    }
    // Computes where a tile lies, and how its arrays move. If it has the sizes of the tile before it, its pieces are
    // those of that tile, so many bytes further.
    CUSCAN_DEVICE void locate(const PanelTurn<Config>* before, PanelTurn<Config>& found) const {
        using Numbers = Arrays<Config>;
        const int lane = target::thread_index() % target::kWarp;
        const int64 position = this->position(found.turn.unit);
        const int height = int(end(found.turn.unit) - position);
        PanelSizes sizes;
        if (before && before->turn.strip == found.turn.strip) {
            sizes = before->place;
            const int64 steps = position - before->place.position;
            for (int a = lane; a < Numbers::kCount; a += target::kWarp)
                found.place.first.array[a] = before->place.first.array[a] + steps * geometry.axis.stride[a];
        } else {
            sizes = locate_panel(found, position);
        }
        sizes.steps = clamp(geometry.elements() - position, height);
        sizes.results = clamp(geometry.axis.size - position, height);
        if (lane == 0) {
            static_cast<PanelSizes&>(found.place) = sizes;
            found.place.position = position;
        }
        const bool is_alike = before && sizes == before->place;
        target::sync_warp();
        for (int a = lane; a < Numbers::kInitial; a += target::kWarp) {
            if (!tile.is_staged(a)) continue;
            if (is_alike) {
                const int64 bytes = found.place.first.array[a] - before->place.first.array[a];
                found.pieces[a] = tile.moved(before->pieces[a], a, bytes);
            } else {
                found.pieces[a] = tile.pieces(found.place, a);
            }
        }
    }
    // Computes the addresses of a tile that begins at `position` in a panel, and its sizes, but not those along the
    // axis.
    CUSCAN_DEVICE PanelSizes locate_panel(PanelTurn<Config>& found, int64 position) const {
        using Numbers = Arrays<Config>;
        const Divided batch(found.turn.strip, geometry.panels * geometry.blocks);
        const InPlane in(uint32(batch.rest), uint32(geometry.panels), uint32(geometry.blocks),
                         uint32(geometry.abreast));
        const int64 outer = in.block * geometry.outers, at = in.panel * geometry.columns;
        for (int a = target::thread_index() % target::kWarp; a < Numbers::kCount; a += target::kWarp) {
            char* first = origin.array[a] + outer * geometry.batch[0].stride[a] + at * geometry.column.stride[a] +
                          in.panel * geometry.gaps_before(int(geometry.columns)) * geometry.gap(a) +
                          position * geometry.axis.stride[a];
            uint64 rest = batch.whole;
            CUSCAN_UNROLL
            for (int d = 1; d < Config::kBatchDims; ++d) {
                const Divided of(rest, geometry.batch[d].size);
                first += of.rest * geometry.batch[d].stride[a];
                rest = of.whole;
            }
            found.place.first.array[a] = first;
        }
        PanelSizes sizes{};
        sizes.columns = clamp(geometry.column.size - at, int(geometry.columns));
        sizes.outers = clamp(geometry.batch[0].size - outer, int(geometry.outers));
        const bool is_last = at + geometry.columns >= geometry.column.size;
        sizes.lacking = PanelTile<Config>::kOnWords && is_last ? int(geometry.lacking) : 0;
        sizes.reciprocal = (1u << PanelSizes::kReciprocalBits) / sizes.columns + 1;
        return sizes;
    }
    // The panel across all columns, and the block of rows of the batch, for a number below the product of both counts,
    // which fits in 32 bits. Blocks of rows follow each other along `abreast` panels, so that blocks at work have
    // neighbours on all sides.
    struct InPlane {
        int64 panel, block;

        CUSCAN_DEVICE InPlane(uint32 number, uint32 panels, uint32 blocks, uint32 abreast) {
            const uint32 group = abreast * blocks, first = number / group * abreast, of_group = number % group;
            const uint32 side_by_side = panels - first < abreast ? panels - first : abreast;
            panel = first + of_group % side_by_side, block = of_group / side_by_side;
        }
    };
    // Divides in 32 bits where both numbers fit, which is nearly always.
    struct Divided {
        uint64 whole, rest;

        CUSCAN_DEVICE Divided(uint64 number, uint64 by) {
            whole = (number | by) >> 32 ? number / by : uint32(number) / uint32(by);
            rest = number - whole * by;
        }
    };

    // Schedule of a block that takes whole panels.
    struct Own {
        uint64 panels;
        uint32 tiles;  // tiles of a panel

        CUSCAN_DEVICE void first(PanelTurn<Config>& found) const { begin(found, target::block_index()); }
        CUSCAN_DEVICE void next(const PanelTurn<Config>& before, PanelTurn<Config>& found) const {
            if (before.turn.unit + 1 < tiles)
                found.turn = {true, before.turn.strip, before.turn.unit + 1};
            else
                begin(found, before.turn.strip + target::block_count());
        }

    private:
        CUSCAN_DEVICE void begin(PanelTurn<Config>& found, uint64 strip) const {
            found.turn = {strip < panels, strip, 0};
        }
    };
    // Schedule of a block that shares panels, by chunks. A chunk comes twice, for totals and for results; once, if only
    // carries are wanted and it is not the last one of its panel. For results its tiles come from last to first: the
    // last one is still in shared memory.
    struct Chunks {
        SharedStrips chunks;
        uint32 tiles, size;  // tiles of a panel; of a chunk

        CUSCAN_DEVICE void first(PanelTurn<Config>& found) { begin(found, chunks.first()); }
        CUSCAN_DEVICE void next(const PanelTurn<Config>& before, PanelTurn<Config>& found) {
            const Turn& now = before.turn;
            const bool is_last = now.unit + 1 == tiles;
            if (before.sums && !is_last && (now.unit + 1) % size != 0)
                set(found, {true, now.strip, now.unit + 1}, true, false);
            else if (before.sums && (Element::kStores || is_last))
                set(found, now, false, true);
            else if (!before.sums && now.unit % size != 0)
                set(found, {true, now.strip, now.unit - 1}, false, false);
            else
                begin(found, chunks.next());
        }

    private:
        CUSCAN_DEVICE void begin(PanelTurn<Config>& found, const Turn& chunk) const {
            set(found, {chunk.exists, chunk.strip, chunk.unit * size}, true, false);
        }
        static CUSCAN_DEVICE void set(PanelTurn<Config>& found, const Turn& turn, bool sums, bool stays) {
            found.turn = turn, found.sums = sums, found.stays = stays;
        }
    };
};

template <class Config>
CUSCAN_DEVICE void panels(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                          const PanelGeometry<Config>& geometry) {
    using Kernel = Panels<Config>;
    static_assert(sizeof(PanelShared<Config>) <=
                  panel_header(Arrays<Config>::kCount, Arrays<Config>::kInitial, Config::kGaps));
    struct alignas(target::kLine) Shared {
        char bytes[Config::kSharedBytes];
    };
    Kernel kernel(target::shared_memory<Shared>().bytes, geometry, initial, workspace);
    auto& shared = kernel.shared;
    const bool takes_turns = target::thread_index() == Kernel::kThreads;  // the first lane of the last warp
    if (takes_turns) {
        shared.origin = origin;
        shared.arrived.init(2 * Kernel::kThreads + (Kernel::kLastLoads ? target::kWarp : 0));
        target::fence_after_init();
    }
    if constexpr (Config::kGrid) {
        const uint32 tiles = uint32(geometry.tiles), size = uint32(geometry.chunk_tiles);
        SharedStrips chunks(workspace, geometry.number, (tiles - 1) / size + 1, geometry.workspace_words, true);
        if (takes_turns) {
            chunks.open();
            shared.epoch = chunks.epoch();
        }
        kernel.run(typename Kernel::Chunks{chunks, tiles, size});
        workspace->allow_next_kernel(shared.epoch);
        workspace->leave(shared.epoch, geometry.workspace_words);
    } else {
        kernel.run(typename Kernel::Own{geometry.number, uint32(geometry.tiles)});
    }
}

}  // namespace cuscan
