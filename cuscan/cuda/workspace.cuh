// Device memory that each launch with a chain hands to the next one in its stream: the ticket counter, the epoch and
// the published values. The host clears it once, on allocation; after that, the thread with a launch's last ticket
// resets the counter for the next launch, so that a captured graph can be replayed any number of times. Before a block
// exits, all of its threads call leave.
#pragma once
#include "target.cuh"

namespace cuscan {

// The header. The words that blocks publish (look_back.cuh, column_chain.cuh) follow on the next cache line: a warp
// polls as few lines as possible, and none on which other blocks take tickets.
struct alignas(target::kLine) Workspace {
    uint64 counts;    // high 32 bits: launches so far; low 32 bits: tickets taken in the present one
    uint32 finished;  // blocks that have finished, in a launch with which epochs wrap around
    uint32 used;      // the most words that any launch has used

    CUSCAN_DEVICE uint64* words() { return reinterpret_cast<uint64*>(this + 1); }

    struct Ticket {
        uint32 number, epoch;  // of the ticket; of the launch
    };
    static CUSCAN_DEVICE Ticket ticket(uint64 taken) { return {uint32(taken), uint32(taken >> 32) + 1}; }
    // Takes a ticket and returns the counts before it. May be called before wait_for_previous_kernel: earlier launches
    // allow this one to start only after they have taken all of their own tickets.
    CUSCAN_DEVICE uint64 take_ticket() { return target::atomic_increment(&counts); }

    // Called by the thread that has taken `ticket`, one of the launch's `tickets`. With the last one it resets the
    // workspace for the next launch in the stream, or the next replay of a graph.
    CUSCAN_DEVICE void renew_after(Ticket ticket, uint64 tickets, uint64 words_used) {
        if (ticket.number + 1 != tickets || epochs_wrap(ticket.epoch)) return;
        renew(words_used, ticket.epoch);
        target::fence();  // the next launch may take tickets as soon as it is allowed to start
    }
    // Replaces target::allow_next_kernel; called after the block has taken its last ticket.
    CUSCAN_DEVICE void allow_next_kernel(uint32 epoch) const {
        if (!epochs_wrap(epoch)) target::allow_next_kernel();
    }
    // Called by all threads of every block, once the block takes no more tickets and reads no more published values.
    // When epochs wrap around, the last block to call it clears all published words.
    CUSCAN_DEVICE void leave(uint32 epoch, uint64 words_used) {
        if (!epochs_wrap(epoch)) return;
        target::sync_block();
        if (target::thread_index() != 0) return;
        target::fence();
        if (target::atomic_increment(&finished) + 1 != target::block_count()) return;
        target::fence();
        finished = 0;
        renew(words_used, 0);
        for (uint64 i = 0; i < used; ++i) words()[i] = 0;
        target::fence();  // as in renew_after
    }

private:
    CUSCAN_DEVICE void renew(uint64 words_used, uint32 launches) {
        counts = uint64(launches) << 32;
        if (words_used > used) used = uint32(words_used);
    }
    static CUSCAN_DEVICE bool epochs_wrap(uint32 epoch) { return epoch == ~0u; }
};

}  // namespace cuscan
