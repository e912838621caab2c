// Everything that touches the hardware, behind plain functions: the one header that another GPU, or the
// simulator of the tests, replaces. The rest of the device code is ordinary C++17 on top of it.
// Collectives (shuffle_up, broadcast, ballot) are called by all 32 lanes of a warp together;
// sync_block by all threads of the block.
#pragma once

#define CUSCAN_DEVICE __device__ __forceinline__
#define CUSCAN_KERNEL(threads, blocks_per_sm) extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm)
#define CUSCAN_CLUSTER_KERNEL(blocks, threads, blocks_per_sm) \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, blocks_per_sm)
#define CUSCAN_CONSTANT_ARGUMENT const __grid_constant__
#define CUSCAN_UNROLL _Pragma("unroll")
#define CUSCAN_NO_UNROLL _Pragma("unroll 1")
#define CUSCAN_UNROLL_EIGHT _Pragma("unroll 8")

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

constexpr int kWarp = 32;
// Bytes. Bulk copies are fastest between places in global and in shared memory that are as far beyond a multiple of a line;
// as far beyond a multiple of a sector is better than nothing.
constexpr int kLine = 128, kSector = 32;

// ---- where am I ----------------------------------------------------------------------------------------------------
CUSCAN_DEVICE int thread_index() { return int(threadIdx.x); }
CUSCAN_DEVICE uint32 block_index() { return blockIdx.x; }
CUSCAN_DEVICE uint32 block_count() { return gridDim.x; }

// ---- kernels of a stream ---------------------------------------------------------------------------------------------
// A kernel may begin while those before it in its stream end. By a thread, before it or those that it then meets touch
// memory that others may write, but for a workspace's tickets: waits until all of these are done.
CUSCAN_DEVICE void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// When a thread of each block has said so (or the block has returned), the next kernel may begin, if there is room beside
// this one.
CUSCAN_DEVICE void allow_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The block's shared memory as one struct; uninitialised. The launch has to ask for as many bytes.
template <class Shared>
CUSCAN_DEVICE Shared& shared_memory() {
    extern __shared__ __align__(kLine) uint4 cuscan_shared_memory[];
    return *reinterpret_cast<Shared*>(cuscan_shared_memory);
}

