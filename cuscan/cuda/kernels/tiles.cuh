// tiles: scans a contiguous axis of any length. A row is divided, from its start, into tiles of kWarps warp tiles.
// Blocks take tiles by ticket, row after row; where a row is one small tile, a ticket is for kBatch of them.
//
// A block has an SM to itself. One or two producer warps load tiles into stages of shared memory, as far ahead as there
// are stages. kGroups groups of kWarps warps take the tiles in turn: a group scans its tile locally, publishes the
// aggregate, waits for the carry and stores the results. Where rows have several tiles, a look-back warp computes the
// carry of one tile after another; or two, each that of every second tile. With kScansAhead a group scans its next tile
// before it stores the present one: other blocks wait for the next tile's aggregate, and its carry arrives later. After
// the start, warps synchronise only through the barriers in TilesShared and one named barrier per group.
//
// A group reads values from their stage twice, for the scan and for the store, so that it holds few registers in
// between. It reads flags (mask and segment starts) once, and their stage is free for a later tile.
#pragma once
#include "../look_back.cuh"
#include "../stage.cuh"
#include "../warp_tile.cuh"
#include "../workspace.cuh"

namespace cuscan {

// A tile of the block, from its producer to the other warps.
struct TileSlot {
    uint64 strip;
    uint32 unit;
    bool exists, staged;
};
// The carry of a tile, if there is one, from a look-back warp to the tile's group.
template <class Carry>
struct TilePrefix {
    Carry carry;
    bool exists;
};

template <class Config>
struct TilesShared {
    using Element = Elements<Config>;
    using Tile = WarpTile<Config, Config::kVectors, target::kWarp>;
    static constexpr int kElements = Config::kWarps * Tile::kElements;  // elements of a tile
    static constexpr int kWorkers = Config::kGroups * Config::kWarps;  // group warps; producers, look-back warps follow
    static constexpr bool kLooksBack = Config::kLevels > 0;
    static constexpr int kLookBackWarps = Config::kLookBackWarps;
    static constexpr int kThreads = (kWorkers + Config::kProducers + kLookBackWarps) * target::kWarp;
    // Slots for the tiles between the producer and the slowest group.
    static constexpr int kRing = Config::kStages + Config::kGroups;

    using ValueStage = Stage<Config, kElements, 0, Config::Values::kCount>;
    using FlagStage = Stage<Config, kElements, Arrays<Config>::kMask, Arrays<Config>::kInitial>;

    ValueStage values[Config::kStages];
    FlagStage flags[Config::kFlagStages];
    // Per stage: its tile has arrived; all threads of a group have read it.
    target::Barrier full[Config::kStages], empty[Config::kStages], flags_empty[Config::kFlagStages];
    // Per tile: its slot is written; its prefix is written.
    target::Barrier begun[kRing], prefixed[kRing];
    TileSlot slot[kRing];
    uint32 epoch[Config::kProducers];  // epoch of the launch; valid with the producer's first slot
    TilePrefix<typename Element::Carry> prefix[kRing];
    // Totals of a group's warps, for this tile and the previous one. Aligned, so that no wider load includes others.
    struct alignas(16) Totals {
        typename Element::State of_warp[Config::kWarps];
    };
    Totals totals[Config::kGroups][2];
};

template <class Config>
struct Tiles {
    using Shared = TilesShared<Config>;
    using Tile = typename Shared::Tile;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using CarryOp = typename Element::CarryOp;
    using Chain = LookBack<State, Carry, CarryOp, Config::kLevels, Config::kPrefetches>;
    using ValueStage = typename Shared::ValueStage;
    using FlagStage = typename Shared::FlagStage;
    static constexpr bool kStaged = ValueStage::kAny || FlagStage::kAny;
    static constexpr uint32 kStages = Config::kStages, kFlagStages = Config::kFlagStages, kGroups = Config::kGroups;
    static constexpr uint32 kRing = Shared::kRing, kBatch = Config::kBatch;
    static constexpr bool kScansAhead = Config::kScansAhead;
    // Where no results are stored, groups wait for a look-back warp only in the last tile of a row. It runs beside
    // them, and holds a tile's stage until it has read the tile's slot, so that the ring does not lap it.
    static constexpr bool kLooksBackBeside = Shared::kLooksBack && !Element::kStores;
    static constexpr uint32 kSeldom = 8;  // tiles of the block per look-back, in that case
    // With kTakesAhead and at least this many tiles per block, the producer takes a ticket before a stage is free for
    // its tile, and loads the tile as soon as one is. With few tiles, other blocks would have to wait for that one.
    static constexpr uint64 kManyTiles = 16;
    static constexpr uint32 kProducers = Config::kProducers;
    static_assert(kBatch == 1 || !Shared::kLooksBack,
                  "a ticket is for one tile of a long row: other blocks wait for it");
    static_assert(kProducers == 1 || !Shared::kLooksBack, "one producer takes the tickets of a chain, in its order");
    static_assert(kGroups % kProducers == 0 && kStages % kProducers == 0 &&
                      (!FlagStage::kAny || kFlagStages % kProducers == 0),
                  "each group and each stage belongs to one producer");

