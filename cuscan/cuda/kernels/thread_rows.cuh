// thread_rows: scans short rows, of at most kLanes runs of items, with small gaps between them or none. They pass
// through shared memory (shared_rows.cuh), where a thread scans a whole row. Threads read and write units: as many
// neighbours as are aligned together in all rows. So the rows of neighbouring threads are mostly an odd number of units
// apart, and cause few bank conflicts; up to four threads read vectors in the same banks. The order is that of the
// other kernels: WarpScan over the totals of lanes, in the registers of one thread. All threads of a block take part;
// SharedRows synchronises them.
#pragma once
#include "../shared_rows.cuh"
#include "../workspace.cuh"

namespace cuscan {

// WarpScan in a single thread, which passes the values of the lanes one after another.
template <class Op, int kLanes, class T>
struct LaneScan {
    static constexpr int kLevels = levels_of(kLanes);
    T at_distance[kLevels][kLanes];  // value of a lane before it is combined with those 1, 2, 4, ... lanes back

    CUSCAN_DEVICE T inclusive(int lane, T value) {
        CUSCAN_UNROLL
        for (int d = 0; d < kLevels; ++d) {
            at_distance[d][lane] = value;
            if (lane >= 1 << d) value = Op::combine(at_distance[d][lane - (1 << d)], value);
        }
        return value;
    }
};

template <class Config>
struct ThreadRow : Elements<Config> {
    using Base = Elements<Config>;
    using Numbers = Arrays<Config>;
    using typename Base::Op;
    using typename Base::State;
    template <int kMany>
    using Part = Items<Config, 1, kMany>;
    static constexpr int kItems = Config::kItems, kLanes = Config::kLanes;
    // Rows of results that have no gaps are a multiple of so many elements long. Others may be written, and all may be
    // read, up to the end of a unit, which lies in front of the next row.
    static constexpr int kStep = Config::kResultUnit < Config::kValueUnit ? Config::kResultUnit : Config::kValueUnit;

    const Geometry<Config>& geometry;
    const Row<Config> row;  // staged arrays in shared memory
    const typename Base::Initial& initial;
    const State beginning;  // what the row starts from

