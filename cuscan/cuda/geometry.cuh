// Where the elements of a scan lie. The host writes this struct as plain 64-bit words (plan.py lists them in the same
// order). Steps and strides count elements and may be negative or zero; the pointers that a kernel gets address scan
// position 0 of row 0, so a reversed scan is nothing but negative steps.
#pragma once
#include "types.cuh"

namespace cuscan {

struct Dimension {
    int64 size;
    int64 value_stride, result_stride, mask_stride;
};

template <int kBatchDims>
struct Geometry {
    Dimension axis;               // the scanned axis
    Dimension column;             // columns family: the axis that neighbouring threads share; else of size 1
    Dimension batch[kBatchDims];  // all others, the fastest first
    uint64 rows;                  // product of the batch sizes
    uint64 units;                 // units of the chain along the axis
    uint64 workspace_words;       // tile-state words of this launch
};

// The three arrays of a scan, at one row.
template <class Value, class Result>
struct Row {
    const Value* value;
    Result* result;
    const boolean* mask;

    CUSCAN_DEVICE void advance(const Dimension& dimension, int64 index) {
        value += index * dimension.value_stride;
        result += index * dimension.result_stride;
        mask += index * dimension.mask_stride;
    }
    template <int kBatchDims>
    CUSCAN_DEVICE Row at(const Geometry<kBatchDims>& geometry, uint64 row) const {
        Row moved = *this;
        CUSCAN_UNROLL
        for (int d = 0; d + 1 < kBatchDims; ++d) {
            moved.advance(geometry.batch[d], int64(row % uint64(geometry.batch[d].size)));
            row /= uint64(geometry.batch[d].size);
        }
        moved.advance(geometry.batch[kBatchDims - 1], int64(row));
        return moved;
    }
};

}  // namespace cuscan
