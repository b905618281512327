#include "tests/kernels/cuda/emulator/device.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace agg::emulator {

Index thread_index;
Index block_index;

namespace {

constexpr unsigned kLanes = 32;
constexpr size_t kStackBytes = 64 << 10;

// The lanes of a warp meet in exchanges, number after number. Two places, in
// turns: who is at exchange n + 1 knows that all have read n - 1.
struct Warp {
  double values[2][kLanes][2];
  int64_t num_arrived = 0;  // over all exchanges
};

// A coroutine; it lives on from block to block. Switched by _setjmp and
// _longjmp, since swapcontext makes system calls.
struct Thread {
  jmp_buf context;
  std::unique_ptr<char[]> stack;
  int64_t num_exchanges = 0;
  int64_t num_barriers = 0;
  // It waits while *waits_on < needed.
  const int64_t* waits_on = nullptr;
  int64_t needed = 0;
  bool done = false;
};

// The block that runs.
struct Block {
  std::vector<Thread> threads{std::vector<Thread>(1024)};
  std::vector<Warp> warps{std::vector<Warp>(32)};
  unsigned num_threads = 0;
  int64_t num_at_barriers = 0;  // over all barriers
  int64_t progress = 0;         // arrivals and ends
  jmp_buf scheduler;
  const std::function<void()>* body = nullptr;
};

Block& TheBlock() {
  static Block* const block = new Block;
  return *block;
}

void Yield() {
  Block& block = TheBlock();
  if (_setjmp(block.threads[thread_index.x].context) == 0) {
    _longjmp(block.scheduler, 1);
  }
}

void WaitFor(const int64_t* counter, int64_t needed) {
  Thread& thread = TheBlock().threads[thread_index.x];
  thread.waits_on = counter;
  thread.needed = needed;
  if (*counter < needed) Yield();
}

void ThreadMain() {
  for (;;) {
    Block& block = TheBlock();
    (*block.body)();
    block.threads[thread_index.x].done = true;
    ++block.progress;
    Yield();
  }
}

// Runs thread `t` until it waits or is done.
__attribute__((noinline)) void Resume(unsigned t) {
  Block& block = TheBlock();
  Thread& thread = block.threads[t];
  thread_index.x = t;
  if (_setjmp(block.scheduler) != 0) return;
  if (thread.stack != nullptr) _longjmp(thread.context, 1);
  thread.stack = std::make_unique<char[]>(kStackBytes);
  ucontext_t first;
  getcontext(&first);
  first.uc_stack.ss_sp = thread.stack.get();
  first.uc_stack.ss_size = kStackBytes;
  first.uc_link = nullptr;
  makecontext(&first, &ThreadMain, 0);
  setcontext(&first);
}

void Start(Thread* thread) {
  thread->num_exchanges = 0;
  thread->num_barriers = 0;
  thread->waits_on = &thread->needed;  // nothing
  thread->done = false;
}

void RunBlock(bool descending) {
  Block& block = TheBlock();
  for (Warp& warp : block.warps) warp.num_arrived = 0;
  block.num_at_barriers = 0;
  for (unsigned t = 0; t < block.num_threads; ++t) {
    Start(&block.threads[t]);
  }
  for (bool all_done = false; !all_done;) {
    all_done = true;
    const int64_t progress = block.progress;
    for (unsigned i = 0; i < block.num_threads; ++i) {
      const unsigned t = descending ? block.num_threads - 1 - i : i;
      const Thread& thread = block.threads[t];
      if (thread.done) continue;
      if (*thread.waits_on >= thread.needed) Resume(t);
      all_done = all_done && thread.done;
    }
    if (!all_done && block.progress == progress) {
      std::fprintf(stderr, "threads of a block wait for ones that ended\n");
      std::abort();
    }
  }
}

}  // namespace

void BlockBarrier() {
  Block& block = TheBlock();
  Thread& thread = block.threads[thread_index.x];
  ++block.num_at_barriers;
  ++block.progress;
  const int64_t needed = ++thread.num_barriers * block.num_threads;
  WaitFor(&block.num_at_barriers, needed);
}

const double (*WarpExchange(double first, double second))[2] {
  Block& block = TheBlock();
  Thread& thread = block.threads[thread_index.x];
  Warp& warp = block.warps[thread_index.x / kLanes];
  auto& values = warp.values[thread.num_exchanges % 2];
  values[thread_index.x % kLanes][0] = first;
  values[thread_index.x % kLanes][1] = second;
  ++warp.num_arrived;
  ++block.progress;
  const int64_t needed = ++thread.num_exchanges * kLanes;
  WaitFor(&warp.num_arrived, needed);
  return values;
}

void RunGrid(dim3 grid, unsigned num_threads,
             const std::function<void()>& thread) {
  Block& block = TheBlock();
  block.body = &thread;
  block.num_threads = num_threads;
  for (block_index.y = 0; block_index.y < grid.y; ++block_index.y) {
    for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) {
      RunBlock(block_index.x % 2 == 1);
    }
  }
}

}  // namespace agg::emulator
