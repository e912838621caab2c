// How the blocks of a persistent grid share out the tiles: by ticket where tiles wait for each other (kChained), so that
// the order of work is the order of tickets, however the hardware schedules blocks; else by a stride. `Shared` has a
// member `ticket`. Called by all threads of a block, except next_ticket: by thread 0.
#pragma once
#include "workspace.cuh"

namespace cuscan {

template <bool kChained>
struct Ticket {
    using type = uint64;
};
template <>
struct Ticket<true> {
    using type = uint32;  // the host sees to it that the tiles of a chained launch can be counted in 32 bits
};

template <bool kChained>
CUSCAN_DEVICE typename Ticket<kChained>::type next_ticket(typename Ticket<kChained>::type current, Workspace* workspace) {
    if constexpr (kChained)
        return target::atomic_increment(&workspace->ticket);
    else
        return current + target::block_count();
}

template <bool kChained, class Shared>
CUSCAN_DEVICE typename Ticket<kChained>::type first_ticket(Shared& shared, Workspace* workspace) {
    if constexpr (kChained) {
        if (target::thread_index() == 0) shared.ticket = next_ticket<true>(0, workspace);
        target::sync_block();
        const uint32 ticket = shared.ticket;
        target::sync_block();  // before thread 0 writes the next one
        return ticket;
    }
    return target::block_index();
}

// No further tile will be taken: hand the workspace on.
template <bool kChained>
CUSCAN_DEVICE void leave(Workspace* workspace, uint64 words_used) {
    if constexpr (kChained) {
        if (target::thread_index() == 0) workspace->leave(words_used);
    }
}

}  // namespace cuscan
