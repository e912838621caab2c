// The carry along strips of columns that blocks share. With one ticket a block takes a batch: consecutive tiles of a
// strip. It publishes the total of the batch, and folds the totals of all earlier batches of the strip to compute
// what precedes its own. So no block waits for more than one step through memory.
//
// A BatchWalk goes down kColumns neighbouring columns. Its kWarps warps look at a span of batches at once: each warp at
// a window of the span, each lane at kLooks consecutive batches in one column. So batches are combined in pairs within
// a lane, then between lanes, then between warps, through shared memory.
#pragma once
#include "column_chain.cuh"

namespace cuscan {

template <class Carry, class CarryOp, int kColumns, uint32 kBatchUnits, int kWarps, int kMostLooks, bool kHasInitial>
class BatchWalk {
    static constexpr int least(int a, int b) { return a < b ? a : b; }
    static constexpr int kWords = Published<Carry>::kWords;
    static constexpr int kBatches = kSectionUnits / kBatchUnits;  // batches of a section
    static constexpr int kEntries =
        least(1 << levels_of(target::kWarp / kColumns), kBatches / kWarps);  // lanes of a column
    static constexpr int kLooks = least(kMostLooks, kBatches / (kWarps * kEntries));
    static constexpr uint32 kWindow = kLooks * kEntries, kSpan = kWarps * kWindow;
    using Looks = PairedFold<CarryOp, levels_of(kLooks), Carry>;
    using Lanes = PairedLanes<CarryOp, kEntries, Carry, kColumns>;
    using Windows = PairedFold<CarryOp, levels_of(kWarps), Carry>;
    using Spans = SectionCarry<Carry, CarryOp, kSpan * kBatchUnits, kHasInitial>;

public:
    // Totals of the windows, in two buffers that take turns.
    struct Exchange {
        Carry total[2][kWarps][kColumns];
    };
    // What precedes a batch. `here` is true in some lanes of one of the warps; there `carry` is what precedes the batch
    // in the lane's column, if there is an earlier batch or an initial value.
    struct Found {
        bool here;
        Carry carry;
    };

    CUSCAN_DEVICE BatchWalk(Exchange& exchange, int warp, int barrier)
        : exchange_(exchange), warp_(warp), barrier_(barrier), lane_(target::thread_index() % target::kWarp) {}

    CUSCAN_DEVICE int column() const { return lane_ % kColumns; }
    // Called where a block comes to another strip: the walk begins with its first batch.
    CUSCAN_DEVICE void begin(const Carry& initial) {
        seen_ = 0;
        spans_.begin(sections_, initial);
    }
    // Called by all warps of the walk, for batches of the strip in ascending order. `chain`: the chain of the lane's
    // column.
    CUSCAN_DEVICE Found prefix(const TotalsTable<Carry>& table, uint64 chain, uint32 batch) {
        CUSCAN_NO_UNROLL
        for (;; ++seen_) {
            const bool ends = batch < (seen_ + 1) * kSpan;
            const int of_span = ends ? int(batch % kSpan) : int(kSpan);  // earlier batches of the span
            const int of_window = between(of_span - warp_ * int(kWindow), kWindow);
            const int of_lane = between(of_window - entry() * kLooks, kLooks);
            Carry seen[kLooks];
            if (of_window > 0) {
                const uint64* const words = table.entry(seen_ * kSpan + warp_ * kWindow + entry() * kLooks, chain);
                await_all(words, uint32(table.chains) * kWords, table.epoch, of_lane, seen);  // fewer than 2^32 chains
            }
            Looks looks;
            Carry total;
            CUSCAN_UNROLL
            for (int i = 0; i < kLooks; ++i)
                if (i < of_lane) total = looks.push(i, seen[i]);
            const Lanes lanes(total, entry());
            Windows windows;
            total = lanes.total;
            if constexpr (kWarps > 1) {
                auto& totals = exchange_.total[turn_ ^= 1];
                if (lane_ < kColumns) totals[warp_][lane_] = total;
                target::barrier_sync(barrier_, kWarps * target::kWarp);
                Carry of_window[kWarps];  // all are read before any is used
                CUSCAN_UNROLL
                for (int w = 0; w < kWarps; ++w) of_window[w] = totals[w][column()];
                CUSCAN_UNROLL
                for (int w = 0; w < kWarps; ++w)
                    if ((w + 1) * int(kWindow) <= of_span) total = windows.push(w, of_window[w]);
            }
            if (ends) {
                const bool precedes = Spans::precedes(seen_);
                Carry carry = windows.before(warp_, precedes, spans_.before(seen_));
                carry = lanes.left.before(entry(), precedes || warp_ > 0, carry);
                carry = looks.before(of_lane, precedes || warp_ > 0 || entry() > 0, carry);
                const int place = of_span - warp_ * int(kWindow) - entry() * kLooks;
                return {0 <= place && place < kLooks && lane_ < kColumns * kEntries, carry};
            }
            spans_.pass(sections_, seen_, total);
        }
    }

private:
    CUSCAN_DEVICE int entry() const { return lane_ / kColumns % kEntries; }
    static CUSCAN_DEVICE int between(int number, int most) { return number < 0 ? 0 : number < most ? number : most; }

    Exchange& exchange_;
    const int warp_, barrier_, lane_;
    uint32 seen_, turn_ = 0;  // number of spans that the walk has passed; the present buffer
    Spans spans_;             // what precedes span number seen_
    typename Spans::Sections sections_;
};

}  // namespace cuscan
