// panels: the scanned axis is not the contiguous one. A block works through tiles of neighbouring columns and some steps
// along the axis (panel_tile.cuh): tiles come to shared memory and leave it in pieces of 16 bytes, wherever rows begin. In
// between every thread has some columns of some steps in registers (panel_share.cuh); threads above each other exchange what
// their steps add up to. The order of the scan, per column: the steps of a run one by one, the runs of a unit in pairs, the
// units as PanelCarry has it.
//
// A block takes the tiles of a panel one after the other, and keeps what precedes the next one; the next tile is on its way
// while the present one is scanned.
#pragma once
#include "../panel_carry.cuh"
#include "../panel_share.cuh"
#include "../schedule.cuh"
#include "../workspace.cuh"

namespace cuscan {

template <class Config>
struct Panels {
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using Share = PanelShare<Config>;
    using Tile = PanelTile<Config>;
    using Place = PanelPlace<Config>;
    using Kept = PanelCarry<Config>;
    static constexpr int kThreads = Config::kThreads, kSlots = Config::kSlots;

    const PanelGeometry<Config>& geometry;
    const Row<Config>& origin;
    const typename Element::Initial& initial;
    char* shared;
    target::Barrier& arrived;
    const Tile tile;
    const int rows, apart;   // of threads; threads side by side
    const int row, column;   // this thread's
    const bool is_in;        // it has columns
    const Kept kept;

    CUSCAN_DEVICE Panels(char* shared, const PanelGeometry<Config>& geometry, const Row<Config>& origin,
                         const typename Element::Initial& initial)
        : geometry(geometry),
          origin(origin),
          initial(initial),
          shared(shared),
          arrived(*(target::Barrier*)shared),
          tile{geometry, origin, shared},
          rows(int(geometry.thread_rows)),
          apart(kThreads / rows),
          row(target::thread_index() / apart),
          column(target::thread_index() % apart),
          is_in(row < rows),
          kept(shared + geometry.kept, int(geometry.columns * geometry.outers), int(geometry.levels), rows * Share::kLong) {}

    CUSCAN_DEVICE Schedule schedule() const {
        const int64 steps = rows * Share::kLong;
        const uint64 all_rows = geometry.rows / uint64(geometry.batch[0].size) * uint64(geometry.blocks);
        return {all_rows * uint64(geometry.panels), uint32((geometry.axis.size + steps - 1) / steps)};
    }
    CUSCAN_DEVICE Place place(const Turn& turn) const {
        const uint64 block = turn.strip / uint64(geometry.panels), panel = turn.strip % uint64(geometry.panels);
        const int64 outer = int64(block % uint64(geometry.blocks)) * geometry.outers;
        const int64 at = int64(panel) * geometry.columns, position = int64(turn.unit) * rows * Share::kLong;
        Row<Config> first = origin.at(geometry, block / uint64(geometry.blocks) * uint64(geometry.batch[0].size) + outer);
        first.advance(geometry.column, at);
        first.advance(geometry.axis, position);
        return {first, position, clamp(geometry.column.size - at, int(geometry.columns)),
                clamp(geometry.batch[0].size - outer, int(geometry.outers))};
    }

    CUSCAN_DEVICE void load(const Place& place) {
        using Numbers = Arrays<Config>;
        for_each_value<Config>([&](auto k, auto port) { tile.template load<decltype(k)::value>(port, place, arrived); });
        if constexpr (Element::kMasked) tile.template load<Numbers::kMask>(typename Config::Mask(), place, arrived);
        if constexpr (Config::kSegments == Segments::kReset || Config::kSegments == Segments::kKeys)
            tile.template load<Numbers::kSegments>(typename Config::SegmentPort(), place, arrived);
        arrived.arrive_loaded();
        arrived.arrive();  // for the elements that it has stored itself
    }

