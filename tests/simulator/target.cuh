// The simulator's stand-in for cuscan/cuda/target.cuh: the same names, for fibers on the CPU (runtime.hpp). At every
// access to memory that threads may share, the scheduler can turn to another thread.
#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime.hpp"

#define CUSCAN_DEVICE inline
#define CUSCAN_KERNEL(threads, blocks_per_sm) static void
#define CUSCAN_CLUSTER_KERNEL(blocks, threads, blocks_per_sm) static void
#define CUSCAN_CONSTANT_ARGUMENT const
#define CUSCAN_UNROLL
#define CUSCAN_NO_UNROLL
#define CUSCAN_UNROLL_EIGHT

namespace cuscan {

using int8 = signed char;
using int16 = short;
using int32 = int;
using int64 = long long;
using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;
using float32 = float;
using float64 = double;

namespace target {

constexpr int kWarp = simulator::kWarp;
constexpr int kLine = 128, kSector = 32;

// ---- where am I ----------------------------------------------------------------------------------------------------
inline int thread_index() { return simulator::current->warp->index * kWarp + simulator::current->lane; }
inline uint32 block_index() { return simulator::current->warp->block->index; }
inline uint32 block_count() { return simulator::grid->blocks; }

// Older architectures lack these instructions: their kernels run one after the other.
constexpr bool kOverlaps = SIMULATED_ARCH >= 90;
inline void wait_for_previous_kernel() {
    if (kOverlaps) simulator::grid->wait_for_previous_kernel();
}
inline void allow_next_kernel() {
    if (kOverlaps) simulator::grid->allow_next_kernel();
}

template <class Shared>
Shared& shared_memory() {
    if (sizeof(Shared) > simulator::grid->shared_bytes)
        simulator::grid->fail("%zu bytes of shared memory, and the launch asked for %zu", sizeof(Shared),
                              simulator::grid->shared_bytes);
    return *reinterpret_cast<Shared*>(simulator::current->warp->block->shared->get());
}

// ---- collectives ---------------------------------------------------------------------------------------------------
inline void sync_block() { simulator::grid->barrier(0, 0); }
template <int kNumber>
void barrier_sync(int threads) {
    simulator::grid->barrier(kNumber, threads);
}
inline void barrier_sync(int number, int threads) { simulator::grid->barrier(number, threads); }
inline uint32 ballot(bool predicate) {
    simulator::Offer offer{simulator::Collective::kBallot, 0, 1, {predicate}};
    simulator::grid->meet(offer);
    return offer.word[0];
}

// Called by whole warps.
inline void cluster_arrive() {
    ballot(true);
    simulator::grid->cluster_arrive();
}
inline void cluster_wait() {
    ballot(true);
    simulator::grid->cluster_wait();
    ballot(true);
}

template <class T>
struct Words {
    static constexpr int kCount = int((sizeof(T) + 3) / 4);
    uint32 word[kCount];
};
template <class T>
Words<T> to_words(const T& value) {
    Words<T> words = {};
    memcpy(&words, &value, sizeof(T));
    return words;
}
template <class T>
T from_words(const Words<T>& words) {
    T value;
    memcpy(&value, &words, sizeof(T));
    return value;
}

template <class T>
T exchanged(const T& value, simulator::Collective kind, int argument) {
    static_assert(sizeof(T) <= sizeof(simulator::Offer::word), "a larger value than lanes exchange");
    simulator::Offer offer{kind, argument, Words<T>::kCount, {}};
    memcpy(offer.word, &value, sizeof(T));
    simulator::grid->meet(offer);
    T other;
    memcpy(&other, offer.word, sizeof(T));
    return other;
}
template <class T>
T shuffle_up(const T& value, int distance) {
    return exchanged(value, simulator::Collective::kShuffleUp, distance);
}
template <class T>
T broadcast(const T& value, int lane) {
    return exchanged(value, simulator::Collective::kBroadcast, lane);
}

template <class T>
T shuffle_xor(const T& value, int mask) {
    return exchanged(value, simulator::Collective::kShuffle, (thread_index() % kWarp) ^ mask);
}
template <class T>
T shuffle(const T& value, int source) {
    return exchanged(value, simulator::Collective::kShuffle, source);
}

inline bool uniform(bool predicate) { return ballot(predicate) != 0; }
inline int uniform(int value) { return broadcast(value, 0); }
inline int count_bits(uint32 bits) { return __builtin_popcount(bits); }
inline int leading_zeros(uint32 bits) { return bits ? __builtin_clz(bits) : 32; }
inline void sync_warp() {
    simulator::grid->release_to_block();
    ballot(true);
}
SIMULATOR_UNWATCHED inline void set_bits(uint32* word, uint32 bits) {
    simulator::grid->maybe_suspend(8);
    simulator::grid->in_order(word, 4);
    *word |= bits;
}

// ---- memory --------------------------------------------------------------------------------------------------------
inline void check_aligned(const void* address, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
        simulator::grid->fail("misaligned access of %zu bytes at an address that is %zu modulo %zu", bytes,
                              size_t(reinterpret_cast<uintptr_t>(address) % bytes), bytes);
}

template <class T>
T load_vector(const T* address) {
    static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0, "no such load");
    check_aligned(address, sizeof(T));
    simulator::grid->check_access(address, sizeof(T));
    simulator::grid->maybe_suspend(8);
    T value;
    memcpy(&value, reinterpret_cast<const char*>(address), sizeof(T));
    return value;
}
template <class T>
void store_vector(T* address, const T& value) {
    static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0, "no such store");
    check_aligned(address, sizeof(T));
    simulator::grid->check_access(address, sizeof(T));
    simulator::grid->maybe_suspend(8);
    simulator::grid->progress();
    memcpy(reinterpret_cast<char*>(address), &value, sizeof(T));
}

