// thread_rows: scans short dense rows, of at most 16 runs of items, whose vectors are not aligned. They pass through
// shared memory (dense_rows.cuh), where a thread scans whole rows, kSide adjacent ones at a time: as many as make a
// whole number of 32-bit words. So neighbouring threads are an odd number of words (or of the larger units of one
// access) apart, and cause no bank conflicts. The length of the rows is a compile-time constant, and so is the place
// of every element in its unit. The order is that of the other kernels: warp_inclusive_scan over the totals of lanes,
// in the registers of one thread. All threads of a block take part; DenseRows::pass synchronises them.
#pragma once
#include "../dense_rows.cuh"
#include "../elements.cuh"
#include "../workspace.cuh"

namespace cuscan {

// Reads elements in scan order, kUnit of them per access to shared memory. Calls pass indices one after another.
template <Access kAccess, int kUnit, class T>
struct UnitReader {
    const T* first;
    Vector<T, kUnit, false> unit;

    CUSCAN_DEVICE T read(int index) {
        if (index % kUnit == 0) unit = read_shared<kAccess, Vector<T, kUnit, false>>(advance<kAccess>(first, 0, index));
        return unit.item[index % kUnit];
    }
};
template <Access kAccess, int kUnit, class T>
struct UnitWriter {
    T* first;
    Vector<T, kUnit, false> unit;

    CUSCAN_DEVICE void write(int index, T item) {
        unit.item[index % kUnit] = item;
        if (index % kUnit == kUnit - 1) write_shared<kAccess>(advance<kAccess>(first, 0, index - (kUnit - 1)), unit);
    }
};

// warp_inclusive_scan in a single thread, which passes the values of the lanes one after another.
template <class Op, int kLanes, class T>
struct LaneScan {
    T at_distance[5][kLanes];  // value of a lane before it is combined with those 1, 2, 4, 8, 16 lanes back

    CUSCAN_DEVICE T inclusive(int lane, T value) {
        CUSCAN_UNROLL
        for (int d = 0; d < 5; ++d) {
            at_distance[d][lane] = value;
            if (lane >= 1 << d) value = Op::combine(at_distance[d][lane - (1 << d)], value);
        }
        return value;
    }
};

template <class Config>
struct ThreadRows : Elements<Config> {
    using Base = Elements<Config>;
    using Place = Plain<Config>;
    using Value = typename Place::Value;
    using Result = typename Place::Result;
    using typename Base::Op;
    using typename Base::State;
    static constexpr int kLength = Config::kLongest, kItems = Config::kItems;
    static constexpr int kLanes = (kLength + kItems - 1) / kItems;

    UnitReader<Place::ValueOperand::kAccess, Config::kValueUnit, Value> value;
    UnitReader<Base::kMasked ? Config::Mask::kAccess : Access::kVector, Config::kMaskUnit, boolean> mask;
    UnitWriter<Place::ResultOperand::kAccess, Config::kResultUnit, Result> result;

    CUSCAN_DEVICE State next(int index) {
        const Value item = value.read(index);
        State state = Op::template lift<Result>(item);
        if constexpr (Base::kMasked)
            if (mask.read(index).bits == 0) state = Base::identity();
        if constexpr (Config::kSkipsNan)
            if (is_nan(arithmetic(item))) state = Base::identity();
        return state;
    }

    // Scans the row that begins with element `start` of the thread.
    CUSCAN_DEVICE void scan(int start, State initial) {
        LaneScan<Op, kLanes, State> lanes;
        State before;
        CUSCAN_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
            Running<Config> running;
            running.present = lane > 0 || Config::kHasInitial;
            running.value = lane > 0 ? join<Op>(Config::kHasInitial, initial, before) : initial;
            State total;
            CUSCAN_UNROLL
            for (int i = 0; i < kItems && lane * kItems + i < kLength; ++i) {
                const int index = start + lane * kItems + i;
                const State item = next(index);
                total = i == 0 ? item : Op::combine(total, item);
                result.write(index, convert<Result>(Op::lower(running.step(item, initial), Number<0>())));
            }
            before = lanes.inclusive(lane, total);
        }
    }
};

template <class Config>
CUSCAN_DEVICE void thread_rows(Row<Config> origin, Workspace* /* unused: no row is shared */,
                               const typename Elements<Config>::Initial& initial, const Geometry<Config>& geometry) {
    target::wait_for_previous_kernel();
    target::allow_next_kernel();
    using Rows = DenseRows<Config>;
    const auto before_all =
        convert<typename Elements<Config>::State>(Elements<Config>::start(geometry, origin, initial));
    Rows::pass(
        Plain<Config>::at(origin), Config::kLongest, geometry.rows, [&](const typename Rows::Place& here, int count) {
            // A thread's last rows may lie beyond the block's last: there is room for them, and they are not stored.
            for (int row = target::thread_index() * Config::kSide; row < count; row += Rows::kThreads * Config::kSide) {
                // In scan order: if reversed, the last of the thread's rows comes first.
                const int first = (row + (Rows::kReversed ? Config::kSide - 1 : 0)) * Config::kLongest;
                ThreadRows<Config> rows{
                    {}, {here.value + first, {}}, {here.mask + first, {}}, {here.result + first, {}}};
                CUSCAN_UNROLL
                for (int k = 0; k < Config::kSide; ++k) rows.scan(k * Config::kLongest, before_all);
            }
        });
}

}  // namespace cuscan
