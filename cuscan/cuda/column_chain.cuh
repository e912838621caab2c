// The carry along columns, in the Carry type. 4,096 units make a section; the totals within a section are
// combined in pairs, those of the pairs in pairs, and so on, and sections from left to right. The prefix of a unit is
// the sections before it and then, one by one, the blocks of 2048, 1024, ... 1 units that the bits of its number within
// the section stand for.
//
// A thread that walks down a column alone keeps its prefix in a SectionCarry. Blocks that share columns take tiles by
// ticket (SharedStrips) and publish totals; the families strips (batches.cuh), whole_rows and panels (panel_carry.cuh)
// have chains of their own.
#pragma once
#include "published.cuh"
#include "scans.cuh"
#include "schedule.cuh"
#include "workspace.cuh"

namespace cuscan {

constexpr uint32 kSectionUnits = 4096;
constexpr uint32 kLineWords = target::kLine / sizeof(uint64);

// The carry along nodes of kNodeUnits units, a power of two. The prefix of a group of nodes is kept, so that a node
// takes few steps. Sections is used only at the end of a group and can lie in shared memory.
template <class Carry, class CarryOp, uint32 kNodeUnits, bool kHasInitial>
struct SectionCarry {
    static constexpr uint32 kNodes = kSectionUnits / kNodeUnits, kGroup = kNodes < 16 ? kNodes : 16,
                            kGroups = kNodes / kGroup;
    static_assert(kGroups * kGroup * kNodeUnits == kSectionUnits, "");
    struct Sections {
        Carry before;  // prefix of the current section; at first the initial value
        PairedFold<CarryOp, levels_of(kGroups), Carry> groups;
    };
    Carry before_group;
    PairedFold<CarryOp, levels_of(kGroup), Carry> nodes;

    static CUSCAN_DEVICE bool precedes(uint32 number) { return kHasInitial || number > 0; }
    CUSCAN_DEVICE void begin(Sections& sections, const Carry& initial) { sections.before = before_group = initial; }
    CUSCAN_DEVICE Carry before(uint32 number) const {
        return nodes.before(number % kGroup, precedes(number / kGroup), before_group);
    }
    CUSCAN_DEVICE void pass(Sections& sections, uint32 number, const Carry& total) {
        const Carry of_group = nodes.push(number % kGroup, total);
        if ((number + 1) % kGroup != 0) return;
        const uint32 passed = number / kGroup % kGroups, at = (passed + 1) % kGroups;
        const Carry of_section = sections.groups.push(passed, of_group);
        if (at == 0) sections.before = join<CarryOp>(kHasInitial || number >= kNodes, sections.before, of_section);
        before_group = sections.groups.before(at, kHasInitial || number + 1 >= kNodes, sections.before);
    }
};

// Strips shared by blocks. The pieces of a strip are handed out by ticket, in order. So a block waits only for pieces
// that other blocks have already begun.
//
// Where strips are abreast, the first pieces of all strips come first, then the second ones, by the workspace's own
// tickets. Neighbouring strips then fill the memory sectors between them at about the same time.
//
// Otherwise a block stays in a strip until the strip ends. Each strip has a counter, in the first words of the
// workspace, tagged with the launch's epoch like all words; each block takes one workspace ticket for the epoch.
struct SharedStrips {
    Workspace* workspace;
    uint64 strips, strip;
    uint32 pieces;  // per strip
    uint64 words_used;
    bool abreast;
    Workspace::Ticket ticket{};  // the last workspace ticket taken

    CUSCAN_DEVICE SharedStrips(Workspace* workspace, uint64 strips, uint32 pieces, uint64 words_used, bool abreast)
        : workspace(workspace),
          strips(strips),
          strip(target::block_index() % strips),
          pieces(pieces),
          words_used(words_used),
          abreast(abreast) {}
    // Takes the first ticket; called by one thread of the block, possibly before wait_for_previous_kernel.
    CUSCAN_DEVICE void open() {
        ticket = Workspace::ticket(workspace->take_ticket());
        if (!abreast) workspace->renew_after(ticket, target::block_count(), words_used);
    }
    CUSCAN_DEVICE uint32 epoch() const { return ticket.epoch; }
    // Successive pieces, until turn.exists is false; called after wait_for_previous_kernel.
    CUSCAN_DEVICE Turn first() {
        if (abreast) return of_ticket();
        begin();
        return next();
    }
    CUSCAN_DEVICE Turn next() {
        if (abreast) {
            ticket = Workspace::ticket(workspace->take_ticket());
            return of_ticket();
        }
        for (;;) {
            const uint32 piece = uint32(target::atomic_increment(workspace->words() + strip));
            if (piece < pieces || strip + target::block_count() >= strips) return {piece < pieces, strip, piece};
            strip += target::block_count();
            begin();
        }
    }

private:
    CUSCAN_DEVICE void begin() { target::atomic_raise(workspace->words() + strip, uint64(ticket.epoch) << 32); }
    CUSCAN_DEVICE Turn of_ticket() {
        const uint64 all = strips * pieces;
        workspace->renew_after(ticket, all + target::block_count(), words_used);
        return {ticket.number < all, ticket.number % uint32(strips), ticket.number / uint32(strips)};
    }
};

// A table of totals in the workspace, aligned to a line: for each number, the totals of all `chains` side by side.
template <class T>
struct TotalsTable {
    uint64* words;
    uint64 chains;
    uint32 epoch;

    CUSCAN_DEVICE void publish(uint64 number, uint64 chain, const T& total) const {
        Published<T>::publish(entry(number, chain), total, epoch);
    }
    CUSCAN_DEVICE uint64* entry(uint64 number, uint64 chain) const {
        return words + (number * chains + chain) * Published<T>::kWords;
    }
    // The first word behind a table of `numbers` rows, rounded up to a line.
    CUSCAN_DEVICE uint64* end(uint64 numbers) const {
        return words + whole_lines(numbers * chains * Published<T>::kWords);
    }
    static CUSCAN_DEVICE uint64 whole_lines(uint64 words) { return (words + kLineWords - 1) / kLineWords * kLineWords; }
};

}  // namespace cuscan
