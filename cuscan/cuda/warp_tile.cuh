// A warp's share of a row on a contiguous axis: kVectors times kLanes vectors of kItems elements, in registers from load
// to store. Lane l of vector r holds the elements from (r * kLanes + l) * kItems on. The order of the scan: the items of
// a vector one by one, the lanes by warp_inclusive_scan, the vectors from left to right.
#pragma once
#include "packed.cuh"
#include "shifted.cuh"

namespace cuscan {

struct NoStage {
    template <class Port>
    static CUSCAN_DEVICE constexpr bool holds() {
        return false;
    }
};

template <class Config, int kVectors, int kLanes>
struct WarpTile {
    static constexpr int kItems = Config::kItems;
    static constexpr int kStride = kLanes * kItems;  // from a thread's vector to its next
    static constexpr int kElements = kVectors * kStride;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Op = typename Element::Op;
    using Place = Row<Config>;
    using Shape = Geometry<Config>;
    using Numbers = Arrays<Config>;

    // Of a warp, where segments are given by offsets.
    static constexpr int kBoundaryWords = target::kWarp * Bits<kVectors * kItems>::kWords;

    Items<Config, kVectors, kItems> items;
    State before[kVectors];  // this thread's vector r: what precedes it in the warp tile (not: vector 0 of lane 0)

    // `first`: the position in the row at which the warp tile begins; `length`: the elements of the row. Nothing at or
    // beyond the row's end is touched. Values that Stage holds are left out.
    template <class Stage = NoStage>
    CUSCAN_DEVICE void load_values(const Place& row, const Shape& geometry, int64 length, int64 first, int lane) {
        for_each_value<Config>([&](auto k, auto port) {
            if constexpr (!Stage::template holds<decltype(port)>()) {
                auto& vectors = items.raw.at(k).vector;
                load_each<decltype(k)::value>(port, row, geometry, length, first, lane,
                                              [&](int r, const auto& vector) { vectors[r] = vector; });
            }
        });
    }
    // The mask, and where segments start. `boundaries`: words in shared memory for this warp alone, kBoundaryWords of them.
    CUSCAN_DEVICE void load_flags(const Place& row, const Shape& geometry, int64 length, int64 first, int lane,
                                  const typename Element::Initial& initial, uint32* boundaries) {
        items.clear(geometry, first + lane * kItems, initial);
        if constexpr (Element::kMasked)
            load_each<Numbers::kMask>(typename Config::Mask(), row, geometry, length, first, lane,
                                      [&](int r, const auto& mask) { items.keep.set_vector(r, mask); });
        if constexpr (Config::kSegments == Segments::kReset)
            load_each<Numbers::kSegments>(typename Config::SegmentPort(), row, geometry, length, first, lane,
                                          [&](int r, const auto& reset) { items.restarts.set_vector(r, reset); });
        if constexpr (Config::kSegments == Segments::kKeys) compare_keys(row, geometry, length, first, lane);
        if constexpr (Config::kSegments == Segments::kOffsets) find_offsets(row, geometry, first, lane, boundaries);
    }

    // From and to a stage (stage.cuh); `start` is the warp tile's place in it. `sent`: whether its tile was sent for. What
    // was sent for beyond the row's end, `left` elements from the warp tile's start, becomes zero here too, for operators
    // that might not stand it (Config::kClearsBeyond): those of users.
    template <class Stage>
    CUSCAN_DEVICE void read_values(Stage& stage, int start, int lane, const Place& row, bool sent, int64 left) {
        for_each_value<Config>([&](auto k, auto port) {
            using Port = decltype(port);
            if constexpr (Stage::template holds<Port>()) {
                CUSCAN_UNROLL
                for (int r = 0; r < kVectors; ++r) {
                    const auto* item = stage.value(k, port, start + lane * kItems + r * kStride, row, sent);
                    if constexpr (is_shifted(Port::kAccess))
                        items.raw.at(k).vector[r] = read_shifted<Port::kAccess, kItems>(item);
                    else
                        items.raw.at(k).vector[r] = read_shared<Port::kAccess, Vector<typename Port::Type, kItems>>(item);
                }
                if constexpr (is_shifted(Port::kAccess) && Config::kClearsBeyond)
                    if (left < kElements) clear_beyond(k, clamp(left - lane * kItems, kElements));
            }
        });
    }
    template <class Stage>
    CUSCAN_DEVICE void write_values(Stage& stage, int start, int lane, const Place& row) {
        for_each_value<Config>([&](auto k, auto port) {
            if constexpr (Stage::template holds<decltype(port)>()) {
                CUSCAN_UNROLL
                for (int r = 0; r < kVectors; ++r)
                    write_shared<Stage::template access<decltype(port)>()>(
                        stage.value(k, port, start + lane * kItems + r * kStride, row, false), items.raw.at(k).vector[r]);
            }
        });
    }

