// A kernel that is nothing but a chain: a block is a warp, a unit is an element, result[u] is what precedes unit u. Other
// kernels hold tiles while they wait, so their blocks never get more than a section apart; these do.
#pragma once
#include "../grid_chain.cuh"
#include "../schedule.cuh"

namespace cuscan {

template <class Config>
void chain_only(Row<typename Config::Value, typename Config::Result> origin, Workspace* workspace,
                const typename Config::Carry& initial, const Geometry<Config::kBatchDims>& geometry) {
    using Accumulator = typename Config::Accumulator;
    using Carry = typename Config::Carry;
    using Op = typename Config::template Op<Carry>;
    const int lane = target::thread_index();
    while (true) {
        const uint32 unit = target::broadcast(lane == 0 ? target::atomic_increment(&workspace->ticket) : 0, 0);
        if (unit >= geometry.units) break;
        GridChains<Accumulator, Carry, Op, Config::kLevels> chain(workspace, 1, geometry.units, 0);
        const Accumulator own[1] = {origin.value[unit]};
        Carry carry[1] = {initial};
        if (lane == 0) chain.publish(0, unit, own[0]);
        const bool exists = chain.prefix(unit, own, Config::kHasInitial, carry);
        if (lane == 0) origin.result[unit] = exists ? carry[0] : Op::template identity<Carry>();
    }
    leave<true>(workspace, geometry.workspace_words);
}

}  // namespace cuscan
