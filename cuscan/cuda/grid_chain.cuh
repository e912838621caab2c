// Decoupled look-back (Merrill & Garland 2016) along a chain of units that different blocks work on, in three levels, so
// that a walk takes a few loads however many units are in flight.
//
// 32 units make a group, 32 groups a section. A unit publishes its aggregate, the last unit of a group the group's total,
// the last unit of a section the section's total and, as soon as it knows it, the carry into the next section. What
// precedes a unit is (carry into its section . groups before in the section) . units before in the group: two warp scans,
// and a fold from left to right over the few sections whose carry is not known yet. All of it is in the wider Carry type.
// Which carries a walk happens to meet changes nothing: the association is fixed, so every run gives the same bits.
//
// Progress: a unit waits only for units of lower index in its chain. Callers hand units out in that order (tickets).
#pragma once
#include "chain_tables.cuh"
#include "scans.cuh"

namespace cuscan {

// kCount neighbouring chains, walked together by a whole warp: lane i looks at unit i of a group, group i of a section.
// CarryOp is the operator on the Carry type; kLevels says how far up the chains reach: 1, no more than a group; 2, no more
// than a section; 3, any length.
template <class Acc, class Carry, class CarryOp, int kLevels, int kCount = 1>
struct GridChains {
    static constexpr int kLanes = target::kWarp;

    ChainTables<Acc, Carry> tables;
    uint64 first;  // of these chains
    uint32 tag;
    int lane;

    // `chains`: all of the launch, of `units` each.
    CUSCAN_DEVICE GridChains(Workspace* workspace, uint64 chains, uint64 units, uint64 first_chain)
        : tables(workspace->words(), chains, units),
          first(first_chain),
          tag(workspace->tag()),
          lane(target::thread_index() % kLanes) {}

    CUSCAN_DEVICE void publish(int chain, uint32 unit, const Acc& aggregate) {
        Tagged<Acc>::publish(slot<Acc>(tables.aggregates, tables.units, chain, unit), aggregate, tag);
    }

    // What precedes `unit` in each chain, in every lane: carry[], of which nothing exists if the result is false. On
    // entry carry[] is the chain's initial value, if there is one; own[] are the unit's aggregates, already published.
    CUSCAN_DEVICE bool prefix(uint32 unit, const Acc (&own)[kCount], bool has_carry, Carry (&carry)[kCount]) {
        const int place = int(unit % kLanes);
        Carry units[kCount];
        has_carry = walk<1>(unit, own, has_carry, carry, units);
        if (place > 0) fold(has_carry, carry, units, place - 1);
        return has_carry;
    }

    // The same for a run of kRun neighbouring units of a group, from `unit` on, all at once: what belongs to unit i of the
    // group, of own[] and of carry[], is in lane i. Nothing precedes unit 0 if there is no initial value.
    template <int kRun>
    CUSCAN_DEVICE void prefixes(uint32 unit, const Acc (&own)[kCount], bool has_carry, Carry (&carry)[kCount]) {
        Carry units[kCount];
        has_carry = walk<kRun>(unit, own, has_carry, carry, units);
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) {
            const Carry before = target::shuffle_up(units[c], 1);
            if (lane > 0) carry[c] = join<CarryOp>(has_carry, carry[c], before);
        }
    }

private:
    // What precedes the group of the run, in every lane; units[] are the inclusive scans over the group's units up to the
    // run's end, lane by lane, if more than one counts.
    template <int kRun>
    CUSCAN_DEVICE bool walk(uint32 unit, const Acc (&own)[kCount], bool has_carry, Carry (&carry)[kCount],
                            Carry (&units)[kCount]) {
        const uint32 group = kLevels > 1 ? unit / kLanes : 0, section = kLevels > 2 ? group / kLanes : 0;
        const int place = int(unit % kLanes), group_place = int(group % kLanes);
        const bool ends_group = kLevels > 1 && place == kLanes - kRun && group + 1 < tables.groups;
        const bool ends_section = kLevels > 2 && ends_group && group_place == kLanes - 1;
        Carry groups[kCount];
        Sections sections;

        // The first looks travel together; whoever is not there yet is waited for afterwards.
        Acc aggregate[kCount];
        bool units_here = look(tables.aggregates, tables.units, unit - place, place, aggregate);
        bool groups_here = look(tables.group_totals, tables.groups, group - group_place, group_place, groups);
        if (section > 0) look_at_sections(section, sections);
        while (target::ballot(units_here) != ~0u) {
            target::pause();
            units_here = look(tables.aggregates, tables.units, unit - place, place, aggregate);
        }
        if (place > 0 || kRun > 1) {
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) units[c] = convert<Carry>(lane < place ? aggregate[c] : own[c]);
            scan(units);
        }
        if (ends_group) publish_all(tables.group_totals, tables.groups, group, units, kLanes - 1);

