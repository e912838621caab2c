// columns: the scanned axis is not the contiguous one. Neighbouring threads take neighbouring columns (kItems of them
// each), kSteps elements along the axis a thread; kChunks threads above each other make a unit. The order of the scan, per
// column: the steps of a thread one by one, the chunks of a unit in pairs, the units as column_chain.cuh has it.
//
// A strip is as many columns as a block has side by side. A block holds kPlaces units at a time: of different rows, or,
// where many blocks share a strip (schedule.cuh), consecutive ones of one row.
#pragma once
#include "../column_chain.cuh"
#include "../column_share.cuh"
#include "../schedule.cuh"

namespace cuscan {

// Of a column whose last element is in the present unit: what precedes that, and the chunks before the element's.
template <class State, class Carry>
struct ColumnEnd {
    Carry before;
    State chunks;
};

template <class Config>
struct ColumnsShared
    : Behind<Elements<Config>::kCarriesOut, ColumnEnd<typename Elements<Config>::State, typename Elements<Config>::Carry>,
             Config::kPlaces * Config::kColumnThreads * Config::kItems> {
    Turn turn;
    uint32 tag;  // of the launch, where blocks share strips
    // A thread's total and then its prefix, for each of its columns. One more than the columns, so that a warp that
    // reads along the chunks meets all banks.
    typename Elements<Config>::State exchange[Config::kPlaces][Config::kChunks][Config::kColumnThreads * Config::kItems + 1];
    // Of each column: what precedes the next unit, or where a walk is.
    using Carry = typename Elements<Config>::Carry;
    using CarryOp = typename Elements<Config>::CarryOp;
    using Units = SectionCarry<Carry, CarryOp, 1, Config::kHasInitial>;
    struct OwnPlace {
        typename Units::Sections sections;
        Units units;
    };
    using Place = typename Choose<Config::kGrid, ColumnPlace<Carry, CarryOp, Config::kHasInitial>, OwnPlace>::Type;
    static constexpr bool kChain = Config::kLevels > 0;
    Place column[kChain ? Config::kPlaces : 1][kChain ? Config::kColumnThreads * Config::kItems : 1];
};

template <class Config>
struct Columns {
    static constexpr int kItems = Config::kItems, kSteps = Config::kSteps, kPlaces = Config::kPlaces;
    static constexpr int kWidth = Config::kColumnThreads * kItems;  // columns of a strip
    static constexpr int kUnit = Config::kChunks * kSteps;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using CarryOp = typename Element::CarryOp;
    using Share = ColumnShare<Config>;
    using Pairs = PairedLanes<Op, Config::kChunks, State>;
    using Totals = State[kItems];
    using Carries = Carry[kItems];
    static_assert(Config::kLevels == 0 || Config::kChunks == target::kWarp, "a unit of a chain is 32 chunks");

    ColumnsShared<Config>& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;
    const int thread, chunk, place;  // of the columns, of the steps, of the units of this block

    CUSCAN_DEVICE uint32 side_by_side() const { return uint32((geometry.column.size + kWidth - 1) / kWidth); }  // strips
    // The block's turn number k, of strips of its own.
    CUSCAN_DEVICE Turn turn(uint32 k) const {
        const uint64 row_blocks = (geometry.rows + kPlaces - 1) / kPlaces;
        return Schedule{row_blocks * side_by_side(), uint32(geometry.units)}.turn(k);
    }
    CUSCAN_DEVICE uint64 row(const Turn& turn, int at_place) const {
        const uint64 row_block = turn.strip / side_by_side();
        return Config::kGrid ? row_block : row_block * kPlaces + at_place;
    }
    static CUSCAN_DEVICE uint32 unit(const Turn& turn, int at_place) {
        return Config::kGrid ? turn.unit * kPlaces + at_place : turn.unit;
    }

    CUSCAN_DEVICE int64 first_column(const Turn& turn) const { return int64(turn.strip % side_by_side()) * kWidth; }
    CUSCAN_DEVICE Row<Config> row_at(uint64 row) const { return origin.at(geometry, row < geometry.rows ? row : 0); }