    // Fills `before`. Returns the aggregate of the warp tile, in every lane (kLanes = 32 or a single vector only).
    CUSCAN_DEVICE State scan(int lane) {
        State aggregate;
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            const State inclusive = warp_inclusive_scan<Op, kLanes>(total(r), lane);
            const State exclusive = target::shuffle_up(inclusive, 1);
            const State vector_total = target::broadcast(inclusive, target::kWarp - 1);
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

    // `length`: the results of the row. `prefix`: what precedes the warp tile in the row, if anything does.
    CUSCAN_DEVICE void store(const Place& row, const Shape& geometry, int64 length, int64 first, int lane, bool has_prefix,
                             const State& prefix) {
        const int64 left = length - first - lane * kItems;
        auto store_all = [&](auto whole, auto count) {
            Outputs earlier;
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r) {
                const bool inside = r > 0 || lane > 0;
                Running<Config> running;
                running.present = inside || has_prefix;
                running.value = inside ? join<Op>(has_prefix, prefix, before[r]) : prefix;
                store_vector_of(whole, row, geometry, first + lane * kItems + r * kStride, r, lane, count(r),
                                left - r * kStride, running, earlier);
            }
        };
        if (length - first >= kElements) {
            store_all(Number<1>(), [](int) { return kItems; });
        } else {
            const int some = clamp(left, kElements);
            store_all(Number<0>(), [&](int r) { return some - r * kStride; });
        }
    }

