// panels: scans an axis that is not the contiguous one. A block works through tiles of neighbouring columns and some
// steps along the axis (panel_tile.cuh), which move to shared memory and back in pieces of 16 bytes, or in bulk,
// wherever rows begin. In between, every thread holds some columns of some steps in registers (panel_share.cuh);
// threads above each other exchange the totals of their steps. The order of the scan, per column: the steps of a run
// one by one, the runs of a unit in pairs, the units as in panel_carry.cuh.
//
// Either a tile has all steps of its columns; or a block takes the tiles of a panel one after another, and keeps the
// carry of the next one (kKept); or blocks share panels, and take chunks of some tiles by ticket (kGrid). In that case
// a block goes through the tiles of a chunk twice: for their total, which it publishes, and again, from the cache, for
// the results. So the time that a total takes from block to block is short compared with that of a chunk. The next tile
// loads while the present one is finished, and the last warp of the block computes where the one after it lies.
#pragma once
#include "../panel_carry.cuh"
#include "../panel_share.cuh"

namespace cuscan {

template <class Config>
struct PanelShared {
    static constexpr int kTurns = 3;  // the present tile, the next one, which is loading, and the one after it
    target::Barrier arrived;
    uint32 epoch;        // epoch of the launch, where blocks share panels
    Row<Config> origin;  // a lane indexes it at run time, which registers do not allow
    PanelTurn<Config> turns[kTurns];
};
// The bytes that planning/panel_tile.py reserves for PanelShared.
constexpr int panel_header(int arrays, int tiled) { return 280 + 4 * 8 * arrays + 3 * 80 * tiled; }

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
    // kUnitRows: threads above each other that hold a unit, of 256 steps; one, if a thread holds fewer than 8 steps.
    // kLanes: lanes that combine their totals.
    static constexpr int kUnitRows = Share::kLong < 8 ? 1 : 256 / Share::kLong;
    static constexpr int kMany = Config::kMany < kUnitRows ? Config::kMany : kUnitRows, kLanes = kUnitRows / kMany;
    static constexpr bool kChain = Config::kKept || Config::kGrid;  // tiles may precede a tile
    static constexpr bool kBulk = PanelTile<Config>::kBulk;

    char* const memory;
    PanelShared<Config>& shared;
    const PanelGeometry<Config>& geometry;
    const Row<Config>& origin;
    const typename Element::Initial& initial;
    Workspace* const workspace;
    const PanelTile<Config> tile;
    const int rows, apart;  // rows of threads; threads side by side
    const int row, column;  // row and column of this thread
    const bool is_in;       // this thread is in one of the rows

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
          column(target::thread_index() % apart),
          is_in(row < rows) {}

    CUSCAN_DEVICE int width() const { return int(geometry.columns * geometry.outers); }  // width of a whole tile
    CUSCAN_DEVICE int height() const { return rows * Share::kLong; }
    CUSCAN_DEVICE PanelCarry<Config> carry() const {
        return {memory + geometry.kept, width(), int(geometry.levels),
                PanelTree{int(geometry.part_levels), int(geometry.unit_levels), int(geometry.chunk_levels)}};
    }

    CUSCAN_DEVICE void load(const PanelTurn<Config>& turn) {
        using Numbers = Arrays<Config>;
        auto& arrived = shared.arrived;
        uint32 bytes = 0;
        for_each_value<Config>(
            [&](auto k, auto operand) { bytes += tile.template load<decltype(k)::value>(operand, turn, arrived); });
        if constexpr (Element::kMasked)
            bytes += tile.template load<Numbers::kMask>(typename Config::Mask(), turn, arrived);
        if constexpr (Config::kSegments == Segments::kReset || Config::kSegments == Segments::kKeys)
            bytes += tile.template load<Numbers::kSegments>(typename Config::SegmentOperand(), turn, arrived);
        arrived.arrive_loaded();
        if constexpr (kBulk)
            arrived.expect(bytes);  // and arrives for the elements that this thread has stored itself
        else
            arrived.arrive();
    }