    CUSCAN_DEVICE void load(const Turn& turn, Share& share) {
        const uint64 row_index = row(turn, place);
        const int64 first = int64(unit(turn, place)) * kUnit + chunk * kSteps;
        share.load(geometry, row_at(row_index), row_index < geometry.rows, first, first_column(turn) + thread * kItems,
                   initial);
    }

    // The totals of the thread's columns, for scan_chunks.
    CUSCAN_DEVICE void fold_steps(const Share& share) {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) shared.exchange[place][chunk][thread * kItems + i] = share.total(i);
    }

    // What column `at_column` of a strip starts from.
    CUSCAN_DEVICE Carry start(const Turn& turn, int at_place, int at_column) const {
        const int64 column = first_column(turn) + at_column;
        Row<Config> at = row_at(row(turn, at_place));
        at.advance(geometry.column, column < geometry.column.size ? column : 0);
        return Element::start(geometry, at, initial);
    }

    // From totals to prefixes, in place. The threads are regrouped: kChunks lanes take kItems columns of a unit. What
    // precedes that, find(turn, place, first column, unit, its totals, carries) says.
    template <class Find>
    CUSCAN_DEVICE void scan_chunks(const Turn& turn, Find find) {
        const int my_chunk = target::thread_index() % Config::kChunks, group = target::thread_index() / Config::kChunks;
        const int my_column = group % Config::kColumnThreads * kItems, my_place = group / Config::kColumnThreads;
        auto& line = shared.exchange[my_place][my_chunk];

        const uint32 my_unit = unit(turn, my_place);
        const bool has_prefix = Config::kHasInitial || my_unit > 0;
        State total[kItems], left[kItems];  // of the unit, and of the chunks before
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            const Pairs pairs(line[my_column + i], my_chunk);
            total[i] = pairs.total;
            left[i] = pairs.left.before(my_chunk, false, State{});
        }
        Carry carry[kItems];
        find(my_place, my_column, my_unit, total, carry);
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            const State prefix = convert<State>(carry[i]);
            line[my_column + i] = my_chunk > 0 ? join<Op>(has_prefix, prefix, left[i]) : prefix;
            if constexpr (Element::kCarriesOut) {
                const int64 last = geometry.elements() - 1 - int64(my_unit) * kUnit;
                if (last >= 0 && last < kUnit && my_chunk == int(last) / kSteps)
                    shared.behind[my_place * kWidth + my_column + i] = {carry[i], left[i]};
            }
        }
    }

    // The column of this lane where a warp has a unit of kItems columns: every kItems-th lane has the same; and its total.
    static CUSCAN_DEVICE int own() { return target::thread_index() % kItems; }
    static CUSCAN_DEVICE State own(const Totals& total) {
        State mine = total[0];
        CUSCAN_UNROLL
        for (int i = 1; i < kItems; ++i)
            if (i == own()) mine = total[i];
        return mine;
    }

    CUSCAN_DEVICE void store(const Turn& turn, const Share& share) const {
        if constexpr (Element::kCarriesOut) {
            const auto* const ends = shared.behind + place * kWidth + thread * kItems;
            share.sum_to_end(
                geometry, chunk > 0, [&](int i) { return ends[i].chunks; },
                [&](int i, const Row<Config>& here, const State& of_unit) {
                    const bool has_before = Config::kHasInitial || unit(turn, place) > 0;
                    Element::store_carry(geometry, here, share.first, has_before, ends[i].before, of_unit);
                });
        }
        if constexpr (Element::kStores) {
            Running<Config> running[kItems];
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) {
                running[i].present = chunk > 0 || unit(turn, place) > 0 || Config::kHasInitial;
                running[i].value = shared.exchange[place][chunk][thread * kItems + i];
            }
            share.store(geometry, running);
        }
    }

    // A block with strips of its own: the next unit is loaded while this one is scanned.
    CUSCAN_DEVICE void run_strips() {
        Share share, next_share;
        Turn now = turn(0);
        if (now.exists) load(now, share);
        for (uint32 k = 0; now.exists; ++k) {
            const Turn next = turn(k + 1);
            if (next.exists) load(next, next_share);
            auto find = [&](int my_place, int my_column, uint32 unit, const Totals& total, Carries& carry) {
                if constexpr (Config::kLevels == 0) {
                    CUSCAN_UNROLL
                    for (int i = 0; i < kItems; ++i) carry[i] = start(now, my_place, my_column + i);
                } else {
                    Carry before;
                    if (target::thread_index() % target::kWarp < kItems) {
                        auto& mine = shared.column[my_place][my_column + own()];
                        if (unit == 0) mine.units.begin(mine.sections, start(now, my_place, my_column + own()));
                        before = mine.units.before(unit);
                        mine.units.pass(mine.sections, unit, convert<Carry>(own(total)));
                    }
                    target::sync_warp();
                    CUSCAN_UNROLL
                    for (int i = 0; i < kItems; ++i) carry[i] = target::broadcast(before, i);
                }
            };
            fold_steps(share);
            target::sync_block();
            scan_chunks(now, find);
            target::sync_block();
            store(now, share);
            now = next;
            share = next_share;
        }
    }

    // Blocks that share strips. A ticket is taken when the block is ready for it: a tile that is only waiting for its
    // turn would hold up all that come after it.
    CUSCAN_DEVICE void run_tickets() {
        const uint64 strips = geometry.rows * side_by_side();
        const bool leader = target::thread_index() == 0;
        SharedStrips schedule(workspace, strips, uint32((geometry.units + kPlaces - 1) / kPlaces), geometry.workspace_words);
        if (leader) {
            schedule.open();
            shared.turn = schedule.first();
            shared.tag = schedule.tag();
        }
        target::sync_block();
        ColumnTables<State, Carry> tables(workspace, shared.tag, strips, strips * kWidth, geometry.units);
        const int group = target::thread_index() / Config::kChunks;  // as scan_chunks has it
        ColumnWalk<State, Carry, CarryOp, kItems, Config::kHasInitial> walk(
            tables, &shared.column[group / Config::kColumnThreads][group % Config::kColumnThreads * kItems]);
        uint64 strip = ~uint64(0);
        for (Turn now = shared.turn; now.exists; now = shared.turn) {
            Share share;
            load(now, share);
            auto find = [&](int my_place, int my_column, uint32 unit, const Totals& total, Carries& carry) {
                if (unit >= geometry.units) return;
                const uint64 first_chain = now.strip * kWidth + my_column;
                if (strip != now.strip) walk.begin(first_chain, start(now, my_place, my_column + own()));
                strip = now.strip;
                const Carry found = walk.prefix(unit, own(total));
                CUSCAN_UNROLL
                for (int i = 0; i < kItems; ++i) carry[i] = target::broadcast(found, i);
            };
            fold_steps(share);
            target::sync_block();
            scan_chunks(now, find);
            if (leader) shared.turn = schedule.next();
            target::sync_block();
            store(now, share);
        }
        workspace->admit_successor(shared.tag);
        workspace->leave(shared.tag, geometry.workspace_words);
    }
};

template <class Config>
CUSCAN_DEVICE void columns(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                           const Geometry<Config>& geometry) {
    target::await_predecessors();
    if (!Config::kGrid) target::admit_successor();
    static_assert(sizeof(ColumnsShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    auto& shared = target::shared_memory<ColumnsShared<Config>>();
    const int thread = target::thread_index() % Config::kColumnThreads;
    const int chunk = target::thread_index() / Config::kColumnThreads % Config::kChunks;
    const int place = target::thread_index() / (Config::kColumnThreads * Config::kChunks);
    Columns<Config> kernel{shared, origin, workspace, initial, geometry, thread, chunk, place};
    if constexpr (Config::kGrid)
        kernel.run_tickets();
    else
        kernel.run_strips();
}

}  // namespace cuscan
