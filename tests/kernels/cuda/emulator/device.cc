// Threads of a block as coroutines: what a barrier and an exchange between
// lanes wait for, and who runs next.
//
// Nearly all time of the emulated tests goes by in exchanges, 32 switches each,
// so a switch is short: from the thread that waits straight to the next one
// that need not, with the compiler's own setjmp. The C library's would also
// look for cleanup handlers and protect pointers, swapcontext would make
// system calls, and a scheduler in between would switch twice.
#include "tests/kernels/cuda/emulator/device.h"

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace agg::emulator {

Index thread_index;
Index block_index;

namespace {

constexpr size_t kStackBytes = 64 << 10;

// What __builtin_setjmp saves.
using Context = void* [5];

// The lanes of a warp meet in exchanges, number after number. Two places, in
// turns: who is at exchange n + 1 knows that all have read n - 1.
struct Warp {
  LaneValues values[2];
  int64_t num_arrived = 0;  // over all exchanges
};

// A coroutine; it lives on from block to block.
struct Thread {
  Context context;
  std::unique_ptr<char[]> stack;
  int64_t num_exchanges = 0;
  int64_t num_barriers = 0;
  // It waits while *waits_on < needed.
  const int64_t* waits_on = nullptr;
  int64_t needed = 0;
};

// The block that runs.
struct Block {
  int64_t number = 0;  // among all that ever ran
  std::vector<Thread> threads{std::vector<Thread>(1024)};
  std::vector<Warp> warps{std::vector<Warp>(32)};
  unsigned num_threads = 0;
  unsigned num_running = 0;  // threads that have not ended
  bool descending = false;
  int64_t num_at_barriers = 0;  // over all barriers
  Context caller;               // of RunBlock
  const std::function<void()>* body = nullptr;
};

Block& the_block = *new Block;  // never destroyed: threads may outlive main

constexpr int64_t kNever = 0;  // an ended thread waits for it to become 1

__attribute__((noinline, noreturn)) void Jump(Context& to) {
  __builtin_longjmp(to, 1);
}

void ThreadMain();

// Starts a thread on a new stack. makecontext only sets that up: ThreadMain
// leaves by a jump and never returns.
[[noreturn]] void Begin(Thread* thread) {
  thread->stack = std::make_unique<char[]>(kStackBytes);
  ucontext_t first;
  getcontext(&first);
  first.uc_stack.ss_sp = thread->stack.get();
  first.uc_stack.ss_size = kStackBytes;
  first.uc_link = nullptr;
  makecontext(&first, &ThreadMain, 0);
  setcontext(&first);
  std::abort();
}

[[noreturn]] void RunThread(unsigned t) {
  Thread& thread = the_block.threads[t];
  thread_index.x = t;
  if (thread.stack == nullptr) Begin(&thread);
  Jump(thread.context);
}

// The next thread, in the block's order and round it, that need not wait.
// Aborts if there is none: a barrier then waits for threads that have ended.
unsigned NextThread() {
  const unsigned num_threads = the_block.num_threads;
  unsigned t = thread_index.x;
  for (unsigned i = 0; i < num_threads; ++i) {
    if (the_block.descending) {
      t = t == 0 ? num_threads - 1 : t - 1;
    } else {
      t = t + 1 == num_threads ? 0 : t + 1;
    }
    const Thread& thread = the_block.threads[t];
    if (*thread.waits_on >= thread.needed) return t;
  }
  std::fprintf(stderr, "threads of a block wait for ones that ended\n");
  std::abort();
}

__attribute__((noinline)) void SwitchFrom(Thread* thread) {
  if (__builtin_setjmp(thread->context) == 0) RunThread(NextThread());
}

void WaitFor(const int64_t* counter, int64_t needed) {
  if (*counter >= needed) return;
  Thread& thread = the_block.threads[thread_index.x];
  thread.waits_on = counter;
  thread.needed = needed;
  SwitchFrom(&thread);
}

// Leaves the block; the next block's first switch to the thread comes back.
__attribute__((noinline)) void EndThread(Thread* thread) {
  CheckCopiesEnded();
  thread->waits_on = &kNever;
  thread->needed = 1;
  if (__builtin_setjmp(thread->context) != 0) return;
  if (--the_block.num_running == 0) Jump(the_block.caller);
  RunThread(NextThread());
}

void ThreadMain() {
  for (;;) {
    (*the_block.body)();
    EndThread(&the_block.threads[thread_index.x]);
  }
}

__attribute__((noinline)) void RunBlock(bool descending) {
  Block& block = the_block;
  ++block.number;
  block.descending = descending;
  for (Warp& warp : block.warps) warp.num_arrived = 0;
  block.num_at_barriers = 0;
  block.num_running = block.num_threads;
  for (unsigned t = 0; t < block.num_threads; ++t) {
    Thread& thread = block.threads[t];
    thread.num_exchanges = 0;
    thread.num_barriers = 0;
    thread.waits_on = &thread.needed;  // nothing
  }
  if (__builtin_setjmp(block.caller) == 0) {
    RunThread(descending ? block.num_threads - 1 : 0);
  }
}

}  // namespace

int64_t BlockNumber() { return the_block.number; }

void BlockBarrier() {
  Thread& thread = the_block.threads[thread_index.x];
  ++the_block.num_at_barriers;
  WaitFor(&the_block.num_at_barriers,
          ++thread.num_barriers * the_block.num_threads);
}

const LaneValues& WarpExchange(double first, double second) {
  Thread& thread = the_block.threads[thread_index.x];
  Warp& warp = the_block.warps[thread_index.x / kLanes];
  LaneValues& values = warp.values[thread.num_exchanges % 2];
  values.first[thread_index.x % kLanes] = first;
  values.second[thread_index.x % kLanes] = second;
  ++warp.num_arrived;
  WaitFor(&warp.num_arrived, ++thread.num_exchanges * kLanes);
  return values;
}

void RunGrid(dim3 grid, unsigned num_threads,
             const std::function<void()>& thread) {
  the_block.body = &thread;
  the_block.num_threads = num_threads;
  for (block_index.y = 0; block_index.y < grid.y; ++block_index.y) {
    for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) {
      RunBlock(block_index.x % 2 == 1);
    }
  }
}

}  // namespace agg::emulator
