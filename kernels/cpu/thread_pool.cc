// Threads take units from one counter. Which thread gets a unit is open; the
// unit's index, and so its result, is not.
#include "kernels/cpu/thread_pool.h"

#include <cassert>

namespace agg {

ThreadPool::ThreadPool(int num_threads) {
  assert(num_threads >= 1);
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { Work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ForEach(int64_t num_units, bool wake, Unit unit) {
  if (!wake || workers_.empty() || num_units <= 1) {
    for (int64_t u = 0; u < num_units; ++u) unit(u, 0);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    unit_ = &unit;
    num_units_ = num_units;
    next_unit_.store(0, std::memory_order_relaxed);
    num_working_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  wake_.notify_all();
  TakeUnits(0);
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return num_working_ == 0; });
  unit_ = nullptr;
}

void ThreadPool::Work(int thread) {
  int64_t seen_generation = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock,
               [&] { return stopping_ || generation_ != seen_generation; });
    if (stopping_) return;
    seen_generation = generation_;
    lock.unlock();
    TakeUnits(thread);
    lock.lock();
    if (--num_working_ == 0) done_.notify_one();
  }
}

void ThreadPool::TakeUnits(int thread) {
  while (true) {
    const int64_t unit = next_unit_.fetch_add(1, std::memory_order_relaxed);
    if (unit >= num_units_) return;
    (*unit_)(unit, thread);
  }
}

}  // namespace agg
