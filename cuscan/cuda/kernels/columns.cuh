// columns: the scanned axis is not the contiguous one. Neighbouring threads take neighbouring columns (kItems of them
// each), kSteps elements along the axis a thread; kChunks threads above each other make a unit. The order of the scan, per
// column: the steps of a thread one by one, the chunks of a unit by warp_inclusive_scan, the units along the chain.
//
// A strip is as many columns as a block has side by side. A block holds kPlaces units at a time: of different rows, or,
// where many blocks share a strip (schedule.cuh), consecutive ones of one row.
#pragma once
#include "../block_chain.cuh"
#include "../elements.cuh"
#include "../grid_chain.cuh"
#include "../schedule.cuh"

namespace cuscan {

template <class Config>
struct ColumnsShared {
    uint32 ticket;
    // A thread's total and then its prefix, for each of its columns. One more than the columns, so that a warp that
    // reads along the chunks meets all banks.
    typename Config::Accumulator exchange[Config::kPlaces][Config::kChunks][Config::kColumnThreads * Config::kItems + 1];
};

template <class Config>
struct Columns {
    static constexpr int kItems = Config::kItems, kSteps = Config::kSteps, kPlaces = Config::kPlaces;
    static constexpr int kWidth = Config::kColumnThreads * kItems;  // columns of a strip
    static constexpr int kUnit = Config::kChunks * kSteps;
    using Value = typename Config::Value;
    using Result = typename Config::Result;
    using Accumulator = typename Config::Accumulator;
    using Carry = typename Config::Carry;
    using Op = typename Config::template Op<Accumulator>;
    using CarryOp = typename Config::template Op<Carry>;
    static_assert(Config::kLevels == 0 || Config::kChunks == target::kWarp, "a unit of a chain is 32 chunks");

    // A thread's elements of a unit.
    struct Share {
        Result* result;    // of the first
        int steps, width;  // how many exist
        Items<Config, kSteps, kItems> items;
    };

    ColumnsShared<Config>& shared;
    const Row<Value, Result>& origin;
    Workspace* workspace;
    const Carry& initial;
    const Geometry<Config::kBatchDims>& geometry;
    const int thread, chunk, place;  // of the columns, of the steps, of the units of this block
    BlockChains<Accumulator, Carry, CarryOp, Config::kLevels, kItems> block_chain;

    CUSCAN_DEVICE uint32 side_by_side() const { return uint32((geometry.column.size + kWidth - 1) / kWidth); }  // strips
    CUSCAN_DEVICE Turn turn(uint32 number) const {
        const uint64 row_blocks = Config::kGrid ? geometry.rows : (geometry.rows + kPlaces - 1) / kPlaces;
        const uint64 turns = Config::kGrid ? (geometry.units + kPlaces - 1) / kPlaces : geometry.units;
        const Schedule<Config::kGrid> schedule{row_blocks * side_by_side(), uint32(turns), side_by_side()};
        return schedule.turn(number);
    }
    CUSCAN_DEVICE uint64 row(const Turn& turn, int at_place) const {
        const uint64 row_block = turn.strip / side_by_side();
        return Config::kGrid ? row_block : row_block * kPlaces + at_place;
    }
    static CUSCAN_DEVICE uint32 unit(const Turn& turn, int at_place) {
        return Config::kGrid ? turn.unit * kPlaces + at_place : turn.unit;
    }

    CUSCAN_DEVICE void load(const Turn& turn, Share& share) const {
        const Dimension& axis = geometry.axis;
        const Dimension& across = geometry.column;
        const uint64 row_index = row(turn, place);
        const int64 first = int64(unit(turn, place)) * kUnit + chunk * kSteps;
        const int64 column = int64(turn.strip % side_by_side()) * kWidth + thread * kItems;
        Row<Value, Result> at = origin.at(geometry, row_index);
        at.advance(axis, first);
        at.value = advance<Config::kValueAccess>(at.value, across.value_stride, column);
        at.mask = advance<Config::kMaskAccess>(at.mask, across.mask_stride, column);
        share.result = advance<Config::kResultAccess>(at.result, across.result_stride, column);
        share.width = clamp(across.size - column, kItems);
        share.steps = row_index < geometry.rows && share.width > 0 ? clamp(axis.size - first, kSteps) : 0;
        if (share.steps == kSteps && share.width == kItems)
            load_steps(at, share, [](int) { return kItems; });
        else
            load_steps(at, share, [&](int s) { return s < share.steps ? share.width : 0; });
    }
    template <class Count>
    CUSCAN_DEVICE void load_steps(const Row<Value, Result>& at, Share& share, Count count) const {
        share.items.clear();
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            share.items.raw[s] = load_vector<Config::kValueAccess, kItems>(at.value + s * geometry.axis.value_stride,
                                                                           geometry.column.value_stride, count(s));
            if constexpr (Config::kMaskAccess != Access::kNone)
                share.items.set_mask(s, load_vector<Config::kMaskAccess, kItems>(at.mask + s * geometry.axis.mask_stride,
                                                                                 geometry.column.mask_stride, count(s)));
        }
    }

