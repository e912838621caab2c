// The device memory that a launch with a chain leaves to the next one in its stream: the ticket counter, the epoch, and the
// tile states. The host clears it once, when it is allocated; afterwards each launch puts it back in order itself, so that
// a captured graph can be replayed any number of times.
#pragma once
#include "target.cuh"

namespace cuscan {

// The header; what blocks publish (look_back.cuh, column_chain.cuh, batches.cuh, whole_rows.cuh) follows it, from the next
// line on: a warp's looks touch as few lines as may be, and none in which others take tickets.
struct alignas(target::kLine) Workspace {
    uint64 counts;    // {launches so far, 32 bits; tickets that this one has handed out, 32 bits}
    uint32 finished;  // blocks that are done, in a launch with which the epochs wrap
    uint32 used;      // the most words that any launch has used

    CUSCAN_DEVICE uint64* words() { return reinterpret_cast<uint64*>(this + 1); }

    struct Ticket {
        uint32 number, epoch;  // the epoch is the launch's
    };
    static CUSCAN_DEVICE Ticket ticket(uint64 taken) { return {uint32(taken), uint32(taken >> 32) + 1}; }
    // A ticket, as the counts were before. It may be taken before wait_for_previous_kernel: those before have admitted this
    // launch when they had taken all of theirs.
    CUSCAN_DEVICE uint64 take_ticket() { return target::atomic_increment(&counts); }

    // By whoever has one of a launch's `tickets`: with the last one, the workspace is ready for the next launch in the
    // stream, or the next replay of a graph.
    CUSCAN_DEVICE void renew_after(Ticket ticket, uint64 tickets, uint64 words_used) {
        if (ticket.number + 1 != tickets || epochs_wrap(ticket.epoch)) return;
        renew(words_used, ticket.epoch);
        target::fence();  // the next launch may take its tickets when it has been admitted
    }
    // In place of target::allow_next_kernel, by those who take a block's tickets, after the last one.
    CUSCAN_DEVICE void allow_next_kernel(uint32 epoch) const {
        if (!epochs_wrap(epoch)) target::allow_next_kernel();
    }
    // By all threads of each block, when it neither takes tickets nor looks at tile states any more: where the epochs wrap,
    // the last block forgets all old ones.
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
