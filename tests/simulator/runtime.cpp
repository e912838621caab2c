#include "runtime.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace simulator {

Grid* grid;
Fiber* current;

constexpr uint64_t kPage = 4096;
constexpr size_t kMostPending = 256;
constexpr uint32_t kDrainOdds[] = {8, 64, 1000};
constexpr uint32_t kLongestEnd = 1000;  // in turns

constexpr const char* kNames[] = {"shuffle_up", "broadcast", "shuffle", "ballot"};

static void swap(PendingStore& store) { std::swap_ranges(store.hidden, store.hidden + store.bytes, store.at); }

// ---- fibers: a switch by swapcontext would take two system calls, so ucontext only starts a fiber -------------------

void Grid::fiber_main() {
    for (;;) {
        grid->suspend();
        grid->kernel_(uint32_t(current->warp->block->launch - grid->launches_.data()));
        grid->release_to_block();
        if (current->arrived) grid->fail("returned between cluster_arrive and cluster_wait");
        current->state = State::kExited;
        ++current->warp->block->exited;
        ++current->warp->block->cluster->exited;
        current->warp->block->cluster->settle();
        grid->progress();
    }
}

Fiber* Grid::take_fiber() {
    if (idle_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>());
        current = fibers_.back().get();
        ucontext_t start;
        getcontext(&start);
        start.uc_stack.ss_sp = current->stack.get();
        start.uc_stack.ss_size = kStackBytes;
        makecontext(&start, fiber_main, 0);
        if (_setjmp(scheduler_) == 0) setcontext(&start);
        idle_.push_back(fibers_.back().get());
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
}

void Grid::suspend() {
    if (!current->pending.empty()) hide(current->pending);
    if (_setjmp(current->context) == 0) _longjmp(scheduler_, 1);
    if (!current->pending.empty()) std::for_each(current->pending.begin(), current->pending.end(), swap);
}

void Grid::resume(Fiber& fiber) {
    current = &fiber;
    if (fiber.warp->block != shown_) show_stores_of(fiber.warp->block);
    runs_a_thread_ = true;
    if (_setjmp(scheduler_) == 0) _longjmp(fiber.context, 1);
    runs_a_thread_ = false;
}

void Grid::fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int used =
        snprintf(message, sizeof(message), "thread %d of block %u: ", current->warp->index * kWarp + current->lane,
                 current->warp->block->index);
    vsnprintf(message + used, sizeof(message) - used, format, arguments);
    va_end(arguments);
    for (;;) suspend();
}

// A thread has worked for a second of its turn.
void Grid::pass_a_second() {
    constexpr int kMost = 5;
    seconds_ = turns_ == turn_of_seconds_ ? seconds_ + 1 : 1;
    turn_of_seconds_ = turns_;
    if (seconds_ > kMost) fail("hang: it works for more than %d seconds, and lets no other thread go on", kMost);
}

void Grid::report(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
}

Grid::Grid(const Schedule& schedule, uint32_t blocks, int threads, uint32_t cluster,
           const std::function<void(uint32_t)>& kernel)
    : blocks(blocks),
      shared_bytes(schedule.shared_bytes),
      schedule_(schedule),
      threads_(threads),
      cluster_(cluster),
      kernel_(kernel),
      random_{schedule.seed},
      launches_(schedule.launches) {
    const uint32_t first = schedule.first_block / cluster;
    for (Launch& launch : launches_) {
        auto& waiting = launch.waiting;
        for (uint32_t i = blocks / cluster; i > first; --i) waiting.push_back(i - 1);
        if (schedule.shuffled)
            for (uint32_t i = uint32_t(waiting.size()); i > 1; --i)
                std::swap(waiting[i - 1], waiting[random_.below(i)]);
        launch.admitting = launch.returned = first * cluster;
    }
    for (uint32_t i = 0; i < schedule.array_count; ++i)
        if (schedule.arrays[i].late) withhold(schedule.arrays[i]);
    if (schedule.first_turn == 0) end_kernel_before(launches_[0]);
}

// ---- launches -------------------------------------------------------------------------------------------------------

