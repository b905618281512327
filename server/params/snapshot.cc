// A snapshot's memory goes back to the pool when its last reader lets it go,
// which may be after the store is gone: so the pool's state is shared.
#include "server/params/snapshot.h"

#include <algorithm>
#include <utility>

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

struct SnapshotPool::State {
  Mutex mutex;
  CondVar released;
  std::vector<SnapshotBuffers> buffers;  // constant after construction
  std::vector<SnapshotBuffers*> free ABSL_GUARDED_BY(mutex);
  DType narrowed_dtype;
};

SnapshotPool::SnapshotPool(std::vector<SnapshotBuffers> buffers,
                           DType narrowed_dtype)
    : state_(std::make_shared<State>()) {
  state_->buffers = std::move(buffers);
  state_->narrowed_dtype = narrowed_dtype;
  MutexLock lock(&state_->mutex);
  for (SnapshotBuffers& memory : state_->buffers) {
    state_->free.push_back(&memory);
  }
}

SnapshotPool::~SnapshotPool() = default;

std::shared_ptr<Snapshot> SnapshotPool::Acquire() {
  SnapshotBuffers* memory;
  {
    MutexLock lock(&state_->mutex);
    while (state_->free.empty()) state_->released.Wait(&state_->mutex);
    memory = state_->free.back();
    state_->free.pop_back();
  }
  // The deleter returns the memory. It holds the state, not the pool.
  std::shared_ptr<State> state = state_;
  return std::shared_ptr<Snapshot>(
      new Snapshot(memory, state->narrowed_dtype), [state](Snapshot* snapshot) {
        SnapshotBuffers* memory = snapshot->buffers();
        delete snapshot;
        MutexLock lock(&state->mutex);
        state->free.push_back(memory);
        state->released.NotifyAll();
      });
}

bool SnapshotPool::Available() const {
  MutexLock lock(&state_->mutex);
  return !state_->free.empty();
}

}  // namespace agg