// Volatile: the compiler must not keep in a register what another fiber may change.
SIMULATOR_UNWATCHED inline uint64 load_relaxed(const uint64* address) {
    check_aligned(address, 8);
    simulator::grid->maybe_suspend(2);
    return *const_cast<const volatile uint64*>(address);
}
SIMULATOR_UNWATCHED inline void store_relaxed(uint64* address, uint64 value) {
    check_aligned(address, 8);
    simulator::grid->about_to_store(address);
    simulator::grid->in_order(address, sizeof(*address));
    *const_cast<volatile uint64*>(address) = value;
}
// A pair is not atomic: either word can be accessed first.
inline void load_relaxed(const uint64* address, uint64& first, uint64& second) {
    check_aligned(address, 16);
    if (simulator::grid->random().one_in(2)) {
        first = load_relaxed(address);
        second = load_relaxed(address + 1);
    } else {
        second = load_relaxed(address + 1);
        first = load_relaxed(address);
    }
}
inline void load_relaxed(bool wanted, const uint64* address, uint64& word) {
    if (wanted) word = load_relaxed(address);
}
inline void load_relaxed(bool wanted, const uint64* address, uint64& first, uint64& second) {
    if (wanted) load_relaxed(address, first, second);
}
inline void store_relaxed(uint64* address, uint64 first, uint64 second) {
    check_aligned(address, 16);
    if (simulator::grid->random().one_in(2)) {
        store_relaxed(address, first);
        store_relaxed(address + 1, second);
    } else {
        store_relaxed(address + 1, second);
        store_relaxed(address, first);
    }
}

// ---- bulk copies, which arrive some time after their start --------------------------------------------------------
constexpr bool kHasBulkCopy = SIMULATED_ARCH >= 90;

inline int anew(int number) { return number; }
template <class Bits>
void settle(Bits&) {}
inline void fence_before_copies() { simulator::grid->fence_before_copies(); }
inline void fence_after_init() { simulator::grid->release_to_block(); }
inline void store_in_bulk(void* destination, const void* source, uint32 bytes) {
    check_aligned(destination, 16);
    check_aligned(source, 16);
    if (bytes % 16 != 0) simulator::grid->fail("bulk copy of %u bytes, not a multiple of 16", bytes);
    simulator::grid->store_in_bulk(destination, source, bytes);
}

