// A warp's part of a row on a contiguous axis: kVectors times kLanes vectors of kItems elements, in registers from load
// to store. Lane l of vector r holds the elements from (r * kLanes + l) * kItems on. Order of the scan: the items of a
// vector one by one, the lanes by WarpScan, the vectors from left to right.
#pragma once
#include "packed.cuh"
#include "stage.cuh"

namespace cuscan {

template <class Config, int kVectors, int kLanes>
struct WarpTile {
    static constexpr int kItems = Config::kItems;
    static constexpr int kStride = kLanes * kItems;  // elements from a thread's vector to its next
    static constexpr int kElements = kVectors * kStride;
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Op = typename Element::Op;
    using Place = Row<Config>;
    using Shape = Geometry<Config>;
    using Numbers = Arrays<Config>;
    using Words = Packed<Unsegmented<Config>>;
    // Whether vectors are scanned as words, if no segment starts in them in any lane. Where a warp has several rows,
    // one starts in nearly every vector.
    static constexpr bool kInWords = Words::kFits && (!Element::kSegmented || kLanes == target::kWarp);

    // Vectors that one warp_totals reduces together, if no results are stored: the largest power of two that divides
    // kVectors.
    static constexpr int kTogether = power_in(kVectors);

    Items<Config, kVectors, kItems> items;
    // State r of `before` is the prefix of this thread's vector r within the warp tile (undefined for vector 0 of lane
    // 0). If no results are stored, lane l instead holds the total over all lanes of vector r * kTogether + l %
    // kTogether.
    States<Op, State, Element::kStores ? kVectors : kVectors / kTogether> before;

