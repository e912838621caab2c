// thread_rows: scans short dense rows, of at most 16 runs of items, whose vectors are not aligned. They pass through
// shared memory (shared_rows.cuh), where a thread scans a whole row. Threads read and write units: as many neighbours
// as are aligned together in all rows. So the rows of neighbouring threads are mostly an odd number of units apart, and
// cause few bank conflicts. The order is that of the other kernels: WarpScan over the totals of lanes, in the registers
// of one thread. All threads of a block take part; SharedRows synchronises them.
#pragma once
#include "../shared_rows.cuh"
#include "../workspace.cuh"

namespace cuscan {

// WarpScan in a single thread, which passes the values of the lanes one after another.
template <class Op, int kLanes, class T>
struct LaneScan {
    T at_distance[4][kLanes];  // value of a lane before it is combined with those 1, 2, 4, 8 lanes back

    CUSCAN_DEVICE T inclusive(int lane, T value) {
        CUSCAN_UNROLL
        for (int d = 0; d < 4; ++d) {
            at_distance[d][lane] = value;
            if (lane >= 1 << d) value = Op::combine(at_distance[d][lane - (1 << d)], value);
        }
        return value;
    }
};

template <class Config>
struct ThreadRow : Elements<Config> {
    using Base = Elements<Config>;
    using Place = Plain<Config>;
    using Value = typename Place::Value;
    using Result = typename Place::Result;
    using typename Base::Op;
    using typename Base::State;
    static constexpr Access kAlong = Place::ValueOperand::kAccess;  // the same for all arrays
    static constexpr int kItems = Config::kItems, kLanes = 16;

    const Place row;  // in shared memory
    const int length;
    const State initial;

    CUSCAN_DEVICE void scan() const {
        LaneScan<Op, kLanes, State> lanes;
        State before;  // of the runs before
        Run run = load(0), next;
        CUSCAN_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
            const int position = lane * kItems;
            if (!has_run(position)) break;
            next = load(position + kItems);  // before the stores, which it need not wait for
            Running<Config> running = after(position > 0, before);
            State total;
            Result results[kItems];
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) {
                const State item = lift(run.value[i], run.keep[i]);
                total = i == 0 ? item : Op::combine(total, item);
                results[i] = lower(running, item);
            }
            store(results, position);
            before = lanes.inclusive(lane, total);
            run = next;
        }
        // ---- the elements that fill no run
        const int first = length - length % kItems;
        Running<Config> running = after(first > 0, before);
        for (int i = first; i < length; ++i) {
            const boolean keep = Base::kMasked ? *advance<kAlong>(row.mask, 0, i) : boolean();
            *advance<kAlong>(row.result, 0, i) = lower(running, lift(*advance<kAlong>(row.value, 0, i), keep));
        }
    }

private:
    struct Run {
        Value value[kItems];
        boolean keep[kItems];
    };

    CUSCAN_DEVICE bool has_run(int position) const { return position + kItems <= length; }
    CUSCAN_DEVICE Running<Config> after(bool has_before, const State& before) const {
        Running<Config> running;
        running.present = Config::kHasInitial || has_before;
        running.value = has_before ? join<Op>(Config::kHasInitial, initial, before) : initial;
        return running;
    }
    CUSCAN_DEVICE State lift(const Value& value, const boolean& keep) const {
        if constexpr (Base::kMasked)
            if (keep.bits == 0) return Base::identity();
        if constexpr (Config::kSkipsNan)
            if (is_nan(arithmetic(value))) return Base::identity();
        return Op::template lift<Result>(value);
    }
    CUSCAN_DEVICE Result lower(Running<Config>& running, const State& item) const {
        return convert<Result>(Op::lower(running.step(item, initial), Number<0>()));
    }
    // The run at `position`, if it exists.
    CUSCAN_DEVICE Run load(int position) const {
        Run run;
        if (!has_run(position)) return run;
        load_units<Config::kValueUnit>(row.value, position, run.value);
        if constexpr (Base::kMasked) load_units<Config::kMaskUnit>(row.mask, position, run.keep);
        return run;
    }
    template <int kUnit, class T>
    static CUSCAN_DEVICE void load_units(const T* from, int position, T (&items)[kItems]) {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; i += kUnit) {
            const auto unit = read_shared<kAlong, Vector<T, kUnit, false>>(advance<kAlong>(from, 0, position + i));
            CUSCAN_UNROLL
            for (int j = 0; j < kUnit; ++j) items[i + j] = unit.item[j];
        }
    }
    CUSCAN_DEVICE void store(const Result (&results)[kItems], int position) const {
        constexpr int kUnit = Config::kResultUnit;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; i += kUnit) {
            Vector<Result, kUnit, false> unit;
            CUSCAN_UNROLL
            for (int j = 0; j < kUnit; ++j) unit.item[j] = results[i + j];
            write_shared<kAlong>(advance<kAlong>(row.result, 0, position + i), unit);
        }
    }
};

template <class Config>
CUSCAN_DEVICE void thread_rows(Row<Config> origin, Workspace* /* unused: no row is shared */,
                               const typename Elements<Config>::Initial& initial,
                               const RowsGeometry<Config>& geometry) {
    using Rows = SharedRows<Config>;
    using State = typename Elements<Config>::State;
    const Rows rows(origin, geometry);
    const int length = int(geometry.axis.size);
    const auto before = convert<State>(Elements<Config>::start(geometry, origin, initial));
    rows.load();
    Plain<Config> first{rows.template row<0>(rows.first, 0), rows.template row<1>(rows.first, 0), nullptr};
    if constexpr (Plain<Config>::kMasked) first.mask = rows.template row<2>(rows.first, 0);
    for (int number = target::thread_index(); number < rows.count; number += Rows::kThreads) {
        const int along = number * length;
        ThreadRow<Config>{{}, {first.value + along, first.result + along, first.mask + along}, length, before}.scan();
    }
    rows.store();
}

}  // namespace cuscan
