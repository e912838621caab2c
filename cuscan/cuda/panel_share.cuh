// A thread's share of a tile of a panel: kSlots columns, kRuns runs of kSteps elements each, in registers from the
// arrival of the tile until its results are written. kPack columns lie side by side, and move between shared memory and
// registers as a vector where the arrays are aligned to that. Arrays that are not in shared memory are accessed in
// global memory. Workers of kernels/panels.cuh call it on their own; the caller synchronises before tiles are read and
// after results are written.
#pragma once
#include "panel_tile.cuh"

namespace cuscan {

template <class Config>
struct PanelShare {
    static constexpr int kSlots = Config::kSlots, kRuns = Config::kRuns, kSteps = Config::kSteps;
    static constexpr int kPack = Config::kPack, kLong = PanelTile<Config>::kLong;
    static constexpr bool kBits = Config::kSegments == Segments::kBits;
    // Whether the axis has fewer steps than a run. Then slots without a column hold the elements of the last one.
    static constexpr bool kIsShort = kLong < 8;
    using Tile = PanelTile<Config>;
    using Place = PanelPlace<Config>;
    using Turn = PanelTurn<Config>;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Op = typename Element::Op;
    using Numbers = Arrays<Config>;
    using Runs = PairedFold<Op, levels_of(kRuns), State>;

    const Tile& tile;
    const Turn& turn;
    const Place& place;
    const int row;     // row of threads
    const int column;  // number among the threads side by side, of which there are `apart`
    const int apart;
    const int width_in_register;  // columns of the tile, in all its rows of the batch
    const int steps, results;     // number of steps that have elements; that have results
    Items<Config, kLong, kSlots, Element::kReplaces, kBits> items;
    State sums[kSlots][kRuns];  // of each run but the last one
    // Where the first step of each pack lies in the tile, if it lies together; otherwise unused, but with a value.
    template <class Operand>
    struct Places {
        char* of_pack[kSlots / kPack];
    };
    Pack<Places, typename Config::Results> places;

    CUSCAN_DEVICE PanelShare(const Tile& tile, const Turn& turn, int row, int column, int apart)
        : tile(tile),
          turn(turn),
          place(turn.place),
          row(row),
          column(column),
          apart(apart),
          width_in_register(place.width()),
          steps(clamp(place.steps - row * kLong, kLong)),
          results(clamp(place.results - row * kLong, kLong)) {
        // Threads without a row read nothing there; a register without a value would be kept from tile to tile.
        if constexpr (Config::kGrid) items = {};
    }

    // Where blocks share panels, registers are scarce, so it is read anew.
    CUSCAN_DEVICE int width() const { return Config::kGrid ? place.width() : width_in_register; }
    // The column of the tile that a slot holds.
    CUSCAN_DEVICE int column_of(int slot) const { return (column + slot / kPack * apart) * kPack + slot % kPack; }
    // The same, but a slot without a column has the last one. With `together`: the first column of so many slots, which
    // lie side by side.
    CUSCAN_DEVICE int existing_column_of(int slot, int together = 1) const {
        const int column = column_of(slot), last = width() - together;
        return column < last ? column : last;
    }
    CUSCAN_DEVICE bool exists(int slot) const { return column_of(slot) < width(); }
    // Whether a slot holds elements of its column, or of the last one.
    CUSCAN_DEVICE bool has_elements(int slot) const { return exists(kIsShort ? 0 : slot); }
    // The scan position of the first step.
    CUSCAN_DEVICE int64 first() const { return place.position + row * kLong; }
    // The row of the batch and the column in it, within the tile; the gaps between columns before it.
    struct Within {
        int outer, column, gaps;
    };
    CUSCAN_DEVICE Within within(int slot) const {
        return place_of(kIsShort ? existing_column_of(slot) : column_of(slot));
    }
    CUSCAN_DEVICE Within place_of(int at) const {
        const int outer = place.outer_of(at), column = at - outer * place.columns;
        return {outer, column, tile.geometry.gaps_before(column)};
    }