    template <class Port>
    struct Output {
        Vector<typename Port::Type, kItems> vector;
    };
    using Outputs = Pack<Output, typename Config::Results>;
    // The results of vector r. `visit` sees each item's number and state, unless sums are packed: then nobody asks for them.
    template <class Visit>
    CUSCAN_DEVICE void run(int r, Running<Config>& running, Outputs& output, Visit visit) const {
        if constexpr (Packed<Config>::kFits) {
            Packed<Config>::scan(packed(r), running.present ? uint32(running.value) : 0, output.at(Number<0>()).vector);
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) {
                const auto state = running.step(items.get(r, i, r * kStride + i), items.segment_started);
                for_each_result<Config>([&](auto k, auto port) {
                    output.at(k).vector.item[i] = convert<typename decltype(port)::Type>(Config::Op::lower(state, k));
                });
                visit(i, state);
            }
        }
    }

private:
    template <class Index>
    CUSCAN_DEVICE void clear_beyond(Index k, int count) {
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i)
                if (r * kStride + i >= count) items.raw.at(k).vector[r].item[i] = {};
        }
    }

    CUSCAN_DEVICE auto packed(int r) const {
        const auto& vector = items.raw.at(Number<0>()).vector[r];
        if constexpr (Element::kMasked)
            return Packed<Config>::masked(vector, items.keep, r * kItems);
        else
            return vector;
    }
    CUSCAN_DEVICE State total(int r) const {
        if constexpr (Packed<Config>::kFits) {
            return State(Packed<Config>::total(packed(r)));
        } else {
            State total = items.get(r, 0, r * kStride);
            CUSCAN_UNROLL
            for (int i = 1; i < kItems; ++i) total = Op::combine(total, items.get(r, i, r * kStride + i));
            return total;
        }
    }

    // Vector r, `left` results before the end of the row. `Whole`: all of the warp tile is inside of the row. `earlier` has
    // the vector before this one, as it lies in memory, for results that are shifted.
    template <class Whole>
    CUSCAN_DEVICE void store_vector_of(Whole, const Place& row, const Shape& geometry, int64 position, int r, int lane,
                                       int count, int64 left, Running<Config>& running, Outputs& earlier) {
        Outputs output;
        run(r, running, output, [&](int i, const auto& state) {
            if (left == i + 1) store_last(row, state);
        });
        for_each_result<Config>([&](auto k, auto port) {
            using Port = decltype(port);
            constexpr int kArray = Numbers::kResults + decltype(k)::value;
            const int64 step = geometry.axis.stride[kArray];
            auto* item = advance<Port::kAccess>((typename Port::Type*)row.array[kArray], step, position);
            if constexpr (is_shifted(Port::kAccess) && Whole::value && sizeof(output.at(k).vector) >= 4)
                store_shifted<Port::kAccess>(item, lane, r == 0, r == kVectors - 1, output.at(k).vector,
                                             earlier.at(k).vector);
            else
                store_vector<Port::kAccess>(item, step, count, output.at(k).vector);
        });
    }

    CUSCAN_DEVICE void compare_keys(const Place& row, const Shape& geometry, int64 length, int64 first, int lane) {
        using Port = typename Config::SegmentPort;
        using Key = typename Port::Type;
        const int64 step = geometry.axis.stride[Numbers::kSegments], origin = first + lane * kItems;
        const Key* keys = (const Key*)row.array[Numbers::kSegments];
        load_each<Numbers::kSegments>(Port(), row, geometry, length, first, lane, [&](int r, const auto& vector) {
            const int64 position = origin + r * kStride;
            Key before = vector.item[0];
            if (position > 0 && position < length) before = *advance<Port::kAccess>(keys, step, position - 1);
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) {
                const bool change = arithmetic(vector.item[i]) != arithmetic(before);
                items.restarts.set(r * kItems + i, change && position + i > 0 && position + i < length);
                before = vector.item[i];
            }
        });
    }
    CUSCAN_DEVICE void find_offsets(const Place& row, const Shape& geometry, int64 first, int lane, uint32* boundaries) {
        constexpr int kWords = decltype(items.restarts)::kWords;
        target::sync_warp();
        CUSCAN_UNROLL
        for (int w = 0; w < kWords; ++w) boundaries[w * target::kWarp + target::thread_index() % target::kWarp] = 0;
        target::sync_warp();
        find_boundaries(row, geometry, first, kElements, [&](int place) {
            const int owner = place % kStride / kItems, bit = place / kStride * kItems + place % kItems;
            target::set_bits(boundaries + bit / 32 * target::kWarp + owner, 1u << (bit % 32));
        });
        target::sync_warp();
        CUSCAN_UNROLL
        for (int w = 0; w < kWords; ++w) items.restarts.word[w] = boundaries[w * target::kWarp + lane];
    }

    // Calls take(r, vector r of this thread) for array kArray.
    template <int kArray, class Port, class Take>
    static CUSCAN_DEVICE void load_each(Port, const Place& row, const Shape& geometry, int64 length, int64 first, int lane,
                                        Take take) {
        const int64 step = geometry.axis.stride[kArray];
        const auto* item =
            advance<Port::kAccess>((const typename Port::Type*)row.array[kArray], step, first + lane * kItems);
        auto load_all = [&](auto count) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r)
                take(r, load_vector<Port::kAccess, kItems>(advance<Port::kAccess>(item, step, r * kStride), step, count(r)));
        };
        if (length - first >= kElements) {  // the warp tile lies inside the row: nothing to test
            load_all([](int) { return kItems; });
        } else {
            const int left = clamp(length - first - lane * kItems, kElements);
            load_all([&](int r) { return left - r * kStride; });
        }
    }
};

}  // namespace cuscan
