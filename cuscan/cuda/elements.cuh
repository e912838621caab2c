// From an element in memory to the accumulator and back, for one Config: conversion, mask and identity in one place.
#pragma once
#include "scans.cuh"
#include "vectors.cuh"

namespace cuscan {

template <class T>
constexpr bool kIsInteger = false;
template <>
constexpr bool kIsInteger<int32> = true;
template <>
constexpr bool kIsInteger<uint32> = true;
template <>
constexpr bool kIsInteger<int64> = true;
template <>
constexpr bool kIsInteger<uint64> = true;

template <class Config>
struct Elements {
    using Value = typename Config::Value;
    using Result = typename Config::Result;
    using Accumulator = typename Config::Accumulator;
    using Op = typename Config::template Op<Accumulator>;
    static constexpr bool kMasked = Config::kMaskAccess != Access::kNone;

    // Integers wrap to the result's width first; floating point goes straight to the accumulator, so it is rounded
    // once, on store.
    static CUSCAN_DEVICE Accumulator element(Value value) {
        if constexpr (kIsInteger<Accumulator>)
            return convert<Accumulator>(convert<Result>(value));
        else
            return convert<Accumulator>(value);
    }
    static CUSCAN_DEVICE Accumulator identity() { return Op::template identity<Result>(); }
};

// kVectors vectors of kItems elements that one thread keeps in registers, with a bit an element for the mask.
template <class Config, int kVectors, int kItems>
struct Items : Elements<Config> {
    using Base = Elements<Config>;
    using typename Base::Accumulator;
    using typename Base::Value;
    static constexpr int kBits = 32;

    Vector<Value, kItems> raw[kVectors];
    uint32 keep[Base::kMasked ? (kVectors * kItems + kBits - 1) / kBits : 1];

    CUSCAN_DEVICE void clear() {
        CUSCAN_UNROLL
        for (uint32& bits : keep) bits = 0;
    }
    CUSCAN_DEVICE void set_mask(int vector, const Vector<boolean, kItems>& mask) {
        CUSCAN_UNROLL
        for (int i = 0; i < kItems; ++i) {
            const int bit = vector * kItems + i;
            keep[bit / kBits] |= uint32(mask.item[i].bits != 0) << (bit % kBits);
        }
    }
    CUSCAN_DEVICE Accumulator get(int vector, int i) const {
        const Accumulator value = Base::element(raw[vector].item[i]);
        if constexpr (Base::kMasked) {
            const int bit = vector * kItems + i;
            return (keep[bit / kBits] >> (bit % kBits)) & 1 ? value : Base::identity();
        }
        return value;
    }
};

// The running value of one thread on its way through consecutive elements: takes the next one, gives its output.
template <class Config>
struct Running : Elements<Config> {
    using Base = Elements<Config>;
    using typename Base::Accumulator;
    using typename Base::Result;

    bool present;  // false: nothing came before
    Accumulator value;

    CUSCAN_DEVICE Result step(Accumulator next) {
        const Accumulator before = present ? value : Base::identity();
        value = join<typename Base::Op>(present, value, next);
        present = true;
        return convert<Result>(Config::kExclusive ? before : value);
    }
};

}  // namespace cuscan