    // Loads the values that are in no stage into registers. The warp tile begins at position `first` of the row, which
    // has `length` elements; no memory outside the array is accessed.
    template <class Source>
    CUSCAN_DEVICE void load_values(const Source& source, const Place& row, const Shape& geometry, int64 length,
                                   int64 first, int lane) {
        const Reader<Source> reader{source, row, geometry, length, first, lane};
        for_each_value<Config>([&](auto k, auto) {
            constexpr int kArray = decltype(k)::value;
            auto& vectors = items.raw.at(k).vector;
            if constexpr (!Source::template holds<kArray>() || Source::kKeeps)
                reader.template each<kArray>([&](int r, const auto& vector) {
                    vectors[r] = vector;
                    if constexpr (Source::template holds<kArray>())
                        clear_beyond(vectors[r], r, length - first - lane * kItems);
                });
        });
    }
    // Finds the segment starts that are given as bits; the bits of a vector lie in one word. Called before load_flags.
    CUSCAN_DEVICE void find_segments(const Place& row, const Shape& geometry, int64 first, int lane,
                                     const typename Element::Initial& initial) {
        const int64 position = first + lane * kItems;
        items.clear(geometry, position, initial);
        if constexpr (Config::kIndexed && Element::kCarriesIn && !Config::kReverse)
            items.index += Element::counted(row);
        if constexpr (Config::kSegments == Segments::kBits) {
            static_assert(32 % kItems == 0 && (kVectors == 1 || kStride % 32 == 0),
                          "a thread's vectors have the same place in their words");
            const uint32* const words = (const uint32*)row.array[Numbers::kSegments] + position / 32;
            const int left = clamp(geometry.elements() - position, kElements);
            uint32 word[kVectors];
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r) word[r] = r * kStride < left ? words[r * kStride / 32] : 0;
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r)
                items.restarts.set(r * kItems, word[r] >> position % 32 & ((1u << kItems) - 1));
        }
    }
    // Loads the mask, and finds the segment starts that are given as flags or keys.
    template <class Source>
    CUSCAN_DEVICE void load_flags(const Source& source, const Place& row, const Shape& geometry, int64 length,
                                  int64 first, int lane) {
        const Reader<Source> reader{source, row, geometry, length, first, lane};
        if constexpr (Element::kMasked)
            reader.template each<Numbers::kMask>([&](int r, const auto& mask) { items.keep.set_vector(r, mask); });
        if constexpr (Config::kSegments == Segments::kReset)
            reader.template each<Numbers::kSegments>([&](int r, auto reset) {
                // The result behind the last element does not restart, whatever was loaded there.
                if constexpr (Config::kIncludesInitial) {
                    CUSCAN_UNROLL
                    for (int i = 0; i < kItems; ++i)
                        if (first + lane * kItems + r * kStride + i >= length) reset.item[i] = {};
                }
                items.restarts.set_vector(r, reset);
            });
        if constexpr (Config::kSegments == Segments::kKeys) compare_keys(reader);
    }

    // Fills `before`. Returns the aggregate of the warp tile in every lane (only if kLanes is 32 or kVectors is 1).
    CUSCAN_DEVICE State scan(int lane) {
        return scan<kVectors>(lane, [](int) {});
    }
    // The same with values in a stage. They are not kept, because registers are scarce while the warp waits for the
    // tile's prefix; store() reads them again. If no results are stored, nothing waits: all values are read at once,
    // and then taken() is called.
    template <class Source, class Taken>
    CUSCAN_DEVICE State scan(const Source& source, const Place& row, const Shape& geometry, int64 first, int lane,
                             Taken taken) {
        const Reader<Source> reader{source, row, geometry, geometry.elements(), first, lane};
        const auto scan_some = [&](auto vectors) {
            constexpr int kMany = decltype(vectors)::value;
            if constexpr (Element::kStores) return scan<kMany>(lane, [&](int r) { read_staged(reader, r); });
            CUSCAN_UNROLL
            for (int r = 0; r < kMany; ++r) read_staged<kVectors>(reader, r);
            taken();
            return add_up<kMany>(lane);
        };
        return is_short<Source>(geometry, first) ? scan_some(Number<1>()) : scan_some(Number<kVectors>());
    }

    // For outgoing carries, before store(): if the warp tile contains the row's last element, the thread that holds it
    // calls at_end(the total of the warp tile up to that element).
    template <class Source, class AtEnd>
    CUSCAN_DEVICE void sum_to_end(const Source& source, const Place& row, const Shape& geometry, int64 first, int lane,
                                  AtEnd at_end) {
        if (!has_end(geometry, first)) return;
        const Reader<Source> reader{source, row, geometry, geometry.elements(), first, lane};
        const int last = int(geometry.elements() - 1 - first), vector = last / kStride;
        const auto run = one_vector(reader, vector);
        State item[kItems], sum;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) item[i] = run.get(0, i, vector * kStride + i);
        if constexpr (Element::kStores) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r)
                if (r == vector) sum = before.get(r);
        } else {
            sum = before_run(item, vector, lane);
        }
        const int own = last - vector * kStride - lane * kItems;
        if (own < 0 || own >= kItems) return;
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i)
            if (i <= own) sum = join<Op>(vector > 0 || lane > 0 || i > 0, sum, item[i]);
        at_end(sum);
    }
    // Whether the warp tile that begins at `first` contains the row's last element.
    static CUSCAN_DEVICE bool has_end(const Shape& geometry, int64 first) {
        const int64 last = geometry.elements() - 1 - first;
        return last >= 0 && last < kElements;
    }
    // Stores results. The row has `length` results; `prefix` is the state before the warp tile, if has_prefix. Staged
    // values are read a second time. Shifted results are written in aligned pieces.
    template <class Source>
    CUSCAN_DEVICE void store(const Source& source, const Place& row, const Shape& geometry, int64 length, int64 first,
                             int lane, bool has_prefix, const State& prefix) {
        if constexpr (!Element::kStores) return;
        const int64 left = length - first - lane * kItems;
        const Reader<Source> reader{source, row, geometry, geometry.elements(), first, lane};
        Stores stores;
        for_each_result<Config>([&](auto k, auto) {
            stores.at(k).begin(reader.template element<Numbers::kResults + decltype(k)::value>(0), lane);
        });
        // Stores vector r, of which `count` results exist.
        const auto store_vector = [&](int r, int count) {
            const bool inside = r > 0 || lane > 0;
            Running<Config> running;
            running.present = inside || has_prefix;
            running.value = inside ? join<Op>(has_prefix, prefix, before.get(r)) : prefix;
            store_vector_of(reader, r, count, left - r * kStride, running, stores);
        };
        // Addresses behind the results are computed here, or the compiler keeps them for all tiles.
        const auto finish = [&](int vectors, int count) {
            for_each_result<Config>([&](auto k, auto) {
                constexpr int kArray = Numbers::kResults + decltype(k)::value;
                stores.at(k).finish(reader.template element<kArray>(target::anew(vectors * kStride)), count);
            });
        };
        if (lies_inside(length, first)) {
            CUSCAN_UNROLL
            for (int r = 0; r < kVectors; ++r) {
                read_staged(reader, r);
                store_vector(r, kItems);
            }
            return finish(kVectors, 0);
        }
        // At the end of a row, vectors behind it are left out: the other warps of a block wait for this one. some(r) is
        // the number of results from vector r on; negative if the vector lies behind the last result.
        const auto some = [&](int r) { return clamp(left + kItems, kElements + kItems) - kItems - r * kStride; };
        const int exist = Source::kFill ? kVectors : count_vectors(length, first);
        CUSCAN_UNROLL
        for (int r = 0; r < kVectors; ++r) {
            if (r > 0 && r >= exist) break;
            read_staged<1>(reader, r);
            store_vector(r, Source::kFill && r + 1 < kVectors ? kItems : some(r));
        }
        finish(exist, some(exist));
    }
    // Whether the warp tile lies within the row, for all rows that the warp works on.
    static CUSCAN_DEVICE bool lies_inside(int64 length, int64 first) {
        const bool inside = length - first >= kElements;
        return kLanes == target::kWarp ? inside : !target::uniform(!inside);
    }

    template <class Operand>
    struct Output {
        using Type = typename Operand::Type;
        Vector<Type, kItems> vector;
        float32 last;

        // Takes results one by one; pairs of 16-bit floats are converted to a word together.
        template <class Number>
        CUSCAN_DEVICE void take(int i, Number result) {
            if constexpr (kIsHalf<Type> && kItems % 2 == 0) {
                if (i % 2 == 1) vector.word[i / 2] = Halves<Type>::word(last, convert<float32>(result));
                last = convert<float32>(result);
            } else {
                vector.item[i] = convert<Type>(result);
            }
        }
    };
    using Outputs = Pack<Output, typename Config::Results>;
    // Computes the results of vector r, and calls visit(item number, state) for each item. Packed elements have no use
    // for the calls and skip them.
    template <class Visit>
    CUSCAN_DEVICE void run(int r, Running<Config>& running, Outputs& output, Visit visit) const {
        if constexpr (kInWords)
            if (!segment_starts(r)) return Words::scan(packed(r), running.unsegmented(), output.at(Number<0>()).vector);
        if constexpr (!kInWords || Element::kSegmented) {
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) {
                const auto state = running.step(items.get(r, i, r * kStride + i), items.segment_started);
                for_each_result<Config>([&](auto k, auto) { output.at(k).take(i, Config::Op::lower(state, k)); });
                visit(i, state);
            }
        }
    }

