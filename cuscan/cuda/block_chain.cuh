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
        const int place = int(unit % kLanes), group = int(unit / kLanes % kLanes);
        if constexpr (kLevels > 2) has_carry = before_section(unit, has_carry, carry);
        if (kLevels > 1 && group > 0) fold_scanned(has_carry, carry, groups_, group - 1);
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c)
            if (lane >= place) units_[c] = own[c];
        if (kLevels > 1 && place == kLanes - 1) end_group(group);
        if (place > 0) fold_scanned(has_carry, carry, units_, place - 1);
        return has_carry;
    }

private:
    CUSCAN_DEVICE bool before_section(uint32 unit, bool has_initial, Carry (&carry)[kCount]) {
        constexpr uint32 kSection = kLanes * kLanes;
        if (unit % kSection == 0) {
            if (unit == 0) {
                has_section_ = has_initial;
                CUSCAN_UNROLL
                for (int c = 0; c < kCount; ++c) section_[c] = carry[c];
            } else {
                fold_scanned(has_section_, section_, groups_, kLanes - 1);
            }
        }
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) carry[c] = section_[c];
        return has_section_;
    }

    CUSCAN_DEVICE void end_group(int group) {
        const int lane = target::thread_index() % kLanes;
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c) {
            const Carry total = target::broadcast(scan(units_[c]), kLanes - 1);
            if (lane >= group) groups_[c] = total;
        }
    }

    template <class T>
    CUSCAN_DEVICE static Carry scan(const T& value) {
        return warp_inclusive_scan<CarryOp, kLanes>(convert<Carry>(value), target::thread_index() % kLanes);
    }

    // carry[] . what lanes 0 ... `last` remember.
    template <class T>
    CUSCAN_DEVICE static void fold_scanned(bool& has_carry, Carry (&carry)[kCount], const T (&remembered)[kCount],
                                           int last) {
        CUSCAN_UNROLL
        for (int c = 0; c < kCount; ++c)
            carry[c] = join<CarryOp>(has_carry, carry[c], target::broadcast(scan(remembered[c]), last));
        has_carry = true;
    }

    Acc units_[kCount];
    Carry groups_[kCount];
    Carry section_[kCount];  // what precedes the section
    bool has_section_;
};

}  // namespace cuscan
