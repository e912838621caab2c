// Converts elements in memory to states and back, for one Config: the one place for type conversion, mask, NaN
// skipping, and segments.
#pragma once
#include "on_words.cuh"
#include "segments.cuh"
#include "vectors.cuh"

namespace cuscan {

template <bool kCondition, class Then, class Else>
struct Choose {
    using Type = Then;
};
template <class Then, class Else>
struct Choose<false, Then, Else> {
    using Type = Else;
};

// The operator that combines the states of a scan. With kMayMark, a mark may take the place of the segment flag.
template <class Op, bool kSegmented, bool kMayMark>
struct WithSegments {
    using Type = Op;
};
template <class Op, bool kMayMark>
struct WithSegments<Op, true, kMayMark> {
    using Type = typename Choose<kMayMark && kMarksRestarts<Op>, Marking<Op>, Restarting<Op>>::Type;
};

template <class Config>
struct Elements {
    static constexpr bool kMasked = Config::Mask::kAccess != Access::kNone;
    static constexpr bool kSegmented = Config::kSegments != Segments::kNone;
    using Inner = typename Config::Op;  // the operator without segments
    using InnerState = typename Inner::State;
    using Op = typename WithSegments<Inner, kSegmented, Config::CarryOut::kCount == 0>::Type;
    using CarryOp = typename WithSegments<typename Config::CarryOp, kSegmented, Config::CarryOut::kCount == 0>::Type;
    using State = typename Op::State;
    using Carry = typename CarryOp::State;
    using Initial = typename Config::CarryOp::Initial;
    using Result = typename OperandOf<0, typename Config::Results>::Is::Type;
    using Index = typename Config::Index;
    static_assert(sizeof(State) == Config::kStateBytes && sizeof(Carry) == Config::kCarryBytes,
                  "planning/assemble.py computes another size");

    // Whether the caller passes a carry in, whether the kernel writes one, and whether it stores results.
    static constexpr bool kCarriesIn = Config::CarryIn::kCount > 0, kCarriesOut = Config::CarryOut::kCount > 0;
    static constexpr bool kStores = OperandOf<0, typename Config::Results>::Is::kAccess != Access::kNone;

    static CUSCAN_DEVICE InnerState identity() { return Inner::template identity<Result>(); }

    // The neutral value lifts to the identity. Single bytes are not replaced: their kernels would spill.
    using Value = typename OperandOf<0, typename Config::Values>::Is::Type;
    static constexpr bool kReplaces =
        Config::Values::kCount == 1 && sizeof(Value) > 1 && kHasNeutral<Inner, Value, Result>;
    static CUSCAN_DEVICE Value neutral() { return convert<Value>(identity()); }

    // The state that a row starts from, and the state that a segment within it starts from.
    static CUSCAN_DEVICE Carry start(const Geometry<Config>& geometry, const Row<Config>& row, const Initial& initial) {
        if constexpr (kCarriesIn) {
            if constexpr (kSegmented)
                return CarryOp::state(carried(geometry, row), false);
            else
                return carried(geometry, row);
        } else {
            return start_from(row, initial);
        }
    }
    static CUSCAN_DEVICE InnerState segment_start(const Initial& initial) {
        if constexpr (Config::kSegmentsHaveInitial)
            return convert<InnerState>(Config::CarryOp::start(initial));
        else
            return identity();
    }

    // The number of elements that precede a row in earlier calls; positions count from there.
    static CUSCAN_DEVICE int64 counted(const Row<Config>& row) {
        if constexpr (kCarriesIn && Config::kIndexed)
            return *(const int64*)row.array[Arrays<Config>::kCarryIn + 2];
        else
            return 0;
    }
    // Writes the carry of a row: `before`, if it exists, combined with `rest`. The pointers of `row` address
    // `position`.
    static CUSCAN_DEVICE void store_carry(const Geometry<Config>& geometry, const Row<Config>& row, int64 position,
                                          bool has_before, const Carry& before, const State& rest) {
        using Operand = typename Config::SegmentOperand;
        constexpr int kOut = Arrays<Config>::kCarryOut, kSegments = Arrays<Config>::kSegments;
        const auto state = inner_carry(join<CarryOp>(has_before, before, convert<Carry>(rest)));
        const int64 count = geometry.elements();
        for_each_operand<typename Config::CarryOut>([&](auto k) {
            constexpr int kField = decltype(k)::value;
            auto* const out =
                (typename OperandOf<kField, typename Config::CarryOut>::Is::Type*)row.array[kOut + kField];
            if constexpr (kField < kFields)
                *out = Config::CarryOp::field(state, k);
            else if constexpr (Config::kIndexed && kField == kFields)
                *out = counted(row) + count;
            else
                *out = *(const typename Operand::Type*)(row.array[kSegments] +
                                                        (count - 1 - position) * geometry.axis.stride[kSegments]);
        });
    }

private:
    using InnerCarry = typename Config::CarryOp::State;
    static constexpr bool kKeyed = Config::kSegments == Segments::kKeys;
    static constexpr int kCarryOperands = kCarriesOut ? Config::CarryOut::kCount : Config::CarryIn::kCount;
    static constexpr int kFields = kCarryOperands - Config::kIndexed - kKeyed;  // fields of the state

