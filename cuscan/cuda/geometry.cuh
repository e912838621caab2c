// The memory layout of a scan. The host writes Geometry as 64-bit words, in the order of planning/assemble.py. Strides
// are in bytes and may be negative or zero. Kernels get pointers to scan position 0 of row 0, so a reversed scan merely
// has negative strides.
#pragma once
#include "operands.cuh"

namespace cuscan {

template <int kArrays>
struct Dimension {
    int64 size;
    int64 stride[kArrays];
};

// The extent of an array: bytes from scan position 0 of row 0 to its lowest address, and to the end of its highest
// element.
struct Span {
    int64 lowest, end;
};

template <class Config>
struct Geometry {
    using Dimension = cuscan::Dimension<Arrays<Config>::kCount>;

    Dimension axis;                       // the scanned axis; its size counts results
    Dimension column;                     // column families: the axis across neighbouring threads; else of size 1
    Dimension batch[Config::kBatchDims];  // all other axes, the fastest first
    uint64 rows;                          // product of the batch sizes
    uint64 units;                         // units of a row that pass on a carry
    uint64 workspace_words;               // 64-bit workspace words that this launch uses
    Span span[Arrays<Config>::kInitial];  // of values, results, mask and segments

    // Elements along the axis. If the initial value is a result of its own, there is one element less than results.
    CUSCAN_DEVICE int64 elements() const { return axis.size - Config::kIncludesInitial; }
};

// Pointers to all arrays of a scan, at one place in the batch.
template <class Config>
struct Row {
    static constexpr int kArrays = Arrays<Config>::kCount;
    char* array[kArrays];

    CUSCAN_DEVICE void advance(const Dimension<kArrays>& dimension, int64 index) {
        CUSCAN_UNROLL
        for (int a = 0; a < kArrays; ++a) array[a] += index * dimension.stride[a];
    }
    CUSCAN_DEVICE Row at(const Geometry<Config>& geometry, uint64 row) const {
        Row moved = *this;
        CUSCAN_UNROLL
        for (int d = 0; d + 1 < Config::kBatchDims; ++d) {
            moved.advance(geometry.batch[d], int64(row % uint64(geometry.batch[d].size)));
            row /= uint64(geometry.batch[d].size);
        }
        moved.advance(geometry.batch[Config::kBatchDims - 1], int64(row));
        return moved;
    }
};

// The types of a scan with one value and one result.
template <class Config>
struct Plain {
    using Value = typename OperandOf<0, typename Config::Values>::Is::Type;
    using Result = typename OperandOf<0, typename Config::Results>::Is::Type;
    static_assert(Arrays<Config>::kMask == 2, "the scan has one value and one result");
};

// Calls visit(Number<k>(), operand) for each value, or for each result; k counts from the first value or result.
template <class Config, class Visit>
CUSCAN_DEVICE void for_each_value(Visit&& visit) {
    for_each_operand<typename Config::Values>(
        [&](auto k) { visit(k, typename OperandOf<decltype(k)::value, typename Config::Values>::Is()); });
}
template <class Config, class Visit>
CUSCAN_DEVICE void for_each_result(Visit&& visit) {
    for_each_operand<typename Config::Results>(
        [&](auto k) { visit(k, typename OperandOf<decltype(k)::value, typename Config::Results>::Is()); });
}

}  // namespace cuscan
