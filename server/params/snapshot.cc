// A snapshot's memory goes back to the pool when its last reader lets it go,
// which may be after the store is gone: so the pool's state is shared.
#include "server/params/snapshot.h"

#include <algorithm>
#include <utility>

#include "server/base/clock.h"

namespace agg {

int64_t Snapshot::AddRevokeCallback(std::function<void()> callback) const {
  {
    MutexLock lock(&mutex_);
    if (!revoked_) {
      callbacks_.push_back({next_id_, std::move(callback)});
      return next_id_++;
    }
  }
  callback();
  return 0;
}

void Snapshot::RemoveRevokeCallback(int64_t id) const {
  MutexLock lock(&mutex_);
  callbacks_.erase(
      std::remove_if(callbacks_.begin(), callbacks_.end(),
                     [id](const Entry& entry) { return entry.id == id; }),
      callbacks_.end());
}

void Snapshot::Revoke() const {
  std::vector<Entry> callbacks;
  {
    MutexLock lock(&mutex_);
    revoked_ = true;
    callbacks.swap(callbacks_);
  }
  for (Entry& entry : callbacks) entry.callback();
}

void Snapshot::Defer() {
  MutexLock lock(&mutex_);
  deferred_ = true;
}

void Snapshot::DeferUntilAsked(std::function<void()> ask) {
  MutexLock lock(&mutex_);
  deferred_ = true;
  ask_ = std::move(ask);
}

bool Snapshot::asked() const {
  MutexLock lock(&mutex_);
  return asked_;
}

bool Snapshot::Lose() const {
  MutexLock lock(&mutex_);
  const bool loses = std::exchange(ask_, nullptr) != nullptr;
  lost_ |= loses;
  return loses;
}

void Snapshot::FinishLost(const absl::Status& status) const {
  {
    MutexLock lock(&mutex_);
    if (!std::exchange(lost_, false)) return;
  }
  Finish(status);
}

void Snapshot::FailUntilAsked(const absl::Status& status,
                              std::function<void()> ask) const {
  std::vector<ReadableCallback> readers;
  {
    MutexLock lock(&mutex_);
    ask_ = std::move(ask);
    readers.swap(readers_);
  }
  for (const ReadableCallback& reader : readers) reader(status);
}

void Snapshot::Finish(const absl::Status& status) const {
  std::vector<ReadableCallback> readers;
  {
    MutexLock lock(&mutex_);
    deferred_ = false;
    finished_ = status;
    readers.swap(readers_);
  }
  for (const ReadableCallback& reader : readers) reader(status);
}

bool Snapshot::readable(DType dtype) const {
  if (dtype != DType::kF32) return true;
  MutexLock lock(&mutex_);
  return !deferred_ && finished_.ok();
}

void Snapshot::WhenReadable(DType dtype, ReadableCallback callback) const {
  if (dtype != DType::kF32) return callback(absl::OkStatus());
  std::function<void()> ask;
  absl::Status status;
  bool waits = false;
  {
    MutexLock lock(&mutex_);
    asked_ = true;
    ask.swap(ask_);
    waits = deferred_;
    status = finished_;
    if (waits) readers_.push_back(std::move(callback));
  }
  if (ask != nullptr) ask();
  if (!waits) callback(status);
}

struct SnapshotPool::State {
  Mutex mutex;
  CondVar released;
  std::vector<std::unique_ptr<SnapshotBuffers>> free ABSL_GUARDED_BY(mutex);
  bool pool_gone ABSL_GUARDED_BY(mutex) = false;
  DType narrowed_dtype;  // constant after construction
};

SnapshotPool::SnapshotPool(std::vector<SnapshotBuffers> buffers,
                           DType narrowed_dtype)
    : state_(std::make_shared<State>()) {
  state_->narrowed_dtype = narrowed_dtype;
  for (SnapshotBuffers& memory : buffers) Add(std::move(memory));
}

SnapshotPool::~SnapshotPool() {
  std::vector<std::unique_ptr<SnapshotBuffers>> unused;
  MutexLock lock(&state_->mutex);
  state_->pool_gone = true;
  unused.swap(state_->free);
}

void SnapshotPool::Add(SnapshotBuffers buffers) {
  MutexLock lock(&state_->mutex);
  state_->free.push_back(std::make_unique<SnapshotBuffers>(std::move(buffers)));
  state_->released.NotifyAll();
}

std::shared_ptr<Snapshot> SnapshotPool::Acquire() {
  MutexLock lock(&state_->mutex);
  while (state_->free.empty()) state_->released.Wait(&state_->mutex);
  return Take(state_);
}

std::shared_ptr<Snapshot> SnapshotPool::AcquireWithin(absl::Duration patience) {
  const absl::Time deadline = Clock::Real()->Now() + patience;
  MutexLock lock(&state_->mutex);
  while (state_->free.empty()) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return nullptr;
    state_->released.WaitFor(&state_->mutex, left);
  }
  return Take(state_);
}

std::shared_ptr<Snapshot> SnapshotPool::Take(
    const std::shared_ptr<State>& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  SnapshotBuffers* const memory = state->free.back().release();
  state->free.pop_back();
  // Whoever still reads the former version in shared memory has lost it.
  for (const Buffer* buffer : {memory->f32.get(), memory->narrowed.get()}) {
    const std::shared_ptr<Region> region = SharedBuffer::RegionOf(buffer);
    if (region != nullptr) region->BeginGeneration();
  }
  // The deleter returns the memory. It holds the state, not the pool.
  return std::shared_ptr<Snapshot>(
      new Snapshot(memory, state->narrowed_dtype),
      [state](const Snapshot* snapshot) {
        std::unique_ptr<SnapshotBuffers> memory(snapshot->buffers());
        delete snapshot;
        MutexLock lock(&state->mutex);
        if (state->pool_gone) return;
        state->free.push_back(std::move(memory));
        state->released.NotifyAll();
      });
}

bool SnapshotPool::Available() const {
  MutexLock lock(&state_->mutex);
  return !state_->free.empty();
}

}  // namespace agg
