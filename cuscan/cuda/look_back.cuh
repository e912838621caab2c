// Decoupled look-back along a chain whose units blocks take by ticket. Every unit but the last publishes its aggregate,
// nothing else. A warp of a block calls prefix() for ever later units; the carry is valid in all lanes. The warp
// moves forward over the aggregates of all units since its previous call, so it depends on the loads of those units
// alone, never on another block's look-back: there is no chain of look-backs, and a delay does not spread. With
// kPrefetches the warp issues the loads of the next aggregates before it combines the present ones.
//
// The order: 32 units make a group, 32 groups a section. What precedes a unit is (earlier sections . earlier groups of
// the section) . earlier units of the group, all in the Carry type.
//
// Progress: a unit waits only for units of lower index in its chain, and blocks take units in that order.
#pragma once
#include "published.cuh"
#include "scans.cuh"

namespace cuscan {

template <class Acc, class Carry, class CarryOp, int kLevels, bool kPrefetches>
class LookBack {
    static constexpr int kLanes = target::kWarp;
    // Groups polled together: a power of two, fewer where states take many registers.
    static constexpr int kAhead = sizeof(Acc) + sizeof(Carry) <= 12 ? 8 : sizeof(Acc) <= 8 ? 4 : 2;

public:
    // `units`: units per chain. `aggregates`: where their aggregates lie in the workspace, chain by chain.
    CUSCAN_DEVICE LookBack(uint64* aggregates, uint64 units, uint32 epoch)
        : aggregates_(aggregates), units_(units), epoch_(epoch), lane_(target::thread_index() % kLanes) {}

    CUSCAN_DEVICE void publish(uint64 chain, uint32 unit, const Acc& aggregate) const {
        Published<Acc>::publish(slot(chain, unit), aggregate, epoch_);
    }

    // Called by the whole warp. Sets `carry` to what precedes `unit`, in every lane; returns false, with no meaningful
    // carry, if nothing does. On entry `carry` is the initial value of the chain, if `has_carry`. Successive calls
    // pass the units of a chain in ascending order, one chain after another.
    CUSCAN_DEVICE bool prefix(uint64 chain, uint32 unit, bool has_carry, Carry& carry) {
        if (chain != chain_) {
            chain_ = chain;
            next_group_ = 0;
            section_ = carry;
            has_section_ = has_carry;
            if (kPrefetches) look(units_);
        }
        const uint32 group = unit / kLanes;
        const int place = int(unit % kLanes);
        Acc seen[kAhead];
        while (group - next_group_ >= kAhead) {
            wait_for(unit, seen);
            take(seen, kAhead);
        }
        wait_for(unit, seen);
        const int whole = int(group - next_group_);
        Acc units = seen[0];
        CUSCAN_UNROLL
        for (int j = 1; j < kAhead; ++j)
            if (j == whole) units = seen[j];
        if (kLevels > 1 && whole > 0) take(seen, whole);

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
        return aggregates_ + (chain * units_ + unit) * Published<Acc>::kWords;
    }

    // Waits for units before `end` in the next kAhead groups: in lane i, seen[j] is that of unit i in group j of these.
    CUSCAN_DEVICE void wait_for(uint32 end, Acc (&seen)[kAhead]) {
        const uint32 first = next_group_ * kLanes + lane_;
        if constexpr (kPrefetches) {
            if (next_group_ * kLanes == end) return;
            for (;;) {
                bool all = true;
                CUSCAN_UNROLL
                for (int j = 0; j < kAhead; ++j) {
                    const bool here = Published<Acc>::is_there(prefetched_[j], epoch_, seen[j]);
                    all = all && (here || first + j * kLanes >= end);
                }
                if (target::ballot(all) == ~0u) return;
                look(end);
            }
        } else {
            bool here[kAhead];
            CUSCAN_UNROLL
            for (int j = 0; j < kAhead; ++j) here[j] = first + j * kLanes >= end;
            for (;;) {
                bool all = true;
                CUSCAN_UNROLL
                for (int j = 0; j < kAhead; ++j) {
                    if (!here[j]) here[j] = Published<Acc>::ready(slot(chain_, first + j * kLanes), epoch_, seen[j]);
                    all = all && here[j];
                }
                if (target::ballot(all) == ~0u) return;
            }
        }
    }
    // Issues loads for the units before `end` in the next kAhead groups, published or not.
    CUSCAN_DEVICE void look(uint64 end) {
        CUSCAN_UNROLL
        for (int j = 0; j < kAhead; ++j) {
            const uint64 unit = uint64(next_group_ + j) * kLanes + lane_;
            if (unit < end) Published<Acc>::look(slot(chain_, unit), prefetched_[j]);
        }
    }

    // Consumes the next `count` groups, which are complete.
    CUSCAN_DEVICE void take(const Acc (&seen)[kAhead], int count) {
        const int place = int(next_group_ % kLanes), room = kLanes - place;
        next_group_ += count;
        if (kPrefetches) look(units_);  // in flight while these groups are combined
        Acc group[kAhead];
        CUSCAN_UNROLL
        for (int j = 0; j < kAhead; ++j) group[j] = choose(j < count, seen[j], seen[0]);
        const Carry total = warp_totals<CarryOp, Carry>(group, lane_);  // lane i: that of group i % kAhead
        add_groups(total, place, 0, count);
        if (kLevels > 2 && count >= room) {
            fold(has_section_, section_, scan(groups_), kLanes - 1);
            add_groups(total, 0, room, count - room);
        }
    }
    // Puts the totals of `count` groups, the first of them `from`, in the lanes of groups_ from `place` on, as far as
    // there are lanes; none if `count` is not positive.
    CUSCAN_DEVICE void add_groups(const Carry& total, int place, int from, int count) {
        const int j = lane_ - place < count ? lane_ - place : count - 1;
        const Carry group = target::shuffle(total, (from + j) & (kAhead - 1));
        if (count > 0 && lane_ >= place) groups_ = group;
    }

    CUSCAN_DEVICE Carry scan(const Carry& value) const {
        return WarpScan<CarryOp, kLanes, Carry>(value, lane_).inclusive();
    }

    // carry = carry . value of lane `from`
    CUSCAN_DEVICE static void fold(bool& has_carry, Carry& carry, const Carry& value, int from) {
        carry = join<CarryOp>(has_carry, carry, target::broadcast(value, from));
        has_carry = true;
    }

    uint64* const aggregates_;
    const uint64 units_;
    const uint32 epoch_;
    const int lane_;
    uint64 chain_ = ~uint64(0);
    uint32 next_group_;                                  // first group that is in neither groups_ nor section_
    uint64 prefetched_[kAhead][Published<Acc>::kWords];  // kPrefetches: words of the next groups, as last loaded
    Carry groups_;                                       // lane i: total of group i of the section
    Carry section_;                                      // what precedes the section
    bool has_section_;
};

}  // namespace cuscan