void Grid::withhold(const Array& array) {
    void* const first = reinterpret_cast<void*>(array.from);
    const size_t bytes = array.to - array.from;
    auto& withheld = launches_[array.launch].withheld;
    withheld.emplace_back(array, new char[bytes]);
    memcpy(withheld.back().second.get(), first, bytes);
    memset(first, kEarly, bytes);
}

// The previous launch has ended: late arrays contain what it writes last.
void Grid::end_kernel_before(Launch& launch) {
    launch.may_go_on = true;
    for (const auto& [array, bytes] : launch.withheld)
        memcpy(reinterpret_cast<void*>(array.from), bytes.get(), array.to - array.from);
}

void Grid::end(Launch& launch) {
    launch.end = ~uint64_t(0);
    std::for_each(launch.unseen.begin(), launch.unseen.end(), swap);
    if (&launch != &launches_.back()) end_kernel_before((&launch)[1]);
}

// The launch whose blocks start now, if there is one.
Launch* Grid::next_launch() {
    for (Launch& launch : launches_) {
        if (!launch.waiting.empty()) return &launch;
        if (launch.admitting < blocks) return nullptr;
    }
    return nullptr;
}

void Grid::start_cluster(Launch& launch) {
    const auto cluster = std::make_shared<Cluster>();
    cluster->threads = cluster_ * threads_;
    for (uint32_t i = 0; i < cluster_; ++i) start_block(launch.waiting.back() * cluster_ + i, launch, cluster);
    launch.waiting.pop_back();
}

// ---- shared memory --------------------------------------------------------------------------------------------------

static size_t whole(size_t bytes, size_t of) { return (bytes + of - 1) / of * of; }

SharedMemory::SharedMemory(size_t bytes)
    : size_(whole(bytes, kPage) + kPage),
      pages_(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (pages_ == MAP_FAILED) throw std::bad_alloc();
    unsigned char* const end = static_cast<unsigned char*>(pages_) + size_ - kPage;
    mprotect(end, kPage, PROT_NONE);
    memory_ = end - whole(bytes, kSharedAlignment);
}

SharedMemory::~SharedMemory() { munmap(pages_, size_); }

// ---- blocks ---------------------------------------------------------------------------------------------------------

void Grid::start_block(uint32_t index, Launch& launch, const std::shared_ptr<Cluster>& cluster) {
    resident_.push_back(std::make_unique<Block>());
    Block& block = *resident_.back();
    block.index = index;
    block.launch = &launch;
    block.admits = false;
    block.cluster = cluster;
    cluster->blocks.push_back(&block);
    for (int number = 0; number < kBarriers; ++number) block.arrived[number] = block.expected[number] = 0;
    block.exited = 0;
    block.shared = std::make_unique<SharedMemory>(shared_bytes);
    memset(block.shared->get(), kPoison, shared_bytes);
    block.warps.resize(threads_ / kWarp);
    for (int w = 0; w < int(block.warps.size()); ++w) {
        Warp& warp = block.warps[w];
        warp.block = &block;
        warp.index = w;
        warp.asleep_until = 0;
        warp.blocked = false;
        for (int lane = 0; lane < kWarp; ++lane) {
            Fiber* fiber = take_fiber();
            fiber->state = State::kRunnable;
            fiber->warp = &warp;
            fiber->lane = lane;
            fiber->arrived = false;
            fiber->sending = 0;
            fiber->unfenced.clear();
            fiber->passed = 0;
            warp.lanes[lane] = fiber;
        }
    }
}

void Grid::retire(Block& block) {
    for (const BulkCopy& copy : on_their_way_)
        if (copy.block == &block) return report("block %u returned before its bulk copies arrived", block.index);
    show_stores_of(nullptr);
    block.cluster->blocks[block.index % cluster_] = nullptr;
    Launch& launch = *block.launch;
    if (!block.admits) ++launch.admitting;
    launch.unseen.insert(launch.unseen.end(), block.pending.begin(), block.pending.end());
    if (++launch.returned == blocks) launch.end = clock_ + random_.below(kLongestEnd);
    for (Warp& warp : block.warps)
        for (Fiber* fiber : warp.lanes) idle_.push_back(fiber);
    resident_.erase(std::find_if(resident_.begin(), resident_.end(), [&](auto& held) { return held.get() == &block; }));
}