        while (target::ballot(groups_here) != ~0u) {
            target::pause();
            groups_here = look(tables.group_totals, tables.groups, group - group_place, group_place, groups);
        }
        if (group_place > 0) {
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) {
                const Carry own_group = target::broadcast(units[c], kLanes - 1);
                if (lane >= group_place) groups[c] = own_group;
            }
            scan(groups);
        }
        if (ends_section) publish_all(tables.section_totals, tables.sections, section, groups, kLanes - 1);

        if (section > 0) has_carry = walk_sections(section, sections, has_carry, carry);
        if (ends_section) {
            bool has_next = has_carry;
            Carry next[kCount];
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) next[c] = carry[c];
            fold(has_next, next, groups, kLanes - 1);
            publish_all(tables.carries, tables.sections, section + 1, next, 0);
        }
        if (group_place > 0) fold(has_carry, carry, groups, group_place - 1);
        return has_carry;
    }

    template <class T>
    CUSCAN_DEVICE uint64* slot(uint64* table, uint64 length, int chain, uint64 index) {
        return table + ((first + chain) * length + index) * Tagged<T>::kWords;
    }

    // Lane `from`'s values, to entry `index` of each chain.
    CUSCAN_DEVICE void publish_all(uint64* table, uint64 length, uint32 index, const Carry (&value)[kCount], int from) {
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c)
            if (lane == from) Tagged<Carry>::publish(slot<Carry>(table, length, c, index), value[c], tag);
    }

    // A look at entry start + lane of each chain, by the first `count` lanes: whether all chains' are there.
    template <class T>
    CUSCAN_DEVICE bool look(uint64* table, uint64 length, uint32 start, int count, T (&value)[kCount]) {
        bool here = true;
        if (lane < count) {
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) {
                const bool this_one = Tagged<T>::ready(slot<T>(table, length, c, start + lane), tag, value[c]);
                here = here && this_one;
            }
        }
        return here;
    }

    CUSCAN_DEVICE void scan(Carry (&value)[kCount]) {
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) value[c] = warp_inclusive_scan<CarryOp, kLanes>(value[c], lane);
    }

    // carry[] . lane `from`'s value[].
    CUSCAN_DEVICE void fold(bool& has_carry, Carry (&carry)[kCount], const Carry (&value)[kCount], int from) {
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) carry[c] = join<CarryOp>(has_carry, carry[c], target::broadcast(value[c], from));
        has_carry = true;
    }

    // What a walk has seen of earlier sections. Lane i looks at the carry into section - i, and at the total of the section
    // before that.
    struct Sections {
        Carry total[kCount], carry[kCount];
        bool has_total, has_carry;
    };
    CUSCAN_DEVICE void look_at_sections(uint32 section, Sections& seen) {
        const bool inside = uint32(lane) < section;
        const uint32 at = inside ? section - lane : section;
        seen.has_total = true;
        seen.has_carry = inside;
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) {
            const bool total_here =
                Tagged<Carry>::ready(slot<Carry>(tables.section_totals, tables.sections, c, at - 1), tag, seen.total[c]);
            const bool carry_here =
                Tagged<Carry>::ready(slot<Carry>(tables.carries, tables.sections, c, at), tag, seen.carry[c]);
            seen.has_total = seen.has_total && total_here;
            seen.has_carry = seen.has_carry && carry_here;
        }
    }
    // How many sections back the nearest carry is, or the chain's start, with all totals between seen; -1: not all are.
    CUSCAN_DEVICE int distance_to_carry(uint32 section, const Sections& seen) {
        const uint32 missing = target::ballot(uint32(lane) < section && !seen.has_total);
        const uint32 found = target::ballot(seen.has_carry);
        const int totals = missing ? target::first_set_bit(missing) : kLanes;  // unbroken from here back
        if (found && target::first_set_bit(found) <= totals) return target::first_set_bit(found);
        return uint32(totals) >= section ? int(section) : -1;
    }

    // The carry into a section: from the nearest one that is published, of the last 32, or from the chain's start, over
    // the totals of the sections between.
    CUSCAN_DEVICE bool walk_sections(uint32 section, Sections& seen, bool has_carry, Carry (&carry)[kCount]) {
        int distance = distance_to_carry(section, seen);
        while (distance < 0) {
            target::pause();
            look_at_sections(section, seen);
            distance = distance_to_carry(section, seen);
        }
        if (uint32(distance) < section) {
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) carry[c] = target::broadcast(seen.carry[c], distance);
            has_carry = true;
        }
        for (int i = distance - 1; i >= 0; --i) fold(has_carry, carry, seen.total, i);
        return has_carry;
    }
};

}  // namespace cuscan
