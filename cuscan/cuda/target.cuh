// All hardware access, behind plain functions. A port to another GPU, or the simulator in the tests, replaces this
// header; the rest of the device code is ordinary C++17 on top of it. All 32 lanes of a warp call the collectives
// (shuffle_up, broadcast, ballot, ...) together; all threads of a block call sync_block.
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
// Bytes. Bulk copies are fastest if source and destination have the same offset within a line; the same offset within a
// sector is second best.
constexpr int kLine = 128, kSector = 32;

// ---- thread and block indices --------------------------------------------------------------------------------------
CUSCAN_DEVICE int thread_index() { return int(threadIdx.x); }
CUSCAN_DEVICE uint32 block_index() { return blockIdx.x; }
CUSCAN_DEVICE uint32 block_count() { return gridDim.x; }

// ---- programmatic dependent launch ---------------------------------------------------------------------------------
// A kernel may begin while earlier kernels of its stream are still running. This function waits until they have
// completed. A thread calls it before it, or any thread that it then synchronises with, touches memory that other
// kernels may write; only the tickets of a workspace are exempt.
CUSCAN_DEVICE void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may begin, if resources allow, once a thread of every block has called this or the block has
// returned.
CUSCAN_DEVICE void allow_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The block's dynamic shared memory as one struct, uninitialised. The launch must request at least sizeof(Shared)
// bytes.
template <class Shared>
CUSCAN_DEVICE Shared& shared_memory() {
    extern __shared__ __align__(kLine) uint4 cuscan_shared_memory[];
    return *reinterpret_cast<Shared*>(cuscan_shared_memory);
}

