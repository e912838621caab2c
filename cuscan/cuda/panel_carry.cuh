// The carries of the tiles of a panel, in one tree for all. A unit is 32 runs, a section 4,096 units. Totals are
// combined in pairs, those of the pairs in pairs, and so on: within a unit as State, from units on as Carry; sections
// from left to right. What precedes a tile is the sections before it, then the blocks of 2048, 1024, ... 1 units that
// the bits of its unit's number in the section stand for; within its unit, the blocks of tiles that the bits of its
// number there stand for. Tiles of few columns have several units: then the smallest block is a tile. Where blocks
// share panels, "tile" stands for a stack of rows of threads (kernels/panels.cuh), which has one unit or more, so no
// unit has parts.
//
// KeptCarry is for a block that takes the tiles of a panel, or of a chunk of it, one after another. SoughtCarry is for
// blocks that share a panel, by chunks of a power of two of units: at the end of a chunk, the largest block of the tree
// that ends there is published; at its beginning, those that precede it are looked up, one for each bit set in its
// number. Kept totals lie in shared memory; the caller synchronises the threads that access them.
#pragma once
#include "column_chain.cuh"
#include "panel_tile.cuh"

namespace cuscan {

// The blocks that the tiles of a panel make, by tile number and level.
struct PanelTree {
    static constexpr int kSectionLevels = 12;

    int part_levels;   // a unit has 2^part_levels tiles
    int unit_levels;   // a tile has 2^unit_levels units
    int chunk_levels;  // a chunk has 2^chunk_levels tiles; it is a section where a block has a whole panel

    CUSCAN_DEVICE int levels() const { return part_levels + kSectionLevels - unit_levels; }
    CUSCAN_DEVICE uint32 section(uint32 number) const { return number >> levels(); }
    // Whether a block of tiles of a level precedes a tile in its unit, or a block of units in its section.
    CUSCAN_DEVICE bool is_part(uint32 number, int level) const { return number >> level & 1; }
    CUSCAN_DEVICE bool has_parts(uint32 number) const { return number & ((1u << part_levels) - 1); }
    CUSCAN_DEVICE bool has_units(uint32 number) const { return number >> part_levels != 0; }  // units or sections
    // The number of levels, beside its own, of blocks that end with a tile: up to the first block that is not complete.
    CUSCAN_DEVICE int complete(uint32 number) const {
        int level = 0;
        while (level < levels() && number >> level & 1) ++level;
        return level;
    }
};

template <class Config>
struct PanelCarry : Elements<Config> {
    using typename Elements<Config>::State;
    using typename Elements<Config>::Carry;
    using typename Elements<Config>::Op;
    using typename Elements<Config>::CarryOp;

    // Levels of tiles in a unit, at most; none where blocks share panels.
    static constexpr int kMostParts = Config::kGrid ? 0 : levels_of(PanelTile<Config>::kUnitRows);

    const PanelTree tree;
    // Per column: before its section, one per level of units, and before each unit of a tile, or of a chunk where
    // blocks share panels; then, if stacks have several units, before each stack.
    Carry* const carries;
    State* const parts;  // per column: one per level of tiles; unused where blocks share panels
    const int columns, levels;

    CUSCAN_DEVICE PanelCarry(char* memory, int columns, int levels, const PanelTree& tree)
        : tree(tree),
          carries((Carry*)memory),
          parts((State*)(carries + (1 + levels + (1 << tree.unit_levels)) * columns)),
          columns(columns),
          levels(levels) {}

    // before: what precedes a unit of the present tile; has_before: whether anything precedes a tile's first unit;
    // left: what precedes a tile in its unit.
    CUSCAN_DEVICE Carry& before(int column, int unit = 0) const {
        return carries[(1 + levels + unit) * columns + column];
    }
    CUSCAN_DEVICE bool has_before(uint32 number) const { return Config::kHasInitial || tree.has_units(number); }
    CUSCAN_DEVICE State left(uint32 number, int column) const {
        State left{};
        bool has_any = false;
        CUSCAN_UNROLL
        for (int level = kMostParts - 1; level >= 0; --level) {
            if (level >= tree.part_levels || !tree.is_part(number, level)) continue;
            left = join<Op>(has_any, left, part(level, column));
            has_any = true;
        }
        return left;
    }

protected:
    // What precedes the section, or the chunk once open_chunk has run.
    CUSCAN_DEVICE Carry& section(int column) const { return carries[column]; }
    CUSCAN_DEVICE Carry& unit(int level, int column) const {
        return carries[(1 + level - tree.part_levels) * columns + column];
    }
    CUSCAN_DEVICE State& part(int level, int column) const { return parts[level * columns + column]; }

