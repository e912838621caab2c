// The carry along columns, in the wider Carry type: 4,096 units make a section, whose totals are combined in pairs, those of
// the pairs in pairs, and so on; sections from left to right. What precedes a unit is the sections before it, and then, one
// by one, the blocks of 2048, 1024, ... 1 units that its number within its section is made of.
//
// Who walks down a column alone keeps that in a SectionCarry. Where blocks share columns, they take tiles by ticket
// (SharedStrips) and publish totals. The family columns publishes those of units, and with the last unit of a group of 16
// the group's (ColumnTables, ColumnWalk): a block goes on from where it last was, over the groups in between. So nobody
// waits for what precedes another unit, but for totals, which take two steps. The families strips (batches.cuh) and
// whole_rows have chains of their own.
#pragma once
#include "scans.cuh"
#include "schedule.cuh"
#include "tagged.cuh"
#include "workspace.cuh"

namespace cuscan {

constexpr uint32 kSectionUnits = 4096, kGroupUnits = 16;
constexpr uint32 kLineWords = target::kLine / sizeof(uint64);

// Along nodes of kNodeUnits units, a power of two. What precedes a group of nodes is kept, so that nodes take few steps;
// what only the end of a group asks for, Sections, can lie in shared memory.
template <class Carry, class CarryOp, uint32 kNodeUnits, bool kHasInitial>
struct SectionCarry {
    static constexpr uint32 kNodes = kSectionUnits / kNodeUnits, kGroup = kNodes < 16 ? kNodes : 16,
                            kGroups = kNodes / kGroup;
    static_assert(kGroups * kGroup * kNodeUnits == kSectionUnits, "");
    struct Sections {
        Carry before;  // the present one; in the beginning the initial value
        PairedFold<CarryOp, levels_of(kGroups), Carry> groups;
    };
    Carry before_group;
    PairedFold<CarryOp, levels_of(kGroup), Carry> nodes;

    static CUSCAN_DEVICE bool precedes(uint32 number) { return kHasInitial || number > 0; }
    CUSCAN_DEVICE void begin(Sections& sections, const Carry& initial) { sections.before = before_group = initial; }
    CUSCAN_DEVICE Carry before(uint32 number) const {
        return nodes.before(number % kGroup, precedes(number / kGroup), before_group);
    }
    CUSCAN_DEVICE void pass(Sections& sections, uint32 number, const Carry& total) {
        const Carry of_group = nodes.push(number % kGroup, total);
        if ((number + 1) % kGroup != 0) return;
        const uint32 passed = number / kGroup % kGroups, at = (passed + 1) % kGroups;
        const Carry of_section = sections.groups.push(passed, of_group);
        if (at == 0) sections.before = join<CarryOp>(kHasInitial || number >= kNodes, sections.before, of_section);
        before_group = sections.groups.before(at, kHasInitial || number + 1 >= kNodes, sections.before);
    }
};

// The strips that blocks share. Pieces of a strip are handed out by ticket, in order, so whoever has one waits for none that
// has not begun. A workspace's own tickets are for the pieces of a single strip. Of several, the counters are the first
// words of the workspace, which like all others carry the tag of their launch; the workspace's ticket, one for each block,
// tells the tag.
struct SharedStrips {
    Workspace* workspace;
    uint64 strips, strip;
    uint32 pieces;  // of a strip
    uint64 words_used;
    Workspace::Ticket ticket{};  // the last one of the workspace's

    CUSCAN_DEVICE SharedStrips(Workspace* workspace, uint64 strips, uint32 pieces, uint64 words_used)
        : workspace(workspace),
          strips(strips),
          strip(target::block_index() % strips),
          pieces(pieces),
          words_used(words_used) {}
    // By one thread of the block. Opens them, which may be before await_predecessors.
    CUSCAN_DEVICE void open() {
        ticket = Workspace::ticket(workspace->take_ticket());
        if (strips > 1) workspace->renew_after(ticket, target::block_count(), words_used);
    }
    CUSCAN_DEVICE uint32 tag() const { return ticket.tag; }
    // After await_predecessors, one after the other, until there is no more.
    CUSCAN_DEVICE Turn first() {
        if (strips == 1) return of_single();
        begin();
        return next();
    }
    CUSCAN_DEVICE Turn next() {
        if (strips == 1) {
            ticket = Workspace::ticket(workspace->take_ticket());
            return of_single();
        }
        for (;;) {
            const uint32 piece = uint32(target::atomic_increment(workspace->words() + strip));
            if (piece < pieces || strip + target::block_count() >= strips) return {piece < pieces, strip, piece};
            strip += target::block_count();
            begin();
        }
    }

private:
    CUSCAN_DEVICE void begin() { target::atomic_raise(workspace->words() + strip, uint64(ticket.tag) << 32); }
    CUSCAN_DEVICE Turn of_single() {
        workspace->renew_after(ticket, pieces + target::block_count(), words_used);
        return {ticket.number < pieces, 0, ticket.number};
    }
};

// A table of totals in the workspace, from a line on, `chains` of them side by side: number after number.
template <class T>
struct TotalsTable {
    uint64* words;
    uint64 chains;
    uint32 tag;

