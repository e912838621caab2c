// The device memory that a launch with a chain leaves to the next one in its stream: the ticket counter, the tag, and the
// tile states. The host clears it once, when it is allocated; afterwards each launch puts it back in order itself, so that
// a captured graph can be replayed any number of times.
#pragma once
#include "target.cuh"

namespace cuscan {

// The header; the tile states (look_ahead.cuh, column_chain.cuh) follow it: aggregates, then what else is published.
struct Workspace {
    uint64 counts;    // {launches so far, 32 bits; tickets that this one has handed out, 32 bits}
    uint32 finished;  // blocks that are done
    uint32 used;      // the most words that any launch has used

    CUSCAN_DEVICE uint64* words() { return reinterpret_cast<uint64*>(this + 1); }
    // Of this launch.
    CUSCAN_DEVICE uint32 tag() const { return uint32(counts >> 32) + 1; }

    struct Ticket {
        uint32 number, tag;
    };
    CUSCAN_DEVICE Ticket take_ticket() {
        const uint64 taken = target::atomic_increment(&counts);
        return {uint32(taken), uint32(taken >> 32) + 1};
    }

    // Leaves the workspace ready for the next launch in the stream, or the next replay of a graph. By one thread, when
    // nobody will take a ticket any more; `tag` is this launch's.
    CUSCAN_DEVICE void renew(uint64 words_used, uint32 tag) {
        counts = uint64(tag) << 32;
        if (words_used > used) used = uint32(words_used);
    }
    // By one thread of each block, when the block neither takes tickets nor looks at tile states any more: the last one
    // renews the workspace and, when the tags wrap, forgets all old ones.
    CUSCAN_DEVICE void leave(uint64 words_used) {
        const uint32 tag_now = tag();
        target::fence();
        if (target::atomic_increment(&finished) + 1 != target::block_count()) return;
        target::fence();
        finished = 0;
        renew(words_used, tag_now);
        if (tags_wrap(tag_now)) {
            for (uint64 i = 0; i < used; ++i) words()[i] = 0;
            counts = 0;
        }
    }
    static CUSCAN_DEVICE bool tags_wrap(uint32 tag) { return tag == ~0u; }
};

}  // namespace cuscan
