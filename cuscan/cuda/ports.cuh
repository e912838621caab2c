// The arrays that a scan reads and writes: their element types, how vectors of them are accessed, and their numbers.
#pragma once
#include "types.cuh"

namespace cuscan {

enum class Access {
    kNone,      // there is no such array
    kVector,    // step +1, vectors aligned to their size
    kMirrored,  // step -1, vectors aligned to their size
    kUniform,   // step 0: all elements of a vector are one
    kElement,   // any step and alignment: item by item
    // Vectors that need not be aligned, but their elements are: from a stage (stage.cuh), or in pieces (shifted.cuh).
    kShifted,          // step +1
    kShiftedMirrored,  // step -1
};
constexpr bool is_shifted(Access access) { return access == Access::kShifted || access == Access::kShiftedMirrored; }
constexpr bool is_mirrored(Access access) { return access == Access::kMirrored || access == Access::kShiftedMirrored; }

template <class Element, Access kItsAccess, bool kIsSent = false>
struct Port {
    using Type = Element;
    static constexpr Access kAccess = kItsAccess;
    static constexpr bool kSent = kIsSent;  // ahead of time, to a stage (stage.cuh)
};

// Bytes: shifted elements lie as far beyond a multiple of it in a stage as in memory. A sector is faster than 16 (and a line
// would cost a stage), but of elements of 8 bytes more registers are spilled then.
template <class Port>
constexpr int kShiftedFrom = sizeof(typename Port::Type) < 8 ? target::kSector : 16;

template <class... Each>
struct Ports {
    static constexpr int kCount = sizeof...(Each);
};
template <int kNumber, class List>
struct PortOf;
template <class First, class... Rest>
struct PortOf<0, Ports<First, Rest...>> {
    using Is = First;
};
template <int kNumber, class First, class... Rest>
struct PortOf<kNumber, Ports<First, Rest...>> : PortOf<kNumber - 1, Ports<Rest...>> {};

// One Slot<Port> for each port of a list: pack.at(number).
template <int kIndex>
struct Number {
    static constexpr int value = kIndex;
};
template <template <class> class Slot, class List>
struct Pack;
template <template <class> class Slot>
struct Pack<Slot, Ports<>> {};
template <template <class> class Slot, class First, class... Rest>
struct Pack<Slot, Ports<First, Rest...>> {
    Slot<First> first;
    Pack<Slot, Ports<Rest...>> rest;

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

// visit(Number<0>()), visit(Number<1>()), ... for each port of a list.
template <class List, int kFrom = 0, class Visit>
CUSCAN_DEVICE void for_each_port(Visit&& visit) {
    if constexpr (kFrom < List::kCount) {
        visit(Number<kFrom>());
        for_each_port<List, kFrom + 1>(visit);
    }
}

// The numbers of a kernel's arrays, in the order of its arguments: values, results, one each, there or not, and the fields
// of carries.
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
struct Joined<Ports<Each...>> {
    using Is = Ports<Each...>;
};
template <class... First, class... Second, class... Rest>
struct Joined<Ports<First...>, Ports<Second...>, Rest...> : Joined<Ports<First..., Second...>, Rest...> {};

// The port of array kArray.
template <class Config, int kArray>
using PortOfArray =
    typename PortOf<kArray, typename Joined<typename Config::Values, typename Config::Results,
                                            Ports<typename Config::Mask, typename Config::SegmentPort>>::Is>::Is;

}  // namespace cuscan