inline void wait_for_bulk_stores() { simulator::grid->wait_for_bulk_stores(); }

struct Barrier {
    simulator::Phase state;

    void init(uint32 arrivals = 1) { state = {0, 0, arrivals, arrivals}; }
    void arrive() { simulator::grid->arrive(state); }
    SIMULATOR_UNWATCHED void expect(uint32 bytes) {
        simulator::grid->in_order(&state, sizeof(state));
        state.expected += bytes;
        simulator::grid->arrive(state);
    }
    void load(void* destination, const void* source, uint32 bytes) {
        check_aligned(destination, 16);
        check_aligned(source, 16);
        if (bytes % 16 != 0) simulator::grid->fail("bulk copy of %u bytes, not a multiple of 16", bytes);
        simulator::grid->load_pieces(destination, source, bytes, state);
    }
    template <class T>
    SIMULATOR_UNWATCHED void load(T* destination, const T* source) {
        static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "no such copy");
        check_aligned(destination, sizeof(T));
        check_aligned(source, sizeof(T));
        simulator::grid->check_access(source, sizeof(T));
        simulator::grid->in_order(&state, sizeof(state));
        state.expected += sizeof(T);
        simulator::grid->load_pieces(destination, source, sizeof(T), state);
    }
    template <class T>
    void send(int block, Words<T>* destination, const Words<T>& words) {
        constexpr int kCount = Words<T>::kCount;
        check_aligned(destination, kCount % 4 == 0 ? 16 : kCount % 2 == 0 ? 8 : 4);
        simulator::grid->send(block, destination, &words, sizeof(words), state);
    }
    void arrive_loaded() { arrive(); }
    // The hardware identifies a phase by its parity; a thread that waits alone may rely on that.
    SIMULATOR_UNWATCHED void wait(uint32 phase) {
        while (state.completed % 2 == (phase & 1)) simulator::grid->suspend();
    }
    // Parity would mislead a wait for a phase after the present one, or for one before the previous one.
    SIMULATOR_UNWATCHED void wait_together(uint32 phase) {
        const int over = int8_t(state.completed - uint8_t(phase));
        if (over < 0 || over > 1)
            simulator::grid->fail("waits for phase %u of a barrier of which %d are over", phase, int(phase) + over);
        wait(phase);
        sync_warp();
    }
};

SIMULATOR_UNWATCHED inline uint32 atomic_increment(uint32* address) {
    simulator::grid->maybe_suspend(2);
    simulator::grid->progress();
    simulator::grid->in_order(address, sizeof(*address));
    return (*address)++;
}
SIMULATOR_UNWATCHED inline uint64 atomic_increment(uint64* address) {
    simulator::grid->maybe_suspend(2);
    simulator::grid->progress();
    simulator::grid->in_order(address, sizeof(*address));
    return (*address)++;
}
SIMULATOR_UNWATCHED inline void atomic_raise(uint64* address, uint64 least) {
    simulator::grid->maybe_suspend(2);
    simulator::grid->in_order(address, sizeof(*address));
    if (*address < least) *address = least;
}
inline void pause(uint32 = 40) { simulator::grid->suspend(); }
inline void fence() {
    simulator::grid->release_to_all();
    simulator::grid->maybe_suspend(2);
}

// ---- arithmetic that C++ does not spell ----------------------------------------------------------------------------
inline uint32 add_bytes(uint32 word, uint32 sum) {
    return sum + (word & 0xff) + (word >> 8 & 0xff) + (word >> 16 & 0xff) + (word >> 24);
}
inline uint32 add_halves(uint32 word, uint32 sum) { return sum + (word & 0xffff) + (word >> 16); }
template <uint32 kSelector>
uint32 pick_bytes(uint32 low, uint32 high) {
    uint32 bytes = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32 digit = kSelector >> 4 * i & 0xf;
        const uint32 byte = uint32((uint64(high) << 32 | low) >> 8 * (digit & 7)) & 0xff;
        bytes |= (digit & 8 ? (byte >> 7) * 0xff : byte) << 8 * i;
    }
    return bytes;
}

