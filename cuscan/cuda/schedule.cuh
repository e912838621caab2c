// Which block works on which unit, and when. A strip is a run of units along which a carry passes: the tiles of a row,
// or some columns of an array. Where many blocks share a strip, they take its units by ticket, so the order of work is
// the order of tickets, however the hardware schedules blocks, and the carry passes through memory (look_back.cuh,
// column_chain.cuh). Where there are enough strips for all blocks, Schedule assigns whole strips to blocks.
#pragma once
#include "target.cuh"

namespace cuscan {

struct Turn {
    uint32 exists;  // 0 or 1, in a word: the compiler copies a bool and what pads it byte by byte
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

// The last tiles of a block that have values, of which kAhead load at the same time: a block that stages tiles far
// ahead of its work would delay all others. Tiles without values, at the end of a strip, do not count.
template <int kAhead, uint32 kStages>
struct Loading {
    uint32 tile[kAhead], number = 0;

    // Called before tile k of the block loads: calls arrives(tile), which waits until that tile has arrived, for the
    // one kAhead tiles before it; not if its stage has become free since.
    template <class Arrives>
    CUSCAN_DEVICE void push(uint32 k, Arrives arrives) {
        const uint32 last = tile[kAhead - 1];
        if (number >= kAhead && k - last < kStages) arrives(last);
        CUSCAN_UNROLL
        for (int i = kAhead - 1; i > 0; --i) tile[i] = tile[i - 1];
        tile[0] = k;
        ++number;
    }
};

}  // namespace cuscan