// ---- collectives ---------------------------------------------------------------------------------------------------
CUSCAN_DEVICE void sync_block() { __syncthreads(); }
// Barriers of some warps of a block, or of all from different places in the code; `threads` in all, by number (1 to 15).
// Called by whole warps, which these instructions expect to find together. A number in a register makes a block take all 16
// barriers, of which an SM has few.
template <int kNumber>
CUSCAN_DEVICE void barrier_sync(int threads) {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"n"(kNumber), "r"(threads) : "memory");
}
CUSCAN_DEVICE void barrier_sync(int number, int threads) {  // in a kernel that has an SM to itself
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// All blocks of a cluster, by all of their threads that have not returned: who has waited knows that all have arrived, and
// that their barriers (below) are ready. It need not know more: what threads did to memory before takes time to be seen.
CUSCAN_DEVICE void cluster_arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
CUSCAN_DEVICE void cluster_wait() {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
CUSCAN_DEVICE uint32 ballot(bool predicate) { return __ballot_sync(~0u, predicate); }

// A value of any type as 32-bit words, so that shuffles and tile states need no case for each type.
template <class T>
struct Words {
    static constexpr int kCount = int((sizeof(T) + 3) / 4);
    uint32 word[kCount];
};
template <class T>
CUSCAN_DEVICE Words<T> to_words(const T& value) {
    Words<T> words = {};
    memcpy(&words, &value, sizeof(T));
    return words;
}
template <class T>
CUSCAN_DEVICE T from_words(const Words<T>& words) {
    T value;
    memcpy(&value, &words, sizeof(T));
    return value;
}

// The value of the lane `distance` below; the lane's own value where there is none.
template <class T>
CUSCAN_DEVICE T shuffle_up(const T& value, int distance) {
    Words<T> words = to_words(value);
    CUSCAN_UNROLL
    for (int i = 0; i < Words<T>::kCount; ++i) words.word[i] = __shfl_up_sync(~0u, words.word[i], distance);
    return from_words<T>(words);
}

// The value of the lane whose number differs in the bits of `mask`.
template <class T>
CUSCAN_DEVICE T shuffle_xor(const T& value, int mask) {
    Words<T> words = to_words(value);
    CUSCAN_UNROLL
    for (int i = 0; i < Words<T>::kCount; ++i) words.word[i] = __shfl_xor_sync(~0u, words.word[i], mask);
    return from_words<T>(words);
}

// The value of lane `lane`, in every lane.
template <class T>
CUSCAN_DEVICE T broadcast(const T& value, int lane) {
    Words<T> words = to_words(value);
    CUSCAN_UNROLL
    for (int i = 0; i < Words<T>::kCount; ++i) words.word[i] = __shfl_sync(~0u, words.word[i], lane);
    return from_words<T>(words);
}

// The value of lane `source`, which each lane chooses for itself.
template <class T>
CUSCAN_DEVICE T shuffle(const T& value, int source) {
    Words<T> words = to_words(value);
    CUSCAN_UNROLL
    for (int i = 0; i < Words<T>::kCount; ++i) words.word[i] = __shfl_sync(~0u, words.word[i], source);
    return from_words<T>(words);
}

// What is the same in all lanes, as the compiler then knows: it need not care for lanes that go different ways.
CUSCAN_DEVICE bool uniform(bool predicate) { return ballot(predicate) != 0; }
CUSCAN_DEVICE int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// The same number, from which all is computed anew: the compiler would keep it in registers, of which there are too few.
CUSCAN_DEVICE int anew(int number) {
    asm volatile("" : "+r"(number));
    return number;
}

CUSCAN_DEVICE int count_bits(uint32 bits) { return __popc(bits); }
CUSCAN_DEVICE void sync_warp() { __syncwarp(); }
// For words of shared memory that lanes of one warp set bits of.
CUSCAN_DEVICE void set_bits(uint32* word, uint32 bits) { atomicOr(word, bits); }

// ---- memory --------------------------------------------------------------------------------------------------------
template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
    using type = uint8;
};
template <>
struct WordOf<2> {
    using type = uint16;
};
template <>
struct WordOf<4> {
    using type = uint32;
};
template <>
struct WordOf<8> {
    using type = uint2;
};
template <>
struct WordOf<16> {
    using type = uint4;
};

// One load or store of sizeof(T) = 1, 2, 4, 8 or 16 bytes, aligned to its size. No hint to the caches here or in bulk
// copies: a scan that brings in lines to be evicted first finds no room beside the lines that other kernels have left.
// These are the default accesses, by name: the compiler does not move them as it moves plain ones, which spills registers.
template <class T>
CUSCAN_DEVICE T load_vector(const T* address) {
    using Word = typename WordOf<sizeof(T)>::type;
    Word word = __ldca(reinterpret_cast<const Word*>(address));
    T value;
    memcpy(&value, &word, sizeof(T));
    return value;
}
template <class T>
CUSCAN_DEVICE void store_vector(T* address, const T& value) {
    using Word = typename WordOf<sizeof(T)>::type;
    Word word;
    memcpy(&word, &value, sizeof(T));
    __stwb(reinterpret_cast<Word*>(address), word);
}
// Relaxed, device-wide: for words that another block writes or reads meanwhile.
CUSCAN_DEVICE uint64 load_relaxed(const uint64* address) {
    uint64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}
CUSCAN_DEVICE void store_relaxed(uint64* address, uint64 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
// Two words in one access; each is whole, the pair may tear.
CUSCAN_DEVICE void load_relaxed(const uint64* address, uint64& first, uint64& second) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(address) : "memory");
}
// The same if they are wanted, without a branch: loads after a branch would wait for those before it.
CUSCAN_DEVICE void load_relaxed(bool wanted, const uint64* address, uint64& word) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %2, 0;\n"
        "@p ld.relaxed.gpu.global.u64 %0, [%1]; }"
        : "+l"(word)
        : "l"(address), "r"(uint32(wanted))
        : "memory");
}
CUSCAN_DEVICE void load_relaxed(bool wanted, const uint64* address, uint64& first, uint64& second) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %3, 0;\n"
        "@p ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2]; }"
        : "+l"(first), "+l"(second)
        : "l"(address), "r"(uint32(wanted))
        : "memory");
}
CUSCAN_DEVICE void store_relaxed(uint64* address, uint64 first, uint64 second) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(address), "l"(first), "l"(second) : "memory");
}
CUSCAN_DEVICE uint32 atomic_increment(uint32* address) { return atomicAdd(address, 1u); }
CUSCAN_DEVICE uint64 atomic_increment(uint64* address) { return atomicAdd(address, 1ull); }
CUSCAN_DEVICE void atomic_raise(uint64* address, uint64 least) { atomicMax(address, least); }
// Between two looks at a word that is not there yet: leaves the memory to those who will write it.
CUSCAN_DEVICE void pause() { __nanosleep(40); }
CUSCAN_DEVICE void fence() { __threadfence(); }