// ---- the scheduler --------------------------------------------------------------------------------------------------

void Grid::run() {
    grid = this;
    for (;;) {
        Launch* next;
        while ((next = next_launch()) && (resident_.empty() || resident_.size() + cluster_ <= schedule_.resident))
            start_cluster(*next);
        if (message[0] || resident_.empty()) break;
        if (clock_ >= schedule_.first_turn && !launches_[0].may_go_on) end_kernel_before(launches_[0]);
        for (Launch& launch : launches_)
            if (clock_ >= launch.end) end(launch);
        Warp& warp = *pick();
        Block& block = *warp.block;
        for (uint32_t turns = 1 + random_.below(8); turns > 0 && can_go_on(warp) && !message[0]; --turns) turn(warp);
        if (clock_ - last_progress_ > schedule_.patience)
            report("hang: no thread got on in %llu turns", (unsigned long long)schedule_.patience);
        if (random_.one_in(schedule_.stall_odds)) stall(warp);
        for (size_t copies = on_their_way_.size() / 16 + random_.one_in(4); copies > 0; --copies) deliver();
        if (block.exited == threads_) retire(block);
    }
    if (!launches_[0].may_go_on) end_kernel_before(launches_[0]);
    for (Launch& launch : launches_)
        if (launch.end != ~uint64_t(0)) end(launch);
    grid = nullptr;
}

// A random warp that can go on and is awake. If all warps sleep, time passes.
Warp* Grid::pick() {
    std::vector<Warp*> ready;
    for (;;) {
        uint64_t alarm = ~uint64_t(0);
        for (auto& block : resident_)
            for (Warp& warp : block->warps) {
                if (!warp.blocked) alarm = std::min(alarm, warp.asleep_until);
                if (can_go_on(warp)) ready.push_back(&warp);
            }
        if (!ready.empty()) return ready[random_.below(uint32_t(ready.size()))];
        if (alarm == ~uint64_t(0)) {  // no warp ever wakes
            report("hang: every warp waits for others at a barrier");
            return &resident_.front()->warps.front();
        }
        last_progress_ += alarm - clock_;
        clock_ = alarm;
    }
}

// A random bulk copy arrives.
void Grid::deliver() {
    if (on_their_way_.empty()) return;
    std::swap(on_their_way_[random_.below(uint32_t(on_their_way_.size()))], on_their_way_.back());
    const BulkCopy copy = on_their_way_.back();
    if (copy.due > turns_) return;
    on_their_way_.pop_back();
    memcpy(copy.destination, copy.source ? copy.source : copy.sent, copy.bytes);
    if (copy.phase == nullptr) {
        --copy.sender->sending;
        return;
    }
    copy.phase->expected -= copy.bytes;
    copy.phase->settle();
}

void Grid::stall(Warp& warp) {
    const uint64_t until = clock_ + 1 + random_.below(schedule_.stall_turns);
    if (random_.one_in(2)) {
        warp.asleep_until = until;
    } else {
        for (Warp& other : warp.block->warps) other.asleep_until = until;
    }
}

// Every lane that can run goes on to its next scheduling point.
void Grid::turn(Warp& warp) {
    ++clock_, ++turns_;
    const uint32_t first = random_.below(kWarp);
    for (uint32_t i = 0; i < kWarp; ++i) {
        Fiber& fiber = *warp.lanes[(first + i) % kWarp];
        if (fiber.state == State::kRunnable) resume(fiber);
        if (message[0]) return;
    }
    settle(warp);
}