    CUSCAN_DEVICE void publish(uint64 number, uint64 chain, const T& total) const {
        Tagged<T>::publish(entry(number, chain), total, tag);
    }
    CUSCAN_DEVICE uint64* entry(uint64 number, uint64 chain) const {
        return words + (number * chains + chain) * Tagged<T>::kWords;
    }
    // Where a table behind one of `numbers` begins.
    CUSCAN_DEVICE uint64* end(uint64 numbers) const { return words + whole_lines(numbers * chains * Tagged<T>::kWords); }
    static CUSCAN_DEVICE uint64 whole_lines(uint64 words) { return (words + kLineWords - 1) / kLineWords * kLineWords; }
};

// The tables of columns (assemble.py counts the same), behind a counter for each strip.
template <class State, class Carry>
struct ColumnTables {
    TotalsTable<State> of_units;
    TotalsTable<Carry> of_groups;
    uint32 groups;

    CUSCAN_DEVICE ColumnTables(Workspace* workspace, uint32 tag, uint64 strips, uint64 chains, uint64 units)
        : of_units{workspace->words() + TotalsTable<State>::whole_lines(strips), chains, tag},
          of_groups{of_units.end(units), chains, tag},
          groups(uint32((units + kGroupUnits - 1) / kGroupUnits)) {}
};

// Where a walk along a column is: in shared memory, since it would take too many registers.
template <class Carry, class CarryOp, bool kHasInitial>
struct ColumnPlace {
    using Groups = SectionCarry<Carry, CarryOp, kGroupUnits, kHasInitial>;
    typename Groups::Sections sections;
    Groups groups;
    PairedFold<CarryOp, levels_of(kGroupUnits), Carry> units;  // of the present group
};

// Finds what precedes units of kColumns neighbouring columns: the first lanes of a warp have one each, all of them look.
template <class State, class Carry, class CarryOp, int kColumns, bool kHasInitial>
class ColumnWalk {
    static constexpr int kIndices = target::kWarp / kColumns;  // entries of each column that a warp looks at at once
    static constexpr int kLooks = sizeof(State) > 4 ? 3 : 4;   // that travel together, at most
    static constexpr int kGroupLooks = (kGroupUnits - 1 + kIndices - 1) / kIndices;  // at the rest of a group
    static constexpr int kFewLooks = kGroupLooks < 4 ? kGroupLooks : 4;
    static constexpr uint32 kNear = 2 * kGroupUnits;

public:
    using Place = ColumnPlace<Carry, CarryOp, kHasInitial>;

    // `places`: of the columns.
    CUSCAN_DEVICE ColumnWalk(const ColumnTables<State, Carry>& tables, Place* places)
        : tables_(tables), lane_(target::thread_index() % target::kWarp), place_(places[lane_ % kColumns]) {}

    // The first chain of a new run of chains: nothing is known of it.
    CUSCAN_DEVICE void begin(uint64 first_chain, const Carry& initial) {
        chain_ = first_chain + lane_ % kColumns;
        if (has_column()) place_.groups.begin(place_.sections, initial);
        seen_ = 0;
    }
    // In the lanes that have a column, what precedes a unit, if there is an earlier unit or an initial value; `own` is the
    // unit's total, for others.
    CUSCAN_DEVICE Carry prefix(uint32 unit, const State& own) {
        if (has_column()) tables_.of_units.publish(unit, chain_, own);
        const bool near = unit - seen_ <= kNear;
        if (near)
            over_units(unit);
        else
            over_groups(unit, own);
        Carry before;
        if (has_column()) {
            const uint32 group = unit / kGroupUnits;
            before = place_.units.before(unit % kGroupUnits, Groups::precedes(group), place_.groups.before(group));
            pass(unit, own, near);
        }
        seen_ = unit + 1;
        return before;
    }

private:
    using Groups = SectionCarry<Carry, CarryOp, kGroupUnits, kHasInitial>;

