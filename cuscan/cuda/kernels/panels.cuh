// panels: the scanned axis is not the contiguous one. A block works through tiles of neighbouring columns and some steps
// along the axis (panel_tile.cuh): tiles come to shared memory and leave it in pieces of 16 bytes, wherever rows begin. In
// between every thread has some columns of some steps in registers (panel_share.cuh); threads above each other exchange what
// their steps add up to. The order of the scan, per column: the steps of a run one by one, the runs of a unit in pairs, the
// units as panel_carry.cuh has them.
//
// A tile has all steps of its columns; or a block takes the tiles of a panel one after the other, and keeps what precedes
// the next one (kKept); or blocks share panels, take tiles by ticket, and look up what precedes them (kGrid). The next tile
// is on its way while the present one is finished.
#pragma once
#include "../column_chain.cuh"
#include "../panel_carry.cuh"
#include "../panel_share.cuh"

namespace cuscan {

struct PanelShared {
    target::Barrier arrived;
    Turn turn;
    uint32 tag;  // of the launch, where blocks share panels
};

template <class Config>
struct Panels {
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using Share = PanelShare<Config>;
    using Place = PanelPlace<Config>;
    using Kept = KeptCarry<Config>;
    using LookedUp = LookedUpCarry<Config>;
    static constexpr int kThreads = Config::kThreads, kSlots = Config::kSlots;
    static constexpr bool kChain = Config::kKept || Config::kGrid;  // tiles precede tiles

    char* const memory;
    PanelShared& shared;
    const PanelGeometry<Config>& geometry;
    const Row<Config>& origin;
    const typename Element::Initial& initial;
    Workspace* const workspace;
    const PanelTile<Config> tile;
    const int rows, apart;  // of threads; threads side by side
    const int row, column;  // this thread's
    const bool is_in;       // it has columns

    CUSCAN_DEVICE Panels(char* memory, const PanelGeometry<Config>& geometry, const Row<Config>& origin,
                         const typename Element::Initial& initial, Workspace* workspace)
        : memory(memory),
          shared(*(PanelShared*)memory),
          geometry(geometry),
          origin(origin),
          initial(initial),
          workspace(workspace),
          tile{geometry, origin, memory},
          rows(int(geometry.thread_rows)),
          apart(kThreads / rows),
          row(target::thread_index() / apart),
          column(target::thread_index() % apart),
          is_in(row < rows) {}

    CUSCAN_DEVICE int width() const { return int(geometry.columns * geometry.outers); }  // of a whole tile
    CUSCAN_DEVICE int height() const { return rows * Share::kLong; }
    CUSCAN_DEVICE uint64 panels() const {
        return geometry.rows / uint64(geometry.batch[0].size) * uint64(geometry.blocks) * uint64(geometry.panels);
    }
    CUSCAN_DEVICE uint32 tiles() const { return uint32((geometry.axis.size + height() - 1) / height()); }  // of a panel
    CUSCAN_DEVICE PanelCarry<Config> carry() const {
        return {memory + geometry.kept, width(), int(geometry.levels), height()};
    }

    CUSCAN_DEVICE Place place(const Turn& turn) const {
        const uint64 block = turn.strip / uint64(geometry.panels), panel = turn.strip % uint64(geometry.panels);
        const int64 outer = int64(block % uint64(geometry.blocks)) * geometry.outers;
        const int64 at = int64(panel) * geometry.columns, position = int64(turn.unit) * height();
        Row<Config> first = origin.at(geometry, block / uint64(geometry.blocks) * uint64(geometry.batch[0].size) + outer);
        first.advance(geometry.column, at);
        first.advance(geometry.axis, position);
        return {first, position, clamp(geometry.column.size - at, int(geometry.columns)),
                clamp(geometry.batch[0].size - outer, int(geometry.outers))};
    }
    CUSCAN_DEVICE void load(const Place& place) {
        using Numbers = Arrays<Config>;
        auto& arrived = shared.arrived;
        for_each_value<Config>([&](auto k, auto port) { tile.template load<decltype(k)::value>(port, place, arrived); });
        if constexpr (Element::kMasked) tile.template load<Numbers::kMask>(typename Config::Mask(), place, arrived);
        if constexpr (Config::kSegments == Segments::kReset || Config::kSegments == Segments::kKeys)
            tile.template load<Numbers::kSegments>(typename Config::SegmentPort(), place, arrived);
        arrived.arrive_loaded();
        arrived.arrive();  // for the elements that it has stored itself
    }