    Shared& shared;
    const Row<Config>& origin;
    Workspace* workspace;
    const typename Element::Initial& initial;
    const Geometry<Config>& geometry;
    const int warp, lane;

    // Called by all group warps, which share the work: the hardware initialises the barriers of one warp one by one.
    CUSCAN_DEVICE void make_barriers() {
        constexpr uint32 kReaders = Config::kWarps * target::kWarp;  // threads that read a stage
        if (lane == 0) {
            for (uint32 i = warp; i < kRing; i += Shared::kWorkers) {
                if (i < kStages) shared.full[i].init(), shared.empty[i].init(kReaders + kLooksBackBeside);
                if (i < kFlagStages) shared.flags_empty[i].init(kReaders);
                shared.begun[i].init(), shared.prefixed[i].init();
            }
            target::fence_after_init();
        }
        static_assert(kFlagStages <= kRing, "the loop makes kRing barriers at most");
        static_assert(kGroups <= 15, "one named barrier per group; all warps meet at the first one at the start");
    }
    CUSCAN_DEVICE Chain chain() const { return Chain(workspace->words(), geometry.units, shared.epoch[0]); }

    // ---- producers: one warp each, in which lane 0 acts; several take tiles in turn ---------------------------------

    CUSCAN_DEVICE void run_producer(uint32 producer) {
        const bool speaks = lane == 0;
        uint64 counts = 0;
        if (speaks) counts = workspace->take_ticket();
        const uint32 share = this->share();
        const bool early = Config::kTakesAhead && tickets() >= kManyTiles * target::block_count();
        target::wait_for_previous_kernel();  // for all warps, which meet the producers at the barrier
        target::barrier_sync<1>(Shared::kThreads);
        uint32 ended = 0;           // groups that have a slot without a tile
        uint32 of_ticket = kBatch;  // tiles taken of the present ticket
        uint32 taken = 0;           // tickets taken
        Workspace::Ticket ticket{};
        const auto has_all = [&] { return share > 0 ? taken == share : ticket.number >= tickets(); };
        for (uint32 k = producer; ended < kGroups / kProducers; k += kProducers) {
            const uint32 s = k % kStages, f = k % kFlagStages;
            // A slot without a tile needs no stage: with fewer stages than groups, it would wait forever.
            const auto await_stage = [&] {
                if (k >= kStages && ended == 0) shared.empty[s].wait_together(k / kStages - 1);
                if (FlagStage::kAny && k >= kFlagStages && ended == 0)
                    shared.flags_empty[f].wait_together(k / kFlagStages - 1);
            };
            if (!early) await_stage();
            if (of_ticket == kBatch && !has_all()) {
                if (k > producer && speaks) counts = workspace->take_ticket();
                ticket = Workspace::ticket(target::broadcast(counts, 0));
                if (speaks) renew_after(ticket, share);
                ++taken;
                if (k == producer && speaks) shared.epoch[producer] = ticket.epoch;
                of_ticket = 0;
            }
            if (early) await_stage();
            const bool may_exist = ended == 0 && of_ticket < kBatch;
            const TileSlot tile = may_exist ? tile_of(uint64(ticket.number) * kBatch + of_ticket++) : TileSlot{};
            const auto row = origin.at(geometry, tile.strip);
            const int64 first = int64(tile.unit) * Shared::kElements;
            const bool staged = kStaged && tile.exists && ValueStage::can_be_filled(origin, row, geometry, first) &&
                                FlagStage::can_be_filled(origin, row, geometry, first);
            auto& full = shared.full[s];
            if (speaks) {
                if (staged) {
                    target::fence_before_copies();
                    full.expect(ValueStage::bytes(row, geometry, first) + FlagStage::bytes(row, geometry, first));
                    shared.flags[f].fill(full, row, geometry, first);
                    shared.values[s].fill(full, row, geometry, first);
                }
                shared.slot[k % kRing] = {tile.strip, tile.unit, tile.exists, staged};
                if (tile.exists && !staged) full.arrive();
                shared.begun[k % kRing].arrive();
            }
            target::sync_warp();
            ended += !tile.exists;
        }
        // The workspace counts tickets to reset itself, so a producer also takes those for which no tile is left.
        for (; !has_all(); ++taken) {
            if (speaks) counts = workspace->take_ticket();
            ticket = Workspace::ticket(target::broadcast(counts, 0));
            if (speaks) renew_after(ticket, share);
        }
        target::sync_warp();  // all lanes read the epoch later
        // One of several producers could not tell whether the others have taken their tickets.
        if (kProducers == 1) workspace->allow_next_kernel(ticket.epoch);
    }
    // The number of tickets that each block takes; 0: producers take tickets until they get one without a tile. With
    // few tiles, a block that loads fast would take more than its share, and store them when all others are done.
    CUSCAN_DEVICE uint32 share() const {
        const uint64 blocks = target::block_count();
        if (kProducers > 1 || tickets() * kBatch > uint64(kStages - 1) * blocks) return 0;
        return (uint32(tickets()) + uint32(blocks) - 1) / uint32(blocks);
    }
    CUSCAN_DEVICE TileSlot tile_of(uint64 number) const {
        const uint32 row_tiles = uint32(geometry.units);
        const uint64 strip = Shared::kLooksBack ? uint32(number) / row_tiles : number;
        return {strip, Shared::kLooksBack ? uint32(number) % row_tiles : 0, strip < geometry.rows, false};
    }
    CUSCAN_DEVICE void renew_after(Workspace::Ticket ticket, uint32 share) const {
        const uint64 blocks = target::block_count(), all = share > 0 ? share * blocks : tickets() + blocks * kProducers;
        workspace->renew_after(ticket, all, geometry.workspace_words);
    }
    CUSCAN_DEVICE uint64 tickets() const { return (geometry.rows * geometry.units + kBatch - 1) / kBatch; }