void Grid::settle(Warp& warp) {
    uint32_t in[4] = {};  // masks of the lanes in each state
    for (int lane = 0; lane < kWarp; ++lane) in[int(warp.lanes[lane]->state)] |= 1u << lane;
    const uint32_t met = in[int(State::kCollective)];
    if (in[int(State::kRunnable)] && !in[int(State::kExited)] && !in[int(State::kBarrier)]) return;
    if (met == ~0u) return exchange(warp);
    if (met != 0)
        return report("warp %d of block %u: lanes %08x are in a collective, %08x at sync_block, %08x have returned",
                      warp.index, warp.block->index, met, in[int(State::kBarrier)], in[int(State::kExited)]);
    if (in[int(State::kRunnable)]) return;
    int number = -1;
    for (Fiber* fiber : warp.lanes) {
        if (fiber->state != State::kBarrier) continue;
        if (number >= 0 && fiber->barrier != number)
            return report("warp %d of block %u: lanes are at barriers %d and %d", warp.index, warp.block->index, number,
                          fiber->barrier);
        number = fiber->barrier;
    }
    warp.blocked = true;
    settle_block(*warp.block);
}

void Grid::exchange(Warp& warp) {
    Offer given[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) given[lane] = warp.lanes[lane]->offer;
    uint32_t votes = 0;
    for (int lane = 0; lane < kWarp; ++lane) {
        if (!given[lane].fits(given[0]))
            return report("warp %d of block %u: lane 0 is in %s(%d) and lane %d in %s(%d)", warp.index,
                          warp.block->index, kNames[int(given[0].kind)], given[0].argument, lane,
                          kNames[int(given[lane].kind)], given[lane].argument);
        votes |= given[lane].word[0] << lane;
    }
    for (int lane = 0; lane < kWarp; ++lane) {
        Fiber& fiber = *warp.lanes[lane];
        fiber.state = State::kRunnable;
        const int argument = fiber.offer.argument;
        switch (fiber.offer.kind) {
            case Collective::kShuffleUp:
                fiber.offer = given[lane < argument ? lane : lane - argument];
                break;
            case Collective::kBroadcast:
            case Collective::kShuffle:
                fiber.offer = given[argument % kWarp];
                break;
            case Collective::kBallot:
                fiber.offer.word[0] = votes;
                break;
        }
    }
}

void Grid::settle_block(Block& block) {
    for (int number = 1; number < kBarriers; ++number) {
        if (block.arrived[number] > block.expected[number])
            return report("block %u: %d threads are at barrier %d of %d", block.index, block.arrived[number], number,
                          block.expected[number]);
        if (block.arrived[number] != 0 && block.arrived[number] == block.expected[number]) release(block, number);
    }
    if (block.arrived[0] + block.exited != threads_ || block.arrived[0] == 0) return;
    if (block.exited != 0)
        return report("block %u: %d threads are at sync_block and %d have returned", block.index, block.arrived[0],
                      block.exited);
    release(block, 0);
}

void Grid::release(Block& block, int number) {
    block.arrived[number] = 0;
    for (Warp& warp : block.warps)
        for (Fiber* fiber : warp.lanes)
            if (fiber->state == State::kBarrier && fiber->barrier == number) {
                fiber->state = State::kRunnable;
                warp.blocked = false;
            }
}

// ---- stores that become visible late --------------------------------------------------------------------------------

// Called before other threads run. Now and then random stores become visible. Stores may overlap, so the last one is
// undone first.
void Grid::hide(PendingStores& pending) {
    const auto drains = [&](const PendingStore&) { return random_.one_in(kDrainOdds[schedule_.seed % 3]); };
    pending.erase(std::remove_if(pending.begin(), pending.end(), drains), pending.end());
    std::for_each(pending.rbegin(), pending.rend(), swap);
}

void Grid::show_stores_of(Block* block) {
    if (shown_ != nullptr && !shown_->pending.empty()) hide(shown_->pending);
    if (block != nullptr) std::for_each(block->pending.begin(), block->pending.end(), swap);
    shown_ = block;
}

void Grid::release_to_block() {
    PendingStores& of_block = current->warp->block->pending;
    for (const PendingStore& store : current->pending)
        if (!store.is_shared) of_block.push_back(store);
    current->pending.clear();
    if (of_block.size() > kMostPending) of_block.clear();
}

void Grid::release_to_all() {
    current->pending.clear();
    current->warp->block->pending.clear();
}

