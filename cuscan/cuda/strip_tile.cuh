// A tile of columns in shared memory, and what each warp of a block does with it. A tile has kRows rows of kColumns
// columns: a piece of a wider array, with its rows in scan order (tile_rows.cuh); or, with kFlat, whole rows, laid out
// as in global memory (flat_tile.cuh). Some arrays may be contiguous along the axis (kAlong) while others lie across
// it: these are transposed on their way through the tile. Masks and segment starts lie beside the values
// (staged_flags.cuh). A chunk is kSteps rows. A run is kDepth chunks, a power of two; a thread takes a run of kAcross
// columns at a time. A store warp has some runs, or some columns of one run or of all; no other store warp reads,
// overwrites or stores them.
#pragma once
#include "flat_tile.cuh"
#include "staged_flags.cuh"
#include "tile_rows.cuh"

namespace cuscan {

template <class Config>
struct StripLayout {
    static constexpr int kColumns = Config::kColumns, kRows = Config::kRows, kSteps = Config::kSteps;
    static constexpr int kOwn = kColumns - Config::kHalo;  // the others belong to the next strip (tile_rows.cuh)
    static constexpr int kDepth = Config::kDepth, kRunRows = kSteps * kDepth;
    static constexpr int kRuns = kRows / kRunRows, kElements = kRows * kColumns;
    static constexpr int kAcross = Config::kAcross, kWarps = Config::kWarps;
    static constexpr int kWarpsAbreast = Config::kWarpsAbreast;
    static constexpr int kWarpRuns = kRuns * kWarpsAbreast / kWarps;
    static constexpr int kWarpColumns = kColumns / kWarpsAbreast;
    static constexpr int kUnitRuns = target::kWarp / kDepth;
    static constexpr int kUnits = kRuns > kUnitRuns ? kRuns / kUnitRuns : 1;  // units of a tile
    static constexpr int kParts = kRuns < kUnitRuns ? kUnitRuns / kRuns : 1;  // tiles of a unit
    static constexpr int kPartRuns = kRuns / kUnits;                          // runs of a unit in one tile
    // Units of a batch, where blocks share strips; one, where they do not, and a tile may be a part of it.
    static constexpr int kBatchUnits = Config::kBatch < kParts ? 1 : Config::kBatch * kUnits / kParts;
    // Columns of a scan warp, with a lane for each unit; the last warp may have fewer.
    static constexpr int kSlice = (kColumns + Config::kScanWarps - 1) / Config::kScanWarps;
    static_assert(kSlice <= target::kWarp && (kUnits == 1 || kSlice == kColumns), "");
    static_assert(kWarpsAbreast * kRuns == kWarpRuns * kWarps && kWarpColumns * kWarpsAbreast == kColumns, "");
    static_assert(kWarpColumns % kAcross == 0, "");
    static_assert(!Config::kFlat || kWarpsAbreast == 1, "store_together and store take whole rows");