    // What precedes a tile: `all`, if `has_any`, and then its blocks of the levels below `to`, down to `from`.
    CUSCAN_DEVICE Carry fold(uint32 number, int column, bool has_any, Carry all, int from, int to) const {
        CUSCAN_NO_UNROLL
        for (int level = to - 1; level >= from; --level) {
            if (!tree.is_part(number, level)) continue;
            all = join<CarryOp>(has_any, all, unit(level, column));
            has_any = true;
        }
        return all;
    }
    // Combines a tile's total, or that of its units, with earlier blocks to the largest block that ends with the tile.
    // Calls of_parts(level, block) if that is less than a unit, otherwise of_units(level, block); a whole section
    // includes all before it.
    template <class OfParts, class OfUnits>
    CUSCAN_DEVICE void climb(uint32 number, int column, State total, const Carry& units, OfParts of_parts,
                             OfUnits of_units) const {
        CUSCAN_UNROLL
        for (int level = 0; level < kMostParts; ++level) {
            if (level == tree.part_levels) break;
            if (!tree.is_part(number, level)) return of_parts(level, total);
            total = Op::combine(part(level, column), total);
        }
        Carry block = tree.part_levels > 0 ? convert<Carry>(total) : units;
        const int top = tree.complete(number);
        int level = tree.part_levels;
        CUSCAN_NO_UNROLL
        for (; level < top; ++level) block = CarryOp::combine(unit(level, column), block);
        if (level == tree.levels())
            block = join<CarryOp>(Config::kHasInitial || tree.section(number) > 0, section(column), block);
        of_units(level, block);
    }
};

template <class Config>
struct KeptCarry : PanelCarry<Config> {
    using Base = PanelCarry<Config>;
    using Base::tree;
    using typename Base::Carry;
    using typename Base::State;

    CUSCAN_DEVICE explicit KeptCarry(const Base& base) : Base(base) {}

    // Called by one thread per column: open where tile `number` begins, close where it ends. start() precedes tile 0.
    template <class Start>
    CUSCAN_DEVICE void open(uint32 number, int column, Start start) const {
        if (number == 0) this->section(column) = start();
        begin(number, column, 0);
    }
    // The same as open, if section() holds what precedes the chunk, for the tile's first unit: writes before(column,
    // unit).
    CUSCAN_DEVICE void begin(uint32 number, int column, int unit) const {
        if (tree.has_parts(number)) return;
        const bool has_any = Config::kHasInitial || number >> tree.chunk_levels > 0;
        this->before(column, unit) =
            this->fold(number, column, has_any, this->section(column), tree.part_levels, tree.chunk_levels);
    }
    CUSCAN_DEVICE void close(uint32 number, int column, const State& total, const Carry& units) const {
        this->climb(
            number, column, total, units, [&](int level, const State& block) { this->part(level, column) = block; },
            [&](int level, const Carry& block) {
                (level < tree.levels() ? this->unit(level, column) : this->section(column)) = block;
            });
    }
};

template <class Config>
struct SoughtCarry : KeptCarry<Config> {
    using Base = KeptCarry<Config>;
    using Base::tree;
    using typename Base::Carry;
    using typename Base::State;
    using Table = TotalsTable<Carry>;

    const Table table;  // what each chunk publishes

    CUSCAN_DEVICE SoughtCarry(const PanelCarry<Config>& base, const Table& table) : Base(base), table(table) {}

    // Called by `threads` threads, which divide columns and levels among them. Waits for the blocks of whole chunks
    // that precede tile `number`, which begins a chunk; or, if `sums`, for those that are published together with the
    // chunk that it ends. `first` is the chain of column 0; start(column) precedes all tiles.
    template <class Start>
    CUSCAN_DEVICE void seek(uint32 number, bool sums, uint64 first, int columns, int thread, int threads,
                            Start start) const {
        const int complete = tree.complete(number);
        // A section is published together with all before it.
        const int to = sums ? complete + (complete == tree.levels()) : tree.levels() + 1;
        CUSCAN_NO_UNROLL
        for (int at = thread; at < (to - tree.chunk_levels) * columns; at += threads) {
            const int level = tree.chunk_levels + at / columns, column = at % columns;
            const uint32 end = number >> level << level;  // end of the block
            if (level == tree.levels())
                this->section(column) = end > 0 ? await(end, first + column) : start(column);
            else if (tree.is_part(number, level))
                this->unit(level, column) = await(end, first + column);
        }
    }
    // Called by one thread per column, after seek: open_chunk where a chunk begins; publish with the total of its last
    // tile.
    CUSCAN_DEVICE void open_chunk(uint32 number, int column) const {
        const bool has_any = Config::kHasInitial || tree.section(number) > 0;
        this->section(column) =
            this->fold(number, column, has_any, this->section(column), tree.chunk_levels, tree.levels());
    }
    CUSCAN_DEVICE void publish(uint32 number, uint64 chain, int column, const Carry& total) const {
        this->climb(
            number, column, State{}, total, [](int, const State&) {},
            [&](int, const Carry& block) { table.publish(number >> tree.chunk_levels, chain, block); });
    }

private:
    // Waits for what the chunk that ends before tile `end` publishes.
    CUSCAN_DEVICE Carry await(uint32 end, uint64 chain) const {
        Carry value;
        const uint64* const entry = table.entry((end >> tree.chunk_levels) - 1, chain);
        while (!Published<Carry>::ready(entry, table.epoch, value)) target::pause();
        return value;
    }
};

}  // namespace cuscan
