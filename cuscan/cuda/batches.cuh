// The carry along strips of columns that blocks share. With one ticket a block takes a batch: consecutive tiles of a
// strip. It publishes the total of the batch, and folds the totals of earlier batches of the strip to compute what
// precedes its own.
//
// A BatchWalk goes down kColumns neighbouring columns. Its kWarps warps look at a span of kSpan totals at once: each
// warp at a window of the span, each lane at kEach consecutive totals in one column. So totals are combined in pairs
// within a lane, then between lanes, then between warps, through shared memory.
//
// With kHasNodes, the batches of a section are the leaves of a tree: kSpan of them make a node of level 1, kSpan of
// those a node of level 2, and so on up to the section. The block that has the last batch of a node publishes the total
// of the node, too. A walk takes the totals of earlier sections, then those of the nodes beside its own at each level,
// from the highest one down, and those of the batches beside its own at last. So it takes a step through memory for
// each level wherever it begins, and for some sections. Its batch still loads during all but the last step, unless a
// node ends with it.
//
// Where a section has fewer than kSpan spans, a walk takes all earlier batches, kSpan at once, and no block waits for
// more than one step.
#pragma once
#include "column_chain.cuh"

namespace cuscan {

template <class Carry, class CarryOp, int kColumns, uint32 kBatchUnits, int kWarps, int kLooks, bool kHasInitial>
class BatchWalk {
    static constexpr int least(int a, int b) { return a < b ? a : b; }
    static constexpr int kWords = Published<Carry>::kWords;
    static constexpr int kBatches = kSectionUnits / kBatchUnits;  // batches of a section
    static constexpr int kEntries =
        least(1 << levels_of(target::kWarp / kColumns), kBatches / kWarps);      // lanes of a column
    static constexpr int kEach = least(kLooks, kBatches / (kWarps * kEntries));  // totals that a lane looks at
    static constexpr uint32 kWindow = kEach * kEntries, kSpan = kWarps * kWindow;
    static constexpr int levels(uint32 number) { return number > kSpan ? 1 + levels(number / kSpan) : 1; }
    static constexpr uint32 top(uint32 number) { return number > kSpan ? top(number / kSpan) : number; }
    static constexpr bool kHasNodes = kSpan * kSpan <= kBatches;
    static constexpr int kLevels = levels(kBatches);  // of a section's tree
    static constexpr uint32 kTop = top(kBatches);     // nodes of the highest level in a section
    static_assert(!kHasNodes || (kEach == kLooks && kSpan > 1), "planning/walks.py computes the sizes of the tables");
    using Looks = PairedFold<CarryOp, levels_of(kEach), Carry>;
    using Lanes = PairedLanes<CarryOp, kEntries, Carry, kColumns>;
    using Windows = PairedFold<CarryOp, levels_of(kWarps), Carry>;
    using Passed = SectionCarry<Carry, CarryOp, kSpan * kBatchUnits, kHasInitial>;

public:
    // The most batches of a strip with which a walk may begin anew at each batch: it passes sections in two steps.
    static constexpr uint32 kFew = kHasNodes ? 2 * kEach * kBatches : 200;
    // Totals of the windows, or what precedes a node, in two buffers that take turns. Totals of 16 bytes begin at
    // multiples of 16: otherwise the compiler also loads a word of a neighbour, which racecheck reports.
    struct Exchange {
        alignas(16) Carry total[2][kWarps][kColumns];
    };
    // What precedes a batch, or a node. `here` is true in some lanes of one of the warps; there `carry` is what
    // precedes it in the lane's column, if there is an earlier one or an initial value.
    struct Found {
        bool here;
        Carry carry;
    };

    CUSCAN_DEVICE BatchWalk(Exchange& exchange, int warp, int barrier)
        : exchange_(exchange), warp_(warp), barrier_(barrier), lane_(target::thread_index() % target::kWarp) {}