    CUSCAN_DEVICE void read(const typename Element::Initial& initial) {
        const auto& geometry = tile.geometry;
        items.clear(geometry, first(), initial);
        if (Config::kKept && (steps <= 0 || !exists(0))) return read_nothing();
        if constexpr (Config::kIndexed && Element::kCarriesIn && !Config::kReverse) {
            static_assert(kSlots == 1, "each column counts its own elements");
            if (exists(0)) items.index += Element::counted(tile.row(place, column_of(0)));
        }
        for_each_value<Config>([&](auto k, auto operand) {
            auto& vectors = items.raw.at(k).vector;
            read_each<decltype(k)::value>(
                operand, [&](int s, int i, const auto& pack) { put(vectors[s], i, pack); },
                [&] {
                    CUSCAN_UNROLL
                    for (auto& vector : vectors) vector = {};
                });
        });
        if constexpr (Element::kMasked)
            read_each<Numbers::kMask>(typename Config::Mask(), [&](int s, int i, const auto& pack) {
                each(pack, [&](int j, auto kept) {
                    if constexpr (Element::kReplaces) {
                        auto& item = items.raw.first.vector[s].item[i + j];
                        item = masked(item, kept, Element::neutral());
                    } else {
                        items.keep.set(s * kSlots + i + j, kept.bits != 0);
                    }
                });
            });
        read_segments();
        CUSCAN_UNROLL
        for (int slot = 0; slot < kSlots; ++slot) {
            CUSCAN_UNROLL
            for (int run = 0; run + 1 < kRuns; ++run) sums[slot][run] = of_run(slot, run);
        }
    }
    // The total of the steps of a slot.
    CUSCAN_DEVICE State total(int slot) const {
        Runs runs;
        CUSCAN_UNROLL
        for (int run = 0; run + 1 < kRuns; ++run) runs.push(run, sums[slot][run]);
        return runs.push(kRuns - 1, of_run(slot, kRuns - 1));
    }
    // Called before results are stored: finds where they lie, at once for all slots.
    CUSCAN_DEVICE void locate_results() {
        for_each_result<Config>([&](auto k, auto) {
            constexpr int kArray = Numbers::kResults + decltype(k)::value;
            if (lies_together(kArray))
                locate<kPack>(in_tile(kArray), places.at(k).of_pack);
            else
                places.at(k) = {};
        });
    }
    // Whether all steps of the thread have results, and those of a pack lie together in the tile.
    CUSCAN_DEVICE bool is_whole() const {
        bool together = true;
        for_each_result<Config>(
            [&](auto k, auto) { together &= lies_together(Numbers::kResults + decltype(k)::value); });
        return together && results >= kLong;
    }
    // After locate_results: stores the results of the slots from `slot` on that are side by side. `left`, if has_left,
    // is the total of the runs of the unit before the thread's; `before`, if has_before, precedes these. With kWhole,
    // is_whole() holds; then no branch keeps slots apart, and those without a column are computed, too.
    template <bool kWhole>
    CUSCAN_DEVICE void store(int slot, bool has_before, const State (&before)[kPack], bool has_left,
                             const State (&left)[kPack]) {
        Runs runs[kPack];
        CUSCAN_UNROLL
        for (int run = 0; run < kRuns; ++run) {
            Running<Config> running[kPack];
            CUSCAN_UNROLL
            for (int j = 0; j < kPack; ++j) {
                const State inner = runs[j].before(run, has_left, left[j]);
                running[j].present = has_before || has_left || run > 0;
                running[j].value = has_left || run > 0 ? join<Op>(has_before, before[j], inner) : before[j];
                if (run + 1 < kRuns) runs[j].push(run, sums[slot + j][run]);
            }
            store_run<kWhole>(slot, run, running);
        }
    }
    // If the thread has the last element of a slot's column, calls at_end(state): `left` combined with the thread's
    // elements up to that one.
    template <class AtEnd>
    CUSCAN_DEVICE void sum_to_end(int slot, bool has_left, const State& left, AtEnd at_end) const {
        const int64 last = tile.geometry.elements() - 1 - first();
        if (last < 0 || last >= kLong || !exists(slot)) return;
        Runs runs;
        CUSCAN_UNROLL
        for (int run = 0; run < kRuns; ++run) {
            State sum = runs.before(run, has_left, left);
            if (last >= run * kSteps && last < (run + 1) * kSteps) {
                CUSCAN_UNROLL
                for (int s = run * kSteps; s < (run + 1) * kSteps; ++s)
                    if (s <= last) sum = join<Op>(has_left || s > 0, sum, items.get(s, slot, s));
                at_end(sum);
            }
            if (run + 1 < kRuns) runs.push(run, sums[slot][run]);
        }
    }

private:
    // For threads without elements. A register without a value would be kept from tile to tile.
    CUSCAN_DEVICE void read_nothing() {
        for_each_value<Config>([&](auto k, auto) {
            CUSCAN_UNROLL
            for (auto& vector : items.raw.at(k).vector) vector = {};
        });
        CUSCAN_UNROLL
        for (auto& runs : sums) {
            CUSCAN_UNROLL
            for (State& sum : runs) sum = {};
        }
    }
    CUSCAN_DEVICE State of_run(int slot, int run) const {
        State total = items.get(run * kSteps, slot, run * kSteps);
        CUSCAN_UNROLL
        for (int s = run * kSteps + 1; s < (run + 1) * kSteps; ++s) total = Op::combine(total, items.get(s, slot, s));
        return total;
    }
    // Where an array's elements lie: the address of the share's first step in the tile's first column, and the strides
    // along each axis.
    template <class Stride>
    struct Strided {
        char* first;
        Stride step, column, outer, gap;