// ---- collectives ---------------------------------------------------------------------------------------------------
CUSCAN_DEVICE void sync_block() { __syncthreads(); }
// Named barriers (1 to 15) for `threads` threads: some warps of a block, or all of them from different places in the
// code. Whole, converged warps call them. A number in a register makes the compiler reserve all 16 barriers for the
// block, and an SM has few.
template <int kNumber>
CUSCAN_DEVICE void barrier_sync(int threads) {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"n"(kNumber), "r"(threads) : "memory");
}
CUSCAN_DEVICE void barrier_sync(int number, int threads) {  // for kernels with one block per SM
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// Cluster-wide barrier, for all threads of the cluster that have not returned. After the wait, all threads have arrived
// and their mbarriers (below) are initialised. The arrival is relaxed, because publishing earlier writes would take
// time and no caller depends on them.
CUSCAN_DEVICE void cluster_arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
CUSCAN_DEVICE void cluster_wait() {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
CUSCAN_DEVICE uint32 ballot(bool predicate) { return __ballot_sync(~0u, predicate); }

// A value of any type as 32-bit words, so that shuffles and published values need no overload per type.
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

// The value of the lane `distance` below; the calling lane's own value if there is no such lane.
template <class T>
CUSCAN_DEVICE T shuffle_up(const T& value, int distance) {
    Words<T> words = to_words(value);
    CUSCAN_UNROLL
    for (int i = 0; i < Words<T>::kCount; ++i) words.word[i] = __shfl_up_sync(~0u, words.word[i], distance);
    return from_words<T>(words);
}

// The value of lane (own lane ^ mask).
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

// The value of lane `source`, which may differ from lane to lane.
template <class T>
CUSCAN_DEVICE T shuffle(const T& value, int source) {
    Words<T> words = to_words(value);
    CUSCAN_UNROLL
    for (int i = 0; i < Words<T>::kCount; ++i) words.word[i] = __shfl_sync(~0u, words.word[i], source);
    return from_words<T>(words);
}

// A value that is equal in all lanes, in a form that the compiler recognises as uniform, so that it need not handle
// divergence.
CUSCAN_DEVICE bool uniform(bool predicate) { return ballot(predicate) != 0; }
CUSCAN_DEVICE int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// Returns `number`, opaque to the compiler: values derived from it are recomputed and do not occupy registers
// meanwhile.
CUSCAN_DEVICE int anew(int number) {
    asm volatile("" : "+r"(number));
    return number;
}

// Makes a vector opaque to the compiler: it is computed before this, whether or not it is used.
template <class Bits>
CUSCAN_DEVICE void settle(Bits& bits) {
    if constexpr (sizeof(Bits) % 4 == 0) {
        CUSCAN_UNROLL
        for (int w = 0; w < int(sizeof(Bits)) / 4; ++w) asm volatile("" : "+r"(((uint32*)&bits)[w]));
    } else if constexpr (sizeof(Bits) == 2) {
        asm volatile("" : "+h"(*(uint16*)&bits));
    } else {
        static_assert(sizeof(Bits) == 1, "");
        uint16 wide = *(uint8*)&bits;
        asm volatile("" : "+h"(wide));
        *(uint8*)&bits = uint8(wide);
    }
}

CUSCAN_DEVICE int count_bits(uint32 bits) { return __popc(bits); }
CUSCAN_DEVICE int leading_zeros(uint32 bits) { return __clz(int(bits)); }  // 32 if there is no one
CUSCAN_DEVICE void sync_warp() { __syncwarp(); }
// Sets bits of a word in shared memory that several lanes of a warp update.
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

// One load or store of sizeof(T) = 1, 2, 4, 8 or 16 bytes, aligned to its size. Neither these nor the bulk copies have
// cache hints: evict-first lines find no room beside the lines that other kernels have left in the cache. The
// intrinsics are the default accesses spelled out: the compiler reorders plain accesses, and then spills registers.
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
// Relaxed, device scope: for words that other blocks access concurrently.
CUSCAN_DEVICE uint64 load_relaxed(const uint64* address) {
    uint64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}
CUSCAN_DEVICE void store_relaxed(uint64* address, uint64 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
// Two words in one access. Each word is atomic; the pair may tear.
CUSCAN_DEVICE void load_relaxed(const uint64* address, uint64& first, uint64& second) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(address) : "memory");
}
// Predicated loads, without a branch: loads after a branch would wait for the loads before it. If not `wanted`, the
// words keep their values.
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
// Back-off between two polls of a word that is not published yet: leaves memory bandwidth to its writer.
CUSCAN_DEVICE void pause(uint32 nanoseconds = 40) { __nanosleep(nanoseconds); }
CUSCAN_DEVICE void fence() { __threadfence(); }

// ---- asynchronous copies between global and shared memory -----------------------------------------------------------
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kHasBulkCopy = true;
#else
constexpr bool kHasBulkCopy = false;
#endif

CUSCAN_DEVICE uint32 shared_address(const void* pointer) { return uint32(__cvta_generic_to_shared(pointer)); }

// Orders earlier reads and writes of shared memory by threads before later bulk copies.
CUSCAN_DEVICE void fence_before_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Bulk copy from shared to global memory, by one thread, after the threads that wrote the source have called
// fence_before_copies and synchronised. `bytes`, source and destination are multiples of 16.
CUSCAN_DEVICE void store_in_bulk(void* destination, const void* source, uint32 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination),
                 "r"(shared_address(source)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
// Waits until the sources of all bulk stores of this thread have been read.
CUSCAN_DEVICE void wait_for_bulk_stores() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}
// Called by a thread after it has initialised mbarriers.
CUSCAN_DEVICE void fence_after_init() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// An mbarrier in shared memory. Phases count from 0; each completes after `arrivals` arrivals and after the bytes that
// one of them expects. Writes before an arrival are visible after a wait. One thread calls init and fence_after_init
// before other threads use the barrier. A thread may wait for a phase only after the previous phase has completed.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
struct Barrier {
    uint64 state;

    CUSCAN_DEVICE void init(uint32 arrivals = 1) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(arrivals) : "memory");
    }
    CUSCAN_DEVICE void arrive() {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&state)) : "memory");
    }
    // Arrives, and makes the phase wait for `bytes` more bytes of copies, or of words that other threads send.
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
    // Asynchronous copy of sizeof(T) = 4, 8 or 16 bytes by the calling thread; source and destination are aligned to
    // the size.
    template <class T>
    CUSCAN_DEVICE void load(T* destination, const T* source) {
        if constexpr (sizeof(T) == 16)
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(destination)),
                         "l"(source)
                         : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(destination)), "l"(source),
                         "n"(int(sizeof(T)))
                         : "memory");
    }
    // Sends words to the corresponding address in the shared memory of block `block` of the cluster. The barrier at
    // this barrier's address in that block expects their bytes. The destination is aligned to 16 bytes, or to the
    // largest power of two that divides its size.
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
                    "r"(barrier), "r"(words.word[i]), "r"(words.word[i + 1]), "r"(words.word[i + 2]),
                    "r"(words.word[i + 3])
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
    // Arrives once all copies of this thread have completed.
    CUSCAN_DEVICE void arrive_loaded() {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&state)) : "memory");
    }
    // `wait` is for single threads. `wait_together` is for a whole warp, which the compiler then treats as converged.
    CUSCAN_DEVICE void wait(uint32 phase) {
        while (!is_over(phase)) {
        }
    }
    CUSCAN_DEVICE void wait_together(uint32 phase) {
        while (ballot(is_over(phase)) != ~0u) {
        }
    }

private:
    // The address in the shared memory of block `block` that corresponds to `pointer` in this block's.
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
// The same without mbarriers and bulk copies: copies of single elements are synchronous.
struct Barrier {
    uint32 arrivals, arrived;

    CUSCAN_DEVICE void init(uint32 of_a_phase = 1) { arrivals = of_a_phase, arrived = 0; }
    CUSCAN_DEVICE void arrive() {
        __threadfence_block();
        atomicAdd(&arrived, 1u);
    }
    CUSCAN_DEVICE void expect(uint32) { arrive(); }
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

// ---- arithmetic that C++ does not express --------------------------------------------------------------------------
// `sum` plus the four bytes, or the two halves, of a word.
CUSCAN_DEVICE uint32 add_bytes(uint32 word, uint32 sum) { return __dp4a(word, 0x01010101u, sum); }
CUSCAN_DEVICE uint32 add_halves(uint32 word, uint32 sum) { return __dp2a_lo(word, 0x0101u, sum); }
// Selects four of the eight bytes of two words. The selector has a hex digit per result byte, the lowest byte last: 0
// to 3 for `low`, 4 to 7 for `high`; plus 8 to replicate the byte's top bit in place of the byte.
template <uint32 kSelector>
CUSCAN_DEVICE uint32 pick_bytes(uint32 low, uint32 high) {
    uint32 bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "n"(kSelector));
    return bytes;
}

