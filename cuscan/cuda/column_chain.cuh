// The carry along columns, from unit to unit: 16 units make a group, 16 groups a section, each folded from left to right in
// the wider Carry type. What precedes a unit is (sections before . groups before) . units before.
//
// ColumnCarry keeps it for who walks down a column alone. Where blocks share columns, units publish their totals, the last
// unit of a group the group's, the last of a section the section's; what precedes a unit is folded from those, at any time
// the same.
#pragma once
#include "chain_tables.cuh"
#include "scans.cuh"

namespace cuscan {

constexpr int kFold = 16;

template <class Carry, class CarryOp, bool kHasInitial>
struct ColumnCarry {
    Carry sections, groups, units;  // before the present one; `sections` begins as the initial value

    CUSCAN_DEVICE static bool precedes(uint32 unit) { return kHasInitial || unit > 0; }
    CUSCAN_DEVICE Carry before(uint32 unit) const {
        bool has = kHasInitial || unit >= kFold * kFold;
        Carry carry = sections;
        if (unit / kFold % kFold > 0) {
            carry = join<CarryOp>(has, carry, groups);
            has = true;
        }
        return unit % kFold > 0 ? join<CarryOp>(has, carry, units) : carry;
    }
    CUSCAN_DEVICE void pass(uint32 unit, const Carry& total) {
        units = join<CarryOp>(unit % kFold > 0, units, total);
        if (unit % kFold < kFold - 1) return;
        groups = join<CarryOp>(unit / kFold % kFold > 0, groups, units);
        if (unit / kFold % kFold < kFold - 1) return;
        sections = join<CarryOp>(kHasInitial || unit >= kFold * kFold, sections, groups);
    }
};

// The tables of a launch's `chains` (assemble.py counts the same): of the totals of units, of groups, of sections. Neighbouring
// chains are neighbours.
template <class State, class Carry>
struct ColumnTables {
    uint64 chains;
    uint32 units, groups, sections;
    uint64 *of_units, *of_groups, *of_sections;
    uint32 tag;

    CUSCAN_DEVICE ColumnTables(Workspace* workspace, uint64 chains, uint64 units)
        : chains(chains),
          units(uint32(units)),
          groups(uint32((units + kFold - 1) / kFold)),
          sections(uint32((units + kFold * kFold - 1) / (kFold * kFold))),
          of_units(workspace->words()),
          of_groups(of_units + even(chains * units * Tagged<State>::kWords)),
          of_sections(of_groups + even(chains * groups * Tagged<Carry>::kWords)),
          tag(workspace->tag()) {}

    template <class T>
    CUSCAN_DEVICE void publish(uint64* table, uint32 index, uint64 chain, const T& total) {
        Tagged<T>::publish(table + (index * chains + chain) * Tagged<T>::kWords, total, tag);
    }
    template <class T>
    CUSCAN_DEVICE bool ready(const uint64* table, uint32 index, uint64 chain, T& total) const {
        return Tagged<T>::ready(table + (index * chains + chain) * Tagged<T>::kWords, tag, total);
    }

private:
    static CUSCAN_DEVICE uint64 even(uint64 words) { return (words + 1) / 2 * 2; }  // pairs are accessed at once
};

// A warp's view of a run of units of neighbouring columns: lane u * kColumns + c has unit u of the run and column c, and lanes
// beyond them nothing of their own.
template <class State, class Carry, class CarryOp, int kColumns, int kUnits, bool kHasInitial>
class ColumnWalk {
    static_assert(kColumns * kUnits <= target::kWarp && kFold % kUnits == 0, "");
    static constexpr int kIndices = target::kWarp / kColumns;  // entries of each column that a warp looks at at once
    static constexpr int kLooks = 4;                           // that travel together

public:
    CUSCAN_DEVICE ColumnWalk(const ColumnTables<State, Carry>& tables)
        : tables_(tables), lane_(target::thread_index() % target::kWarp) {}

