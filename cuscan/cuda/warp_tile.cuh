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
    CUSCAN_DEVICE void load_values(const Place& row, const Dimension& axis, int64 first, int lane) {
        load_each<Config::kValueAccess>(row.value, axis.value_stride, axis.size - first, first, lane,
                                        [&](int r, const auto& vector) { items.raw[r] = vector; });
    }
    CUSCAN_DEVICE void load_mask(const Place& row, const Dimension& axis, int64 first, int lane) {
        items.clear();
        if constexpr (Config::kMaskAccess != Access::kNone)
            load_each<Config::kMaskAccess>(row.mask, axis.mask_stride, axis.size - first, first, lane,
                                           [&](int r, const auto& vector) { items.set_mask(r, vector); });
    }

    // From and to a stage (stage.cuh); `start` is the warp tile's place in it.
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
        Result* result = advance<Config::kResultAccess>(row.result, axis.result_stride, position);
        auto store_all = [&](auto count) {
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
                                                    axis.result_stride, count(r), output);
            }
        };
        if (axis.size - first >= kElements) {
            store_all([](int) { return kItems; });
        } else {
            const int left = clamp(axis.size - position, kElements);
            store_all([&](int r) { return left - r * kStride; });
        }
    }

private:
    // Calls take(r, vector r of this thread) for one of the arrays; `length` elements of the row remain from `first` on.
    template <Access kAccess, class T, class Take>
    static CUSCAN_DEVICE void load_each(const T* origin, int64 step, int64 length, int64 first, int lane, Take take) {
        const T* item = advance<kAccess>(origin, step, first + lane * kItems);
        auto load_all = [&](auto count) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r)
                take(r, load_vector<kAccess, kItems>(advance<kAccess>(item, step, r * kStride), step, count(r)));
        };
        if (length >= kElements) {  // the warp tile lies inside the row: nothing to test
            load_all([](int) { return kItems; });
        } else {
            const int left = clamp(length - lane * kItems, kElements);
            load_all([&](int r) { return left - r * kStride; });
        }
    }
};

}  // namespace cuscan