    // What the steps of a thread add up to, for those above and below it.
    CUSCAN_DEVICE State& total(int of_row, int of_column) const {
        return ((State*)(memory + geometry.exchange))[of_row * (width() | 1) + of_column];
    }
    // What the columns of a tile start from.
    CUSCAN_DEVICE Carry start(const Place& place, int of_column) const {
        return Element::start(geometry, row_at(place, of_column), initial);
    }
    CUSCAN_DEVICE Row<Config> row_at(const Place& place, int of_column) const {
        Row<Config> here = place.first;
        here.advance(geometry.batch[0], of_column / int(geometry.columns));
        here.advance(geometry.column, of_column % int(geometry.columns));
        return here;
    }

    // From totals to what lies to the left of them in the unit, in place, and to what precedes the unit. As many lanes as
    // there are rows of threads, or more, have a column.
    CUSCAN_DEVICE void scan_rows(const Turn& now, const Place& place) {
        int lanes = 1;
        while (lanes < rows) lanes *= 2;
        const int columns = place.width(), all = (columns * lanes + target::kWarp - 1) / target::kWarp * target::kWarp;
        CUSCAN_NO_UNROLL
        for (int at = target::thread_index(); at < all; at += kThreads) {
            const int of_row = at % lanes, of_column = at / lanes;
            const bool exists = of_row < rows && of_column < columns;
            State own{}, left{};
            if (exists) own = total(of_row, of_column);
            const PairedLanes<Op, target::kWarp, State> paired(own, of_row, lanes);
            auto start = [&] { return this->start(place, of_column); };
            if constexpr (Config::kGrid) {
                const LookedUp before(carry(), table());
                before.find(now.unit, now.strip * width(), of_column, of_row, lanes, exists, paired.total, start);
                if (exists) left = before.left(now.unit, of_column);
            } else if constexpr (Config::kKept) {
                const Kept before(carry());
                if (exists) left = before.left(now.unit, of_column);
                target::sync_warp();
                if (exists && of_row == 0) {
                    before.open(now.unit, of_column, start);
                    before.close(now.unit, of_column, paired.total);
                }
            }
            if (exists) total(of_row, of_column) = paired.left.before(of_row, has_left(now), left);
        }
    }
    CUSCAN_DEVICE PanelTable<State, Carry> table() const {
        const uint64 panels = this->panels();
        return {workspace->words() + TotalsTable<Carry>::whole_lines(panels), panels * width(), shared.tag};
    }
    CUSCAN_DEVICE bool has_left(const Turn& now) const { return kChain && carry().tree.has_parts(now.unit); }
    CUSCAN_DEVICE bool exchanges() const { return Config::kGrid || rows > 1; }

    // Results of a thread's column.
    CUSCAN_DEVICE void finish(Share& share, const Turn& now, const Place& place, int slot) {
        const int of_column = column + slot * apart;
        if (of_column >= place.width()) return;
        const bool has_left = row > 0 || this->has_left(now);
        bool has_before = Config::kHasInitial;
        Carry before{};
        State left{};
        if (exchanges() && has_left) left = total(row, of_column);
        if constexpr (kChain) {
            const Kept carry(this->carry());
            if (!exchanges()) {
                left = carry.left(now.unit, of_column);
                carry.open(now.unit, of_column, [&] { return start(place, of_column); });
                carry.close(now.unit, of_column, share.total(slot));
            }
            before = carry.before(of_column);
            has_before = carry.has_before(now.unit);
        } else if constexpr (Config::kHasInitial) {
            before = start(place, of_column);
        }
        if constexpr (Element::kCarriesOut)
            share.sum_to_end(slot, has_left, left, [&](const State& of_unit) {
                Element::store_carry(geometry, row_at(place, of_column), place.position, has_before, before, of_unit);
            });
        if constexpr (Element::kStores) share.store(slot, has_before, convert<State>(before), has_left, left);
    }