// ---- copies from global to shared memory that nobody waits for until a barrier says so ------------------------------
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kHasBulkCopy = true;
#else
constexpr bool kHasBulkCopy = false;
#endif

CUSCAN_DEVICE uint32 shared_address(const void* pointer) { return uint32(__cvta_generic_to_shared(pointer)); }

// Before bulk copies to where threads have read or written.
CUSCAN_DEVICE void fence_before_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// From shared to global memory, by one thread, when those that wrote the source have called fence_before_copies, and met;
// `bytes`, source and destination are multiples of 16.
CUSCAN_DEVICE void store_in_bulk(void* destination, const void* source, uint32 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination),
                 "r"(shared_address(source)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
// Until the sources of all that this thread has staged have been read.
CUSCAN_DEVICE void wait_for_bulk_stores() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}
// By threads that have made barriers.
CUSCAN_DEVICE void fence_after_init() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Lives in shared memory. Phase after phase, counted from 0, it waits for `arrivals` of threads and for the bytes that one
// of them expects. All that the arriving threads did before is seen by those who have waited. One thread calls init, and
// fence_after_init before others may know; nobody may wait for a phase before the one before it is over.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
struct Barrier {
    uint64 state;

    CUSCAN_DEVICE void init(uint32 arrivals = 1) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(arrivals) : "memory");
    }
    CUSCAN_DEVICE void arrive() {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&state)) : "memory");
    }
    // Arrives, and makes the phase wait for the bytes of copies, or of words that other threads send.
    CUSCAN_DEVICE void expect(uint32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(bytes)
                     : "memory");
    }
    // `bytes`, source and destination are multiples of 16.
    CUSCAN_DEVICE void load(void* destination, const void* source, uint32 bytes) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(destination)),
                     "l"(source), "r"(bytes), "r"(shared_address(&state))
                     : "memory");
    }
    // A thread's own copy of sizeof(T) = 4, 8 or 16 bytes, source and destination aligned to them.
    template <class T>
    CUSCAN_DEVICE void load(T* destination, const T* source) {
        if constexpr (sizeof(T) == 16)
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(destination)), "l"(source)
                         : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(destination)), "l"(source),
                         "n"(int(sizeof(T)))
                         : "memory");
    }
    // Words to the same place in the shared memory of block `block` of the cluster, whose barrier of this place expects
    // their bytes. The destination is aligned to 16 bytes, or to the largest power of two that divides its size.
    template <class T>
    CUSCAN_DEVICE void send(int block, Words<T>* destination, const Words<T>& words) {
        constexpr int kCount = Words<T>::kCount, kStep = kCount % 4 == 0 ? 4 : kCount % 2 == 0 ? 2 : 1;
        const uint32 barrier = address_in(block, &state), place = address_in(block, destination);
        CUSCAN_UNROLL
        for (int i = 0; i < kCount; i += kStep) {
            if constexpr (kStep == 4)
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(
                        place + 4 * i),
                    "r"(barrier), "r"(words.word[i]), "r"(words.word[i + 1]), "r"(words.word[i + 2]), "r"(words.word[i + 3])
                    : "memory");
            else if constexpr (kStep == 2)
                asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%2, %3}, [%1];" ::"r"(
                                 place + 4 * i),
                             "r"(barrier), "r"(words.word[i]), "r"(words.word[i + 1])
                             : "memory");
            else
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %2, [%1];" ::"r"(place + 4 * i),
                    "r"(barrier), "r"(words.word[i])
                    : "memory");
        }
    }
    // Arrives when all copies of this thread have.
    CUSCAN_DEVICE void arrive_loaded() {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&state)) : "memory");
    }
    // By threads on their own, or (together) by a whole warp: then the compiler can rely on all going on together.
    CUSCAN_DEVICE void wait(uint32 phase) {
        while (!is_over(phase)) {
        }
    }
    CUSCAN_DEVICE void wait_together(uint32 phase) {
        while (ballot(is_over(phase)) != ~0u) {
        }
    }

