// The carry along columns, from unit to unit: 16 units make a group, 16 groups a section, each folded from left to right in
// the wider Carry type. What precedes a unit is (sections before . groups before) . units before.
//
// Who walks down a column alone keeps that in a ColumnCarry. Where blocks share columns, they publish the totals of units,
// with the last unit of a group the group's, and with the last group of a section the section's. A block goes on from where
// it last was, over the groups in between; or, where a tile is many units, over the sections. So nobody waits for what
// precedes another unit, but for totals, which take two steps, or three.
#pragma once
#include "scans.cuh"
#include "schedule.cuh"
#include "tagged.cuh"
#include "workspace.cuh"

namespace cuscan {

constexpr uint32 kGroupUnits = 16, kSectionGroups = 16;

template <class Carry, class CarryOp, bool kHasInitial>
struct ColumnCarry {
    Carry sections, groups, units;  // before the present one; `sections` begins as the initial value

    static CUSCAN_DEVICE bool precedes_group(uint32 group) { return kHasInitial || group > 0; }
    CUSCAN_DEVICE Carry before_group(uint32 group) const {
        const bool has_sections = kHasInitial || group >= kSectionGroups;
        return group % kSectionGroups > 0 ? join<CarryOp>(has_sections, sections, groups) : sections;
    }
    CUSCAN_DEVICE void pass_group(uint32 group, const Carry& total) {
        groups = join<CarryOp>(group % kSectionGroups > 0, groups, total);
        if ((group + 1) % kSectionGroups == 0)
            sections = join<CarryOp>(kHasInitial || group >= kSectionGroups, sections, groups);
    }
    CUSCAN_DEVICE Carry before(uint32 unit) const {
        const Carry carry = before_group(unit / kGroupUnits);
        return unit % kGroupUnits > 0 ? join<CarryOp>(precedes_group(unit / kGroupUnits), carry, units) : carry;
    }
    CUSCAN_DEVICE void pass(uint32 unit, const Carry& total) {
        units = join<CarryOp>(unit % kGroupUnits > 0, units, total);
        if ((unit + 1) % kGroupUnits == 0) pass_group(unit / kGroupUnits, units);
    }
};

// The strips that a block shares with others. The tiles of a strip are handed out by ticket, in order, so whoever has one
// waits for none that has not begun. The counters are the first words of the workspace; like all others they carry the tag
// of their launch. The workspace's own tickets are one for each block, which learns the tag so.
struct SharedStrips {
    Workspace* workspace;
    uint64 strips, strip;
    uint32 tiles;  // of a strip
    uint32 tag;

    CUSCAN_DEVICE SharedStrips(Workspace* workspace, uint64 strips, uint32 tiles)
        : workspace(workspace), strips(strips), strip(target::block_index() % strips), tiles(tiles) {}
    // By one thread of the block, one after the other.
    CUSCAN_DEVICE Turn first(uint64 words_used) {
        const Workspace::Ticket ticket = Workspace::ticket(workspace->take_ticket());
        workspace->renew_after(ticket, target::block_count(), words_used);
        tag = ticket.tag;
        begin();
        return next();
    }
    CUSCAN_DEVICE Turn next() {
        for (;;) {
            const uint32 tile = uint32(target::atomic_increment(workspace->words() + strip));
            if (tile < tiles || strip + target::block_count() >= strips) return {tile < tiles, strip, tile};
            strip += target::block_count();
            begin();
        }
    }

private:
    CUSCAN_DEVICE void begin() { target::atomic_raise(workspace->words() + strip, uint64(tag) << 32); }
};

// The tables of a launch's `chains` (assemble.py counts the same), behind a counter for each strip: of the totals of units,
// of groups, and of sections. Neighbouring chains are neighbours.
template <class State, class Carry>
struct ColumnTables {
    uint64 chains;
    uint32 units, groups, sections;
    uint64 *of_units, *of_groups, *of_sections;
    uint32 tag;

    CUSCAN_DEVICE ColumnTables(Workspace* workspace, uint32 tag, uint64 strips, uint64 chains, uint64 units)
        : chains(chains),
          units(uint32(units)),
          groups(uint32((units + kGroupUnits - 1) / kGroupUnits)),
          sections((groups + kSectionGroups - 1) / kSectionGroups),
          of_units(workspace->words() + even(strips)),
          of_groups(of_units + even(chains * units * Tagged<State>::kWords)),
          of_sections(of_groups + even(chains * groups * Tagged<Carry>::kWords)),
          tag(tag) {}

    template <class T>
    CUSCAN_DEVICE void publish(uint64* table, uint32 index, uint64 chain, const T& total) {
        Tagged<T>::publish(const_cast<uint64*>(entry<T>(table, index, chain)), total, tag);
    }
    template <class T>
    CUSCAN_DEVICE const uint64* entry(const uint64* table, uint32 index, uint64 chain) const {
        return table + (index * chains + chain) * Tagged<T>::kWords;
    }

private:
    static CUSCAN_DEVICE uint64 even(uint64 words) { return (words + 1) / 2 * 2; }  // pairs are accessed at once
};

// Two warps' views of runs of units of neighbouring columns: lane u * kColumns + c has unit u of the run and column c, and
// lanes beyond them nothing of their own.
template <class State, class Carry, class CarryOp, int kColumns, int kUnits>
struct ColumnRun {
    static_assert(kColumns * kUnits <= target::kWarp && kGroupUnits % kUnits == 0, "");
    using Tables = ColumnTables<State, Carry>;

