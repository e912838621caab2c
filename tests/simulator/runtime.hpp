// A kernel launch on one CPU thread. Every GPU thread is a fiber. A fiber runs until it calls a function of target.cuh
// with an effect that other threads can observe; then a seeded scheduler chooses who runs next. Some blocks are
// resident at a time, and a random warp of theirs has a turn. Now and then a warp or a block stalls for so long that
// the others run far ahead.
//
// What hangs on a GPU, or goes wrong there in silence, fails here with a message: lanes of a warp in different
// collectives; a barrier that a thread skips by leaving the kernel; a misaligned access; an access beyond an array;
// words sent to a block that has not begun or has returned; endless waiting.
//
// Launches overlap: a launch may begin once every block of the previous one has called allow_next_kernel or returned,
// and before the first launch another kernel still runs for a while. Until the previous launch ends, the arrays that a
// launch reads and writes contain other bytes.
//
// Kernels compiled with -fsanitize=thread report their plain accesses to global and shared memory (watch). Their stores
// reach other threads late and in any order: threads of the same block see them once the storing thread arrives at a
// barrier; other blocks see them once a thread of the block fences, or when the launch ends, some time after its last
// block has returned. Until then the bytes are swapped with the old ones whenever another thread runs. Loads are never
// early. With -fsanitize=alignment they also report misaligned accesses, which a GPU refuses.
#pragma once
#include <setjmp.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

namespace simulator {

// The accesses of such a function are never reported.
#define SIMULATOR_UNWATCHED __attribute__((no_sanitize_thread))

constexpr int kWarp = 32;
constexpr int kWords = 12;  // words of the largest value that lanes exchange
constexpr size_t kStackBytes = 64 << 10;
constexpr unsigned char kPoison = 0xA5;
constexpr unsigned char kEarly = 0x5B;  // byte of late arrays before their time
constexpr size_t kSharedAlignment = 128;

// An array of a launch.
struct Array {
    uint64_t from, to;  // addresses
    uint32_t launch;
    uint32_t late;  // 1: the previous launch writes it until its end
};

// How a launch is scheduled; __init__.py has the same struct.
struct Schedule {
    uint64_t seed;
    uint64_t patience;      // a hang: so many turns without an exit, an atomic, an arrival, a relaxed or a vector store
    uint32_t resident;      // number of blocks resident at a time, at least one cluster
    uint32_t shuffled;      // 1: blocks start in random order
    uint32_t stall_odds;    // after one turn in so many, a warp or a block stalls; 0: never
    uint32_t stall_turns;   // the longest stall
    uint32_t shared_bytes;  // per block
    uint64_t hold_from, hold_to;  // addresses; a warp about to store between them stalls for stall_turns
    const Array* arrays;          // what threads may access beside the workspace; none: any bytes
    uint32_t array_count;
    uint32_t launches;                      // overlapping launches of the kernel
    uint64_t first_turn;                    // turn in which the kernel before the first launch ends
    uint64_t workspace_from, workspace_to;  // addresses
    uint32_t first_block;                   // earlier blocks do not run
};

struct Random {  // splitmix64
    uint64_t state;

    uint64_t next() {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    uint32_t below(uint32_t limit) { return uint32_t((next() >> 32) * limit >> 32); }
    bool one_in(uint32_t odds) { return odds != 0 && below(odds) == 0; }
};

constexpr int kBarriers = 16;  // named barriers of a block

enum class State { kRunnable, kCollective, kBarrier, kExited };
enum class Collective { kShuffleUp, kBroadcast, kShuffle, kBallot };

// What a lane passes to a collective, and afterwards what it gets from it.
struct Offer {
    Collective kind;
    int argument;
    int count;
    uint32_t word[kWords];

    bool fits(const Offer& other) const {
        return kind == other.kind && (argument == other.argument || kind == Collective::kShuffle) &&
               count == other.count;
    }
};

struct Block;
struct Warp;

// A store that other threads do not see yet.
struct PendingStore {
    static constexpr uint32_t kMostBytes = 16;
    char* at;
    uint32_t bytes;
    bool is_shared;
    char hidden[kMostBytes];  // what others see, while the storing side runs; what was stored, while others run