void Grid::in_order(const volatile void* address, uint32_t bytes) {
    const auto meets = [&](const PendingStore& store) {
        return store.meets(reinterpret_cast<uintptr_t>(address), bytes);
    };
    for (const PendingStores* stores : {&current->pending, &current->warp->block->pending})
        if (std::any_of(stores->begin(), stores->end(), meets)) return release_to_all();
}

void Grid::watch(void* address, uint32_t bytes, bool writes) {
    if (!runs_a_thread_) return;
    const uint64_t at = reinterpret_cast<uintptr_t>(address);
    const bool is_shared = at - reinterpret_cast<uintptr_t>(current->warp->block->shared->get()) < shared_bytes;
    if (!is_shared && (at < schedule_.workspace_from || at + bytes > schedule_.workspace_to)) {
        if (!is_near_an_array(at)) return;  // a thread's own variable, or the simulator's
        check_access(address, bytes);
    }
    if (!writes) return;
    if (is_shared)
        note_unfenced(uint32_t(at - reinterpret_cast<uintptr_t>(current->warp->block->shared->get())), bytes);
    for (uint32_t done = 0; done < bytes; done += PendingStore::kMostBytes) {
        const uint32_t count = std::min(bytes - done, PendingStore::kMostBytes);
        PendingStore store{static_cast<char*>(address) + done, count, is_shared, {}};
        memcpy(store.hidden, store.at, store.bytes);
        current->pending.push_back(store);
    }
    if (current->pending.size() > kMostPending) release_to_block();
}

bool Grid::is_near_an_array(uint64_t at) const {
    for (uint32_t i = 0; i < schedule_.array_count; ++i)
        if (schedule_.arrays[i].from - kPage < at && at < schedule_.arrays[i].to + kPage) return true;
    return false;
}

// ---- called from fibers ---------------------------------------------------------------------------------------------

void Grid::meet(Offer& offer) {
    current->offer = offer;
    current->state = State::kCollective;
    suspend();
    offer = current->offer;
}

void Grid::barrier(int number, int threads) {
    release_to_block();
    Block& block = *current->warp->block;
    ++block.arrived[number];
    block.expected[number] = threads;
    current->state = State::kBarrier;
    current->barrier = number;
    suspend();
}

void Grid::cluster_arrive() {
    Cluster& cluster = *current->warp->block->cluster;
    if (current->arrived) fail("cluster_arrive after cluster_arrive");
    current->arrived = true;
    ++cluster.arrived;
    cluster.settle();
    progress();
    maybe_suspend(2);
}

void Grid::cluster_wait() {
    const Cluster& cluster = *current->warp->block->cluster;
    if (!current->arrived) fail("cluster_wait without cluster_arrive");
    while (cluster.completed == current->passed) suspend();
    current->arrived = false;
    ++current->passed;
}

void Grid::arrive(Phase& phase) {
    release_to_block();
    if (phase.missing == 0) fail("more arrivals at a barrier than its %u", phase.arrivals);
    progress();
    --phase.missing;
    phase.settle();
    maybe_suspend(2);
}

void Grid::about_to_store(const void* address) {
    progress();
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    if (at < schedule_.hold_from || at >= schedule_.hold_to) return maybe_suspend(2);
    current->warp->asleep_until = clock_ + schedule_.stall_turns;
    suspend();
}

void Grid::wait_for_previous_kernel() {
    while (!current->warp->block->launch->may_go_on) suspend();
}

void Grid::allow_next_kernel() {
    Block& block = *current->warp->block;
    if (block.admits) return;
    block.admits = true;
    ++block.launch->admitting;
    maybe_suspend(2);
}

// Reports where the bytes lie, relative to the nearest array.
void Grid::fail_beyond(const void* address, uint32_t bytes) {
    const int64_t from = reinterpret_cast<intptr_t>(address);
    int64_t least = INT64_MAX;
    uint32_t nearest = 0;
    bool before = false;
    for (uint32_t i = 0; i < schedule_.array_count; ++i) {
        const int64_t until_first = int64_t(schedule_.arrays[i].from) - from,
                      behind_last = from - int64_t(schedule_.arrays[i].to);
        const int64_t distance = std::max(until_first, behind_last);
        if (distance < least) least = distance, nearest = i, before = until_first > behind_last;
    }
    const long long apart = llabs(least);
    if (least == INT64_MAX) fail("touches %u bytes at %p, of no array", bytes, address);
    fail("touches %u bytes from %lld bytes %s array %u on", bytes, apart,
         before      ? "before the first of"
         : least < 0 ? "before the end of"
                     : "behind the end of",
         nearest);
}

