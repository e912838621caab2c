// The carry along columns, from unit to unit: 16 units make a group, 256 groups a section, each folded from left to right in
// the wider Carry type. What precedes a unit is (sections before . groups before) . units before.
//
// Who walks down a column alone keeps that in a ColumnCarry. Where blocks share columns, they publish the totals of units,
// and with the last unit of a group the group's. A block goes on from where it last was: it folds all groups in between, in
// order. So nobody waits for what another has found, but for a group's total, which takes one step.
#pragma once
#include "chain_tables.cuh"
#include "scans.cuh"

namespace cuscan {

constexpr uint32 kGroupUnits = 16, kSectionGroups = 256;

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

// The tables of a launch's `chains` (assemble.py counts the same): of the totals of units, and of groups. Neighbouring chains
// are neighbours.
template <class State, class Carry>
struct ColumnTables {
    uint64 chains;
    uint32 units, groups;
    uint64 *of_units, *of_groups;
    uint32 tag;

    CUSCAN_DEVICE ColumnTables(Workspace* workspace, uint64 chains, uint64 units)
        : chains(chains),
          units(uint32(units)),
          groups(uint32((units + kGroupUnits - 1) / kGroupUnits)),
          of_units(workspace->words()),
          of_groups(of_units + (chains * units * Tagged<State>::kWords + 1) / 2 * 2),  // pairs are accessed at once
          tag(workspace->tag()) {}

    template <class T>
    CUSCAN_DEVICE void publish(uint64* table, uint32 index, uint64 chain, const T& total) {
        Tagged<T>::publish(table + (index * chains + chain) * Tagged<T>::kWords, total, tag);
    }
    template <class T>
    CUSCAN_DEVICE bool ready(const uint64* table, uint32 index, uint64 chain, T& total) const {
        return Tagged<T>::ready(table + (index * chains + chain) * Tagged<T>::kWords, tag, total);
    }
};

// A warp's view of a run of units of neighbouring columns: lane u * kColumns + c has unit u of the run and column c, and lanes
// beyond them nothing of their own.
template <class State, class Carry, class CarryOp, int kColumns, int kUnits, bool kHasInitial>
class ColumnWalk {
    static_assert(kColumns * kUnits <= target::kWarp && kGroupUnits % kUnits == 0, "");
    static constexpr int kIndices = target::kWarp / kColumns;  // entries of each column that a warp looks at at once
    static constexpr int kLooks = 8;                           // that travel together, at most

public:
    CUSCAN_DEVICE ColumnWalk(const ColumnTables<State, Carry>& tables)
        : tables_(tables), lane_(target::thread_index() % target::kWarp) {}

    // The first chain of a new run of chains: nothing is known of it.
    CUSCAN_DEVICE void begin(uint64 first_chain, const Carry& initial) {
        chain_ = first_chain + lane_ % kColumns;
        carry_.sections = initial;
        seen_ = 0;
    }
    CUSCAN_DEVICE void publish(uint32 unit, const State& total) {
        if (kUnits < kGroupUnits && lane_ < kColumns * kUnits && unit + lane_ / kColumns < tables_.units)
            tables_.publish(tables_.of_units, unit + lane_ / kColumns, chain_, total);
    }
    // What precedes this lane's unit; nothing does if there is neither an earlier unit nor an initial value. `unit` is the
    // run's first, `total` this lane's unit's.
    CUSCAN_DEVICE Carry prefix(uint32 unit, const State& total) {
        const uint32 place = unit % kGroupUnits, group = unit / kGroupUnits;
        Looks<State, (kGroupUnits - kUnits + kIndices - 1) / kIndices> of_units;
        Looks<Carry, 4> of_groups;
        of_units.begin(*this, tables_.of_units, unit - place, place);  // the first looks travel together
        of_groups.begin(*this, tables_.of_groups, seen_, group - seen_);

        Carry units;
        of_units.each(*this, [&](uint32 at, const State& value) {
            units = join<CarryOp>(at > 0, units, convert<Carry>(value));
        });
        Carry own_units = units;
        bool own_has_units = place > 0;
        CUSCAN_UNROLL
        for (int u = 0; u < kUnits; ++u) {
            if (u == lane_ / kColumns) {
                own_units = units;
                own_has_units = place + u > 0;
            }
            const Carry next = convert<Carry>(target::shuffle_from(total, u * kColumns + lane_ % kColumns));
            units = join<CarryOp>(place + u > 0, units, next);
        }
        if (place + kUnits == kGroupUnits && group + 1 < tables_.groups && lane_ < kColumns)
            tables_.publish(tables_.of_groups, group, chain_, units);

        of_groups.each(*this, [&](uint32 at, const Carry& value) { carry_.pass_group(seen_ + at, value); });
        seen_ = group;
        const Carry carry = carry_.before_group(group);
        return own_has_units ? join<CarryOp>(carry_.precedes_group(group), carry, own_units) : carry;
    }

private:
    // A look at up to kMost times kIndices entries of a table at a time.
    template <class T, int kMost>
    struct Looks {
        static constexpr int kBatch = kMost < 1 ? 1 : kMost < kLooks ? kMost : kLooks;
        const uint64* table;
        uint32 first, count;
        T total[kBatch];
        bool here[kBatch];

        CUSCAN_DEVICE void begin(const ColumnWalk& walk, const uint64* entries, uint32 from, uint32 number) {
            table = entries;
            first = from;
            count = number;
            look(walk, 0);
        }
        // Calls take(i, entry i of this lane's column) in order, when they are there.
        template <class Take>
        CUSCAN_DEVICE void each(const ColumnWalk& walk, Take take) {
            for (uint32 base = 0; base < count; base += kBatch * kIndices) {
                if (base > 0) look(walk, base);
                CUSCAN_UNROLL
                for (int i = 0; i < kBatch; ++i) {
                    const uint32 at = base + i * kIndices;
                    if (at >= count) break;
                    while (target::ballot(here[i]) != ~0u) {
                        target::pause();
                        if (!here[i]) here[i] = look_at(walk, at, total[i]);
                    }
                    CUSCAN_UNROLL
                    for (int j = 0; j < kIndices; ++j) {
                        const T value = target::shuffle_from(total[i], j * kColumns + walk.lane_ % kColumns);
                        if (at + j < count) take(at + j, value);
                    }
                }
            }
        }

    private:
        CUSCAN_DEVICE void look(const ColumnWalk& walk, uint32 base) {
            CUSCAN_UNROLL
            for (int i = 0; i < kBatch; ++i) here[i] = look_at(walk, base + i * kIndices, total[i]);
        }
        CUSCAN_DEVICE bool look_at(const ColumnWalk& walk, uint32 at, T& value) const {
            const uint32 index = walk.lane_ / kColumns;
            if (index >= kIndices || at + index >= count) return true;
            return walk.tables_.ready(table, first + at + index, walk.chain_, value);
        }
    };

    ColumnTables<State, Carry> tables_;
    uint64 chain_;
    ColumnCarry<Carry, CarryOp, kHasInitial> carry_;  // before group seen_
    uint32 seen_;
    const int lane_;
};

}  // namespace cuscan