// The word that begins `bits` modulo 32 bits behind the beginning of `low`, which `high` follows.
CUSCAN_DEVICE uint32 word_between(uint32 low, uint32 high, uint32 bits) { return __funnelshift_r(low, high, bits); }
// The larger, or smaller, of 16-bit integers, two to a word.
template <bool kSigned>
CUSCAN_DEVICE uint32 larger_halves(uint32 a, uint32 b) {
    return kSigned ? __vmaxs2(a, b) : __vmaxu2(a, b);
}
template <bool kSigned>
CUSCAN_DEVICE uint32 smaller_halves(uint32 a, uint32 b) {
    return kSigned ? __vmins2(a, b) : __vminu2(a, b);
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
// Rounds to nearest, ties to even.
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

// Two values packed into a word, the first in its low half.
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

// IEEE sums and products, never contracted to a fused multiply-add, so that a scan gives the same bits everywhere.
CUSCAN_DEVICE float32 add_rn(float32 a, float32 b) { return __fadd_rn(a, b); }
CUSCAN_DEVICE float64 add_rn(float64 a, float64 b) { return __dadd_rn(a, b); }
CUSCAN_DEVICE float32 mul_rn(float32 a, float32 b) { return __fmul_rn(a, b); }
CUSCAN_DEVICE float64 mul_rn(float64 a, float64 b) { return __dmul_rn(a, b); }

// Fused multiply-add, for sums whose bits need not match another machine's.
CUSCAN_DEVICE float32 multiply_add(float32 a, float32 b, float32 c) { return __fmaf_rn(a, b, c); }
CUSCAN_DEVICE float64 multiply_add(float64 a, float64 b, float64 c) { return __fma_rn(a, b, c); }
// The smaller of two numbers; for a number and a NaN, the number.
CUSCAN_DEVICE float32 smaller_number(float32 a, float32 b) { return fminf(a, b); }
CUSCAN_DEVICE float64 smaller_number(float64 a, float64 b) { return fmin(a, b); }
CUSCAN_DEVICE uint32 upper_bits(float32 value) { return __float_as_uint(value); }
CUSCAN_DEVICE uint32 upper_bits(float64 value) { return uint32(__double2hiint(value)); }
CUSCAN_DEVICE float32 with_upper_bits(float32, uint32 bits) { return __uint_as_float(bits); }
CUSCAN_DEVICE float64 with_upper_bits(float64 value, uint32 bits) {
    return __hiloint2double(int(bits), __double2loint(value));
}
// True for -0 and +0. For float64, which is compared by its upper half, also for tiny numbers of these signs, where the
// order is the same.
template <class T>
CUSCAN_DEVICE bool are_zeros(T negative, T positive) {
    return ((upper_bits(negative) ^ 0x80000000u) | upper_bits(positive)) == 0;
}
// The larger, or smaller, of two numbers; -0 is less than +0. A NaN if either argument is one.
template <class T>
CUSCAN_DEVICE T larger_or_nan(T a, T b) {
    return (a >= b || a != a) && !are_zeros(a, b) ? a : b;
}
template <class T>
CUSCAN_DEVICE T smaller_or_nan(T a, T b) {
    return (a <= b || a != a) && !are_zeros(b, a) ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <>
CUSCAN_DEVICE float32 larger_or_nan(float32 a, float32 b) {
    float32 larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}
template <>
CUSCAN_DEVICE float32 smaller_or_nan(float32 a, float32 b) {
    float32 smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
}
#endif
CUSCAN_DEVICE float32 distance(float32 a, float32 b) { return fabsf(a - b); }
CUSCAN_DEVICE float64 distance(float64 a, float64 b) { return fabs(a - b); }

// exp of a number <= 0, accurate to a few ulps except where the result is negligible: one instruction of the
// special-function unit and one multiplication.
CUSCAN_DEVICE float32 exponential(float32 value) {
    float32 power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value * 1.4426950408889634f));
    return power;
}
// A shorter dependency chain than exp's: 2^n times a polynomial, fitted at the Chebyshev points of |rest| <= ln(2) / 2,
// whose terms are independent. Arguments below -700 give e^-700.
CUSCAN_DEVICE float64 exponential(float64 value) {
    constexpr float64 kShift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
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
// a + log(b), for b = 0 or b >= 1. The error of log is at most 2^-22 of max(|log(b)|, 1).
CUSCAN_DEVICE float32 add_logarithm(float32 a, float32 b) {
    float32 log2;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(b));
    return __fmaf_rn(log2, 0.6931471805599453f, a);
}
CUSCAN_DEVICE float64 add_logarithm(float64 a, float64 b) { return a + log(b); }

}  // namespace target
}  // namespace cuscan
