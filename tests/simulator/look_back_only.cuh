// A kernel that only walks chains with look_back.cuh. A block is a warp, a unit is an element, a row is a chain.
// result[u] is what precedes unit u of its row.
#pragma once
#include "../elements.cuh"
#include "../look_back.cuh"
#include "../schedule.cuh"
#include "../workspace.cuh"

namespace cuscan {

template <class Config>
void look_back_only(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                    const Geometry<Config>& geometry) {
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    target::wait_for_previous_kernel();
    target::allow_next_kernel();
    const int lane = target::thread_index();
    const uint32 units = uint32(geometry.units);
    const auto take_ticket = [&] {
        const auto ticket = Workspace::ticket(target::broadcast(lane == 0 ? workspace->take_ticket() : 0, 0));
        if (lane == 0)
            workspace->renew_after(ticket, geometry.rows * units + target::block_count(), geometry.workspace_words);
        return ticket;
    };
    auto ticket = take_ticket();
    LookBack<State, Carry, typename Element::CarryOp, Config::kLevels, (Config::kLevels > 1)> chain(
        workspace->words(), geometry.units, ticket.epoch);
    for (;; ticket = take_ticket()) {
        const uint32 number = ticket.number;
        const Turn turn{number / units < geometry.rows, number / units, number % units};
        if (!turn.exists) break;
        const auto row = origin.at(geometry, turn.strip);
        if (lane == 0) chain.publish(turn.strip, turn.unit, ((const State*)row.array[0])[turn.unit]);
        Carry carry = initial;
        const bool exists = chain.prefix(turn.strip, turn.unit, Config::kHasInitial, carry);
        // The carry is the same in all lanes.
        const Carry first = target::broadcast(exists ? carry : Element::identity(), 0);
        if ((exists ? carry : Element::identity()) == first && lane == turn.unit % target::kWarp)
            ((State*)row.array[1])[turn.unit] = first;
    }
    workspace->leave(ticket.epoch, geometry.workspace_words);
}

}  // namespace cuscan