    using State = typename Elements<Config>::State;
    // A state for each run and column. Units lie one row further apart than they need to, so that lanes that walk
    // through several units do not meet in a bank.
    struct Exchange {
        State state[(kRuns + kUnits - 1) * kColumns];
        CUSCAN_DEVICE State& at(int run, int column) { return state[(run + run / kUnitRuns) * kColumns + column]; }
    };
    // A state for each unit and column, in the order of the scan warps' lanes.
    struct OfUnits {
        State state[target::kWarp * Config::kScanWarps];
        CUSCAN_DEVICE State& at(int unit, int column) {
            return state[column / kSlice * target::kWarp + unit * kSlice + column % kSlice];
        }
    };
};

template <class T, int kElements>
struct StripBuffer {
    alignas(16) T item[kElements];
};
template <class Operand>
struct NoBuffer {};
// Values that do not vary along the axis are in no stage.
template <class Operand>
constexpr bool kStandsStill = Operand::kAccess == Access::kBroadcast;
template <class List>
constexpr int kFirstStaged = 0;  // the number of the first of these values that is in stages
template <class First, class... Rest>
constexpr int kFirstStaged<Operands<First, Rest...>> = kStandsStill<First> ? 1 + kFirstStaged<Operands<Rest...>> : 0;
template <class Operand>
constexpr bool kIsAlong = Operand::kAccess == Access::kAlong;
template <class List>
constexpr bool kAreAcross = true;  // none of these operands is contiguous along the axis
template <class First, class... Rest>
constexpr bool kAreAcross<Operands<First, Rest...>> = !kIsAlong<First> && kAreAcross<Operands<Rest...>>;

// One thread's view of a tile.
template <class Config>
struct StripTile : Elements<Config> {
    using Base = Elements<Config>;
    using Layout = StripLayout<Config>;
    using Exchange = typename Layout::Exchange;
    using OfUnits = typename Layout::OfUnits;
    using Numbers = Arrays<Config>;
    using typename Base::Op;
    using typename Base::State;
    static constexpr int kColumns = Layout::kColumns, kRows = Layout::kRows, kSteps = Layout::kSteps;
    static constexpr int kAcross = Layout::kAcross, kDepth = Layout::kDepth, kRunRows = Layout::kRunRows;
    template <class T, int kWide = kAcross>
    using Flat = FlatTile<T, kColumns, kWide, kRows, kRunRows, Config::kBack>;
    template <class T>
    using OfArray = TileRows<T, kColumns, Config::kHalo, kRows, Config::kAligned>;
    // An array that is contiguous along the axis has a row of the tile for each column. Results have a tile for the
    // rows of each store warp: where a tile lies depends on addresses, and no other warp may write to it.
    template <class T, int kSteps = kRows>
    using Turned = TileRows<T, kSteps, 0, kColumns, Config::kAlignedAlong, 16>;
    static constexpr int kTaken = Layout::kWarpRuns * kRunRows;  // rows of a store warp
    // Whether these arrays run against the scan: tiles have them in the order of memory.
    static constexpr bool kAlongBack = Config::kAlongBack;
    // Whether threads access rows as in a flat tile, one behind the other (TileRows: also items of 16 bytes, always).
    static constexpr bool kTight = Config::kFlat || Config::kAligned == 16;
    static constexpr int kPiece = 16;
    // Whether a flat tile begins at any address. Then it lies as far beyond a multiple of 16 bytes as in memory.
    static constexpr bool kAnywhere = Config::kFlat && Config::kAligned == 1;
    template <class Operand, int kSteps>
    static constexpr int bytes() {
        using T = typename Operand::Type;
        if (kIsAlong<Operand>) return kRows / kSteps * Turned<T, kSteps>::kBytes;
        constexpr int kBeyond = !kAnywhere ? 0 : kSteps == kRows ? kPiece : Config::kWarps * kPiece;
        return kTight ? Layout::kElements * int(sizeof(T)) + kBeyond : OfArray<T>::kBytes;
    }
    template <class Operand, int kSteps>
    using BufferOf =
        StripBuffer<typename Operand::Type, bytes<Operand, kSteps>() / int(sizeof(typename Operand::Type))>;
    template <class Operand>
    struct Buffer : Choose<kStandsStill<Operand>, NoBuffer<Operand>, BufferOf<Operand, kRows>>::Type {};
    template <class Operand>
    struct ResultBuffer : BufferOf<Operand, kTaken> {};
    template <int kArray>
    using Flags = StagedFlags<Config, kArray, kRows, kColumns, Config::kFlat, Config::kBack>;
    using Mask = Flags<Numbers::kMask>;
    using Starts = Flags<Numbers::kSegments>;
    // The values of a tile, its mask and its segment starts.
    struct Values : Pack<Buffer, typename Config::Values>, Mask::Buffer, Starts::Buffer {};
    using Results = Pack<ResultBuffer, typename Config::Results>;
    static constexpr int kReplaced = kFirstStaged<typename Config::Values>;  // the value that results replace in place
    template <int kWide>
    using Columns = Items<Config, kRunRows, kWide, Base::kReplaces, Starts::kOfRows>;
    using Share = Columns<kAcross>;
    using Pairs = PairedFold<Op, kDepth == 1 ? 0 : kDepth == 2 ? 1 : 2, State>;  // fold of the chunks of a run

    // With kHolds, a thread holds its share of a tile in registers until what precedes the tile is there.
    static constexpr bool kHolds = Config::kHolds;
    static constexpr int kAbreast = Layout::kWarpColumns / kAcross,
                         kPieces = Layout::kWarpRuns * kAbreast;  // pieces of a warp
    struct Held {
        Share share[kHolds ? (kPieces + target::kWarp - 1) / target::kWarp : 1];
    };

    const Geometry<Config>& geometry;
    const Row<Config>& origin;
    const typename Base::Initial& initial;
    Row<Config> at;   // addresses of row 0, column 0
    int64 position;   // position of row 0 along the axis
    int rows, width;  // rows and columns that have results
    Edges edges;

