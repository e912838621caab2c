// What a block's workers do with a tile of a few columns that lies in shared memory as it does in global memory
// (flat_tile.cuh). A worker has up to kEach chunks of kSteps rows and kAcross columns; what they add up to, column by
// column, and later what precedes them, is exchanged through shared memory. Of a tile at the end of the columns only some
// rows exist; what is found for the others is not stored.
#pragma once
#include "elements.cuh"
#include "flat_tile.cuh"

namespace cuscan {

template <class Config>
struct NarrowLayout {
    static constexpr int kColumns = Config::kColumns, kUnits = Config::kUnits, kSteps = Config::kSteps;
    static constexpr int kChunks = kUnits * target::kWarp, kRows = kChunks * kSteps;
    static constexpr int kElements = kRows * kColumns;
    static constexpr int kWorkers = Config::kWarps * target::kWarp;  // threads
    static constexpr int kThreads = kWorkers + Config::kWalkers * target::kWarp;
    static constexpr int kAcross = Config::kAcross;
    static constexpr int kPieces = kChunks * (kColumns / kAcross);  // chunks of kAcross columns
    static constexpr int kEach = (kPieces + kWorkers - 1) / kWorkers;
    static constexpr bool kStaged = Config::kStaged && target::kHasBulkCopy;

    using State = typename Elements<Config>::State;
    using Values = FlatTile<typename Plain<Config>::Value, kColumns, kAcross, kRows, kSteps, Config::kValueBack>;
    using Results = FlatTile<typename Plain<Config>::Result, kColumns, kAcross, kRows, kSteps, Config::kResultBack>;
    // For each chunk. An odd number of columns, so that a warp that reads along the chunks meets all banks.
    using Exchange = State[kChunks][kColumns | 1];
    using OfUnits = State[kUnits][kColumns];
};

// One thread's view of a tile.
template <class Config>
struct NarrowTile : Elements<Config> {
    using Base = Elements<Config>;
    using Place = Plain<Config>;
    using Value = typename Place::Value;
    using Result = typename Place::Result;
    using typename Base::Op;
    using typename Base::State;
    using Layout = NarrowLayout<Config>;
    using Values = typename Layout::Values;
    using Results = typename Layout::Results;
    using Exchange = typename Layout::Exchange;
    using OfUnits = typename Layout::OfUnits;
    static constexpr int kColumns = Layout::kColumns, kSteps = Layout::kSteps, kAcross = Layout::kAcross;
    using Chunk = State[kSteps][kAcross];

    Place first;  // row 0, column 0
    int rows;     // that exist
    uint32 keep;  // a bit an element of this thread, for the mask
    static_assert(Layout::kEach * kSteps * kAcross <= 32, "the mask takes more than one word");

    CUSCAN_DEVICE bool whole() const { return rows == Layout::kRows; }

    CUSCAN_DEVICE void load_mask(const Geometry<Config>& geometry, int thread) {
        keep = 0;
        if constexpr (Base::kMasked)
            each_chunk(thread, [&](int number, int chunk, int column) {
                const int64 across = geometry.column.stride[Arrays<Config>::kMask];  // a bool is a byte
                const boolean* mask =
                    first.mask + chunk * kSteps * geometry.axis.stride[Arrays<Config>::kMask] + column * across;
                const int left = rows - chunk * kSteps;
                CUSCAN_UNROLL
                for (int s = 0; s < kSteps; ++s) {
                    CUSCAN_UNROLL
                    for (int c = 0; c < kAcross; ++c)
                        if (s < left) keep |= uint32(mask[c * across].bits != 0) << bit(number, s, c);
                    mask += geometry.axis.stride[Arrays<Config>::kMask];
                }
            });
    }
    // What no bulk copy brings.
    CUSCAN_DEVICE void load_values(Value* values, int thread) const {
        const Value* lowest = Values::lowest(first.value);
        const int begin = Values::begin(rows), end = begin + rows * kColumns;
        for (int i = begin + thread; i < end; i += Layout::kWorkers) values[i] = target::load_streaming(lowest + i);
    }