    // The total of unit u of the run, in the lanes of its column.
    static CUSCAN_DEVICE Carry of_unit(const State& total, int u) {
        return convert<Carry>(target::shuffle(total, u * kColumns + lane() % kColumns));
    }
    // `total`, and the run's units.
    static CUSCAN_DEVICE Carry with_run(bool exists, Carry total, const State& own) {
        CUSCAN_UNROLL
        for (int u = 0; u < kUnits; ++u) total = join<CarryOp>(exists || u > 0, total, of_unit(own, u));
        return total;
    }
    // By the first: as soon as the run's totals are known. A run that is a group needs no others.
    static CUSCAN_DEVICE void publish(Tables& tables, uint64 first_chain, uint32 unit, const State& total) {
        const uint64 chain = first_chain + lane() % kColumns;
        if constexpr (kUnits == kGroupUnits) {
            publish_group(tables, chain, unit / kGroupUnits, with_run(false, Carry(), total));
        } else if (lane() < kColumns * kUnits && unit + lane() / kColumns < tables.units) {
            tables.publish(tables.of_units, unit + lane() / kColumns, chain, total);
        }
    }
    static CUSCAN_DEVICE void publish_group(Tables& tables, uint64 chain, uint32 group, const Carry& total) {
        if (lane() < kColumns && group + 1 < tables.groups) tables.publish(tables.of_groups, group, chain, total);
    }
    static CUSCAN_DEVICE int lane() { return target::thread_index() % target::kWarp; }
};

// The second finds what precedes the runs.
template <class State, class Carry, class CarryOp, int kColumns, int kUnits, bool kHasInitial>
class ColumnWalk {
    using Run = ColumnRun<State, Carry, CarryOp, kColumns, kUnits>;
    static constexpr int kIndices = target::kWarp / kColumns;  // entries of each column that a warp looks at at once
    static constexpr int kLooks = sizeof(State) > 4 ? 3 : 4;   // that travel together, at most

public:
    CUSCAN_DEVICE ColumnWalk(const ColumnTables<State, Carry>& tables)
        : tables_(tables), lane_(target::thread_index() % target::kWarp) {}

    // The first chain of a new run of chains: nothing is known of it.
    CUSCAN_DEVICE void begin(uint64 first_chain, const Carry& initial) {
        chain_ = first_chain + lane_ % kColumns;
        carry_.sections = initial;
        seen_ = 0;
    }
    // What precedes this lane's unit; nothing does if there is neither an earlier unit nor an initial value. `unit` is the
    // run's first; own() waits for this lane's unit's total, which may be called for more than once.
    template <class Own>
    CUSCAN_DEVICE Carry prefix(uint32 unit, Own own) {
        const bool near = !kBySections && unit - seen_ <= kNear;
        if constexpr (kBySections)
            over_sections(unit, own);
        else if (near)
            over_units(unit);
        else
            over_groups(unit, own);
        const State total = own();
        // All units of a run are of one group.
        const uint32 group = unit / kGroupUnits, place = kUnits == kGroupUnits ? 0 : unit % kGroupUnits;
        Carry units = carry_.units, before_own = units;
        CUSCAN_UNROLL
        for (int u = 0; u < kUnits; ++u) {
            if (u == lane_ / kColumns) before_own = units;
            units = join<CarryOp>(place + u > 0, units, Run::of_unit(total, u));
        }
        const Carry before = carry_.before_group(group);
        const bool is_first = place + lane_ / kColumns == 0;
        carry_.units = units;
        if (place + kUnits == kGroupUnits) {
            if (near) Run::publish_group(tables_, chain_, group, units);
            carry_.pass_group(group, units);
        }
        seen_ = unit + kUnits;
        return is_first ? before : join<CarryOp>(carry_.precedes_group(group), before, before_own);
    }

private:
    static constexpr uint32 kNear = 2 * kGroupUnits;
    static constexpr int kGroupLooks = (kGroupUnits - kUnits + kIndices - 1) / kIndices;  // at the rest of a group
    static constexpr int kFewLooks = kGroupLooks < 4 ? kGroupLooks : 4;
    static constexpr bool kBySections = kUnits > 2;

    // The units before `unit` in its group; and with the run's the group's total.
    template <class Looks, class Own>
    CUSCAN_DEVICE Carry fold_group(Looks& of_units, uint32 unit, Own own) {
        Carry units;
        of_units.each(*this,
                      [&](uint32 at, const State& value) { units = join<CarryOp>(at > 0, units, convert<Carry>(value)); });
        const uint32 place = unit % kGroupUnits;
        if (kUnits < kGroupUnits && place + kUnits == kGroupUnits)
            Run::publish_group(tables_, chain_, unit / kGroupUnits, Run::with_run(place > 0, units, own()));
        return units;
    }