    // The number of rows that have values: where the initial value is itself a result, the last result has no value.
    CUSCAN_DEVICE int value_rows() const {
        return Config::kIncludesInitial ? clamp(geometry.elements() - position, kRows) : rows;
    }
    // The number of columns whose last results no other tile has.
    CUSCAN_DEVICE int own() const { return width < Layout::kOwn ? width : Layout::kOwn; }
    // Whether each of some arrays is one stretch of memory in every tile, so that it moves in bulk.
    template <class List>
    static constexpr bool kLieTogether =
        kAreAcross<List> && Config::kFlat && (Config::kAligned == 16 || kAnywhere) && target::kHasBulkCopy;
    // Whether all values are, and the pieces at the ends of the tile's stretches lie within the arrays.
    CUSCAN_DEVICE bool values_lie_together() const {
        const int rows = value_rows();
        bool together = kLieTogether<typename Config::Values> && rows > 0;
        if (together && (kAnywhere || rows < kRows))  // otherwise the stretches are whole pieces
            for_each_value<Config>([&](auto k, auto operand) {
                constexpr int kArray = decltype(k)::value;
                if constexpr (!kStandsStill<decltype(operand)>) {
                    const Stretch stretch = this->stretch<typename decltype(operand)::Type>(kArray, rows);
                    const char *const begin = origin.array[kArray], *const first = stretch.memory + stretch.place();
                    const Span& span = geometry.span[kArray];
                    together = together && first >= begin + span.lowest && first + stretch.bytes() <= begin + span.end;
                }
            });
        return together;
    }
    CUSCAN_DEVICE Mask mask() const { return flags<Numbers::kMask>(); }
    CUSCAN_DEVICE Starts starts() const { return flags<Numbers::kSegments>(); }
    // Called by kThreads threads: starts to load the tile. Then they arrive at `arrived`, once they have loaded.
    template <int kThreads>
    CUSCAN_DEVICE void load(Values& values, target::Barrier& arrived, int thread) const {
        const bool together = values_lie_together();
        if (thread == 0) {
            uint32 bytes = mask().bytes_in_bulk() + starts().bytes_in_bulk();
            for_each_value<Config>([&](auto k, auto operand) {
                using Operand = decltype(operand);
                if (together && !kStandsStill<Operand>)
                    bytes += stretch<typename Operand::Type>(decltype(k)::value, value_rows()).bytes();
            });
            if (bytes > 0) {
                target::fence_before_copies();
                arrived.expect(bytes);
                if (together) load_in_bulk(values, arrived);
                mask().load_in_bulk(values, arrived);
                starts().load_in_bulk(values, arrived);
            } else {
                arrived.arrive();
            }
        }
        if (!together) load_pieces<kThreads>(values, arrived, thread);
        mask().template load_rest<kThreads>(values, arrived, thread);
        starts().template load_rest<kThreads>(values, arrived, thread);
    }
    // Computes the totals of the warp's runs, column by column.
    CUSCAN_DEVICE void fold(const Values& values, Exchange& totals, int warp) const {
        each_piece(warp, [&](int run, int column, int) {
            Share share;
            read(values, run, column, share);
            CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) {
                Pairs pairs;
                State total;
                CUSCAN_UNROLL
                for (int d = 0; d < kDepth; ++d) total = pairs.push(d, of_chunk(share, d, c));
                totals.at(run, column + c) = total;
            }
        });
    }
    // Called before finish, once the values are there: reads what the thread holds in registers.
    CUSCAN_DEVICE void take(const Values& values, Held& held, int warp) const {
        each_held(warp, [&](int run, int column, int i) { read(values, run, column, held.share[i]); });
    }
    // Called before finish, in a tile that contains the last elements of its columns. Calls at_end(column, whether
    // anything precedes the unit of the last element, total of that unit up to the last element) for each column whose
    // last element lies in the warp's runs.
    template <class AtEnd>
    CUSCAN_DEVICE void sum_to_end(const Values& values, Exchange& before_runs, int warp, AtEnd at_end) const {
        constexpr int kUnitRows = Layout::kUnitRuns * kRunRows;
        each_piece(warp, [&](int run, int column, int) {
            const int64 row = position + run * kRunRows, last = geometry.elements() - 1 - row;
            if (last < 0 || last >= kRunRows) return;
            const bool has_before = row % kUnitRows != 0;  // in its unit
            CUSCAN_NO_UNROLL
            for (int c = column; c < column + kAcross && c < own(); ++c) {  // one at a time, to save registers
                Columns<1> share;
                read(values, run, c, share);
                Pairs pairs;
                State sum;
                CUSCAN_UNROLL
                for (int d = 0; d < kDepth; ++d) {
                    if (d * kSteps > last) break;
                    sum = pairs.before(d, has_before, before_runs.at(run, c));
                    CUSCAN_UNROLL
                    for (int s = d * kSteps; s < (d + 1) * kSteps; ++s)
                        if (s <= last) sum = join<Op>(has_before || s > 0, sum, share.get(s, 0, s));
                    if (d + 1 < kDepth) pairs.push(d, of_chunk(share, d, 0));
                }
                at_end(c, Config::kHasInitial || row >= kUnitRows, sum);
            }
        });
    }
    // Computes the results of the warp's runs, from what precedes each run in its unit and what precedes the units.
    // Results may take the place of a value.
    CUSCAN_DEVICE void finish(const Values& values, const Held& held, Results& results, Exchange& before_runs,
                              OfUnits& prefixes, int warp) const {
        constexpr int kUnitRows = Layout::kUnitRuns * kRunRows;
        const auto finish_piece = [&](int run, int column, int i) {
            Share share;
            if constexpr (kHolds)
                share = held.share[i];
            else
                read(values, run, column, share);
            const int64 row = position + run * kRunRows;
            const bool has_prefix = Config::kHasInitial || row >= kUnitRows, is_first = row % kUnitRows == 0;
            Pack<Piece, typename Config::Results> piece;
            CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) {
                const State prefix = prefixes.at(run / Layout::kUnitRuns, column + c);
                const State before_run = before_runs.at(run, column + c);
                Pairs pairs;
                CUSCAN_UNROLL
                for (int d = 0; d < kDepth; ++d) {
                    Running<Config> running;
                    running.present = has_prefix || !is_first || d > 0;
                    running.value = prefix;
                    if (!is_first || d > 0)
                        running.value = join<Op>(has_prefix, prefix, pairs.before(d, !is_first, before_run));
                    if (d + 1 < kDepth) pairs.push(d, of_chunk(share, d, c));
                    CUSCAN_UNROLL
                    for (int s = d * kSteps; s < (d + 1) * kSteps; ++s) {
                        const auto state = running.step(share.get(s, c, s), share.segment_started);
                        for_each_result<Config>([&](auto k, auto operand) {
                            piece.at(k).item[s][c] =
                                convert<typename decltype(operand)::Type>(Config::Op::lower(state, k));
                        });
                        if constexpr (Config::Last::kAccess != Access::kNone) {
                            if (position + run * kRunRows + s + 1 == geometry.axis.size && column + c < own()) {
                                Row<Config> here = at;
                                here.advance(geometry.column, column + c);
                                store_last(here, state);
                            }
                        }
                    }
                }
            }
            for_each_result<Config>([&](auto k, auto operand) {
                using T = typename decltype(operand)::Type;
                if constexpr (kIsAlong<decltype(operand)>)
                    write_turned<T>(Numbers::kResults + decltype(k)::value, results.at(k).item, run, column,
                                    piece.at(k).item);
                else if constexpr (kAnywhere)
                    Flat<T>::write(flat_results<T>(Numbers::kResults + decltype(k)::value, results.at(k), warp), run,
                                   column, piece.at(k).item);
                else if constexpr (kTight)
                    Flat<T>::write(results.at(k).item, run, column, piece.at(k).item);
                else
                    placed<T>(Numbers::kResults + decltype(k)::value)
                        .write((char*)results.at(k).item, run * kRunRows, column, piece.at(k).item);
            });
        };
        if constexpr (kHolds)
            each_held(warp, finish_piece);
        else
            each_piece(warp, finish_piece);
    }
    // Called by a warp, where results lie together, after its lanes have written them, called fence_before_copies and
    // synchronised. Whole pieces move in bulk, items before and behind them one by one.
    CUSCAN_DEVICE void store_together(Results& results, int warp, int lane) const {
        for_each_result<Config>([&](auto k, auto operand) {
            using T = typename decltype(operand)::Type;
            constexpr int kArray = Numbers::kResults + decltype(k)::value;
            constexpr int kSize = int(sizeof(T));
            const int first = first_row(warp);
            const auto store_rows = [&](int taken) {
                const int begin = (Config::kBack ? kRows - first - taken : first) * kColumns, count = taken * kColumns;
                T* const to = Flat<T>::lowest((T*)at.array[kArray]) + begin;
                const T* const from = flat_results<T>(kArray, results.at(k), warp) + begin;
                constexpr bool kOnPieces = !(kAnywhere || Config::kBack);
                const int before = kOnPieces ? 0 : int(-uint32(reinterpret_cast<uint64>(to)) % kPiece) / kSize;
                const int head = before < count ? before : count, inner = (count - head) * kSize / kPiece * kPiece;
                const int tail = head + inner / kSize;
                if (lane == 0 && inner > 0) target::store_in_bulk(to + head, from + head, inner);
                for (int i = lane; i < count - (tail - head); i += target::kWarp) {
                    const int item = i < head ? i : i - head + tail;
                    to[item] = from[item];
                }
            };
            if (rows == kRows)
                store_rows(kTaken);
            else
                store_rows(clamp(rows - first, kTaken));
        });
        if (lane == 0) target::wait_for_bulk_stores();
    }
    CUSCAN_DEVICE void store(Results& results, int warp, int lane) const {
        for_each_result<Config>([&](auto k, auto operand) {
            using T = typename decltype(operand)::Type;
            constexpr int kArray = Numbers::kResults + decltype(k)::value;
            const int first = first_row(warp);
            if constexpr (kIsAlong<decltype(operand)>) {
                store_turned<T>(kArray, results.at(k).item, first, first_column(warp), lane);
            } else if constexpr (Config::kFlat) {
                const auto store_from = [&](T* tile) {
                    each_vector<T, target::kWarp, kTaken, Layout::kWarpColumns>(
                        kArray, rows, Config::kBack ? kRows - first - kTaken : first, lane, tile,
                        [&](auto* shared, auto* global) { *global = *shared; },
                        [&](T& shared, T& global) { global = shared; });
                };
                if constexpr (kAnywhere)
                    store_from(flat_results<T>(kArray, results.at(k), warp));
                else
                    store_from(results.at(k).item);
            } else {
                of_array<T>(kArray).template store<Layout::kWarpColumns>(
                    (const char*)results.at(k).item, placed<T>(kArray), first,
                    rows - first < kTaken ? rows - first : kTaken, first_column(warp), width, edges, lane);
            }
        });
    }