    // Threads above each other: what their steps add up to.
    CUSCAN_DEVICE State& total(int of_row, int of_column) const {
        return ((State*)(shared + geometry.exchange))[of_row * (int(geometry.columns * geometry.outers) | 1) + of_column];
    }
    // From totals to what lies to the left of them in the unit, in place. As many lanes as there are rows of threads, or more,
    // have a column.
    CUSCAN_DEVICE void scan_rows(const Place& place, uint32 number) {
        int lanes = 1;
        while (lanes < rows) lanes *= 2;
        const int width = place.width(), all = (width * lanes + target::kWarp - 1) / target::kWarp * target::kWarp;
        CUSCAN_NO_UNROLL
        for (int at = target::thread_index(); at < all; at += kThreads) {
            const int of_row = at % lanes, of_column = at / lanes;
            const bool exists = of_row < rows && of_column < width;
            State own{}, left{};
            if (exists) own = total(of_row, of_column);
            if (exists && has_left(number)) left = kept.left(number, of_column);
            const PairedLanes<Op, target::kWarp, State> paired(own, of_row, lanes);
            if (exists) total(of_row, of_column) = paired.left.before(of_row, has_left(number), left);
            if constexpr (Config::kKept) {
                target::sync_warp();
                if (of_row > 0 || !exists) continue;
                open(place, number, of_column);
                kept.push(number, of_column, paired.total);
            }
        }
    }
    CUSCAN_DEVICE bool has_left(uint32 number) const { return Config::kKept && kept.has_left(number); }
    CUSCAN_DEVICE void open(const Place& place, uint32 number, int of_column) const {
        if (number == 0)
            kept.begin(of_column, Element::start(geometry, row_at(place, of_column), initial));
        else
            kept.open(number, of_column);
    }
    // The arrays where a column of the tile begins.
    CUSCAN_DEVICE Row<Config> row_at(const Place& place, int of_column) const {
        Row<Config> here = place.first;
        here.advance(geometry.batch[0], of_column / int(geometry.columns));
        here.advance(geometry.column, of_column % int(geometry.columns));
        return here;
    }

    // Results of a thread's column.
    CUSCAN_DEVICE void finish(Share& share, const Place& place, uint32 number, int slot) {
        const int of_column = column + slot * apart;
        if (of_column >= place.width()) return;
        Carry before{};
        bool has_before = Config::kHasInitial;
        bool has_left = row > 0 || this->has_left(number);
        State left{};
        if constexpr (Config::kKept) {
            if (rows == 1) {
                open(place, number, of_column);
                if (has_left) left = kept.left(number, of_column);
                kept.push(number, of_column, share.total(slot));
            }
            before = kept.before(of_column);
            has_before = kept.has_before(number);
        } else if constexpr (Config::kHasInitial) {
            before = Element::start(geometry, row_at(place, of_column), initial);
        }
        if (rows > 1 && has_left) left = total(row, of_column);
        if constexpr (Element::kCarriesOut)
            share.sum_to_end(slot, has_left, left, [&](const State& of_unit) {
                Element::store_carry(geometry, row_at(place, of_column), place.position, has_before, before, of_unit);
            });
        if constexpr (Element::kStores) share.store(slot, has_before, convert<State>(before), has_left, left);
    }

    CUSCAN_DEVICE void run() {
        const Schedule schedule = this->schedule();
        Turn now = schedule.turn(0);
        if (now.exists) load(place(now));
        for (uint32 k = 0; now.exists; ++k) {
            const Place here = place(now);
            Share share(tile, here, row, column, apart);
            arrived.wait(k);
            if (is_in) share.read(initial);
            target::sync_block();  // all have read: the next tile may come
            const Turn next = schedule.turn(k + 1);
            if (next.exists) load(place(next));
            if (rows > 1) {
                CUSCAN_UNROLL
                for (int i = 0; i < kSlots; ++i)
                    if (is_in && share.exists(i)) total(row, column + i * apart) = share.total(i);
                target::sync_block();
                scan_rows(here, now.unit);
                target::sync_block();
            }
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; ++i)
                if (is_in) finish(share, here, now.unit, i);
            target::sync_block();  // all results are there
            for_each_result<Config>([&](auto k, auto port) {
                if constexpr (Element::kStores) tile.template store<Arrays<Config>::kResults + decltype(k)::value>(port, here);
            });
            now = next;
        }
    }
};

template <class Config>
CUSCAN_DEVICE void panels(Row<Config> origin, Workspace*, const typename Elements<Config>::Initial& initial,
                          const PanelGeometry<Config>& geometry) {
    struct alignas(target::kLine) Shared {
        char bytes[Config::kSharedBytes];
    };
    char* const shared = target::shared_memory<Shared>().bytes;
    Panels<Config> kernel(shared, geometry, origin, initial);
    if (target::thread_index() == 0) {
        kernel.arrived.init(2 * Config::kThreads);
        target::fence_after_init();
    }
    target::await_predecessors();
    target::admit_successor();
    target::sync_block();
    kernel.run();
}

}  // namespace cuscan