    // The chunks' totals.
    CUSCAN_DEVICE void fold(const Value* values, Exchange& totals, int thread) const {
        each_chunk(thread, [&](int number, int chunk, int column) {
            Chunk element;
            read(values, number, chunk, column, element);
            CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) {
                State total = element[0][c];
                CUSCAN_UNROLL
                for (int s = 1; s < kSteps; ++s) total = Op::combine(total, element[s][c]);
                totals[chunk][column + c] = total;
            }
        });
    }
    // The results, from what precedes the chunks in their units and the units in their columns. Nothing precedes unit 0 of
    // the tile if not `has_prefix`.
    CUSCAN_DEVICE void finish(const Value* values, Result* results, const Exchange& before, const OfUnits& prefix,
                              bool has_prefix, int thread) const {
        each_chunk(thread, [&](int number, int chunk, int column) {
            Chunk element;
            Result result[kSteps][kAcross];
            read(values, number, chunk, column, element);
            const int unit = chunk / target::kWarp;
            const State nothing{};  // no segments
            const bool has_unit_prefix = has_prefix || unit > 0, inside = chunk % target::kWarp > 0;
            CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) {
                const State unit_prefix = prefix[unit][column + c];
                Running<Config> running;
                running.present = has_unit_prefix || inside;
                running.value = inside ? join<Op>(has_unit_prefix, unit_prefix, before[chunk][column + c]) : unit_prefix;
                CUSCAN_UNROLL
                for (int s = 0; s < kSteps; ++s)
                    result[s][c] = convert<Result>(Op::lower(running.step(element[s][c], nothing), Number<0>()));
            }
            Results::write(results, chunk, column, result);
        });
    }
    CUSCAN_DEVICE void store(const Result* results, int thread) const {
        using Vector = cuscan::Vector<Result, Config::kItems>;
        Result* lowest = Results::lowest(first.result);
        if (Place::ResultPort::kAccess != Access::kElement && whole()) {
            CUSCAN_UNROLL
            for (int i = 0; i < Layout::kElements; i += Layout::kWorkers * Config::kItems) {
                const int item = i + thread * Config::kItems;
                if (item < Layout::kElements)
                    target::store_streaming(reinterpret_cast<Vector*>(lowest + item),
                                            *reinterpret_cast<const Vector*>(results + item));
            }
        } else {
            const int begin = Results::begin(rows), end = begin + rows * kColumns;
            for (int i = begin + thread; i < end; i += Layout::kWorkers) target::store_streaming(lowest + i, results[i]);
        }
    }

private:
    // Calls use(number, chunk, column) for each chunk of the thread, with its first column.
    template <class Use>
    static CUSCAN_DEVICE void each_chunk(int thread, Use use) {
        constexpr int kAbreast = kColumns / kAcross;
        CUSCAN_NO_UNROLL  // it would take more registers than there are
        for (int number = 0; number < Layout::kEach; ++number) {
            const int i = number * Layout::kWorkers + thread;
            if (i < Layout::kPieces) use(number, i / kAbreast, i % kAbreast * kAcross);
        }
    }
    static CUSCAN_DEVICE int bit(int number, int step, int column) { return (number * kSteps + step) * kAcross + column; }
    CUSCAN_DEVICE void read(const Value* values, int number, int chunk, int column, Chunk& element) const {
        Value value[kSteps][kAcross];
        Values::read(values, chunk, column, value);
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
        for (int c = 0; c < kAcross; ++c) {
            element[s][c] = Op::template lift<Result>(value[s][c]);
            if constexpr (Base::kMasked)
                if (!(keep >> bit(number, s, c) & 1)) element[s][c] = Base::identity();
            if constexpr (Config::kSkipsNan)
                if (is_nan(arithmetic(value[s][c]))) element[s][c] = Base::identity();
        }
    }
};

}  // namespace cuscan
