// The carry along chains that one block works on, unit after unit: the order of grid_chain.cuh without its memory. A warp
// keeps kCount neighbouring chains in its registers; lane i remembers unit i of the group, group i of the section.
#pragma once
#include "scans.cuh"

namespace cuscan {

template <class Acc, class Carry, class CarryOp, int kLevels, int kCount = 1>
class BlockChains {
    static constexpr int kLanes = target::kWarp;

public:
    // What precedes `unit` in each chain, in every lane: carry[], of which nothing exists if the result is false. On
    // entry carry[] is the chain's initial value, if there is one; own[] are the unit's aggregates, the same in every
    // lane. Called for unit 0, 1, 2, ... of a chain, then for the next chain.
    CUSCAN_DEVICE bool prefix(uint32 unit, const Acc (&own)[kCount], bool has_carry, Carry (&carry)[kCount]) {
        const int lane = target::thread_index() % kLanes;
        const int place = int(unit % kLanes);
        if (unit == 0) {
            has_section_ = has_carry;
            CUSCAN_UNROLL
            for (int c = 0; c < kCount; ++c) section_[c] = carry[c];
        }
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) {
            carry[c] = section_[c];
            if (lane >= place) units_[c] = own[c];
        }
        has_carry = before_group(unit, carry);

        Carry scanned[kCount];
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c)
            scanned[c] = warp_inclusive_scan<CarryOp, kLanes>(convert<Carry>(units_[c]), lane);
        if (kLevels > 1 && place == kLanes - 1) end_group(unit, scanned);
        if (place > 0) fold(has_carry, carry, scanned, place - 1);
        return has_carry;
    }

private:
    // carry[]: from what precedes the section to what precedes the group.
    CUSCAN_DEVICE bool before_group(uint32 unit, Carry (&carry)[kCount]) {
        const int group = int(unit / kLanes % kLanes);
        bool has_carry = has_section_;
        if (kLevels > 1 && group > 0) fold(has_carry, carry, scanned_groups_, group - 1);
        return has_carry;
    }

    CUSCAN_DEVICE void end_group(uint32 unit, const Carry (&scanned_units)[kCount]) {
        const int lane = target::thread_index() % kLanes;
        const int group = int(unit / kLanes % kLanes);
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) {
            const Carry total = target::broadcast(scanned_units[c], kLanes - 1);
            if (lane >= group) groups_[c] = total;
            scanned_groups_[c] = warp_inclusive_scan<CarryOp, kLanes>(groups_[c], lane);
        }
        if (kLevels > 2 && group == kLanes - 1) fold(has_section_, section_, scanned_groups_, kLanes - 1);
    }

    // carry[] . lane `from`'s value[].
    CUSCAN_DEVICE static void fold(bool& has_carry, Carry (&carry)[kCount], const Carry (&value)[kCount], int from) {
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) carry[c] = join<CarryOp>(has_carry, carry[c], target::broadcast(value[c], from));
        has_carry = true;
    }

    Acc units_[kCount];
    Carry groups_[kCount], scanned_groups_[kCount];
    Carry section_[kCount];  // what precedes the section
    bool has_section_;
};

}  // namespace cuscan
