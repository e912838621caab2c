// A kernel that is nothing but a chain: a block is a warp, a unit is an element, result[u] is what precedes unit u. Other
// kernels hold tiles while they wait, so their blocks never get more than a section apart; these do.
#pragma once
#include "../elements.cuh"
#include "../grid_chain.cuh"
#include "../schedule.cuh"

namespace cuscan {

template <class Config>
void chain_only(Row<Config> origin, Workspace* workspace, const typename Elements<Config>::Initial& initial,
                const Geometry<Config>& geometry) {
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    const int lane = target::thread_index();
    while (true) {
        const uint32 unit = target::broadcast(lane == 0 ? target::atomic_increment(&workspace->ticket) : 0, 0);
        if (unit >= geometry.units) break;
        GridChains<State, Carry, typename Element::CarryOp, Config::kLevels> chain(workspace, 1, geometry.units, 0);
        const State own[1] = {((const State*)origin.array[0])[unit]};
        Carry carry[1] = {initial};
        if (lane == 0) chain.publish(0, unit, own[0]);
        const bool exists = chain.prefix(unit, own, Config::kHasInitial, carry);
        if (lane == 0) ((State*)origin.array[1])[unit] = exists ? carry[0] : Element::identity();
    }
    leave<true>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