    CUSCAN_DEVICE bool has_column() const { return lane_ < kColumns; }
    CUSCAN_DEVICE void pass(uint32 unit, const State& total, bool publishes) {
        const Carry of_group = place_.units.push(unit % kGroupUnits, convert<Carry>(total));
        if ((unit + 1) % kGroupUnits != 0) return;
        if (publishes) publish_group(unit / kGroupUnits, of_group);
        place_.groups.pass(place_.sections, unit / kGroupUnits, of_group);
    }
    CUSCAN_DEVICE void publish_group(uint32 group, const Carry& total) {
        if (group + 1 < tables_.groups) tables_.of_groups.publish(group, chain_, total);
    }
    // To what precedes `unit`: from unit number seen_ on; or from its group.
    CUSCAN_DEVICE void over_units(uint32 unit) {
        Looks<State, (kNear + kIndices - 1) / kIndices> of_units(*this, tables_.of_units, seen_, unit);
        of_units.each(*this, [&](uint32 at, const State& value) { pass(seen_ + at, value, false); });
    }
    CUSCAN_DEVICE void over_groups(uint32 unit, const State& own) {
        const uint32 group = unit / kGroupUnits, from = seen_ / kGroupUnits;
        Looks<State, kGroupLooks> of_units(*this, tables_.of_units, group * kGroupUnits, unit);
        Looks<Carry, kFewLooks> of_groups(*this, tables_.of_groups, from, group);
        of_units.each(*this, [&](uint32 at, const State& value) { place_.units.push(at, convert<Carry>(value)); });
        // Others wait for the group's total, and not for what precedes it.
        if (has_column() && (unit + 1) % kGroupUnits == 0)
            publish_group(group, place_.units.push(unit % kGroupUnits, convert<Carry>(own)));
        of_groups.each(*this, [&](uint32 at, const Carry& value) { place_.groups.pass(place_.sections, from + at, value); });
    }

    // Looks at entries of a table, from one to another, up to kMost times kIndices at a time.
    template <class T, int kMost>
    struct Looks {
        static constexpr int kBatch = kMost < 1 ? 1 : kMost < kLooks ? kMost : kLooks;
        const uint64* first;  // of this lane's column
        uint32 count;
        T total[kBatch];
        bool here;

        CUSCAN_DEVICE Looks(const ColumnWalk& walk, const TotalsTable<T>& table, uint32 from, uint32 to)
            : first(table.entry(from, walk.chain_)), count(to - from) {
            look(walk, 0);
        }
        // Calls take(i, entry i of the column) in order, when they are there, in the lanes that have a column.
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
                    CUSCAN_NO_UNROLL
                    for (int j = 0; j < kIndices; ++j) {
                        const uint32 at = base + i * kIndices + j;
                        const int source = j * kColumns + walk.lane_ % kColumns;
                        const T value = kIndices == 1 ? total[i] : target::shuffle(total[i], source);
                        if (at < count && walk.has_column()) take(at, value);
                    }
                }
            }
        }

    private:
        // Beyond the end are the last entry's doubles: a branch would make the loads wait for each other.
        CUSCAN_DEVICE void look(const ColumnWalk& walk, uint32 base) {
            if (count == 0) return;
            const uint32 index = walk.lane_ / kColumns, last = count - 1;
            const auto& table = walk.tables_.of_units;  // chains and tag are all tables'
            here = true;
            CUSCAN_UNROLL
            for (int i = 0; i < kBatch; ++i) {
                const uint32 at = base + i * kIndices + (index < kIndices ? index : 0);
                const uint64 step = uint32(table.chains) * Tagged<T>::kWords;  // no more are shared
                const bool this_one = Tagged<T>::ready(first + (at < last ? at : last) * step, table.tag, total[i]);
                here = here && this_one;
            }
        }
    };

    ColumnTables<State, Carry> tables_;
    const int lane_;
    Place& place_;
    uint64 chain_;
    uint32 seen_;  // of the units
};

}  // namespace cuscan