    // The total of a thread's steps, for the threads above and below it.
    CUSCAN_DEVICE State& total(int of_row, int of_column) const {
        return ((State*)(memory + geometry.exchange))[of_row * (width() | 1) + of_column];
    }
    // The initial carry of a column of a tile.
    CUSCAN_DEVICE Carry start(const Place& place, int of_column) const {
        return Element::start(geometry, tile.row(place, of_column), initial);
    }
    // Called by all workers. Replaces totals by what precedes them in their units, and computes what precedes each
    // unit; or, if `sums`, computes only the total of the tile. A lane takes kMany rows of a column; neighbouring lanes
    // take rows above each other.
    CUSCAN_DEVICE void scan_rows(const Turn& now, const Place& place, bool sums) {
        const int levels = int(geometry.lanes), lanes = 1 << levels, columns = place.width();
        const int all = ((columns << levels) + target::kWarp - 1) / target::kWarp * target::kWarp;
        CUSCAN_NO_UNROLL
        for (int at = target::thread_index(); at < all; at += kThreads) {
            const int lane = at & (lanes - 1), of_column = at >> levels, first = lane * kMany;
            const bool exists = of_column < columns;
            State sum{}, left{};
            if constexpr (kChain)
                if (exists && !sums) left = carry().left(now.unit, of_column);
            PairedFold<Op, levels_of(kMany), State> all, before;
            CUSCAN_UNROLL
            for (int i = 0; i < kMany; ++i) {
                if (!exists || first + i >= rows) break;
                sum = all.push(i, total(first + i, of_column));
            }
            // Combines the lanes of a unit, and the units of a tile where it has several.
            const int part = lane % kLanes, unit = lane / kLanes;
            const PairedLanes<Op, kLanes, State> parts(sum, part, lanes < kLanes ? lanes : kLanes);
            const PairedLanes<CarryOp, target::kWarp / kLanes, Carry, kLanes> units(convert<Carry>(parts.total), unit,
                                                                                    lanes / kLanes);
            if constexpr (kChain) {
                const Kept kept(carry());
                target::sync_warp();
                if (exists && lane == 0) {
                    if constexpr (Config::kGrid) {
                        const Sought sought(carry(), table());
                        if (!sums && sought.tree.begins_chunk(now.unit)) sought.open_chunk(now.unit, of_column);
                        if (!sums) kept.begin(now.unit, of_column);
                        if (!sought.tree.ends_chunk(now.unit))
                            kept.close(now.unit, of_column, parts.total, units.total);
                        else if (sums)
                            sought.publish(now.unit, chain(now) + of_column, of_column, parts.total, units.total);
                    } else {
                        kept.open(now.unit, of_column, [&] { return start(place, of_column); });
                        kept.close(now.unit, of_column, parts.total, units.total);
                    }
                }
            }
            if (sums) continue;
            if constexpr (Config::kUnits) {
                const PanelCarry<Config> carry(this->carry());
                target::sync_warp();
                if (exists && unit > 0 && part == 0)
                    carry.before(of_column, unit) =
                        units.left.before(unit, carry.has_before(now.unit), carry.before(of_column));
            }
            const bool has_left = this->has_left(now);
            const State prefix = parts.left.before(part, has_left, left);
            CUSCAN_UNROLL
            for (int i = 0; i < kMany; ++i) {
                if (!exists || first + i >= rows) break;
                const State own = total(first + i, of_column);
                total(first + i, of_column) = before.before(i, has_left || part > 0, prefix);
                before.push(i, own);
            }
        }
    }
    // Where blocks share panels: waits for totals of other blocks, where a chunk begins or, if `sums`, where it ends.
    CUSCAN_DEVICE void seek(const Turn& now, const Place& place, bool sums) const {
        const Sought sought(carry(), table());
        if (sums ? sought.tree.ends_chunk(now.unit) : sought.tree.begins_chunk(now.unit))
            sought.seek(now.unit, sums, chain(now), place.width(), target::thread_index(), kThreads,
                        [&](int column) { return start(place, column); });
    }
    CUSCAN_DEVICE uint64 chain(const Turn& now) const { return now.strip * width(); }  // chain of column 0
    CUSCAN_DEVICE TotalsTable<Carry> table() const {
        const uint64 panels = geometry.number;
        return {workspace->words() + TotalsTable<Carry>::whole_lines(panels), panels * width(), shared.epoch};
    }
    CUSCAN_DEVICE bool has_left(const Turn& now) const { return kChain && carry().tree.has_parts(now.unit); }
    CUSCAN_DEVICE bool exchanges() const { return Config::kGrid || rows > 1; }

