// A tile of columns in shared memory, and what each of a block's warps does with it. A tile is kRows rows of kColumns
// columns: a strip of a wider array, whose rows come in scan order; or, kFlat, whole rows, which lie as they do in memory
// (flat_tile.cuh). A chunk is kSteps rows. A warp has a run of chunks, which it alone reads, overwrites and stores.
#pragma once
#include "elements.cuh"
#include "flat_tile.cuh"

namespace cuscan {

template <class Config>
struct StripLayout {
    static constexpr int kColumns = Config::kColumns, kRows = Config::kRows, kSteps = Config::kSteps;
    static constexpr int kChunks = kRows / kSteps, kElements = kRows * kColumns;
    static constexpr int kAcross = Config::kAcross, kAbreast = kColumns / kAcross;  // columns of a thread, threads of a row
    static constexpr int kOfWarp = kChunks / Config::kWarps;                        // chunks
    static constexpr int kUnitChunks = target::kWarp;
    static constexpr int kUnits = kChunks > kUnitChunks ? kChunks / kUnitChunks : 1;   // of a tile
    static constexpr int kParts = kChunks < kUnitChunks ? kUnitChunks / kChunks : 1;  // tiles of a unit
    static constexpr int kOfUnit = kChunks / kUnits;                                  // chunks of a unit in a tile
    static_assert(kChunks % Config::kWarps == 0 && kColumns % kAcross == 0, "");

    using State = typename Elements<Config>::State;
    // For each chunk and column. Units are a row further apart than they need, so that lanes that walk through several
    // units meet no bank twice.
    struct Exchange {
        State state[(kChunks + kUnits - 1) * kColumns];
        CUSCAN_DEVICE State& at(int chunk, int column) { return state[(chunk + chunk / kUnitChunks) * kColumns + column]; }
    };
};

template <class T, int kElements>
struct StripBuffer {
    static constexpr int kItems = 16 / int(sizeof(T));
    using Vector = cuscan::Vector<T, kItems>;
    alignas(16) T item[kElements];
};
template <class Port>
struct NoBuffer {};

// One thread's view of a tile.
template <class Config>
struct StripTile : Elements<Config> {
    using Base = Elements<Config>;
    using Layout = StripLayout<Config>;
    using Exchange = typename Layout::Exchange;
    using Numbers = Arrays<Config>;
    using typename Base::Op;
    using typename Base::State;
    static constexpr int kColumns = Layout::kColumns, kRows = Layout::kRows, kSteps = Layout::kSteps;
    static constexpr int kAcross = Layout::kAcross, kOfWarp = Layout::kOfWarp;
    template <class T>
    using Flat = FlatTile<T, kColumns, kAcross, kRows, kSteps, Config::kBack>;
    template <class Port>
    struct Buffer : StripBuffer<typename Port::Type, Layout::kElements> {};
    using Values = Pack<Buffer, typename Config::Values>;
    using Results = Pack<Buffer, typename Config::Results>;
    using Share = Items<Config, kSteps, kAcross>;

    const Geometry<Config>& geometry;
    Row<Config> at;  // row 0, column 0 of the tile
    int64 position;  // of row 0 along the axis
    int rows, width;  // that exist