    // The first chain of a new run of chains: nothing is known of it.
    CUSCAN_DEVICE void begin(uint64 first_chain, const Carry& initial) {
        chain_ = first_chain + lane_ % kColumns;
        sections_ = initial;
        seen_ = 0;
    }
    CUSCAN_DEVICE void publish(uint32 unit, const State& total) {
        if (kUnits < kFold && lane_ < kColumns * kUnits && unit + lane_ / kColumns < tables_.units)
            tables_.publish(tables_.of_units, unit + lane_ / kColumns, chain_, total);
    }
    // What precedes this lane's unit; nothing does if there is neither an earlier unit nor an initial value. `unit` is the
    // run's first, `total` this lane's unit's.
    CUSCAN_DEVICE Carry prefix(uint32 unit, const State& total) {
        const uint32 place = unit % kFold, group = unit / kFold, group_place = group % kFold, section = group / kFold;
        bool has_units = false, has_groups = false, has_sections = kHasInitial || seen_ > 0;
        Carry units, groups;
        fold<State>(tables_.of_units, unit - place, place, has_units, units);
        Carry before = units;  // this lane's unit in its group
        const bool has_before = has_units || lane_ / kColumns > 0;
        CUSCAN_UNROLL
        for (int u = 0; u < kUnits; ++u) {
            if (u == lane_ / kColumns) before = units;
            const Carry next = convert<Carry>(target::shuffle_from(total, u * kColumns + lane_ % kColumns));
            units = join<CarryOp>(has_units, units, next);
            has_units = true;
        }
        const bool ends_group = place + kUnits == kFold && group + 1 < tables_.groups;
        if (ends_group && lane_ < kColumns) tables_.publish(tables_.of_groups, group, chain_, units);
        fold<Carry>(tables_.of_groups, group - group_place, group_place, has_groups, groups);
        if (ends_group && group_place == kFold - 1 && lane_ < kColumns)
            tables_.publish(tables_.of_sections, section, chain_, join<CarryOp>(has_groups, groups, units));
        fold<Carry>(tables_.of_sections, seen_, section - seen_, has_sections, sections_);
        seen_ = section;

        Carry carry = has_groups ? join<CarryOp>(has_sections, sections_, groups) : sections_;
        return has_before ? join<CarryOp>(has_sections || has_groups, carry, before) : carry;
    }

private:
    // `carry` and `count` entries of a table, from `first` on.
    template <class T>
    CUSCAN_DEVICE void fold(const uint64* table, uint32 first, uint32 count, bool& has, Carry& carry) {
        const uint32 index = lane_ / kColumns;
        for (uint32 base = 0; base < count; base += kIndices * kLooks) {
            T total[kLooks];
            bool here[kLooks];
            CUSCAN_UNROLL
            for (int look = 0; look < kLooks; ++look) {
                const uint32 at = base + look * kIndices + index;
                here[look] = index >= kIndices || at >= count || tables_.ready(table, first + at, chain_, total[look]);
            }
            CUSCAN_UNROLL
            for (int look = 0; look < kLooks; ++look) {
                if (base + look * kIndices >= count) break;
                while (target::ballot(here[look]) != ~0u) {
                    target::pause();
                    if (!here[look])
                        here[look] = tables_.ready(table, first + base + look * kIndices + index, chain_, total[look]);
                }
                CUSCAN_UNROLL
                for (int i = 0; i < kIndices; ++i) {
                    const Carry next = convert<Carry>(target::shuffle_from(total[look], i * kColumns + lane_ % kColumns));
                    if (base + look * kIndices + i < count) {
                        carry = join<CarryOp>(has, carry, next);
                        has = true;
                    }
                }
            }
        }
    }

    ColumnTables<State, Carry> tables_;
    uint64 chain_;
    Carry sections_;  // those before number seen_, or the initial value
    uint32 seen_;
    const int lane_;
};

}  // namespace cuscan