    // ---- look-back warps: they take tiles in turn -------------------------------------------------------------------

    // There is a slot without a tile for each group, so each of as many look-back warps finds one.
    static_assert(!Shared::kLooksBack || (Shared::kLookBackWarps > 0 && Shared::kLookBackWarps <= int(kGroups)));
    CUSCAN_DEVICE void run_look_back(uint32 first) {
        shared.begun[0].wait_together(0);
        Chain ahead = chain();
        for (uint32 k = first;; k += Shared::kLookBackWarps) {
            const uint32 r = k % kRing;
            shared.begun[r].wait_together(k / kRing);
            TileSlot tile{};
            if (lane == 0) tile = shared.slot[r];  // by the lane that arrives at barriers for the warp
            tile = target::broadcast(tile, 0);
            if (!target::uniform(tile.exists)) return;
            if (kLooksBackBeside && lane == 0) shared.empty[k % kStages].arrive();
            Carry carry = start_of(tile.strip);
            const bool has_carry = find_prefix(ahead, tile, k, carry);
            if (lane == 0) {
                shared.prefix[r] = {carry, has_carry};
                shared.prefixed[r].arrive();
            }
            target::sync_warp();
        }
    }
    // Where no results are stored, only the last tile of a row needs its carry. In long rows the look-back would then
    // have far to go, so it also runs now and then on the way.
    CUSCAN_DEVICE bool find_prefix(Chain& ahead, const TileSlot& tile, uint32 k, Carry& carry) const {
        if constexpr (!Element::kStores) {
            const bool goes_along = Config::kLevels > 1 && k % kSeldom == 0;
            if (!goes_along && tile.unit != (geometry.elements() - 1) / Shared::kElements) return false;
        }
        return ahead.prefix(tile.strip, tile.unit, Config::kHasInitial, carry);
    }
    CUSCAN_DEVICE Carry start_of(uint64 strip) const {
        return Element::start(geometry, origin.at(geometry, strip), initial);
    }