    // The thread's part of what the tile's values are sent for with; `thread` of kThreads.
    template <int kThreads>
    CUSCAN_DEVICE void send_for(Values& values, target::Barrier& arrived, int thread) const {
        for_each_value<Config>([&](auto k, auto port) {
            using T = typename decltype(port)::Type;
            constexpr int kArray = decltype(k)::value;
            each_vector<T, kThreads>(kArray, 0, kRows, thread, values.at(k).item,
                                     [&](auto* shared, auto* global) { arrived.load(shared, global); },
                                     [&](T& shared, T& global) { shared = global; });
        });
    }
    // What the chunks of the warp add up to, column by column.
    CUSCAN_DEVICE void fold(const Values& values, Exchange& totals, int warp) const {
        each_piece(warp, [&](int chunk, int column) {
            Share share;
            read(values, chunk, column, share);
            CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) {
                State total = share.get(0, c, 0);
                CUSCAN_UNROLL
                for (int s = 1; s < kSteps; ++s) total = Op::combine(total, share.get(s, c, s));
                totals.at(chunk, column + c) = total;
            }
        });
    }
    // The results of the warp's chunks, from what precedes each. They may take the place of the values.
    CUSCAN_DEVICE void finish(const Values& values, Results& results, Exchange& prefix, int warp) const {
        each_piece(warp, [&](int chunk, int column) {
            Share share;
            read(values, chunk, column, share);
            Running<Config> running[kAcross];
            CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) {
                running[c].present = Config::kHasInitial || position > 0 || chunk > 0;
                running[c].value = prefix.at(chunk, column + c);
            }
            Pack<Piece, typename Config::Results> piece;
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) {
                const auto state = running[c].step(share.get(s, c, s), share.segment_started);
                for_each_result<Config>([&](auto k, auto port) {
                    piece.at(k).item[s][c] = convert<typename decltype(port)::Type>(Config::Op::lower(state, k));
                });
                if constexpr (Config::Last::kAccess != Access::kNone) {
                    if (position + chunk * kSteps + s + 1 == geometry.axis.size && column + c < width) {
                        Row<Config> here = at;
                        here.advance(geometry.column, column + c);
                        store_last(here, state);
                    }
                }
            }
            for_each_result<Config>([&](auto k, auto port) {
                using T = typename decltype(port)::Type;
                Flat<T>::write(results.at(k).item, chunk, column, piece.at(k).item);
            });
        });
    }
    CUSCAN_DEVICE void store(Results& results, int warp, int lane) const {
        for_each_result<Config>([&](auto k, auto port) {
            using T = typename decltype(port)::Type;
            constexpr int kArray = Numbers::kResults + decltype(k)::value;
            constexpr int kTaken = kOfWarp * kSteps;
            const int first = Config::kBack ? kRows - (warp + 1) * kTaken : warp * kTaken;
            each_vector<T, target::kWarp>(kArray, first, kTaken, lane, results.at(k).item,
                                          [&](auto* shared, auto* global) { target::store_streaming(global, *shared); },
                                          [&](T& shared, T& global) { global = shared; });
        });
    }

private:
    template <class Port>
    struct Piece {
        typename Port::Type item[kSteps][kAcross];
    };

    // Calls whole(vector in the tile, the same in memory) for the thread's 16-byte vectors of some of the tile's rows, as
    // they lie in the tile; and single(item, item) for the items of those of which only a part exists.
    template <class T, int kThreads, class Whole, class Single>
    CUSCAN_DEVICE void each_vector(int array, int first_row, int count, int thread, T* tile, Whole whole,
                                   Single single) const {
        using Vector = typename StripBuffer<T, 1>::Vector;
        constexpr int kItems = StripBuffer<T, 1>::kItems;
        T* const memory = (T*)at.array[array];
        const int vectors = count * kColumns / kItems;
        if constexpr (Config::kFlat) {
            T* const lowest = Flat<T>::lowest(memory);
            const int begin = Flat<T>::begin(rows), end = begin + rows * kColumns;
            CUSCAN_UNROLL_FOUR
            for (int i = thread; i < vectors; i += kThreads) {
                const int item = first_row * kColumns + i * kItems;
                if (item >= begin && item + kItems <= end) {
                    whole((Vector*)(tile + item), (Vector*)(lowest + item));
                } else {
                    for (int j = item; j < item + kItems; ++j)
                        if (j >= begin && j < end) single(tile[j], lowest[j]);
                }
            }
        } else {
            constexpr int kOfRow = kColumns / kItems;
            const int64 along = geometry.axis.stride[array];
            CUSCAN_UNROLL_FOUR
            for (int i = thread; i < vectors; i += kThreads) {
                const int row = first_row + i / kOfRow, column = i % kOfRow * kItems;
                if (row < rows && column < width)
                    whole((Vector*)(tile + row * kColumns + column), (Vector*)((char*)(memory + column) + row * along));
            }
        }
    }

    // Calls use(chunk, column) for each piece of this thread: a chunk, and the first of kAcross columns.
    template <class Use>
    static CUSCAN_DEVICE void each_piece(int warp, Use use) {
        constexpr int kPieces = kOfWarp * Layout::kAbreast;
        CUSCAN_NO_UNROLL
        for (int i = target::thread_index() % target::kWarp; i < kPieces; i += target::kWarp)
            use(warp * kOfWarp + i / Layout::kAbreast, i % Layout::kAbreast * kAcross);
    }
    CUSCAN_DEVICE void read(const Values& values, int chunk, int column, Share& share) const {
        share.clear(geometry, position + chunk * kSteps, typename Base::Initial());
        for_each_value<Config>([&](auto k, auto port) {
            using T = typename decltype(port)::Type;
            T item[kSteps][kAcross];
            Flat<T>::read(values.at(k).item, chunk, column, item);
            CUSCAN_UNROLL
            for (int s = 0; s < kSteps; ++s) CUSCAN_UNROLL
            for (int c = 0; c < kAcross; ++c) share.raw.at(k).vector[s].item[c] = item[s][c];
        });
    }
};

}  // namespace cuscan
