// Operands, the arrays that a scan reads and writes: element types, access patterns, and numbering.
#pragma once
#include "types.cuh"

namespace cuscan {

enum class Access {
    kNone,       // the array is absent
    kVector,     // step +1, vectors aligned to their size
    kReversed,   // step -1, vectors aligned to their size
    kBroadcast,  // step 0: all elements of a vector are the same
    kPerLine,    // step 0, for threads that have several lines (panel_share.cuh)
    kStrided,    // any step and alignment, element by element
    kAlong,      // step +1 or -1 along the axis, while other operands lie across it (strip_tile.cuh)
    // Vectors of aligned elements, not aligned themselves: read from a stage (stage.cuh), or in pieces (shifted.cuh).
    kShifted,          // step +1
    kShiftedReversed,  // step -1
};
constexpr bool is_shifted(Access access) { return access == Access::kShifted || access == Access::kShiftedReversed; }
constexpr bool is_reversed(Access access) { return access == Access::kReversed || access == Access::kShiftedReversed; }

template <class Element, Access kItsAccess, bool kIsStaged = false>
struct Operand {
    using Type = Element;
    static constexpr Access kAccess = kItsAccess;
    static constexpr bool kStaged = kIsStaged;  // prefetched to a stage in shared memory (stage.cuh)
};

// Bytes: a shifted operand has the same offset modulo this number in a stage as in global memory. A sector is faster
// than 16 bytes; a line would cost a stage.
constexpr int kShiftedFrom = target::kSector;

template <class... Each>
struct Operands {
    static constexpr int kCount = sizeof...(Each);
};
template <int kNumber, class List>
struct OperandOf;
template <class First, class... Rest>
struct OperandOf<0, Operands<First, Rest...>> {
    using Is = First;
};
template <int kNumber, class First, class... Rest>
struct OperandOf<kNumber, Operands<First, Rest...>> : OperandOf<kNumber - 1, Operands<Rest...>> {};

// A tuple with one Slot<Operand> per operand of a list; pack.at(Number<k>()) is the k-th.
template <int kIndex>
struct Number {
    static constexpr int value = kIndex;
};
template <template <class> class Slot, class List>
struct Pack;
template <template <class> class Slot>
struct Pack<Slot, Operands<>> {};
template <template <class> class Slot, class First, class... Rest>
struct Pack<Slot, Operands<First, Rest...>> {
    Slot<First> first;
    Pack<Slot, Operands<Rest...>> rest;

    CUSCAN_DEVICE Slot<First>& at(Number<0>) { return first; }
    CUSCAN_DEVICE const Slot<First>& at(Number<0>) const { return first; }
    template <int kIndex>
    CUSCAN_DEVICE auto& at(Number<kIndex>) {
        return rest.at(Number<kIndex - 1>());
    }
    template <int kIndex>
    CUSCAN_DEVICE const auto& at(Number<kIndex>) const {
        return rest.at(Number<kIndex - 1>());
    }
};

// Calls visit(Number<0>()), visit(Number<1>()), ..., once per operand of a list.
template <class List, int kFrom = 0, class Visit>
CUSCAN_DEVICE void for_each_operand(Visit&& visit) {
    if constexpr (kFrom < List::kCount) {
        visit(Number<kFrom>());
        for_each_operand<List, kFrom + 1>(visit);
    }
}

// The numbers of a kernel's arrays, in argument order: values; results; mask, segments, initial and last, one number
// each even if absent; the fields of the incoming and outgoing carries.
template <class Config>
struct Arrays {
    static constexpr int kResults = Config::Values::kCount;
    static constexpr int kMask = kResults + Config::Results::kCount;
    static constexpr int kSegments = kMask + 1;
    static constexpr int kInitial = kMask + 2;
    static constexpr int kLast = kMask + 3;
    static constexpr int kCarryIn = kMask + 4;
    static constexpr int kCarryOut = kCarryIn + Config::CarryIn::kCount;
    static constexpr int kCount = kCarryOut + Config::CarryOut::kCount;
};

template <class... Lists>
struct Joined;
template <class... Each>
struct Joined<Operands<Each...>> {
    using Is = Operands<Each...>;
};
template <class... First, class... Second, class... Rest>
struct Joined<Operands<First...>, Operands<Second...>, Rest...> : Joined<Operands<First..., Second...>, Rest...> {};

// The operand of array kArray: a value, a result, the mask or the segments.
template <class Config, int kArray>
using OperandOfArray =
    typename OperandOf<kArray,
                       typename Joined<typename Config::Values, typename Config::Results,
                                       Operands<typename Config::Mask, typename Config::SegmentOperand>>::Is>::Is;

}  // namespace cuscan