private:
    // How many vectors of the warp tile have results, of a row of `length`; at least 1.
    static CUSCAN_DEVICE int count_vectors(int64 length, int64 first) {
        if (kVectors == 1) return 1;
        static_assert(kVectors == 1 || kLanes == target::kWarp, "where a warp has several rows, each is a vector");
        const int count = clamp(length - first, kElements);
        return target::uniform(count > kStride ? (count + kStride - 1) / kStride : 1);
    }
    // Zeroes what a stage holds beyond the row's end, which is `left` elements after this thread's first: user-defined
    // operators might not tolerate arbitrary values.
    template <class Vector>
    static CUSCAN_DEVICE void clear_beyond(Vector& vector, int r, int64 left) {
        if constexpr (Config::kClearsBeyond) {
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i)
                if (r * kStride + i >= left) vector.item[i] = {};
        }
    }
    // Vectors that a thread reads from a stage before it uses them; more would exceed the registers.
    static constexpr int kAtATime = 2;
    template <int kMany = kAtATime, class Reader>
    CUSCAN_DEVICE void read_staged(const Reader& reader, int r) {
        if (r > 0 && r % kMany == 0) target::sync_warp();
        for_each_value<Config>([&](auto k, auto) {
            constexpr int kArray = decltype(k)::value;
            if constexpr (Reader::ItsSource::template holds<kArray>()) {
                items.raw.at(k).vector[r] = reader.template staged<kArray>(r);
                clear_beyond(items.raw.at(k).vector[r], r, reader.length - reader.first - reader.lane * kItems);
            }
        });
    }
    // A copy of one vector whose number is known only at run time.
    template <class Reader>
    CUSCAN_DEVICE Items<Config, 1, kItems> one_vector(const Reader& reader, int vector) const {
        Items<Config, 1, kItems> one;
        for_each_value<Config>([&](auto k, auto) {
            constexpr int kArray = decltype(k)::value;
            auto& raw = one.raw.at(k).vector[0];
            if constexpr (Reader::ItsSource::template holds<kArray>()) {
                raw = reader.template staged<kArray>(vector);
                clear_beyond(raw, vector, reader.length - reader.first - reader.lane * kItems);
            } else {
                CUSCAN_UNROLL
                for (int r = 0; r < kVectors; ++r)
                    if (r == vector) raw = items.raw.at(k).vector[r];
            }
        });
        if constexpr (Element::kMasked) one.keep = items.keep.template from<kItems>(vector * kItems);
        if constexpr (Element::kSegmented) one.restarts = items.restarts.template from<kItems>(vector * kItems);
        one.index = items.index;
        one.segment_started = items.segment_started;
        return one;
    }

    // Whether a staged warp tile ends the row and has at most one vector per thread.
    template <class Source>
    static CUSCAN_DEVICE bool is_short(const Shape& geometry, int64 first) {
        return Source::template holds<0>() && target::uniform(geometry.axis.size - first <= kStride);
    }

    // Scans the first kMany vectors; read(r) reads vector r.
    template <int kMany, class Read>
    CUSCAN_DEVICE State scan(int lane, Read read) {
        if constexpr (!Element::kStores) return add_up<kMany>(lane);
        States<Op, State, kMany> vector;
        CUSCAN_UNROLL
        for (int r = 0; r < kMany; ++r) {
            read(r);
            vector.set(r, total(r));
        }
        State aggregate;
        CUSCAN_UNROLL
        for (int r = 0; r < kMany; ++r) {
            const WarpScan<Op, kLanes, State> lanes(vector.get(r), lane);
            const State exclusive = lanes.exclusive(), vector_total = lanes.total();
            if (r == 0) {
                before.set(r, exclusive);
                aggregate = vector_total;
            } else {
                before.set(r, lane == 0 ? aggregate : Op::combine(aggregate, exclusive));
                aggregate = Op::combine(aggregate, vector_total);
            }
        }
        return aggregate;
    }

    // Replaces the scan if no results are stored; values are in registers.
    template <int kMany>
    CUSCAN_DEVICE State add_up(int lane) {
        State vector[kMany];
        CUSCAN_UNROLL
        for (int r = 0; r < kMany; ++r) vector[r] = total(r);
        if constexpr (kLanes < target::kWarp) return vector[0];  // a whole row: nothing comes before it
        constexpr int kParts = kMany < kTogether ? kMany : kTogether;
        CUSCAN_UNROLL
        for (int r = 0; r < kMany; r += kParts) {
            State part[kParts];
            CUSCAN_UNROLL
            for (int j = 0; j < kParts; ++j) part[j] = vector[r + j];
            before.set(r / kParts, warp_totals<Op, State>(part, lane));
        }
        return vectors_before(kMany);
    }
    // The total of the first `count` vectors, in every lane.
    CUSCAN_DEVICE State vectors_before(int count) const {
        State all = target::broadcast(before.get(0), 0);
        CUSCAN_UNROLL
        for (int r = 1; r < kVectors; ++r)
            if (r < count) all = Op::combine(all, target::broadcast(before.get(r / kTogether), r % kTogether));
        return all;
    }
    // The prefix of this lane's run of vector `vector` within the warp tile (undefined for vector 0 of lane 0).
    CUSCAN_DEVICE State before_run(const State (&item)[kItems], int vector, int lane) const {
        State total = item[0];
        CUSCAN_UNROLL
        for (int i = 1; i < kItems; ++i) total = Op::combine(total, item[i]);
        const State lanes = WarpScan<Op, kLanes, State>(total, lane).exclusive();
        if (kVectors == 1 || vector == 0) return lanes;
        const State all = vectors_before(vector);
        return lane == 0 ? all : Op::combine(all, lanes);
    }

    CUSCAN_DEVICE auto packed(int r) const {
        return Words::words(items.raw.at(Number<0>()).vector[r], items.keep, r * kItems);
    }
    // Whether a segment starts in vector r of any lane.
    CUSCAN_DEVICE bool segment_starts(int r) const {
        if constexpr (Element::kSegmented)
            return target::uniform(items.restarts.template any<kItems>(r * kItems));
        else
            return false;
    }
    CUSCAN_DEVICE State total(int r) const {
        if constexpr (kInWords) {
            if (!segment_starts(r)) {
                const auto value = Words::total(packed(r));
                if constexpr (Element::kSegmented)
                    return Op::state(value, false);
                else
                    return value;
            }
        }
        if constexpr (!kInWords || Element::kSegmented) {
            State total = items.get(r, 0, r * kStride);
            CUSCAN_UNROLL
            for (int i = 1; i < kItems; ++i) total = Op::combine(total, items.get(r, i, r * kStride + i));
            return total;
        }
    }

    // Stores the vectors of a result, from the first to the last.
    template <class Operand, bool kPieced = is_shifted(Operand::kAccess), bool kStaged = Operand::kStaged>
    struct Store {
        using Type = typename Operand::Type;
        CUSCAN_DEVICE void begin(const Type*, int) {}
        CUSCAN_DEVICE void vector(const Type* item, int64 step, int count, const Vector<Type, kItems>& vector, bool) {
            store_vector<Operand::kAccess>(const_cast<Type*>(item), step, count, vector);
        }
        CUSCAN_DEVICE void finish(const Type*, int) const {}
    };
    template <class Operand>
    struct Store<Operand, true, false> {
        using Type = typename Operand::Type;
        static_assert(kLanes == target::kWarp, "a row has all lanes of a warp");
        PiecedRuns<Operand::kAccess, kItems, Type> runs;

        CUSCAN_DEVICE void begin(const Type* item, int lane) { runs.begin(item, lane); }
        CUSCAN_DEVICE void vector(const Type* item, int64, int count, const Vector<Type, kItems>& vector,
                                  bool is_first) {
            runs.store(const_cast<Type*>(item), vector, count, is_first);
        }
        CUSCAN_DEVICE void finish(const Type* item, int count) const { runs.finish(const_cast<Type*>(item), count); }
    };
    // Results that lie in shared memory.
    template <class Operand>
    struct Store<Operand, true, true> {
        using Type = typename Operand::Type;
        int lane;

        CUSCAN_DEVICE void begin(const Type*, int its_lane) { lane = its_lane; }
        CUSCAN_DEVICE void vector(const Type* item, int64, int count, const Vector<Type, kItems>& vector, bool) const {
            const TurnedRuns<Operand::kAccess, kItems, Type> runs(lane);
            runs.write(advance<Operand::kAccess>(const_cast<Type*>(item), 0, -runs.first), 0, count, vector);
        }
        CUSCAN_DEVICE void finish(const Type*, int) const {}
    };
    template <class Operand>
    using StoreOf = Store<Operand>;
    using Stores = Pack<StoreOf, typename Config::Results>;

    // Stores vector r: `count` of its results exist, and its first result is `left` results before the end of the row.
    template <class Reader>
    CUSCAN_DEVICE void store_vector_of(const Reader& reader, int r, int count, int64 left, Running<Config>& running,
                                       Stores& stores) {
        Outputs output;
        run(r, running, output, [&](int i, const auto& state) {
            if (left == i + 1) store_last(reader.row, state);
        });
        for_each_result<Config>([&](auto k, auto) {
            constexpr int kArray = Numbers::kResults + decltype(k)::value;
            stores.at(k).vector(reader.template element<kArray>(r * kStride), reader.geometry.axis.stride[kArray],
                                count, output.at(k).vector, r == 0);
        });
    }

    // Reads this thread's part of the arrays, vector by vector.
    template <class Source>
    struct Reader {
        using ItsSource = Source;
        const Source& source;
        const Place& row;
        const Shape& geometry;
        const int64 length, first;
        const int lane;

        // Calls take(r, this thread's vector r of array kArray) for every r.
        template <int kArray, class Take>
        CUSCAN_DEVICE void each(Take take) const {
            using Operand = OperandOfArray<Config, kArray>;
            using Value = typename Operand::Type;
            if constexpr (Source::template holds<kArray>()) {
                CUSCAN_UNROLL
                for (int r = 0; r < kVectors; ++r) take(r, staged<kArray>(r));
            } else {
                if constexpr (is_shifted(Operand::kAccess))
                    if (pieces_exist<kArray>()) return each_piece<kArray>(take);
                const int64 step = geometry.axis.stride[kArray];
                const Value* item = element<kArray>(0);
                const auto place_of = [&](int r) {
                    // Strided values: recompute each vector's address, or the compiler keeps all of them in registers.
                    constexpr bool kAnew = Operand::kAccess == Access::kStrided && kArray < Config::Values::kCount;
                    return advance<Operand::kAccess>(item, step, kAnew ? target::anew(r * kStride) : r * kStride);
                };
                constexpr auto load = load_vector<Operand::kAccess, kItems, Value>;
                if (length - first >= kElements) {  // the warp tile lies inside the row: no bounds checks
                    CUSCAN_UNROLL
                    for (int r = 0; r < kVectors; ++r) take(r, load(place_of(r), step, kItems));
                    return;
                }
                const int left = clamp(length - first - lane * kItems, kElements);
                if constexpr (Operand::kAccess == Access::kVector || Operand::kAccess == Access::kReversed) {
                    // Whole vectors first: in branches that also load single elements, each load would wait for the one
                    // before it.
                    Vector<Value, kItems> vector[kVectors];
                    CUSCAN_UNROLL
                    for (int r = 0; r < kVectors; ++r) {
                        vector[r] = {};
                        if (left - r * kStride >= kItems) vector[r] = load(place_of(r), step, kItems);
                    }
                    const int last = left / kStride, count = left - last * kStride;
                    if (0 < count && count < kItems) {  // the row ends in this vector
                        const auto part = load(place_of(last), step, count);
                        CUSCAN_UNROLL
                        for (int r = 0; r < kVectors; ++r)
                            if (r == last) vector[r] = part;
                    }
                    CUSCAN_UNROLL
                    for (int r = 0; r < kVectors; ++r) take(r, vector[r]);
                } else {
                    CUSCAN_UNROLL
                    for (int r = 0; r < kVectors; ++r) take(r, load(place_of(r), step, left - r * kStride));
                }
            }
        }
        // The same in aligned pieces, from the last vector to the first. All pieces that hold an element of the row
        // must lie within the array.
        template <int kArray, class Take>
        CUSCAN_DEVICE void each_piece(Take take) const {
            using Operand = OperandOfArray<Config, kArray>;
            using Run = Vector<typename Operand::Type, kItems>;
            PiecedRuns<Operand::kAccess, kItems, typename Operand::Type> runs;
            runs.begin(element<kArray>(0), lane);
            const auto load_all = [&](auto count) {
                Run piece[kVectors], next = {};
                CUSCAN_UNROLL
                for (int r = 0; r < kVectors; ++r) {
                    piece[r] = {};
                    if (count(r) + runs.beyond > 0) piece[r] = runs.load(element<kArray>(r * kStride));
                }
                if (lane == target::kWarp - 1 && runs.beyond > 0 && count(kVectors - 1) + runs.beyond > kItems)
                    next = runs.load(element<kArray>((kVectors - 1) * kStride + kItems));
                runs.begin_with(next);
                CUSCAN_UNROLL
                for (int r = kVectors - 1; r >= 0; --r) {
                    Run run = runs.run(piece[r]);
                    CUSCAN_UNROLL
                    for (int i = 0; i < kItems; ++i)
                        if (i >= count(r)) run.item[i] = {};
                    take(r, run);
                }
            };
            if (lies_inside(length, first)) {
                load_all([](int) { return kItems; });
            } else {
                const int left = clamp(length - first - lane * kItems + kItems, kElements + kItems) - kItems;
                load_all([&](int r) { return left - r * kStride; });
            }
        }
        template <int kArray>
        CUSCAN_DEVICE bool pieces_exist() const {
            using Operand = OperandOfArray<Config, kArray>;
            using Value = typename Operand::Type;
            const int count = clamp(length - first, kElements);
            const Value* item = element<kArray>(-lane * kItems);
            const int beyond = elements_beyond<Operand::kAccess, kItems>(item);
            // Elements from the warp tile's first to the end of the last piece.
            const int last = (count + beyond + kItems - 1) / kItems * kItems - beyond;
            const Value *from = advance<Operand::kAccess>(item, 0, -beyond),
                        *to = advance<Operand::kAccess>(item, 0, last - 1);
            const char* const origin = source.origin.array[kArray];
            const int64 a = (const char*)from - origin, b = (const char*)to - origin;
            const Span& span = geometry.span[kArray];
            const int64 lowest = is_reversed(Operand::kAccess) ? b : a, highest = is_reversed(Operand::kAccess) ? a : b;
            return target::uniform(count > 0 && lowest >= span.lowest && highest + int64(sizeof(Value)) <= span.end);
        }
        template <int kArray>
        CUSCAN_DEVICE auto staged(int r) const {
            using Operand = OperandOfArray<Config, kArray>;
            const auto* item = source.template element<kArray>(lane * kItems + r * kStride);
            if constexpr (is_shifted(Operand::kAccess))
                return read_shifted<Operand::kAccess, kItems>(item);
            else
                return read_shared<Operand::kAccess, Vector<typename Operand::Type, kItems>>(item);
        }
        // The element `along` elements after the thread's first, in global memory, or where results are staged.
        template <int kArray>
        CUSCAN_DEVICE const auto* element(int64 along) const {
            using Operand = OperandOfArray<Config, kArray>;
            constexpr bool kIsResult = kArray >= Numbers::kResults && kArray < Numbers::kMask;
            if constexpr (kIsResult && Source::template holds<kArray>())
                return source.template result<kArray>(int(first) + lane * kItems + int(along));
            else
                return advance<Operand::kAccess>((const typename Operand::Type*)row.array[kArray],
                                                 geometry.axis.stride[kArray], first + lane * kItems + along);
        }
    };

    template <class Source>
    CUSCAN_DEVICE void compare_keys(const Reader<Source>& reader) {
        using Key = typename Config::SegmentOperand::Type;
        constexpr int kArray = Numbers::kSegments;
        const int64 origin = reader.first + reader.lane * kItems;
        const int left = clamp(reader.length - origin, kElements);  // elements from the thread's first on, capped
        reader.template each<kArray>([&](int r, const auto& vector) {
            const bool has_earlier = r > 0 || reader.first + target::anew(reader.lane) > 0;
            Key before = vector.item[0];
            if constexpr (Element::kCarriesIn)
                if (!has_earlier) before = *(const Key*)reader.row.array[Numbers::kCarryOut - 1];
            if (has_earlier && r * kStride < left) {
                if constexpr (Source::template holds<kArray>()) {
                    const bool starts = r == 0 && reader.source.start == 0 && reader.lane == 0;
                    before = starts ? *reader.template element<kArray>(-1)
                                    : *reader.source.template element<kArray>(reader.lane * kItems + r * kStride - 1);
                } else {
                    before = *reader.template element<kArray>(r * kStride - 1);
                }
            }
            CUSCAN_UNROLL
            for (int i = 0; i < kItems; ++i) {
                const bool change = arithmetic(vector.item[i]) != arithmetic(before);
                items.restarts.set(r * kItems + i,
                                   change && (Element::kCarriesIn || has_earlier || i > 0) && r * kStride + i < left);
                before = vector.item[i];
            }
        });
    }
};

}  // namespace cuscan