    bool meets(uintptr_t from, uint32_t count) const {
        const auto first = reinterpret_cast<uintptr_t>(at);
        return first < from + count && from < first + bytes;
    }
};
using PendingStores = std::vector<PendingStore>;

struct Fiber {
    jmp_buf context;
    PendingStores pending;                                // stores that its block does not see yet
    std::vector<std::pair<uint32_t, uint32_t>> unfenced;  // if watched: first bytes and counts in Block::unfenced
    uint32_t sending;                                     // its bulk copies that have not arrived yet
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    State state;
    Offer offer;
    int barrier;  // number of the barrier where it waits
    Warp* warp;
    int lane;
    bool arrived;     // it has arrived at the cluster's barrier, and not waited there since
    uint32_t passed;  // phases of that barrier for which it has waited
};

struct Warp {
    Block* block;
    int index;
    Fiber* lanes[kWarp];
    uint64_t asleep_until;
    bool blocked;  // every lane is at a barrier or has returned
};

// Blocks that are resident together.
struct Cluster {
    std::vector<Block*> blocks;  // null: it has returned
    uint32_t arrived = 0, exited = 0, threads = 0;
    uint32_t completed = 0;  // completed phases of its barrier

    // The barrier does not wait for threads that have returned.
    void settle() {
        if (arrived == 0 || arrived + exited != threads) return;
        ++completed;
        arrived = 0;
    }
};

// The shared memory of a block: whole pages, the last of which is inaccessible and begins where the memory ends.
class SharedMemory {
public:
    explicit SharedMemory(size_t bytes);
    SharedMemory(const SharedMemory&) = delete;
    ~SharedMemory();
    unsigned char* get() const { return memory_; }

private:
    size_t size_;
    void* pages_;
    unsigned char* memory_;
};

struct Launch {
    std::vector<uint32_t> waiting;  // clusters to start, the next one last
    uint32_t admitting = 0;         // blocks that have called allow_next_kernel or returned
    uint32_t returned = 0;          // blocks that have returned
    bool may_go_on = false;         // the previous launch has ended
    uint64_t end = ~uint64_t(0);    // time of its end, some time after all blocks have returned
    PendingStores unseen;           // stores of returned blocks, which others see when the launch ends
    std::vector<std::pair<Array, std::unique_ptr<char[]>>>
        withheld;  // late arrays, and the bytes that they will contain
};

struct Block {
    uint32_t index;
    Launch* launch;
    bool admits;
    PendingStores pending;  // stores that other blocks do not see yet
    std::vector<uint16_t>
        unfenced;  // if watched: per byte of shared memory, 1 + the thread that wrote it and has not fenced since
    std::shared_ptr<Cluster> cluster;
    std::vector<Warp> warps;
    std::unique_ptr<SharedMemory> shared;
    int arrived[kBarriers];   // threads at each barrier; number 0 is sync_block
    int expected[kBarriers];  // threads that the last one to arrive expects there
    int exited;
};

// A barrier in shared memory: its number of completed phases. Its present phase still lacks `missing` of `arrivals`
// arrivals, and `expected` bytes.
struct Phase {
    uint32_t expected;
    uint32_t completed : 8, arrivals : 12, missing : 12;

    SIMULATOR_UNWATCHED void settle() {
        if (missing != 0 || expected != 0) return;
        ++completed;
        missing = arrivals;
    }
};

struct BulkCopy {
    Block* block;
    void* destination;
    const void* source;
    uint32_t bytes;
    Phase* phase;           // null: a copy to global memory
    Fiber* sender;          // of a copy to global memory
    uint64_t due;           // in turns: it does not arrive before
    uint32_t sent[kWords];  // what arrives, if there is no source
};

class Grid {
public:
    Grid(const Schedule& schedule, uint32_t blocks, int threads, uint32_t cluster,
         const std::function<void(uint32_t)>& kernel);
    void run();
    bool runs_a_thread() const { return runs_a_thread_; }
    void pass_a_second();
    [[noreturn]] void fail_beyond(const void* address, uint32_t bytes);