    // The totals of the thread's columns, for scan_chunks.
    CUSCAN_DEVICE void fold_steps(const Share& share) {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            Accumulator total = share.items.get(0, i);
            CUSCAN_UNROLL
            for (int s = 1; s < kSteps; ++s) total = Op::combine(total, share.items.get(s, i));
            shared.exchange[place][chunk][thread * kItems + i] = total;
        }
    }

    // From totals to prefixes, in place. The threads are regrouped: kChunks lanes take kItems columns of a unit.
    CUSCAN_DEVICE void scan_chunks(const Turn& turn) {
        const int my_chunk = target::thread_index() % Config::kChunks, group = target::thread_index() / Config::kChunks;
        const int my_column = group % Config::kColumnThreads * kItems, my_place = group / Config::kColumnThreads;
        auto& line = shared.exchange[my_place][my_chunk];

        Accumulator inclusive[kItems], aggregate[kItems];
        Carry carry[kItems];
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            inclusive[i] = warp_inclusive_scan<Op, Config::kChunks>(line[my_column + i], my_chunk);
            carry[i] = initial;
            if constexpr (Config::kLevels > 0) aggregate[i] = target::broadcast(inclusive[i], target::kWarp - 1);
        }
        bool has_carry = Config::kHasInitial;
        const uint32 my_unit = unit(turn, my_place);
        if constexpr (Config::kGrid) {
            if (my_unit < geometry.units) {
                GridChains<Accumulator, Carry, CarryOp, Config::kLevels, kItems> chain(
                    workspace, geometry.rows * side_by_side() * kWidth, geometry.units, turn.strip * kWidth + my_column);
                CUSCAN_UNROLL
                for (int i = 0; i < kItems; ++i)
                    if (my_chunk == 0) chain.publish(i, my_unit, aggregate[i]);
                has_carry = chain.prefix(my_unit, aggregate, has_carry, carry);
            }
        } else if constexpr (Config::kLevels > 0) {
            has_carry = block_chain.prefix(my_unit, aggregate, has_carry, carry);
        }
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            const Accumulator prefix = convert<Accumulator>(carry[i]);
            const Accumulator exclusive = target::shuffle_up(inclusive[i], 1);
            line[my_column + i] = my_chunk > 0 ? join<Op>(has_carry, prefix, exclusive) : prefix;
        }
    }

    CUSCAN_DEVICE void store(const Turn& turn, const Share& share) const {
        Running<Config> running[kItems];
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            running[i].present = chunk > 0 || unit(turn, place) > 0 || Config::kHasInitial;
            running[i].value = shared.exchange[place][chunk][thread * kItems + i];
        }
        if (share.steps == kSteps && share.width == kItems)
            store_steps(share, running, [](int) { return kItems; });
        else
            store_steps(share, running, [&](int s) { return s < share.steps ? share.width : 0; });
    }
    template <class Count>
    CUSCAN_DEVICE void store_steps(const Share& share, Running<Config> (&running)[kItems], Count count) const {
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            Vector<Result, kItems> output;
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) output.item[i] = running[i].step(share.items.get(s, i));
            store_vector<Config::kResultAccess>(share.result + s * geometry.axis.result_stride,
                                                geometry.column.result_stride, count(s), output);
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
            fold_steps(share);
            target::sync_block();
            scan_chunks(now);
            target::sync_block();
            store(now, share);
            now = next;
            share = next_share;
        }
    }

    // Blocks that share strips. A ticket is taken when the block is ready for it: a tile that is only waiting for its
    // turn would hold up all that come after it.
    CUSCAN_DEVICE void run_tickets() {
        const bool leader = target::thread_index() == 0;
        if (leader) shared.ticket = target::atomic_increment(&workspace->ticket);
        target::sync_block();
        for (Turn now = turn(shared.ticket); now.exists; now = turn(shared.ticket)) {
            Share share;
            load(now, share);
            fold_steps(share);
            target::sync_block();
            scan_chunks(now);
            if (leader) shared.ticket = target::atomic_increment(&workspace->ticket);
            target::sync_block();
            store(now, share);
        }
    }
};

template <class Config>
CUSCAN_DEVICE void columns(Row<typename Config::Value, typename Config::Result> origin, Workspace* workspace,
                           const typename Config::Carry& initial, const Geometry<Config::kBatchDims>& geometry) {
    static_assert(sizeof(ColumnsShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    auto& shared = target::shared_memory<ColumnsShared<Config>>();
    const int thread = target::thread_index() % Config::kColumnThreads;
    const int chunk = target::thread_index() / Config::kColumnThreads % Config::kChunks;
    const int place = target::thread_index() / (Config::kColumnThreads * Config::kChunks);
    Columns<Config> kernel{shared, origin, workspace, initial, geometry, thread, chunk, place, {}};
    if constexpr (Config::kGrid)
        kernel.run_tickets();
    else
        kernel.run_strips();
    leave<Config::kGrid>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
