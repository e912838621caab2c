// A kernel launch on one CPU thread. Every GPU thread is a fiber; a fiber runs until it calls a function of target.cuh
// that others can notice, and a seeded scheduler says who goes on: some blocks are resident at a time, a random warp of
// theirs has a turn, and now and then a warp or a block stalls for so long that the others run far ahead.
//
// What a GPU would answer with a hang or with silence fails here with a message: lanes of a warp in different
// collectives, a barrier that a thread left the kernel without, misaligned access, access beyond an array, words sent
// to a block that has not begun or has returned, waiting that has no end.
//
// Launches overlap: one may begin when every block of the one before has called allow_next_kernel or returned, and the
// kernel before the first one still runs for a while. What a launch reads and writes has other bytes until the launch
// before ends.
//
// Kernels that are compiled with -fsanitize=thread report their plain accesses to global and shared memory (watch).
// There, others see stores late and in any order: those of the same block when its thread arrives at a barrier, those
// of other blocks when a thread of the block fences, or the launch ends, some time after its last block has returned.
// Until then the bytes are swapped with the old ones whenever one of the others goes on. Loads are never early.
#pragma once
#include <setjmp.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

namespace simulator {

// A function whose accesses are never reported.
#define SIMULATOR_UNWATCHED __attribute__((no_sanitize_thread))

constexpr int kWarp = 32;
constexpr int kWords = 12;  // of the largest value that lanes exchange
constexpr size_t kStackBytes = 64 << 10;
constexpr unsigned char kPoison = 0xA5;
constexpr unsigned char kEarly = 0x5B;  // in late arrays
constexpr std::align_val_t kSharedAlignment{128};

// An array of a launch.
struct Array {
    uint64_t from, to;  // addresses
    uint32_t launch;
    uint32_t late;  // 1: the launch before writes it until it ends
};

// How a launch is scheduled; __init__.py has the same struct.
struct Schedule {
    uint64_t seed;
    uint64_t patience;  // so many turns without an exit, an atomic, an arrival, a relaxed or a vector store are a hang
    uint32_t resident;  // blocks that the device holds; or one cluster, if that is more
    uint32_t shuffled;  // 1: blocks start in random order
    uint32_t stall_odds;          // after one turn in so many, somebody stalls; 0: never
    uint32_t stall_turns;         // the longest stall
    uint32_t shared_bytes;        // of a block
    uint64_t hold_from, hold_to;  // addresses; who is about to store between them stalls for that long
    const Array* arrays;          // what threads may touch beside the workspace; none: any bytes
    uint32_t array_count;
    uint32_t launches;                      // of the kernel, that overlap
    uint64_t first_turn;                    // in which the kernel before the first launch has ended
    uint64_t workspace_from, workspace_to;  // addresses
    uint32_t first_block;                   // those before it do not run
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

constexpr int kBarriers = 16;  // of a block

enum class State { kRunnable, kCollective, kBarrier, kExited };
enum class Collective { kShuffleUp, kBroadcast, kShuffle, kBallot };

// What a lane brings to a collective, and afterwards what it takes from there.
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

// A store that others do not see yet.
struct PendingStore {
    static constexpr uint32_t kMostBytes = 16;
    char* at;
    uint32_t bytes;
    bool is_shared;
    char hidden[kMostBytes];  // while the storing side runs, what others see; while others run, what was stored

    bool meets(uintptr_t from, uint32_t count) const {
        const auto first = reinterpret_cast<uintptr_t>(at);
        return first < from + count && from < first + bytes;
    }
};
using PendingStores = std::vector<PendingStore>;

struct Fiber {
    jmp_buf context;
    PendingStores pending;                                // for its block
    std::vector<std::pair<uint32_t, uint32_t>> unfenced;  // watched: first bytes and counts in Block::unfenced
    uint32_t sending;                                     // bulk copies of which it has not waited for
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    State state;
    Offer offer;
    int barrier;  // the number of the one it waits at
    Warp* warp;
    int lane;
    bool arrived;     // at the cluster's barrier, and has not waited there since
    uint32_t passed;  // phases of that barrier
};

struct Warp {
    Block* block;
    int index;
    Fiber* lanes[kWarp];
    uint64_t asleep_until;
    bool blocked;  // every lane is at a barrier or has left
};

// Blocks that are resident together.
struct Cluster {
    std::vector<Block*> blocks;  // null: has returned
    uint32_t arrived = 0, exited = 0, threads = 0;
    uint32_t completed = 0;  // phases of its barrier

    // Threads that have returned are not waited for.
    void settle() {
        if (arrived == 0 || arrived + exited != threads) return;
        ++completed;
        arrived = 0;
    }
};

struct FreeShared {
    void operator()(unsigned char* memory) const { ::operator delete[](memory, kSharedAlignment); }
};

struct Launch {
    std::vector<uint32_t> waiting;  // clusters to start, the next one last
    uint32_t admitting = 0;         // blocks that have called allow_next_kernel or have returned
    uint32_t returned = 0;          // blocks
    bool may_go_on = false;         // the launch before has ended
    uint64_t end = ~uint64_t(0);    // on the clock: some time after all blocks have returned
    PendingStores unseen;           // of blocks that have returned: others see them when the launch ends
    std::vector<std::pair<Array, std::unique_ptr<char[]>>> withheld;  // late arrays, and what they will have
};

struct Block {
    uint32_t index;
    Launch* launch;
    bool admits;
    PendingStores pending;  // for other blocks
    std::vector<uint16_t>
        unfenced;  // watched: of each byte of shared memory, 1 + who wrote it and has not fenced since
    std::shared_ptr<Cluster> cluster;
    std::vector<Warp> warps;
    std::unique_ptr<unsigned char[], FreeShared> shared;
    int arrived[kBarriers];   // at each barrier; number 0 is sync_block
    int expected[kBarriers];  // there, as the last to arrive said
    int exited;
};

// A barrier in shared memory: `completed` phases; in the present one so many arrivals, of `arrivals`, and bytes are
// missing.
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
    Phase* phase;           // null: to global memory
    Fiber* sender;          // to global memory
    uint64_t due;           // in turns: not before
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
    // What the thread has stored is seen by its block; by all.
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
    const std::function<void(uint32_t)>& kernel_;  // of a launch, by number
    Random random_;
    jmp_buf scheduler_;
    uint64_t clock_ = 0, last_progress_ = 0;
    uint64_t turns_ = 0;          // the time that did not pass in sleep
    Block* shown_ = nullptr;      // the one whose stores are seen now
    bool runs_a_thread_ = false;  // or else the scheduler
    int seconds_ = 0;             // of work, that one turn takes
    uint64_t turn_of_seconds_ = 0;
    std::vector<Launch> launches_;
    std::vector<std::unique_ptr<Block>> resident_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> idle_;
    std::vector<BulkCopy> on_their_way_;
};

// The one simulated launch of the process, and the fiber that runs now.
extern Grid* grid;
extern Fiber* current;

// Runs the launches of a kernel, each by its number; null, or what went wrong.
const char* launch(const Schedule& schedule, uint32_t blocks, int threads, uint32_t cluster,
                   const std::function<void(uint32_t)>& kernel);

}  // namespace simulator