private:
    template <class Operand>
    struct Piece {
        typename Operand::Type item[kRunRows][kAcross];
    };

    // The stretch of memory that rows of a flat tile of an array are.
    struct Stretch {
        const char* memory;  // the piece in which a whole tile would begin; it lies at the beginning of the buffer
        int begin, end;      // of the rows, in bytes from there
        CUSCAN_DEVICE int place() const { return begin / kPiece * kPiece; }
        CUSCAN_DEVICE uint32 bytes() const { return (end + kPiece - 1) / kPiece * kPiece - place(); }  // of its pieces
    };
    template <class T>
    CUSCAN_DEVICE Stretch stretch(int array, int rows) const {
        const int beyond = this->beyond<T>(array), begin = beyond + Flat<T>::begin(rows) * int(sizeof(T));
        const char* const lowest = (const char*)Flat<T>::lowest((T*)at.array[array]);
        return {lowest - beyond, begin, begin + rows * kColumns * int(sizeof(T))};
    }
    // How far a flat tile of an array begins beyond a multiple of 16 bytes.
    template <class T>
    CUSCAN_DEVICE uint32 beyond(int array) const {
        return kAnywhere ? uint32(reinterpret_cast<uint64>(Flat<T>::lowest((T*)at.array[array]))) % kPiece : 0;
    }
    // The lowest item of a flat tile of an array in its buffer.
    template <class T, class Buffer>
    CUSCAN_DEVICE T* flat(int array, Buffer& buffer) const {
        return (T*)((char*)buffer.item + beyond<T>(array));
    }
    // The same for results of a store warp. In a buffer of their own, parts of warps are a piece apart: tiles of other
    // strips lie elsewhere in the buffer, and no other warp may write to a part.
    template <class T, class Buffer>
    CUSCAN_DEVICE T* flat_results(int array, Buffer& buffer, int warp) const {
        const int part = Config::kBack ? Config::kWarps - 1 - warp : warp;
        return (T*)((char*)flat<T>(array, buffer) + (kAnywhere && !Config::kInPlace ? part * kPiece : 0));
    }

    template <class T>
    CUSCAN_DEVICE OfArray<T> of_array(int array) const {
        return {at.array[array], geometry.axis.stride[array]};
    }
    // kSteps rows of an array that is contiguous along the axis, from row `first` on.
    template <class T, int kSteps = kRows>
    CUSCAN_DEVICE Turned<T, kSteps> turned(int array, int first = 0) const {
        const int lowest = kAlongBack ? -(first + kSteps - 1) : first;  // counted along memory
        return {at.array[array] + lowest * int(sizeof(T)), geometry.column.stride[array]};
    }
    // Where a row lies among kSteps of them, or the first one of `rows` rows.
    template <int kSteps>
    static CUSCAN_DEVICE int place(int row, int rows = 1) {
        return kAlongBack ? kSteps - row - rows : row;
    }
    // The part of a store warp, whose first row is `first`.
    template <class T>
    static CUSCAN_DEVICE char* of_part(T* results, int first) {
        return (char*)results + first / kTaken * Turned<T, kTaken>::kBytes;
    }
    template <class T, int kSteps, int kWide>
    CUSCAN_DEVICE void read_turned(int array, const void* tile, int row, int column, T (&item)[kSteps][kWide]) const {
        T along[kWide][kSteps];
        turned<T>(array).read((const char*)tile, column, place<kRows>(row, kSteps), along);
        CUSCAN_UNROLL
        for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
        for (int c = 0; c < kWide; ++c) item[s][c] = along[c][place<kSteps>(s)];
    }
    template <class T, int kWide>
    CUSCAN_DEVICE void write_turned(int array, T* results, int run, int column,
                                    const T (&item)[kRunRows][kWide]) const {
        T along[kWide][kRunRows];
        CUSCAN_UNROLL
        for (int s = 0; s < kRunRows; ++s) CUSCAN_UNROLL
        for (int c = 0; c < kWide; ++c) along[c][place<kRunRows>(s)] = item[s][c];
        const int row = run * kRunRows, first = row / kTaken * kTaken;
        turned<T, kTaken>(array, first)
            .write(of_part<T>(results, first), column, place<kTaken>(row - first, kRunRows), along);
    }
    // Loads an array that is contiguous along the axis.
    template <class T, int kThreads>
    CUSCAN_DEVICE void load_turned(int array, char* tile, target::Barrier& arrived, int thread) const {
        const Turned<T> rows_of_tile = turned<T>(array);
        const int rows = value_rows();
        if (kAlongBack && rows < kRows) {
            each_item<kRows, kThreads>(rows, width, thread, [&](int row, int column) {
                *(T*)(tile + rows_of_tile.place(column, row)) = *rows_of_tile.item(column, row);
            });
            return target::fence();  // arrive_loaded waits for copies only
        }
        const char* const begin = origin.array[array];
        const Span& span = geometry.span[array];
        rows_of_tile.template load<kThreads>(tile, arrived, thread, width, rows, begin + span.lowest, begin + span.end);
    }
    // Stores a store warp's part of results that are contiguous along the axis.
    template <class T>
    CUSCAN_DEVICE void store_turned(int array, T* results, int first, int first_column, int lane) const {
        const int rows = clamp(this->rows - first, kTaken), columns = clamp(width - first_column, Layout::kWarpColumns);
        const auto part = turned<T, kTaken>(array, first);
        const char* const tile = of_part<T>(results, first);
        if (kAlongBack && rows < kTaken)
            each_item<kTaken, target::kWarp>(rows, columns, lane, [&](int row, int column) {
                *part.item(first_column + column, row) = *(const T*)(tile + part.place(first_column + column, row));
            });
        else
            part.template store<kTaken>(tile, part, first_column, columns, 0, rows, {true, false}, lane);
    }
    // Calls visit(place of a row among kSteps, column) for each item of `rows` rows that this thread handles.
    template <int kSteps, int kThreads, class Visit>
    static CUSCAN_DEVICE void each_item(int rows, int columns, int thread, Visit visit) {
        CUSCAN_NO_UNROLL
        for (int i = thread; i < rows * columns; i += kThreads) visit(place<kSteps>(i % rows), i / rows);
    }
    // Where results of array `array` lie in the tile. If they leave by units, that is in place of a value, or at
    // constant distances.
    template <class T>
    CUSCAN_DEVICE OfArray<T> placed(int array) const {
        if constexpr (!OfArray<T>::kByUnits) return of_array<T>(array);
        return Config::kInPlace ? of_array<T>(kReplaced) : OfArray<T>{nullptr, OfArray<T>::kLeast};
    }
    template <int kArray>
    CUSCAN_DEVICE Flags<kArray> flags() const {
        return Flags<kArray>::of(geometry, origin, at, position, value_rows(), width);
    }
    // Called by one thread: loads the values of a tile that is one stretch of memory, but for those that stand still.
    CUSCAN_DEVICE void load_in_bulk(Values& values, target::Barrier& arrived) const {
        for_each_value<Config>([&](auto k, auto operand) {
            using T = typename decltype(operand)::Type;
            if constexpr (!kStandsStill<decltype(operand)>) {
                const Stretch from = stretch<T>(decltype(k)::value, value_rows());
                arrived.load((char*)values.at(k).item + from.place(), from.memory + from.place(), from.bytes());
            }
        });
    }
    // Called by kThreads threads: loads this thread's part of the tile's values, in the same way.
    template <int kThreads>
    CUSCAN_DEVICE void load_pieces(Values& values, target::Barrier& arrived, int thread) const {
        for_each_value<Config>([&](auto k, auto operand) {
            using T = typename decltype(operand)::Type;
            constexpr int kArray = decltype(k)::value;
            if constexpr (!kStandsStill<decltype(operand)>) {
                if constexpr (kIsAlong<decltype(operand)>) {
                    load_turned<T, kThreads>(kArray, (char*)values.at(k).item, arrived, thread);
                } else if constexpr (kAnywhere) {
                    load_anywhere<T, kThreads>(kArray, (char*)values.at(k).item, arrived, thread);
                } else if constexpr (Config::kFlat) {
                    each_vector<T, kThreads, kRows, kColumns>(
                        kArray, value_rows(), 0, thread, values.at(k).item,
                        [&](auto* shared, auto* global) { arrived.load(shared, global); },
                        [&](T& shared, T& global) {
                            shared = global;
                            target::fence();  // arrive_loaded waits for copies only
                        });
                } else {
                    const char* const begin = origin.array[kArray];
                    const Span& span = geometry.span[kArray];
                    of_array<T>(kArray).template load<kThreads>((char*)values.at(k).item, arrived, thread, value_rows(),
                                                                width, begin + span.lowest, begin + span.end);
                }
            }
        });
    }

    // The same for an array of a flat tile that begins anywhere: pieces, where these lie within the array.
    template <class T, int kThreads>
    CUSCAN_DEVICE void load_anywhere(int array, char* tile, target::Barrier& arrived, int thread) const {
        using Whole = Vector<uint32, kPiece / 4>;
        constexpr int kSize = int(sizeof(T));
        const auto [memory, begin, end] = stretch<T>(array, value_rows());
        const char* const lowest = origin.array[array] + geometry.span[array].lowest;
        const char* const highest = origin.array[array] + geometry.span[array].end;
        bool copies = false;
        CUSCAN_NO_UNROLL
        for (int at = begin / kPiece * kPiece + thread * kPiece; at < end; at += kThreads * kPiece) {
            if (memory + at >= lowest && memory + at + kPiece <= highest) {
                arrived.load((Whole*)(tile + at), (const Whole*)(memory + at));
                continue;
            }
            for (int i = at > begin ? at : begin; i < at + kPiece && i < end; i += kSize)
                *(T*)(tile + i) = *(const T*)(memory + i);
            copies = true;
        }
        if (copies) target::fence();  // arrive_loaded waits for copies of pieces only
    }

    // In a flat tile: visits the vectors of this thread, of kAligned bytes each, in kCount rows (counted as they lie in
    // the tile) of kBreadth columns. Calls whole(vector in the tile, the same vector in memory) where all of a vector
    // exists; where only a part exists, calls single(item in the tile, the same item in memory) for each item of that
    // part. `rows` rows of the array exist.
    template <class T, int kThreads, int kCount, int kBreadth, class Whole, class Single>
    CUSCAN_DEVICE void each_vector(int array, int rows, int first_row, int thread, T* tile, Whole whole,
                                   Single single) const {
        constexpr int kItems = Config::kAligned > int(sizeof(T)) ? Config::kAligned / int(sizeof(T)) : 1;
        using Vector = cuscan::Vector<T, kItems>;
        T* const memory = (T*)at.array[array];
        constexpr int kVectors = kCount * kBreadth / kItems;
        const int first = first_row * kColumns + thread * kItems;
        T* const lowest = Flat<T>::lowest(memory);
        if (rows == kRows) {
            CUSCAN_UNROLL_EIGHT
            for (int i = 0; i < (kVectors - thread + kThreads - 1) / kThreads; ++i)
                whole((Vector*)(tile + first) + i * kThreads, (Vector*)(lowest + first) + i * kThreads);
            return;
        }
        const int begin = Flat<T>::begin(rows), end = begin + rows * kColumns;
        CUSCAN_NO_UNROLL
        for (int item = first; item < first_row * kColumns + kCount * kBreadth; item += kThreads * kItems) {
            if (item >= begin && item + kItems <= end) {
                whole((Vector*)(tile + item), (Vector*)(lowest + item));
            } else {
                for (int j = item; j < item + kItems; ++j)
                    if (j >= begin && j < end) single(tile[j], lowest[j]);
            }
        }
    }

    static CUSCAN_DEVICE int first_run(int warp) { return warp / Layout::kWarpsAbreast * Layout::kWarpRuns; }
    static CUSCAN_DEVICE int first_row(int warp) { return first_run(warp) * kRunRows; }
    static CUSCAN_DEVICE int first_column(int warp) { return warp % Layout::kWarpsAbreast * Layout::kWarpColumns; }

    // Calls use(run, column, i) for piece number i of this thread: a run of kAcross columns, of which `column` is the
    // first.
    template <class Use>
    static CUSCAN_DEVICE void each_piece(int warp, Use use) {
        CUSCAN_NO_UNROLL
        for (int i = target::thread_index() % target::kWarp; i < kPieces; i += target::kWarp)
            use(first_run(warp) + i / kAbreast, first_column(warp) + i % kAbreast * kAcross, i / target::kWarp);
    }
    // The same, unrolled: `i` is a constant, so that held pieces stay in registers.
    template <class Use>
    static CUSCAN_DEVICE void each_held(int warp, Use use) {
        CUSCAN_UNROLL
        for (int number = 0; number * target::kWarp < kPieces; ++number) {
            const int i = number * target::kWarp + target::thread_index() % target::kWarp;
            if (kPieces % target::kWarp == 0 || i < kPieces)
                use(first_run(warp) + i / kAbreast, first_column(warp) + i % kAbreast * kAcross, number);
        }
    }
    // A value that does not vary along the axis. Columns that do not exist have the last one's.
    template <class T>
    CUSCAN_DEVICE T still(int array, int column) const {
        return *(const T*)(at.array[array] + (column < width ? column : width - 1) * geometry.column.stride[array]);
    }
    template <int kWide>
    CUSCAN_DEVICE void read(const Values& values, int run, int column, Columns<kWide>& share) const {
        const int row = run * kRunRows;
        share.clear(geometry, position + row, initial);
        for_each_value<Config>([&](auto k, auto operand) {
            using T = typename decltype(operand)::Type;
            T item[kRunRows][kWide];
            if constexpr (kStandsStill<decltype(operand)>) {
                CUSCAN_UNROLL
                for (int c = 0; c < kWide; ++c) {
                    const T one = still<T>(decltype(k)::value, column + c);
                    CUSCAN_UNROLL
                    for (int s = 0; s < kRunRows; ++s) item[s][c] = one;
                }
            } else if constexpr (kIsAlong<decltype(operand)>) {
                read_turned(decltype(k)::value, values.at(k).item, row, column, item);
            } else if constexpr (kTight) {
                Flat<T, kWide>::read(flat<T>(decltype(k)::value, values.at(k)), run, column, item);
            } else {
                of_array<T>(decltype(k)::value).read((const char*)values.at(k).item, row, column, item);
            }
            CUSCAN_UNROLL
            for (int s = 0; s < kRunRows; ++s) CUSCAN_UNROLL
            for (int c = 0; c < kWide; ++c) share.raw.at(k).vector[s].item[c] = item[s][c];
        });
        read_flags<kRunRows, kWide>(share, mask(), starts(), values, row, column);
    }
    template <int kWide>
    static CUSCAN_DEVICE State of_chunk(const Columns<kWide>& share, int chunk, int c) {
        State total = share.get(chunk * kSteps, c, chunk * kSteps);
        CUSCAN_UNROLL
        for (int s = chunk * kSteps + 1; s < (chunk + 1) * kSteps; ++s) total = Op::combine(total, share.get(s, c, s));
        return total;
    }
};

}  // namespace cuscan