private:
    // Where what is at `pointer` in this block's shared memory is in that of another block of the cluster.
    static CUSCAN_DEVICE uint32 address_in(int block, const void* pointer) {
        uint32 address;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(block));
        return address;
    }
    CUSCAN_DEVICE bool is_over(uint32 phase) {
        uint32 over;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(shared_address(&state)), "r"(phase & 1)
                     : "memory");
        return over;
    }
};
#else
// The same without bulk copies.
struct Barrier {
    uint32 arrivals, arrived;

    CUSCAN_DEVICE void init(uint32 of_a_phase = 1) { arrivals = of_a_phase, arrived = 0; }
    CUSCAN_DEVICE void arrive() {
        __threadfence_block();
        atomicAdd(&arrived, 1u);
    }
    CUSCAN_DEVICE void expect(uint32) {}
    CUSCAN_DEVICE void load(void*, const void*, uint32) {}
    template <class T>
    CUSCAN_DEVICE void load(T* destination, const T* source) {
        *destination = *source;
    }
    CUSCAN_DEVICE void arrive_loaded() { arrive(); }
    CUSCAN_DEVICE void wait(uint32 phase) {
        while (!is_over(phase)) {
        }
        __threadfence_block();
    }
    CUSCAN_DEVICE void wait_together(uint32 phase) {
        while (ballot(is_over(phase)) != ~0u) {
        }
        __threadfence_block();
    }

private:
    CUSCAN_DEVICE bool is_over(uint32 phase) {
        const volatile uint32& so_far = arrived;
        return int32(so_far - (phase + 1) * arrivals) >= 0;
    }
};
#endif

// ---- arithmetic that C++ does not spell ----------------------------------------------------------------------------
// `sum` and the four bytes, or the two halves, of a word.
CUSCAN_DEVICE uint32 add_bytes(uint32 word, uint32 sum) { return __dp4a(word, 0x01010101u, sum); }
CUSCAN_DEVICE uint32 add_halves(uint32 word, uint32 sum) { return __dp2a_lo(word, 0x0101u, sum); }
// Four of the eight bytes of two words. The selector has a digit for each, the lowest byte's last: 0 to 3 of `low`, 4 to 7
// of `high`; and 8 more for the byte's top bit in place of all its bits.
template <uint32 kSelector>
CUSCAN_DEVICE uint32 pick_bytes(uint32 low, uint32 high) {
    uint32 bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "n"(kSelector));
    return bytes;
}