// Threads that read the destination before the copy has arrived find poison.
void Grid::load_pieces(void* destination, const void* source, uint32_t bytes, Phase& phase) {
    if (!is_in_an_array(source, bytes)) fail("bulk copy of %u bytes that reach beyond their array", bytes);
    memset(destination, kPoison, bytes);
    // Now and then a large copy takes so long that many later ones overtake it.
    const uint64_t delay = bytes > 16 && random_.one_in(16) ? random_.below(20000) : 0;
    on_their_way_.push_back({current->warp->block, destination, source, bytes, &phase, nullptr, turns_ + delay, {}});
    maybe_suspend(2);
}

// The source is read some time later.
void Grid::store_in_bulk(void* destination, const void* source, uint32_t bytes) {
    check_access(destination, bytes);
    Block& block = *current->warp->block;
    const auto first = static_cast<const unsigned char*>(source) - block.shared->get();
    for (uint32_t i = 0; i < bytes && !block.unfenced.empty(); ++i)
        if (block.unfenced[first + i])
            fail("bulk store of what thread %d wrote without fence_before_copies", block.unfenced[first + i] - 1);
    on_their_way_.push_back({&block, destination, source, bytes, nullptr, current, turns_ + random_.below(200), {}});
    ++current->sending;
    progress();
    maybe_suspend(2);
}

void Grid::wait_for_bulk_stores() {
    while (current->sending > 0) suspend();
}

void Grid::note_unfenced(uint32_t first, uint32_t bytes) {
    auto& writers = current->warp->block->unfenced;
    if (writers.empty()) writers.resize(shared_bytes);
    const auto from = writers.begin() + first;
    const uint16_t own = 1 + current->warp->index * kWarp + current->lane;
    if (std::count(from, from + bytes, own) == bytes) return;
    std::fill_n(from, bytes, own);
    current->unfenced.emplace_back(first, bytes);
}

void Grid::fence_before_copies() {
    auto& writers = current->warp->block->unfenced;
    const uint16_t own = 1 + current->warp->index * kWarp + current->lane;
    for (const auto& [first, bytes] : current->unfenced)
        std::replace(writers.begin() + first, writers.begin() + first + bytes, own, uint16_t(0));
    current->unfenced.clear();
}

// Sends to the same place in another block's shared memory, and to the same barrier there.
void Grid::send(uint32_t to, void* destination, const void* words, uint32_t bytes, Phase& phase) {
    Block& own = *current->warp->block;
    if (to >= cluster_) fail("sends to block %u of a cluster of %u", to, cluster_);
    if (cluster_ > 1 && own.cluster->completed == 0) fail("sends to a block that may not have begun");
    Block* other = own.cluster->blocks[to];
    if (other == nullptr || other->exited == threads_) fail("sends to block %u of its cluster, which has returned", to);
    const auto there = [&](void* here) {
        return other->shared->get() + (static_cast<unsigned char*>(here) - own.shared->get());
    };
    BulkCopy copy{other, there(destination), nullptr, bytes, reinterpret_cast<Phase*>(there(&phase)), nullptr, turns_,
                  {}};
    memcpy(copy.sent, words, bytes);
    memset(copy.destination, kPoison, bytes);
    on_their_way_.push_back(copy);
    progress();
    maybe_suspend(2);
}

// ---- guard pages: an access to them ends the launch -----------------------------------------------------------------