    CUSCAN_DEVICE int column() const { return lane_ % kColumns; }
    // Called where a block comes to another strip: the walk begins with its first batch.
    CUSCAN_DEVICE void begin(const Carry& initial) {
        if constexpr (kHasNodes)
            section_ = 0, before_section_ = initial;
        else
            number_ = 0, passed_.begin(sections_, initial);
    }
    // Called by all warps of the walk, for batches of the strip in ascending order. `batches`: the totals of `number`
    // batches of each chain; those of nodes follow in memory, level by level. `chain`: the chain of the lane's column.
    // `wait` returns once the batch itself is complete.
    template <class Wait>
    CUSCAN_DEVICE Found prefix(const TotalsTable<Carry>& batches, uint32 number, uint64 chain, uint32 batch,
                               Wait wait) {
        if constexpr (kHasNodes) {
            return descend(batches, number, chain, batch, wait);
        } else {
            wait();
            return walk(batches, chain, batch);
        }
    }

private:
    // With totals of nodes: a step for sections, and for each level.
    template <class Wait>
    CUSCAN_DEVICE Found descend(const TotalsTable<Carry>& batches, uint32 number, uint64 chain, uint32 batch,
                                Wait wait) {
        if (place(batch, 0) == kSpan - 1) {
            wait();
            publish_nodes(batches, number, chain, batch);
        }
        pass_sections(of_level(batches, number, kLevels), chain, batch / kBatches);
        Carry before = before_section_;
        CUSCAN_NO_UNROLL
        for (int level = kLevels - 1;; --level) {
            // Once the batch is complete, earlier ones usually are, too; polling sooner would slow other blocks down.
            if (level == 0) wait();
            const uint32 place = this->place(batch, level), first = node_of(batch, level) - place;
            const Seen seen = look(of_level(batches, number, level), chain, first, place, level > 0);
            const Found found = find(seen, place, kHasInitial || node_of(batch, level + 1) > 0, before);
            if (level == 0) return found;
            before = of_all(found);
        }
    }
    // Without totals of nodes: goes down all earlier batches, kSpan of them at once.
    CUSCAN_DEVICE Found walk(const TotalsTable<Carry>& batches, uint64 chain, uint32 batch) {
        CUSCAN_NO_UNROLL
        for (;; ++number_) {
            const uint32 ahead = batch - number_ * kSpan;
            const Seen seen = look(batches, chain, number_ * kSpan, ahead < kSpan ? ahead : kSpan);
            if (ahead < kSpan) return find(seen, ahead, Passed::precedes(number_), passed_.before(number_));
            passed_.pass(sections_, number_, seen.total);
        }
    }
    // Neighbouring totals of a table, at most kSpan of them, as a lane sees them.
    struct Seen {
        Looks looks;  // the lane's own
        PairedFold<CarryOp, levels_of(kEntries), Carry> lanes;
        Windows windows;
        Carry total;  // of all, if there are kSpan
    };
    // The number of the node of a level that contains a batch.
    static CUSCAN_DEVICE uint32 node_of(uint32 batch, int level) {
        return level == kLevels ? batch / kBatches : batch >> level * levels_of(kSpan);
    }
    // How many nodes of a level make one of the next, and which of them contains a batch.
    static CUSCAN_DEVICE uint32 children(int level) { return level == kLevels - 1 ? kTop : kSpan; }
    static CUSCAN_DEVICE uint32 place(uint32 batch, int level) { return node_of(batch, level) & (children(level) - 1); }
    // The totals of the nodes of a level: batches have level 0, sections kLevels.
    static CUSCAN_DEVICE TotalsTable<Carry> of_level(TotalsTable<Carry> table, uint32 number, int level) {
        CUSCAN_NO_UNROLL
        for (int i = 0; i < level; ++i) {
            table.words = table.end(number);
            number /= children(i);
        }
        return table;
    }
    // Publishes the totals of the nodes that end with a batch, from the lowest level on.
    CUSCAN_DEVICE void publish_nodes(const TotalsTable<Carry>& batches, uint32 number, uint64 chain, uint32 batch) {
        CUSCAN_NO_UNROLL
        for (int level = 0; level < kLevels && place(batch, level) == children(level) - 1; ++level) {
            const uint32 parent = node_of(batch, level + 1), all = children(level);
            const Seen seen = look(of_level(batches, number, level), chain, node_of(batch, level) - (all - 1), all);
            const TotalsTable<Carry> next = of_level(batches, number, level + 1);
            if (kTop == kSpan || level < kLevels - 1) {
                if (warp_ == 0 && lane_ < kColumns) next.publish(parent, chain, seen.total);
            } else {  // what precedes total number kTop, a power of two, is one block
                const Found total = find(seen, all, false, Carry{});
                if (total.here) next.publish(parent, chain, total.carry);
            }
        }
    }
    // Folds the totals of sections from left to right, up to section number `end`.
    CUSCAN_DEVICE void pass_sections(const TotalsTable<Carry>& sections, uint64 chain, uint32 end) {
        CUSCAN_NO_UNROLL
        while (section_ < end) {
            const int count = between(int(end - section_), kEach);
            Carry total_of[kEach];
            const uint32 step = uint32(sections.chains) * kWords;
            await_all(sections.entry(section_, chain), step, sections.epoch, count, total_of, true);
            CUSCAN_UNROLL
            for (int i = 0; i < kEach; ++i)
                if (i < count)
                    before_section_ = join<CarryOp>(kHasInitial || section_ + i > 0, before_section_, total_of[i]);
            section_ += count;
        }
    }
    // Called by all warps: waits for `count` totals of a table from number `first` on.
    CUSCAN_DEVICE Seen look(const TotalsTable<Carry>& table, uint64 chain, uint32 first, uint32 count,
                            bool patient = false) {
        const int of_window = between(int(count) - warp_ * int(kWindow), kWindow);
        const int of_lane = between(of_window - entry() * kEach, kEach);
        Carry total_of[kEach];
        if (of_window > 0) {
            const uint64* const words = table.entry(first + warp_ * kWindow + entry() * kEach, chain);
            const uint32 step = uint32(table.chains) * kWords;  // there are fewer than 2^32 chains
            await_all(words, step, table.epoch, of_lane, total_of, patient);
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
    uint32 turn_ = 0;  // the present buffer
    // With totals of nodes: how many sections the walk has passed, and what precedes the next one.
    uint32 section_;
    Carry before_section_;
    // Without: how many times the walk has passed kSpan batches, and what precedes the next of them.
    uint32 number_;
    Passed passed_;
    typename Passed::Sections sections_;
};

}  // namespace cuscan