inline uint32 word_between(uint32 low, uint32 high, uint32 bits) {
    return uint32((uint64(high) << 32 | low) >> bits % 32);
}
template <bool kSigned, class Choose>
uint32 each_half(uint32 a, uint32 b, Choose choose) {
    using Half = std::conditional_t<kSigned, int16, uint16>;
    return uint32(uint16(choose(Half(a >> 16), Half(b >> 16)))) << 16 | uint16(choose(Half(a), Half(b)));
}
template <bool kSigned>
uint32 larger_halves(uint32 a, uint32 b) {
    return each_half<kSigned>(a, b, [](auto x, auto y) { return x > y ? x : y; });
}
template <bool kSigned>
uint32 smaller_halves(uint32 a, uint32 b) {
    return each_half<kSigned>(a, b, [](auto x, auto y) { return x < y ? x : y; });
}

inline float32 bits_to_float(uint32 bits) {
    float32 value;
    memcpy(&value, &bits, 4);
    return value;
}
inline uint32 float_to_bits(float32 value) {
    uint32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

inline float32 half_to_float(uint16 half) {
    const uint32 sign = uint32(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) return bits_to_float(sign | 0x7f800000u | magnitude << 13);
    if (magnitude >= 0x0400u) return bits_to_float(sign | ((magnitude << 13) + (112u << 23)));
    const float32 subnormal = float32(magnitude) * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}
inline uint16 float_to_half(float32 value) {
    const uint32 bits = float_to_bits(value), magnitude = bits & 0x7fffffffu;
    const uint16 sign = uint16(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // from 65520 on, halfway to 2^16
    if (magnitude < 0x38800000u)  // below 2^-14: the unit of 0.5f is that of a subnormal half, so this sum rounds right
        return uint16(sign | (float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000u));
    return uint16(sign | ((magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13));
}

inline uint16 float_to_bfloat(float32 value) {
    const uint32 bits = float_to_bits(value);
    return value != value ? 0x7fff : uint16((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float32 high_half_to_float(uint32 word) { return half_to_float(uint16(word >> 16)); }
inline uint32 floats_to_halves(float32 low, float32 high) {
    return float_to_half(low) | uint32(float_to_half(high)) << 16;
}
inline uint32 floats_to_bfloats(float32 low, float32 high) {
    return float_to_bfloat(low) | uint32(float_to_bfloat(high)) << 16;
}

inline uint32 upper_bits(float32 value) { return float_to_bits(value); }
inline uint32 upper_bits(float64 value) {
    uint64 bits;
    memcpy(&bits, &value, 8);
    return uint32(bits >> 32);
}
inline float32 with_upper_bits(float32, uint32 bits) { return bits_to_float(bits); }
inline float64 with_upper_bits(float64 value, uint32 upper) {
    uint64 bits;
    memcpy(&bits, &value, 8);
    bits = uint64(upper) << 32 | uint32(bits);
    memcpy(&value, &bits, 8);
    return value;
}

// Simulated kernels are compiled without contraction into fused multiply-adds.
inline float32 add_rn(float32 a, float32 b) { return a + b; }
inline float64 add_rn(float64 a, float64 b) { return a + b; }
inline float32 mul_rn(float32 a, float32 b) { return a * b; }
inline float64 mul_rn(float64 a, float64 b) { return a * b; }

template <class T>
T multiply_add(T a, T b, T c) {
    return std::fma(a, b, c);
}
template <class T>
T smaller_number(T a, T b) {
    return std::fmin(a, b);
}
// As in the hardware: +0 is larger than -0, and every NaN becomes the same one.
template <class T>
T larger_or_nan(T a, T b) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}
template <class T>
T smaller_or_nan(T a, T b) {
    return -larger_or_nan(-a, -b);
}
template <class T>
T distance(T a, T b) {
    return std::abs(a - b);
}
template <class T>
T exponential(T value) {
    return std::exp(value);
}
template <class T>
T add_logarithm(T a, T b) {
    return a + std::log(b);
}

}  // namespace target
}  // namespace cuscan
