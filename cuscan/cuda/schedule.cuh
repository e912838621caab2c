// Which block works on which unit, and when. A strip is a run of units that a carry goes along: a row of tiles, or some
// columns of an array. Two ways to share strips out among the blocks of a persistent grid:
//
// * kGrid: many blocks work on a strip. Units are handed out by ticket, so the order of work is the order of tickets,
//   however the hardware schedules blocks, and the carry goes through memory
//   (look_ahead.cuh, column_chain.cuh).
// * else: there are strips enough for all blocks. A block takes a whole strip, unit after unit, and keeps the carry to
//   itself; then the strip that lies as many further as there are blocks.
#pragma once
#include "workspace.cuh"

namespace cuscan {

struct Turn {
    bool exists;
    uint64 strip;
    uint32 unit;  // of the strip
};

template <bool kGrid>
struct Schedule {
    uint64 strips;
    uint32 units;    // of a strip
    uint32 abreast;  // kGrid: neighbouring strips that advance together, unit by unit

    // `number`: kGrid: the ticket; else: how many turns this block has had.
    CUSCAN_DEVICE Turn turn(uint32 number) const {
        if constexpr (kGrid) {
            const uint32 side = number % abreast, unit = number / abreast % units, front = number / abreast / units;
            const uint64 strip = uint64(front) * abreast + side;
            return {strip < strips, strip, unit};
        } else {
            const uint64 strip = target::block_index() + uint64(number / units) * target::block_count();
            return {strip < strips, strip, number % units};
        }
    }
};

// No further ticket will be taken: hand the workspace on. Called by all threads of a block.
template <bool kGrid>
CUSCAN_DEVICE void leave(Workspace* workspace, uint64 words_used) {
    if constexpr (kGrid) {
        if (target::thread_index() == 0) workspace->leave(words_used);
    }
}

}  // namespace cuscan