        CUSCAN_DEVICE char* of(const Within& at) const {
            return first + at.outer * outer + at.column * column + at.gaps * gap;
        }
        // Whether all elements are aligned to so many bytes, if columns are.
        CUSCAN_DEVICE bool is_aligned(int bytes) const {
            return (uint32(reinterpret_cast<uint64>(first)) | uint32(step) | uint32(outer)) % bytes == 0;
        }
    };
    CUSCAN_DEVICE Strided<int> in_tile(int array) const {
        const PanelArray& of_array = tile.geometry.tile[array];
        const auto& pitch = of_array.pitch;
        return {tile.shared + turn.pieces[array].first + row * int(of_array.thread_row), int(pitch[kStep]),
                int(pitch[kColumn]), int(pitch[kOuter]), tile.geometry.gap_in_tile(array)};
    }
    CUSCAN_DEVICE Strided<int64> in_memory(int array) const {
        const auto& geometry = tile.geometry;
        const int64 step = geometry.axis.stride[array];
        return {place.first.array[array] + row * kLong * step, step, geometry.column.stride[array],
                geometry.batch[0].stride[array], geometry.gap(array)};
    }
    struct Nothing {
        CUSCAN_DEVICE void operator()() const {}
    };
    // Calls visit(step) for the first `count` of kCount steps; if these are all, without a test for each, else after
    // clear().
    template <int kCount, class Visit, class Clear = Nothing>
    static CUSCAN_DEVICE void each_step(int count, Visit visit, Clear clear = {}) {
        if (count >= kCount) {
            CUSCAN_UNROLL
            for (int s = 0; s < kCount; ++s) visit(s);
        } else {
            clear();
            CUSCAN_UNROLL
            for (int s = 0; s < kCount; ++s)
                if (s < count) visit(s);
        }
    }
    // Calls take(step, slot, elements of that and of the slots beside it) for all existing elements of array kArray,
    // and perhaps for others, with any value. If not for all, it calls clear() before.
    template <int kArray, class Operand, class Take, class Clear = Nothing>
    CUSCAN_DEVICE void read_each(Operand, Take take, Clear clear = {}) const {
        using T = typename Operand::Type;
        if constexpr (kIsWord<T>) {
            read_words<T>(in_tile(kArray), take, clear);
        } else if constexpr (Operand::kAccess == Access::kBroadcast) {  // a number
            Vector<T, kPack> pack;
            CUSCAN_UNROLL
            for (int j = 0; j < kPack; ++j) pack.item[j] = *(const T*)place.first.array[kArray];
            CUSCAN_UNROLL
            for (int s = 0; s < kLong; ++s) {
                CUSCAN_UNROLL
                for (int i = 0; i < kSlots; i += kPack) take(s, i, pack);
            }
        } else if constexpr (Operand::kAccess == Access::kPerLine) {
            read_still<T>(in_memory(kArray), take);
        } else if (lies_together(kArray)) {
            read_tile<T, kPack>(in_tile(kArray), take, clear);
        } else if (tile.is_staged(kArray)) {
            read_tile<T, 1>(in_tile(kArray), take, clear);
        } else if (kArray >= Numbers::kMask && tile.geometry.axis.stride[kArray] == 0) {
            read_still<T>(in_memory(kArray), take);
        } else {
            read_memory<T>(in_memory(kArray), take, clear);
        }
    }
    // Where every kTogether-th slot's first step lies. Slots without a column have the place of the last ones.
    template <int kTogether>
    CUSCAN_DEVICE void locate(const Strided<int>& array, char* (&at)[kSlots / kTogether]) const {
        const auto existing = [&](int slot) { return existing_column_of(slot, kTogether); };
        if (!Config::kGaps && place.outers == 1) {
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots / kTogether; ++i) at[i] = array.first + existing(i * kTogether) * array.column;
        } else {
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots / kTogether; ++i) at[i] = array.of(place_of(existing(i * kTogether)));
        }
    }
    // From shared memory, step by step: kTogether slots lie side by side.
    template <class T, int kTogether, class Take, class Clear>
    CUSCAN_DEVICE void read_tile(const Strided<int>& from, Take take, Clear clear) const {
        constexpr int kParts = kPack / kTogether;
        char* at[kSlots / kTogether];
        locate<kTogether>(from, at);
        const auto read_step = [&](int s) {
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; i += kPack) {
                Vector<T, kPack> pack;
                auto* const parts = (Vector<T, kTogether>*)&pack;  // one, or one for each item
                CUSCAN_UNROLL
                for (int j = 0; j < kParts; ++j)
                    parts[j] = *(const Vector<T, kTogether>*)(at[i / kTogether + j] + s * from.step);
                take(s, i, pack);
            }
        };
        each_step<kLong>(exists(0) ? steps : 0, read_step, clear);
    }
    // Words, step by step.
    template <class T, class Take, class Clear>
    CUSCAN_DEVICE void read_words(const Strided<int>& from, Take take, Clear clear) const {
        if (from.is_aligned(4)) return read_tile<T, 1>(from, take, clear);
        char* at[kSlots];
        locate<1>(from, at);
        const auto read_step = [&](int s) {
            CUSCAN_UNROLL
            for (int i = 0; i < kSlots; ++i) take(s, i, Vector<T, 1>{word_at(at[i] + s * from.step)});
        };
        each_step<kLong>(exists(0) ? steps : 0, read_step, clear);
    }
    // Stores `count` steps of words, from `at` on, without the bytes that the last column lacks.
    template <class T>
    CUSCAN_DEVICE void store_words(char* at, int pitch, int slot, int count,
                                   const Vector<T, 1> (&steps)[kSteps]) const {
        const bool is_last = place.lacking > 0 && within(slot).column + 1 == place.columns;
        const int bytes = is_last ? 4 - place.lacking : 4;
        if (bytes == 4 && (uint32(reinterpret_cast<uint64>(at)) | uint32(pitch)) % 4 == 0) {
            each_step<kSteps>(count, [&](int s) {
                *(uint32*)at = steps[s].item[0].bits;
                at += pitch;
            });
        } else {
            each_step<kSteps>(count, [&](int s) {
                const uint32 bits = steps[s].item[0].bits;
                at[0] = char(bits);
                if (bytes > 1) at[1] = char(bits >> 8);
                if (bytes > 2) at[2] = char(bits >> 16);
                if (bytes > 3) at[3] = char(bits >> 24);
                at += pitch;
            });
        }
    }
    // From global memory, what does not vary along the steps: once for all of them. Arrays whose columns lie side by
    // side are aligned to packs (aligned_columns of panel_tile.py).
    template <class T, class Take>
    CUSCAN_DEVICE void read_still(const Strided<int64>& from, Take take) const {
        Vector<T, kPack> pack[kSlots / kPack] = {};
        const auto at = [&](int slot, int together) {
            const int column = kIsShort ? existing_column_of(slot, together) : column_of(slot);
            const bool in_row = !Config::kGaps && place.outers == 1;
            return in_row ? from.first + column * from.column : from.of(place_of(column));
        };
        CUSCAN_UNROLL
        for (int i = 0; i < kSlots; i += kPack) {
            if (steps <= 0 || !has_elements(i)) continue;
            if (from.column == sizeof(T)) {
                pack[i / kPack] = *(const Vector<T, kPack>*)at(i, kPack);
            } else {
                CUSCAN_UNROLL
                for (int j = 0; j < kPack; ++j) pack[i / kPack].item[j] = *(const T*)at(i + j, 1);
            }
        }
        CUSCAN_UNROLL
        for (int s = 0; s < kLong; ++s) CUSCAN_UNROLL
        for (int i = 0; i < kSlots; i += kPack) take(s, i, pack[i / kPack]);
    }
    // From global memory, pack by pack, so that a thread goes along what lies along the steps.
    template <class T, class Take, class Clear>
    CUSCAN_DEVICE void read_memory(const Strided<int64>& from, Take take, Clear clear) const {
        clear();
        CUSCAN_UNROLL
        for (int i = 0; i < kSlots; i += kPack) {
            if (!has_elements(i)) continue;
            const char* at[kPack];
            CUSCAN_UNROLL
            for (int j = 0; j < kPack; ++j) at[j] = from.of(within(i + j));
            each_step<kLong>(steps, [&](int s) {
                Vector<T, kPack> pack;
                CUSCAN_UNROLL
                for (int j = 0; j < kPack; ++j) pack.item[j] = *(const T*)(at[j] + s * from.step);
                take(s, i, pack);
            });
        }
    }
    template <class T, class Visit>
    static CUSCAN_DEVICE void each(const Vector<T, kPack>& pack, Visit visit) {
        CUSCAN_UNROLL
        for (int j = 0; j < kPack; ++j) visit(j, pack.item[j]);
    }
    // Sets items of a vector, from number i on; as words, if they fill some.
    template <class T>
    static CUSCAN_DEVICE void put(Vector<T, kSlots>& all, int i, const Vector<T, kPack>& pack) {
        constexpr int kBytes = sizeof(T) * kPack;
        if constexpr (sizeof(T) < 4 && kBytes % 4 == 0) {
            CUSCAN_UNROLL
            for (int w = 0; w < kBytes / 4; ++w) all.word[i * int(sizeof(T)) / 4 + w] = pack.word[w];
        } else {
            each(pack, [&](int j, const T& item) { all.item[i + j] = item; });
        }
    }
    CUSCAN_DEVICE void read_segments() {
        using Operand = typename Config::SegmentOperand;
        if constexpr (Config::kSegments == Segments::kReset)
            read_each<Numbers::kSegments>(Operand(), [&](int s, int i, const auto& pack) {
                each(pack, [&](int j, boolean reset) {
                    // The result behind the last element does not restart.
                    const bool restarts = reset.bits != 0 && (!Config::kIncludesInitial || s < steps);
                    items.set_start(s, i + j, restarts);
                });
            });
        if constexpr (Config::kSegments == Segments::kKeys) {
            using Key = typename Operand::Type;
            Key before[kSlots] = {};
            if (steps > 0) {
                CUSCAN_UNROLL
                for (int i = 0; i < kSlots; ++i)
                    if (exists(i)) before[i] = key_before(i);
            }
            read_each<Numbers::kSegments>(Operand(), [&](int s, int i, const auto& pack) {
                const bool is_first = first() + s == 0;  // a segment starts there only if another was carried in
                each(pack, [&](int j, const Key& key) {
                    const bool change =
                        arithmetic(key) != arithmetic(before[i + j]) && (!is_first || Element::kCarriesIn);
                    items.set_start(s, i + j, change && s < steps);
                    before[i + j] = key;
                });
            });
        }
        if constexpr (kBits) {
            static_assert(32 % kLong == 0, "the bits of a share lie in one word");
            const uint32* const words = (const uint32*)place.first.array[Numbers::kSegments];
            const int64 first = this->first();
            // Bits behind the share are never read.
            items.restarts.word[0] = steps > 0 ? words[first / 32] >> first % 32 : 0;
        }
    }
    // The key of the element before the share's first one.
    CUSCAN_DEVICE auto key_before(int slot) const {
        using Key = typename Config::SegmentOperand::Type;
        if (first() > 0) {
            const auto& geometry = tile.geometry;
            const Within at = within(slot);
            const char* const here =
                place.first.array[Numbers::kSegments] + at.outer * geometry.batch[0].stride[Numbers::kSegments] +
                at.column * geometry.column.stride[Numbers::kSegments] + at.gaps * geometry.gap(Numbers::kSegments);
            return *(const Key*)(here + (row * kLong - 1) * geometry.axis.stride[Numbers::kSegments]);
        }
        if constexpr (Element::kCarriesIn)
            return *(const Key*)tile.row(place, column_of(slot)).array[Numbers::kCarryOut - 1];
        else
            return Key{};
    }
    template <class Operand>
    struct Output {
        Vector<typename Operand::Type, kPack> step[kSteps];
    };
    // Whether the slots of a pack move as one.
    CUSCAN_DEVICE bool lies_together(int array) const {
        return kPack > 1 ? tile.geometry.tile[array].is_packed() : tile.is_staged(array);
    }
    template <bool kWhole>
    CUSCAN_DEVICE void store_run(int slot, int run, Running<Config> (&running)[kPack]) {
        const int begin = run * kSteps, count = results - begin;
        Pack<Output, typename Config::Results> output;
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) {
            typename Element::InnerState state[kPack];
            CUSCAN_UNROLL
            for (int j = 0; j < kPack; ++j) {
                state[j] = running[j].step(items.get(begin + s, slot + j, begin + s), items.segment_started);
                if constexpr (Config::Last::kAccess != Access::kNone)
                    if (s < count && first() + begin + s == tile.geometry.axis.size - 1)
                        store_last(tile.row(place, column_of(slot + j)), state[j]);
            }
            for_each_result<Config>([&](auto k, auto operand) {
                output.at(k).step[s] = convert_all<typename decltype(operand)::Type, kPack>(
                    [&](int j) { return Config::Op::lower(state[j], k); });
            });
        }
        for_each_result<Config>([&](auto k, auto operand) {
            using T = typename decltype(operand)::Type;
            constexpr int kArray = Numbers::kResults + decltype(k)::value;
            auto& steps = output.at(k).step;
            const int pitch = int(tile.geometry.tile[kArray].pitch[kStep]);
            char* at = places.at(k).of_pack[slot / kPack] + begin * pitch;
            if constexpr (kWhole) {
                // Otherwise the compiler would compute the results behind the test, one slot after the other.
                CUSCAN_UNROLL
                for (int s = 0; s < kSteps; ++s) target::settle(steps[s]);
                if (exists(slot))
                    each_step<kSteps>(kSteps, [&](int s) {
                        *(Vector<T, kPack>*)at = steps[s];
                        at += pitch;
                    });
            } else if constexpr (kIsWord<T>) {
                store_words<T>(at, pitch, slot, count, steps);
            } else if (lies_together(kArray)) {
                each_step<kSteps>(count, [&](int s) {
                    *(Vector<T, kPack>*)at = steps[s];
                    at += pitch;
                });
            } else if (tile.is_staged(kArray)) {
                store_single<T>(in_tile(kArray), slot, begin, count, steps);
            } else {
                store_single<T>(in_memory(kArray), slot, begin, count, steps);
            }
        });
    }
    template <class T, class Stride>
    CUSCAN_DEVICE void store_single(const Strided<Stride>& to, int slot, int begin, int count,
                                    const Vector<T, kPack> (&steps)[kSteps]) const {
        CUSCAN_UNROLL
        for (int j = 0; j < kPack; ++j) {
            char* at = to.of(within(slot + j)) + begin * to.step;
            each_step<kSteps>(count, [&](int s) {
                *(T*)at = steps[s].item[j];
                at += to.step;
            });
        }
    }
};

}  // namespace cuscan