    static CUSCAN_DEVICE InnerCarry inner_carry(const Carry& carry) {
        if constexpr (kSegmented)
            return CarryOp::value(carry);
        else
            return carry;
    }
    // Builds a state from the carry's fields.
    template <class... Taken>
    static CUSCAN_DEVICE InnerCarry carried(const Geometry<Config>& geometry, const Row<Config>& row,
                                            const Taken&... taken) {
        constexpr int kField = sizeof...(Taken);
        if constexpr (kField < kFields) {
            using Field = typename OperandOf<kField, typename Config::CarryIn>::Is::Type;
            return carried(geometry, row, taken..., *(const Field*)row.array[Arrays<Config>::kCarryIn + kField]);
        } else {
            InnerCarry state{taken...};
            // In a reversed scan earlier elements lie behind the row's end: their positions shift by its length.
            if constexpr (Config::kIndexed && Config::kReverse)
                if (state.index >= 0) state.index += geometry.elements();
            return state;
        }
    }
    static CUSCAN_DEVICE Carry start_from(const Row<Config>& row, const Initial& initial) {
        using Operand = typename Config::RowInitial;
        Initial number = initial;
        if constexpr (Operand::kAccess != Access::kNone)
            number = convert<Initial>(*(const typename Operand::Type*)row.array[Arrays<Config>::kInitial]);
        if constexpr (kSegmented)
            return CarryOp::state(Config::CarryOp::start(number), false);
        else
            return Config::CarryOp::start(number);
    }
};

// The same scan without segments, for elements among which none starts.
template <class Config>
struct Unsegmented : Config {
    static constexpr auto kSegments = Segments::kNone;
    static constexpr int kStateBytes = sizeof(typename Config::Op::State);
    static constexpr int kCarryBytes = sizeof(typename Config::CarryOp::State);
};

// A base class with storage only if kThere: without members it takes no space.
template <bool kThere, class T, int kCount>
struct Behind {
    T behind[kCount];
};
template <class T, int kCount>
struct Behind<false, T, kCount> {};

// One bit per element, for kCount elements of a thread.
template <int kCount>
struct Bits {
    static constexpr int kWord = 32;
    static constexpr int kWords = (kCount + kWord - 1) / kWord;
    uint32 word[kWords];

    CUSCAN_DEVICE void clear() {
        CUSCAN_UNROLL
        for (uint32& bits : word) bits = 0;
    }
    // Sets the bits of one element, or of neighbours within one word.
    CUSCAN_DEVICE void set(int number, uint32 bits) { word[number / kWord] |= bits << (number % kWord); }
    template <int kItems>
    CUSCAN_DEVICE void set_vector(int vector, const Vector<boolean, kItems>& bits) {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) set(vector * kItems + i, bits.item[i].bits != 0);
    }
    CUSCAN_DEVICE bool get(int number) const { return (word[number / kWord] >> (number % kWord)) & 1; }
    // Whether one of kSome bits from number `first` on is set; they lie in one word.
    template <int kSome>
    CUSCAN_DEVICE bool any(int first) const {
        return (word[first / kWord] & uint32((uint64(1) << kSome) - 1) << first % kWord) != 0;
    }
    // The bits from number `first` on, which lie in one word.
    template <int kFewer>
    CUSCAN_DEVICE Bits<kFewer> from(int first) const {
        Bits<kFewer> some{};
        CUSCAN_UNROLL
        for (int w = 0; w < kWords; ++w)
            if (w == first / kWord) some.word[0] = word[w] >> first % kWord;
        return some;
    }
};

// kVectors vectors of kItems elements in a thread's registers, with one mask bit and one segment bit per element. With
// kReplaces there are no mask bits: the caller replaces masked values by the neutral one. With kTogether, segments
// start at all elements of a vector together, with one bit for these.
template <class Config, int kVectors, int kItems, bool kReplaces = false, bool kTogether = false>
struct Items : Elements<Config> {
    using Base = Elements<Config>;
    using typename Base::Index;
    using typename Base::InnerState;
    using typename Base::State;