namespace {

// While it exists, an invalid access or a division by zero in a thread ends the launch instead of the process. So does
// a thread that works on and on without reaching a scheduling point.
class FaultHandler {
public:
    FaultHandler() : stack_(new char[kStackBytes]) {
        stack_t stack{};
        stack.ss_sp = stack_.get();
        stack.ss_size = kStackBytes;
        sigaltstack(&stack, &old_stack_);
        struct sigaction action{};
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        action.sa_sigaction = touch;
        sigaction(SIGSEGV, &action, &old_touch_);
        action.sa_sigaction = divide;
        sigaction(SIGFPE, &action, &old_divide_);
        action.sa_sigaction = tick;
        sigaction(SIGVTALRM, &action, &old_tick_);
        every_second({1, 0});
    }
    ~FaultHandler() {
        every_second({0, 0});
        sigaction(SIGVTALRM, &old_tick_, nullptr);
        sigaction(SIGFPE, &old_divide_, nullptr);
        sigaction(SIGSEGV, &old_touch_, nullptr);
        sigaltstack(&old_stack_, nullptr);
    }

private:
    static void touch(int, siginfo_t* info, void*) {
        if (grid != nullptr && grid->runs_a_thread()) grid->fail_beyond(info->si_addr, 1);
        signal(SIGSEGV, SIG_DFL);  // a fault of the simulator itself, which now happens again
    }
    static void divide(int, siginfo_t*, void*) {
        if (grid != nullptr && grid->runs_a_thread()) grid->fail("divides by zero");
        signal(SIGFPE, SIG_DFL);
    }
    static void tick(int, siginfo_t*, void*) {
        if (grid != nullptr && grid->runs_a_thread()) grid->pass_a_second();
    }
    static void every_second(timeval second) {
        const itimerval timer{second, second};
        setitimer(ITIMER_VIRTUAL, &timer, nullptr);
    }

    const std::unique_ptr<char[]> stack_;
    stack_t old_stack_;
    struct sigaction old_touch_, old_divide_, old_tick_;
};

}  // namespace

void watch(void* address, size_t bytes, bool writes) {
    if (grid != nullptr) grid->watch(address, uint32_t(bytes), writes);
}

const char* launch(const Schedule& schedule, uint32_t blocks, int threads, uint32_t cluster,
                   const std::function<void(uint32_t)>& kernel) {
    static char message[sizeof(Grid::message)];
    if (threads > 1024) return "no block has more than 1024 threads";
    if (cluster > 16) return "no cluster has more than 16 blocks";
    if (blocks % cluster != 0) return "the grid is no multiple of the cluster";
    Grid launched(schedule, blocks, threads, cluster, kernel);
    const FaultHandler handler;
    launched.run();
    memcpy(message, launched.message, sizeof(message));
    return message[0] ? message : nullptr;
}

}  // namespace simulator

// ---- calls that the compiler inserts before plain accesses ----------------------------------------------------------

#define SIMULATOR_ACCESSES(bytes)                                                                 \
    void __tsan_read##bytes(void* address) { simulator::watch(address, bytes, false); }           \
    void __tsan_write##bytes(void* address) { simulator::watch(address, bytes, true); }           \
    void __tsan_unaligned_read##bytes(void* address) { simulator::watch(address, bytes, false); } \
    void __tsan_unaligned_write##bytes(void* address) { simulator::watch(address, bytes, true); }

extern "C" {
SIMULATOR_ACCESSES(1)
SIMULATOR_ACCESSES(2)
SIMULATOR_ACCESSES(4)
SIMULATOR_ACCESSES(8)
SIMULATOR_ACCESSES(16)
void __tsan_read_range(void* address, size_t bytes) { simulator::watch(address, bytes, false); }
void __tsan_write_range(void* address, size_t bytes) { simulator::watch(address, bytes, true); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

// A misaligned access: its place in the source, its type, and log2 of the type's alignment.
struct Misaligned {
    const char* file;
    uint32_t line, column;
    const void* type;
    unsigned char log_alignment;
};
void __ubsan_handle_type_mismatch_v1(const Misaligned* access, uintptr_t address) {
    const size_t alignment = size_t(1) << access->log_alignment;
    if (simulator::grid != nullptr)
        simulator::grid->fail("misaligned access at an address that is %zu modulo %zu, in %s, line %u",
                              size_t(address % alignment), alignment, access->file, access->line);
}
}
