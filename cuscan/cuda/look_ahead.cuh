// The carry along a chain whose units are handed out among blocks by ticket, for one warp of a block that wants it at ever
// later units. Every unit publishes its aggregate, nothing else. The warp goes forward over the aggregates of all units
// since the last one that it asked for, so it waits for their loads alone and never for another block's walk: there is no
// chain of walks, and a delay does not spread.
//
// The order is that of block_chain.cuh: 32 units make a group, 32 groups a section; what precedes a unit is (sections
// before . groups before in the section) . units before in the group, all in the wider Carry type.
//
// Progress: a unit waits only for units of lower index in its chain, and tickets hand out units in that order.
#pragma once
#include "chain_tables.cuh"
#include "scans.cuh"

namespace cuscan {

template <class Acc, class Carry, class CarryOp, int kLevels>
class LookAhead {
    static constexpr int kLanes = target::kWarp;
    static constexpr int kAhead = sizeof(Acc) + sizeof(Carry) <= 12 ? 6 : sizeof(Carry) <= 8 ? 5 : 3;  // groups looked at together

public:
    // `units` of each chain; their aggregates lie in the workspace, chain by chain.
    CUSCAN_DEVICE LookAhead(uint64* aggregates, uint64 units, uint32 tag)
        : aggregates_(aggregates), units_(units), tag_(tag), lane_(target::thread_index() % kLanes) {}

    CUSCAN_DEVICE void publish(uint64 chain, uint32 unit, const Acc& aggregate) const {
        Tagged<Acc>::publish(slot(chain, unit), aggregate, tag_);
    }

    // What precedes `unit`, in every lane: carry, of which nothing exists if the result is false. On entry carry is the
    // chain's initial value, if there is one. Units of a chain are asked for in ascending order, and chains one by one.
    CUSCAN_DEVICE bool prefix(uint64 chain, uint32 unit, bool has_carry, Carry& carry) {
        if (chain != chain_) {
            chain_ = chain;
            next_group_ = 0;
            section_ = carry;
            has_section_ = has_carry;
        }
        const uint32 group = unit / kLanes;
        const int place = int(unit % kLanes);
        Acc seen[kAhead];
        while (group - next_group_ >= kAhead) {
            look(unit, seen);
            take<kAhead>(seen, kAhead);
        }
        look(unit, seen);
        const int whole = int(group - next_group_);
        Acc units = seen[0];
        CUSCAN_UNROLL
        for (int j = 1; j < kAhead; ++j)
            if (j == whole) units = seen[j];
        if (kLevels > 1 && whole > 0) take<kAhead - 1>(seen, whole);

        carry = section_;
        has_carry = has_section_;
        if (kLevels > 1 && group % kLanes > 0) fold(has_carry, carry, scan(groups_), int(group % kLanes) - 1);
        if (place > 0) {
            const Acc first = target::broadcast(units, 0);
            fold(has_carry, carry, scan(convert<Carry>(lane_ < place ? units : first)), place - 1);
        }
        return has_carry;
    }

private:
    CUSCAN_DEVICE uint64* slot(uint64 chain, uint64 unit) const {
        return aggregates_ + (chain * units_ + unit) * Tagged<Acc>::kWords;
    }

    // Waits for the units before `end` of the next kAhead groups: seen[j] is that of unit lane of the j-th.
    CUSCAN_DEVICE void look(uint32 end, Acc (&seen)[kAhead]) const {
        bool here[kAhead];
        const uint32 first = next_group_ * kLanes + lane_;
        CUSCAN_UNROLL
        for (int j = 0; j < kAhead; ++j) here[j] = first + j * kLanes >= end;
        for (;;) {
            bool all = true;
            CUSCAN_UNROLL
            for (int j = 0; j < kAhead; ++j) {
                if (!here[j]) here[j] = Tagged<Acc>::ready(slot(chain_, first + j * kLanes), tag_, seen[j]);
                all = all && here[j];
            }
            if (target::ballot(all) == ~0u) return;
        }
    }

    // The next `count` groups, at most kMost, are complete. They are scanned side by side: what a scan waits for is the
    // step before it.
    template <int kMost>
    CUSCAN_DEVICE void take(const Acc (&seen)[kAhead], int count) {
        Carry total[kMost];
        CUSCAN_UNROLL
        for (int j = 0; j < kMost; ++j) total[j] = convert<Carry>(j < count ? seen[j] : seen[0]);
        CUSCAN_UNROLL
        for (int distance = 1; distance < kLanes; distance *= 2) {
            CUSCAN_UNROLL
            for (int j = 0; j < kMost; ++j) {
                const Carry earlier = target::shuffle_up(total[j], distance);
                if (lane_ >= distance) total[j] = CarryOp::combine(earlier, total[j]);
            }
        }
        CUSCAN_UNROLL
        for (int j = 0; j < kMost; ++j)
            if (j < count) add_group(target::broadcast(total[j], kLanes - 1));
    }

    CUSCAN_DEVICE void add_group(const Carry& total) {
        if (lane_ >= int(next_group_ % kLanes)) groups_ = total;
        ++next_group_;
        if (kLevels > 2 && next_group_ % kLanes == 0) fold(has_section_, section_, scan(groups_), kLanes - 1);
    }

    CUSCAN_DEVICE Carry scan(const Carry& value) const { return warp_inclusive_scan<CarryOp, kLanes>(value, lane_); }

    // carry . lane `from`'s value.
    CUSCAN_DEVICE static void fold(bool& has_carry, Carry& carry, const Carry& value, int from) {
        carry = join<CarryOp>(has_carry, carry, target::broadcast(value, from));
        has_carry = true;
    }

    uint64* const aggregates_;
    const uint64 units_;
    const uint32 tag_;
    const int lane_;
    uint64 chain_ = ~uint64(0);
    uint32 next_group_;  // the first that is not in groups_ or section_
    Carry groups_;       // lane i: group i of the section
    Carry section_;      // what precedes the section
    bool has_section_;
};

}  // namespace cuscan