    // ---- called from fibers
    void suspend();
    void maybe_suspend(uint32_t odds) {
        if (random_.one_in(odds)) suspend();
    }
    void meet(Offer& offer);
    void barrier(int number, int threads);
    void cluster_arrive();
    void cluster_wait();
    void arrive(Phase& phase);
    void wait_for_previous_kernel();
    void allow_next_kernel();
    // Threads may touch these bytes.
    void check_access(const void* address, uint32_t bytes) {
        if (!is_in_an_array(address, bytes)) fail_beyond(address, bytes);
    }
    // A watched thread is about to access these bytes.
    void watch(void* address, uint32_t bytes, bool writes);
    // Make the thread's stores visible to its block; to all blocks.
    void release_to_block();
    void release_to_all();
    // An atomic or relaxed access is in order with the thread's own stores to the same bytes.
    void in_order(const volatile void* address, uint32_t bytes);
    void progress() { last_progress_ = clock_; }
    void about_to_store(const void* address);
    void store_in_bulk(void* destination, const void* source, uint32_t bytes);
    void wait_for_bulk_stores();
    void fence_before_copies();
    void load_pieces(void* destination, const void* source, uint32_t bytes, Phase& phase);
    void send(uint32_t block, void* destination, const void* words, uint32_t bytes, Phase& phase);
    [[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
    Random& random() { return random_; }

    const uint32_t blocks;
    const size_t shared_bytes;
    char message[512] = "";  // what went wrong

private:
    static void fiber_main();
    Fiber* take_fiber();
    void note_unfenced(uint32_t first, uint32_t bytes);
    void hide(PendingStores& pending);
    void show_stores_of(Block* block);
    void withhold(const Array& array);
    void end_kernel_before(Launch& launch);
    void end(Launch& launch);
    Launch* next_launch();
    void start_cluster(Launch& launch);
    void start_block(uint32_t index, Launch& launch, const std::shared_ptr<Cluster>& cluster);
    void retire(Block& block);
    bool can_go_on(const Warp& warp) const { return !warp.blocked && warp.asleep_until <= clock_; }
    Warp* pick();
    void turn(Warp& warp);
    void resume(Fiber& fiber);
    void settle(Warp& warp);
    void exchange(Warp& warp);
    void settle_block(Block& block);
    void release(Block& block, int number);
    void stall(Warp& warp);
    void deliver();
    void report(const char* format, ...) __attribute__((format(printf, 2, 3)));
    bool is_near_an_array(uint64_t address) const;
    bool is_in_an_array(const void* address, uint32_t bytes) const {
        const uint64_t from = reinterpret_cast<uintptr_t>(address);
        if (schedule_.array_count == 0) return true;
        for (uint32_t i = 0; i < schedule_.array_count; ++i)
            if (schedule_.arrays[i].from <= from && from + bytes <= schedule_.arrays[i].to) return true;
        return false;
    }

    const Schedule schedule_;
    const int threads_;
    const uint32_t cluster_;
    const std::function<void(uint32_t)>& kernel_;  // called with the number of the launch
    Random random_;
    jmp_buf scheduler_;
    uint64_t clock_ = 0, last_progress_ = 0;
    uint64_t turns_ = 0;          // the clock without the time for which all warps sleep
    Block* shown_ = nullptr;      // the block whose stores are visible now
    bool runs_a_thread_ = false;  // else the scheduler runs
    int seconds_ = 0;             // of CPU time, spent in one turn
    uint64_t turn_of_seconds_ = 0;
    std::vector<Launch> launches_;
    std::vector<std::unique_ptr<Block>> resident_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> idle_;
    std::vector<BulkCopy> on_their_way_;
};

// The one simulated grid of the process, and the fiber that runs now.
extern Grid* grid;
extern Fiber* current;

// Runs the launches of a kernel, which gets the number of each. Returns null, or what went wrong.
const char* launch(const Schedule& schedule, uint32_t blocks, int threads, uint32_t cluster,
                   const std::function<void(uint32_t)>& kernel);

}  // namespace simulator