    // `schedule` says which tile comes first, and next.
    template <class Schedule>
    CUSCAN_DEVICE void run(Schedule schedule) {
        Turn now = schedule.first();
        if (now.exists) load(place(now));
        for (uint32 k = 0; now.exists; ++k) {
            const Place here = place(now);
            Share share(tile, here, row, column, apart);
            shared.arrived.wait(k);
            if (is_in) share.read(initial);
            target::sync_block();  // all have read: the next tile may come
            Turn next;
            if constexpr (!Config::kGrid) {
                next = schedule.next();
                if (next.exists) load(place(next));
            }
            if (exchanges()) {
                CUSCAN_UNROLL
                for (int i = 0; i < kSlots; ++i)
                    if (is_in && share.exists(i)) total(row, column + i * apart) = share.total(i);
                target::sync_block();
                scan_rows(now, here);
                target::sync_block();
            }
            // Not before what precedes this one is found: a tile that is only waiting would hold up all that come after it.
            if constexpr (Config::kGrid) {
                next = schedule.next();
                if (next.exists) load(place(next));
            }
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; ++i)
                if (is_in) finish(share, now, here, i);
            target::sync_block();  // all results are there
            for_each_result<Config>([&](auto k, auto port) {
                if constexpr (Element::kStores)
                    tile.template store<Arrays<Config>::kResults + decltype(k)::value>(port, here);
            });
            now = next;
        }
    }

    // Panels of the block's own.
    struct Own {
        Schedule schedule;
        uint32 number;

        CUSCAN_DEVICE Turn first() { return schedule.turn(0); }
        CUSCAN_DEVICE Turn next() { return schedule.turn(++number); }
    };
    // Panels that blocks share: one thread takes tickets for all.
    struct Tickets {
        PanelShared& shared;
        SharedStrips strips;

        static CUSCAN_DEVICE bool is_taker() { return target::thread_index() == 0; }
        CUSCAN_DEVICE Turn first() { return of_all(is_taker() ? strips.first() : Turn{}); }
        CUSCAN_DEVICE Turn next() { return of_all(is_taker() ? strips.next() : Turn{}); }

    private:
        CUSCAN_DEVICE Turn of_all(const Turn& turn) {
            if (is_taker()) shared.turn = turn;
            target::sync_block();
            return shared.turn;
        }
    };
};

template <class Config>
CUSCAN_DEVICE void panels(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                          const PanelGeometry<Config>& geometry) {
    using Kernel = Panels<Config>;
    struct alignas(target::kLine) Shared {
        char bytes[Config::kSharedBytes];
    };
    Kernel kernel(target::shared_memory<Shared>().bytes, geometry, origin, initial, workspace);
    PanelShared& shared = kernel.shared;
    target::await_predecessors();
    if (target::thread_index() == 0) {
        shared.arrived.init(2 * Config::kThreads);
        target::fence_after_init();
    }
    if constexpr (Config::kGrid) {
        typename Kernel::Tickets tickets{shared,
                                         SharedStrips(workspace, kernel.panels(), kernel.tiles(), geometry.workspace_words)};
        if (tickets.is_taker()) {
            tickets.strips.open();
            shared.tag = tickets.strips.tag();
        }
        target::sync_block();
        kernel.run(tickets);
        workspace->admit_successor(shared.tag);
        workspace->leave(shared.tag, geometry.workspace_words);
    } else {
        target::admit_successor();
        target::sync_block();
        kernel.run(typename Kernel::Own{{kernel.panels(), kernel.tiles()}, 0});
    }
}

}  // namespace cuscan
