// Which block works on which unit, and when. A strip is a run of units along which a carry passes: the tiles of a row,
// or some columns of an array. Where many blocks share a strip, they take its units by ticket, so the order of work is
// the order of tickets, however the hardware schedules blocks, and the carry passes through memory (look_back.cuh,
// column_chain.cuh). Where there are enough strips for all blocks, Schedule assigns whole strips to blocks.
#pragma once
#include "target.cuh"

namespace cuscan {

struct Turn {
    bool exists;
    uint64 strip;
    uint32 unit;  // number within the strip
};

// A block takes a whole strip, unit after unit, and keeps the carry to itself. Its next strip is block_count() strips
// further on.
struct Schedule {
    uint64 strips;
    uint32 units;  // units of a strip

    // This block's turn after `number` earlier ones.
    CUSCAN_DEVICE Turn turn(uint32 number) const {
        const uint64 strip = target::block_index() + uint64(number / units) * target::block_count();
        return {strip < strips, strip, number % units};
    }
};

}  // namespace cuscan
