// columns: the scanned axis is not the contiguous one. Neighbouring threads take neighbouring columns (kItems of them
// each), kSteps elements along the axis a thread; kChunks threads above each other make a unit of the chain. A block
// holds kPlaces units of one row, or, where a unit is a whole row, kPlaces rows. The order of the scan, per column: the
// steps of a thread one by one, the chunks of a unit by warp_inclusive_scan, the units through the chain.
#pragma once
#include "../chain.cuh"
#include "../elements.cuh"
#include "../tickets.cuh"

namespace cuscan {

template <class Config>
struct ColumnsLayout {
    static constexpr int kColumns = Config::kColumnThreads * Config::kItems;  // of a block
    static constexpr int kThreads = Config::kColumnThreads * Config::kChunks * Config::kPlaces;
    static constexpr int kUnit = Config::kChunks * Config::kSteps;
};

template <class Config>
struct ColumnsShared {
    typename Ticket<Config::kChained>::type ticket;
    // A thread's total and then its prefix, for each of its columns. One more than the columns, so that a warp that
    // reads along the chunks meets all banks.
    typename Config::Accumulator exchange[Config::kPlaces][Config::kChunks][ColumnsLayout<Config>::kColumns + 1];
};

// From the threads' totals to their prefixes, in place: a group of kChunks lanes takes kItems columns of a unit.
template <class Config>
CUSCAN_DEVICE void scan_chunks(ColumnsShared<Config>& shared, Workspace* workspace, const typename Config::Carry& initial,
                               uint64 chains, uint64 units, uint64 first_chain, uint32 first_unit) {
    using Accumulator = typename Config::Accumulator;
    using Carry = typename Config::Carry;
    using Op = typename Config::template Op<Accumulator>;
    constexpr int kItems = Config::kItems;
    const int chunk = target::thread_index() % Config::kChunks;
    const int group = target::thread_index() / Config::kChunks;
    const int column = group % Config::kColumnThreads * kItems;
    const int place = group / Config::kColumnThreads;
    const uint32 unit = first_unit + place;
    auto& line = shared.exchange[place][chunk];

    Accumulator inclusive[kItems], aggregate[kItems];
    Carry carry[kItems];
    CUSCAN_UNROLL
    for (int i = 0; i < kItems; ++i) {
        inclusive[i] = warp_inclusive_scan<Op, Config::kChunks>(line[column + i], chunk);
        carry[i] = initial;
    }
    bool has_carry = Config::kHasInitial;
    if constexpr (Config::kChained) {
        using CarryOp = typename Config::template Op<Carry>;
        Chains<Accumulator, Carry, CarryOp, Config::kLevels, kItems> chain(workspace, chains, units, first_chain + column);
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            aggregate[i] = target::broadcast(inclusive[i], target::kWarp - 1);
            if (chunk == 0 && unit < units) chain.publish(i, unit, aggregate[i]);
        }
        if (unit < units) has_carry = chain.prefix(unit, aggregate, has_carry, carry);
    }
    CUSCAN_UNROLL
    for (int i = 0; i < kItems; ++i) {
        const Accumulator prefix = convert<Accumulator>(carry[i]);
        const Accumulator exclusive = target::shuffle_up(inclusive[i], 1);
        line[column + i] = chunk > 0 ? join<Op>(has_carry, prefix, exclusive) : prefix;
    }
}

template <class Config>
CUSCAN_DEVICE void columns(Row<typename Config::Value, typename Config::Result> origin, Workspace* workspace,
                           const typename Config::Carry& initial, const Geometry<Config::kBatchDims>& geometry) {
    using Layout = ColumnsLayout<Config>;
    using Accumulator = typename Config::Accumulator;
    using Result = typename Config::Result;
    using Op = typename Config::template Op<Accumulator>;
    using Index = typename Ticket<Config::kChained>::type;
    constexpr int kItems = Config::kItems, kSteps = Config::kSteps;
    static_assert(sizeof(ColumnsShared<Config>) <= Config::kSharedBytes, "plan.py must ask for more shared memory");
    auto& shared = target::shared_memory<ColumnsShared<Config>>();
    const int thread = target::thread_index() % Config::kColumnThreads;
    const int chunk = target::thread_index() / Config::kColumnThreads % Config::kChunks;
    const int place = target::thread_index() / (Config::kColumnThreads * Config::kChunks);
    const Dimension axis = geometry.axis, across = geometry.column;
    const Index column_blocks = (across.size + Layout::kColumns - 1) / Layout::kColumns;
    const Index place_blocks =
        ((Config::kChained ? geometry.units : geometry.rows) + Config::kPlaces - 1) / Config::kPlaces;
    const uint64 tiles = (Config::kChained ? geometry.rows : 1) * place_blocks * column_blocks;
    const uint64 chains = geometry.rows * column_blocks * Layout::kColumns;

    Index ticket = first_ticket<Config::kChained>(shared, workspace);
    while (ticket < tiles) {
        const Index column_block = ticket % column_blocks;
        const Index at = ticket / column_blocks % place_blocks * Config::kPlaces + place;
        const uint64 row = Config::kChained ? ticket / column_blocks / place_blocks : at;
        const uint32 unit = Config::kChained ? uint32(at) : 0;
        const int64 first = int64(unit) * Layout::kUnit + chunk * kSteps;
        const int64 column = int64(column_block) * Layout::kColumns + thread * kItems;
        auto here = origin.at(geometry, row);
        here.advance(axis, first);
        here.value = advance<Config::kValueAccess>(here.value, across.value_stride, column);
        here.result = advance<Config::kResultAccess>(here.result, across.result_stride, column);
        here.mask = advance<Config::kMaskAccess>(here.mask, across.mask_stride, column);
        const int steps = row < geometry.rows ? clamp(axis.size - first, kSteps) : 0;
        const int width = clamp(across.size - column, kItems);
        auto count = [&](int s) { return s < steps ? width : 0; };

        // ---- load
        Items<Config, kSteps, kItems> items;
        items.clear();
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            items.raw[s] = load_vector<Config::kValueAccess, kItems>(here.value + s * axis.value_stride,
                                                                     across.value_stride, count(s));
            if constexpr (Config::kMaskAccess != Access::kNone)
                items.set_mask(s, load_vector<Config::kMaskAccess, kItems>(here.mask + s * axis.mask_stride,
                                                                           across.mask_stride, count(s)));
        }

        // ---- fold the steps; scan over chunks and units
        Running<Config> running[kItems];
        auto& line = shared.exchange[place][chunk];
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            Accumulator total = items.get(0, i);
            CUSCAN_UNROLL
            for (int s = 1; s < kSteps; ++s) total = Op::combine(total, items.get(s, i));
            line[thread * kItems + i] = total;
        }
        target::sync_block();
        if (target::thread_index() == 0) ticket = next_ticket<Config::kChained>(ticket, workspace);
        scan_chunks<Config>(shared, workspace, initial, chains, geometry.units,
                            (row * column_blocks + column_block) * Layout::kColumns, unit - place);
        if (target::thread_index() == 0) shared.ticket = ticket;
        target::sync_block();
        ticket = shared.ticket;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            running[i].present = chunk > 0 || unit > 0 || Config::kHasInitial;
            running[i].value = line[thread * kItems + i];
        }

        // ---- store
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            Vector<Result, kItems> output;
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) output.item[i] = running[i].step(items.get(s, i));
            store_vector<Config::kResultAccess>(here.result + s * axis.result_stride, across.result_stride, count(s), output);
        }
    }
    leave<Config::kChained>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
