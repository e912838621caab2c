// The carry along strips of columns that blocks share. With one ticket a block takes a batch: consecutive tiles of a
// strip. It publishes the total of the batch, and folds the totals of earlier batches of the strip to compute what
// precedes its own.
//
// A BatchWalk goes down kColumns neighbouring columns. Its kWarps warps look at a span of batches at once: each warp at
// a window of the span, each lane at kEach consecutive batches in one column. So batches are combined in pairs within
// a lane, then between lanes, then between warps, through shared memory.
//
// Without kHasSpans, a walk takes all earlier batches, and no block waits for more than one step through memory. With
// kHasSpans, the block that has the last batch of a span publishes the total of the span, too. A walk takes the totals
// of spans, kSpan of them at once, and then those of the batches of its own span. So it takes few steps wherever it
// begins, and no block waits for more than two steps through memory.
#pragma once
#include "column_chain.cuh"

namespace cuscan {

template <class Carry, class CarryOp, int kColumns, uint32 kBatchUnits, int kWarps, int kLooks, bool kHasSpans,
          bool kHasInitial>
class BatchWalk {
    static constexpr int least(int a, int b) { return a < b ? a : b; }
    static constexpr int kWords = Published<Carry>::kWords;
    static constexpr int kBatches = kSectionUnits / kBatchUnits;  // batches of a section
    static constexpr int kEntries =
        least(1 << levels_of(target::kWarp / kColumns), kBatches / kWarps);      // lanes of a column
    static constexpr int kEach = least(kLooks, kBatches / (kWarps * kEntries));  // totals that a lane looks at
    static constexpr uint32 kWindow = kEach * kEntries, kSpan = kWarps * kWindow;
    static constexpr uint32 kPassed = kHasSpans ? kSpan * kSpan : kSpan;  // batches that the walk passes at once
    static_assert(!kHasSpans || (kEach == kLooks && kSectionUnits % (kPassed * kBatchUnits) == 0),
                  "planning/strips.py computes the size of the table of spans");
    using Looks = PairedFold<CarryOp, levels_of(kEach), Carry>;
    using Lanes = PairedLanes<CarryOp, kEntries, Carry, kColumns>;
    using Windows = PairedFold<CarryOp, levels_of(kWarps), Carry>;
    using Passed = SectionCarry<Carry, CarryOp, kPassed * kBatchUnits, kHasInitial>;

public:
    // The most batches of a strip with which a walk may begin anew at each batch.
    static constexpr uint32 kFew = kHasSpans ? 8 * kPassed : 200;
    // Totals of the windows, or what precedes a span, in two buffers that take turns.
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
        number_ = 0;
        passed_.begin(sections_, initial);
    }
    // Called by all warps of the walk, for batches of the strip in ascending order. `chain`: the chain of the lane's
    // column.
    CUSCAN_DEVICE Found prefix(const TotalsTable<Carry>& batches, const TotalsTable<Carry>& spans, uint64 chain,
                               uint32 batch) {
        if constexpr (kHasSpans) return prefix_of_span(batches, spans, chain, batch);
        return walk(batches, chain, batch);
    }

private:
    CUSCAN_DEVICE Found prefix_of_span(const TotalsTable<Carry>& batches, const TotalsTable<Carry>& spans, uint64 chain,
                                       uint32 batch) {
        const uint32 span = batch / kSpan, place = batch % kSpan;
        const bool is_last = place == kSpan - 1;
        const Seen seen = look(batches, chain, batch - place, is_last ? kSpan : place);
        if (is_last && warp_ == 0 && lane_ < kColumns) spans.publish(span, chain, seen.total);
        return find(seen, place, Passed::precedes(span),
                    span == 0 ? passed_.before(0) : of_all(walk(spans, chain, span)));
    }
    // Neighbouring totals of a table, at most kSpan of them, as a lane sees them.
    struct Seen {
        Looks looks;  // the lane's own
        PairedFold<CarryOp, levels_of(kEntries), Carry> lanes;
        Windows windows;
        Carry total;  // of all, if there are kSpan
    };
    // What precedes totals number `number` of a table.
    CUSCAN_DEVICE Found walk(const TotalsTable<Carry>& table, uint64 chain, uint32 number) {
        CUSCAN_NO_UNROLL
        for (;; ++number_) {
            const uint32 ahead = number - number_ * kSpan;
            const Seen seen = look(table, chain, number_ * kSpan, ahead < kSpan ? ahead : kSpan);
            if (ahead < kSpan) return find(seen, ahead, Passed::precedes(number_), passed_.before(number_));
            passed_.pass(sections_, number_, seen.total);
        }
    }
    // Called by all warps: waits for `count` totals of a table from number `first` on.
    CUSCAN_DEVICE Seen look(const TotalsTable<Carry>& table, uint64 chain, uint32 first, uint32 count) {
        const int of_window = between(int(count) - warp_ * int(kWindow), kWindow);
        const int of_lane = between(of_window - entry() * kEach, kEach);
        Carry total_of[kEach];
        if (of_window > 0) {
            const uint64* const words = table.entry(first + warp_ * kWindow + entry() * kEach, chain);
            await_all(words, uint32(table.chains) * kWords, table.epoch, of_lane, total_of);  // fewer than 2^32 chains
        }
        Seen seen;
        Carry total;
        CUSCAN_UNROLL
        for (int i = 0; i < kEach; ++i)
            if (i < of_lane) total = seen.looks.push(i, total_of[i]);
        const Lanes lanes(total, entry());
        seen.lanes = lanes.left, seen.total = lanes.total;
        if constexpr (kWarps > 1) {
            auto& totals = exchange_.total[turn_ ^= 1];
            if (lane_ < kColumns) totals[warp_][lane_] = seen.total;
            target::barrier_sync(barrier_, kWarps * target::kWarp);
            Carry of_windows[kWarps];  // all are read before any is used
            CUSCAN_UNROLL
            for (int w = 0; w < kWarps; ++w) of_windows[w] = totals[w][column()];
            CUSCAN_UNROLL
            for (int w = 0; w < kWarps; ++w)
                if ((w + 1) * int(kWindow) <= int(count)) seen.total = seen.windows.push(w, of_windows[w]);
        }
        return seen;
    }
    // What precedes total number `place` of those seen: `carry`, if `precedes`, and the totals before it.
    CUSCAN_DEVICE Found find(const Seen& seen, uint32 place, bool precedes, Carry carry) const {
        const int of_lane = int(place) - warp_ * int(kWindow) - entry() * kEach;
        carry = seen.windows.before(warp_, precedes, carry);
        carry = seen.lanes.before(entry(), precedes || warp_ > 0, carry);
        carry = seen.looks.before(of_lane, precedes || warp_ > 0 || entry() > 0, carry);
        return {0 <= of_lane && of_lane < kEach && lane_ < kColumns * kEntries, carry};
    }
    // Called by all warps: what one of the lanes of each column has found, in all of them.
    CUSCAN_DEVICE Carry of_all(const Found& found) {
        Carry& carry = exchange_.total[turn_ ^= 1][0][column()];
        if (found.here) carry = found.carry;
        if constexpr (kWarps > 1)
            target::barrier_sync(barrier_, kWarps * target::kWarp);
        else
            target::sync_warp();
        return carry;
    }
    CUSCAN_DEVICE int entry() const { return lane_ / kColumns % kEntries; }
    static CUSCAN_DEVICE int between(int number, int most) { return number < 0 ? 0 : number < most ? number : most; }

    Exchange& exchange_;
    const int warp_, barrier_, lane_;
    uint32 number_, turn_ = 0;  // how many times the walk has passed kSpan totals; the present buffer
    Passed passed_;             // what precedes the next of them
    typename Passed::Sections sections_;
};

}  // namespace cuscan