CUSCAN_DEVICE float32 half_to_float(uint16 bits) {
    float32 value;
    asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(value) : "h"(bits));
    return value;
}
CUSCAN_DEVICE float32 high_half_to_float(uint32 word) {
    float32 value;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }" : "=f"(value) : "r"(word));
    return value;
}
CUSCAN_DEVICE uint16 float_to_half(float32 value) {
    uint16 bits;
    asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(bits) : "f"(value));
    return bits;
}
CUSCAN_DEVICE float32 bits_to_float(uint32 bits) { return __uint_as_float(bits); }
CUSCAN_DEVICE uint32 float_to_bits(float32 value) { return __float_as_uint(value); }
// To the nearest, of two the even one.
CUSCAN_DEVICE uint16 float_to_bfloat(float32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const uint32 bits = float_to_bits(value);
    return value != value ? 0x7fff : uint16((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

// Both of a word, the first in its low half.
CUSCAN_DEVICE uint32 floats_to_halves(float32 low, float32 high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return float_to_half(low) | uint32(float_to_half(high)) << 16;
#endif
}
CUSCAN_DEVICE uint32 floats_to_bfloats(float32 low, float32 high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return float_to_bfloat(low) | uint32(float_to_bfloat(high)) << 16;
#endif
}

// IEEE sums and products that are never contracted to a fused multiply-add, so that a scan has the same bits everywhere.
CUSCAN_DEVICE float32 add_rn(float32 a, float32 b) { return __fadd_rn(a, b); }
CUSCAN_DEVICE float64 add_rn(float64 a, float64 b) { return __dadd_rn(a, b); }
CUSCAN_DEVICE float32 mul_rn(float32 a, float32 b) { return __fmul_rn(a, b); }
CUSCAN_DEVICE float64 mul_rn(float64 a, float64 b) { return __dmul_rn(a, b); }

// For sums that need not have the bits of another machine's.
CUSCAN_DEVICE float32 multiply_add(float32 a, float32 b, float32 c) { return __fmaf_rn(a, b, c); }
CUSCAN_DEVICE float64 multiply_add(float64 a, float64 b, float64 c) { return __fma_rn(a, b, c); }
// The smaller of two numbers; of a number and a NaN the number.
CUSCAN_DEVICE float32 smaller_number(float32 a, float32 b) { return fminf(a, b); }
CUSCAN_DEVICE float64 smaller_number(float64 a, float64 b) { return fmin(a, b); }
// The larger, or smaller, of two numbers, either one of two zeros, or a NaN where there is one.
CUSCAN_DEVICE float32 larger_or_nan(float32 a, float32 b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float32 larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return a >= b || a != a ? a : b;
#endif
}
CUSCAN_DEVICE float32 smaller_or_nan(float32 a, float32 b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float32 smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
#else
    return a <= b || a != a ? a : b;
#endif
}
CUSCAN_DEVICE float64 larger_or_nan(float64 a, float64 b) { return a >= b || a != a ? a : b; }
CUSCAN_DEVICE float32 distance(float32 a, float32 b) { return fabsf(a - b); }
CUSCAN_DEVICE float64 distance(float64 a, float64 b) { return fabs(a - b); }

// exp of numbers that are not positive, to a few units of its last place, but what is next to nothing: one instruction of
// the special-function unit, and one more.
CUSCAN_DEVICE float32 exponential(float32 value) {
    float32 power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value * 1.4426950408889634f));
    return power;
}
// In fewer steps that wait for one another than those of exp: 2^n times a polynomial, fitted at the Chebyshev points of
// |rest| <= ln(2) / 2, whose terms are found side by side. e^-700 stands for all that is less.
CUSCAN_DEVICE float64 exponential(float64 value) {
    constexpr float64 kShift = 6755399441055744.0;  // 1.5 * 2^52: what is added to it is rounded to an integer
    const float64 number = fmax(value, -700.0);
    const float64 shifted = __fma_rn(number, 1.4426950408889634, kShift), n = shifted - kShift;
    const float64 rest = __fma_rn(n, -1.9082149292705877e-10, __fma_rn(n, -0.6931471803691238, number));
    const float64 second = rest * rest, fourth = second * second;
    const float64 from_2 = __fma_rn(second, __fma_rn(rest, 0.008333333333319601, 0.0416666666664881),
                                    __fma_rn(rest, 0.1666666666666668, 0.5000000000000019));
    const float64 from_6 = __fma_rn(second, __fma_rn(rest, 2.755724091857897e-06, 2.4801485482328494e-05),
                                    __fma_rn(rest, 0.00019841269890047113, 0.0013888888952314775));
    const float64 from_10 = __fma_rn(rest, 2.5110037605963777e-08, 2.763263963904103e-07);
    const float64 tail = __fma_rn(fourth * fourth, from_10, __fma_rn(fourth, from_6, from_2));
    const float64 power = 1.0 + __fma_rn(second, tail, rest);
    return __hiloint2double(__double2hiint(power) + (__double2loint(shifted) << 20), __double2loint(power));
}
// a + log(b), for b that are 0 or not less than 1: log to 2^-22 of its own value or of 1, whichever is more.
CUSCAN_DEVICE float32 add_logarithm(float32 a, float32 b) {
    float32 log2;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(b));
    return __fmaf_rn(log2, 0.6931471805599453f, a);
}
CUSCAN_DEVICE float64 add_logarithm(float64 a, float64 b) { return a + log(b); }

}  // namespace target
}  // namespace cuscan