    // Stores the results of a thread's columns that are side by side, from `slot` on.
    CUSCAN_DEVICE void finish(Share& share, const Turn& now, const Place& place, int slot) {
        if (!share.exists(slot)) return;
        const int unit = row / kUnitRows;
        const bool has_left = row % kUnitRows > 0 || this->has_left(now);
        const bool has_before = Config::kHasInitial || (kChain && (unit > 0 || carry().has_before(now.unit)));
        State before[kPack]{}, left[kPack]{};
        CUSCAN_UNROLL
        for (int j = 0; j < kPack; ++j) {
            const int of_column = share.column_of(slot + j);
            Carry of_unit{};
            if (exchanges() && has_left) left[j] = total(row, of_column);
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
        if constexpr (Element::kStores) share.store(slot, has_before, before, has_left, left);
    }

    // Works through tiles in the order of `schedule`. The last warp computes where they lie, two tiles ahead, and
    // synchronises with the other warps once per tile.
    template <class Schedule>
    CUSCAN_DEVICE void run(Schedule schedule) {
        const bool finds = target::thread_index() >= kThreads;
        auto& turns = shared.turns;
        if (finds) {
            find(turns[0], schedule, [&] { return schedule.first(); });
            find_after(turns[0], turns[1], schedule);
        }
        target::sync_block();
        if (!finds && turns[0].turn.exists) load(turns[0]);
        int now = 0;
        for (uint32 k = 0; turns[now].turn.exists; ++k) {
            const int next = now == 2 ? 0 : now + 1, after = next == 2 ? 0 : next + 1;
            if (finds) {
                target::sync_block();
                find_after(turns[next], turns[after], schedule);
            } else {
                take(turns[now], turns[next], k);
            }
            now = next;
        }
        if constexpr (kBulk) target::wait_for_bulk_stores();  // which read shared memory
    }
    // Called by all other warps: waits for a tile, scans it and stores its results, while the next one loads.
    CUSCAN_DEVICE void take(const PanelTurn<Config>& here, const PanelTurn<Config>& next, uint32 k) {
        const bool sums = Config::kGrid && here.sums;
        Share share(tile, here, row, column, apart);
        shared.arrived.wait(k);
        if (is_in) share.read(initial);
        if constexpr (kBulk) target::wait_for_bulk_stores();
        target::sync_block();  // all threads have read this tile and stored the previous one: the next may load
        if (next.turn.exists) load(next);
        if (exchanges()) {
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; ++i)
                if (is_in && share.exists(i)) total(row, share.column_of(i)) = share.total(i);
            if constexpr (Config::kGrid) seek(here.turn, here.place, sums);
            sync_workers();
            scan_rows(here.turn, here.place, sums);
            if (sums) return sync_workers();  // before other threads read the next tile
            sync_workers();
        }
        CUSCAN_UNROLL
        for (int i = 0; i < kSlots; i += kPack)
            if (is_in) finish(share, here.turn, here.place, i);
        if constexpr (kBulk) target::fence_before_copies();
        sync_workers();  // all results are written
        for_each_result<Config>([&](auto k, auto operand) {
            if constexpr (Element::kStores)
                tile.template store<Arrays<Config>::kResults + decltype(k)::value>(operand, here);
        });
    }
    static CUSCAN_DEVICE void sync_workers() { target::barrier_sync<1>(kThreads); }

