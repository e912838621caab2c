// A thread's share of a unit of columns: kSteps elements along the axis of kItems neighbouring columns, in registers from
// load to store. Nothing beyond the end of the row or of the columns is touched.
#pragma once
#include "elements.cuh"

namespace cuscan {

template <class Config>
struct ColumnShare {
    static constexpr int kItems = Config::kItems, kSteps = Config::kSteps;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Op = typename Element::Op;
    using Numbers = Arrays<Config>;

    Row<Config> at;             // the first element
    int64 first, left;          // its position along the axis; results from there to the end of the row
    int steps, results, width;  // how many exist along the axis, as elements and as results, and across
    Items<Config, kSteps, kItems> items;

    // From position `position` on of `row`, if that exists, and column `column`.
    CUSCAN_DEVICE void load(const Geometry<Config>& geometry, const Row<Config>& row, bool exists, int64 position,
                            int64 column, const typename Element::Initial& initial) {
        at = row;
        at.advance(geometry.axis, position);
        at.advance(geometry.column, column);
        first = position;
        width = clamp(geometry.column.size - column, kItems);
        left = exists && width > 0 ? geometry.axis.size - position : 0;
        results = clamp(left, kSteps);
        steps = clamp(left - Config::kIncludesInitial, kSteps);
        items.clear(geometry, position, initial);
        if constexpr (Config::kIndexed && Element::kCarriesIn && !Config::kReverse) {
            static_assert(kItems == 1, "each column counts its own elements: plan.py has them one by one");
            items.index += Element::counted(width > 0 ? at : row);
        }
        for_each_value<Config>([&](auto k, auto port) {
            auto& vectors = items.raw.at(k).vector;
            load_each<decltype(k)::value>(port, geometry, [&](int s, const auto& vector) { vectors[s] = vector; });
        });
        if constexpr (Element::kMasked)
            load_each<Numbers::kMask>(typename Config::Mask(), geometry,
                                      [&](int s, const auto& mask) { items.keep.set_vector(s, mask); });
        load_segments(geometry);
    }

    // The steps of column i, one by one.
    CUSCAN_DEVICE State total(int i) const {
        State total = items.get(0, i, 0);
        CUSCAN_UNROLL
        for (int s = 1; s < kSteps; ++s) total = Op::combine(total, items.get(s, i, s));
        return total;
    }
    // Where the columns' last element is one of the thread's: calls at_end(i, the place of column i, what its steps add up
    // to, up to there) for each; `before(i)` precedes them, if there is anything.
    template <class Before, class AtEnd>
    CUSCAN_DEVICE void sum_to_end(const Geometry<Config>& geometry, bool has_before, Before before, AtEnd at_end) const {
        const int64 last = left - 1 - Config::kIncludesInitial;
        if (last < 0 || last >= kSteps) return;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            if (i >= width) break;
            State sum = before(i);
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s)
                if (s <= last) sum = join<Op>(has_before || s > 0, sum, items.get(s, i, s));
            Row<Config> here = at;
            here.advance(geometry.column, i);
            at_end(i, here, sum);
        }
    }
    CUSCAN_DEVICE void store(const Geometry<Config>& geometry, Running<Config> (&running)[kItems]) const {
        if (results == kSteps && width == kItems)
            store_steps(geometry, running, [](int) { return kItems; });
        else
            store_steps(geometry, running, [&](int s) { return s < results ? width : 0; });
    }

private:
    template <class Port>
    struct Output {
        Vector<typename Port::Type, kItems> vector;
    };

    // Where segments start.
    CUSCAN_DEVICE void load_segments(const Geometry<Config>& geometry) {
        using Port = typename Config::SegmentPort;
        if constexpr (Config::kSegments == Segments::kReset)
            load_each<Numbers::kSegments>(Port(), geometry,
                                          [&](int s, const auto& reset) { items.restarts.set_vector(s, reset); });
        if constexpr (Config::kSegments == Segments::kKeys) {
            const auto* keys = (const typename Port::Type*)at.array[Numbers::kSegments];
            Vector<typename Port::Type, kItems> before = load_vector<Port::kAccess, kItems>(
                advance<Access::kElement>(keys, geometry.axis.stride[Numbers::kSegments], -1),
                geometry.column.stride[Numbers::kSegments], first > 0 && steps > 0 ? width : 0);
            if constexpr (Element::kCarriesIn)
                if (first == 0 && steps > 0)
                    before =
                        load_vector<Access::kElement, kItems>((const typename Port::Type*)at.array[Numbers::kCarryOut - 1],
                                                              geometry.column.stride[Numbers::kCarryOut - 1], width);
            load_each<Numbers::kSegments>(Port(), geometry, [&](int s, const auto& key) {
                CUSCAN_UNROLL
                for (int i = 0; i < kItems; ++i) {
                    const bool change = arithmetic(key.item[i]) != arithmetic(before.item[i]);
                    items.restarts.set(s * kItems + i, change && first + s > 0 && s < steps);
                    if constexpr (Element::kCarriesIn)  // else no segment starts at the first element
                        items.restarts.set(s * kItems + i, change && first + s == 0 && s < steps);
                }
                before = key;
            });
        }
        if constexpr (Config::kSegments == Segments::kBits) {
            static_assert(32 % kSteps == 0, "the bits of a share are in one word");
            const uint32* const words = (const uint32*)at.array[Numbers::kSegments];
            const uint32 bits = steps > 0 ? words[first / 32] >> first % 32 : 0;
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s) {
                CUSCAN_UNROLL
                for (int i = 0; i < kItems; ++i) items.restarts.set(s * kItems + i, bits >> s & 1);
            }
        }
    }
    // Calls take(s, the vector of step s) for array kArray.
    template <int kArray, class Port, class Take>
    CUSCAN_DEVICE void load_each(Port, const Geometry<Config>& geometry, Take take) const {
        const auto* item = (const typename Port::Type*)at.array[kArray];
        const int64 along = geometry.axis.stride[kArray], across = geometry.column.stride[kArray];
        auto load_all = [&](auto count) {
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s)
                take(s, load_vector<Port::kAccess, kItems>(advance<Access::kElement>(item, along, s), across, count(s)));
        };
        if (steps == kSteps && width == kItems)
            load_all([](int) { return kItems; });
        else
            load_all([&](int s) { return s < steps ? width : 0; });
    }
    template <class Count>
    CUSCAN_DEVICE void store_steps(const Geometry<Config>& geometry, Running<Config> (&running)[kItems], Count count) const {
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            Pack<Output, typename Config::Results> output;
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) {
                const auto state = running[i].step(items.get(s, i, s), items.segment_started);
                for_each_result<Config>([&](auto k, auto port) {
                    output.at(k).vector.item[i] = convert<typename decltype(port)::Type>(Config::Op::lower(state, k));
                });
                if (left == s + 1 && i < width) {
                    Row<Config> here = at;
                    here.advance(geometry.column, i);
                    store_last(here, state);
                }
            }
            for_each_result<Config>([&](auto k, auto port) {
                using Port = decltype(port);
                constexpr int kArray = Numbers::kResults + decltype(k)::value;
                auto* result = (typename Port::Type*)at.array[kArray];
                store_vector<Port::kAccess>(advance<Access::kElement>(result, geometry.axis.stride[kArray], s),
                                            geometry.column.stride[kArray], count(s), output.at(k).vector);
            });
        }
    }
};

}  // namespace cuscan
