// Which block works on which unit, and when. A strip is a run of units that a carry goes along: a row of tiles, or some
// columns of an array. Where many blocks work on a strip, units are handed out by ticket, so the order of work is the order
// of tickets, however the hardware schedules blocks, and the carry goes through memory (look_back.cuh, column_chain.cuh).
// Where there are strips enough for all blocks, Schedule says whose they are.
#pragma once
#include "target.cuh"

namespace cuscan {

struct Turn {
    bool exists;
    uint64 strip;
    uint32 unit;  // of the strip
};

// A block takes a whole strip, unit after unit, and keeps the carry to itself; then the strip that lies as many further as
// there are blocks.
struct Schedule {
    uint64 strips;
    uint32 units;  // of a strip

    // `number`: how many turns this block has had.
    CUSCAN_DEVICE Turn turn(uint32 number) const {
        const uint64 strip = target::block_index() + uint64(number / units) * target::block_count();
        return {strip < strips, strip, number % units};
    }
};

}  // namespace cuscan