    // Called by one warp: one lane takes a turn; then the lanes compute where arrays lie, and how they move.
    template <class Schedule, class Which>
    CUSCAN_DEVICE void find(PanelTurn<Config>& found, const Schedule& schedule, Which which) const {
        using Numbers = Arrays<Config>;
        const int lane = target::thread_index() % target::kWarp;
        if (lane == 0) {
            found.turn = which();
            found.sums = schedule.sums;
        }
        target::sync_warp();
        if (!found.turn.exists) return;
        const Divided panel(found.turn.strip, geometry.panels), block(panel.whole, geometry.blocks);
        const int64 outer = block.rest * geometry.outers, at = panel.rest * geometry.columns;
        const int64 position = int64(found.turn.unit) * height();
        for (int a = lane; a < Numbers::kCount; a += target::kWarp) {
            char* first = origin.array[a] + outer * geometry.batch[0].stride[a] + at * geometry.column.stride[a] +
                          position * geometry.axis.stride[a];
            uint64 rest = block.whole;
            CUSCAN_UNROLL
            for (int d = 1; d < Config::kBatchDims; ++d) {
                const Divided of(rest, geometry.batch[d].size);
                first += of.rest * geometry.batch[d].stride[a];
                rest = of.whole;
            }
            found.place.first.array[a] = first;
        }
        if (lane == 0) {
            found.place.position = position;
            found.place.columns = clamp(geometry.column.size - at, int(geometry.columns));
            found.place.reciprocal = (1u << PanelPlace<Config>::kReciprocalBits) / found.place.columns + 1;
            found.place.outers = clamp(geometry.batch[0].size - outer, int(geometry.outers));
            found.place.steps = clamp(geometry.elements() - position, height());
            found.place.results = clamp(geometry.axis.size - position, height());
        }
        target::sync_warp();
        for (int a = lane; a < Numbers::kInitial; a += target::kWarp)
            if (tile.is_staged(a)) found.pieces[a] = tile.pieces(found.place, a);
    }
    // The same for the next turn; takes no ticket after the last tile.
    template <class Schedule>
    CUSCAN_DEVICE void find_after(const PanelTurn<Config>& before, PanelTurn<Config>& found, Schedule& schedule) const {
        find(found, schedule, [&] { return before.turn.exists ? schedule.next() : Turn{}; });
    }
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
        Turn turn{};
        static constexpr bool sums = false;

        CUSCAN_DEVICE Turn first() { return turn = {target::block_index() < panels, target::block_index(), 0}; }
        CUSCAN_DEVICE Turn next() {
            if (++turn.unit < tiles) return turn;
            const uint64 strip = turn.strip + target::block_count();
            return turn = {strip < panels, strip, 0};
        }
    };
    // Schedule of a block that shares panels, by chunks. Where results are stored, a chunk comes twice, except the last
    // one of a panel, whose total no block needs.
    struct Chunks {
        SharedStrips chunks;
        uint32 tiles;  // tiles of a panel
        int levels;    // a chunk has 2^levels tiles
        bool sums = false;
        Turn turn{};

        CUSCAN_DEVICE Turn first() { return begin(chunks.first()); }
        CUSCAN_DEVICE Turn next() {
            ++turn.unit;
            const uint32 size = 1u << levels;
            if (turn.unit % size != 0 && turn.unit < tiles) return turn;
            if (!sums || !Element::kStores) return begin(chunks.next());
            sums = false;
            turn.unit -= size;
            return turn;
        }

    private:
        CUSCAN_DEVICE Turn begin(const Turn& chunk) {
            turn = {chunk.exists, chunk.strip, chunk.unit << levels};
            sums = uint64(chunk.unit + 1) << levels < tiles;
            return turn;
        }
    };
};

template <class Config>
CUSCAN_DEVICE void panels(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                          const PanelGeometry<Config>& geometry) {
    using Kernel = Panels<Config>;
    static_assert(sizeof(PanelShared<Config>) <= panel_header(Arrays<Config>::kCount, Arrays<Config>::kInitial));
    struct alignas(target::kLine) Shared {
        char bytes[Config::kSharedBytes];
    };
    Kernel kernel(target::shared_memory<Shared>().bytes, geometry, initial, workspace);
    auto& shared = kernel.shared;
    target::wait_for_previous_kernel();
    if (target::thread_index() == 0) {
        shared.origin = origin;
        shared.arrived.init(2 * Kernel::kThreads);
        target::fence_after_init();
    }
    if constexpr (Config::kGrid) {
        const uint32 tiles = uint32(geometry.tiles);
        const int levels = int(geometry.chunk_levels);
        SharedStrips chunks(workspace, geometry.number, ((tiles - 1) >> levels) + 1, geometry.workspace_words);
        if (target::thread_index() == Kernel::kThreads) {
            chunks.open();
            shared.epoch = chunks.epoch();
        }
        target::sync_block();
        kernel.run(typename Kernel::Chunks{chunks, tiles, levels});
        workspace->allow_next_kernel(shared.epoch);
        workspace->leave(shared.epoch, geometry.workspace_words);
    } else {
        target::allow_next_kernel();
        target::sync_block();
        kernel.run(typename Kernel::Own{geometry.number, uint32(geometry.tiles)});
    }
}

}  // namespace cuscan
