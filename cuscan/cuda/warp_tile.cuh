// A warp's share of a row on a contiguous axis: kVectors times kLanes vectors of kItems elements, in registers from load
// to store. Lane l of vector r holds the elements from (r * kLanes + l) * kItems on. The order of the scan: the items of
// a vector one by one, the lanes by warp_inclusive_scan, the vectors from left to right.
#pragma once
#include "elements.cuh"

namespace cuscan {

template <class Config, int kVectors, int kLanes>
struct WarpTile {
    static constexpr int kItems = Config::kItems;
    static constexpr int kStride = kLanes * kItems;  // from a thread's vector to its next
    static constexpr int kElements = kVectors * kStride;
    using Value = typename Config::Value;
    using Result = typename Config::Result;
    using Accumulator = typename Config::Accumulator;
    using Op = typename Config::template Op<Accumulator>;
    using Place = Row<Value, Result>;

    Items<Config, kVectors, kItems> items;
    Accumulator before[kVectors];  // this thread's vector r: what precedes it in the warp tile (not: vector 0 of lane 0)

    // `first`: the position in the row at which the warp tile begins. Nothing at or beyond the row's end is touched.
    CUSCAN_DEVICE void load(const Place& row, const Dimension& axis, int64 first, int lane) {
        const int64 position = first + lane * kItems;
        const int count = clamp(axis.size - position, kElements);
        const Value* value = advance<Config::kValueAccess>(row.value, axis.value_stride, position);
        const boolean* mask = advance<Config::kMaskAccess>(row.mask, axis.mask_stride, position);
        items.clear();
        if (whole(axis, first))
            load_vectors(value, mask, axis, Whole());
        else
            load_vectors(value, mask, axis, count);
    }

    // From and to a stage (stage.cuh); `start` is the warp tile's place in it. The mask is kept in registers: it is read
    // once, the values as often as they are needed.
    template <class Stage>
    CUSCAN_DEVICE void read_mask(Stage& stage, int start, int lane) {
        items.clear();
        if constexpr (Config::kMaskAccess != Access::kNone) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r)
                items.set_mask(r, read_shared<Config::kMaskAccess, kItems>(stage.mask(start + lane * kItems + r * kStride)));
        }
    }
    template <class Stage>
    CUSCAN_DEVICE void read_values(Stage& stage, int start, int lane) {
        if constexpr (Stage::kShared) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r)
                items.raw[r] = read_shared<Stage::kAccess, kItems>(stage.value(start + lane * kItems + r * kStride));
        }
    }
    template <class Stage>
    CUSCAN_DEVICE void write_values(Stage& stage, int start, int lane) {
        if constexpr (Stage::kShared) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r)
                write_shared<Stage::kAccess, kItems>(stage.value(start + lane * kItems + r * kStride), items.raw[r]);
        }
    }

    // Fills `before`. Returns the aggregate of the warp tile, in every lane (kLanes = 32 or a single vector only).
    CUSCAN_DEVICE Accumulator scan(int lane) {
        Accumulator aggregate;
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            Accumulator total = items.get(r, 0);
            CUSCAN_UNROLL
            for (int i = 1; i < kItems; ++i) total = Op::combine(total, items.get(r, i));
            const Accumulator inclusive = warp_inclusive_scan<Op, kLanes>(total, lane);
            const Accumulator exclusive = target::shuffle_up(inclusive, 1);
            const Accumulator vector_total = target::broadcast(inclusive, target::kWarp - 1);
            if (r == 0) {
                before[r] = exclusive;
                aggregate = vector_total;
            } else {
                before[r] = lane == 0 ? aggregate : Op::combine(aggregate, exclusive);
                aggregate = Op::combine(aggregate, vector_total);
            }
        }
        return aggregate;
    }

    // `prefix`: what precedes the warp tile in the row, if anything does.
    CUSCAN_DEVICE void store(const Place& row, const Dimension& axis, int64 first, int lane, bool has_prefix,
                             Accumulator prefix) {
        const int64 position = first + lane * kItems;
        const int count = clamp(axis.size - position, kElements);
        Result* result = advance<Config::kResultAccess>(row.result, axis.result_stride, position);
        if (whole(axis, first))
            store_vectors(result, axis, Whole(), lane, has_prefix, prefix);
        else
            store_vectors(result, axis, count, lane, has_prefix, prefix);
    }

private:
    // How many elements remain from a thread's first on: a number, or, where the warp tile lies inside the row, always
    // enough, so that the compiler drops the tests.
    struct Whole {
        CUSCAN_DEVICE constexpr int operator-(int) const { return kItems; }
    };
    static CUSCAN_DEVICE bool whole(const Dimension& axis, int64 first) { return axis.size - first >= kElements; }

    template <class Count>
    CUSCAN_DEVICE void load_vectors(const Value* value, const boolean* mask, const Dimension& axis, Count count) {
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            items.raw[r] = load_vector<Config::kValueAccess, kItems>(
                advance<Config::kValueAccess>(value, axis.value_stride, r * kStride), axis.value_stride,
                count - r * kStride);
            if constexpr (Config::kMaskAccess != Access::kNone)
                items.set_mask(r, load_vector<Config::kMaskAccess, kItems>(
                                      advance<Config::kMaskAccess>(mask, axis.mask_stride, r * kStride), axis.mask_stride,
                                      count - r * kStride));
        }
    }

    template <class Count>
    CUSCAN_DEVICE void store_vectors(Result* result, const Dimension& axis, Count count, int lane, bool has_prefix,
                                     Accumulator prefix) {
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            const bool inside = r > 0 || lane > 0;
            Running<Config> running;
            running.present = inside || has_prefix;
            running.value = inside ? join<Op>(has_prefix, prefix, before[r]) : prefix;
            Vector<Result, kItems> output;
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) output.item[i] = running.step(items.get(r, i));
            store_vector<Config::kResultAccess>(advance<Config::kResultAccess>(result, axis.result_stride, r * kStride),
                                                axis.result_stride, count - r * kStride, output);
        }
    }
};

}  // namespace cuscan