    template <class Operand>
    struct Raw {
        Vector<typename Operand::Type, kItems> vector[kVectors];
    };
    Pack<Raw, typename Config::Values> raw;
    Bits<Base::kMasked && !kReplaces ? kVectors * kItems : 1> keep;
    Bits<!Base::kSegmented ? 1 : kTogether ? kVectors : kVectors * kItems> restarts;
    Index index;                 // position of the thread's first element along the axis
    InnerState segment_started;  // the state that a segment starts from

    // `position` is that of the thread's first element, in scan order.
    CUSCAN_DEVICE void clear(const Geometry<Config>& geometry, int64 position, const typename Base::Initial& initial) {
        keep.clear();
        restarts.clear();
        index = Index(Config::kReverse ? geometry.elements() - 1 - position : position);
        segment_started = Base::segment_start(initial);
    }
    // Sets whether a segment starts at item i of a vector. With kTogether, item 0 decides.
    CUSCAN_DEVICE void set_start(int vector, int i, bool starts) {
        if (!kTogether || i == 0) restarts.set(kTogether ? vector : vector * kItems + i, starts);
    }
    // The state of item i of a vector, which lies `along` elements after the thread's first in scan order.
    CUSCAN_DEVICE auto get(int vector, int i, int along) const {
        const int bit = vector * kItems + i;
        InnerState value = lifted(vector, i, along);
        if constexpr (Base::kMasked && !kReplaces)
            if (!keep.get(bit)) value = Base::identity();
        if constexpr (Config::kSkipsNan)
            if (any_nan(vector, i)) value = Base::identity();
        if constexpr (Base::kSegmented) {
            const bool starts = restarts.get(kTogether ? vector : bit);
            if constexpr (Config::kSegmentsHaveInitial)
                if (starts) value = Base::Inner::combine(segment_started, value);
            return Base::Op::template element<typename Base::Value>(value, starts);  // Value: a recurrence's decay
        } else {
            return value;
        }
    }

private:
    template <int kOperand = 0, class... Taken>
    CUSCAN_DEVICE InnerState lifted(int vector, int i, int along, const Taken&... taken) const {
        if constexpr (kOperand < Config::Values::kCount)
            return lifted<kOperand + 1>(vector, i, along, taken...,
                                        raw.at(Number<kOperand>()).vector[vector].number(i));
        else if constexpr (Config::kIndexed)
            return Base::Inner::template lift<typename Base::Result>(
                taken..., Index(Config::kReverse ? index - along : index + along));
        else
            return Base::Inner::template lift<typename Base::Result>(taken...);
    }
    CUSCAN_DEVICE bool any_nan(int vector, int i) const {
        bool any = false;
        for_each_operand<typename Config::Values>(
            [&](auto k) { any = any || is_nan(arithmetic(raw.at(k).vector[vector].number(i))); });
        return any;
    }
};

// A thread's running state over consecutive elements. step() takes the next element and returns the state to store for
// it.
template <class Config>
struct Running : Elements<Config> {
    using Base = Elements<Config>;
    using typename Base::InnerState;
    using typename Base::State;

    bool present;  // false if no element or initial value precedes
    State value;

    template <class Next>
    CUSCAN_DEVICE InnerState step(const Next& next, const InnerState& segment_started) {
        InnerState shown;
        if constexpr (Config::kExclusive) {
            shown = present ? inner(value) : Base::identity();
            if constexpr (Base::kSegmented && Config::kShowsSegmentStarts)
                if (Base::Op::restarts(next)) shown = segment_started;
        }
        value = join<typename Base::Op>(present, value, next);
        present = true;
        return Config::kExclusive ? shown : inner(value);
    }
    CUSCAN_DEVICE Running<Unsegmented<Config>> unsegmented() const {
        Running<Unsegmented<Config>> running;
        running.present = present;
        running.value = inner(value);
        return running;
    }

private:
    static CUSCAN_DEVICE InnerState inner(const State& state) {
        if constexpr (Base::kSegmented)
            return Base::Op::value(state);
        else
            return state;
    }
};

// Stores the state after the last element of a row, if the last state is a result of its own.
template <class Config, class InnerState>
CUSCAN_DEVICE void store_last(const Row<Config>& row, const InnerState& state) {
    using Operand = typename Config::Last;
    if constexpr (Operand::kAccess != Access::kNone)
        *(typename Operand::Type*)row.array[Arrays<Config>::kLast] =
            convert<typename Operand::Type>(Config::Op::lower(state, Number<0>()));
}

}  // namespace cuscan
