// What precedes the tiles of a panel, kept in shared memory by the block that takes them one after the other. A unit is 32
// runs, a section 4,096 units; totals are combined in pairs, those of the pairs in pairs, and so on, within a unit as State,
// from units on as Carry; sections from left to right. What precedes a tile is the sections before it, then the blocks of
// 2048, 1024, ... 1 units that its unit's number in the section is made of; and to the left of it in its unit lie the blocks
// of tiles that its number there is made of.
//
// All functions are called for a column by one thread at a time.
#pragma once
#include "elements.cuh"

namespace cuscan {

template <class Config>
struct PanelCarry {
    using Element = Elements<Config>;
    using State = typename Element::State;
    using Carry = typename Element::Carry;
    using Op = typename Element::Op;
    using CarryOp = typename Element::CarryOp;
    static constexpr uint32 kSectionUnits = 4096, kUnitSteps = 32 * 8;

    Carry* carries;  // of each column: before its unit, before its section, and one for each level of units
    State* parts;    // one for each level of tiles
    int columns;
    uint32 tiles;  // of a unit

    CUSCAN_DEVICE PanelCarry(char* memory, int columns, int unit_levels, int tile_steps)
        : carries((Carry*)memory),
          parts((State*)(carries + (2 + unit_levels) * columns)),
          columns(columns),
          tiles(kUnitSteps / tile_steps) {}

    // What precedes the present unit; whether anything does.
    CUSCAN_DEVICE Carry& before(int column) const { return carries[column]; }
    CUSCAN_DEVICE bool has_before(uint32 number) const { return Config::kHasInitial || number >= tiles; }
    // The tiles before number `number` in its unit; whether there are any.
    CUSCAN_DEVICE bool has_left(uint32 number) const { return number % tiles > 0; }
    CUSCAN_DEVICE State left(uint32 number, int column) const {
        State left{};
        bool has_any = false;
        CUSCAN_NO_UNROLL
        for (uint32 level = tiles / 2, of_level = top_level(tiles); level > 0; level /= 2) {
            --of_level;
            if (!(number & level)) continue;
            left = join<Op>(has_any, left, part(of_level, column));
            has_any = true;
        }
        return left;
    }
    CUSCAN_DEVICE void begin(int column, const Carry& start) const { before(column) = section(column) = start; }
    // Before tile `number` is worked on.
    CUSCAN_DEVICE void open(uint32 number, int column) const {
        if (number == 0 || has_left(number)) return;
        const uint32 unit = number / tiles;
        Carry all = section(column);
        bool has_any = Config::kHasInitial || unit >= kSectionUnits;
        CUSCAN_NO_UNROLL
        for (int level = top_level(kSectionUnits) - 1; level >= 0; --level) {
            if (!(unit >> level & 1)) continue;
            all = join<CarryOp>(has_any, all, node(level, column));
            has_any = true;
        }
        before(column) = all;
    }
    // Takes what tile `number` adds up to.
    CUSCAN_DEVICE void push(uint32 number, int column, State total) const {
        const uint32 at = number % tiles, unit = number / tiles;
        uint32 level = 0;
        CUSCAN_NO_UNROLL
        for (; at >> level & 1; ++level) total = Op::combine(part(level, column), total);
        if (at + 1 < tiles) {
            part(level, column) = total;
            return;
        }
        const uint32 of_section = unit % kSectionUnits;
        Carry of_units = convert<Carry>(total);
        level = 0;
        CUSCAN_NO_UNROLL
        for (; of_section >> level & 1; ++level) of_units = CarryOp::combine(node(level, column), of_units);
        if (of_section + 1 < kSectionUnits)
            node(level, column) = of_units;
        else
            section(column) = join<CarryOp>(Config::kHasInitial || unit >= kSectionUnits, section(column), of_units);
    }

private:
    static CUSCAN_DEVICE int top_level(uint32 number) {
        int level = 0;
        while (number > 1) number /= 2, ++level;
        return level;
    }
    CUSCAN_DEVICE Carry& section(int column) const { return carries[columns + column]; }
    CUSCAN_DEVICE Carry& node(int level, int column) const { return carries[(2 + level) * columns + column]; }
    CUSCAN_DEVICE State& part(int level, int column) const { return parts[level * columns + column]; }
};

}  // namespace cuscan