    CUSCAN_DEVICE void scan() const {
        const int length = int(geometry.axis.size);
        LaneScan<Op, kLanes, State> lanes;
        State before;  // of the runs before
        Part<kItems> run, next;
        if (kItems <= length) run = load<kItems>(0);
        CUSCAN_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
            const int position = lane * kItems, end = position + kItems;
            if (end > length) break;
            if (end + kItems <= length) next = load<kItems>(end);  // before the stores, which it need not wait for
            Running<Config> running = after(position > 0, before);
            before = lanes.inclusive(lane, scan_part(run, position, running));
            run = next;
        }
        // ---- the elements that fill no run
        const int first = length - length % kItems;
        Running<Config> running = after(first > 0, before);
        for (int position = first; position < length; position += kStep)
            scan_part(load<kStep>(position), position, running);
    }

private:
    CUSCAN_DEVICE Running<Config> after(bool has_before, const State& before) const {
        Running<Config> running;
        running.present = Config::kHasInitial || has_before;
        running.value = has_before ? join<Op>(Config::kHasInitial, beginning, before) : beginning;
        return running;
    }
    // Stores the results of neighbours, and returns their total.
    template <int kMany>
    CUSCAN_DEVICE State scan_part(const Part<kMany>& part, int position, Running<Config>& running) const {
        State total;
        Pack<Results<kMany>::template Of, typename Config::Results> results;
        CUSCAN_UNROLL
        for (int i = 0; i < kMany; ++i) {
            const auto item = part.get(0, i, i);
            total = i == 0 ? State(item) : Op::combine(total, item);
            const auto state = running.step(item, part.segment_started);
            for_each_result<Config>([&](auto k, auto operand) {
                results.at(k).vector.item[i] = convert<typename decltype(operand)::Type>(Config::Op::lower(state, k));
            });
        }
        for_each_result<Config>(
            [&](auto k, auto) { store<Numbers::kResults + decltype(k)::value>(position, results.at(k).vector); });
        return total;
    }
    template <int kMany>
    struct Results {
        template <class Operand>
        struct Of {
            Vector<typename Operand::Type, kMany> vector;
        };
    };
    // Neighbours from a position on, which exist.
    template <int kMany>
    CUSCAN_DEVICE Part<kMany> load(int position) const {
        Part<kMany> part;
        part.clear(geometry, position, initial);
        for_each_value<Config>([&](auto k, auto operand) {
            auto& vector = part.raw.at(k).vector[0];
            if constexpr (decltype(operand)::kAccess == Access::kBroadcast) {
                const auto one = *item<decltype(k)::value>(0);
                CUSCAN_UNROLL
                for (int i = 0; i < kMany; ++i) vector.item[i] = one;
            } else {
                vector = read<decltype(k)::value, Config::kValueUnit, kMany>(position);
            }
        });
        if constexpr (Base::kMasked) part.keep.set_vector(0, read<Numbers::kMask, Config::kMaskUnit, kMany>(position));
        if constexpr (Config::kSegments == Segments::kReset)
            part.restarts.set_vector(0, read<Numbers::kSegments, Config::kMaskUnit, kMany>(position));
        if constexpr (Config::kSegments == Segments::kBits)
            part.restarts.set(0, ((const uint32*)row.array[Numbers::kSegments])[position / 32] >> position % 32);
        if constexpr (Config::kSegments == Segments::kKeys) {
            CUSCAN_UNROLL
            for (int i = 0; i < kMany; ++i)
                if (position + i > 0)
                    part.restarts.set(i, arithmetic(*item<Numbers::kSegments>(position + i)) !=
                                             arithmetic(*item<Numbers::kSegments>(position + i - 1)));
        }
        return part;
    }
    template <int kArray>
    CUSCAN_DEVICE auto* item(int position) const {
        using Operand = OperandOfArray<Config, kArray>;
        return advance<Operand::kAccess>((typename Operand::Type*)row.array[kArray], 0, position);
    }
    template <int kArray, int kAligned, int kMany>
    CUSCAN_DEVICE auto read(int position) const {
        using Operand = OperandOfArray<Config, kArray>;
        using T = typename Operand::Type;
        constexpr int kUnit = kAligned < kMany ? kAligned : kMany;
        Vector<T, kMany> items;
        CUSCAN_UNROLL
        for (int i = 0; i < kMany; i += kUnit) {
            const auto unit = read_shared<Operand::kAccess, Vector<T, kUnit, false>>(item<kArray>(position + i));
            CUSCAN_UNROLL
            for (int j = 0; j < kUnit; ++j) items.item[i + j] = unit.item[j];
        }
        return items;
    }
    template <int kArray, class T, int kMany>
    CUSCAN_DEVICE void store(int position, const Vector<T, kMany>& items) const {
        constexpr int kUnit = Config::kResultUnit < kMany ? Config::kResultUnit : kMany;
        CUSCAN_UNROLL
        for (int i = 0; i < kMany; i += kUnit) {
            Vector<T, kUnit, false> unit;
            CUSCAN_UNROLL
            for (int j = 0; j < kUnit; ++j) unit.item[j] = items.item[i + j];
            write_shared<OperandOfArray<Config, kArray>::kAccess>(item<kArray>(position + i), unit);
        }
    }
};

template <class Config>
CUSCAN_DEVICE void thread_rows(Row<Config> origin, Workspace* /* unused: no row is shared */,
                               const typename Elements<Config>::Initial& initial,
                               const RowsGeometry<Config>& geometry) {
    using Rows = SharedRows<Config>;
    using OfThread = ThreadRow<Config>;
    const Rows rows(origin, geometry);
    rows.load();
    for (int number = target::thread_index(); number < rows.count; number += Rows::kThreads) {
        auto row = origin.at(geometry, rows.first_row + number);
        const auto start = convert<typename OfThread::State>(Elements<Config>::start(geometry, row, initial));
        rows.point_into_shared(row, number);
        OfThread{{}, geometry, row, initial, start}.scan();
    }
    rows.store();
}

}  // namespace cuscan