    // ---- a group ---------------------------------------------------------------------------------------------------

    // A warp's part of a tile after the local scan.
    struct Scanned {
        Tile tile;
        State before;  // what precedes the warp's part in the tile; no meaning in the first warp
    };

    // A group that scans ahead holds the stage of one tile while it waits for its next.
    static_assert(!kScansAhead || kStages > kGroups, "otherwise the producer would wait for the group, too");
    // Numbers of groups are found anew, or from k: the compiler would keep what follows from them in registers, which
    // are scarce, for all tiles.
    CUSCAN_DEVICE void run_group(int group, int warp_in_group) {
        Scanned now;
        for (uint32 k = group;; k += kGroups) {
            shared.begun[k % kRing].wait_together(k / kRing);
            const bool exists = target::uniform(shared.slot[k % kRing].exists);
            Scanned next;
            if (exists) scan(next, target::anew(k), target::anew(group), warp_in_group);
            if (kScansAhead ? k >= kGroups : exists)
                store(kScansAhead ? now : next, kScansAhead ? k - kGroups : k, warp_in_group);
            if (!exists) return;
            now = next;
        }
    }
    CUSCAN_DEVICE void scan(Scanned& part, uint32 k, int group, int warp_in_group) {
        const int lane = sizeof(State) <= 8 ? target::anew(this->lane) : this->lane;  // a thread has few wide states
        const TileSlot slot = shared.slot[k % kRing];
        const int start = target::anew(warp_in_group) * Tile::kElements;
        const auto row = origin.at(geometry, slot.strip);
        const int64 first = int64(slot.unit) * Shared::kElements + start, length = geometry.elements();
        Tile& tile = part.tile;
        tile.find_segments(row, geometry, first, lane, initial);
        // Until now the stage may have held an earlier tile, which may be another group's.
        shared.full[k % kStages].wait_together(k / kStages);
        const auto source = this->source(row, k, start);
        if (kStaged && !target::uniform(slot.staged)) {
            source.values.fill_one_by_one(row, geometry, first - start, start, Tile::kElements, lane);
            source.flags.fill_one_by_one(row, geometry, first - start, start, Tile::kElements, lane);
            group_meets(group);
        }
        auto& totals = shared.totals[k % kGroups][k / kGroups % 2].of_warp;
        if (has_results(first)) {
            tile.load_flags(source, row, geometry, length, first, lane);
            tile.load_values(source, row, geometry, length, first, lane);
            const State total = tile.scan(source, row, geometry, first, lane, [&] {
                if (leaves_early(first)) shared.empty[k % kStages].arrive();
            });
            if (lane == 0) totals[warp_in_group] = total;
        }
        if (FlagStage::kAny) shared.flags_empty[k % kFlagStages].arrive();
        group_meets(group);
        if (Shared::kLooksBack && warp_in_group == 0 && lane == 0 && slot.unit + 1 < geometry.units)
            chain().publish(slot.strip, slot.unit, fold_warps<Op>(totals, Config::kWarps));
        if (has_results(first)) part.before = fold_warps<Op>(totals, warp_in_group);
    }
    // In the last tile of a row, some warps may have no results.
    CUSCAN_DEVICE bool has_results(int64 first) const {
        return !Shared::kLooksBack || target::uniform(first < geometry.axis.size);
    }
    // Whether a warp frees its stage as soon as it has read it; the warp with the end of a row reads it once more.
    CUSCAN_DEVICE bool leaves_early(int64 first) const {
        return !Element::kStores && has_results(first) && !Tile::has_end(geometry, first);
    }
    CUSCAN_DEVICE void store(Scanned& part, uint32 k, int warp_in_group) {
        if constexpr (Element::kCarriesOut) store_carry(part, k, warp_in_group);
        const TileSlot slot = shared.slot[k % kRing];
        const int start = target::anew(warp_in_group) * Tile::kElements;
        const auto row = origin.at(geometry, slot.strip);
        const int64 first = int64(slot.unit) * Shared::kElements + start;
        if (Element::kStores && has_results(first)) {
            bool has_carry = Config::kHasInitial;
            Carry carry;
            if constexpr (Shared::kLooksBack) {
                shared.prefixed[k % kRing].wait_together(k / kRing);
                has_carry = shared.prefix[k % kRing].exists;
                carry = shared.prefix[k % kRing].carry;
            } else {
                carry = start_of(slot.strip);
            }
            const State prefix = convert<State>(carry);
            part.tile.store(source(row, k, start), row, geometry, geometry.axis.size, first, lane,
                            has_carry || warp_in_group > 0,
                            warp_in_group > 0 ? join<Op>(has_carry, prefix, part.before) : prefix);
        }
        if (!leaves_early(first)) shared.empty[k % kStages].arrive();
    }
    // The warp with the last element of a row stores the row's carry.
    CUSCAN_DEVICE void store_carry(Scanned& part, uint32 k, int warp_in_group) {
        const TileSlot slot = shared.slot[k % kRing];
        const int start = warp_in_group * Tile::kElements;
        const int64 first = int64(slot.unit) * Shared::kElements + start;
        if (!Tile::has_end(geometry, first)) return;
        const auto row = origin.at(geometry, slot.strip);
        auto& known = shared.prefixed[k % kRing];
        if (Shared::kLooksBack) known.wait_together(k / kRing);
        part.tile.sum_to_end(source(row, k, start), row, geometry, first, lane, [&](const State& of_warp) {
            const auto& before = shared.prefix[k % kRing];
            const State of_tile = join<Op>(warp_in_group > 0, part.before, of_warp);
            Element::store_carry(geometry, row, 0, Shared::kLooksBack ? before.exists : Config::kHasInitial,
                                 Shared::kLooksBack ? before.carry : start_of(slot.strip), of_tile);
        });
    }
    CUSCAN_DEVICE FromStages<ValueStage, FlagStage> source(const Row<Config>& row, uint32 k, int start) const {
        return {shared.values[k % kStages], shared.flags[k % kFlagStages], origin, row, start};
    }
    static CUSCAN_DEVICE void group_meets(int group) {
        target::barrier_sync(1 + group, Config::kWarps * target::kWarp);
    }
};

template <class Config>
CUSCAN_DEVICE void tiles(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                         const Geometry<Config>& geometry) {
    using Shared = TilesShared<Config>;
    static_assert(sizeof(Shared) <= Config::kSharedBytes, "planning/tiles.py must request more shared memory");
    auto& shared = target::shared_memory<Shared>();
    const int warp = target::uniform(target::thread_index() / target::kWarp),
              lane = target::thread_index() % target::kWarp;
    Tiles<Config> kernel{shared, origin, workspace, initial, geometry, warp, lane};
    constexpr int kWorkers = Shared::kWorkers, kProducers = Config::kProducers;
    if (warp >= kWorkers && warp < kWorkers + kProducers) {
        kernel.run_producer(warp - kWorkers);
    } else if (warp < kWorkers) {
        kernel.make_barriers();
        target::barrier_sync<1>(Shared::kThreads);
        kernel.run_group(warp / Config::kWarps, warp % Config::kWarps);
    } else {
        target::barrier_sync<1>(Shared::kThreads);
        kernel.run_look_back(warp - kWorkers - kProducers);
    }
    // From the producer for whose slots this warp has waited, or from this producer.
    const uint32 epoch = shared.epoch[(warp < kWorkers ? warp / Config::kWarps : warp - kWorkers) % kProducers];
    workspace->leave(epoch, geometry.workspace_words);
}

}  // namespace cuscan