    // To what precedes `unit`, in carry_: from unit number seen_ on; or from its group, or its section.
    CUSCAN_DEVICE void over_units(uint32 unit) {
        Looks<State, (kNear + kIndices - 1) / kIndices> of_units(*this, tables_.of_units, seen_, unit);
        of_units.each(*this, [&](uint32 at, const State& value) { carry_.pass(seen_ + at, convert<Carry>(value)); });
    }
    template <class Own>
    CUSCAN_DEVICE void over_groups(uint32 unit, Own own) {
        const uint32 group = unit / kGroupUnits, from = seen_ / kGroupUnits;
        Looks<State, kGroupLooks> of_units(*this, tables_.of_units, group * kGroupUnits, unit);
        Looks<Carry, kFewLooks> of_groups(*this, tables_.of_groups, from, group);
        const Carry units = fold_group(of_units, unit, own);
        of_groups.each(*this, [&](uint32 at, const Carry& value) { carry_.pass_group(from + at, value); });
        carry_.units = units;
    }
    template <class Own>
    CUSCAN_DEVICE void over_sections(uint32 unit, Own own) {
        const uint32 group = unit / kGroupUnits, section = group / kSectionGroups;
        const uint32 from = seen_ / (kGroupUnits * kSectionGroups);
        Looks<State, kGroupLooks> of_units(*this, tables_.of_units, group * kGroupUnits, unit);
        Looks<Carry, kGroupLooks> of_groups(*this, tables_.of_groups, section * kSectionGroups, group);
        Looks<Carry, 1> of_sections(*this, tables_.of_sections, from, section);
        const Carry units = fold_group(of_units, unit, own);
        Carry groups;
        of_groups.each(*this, [&](uint32 at, const Carry& value) { groups = join<CarryOp>(at > 0, groups, value); });
        if ((unit + kUnits) % (kGroupUnits * kSectionGroups) == 0 && section + 1 < tables_.sections) {
            const Carry total = join<CarryOp>(true, groups, Run::with_run(unit % kGroupUnits > 0, units, own()));
            if (lane_ < kColumns) tables_.publish(tables_.of_sections, section, chain_, total);
        }
        of_sections.each(*this, [&](uint32 at, const Carry& value) {
            carry_.sections = join<CarryOp>(kHasInitial || from + at > 0, carry_.sections, value);
        });
        carry_.groups = groups;
        carry_.units = units;
    }

    // Looks at entries of a table, from one to another, up to kMost times kIndices at a time.
    template <class T, int kMost>
    struct Looks {
        static constexpr int kBatch = kMost < 1 ? 1 : kMost < kLooks ? kMost : kLooks;
        const uint64* first;  // of this lane's column
        uint32 count;
        T total[kBatch];
        bool here;

        CUSCAN_DEVICE Looks(const ColumnWalk& walk, const uint64* table, uint32 from, uint32 to)
            : first(walk.tables_.template entry<T>(table, from, walk.chain_)), count(to - from) {
            look(walk, 0);
        }
        // Calls take(i, entry i of this lane's column) in order, when they are there.
        template <class Take>
        CUSCAN_DEVICE void each(const ColumnWalk& walk, Take take) {
            for (uint32 base = 0; base < count; base += kBatch * kIndices) {
                if (base > 0) look(walk, base);
                while (target::ballot(here) != ~0u) {
                    target::pause();
                    look(walk, base);
                }
                CUSCAN_UNROLL
                for (int i = 0; i < kBatch; ++i) {
                    CUSCAN_UNROLL_EIGHT
                    for (int j = 0; j < kIndices; ++j) {
                        const uint32 at = base + i * kIndices + j;
                        const int source = j * kColumns + walk.lane_ % kColumns;
                        const T value = kIndices == 1 ? total[i] : target::shuffle(total[i], source);
                        if (at < count) take(at, value);
                    }
                }
            }
        }

    private:
        // Beyond the end are the last entry's doubles: a branch would make the loads wait for each other.
        CUSCAN_DEVICE void look(const ColumnWalk& walk, uint32 base) {
            if (count == 0) return;
            const uint32 index = walk.lane_ / kColumns, last = count - 1;
            here = true;
            CUSCAN_UNROLL
            for (int i = 0; i < kBatch; ++i) {
                const uint32 at = base + i * kIndices + (index < kIndices ? index : 0);
                const uint64 step = uint32(walk.tables_.chains) * Tagged<T>::kWords;  // no more are shared
                const bool this_one = Tagged<T>::ready(first + (at < last ? at : last) * step, walk.tables_.tag, total[i]);
                here = here && this_one;
            }
        }
    };

    ColumnTables<State, Carry> tables_;
    uint64 chain_;
    ColumnCarry<Carry, CarryOp, kHasInitial> carry_;  // before number seen_
    uint32 seen_;                                     // of the units
    const int lane_;
};

}  // namespace cuscan
