// A snapshot's memory goes back to the pool when its last reader lets it go,
// which may be after the store is gone: so the pool's state is shared.
#include "server/params/snapshot.h"

#include <algorithm>
#include <utility>

#include "server/base/clock.h"

namespace agg {

int64_t SnapshotReaders::Add(Reader reader) {
  {
    MutexLock lock(&mutex_);
    if (!revoked_) {
      readers_.emplace(next_id_, std::move(reader));
      return next_id_++;
    }
  }
  reader.revoke();
  return 0;
}

void SnapshotReaders::Remove(int64_t id) {
  Reader reader;  // destroyed without the lock
  MutexLock lock(&mutex_);
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  reader = std::move(found->second);
  readers_.erase(found);
}

void SnapshotReaders::Revoke() {
  std::vector<std::function<void()>> calls;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(revoked_, true)) return;
    for (auto& reader : readers_) {
      calls.push_back(std::exchange(reader.second.revoke, nullptr));
    }
  }
  for (const std::function<void()>& call : calls) call();
}

void SnapshotReaders::Overtake(bool freed) {
  std::map<int64_t, Reader> readers;
  {
    MutexLock lock(&mutex_);
    readers.swap(readers_);
  }
  for (const auto& reader : readers) {
    if (reader.second.overtake != nullptr) reader.second.overtake(freed);
  }
}

bool SnapshotReaders::revoked() const {
  MutexLock lock(&mutex_);
  return revoked_;
}

bool SnapshotReaders::empty() const {
  MutexLock lock(&mutex_);
  return readers_.empty();
}

std::shared_ptr<const void> LendBytes(
    const std::shared_ptr<const Snapshot>& snapshot) {
  if (snapshot->lease_ == nullptr) return snapshot;
  return snapshot->lease_;
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
    readers.swap(waiting_);
  }
  for (const ReadableCallback& reader : readers) reader(status);
}

void Snapshot::Finish(const absl::Status& status) const {
  std::vector<ReadableCallback> readers;
  {
    MutexLock lock(&mutex_);
    deferred_ = false;
    finished_ = status;
    readers.swap(waiting_);
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
    if (waits) waiting_.push_back(std::move(callback));
  }
  if (ask != nullptr) ask();
  if (!waits) callback(status);
}

struct SnapshotPool::State {
  // A memory that a snapshot has, or that is lent.
  struct Use {
    std::weak_ptr<const Snapshot> snapshot;
    std::shared_ptr<SnapshotReaders> readers;
    std::shared_ptr<SnapshotBuffers> memory;
    bool lent = false;  // the snapshot has gone, and not all bytes are back
  };
  Mutex mutex;
  CondVar released;
  std::vector<std::shared_ptr<SnapshotBuffers>> free ABSL_GUARDED_BY(mutex);
  std::map<uint64_t, Use> uses ABSL_GUARDED_BY(mutex);  // by age
  uint64_t last_use ABSL_GUARDED_BY(mutex) = 0;
  DType narrowed_dtype;  // constant after construction
};

// Held by one snapshot and by what is lent of it; gives the memory back when
// the last of them goes, unless it was taken over, or the pool has gone.
class SnapshotPool::Lease {
 public:
  Lease(std::shared_ptr<State> state, uint64_t use,
        std::shared_ptr<SnapshotBuffers> memory)
      : state_(std::move(state)), use_(use), memory_(std::move(memory)) {}
  ~Lease() {
    MutexLock lock(&state_->mutex);
    if (state_->uses.erase(use_) == 0) return;
    state_->free.push_back(std::move(memory_));
    state_->released.NotifyAll();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  const std::shared_ptr<State> state_;
  const uint64_t use_;
  std::shared_ptr<SnapshotBuffers> memory_;
};

SnapshotPool::SnapshotPool(std::vector<SnapshotBuffers> buffers,
                           DType narrowed_dtype)
    : state_(std::make_shared<State>()) {
  state_->narrowed_dtype = narrowed_dtype;
  for (SnapshotBuffers& memory : buffers) Add(std::move(memory));
}

SnapshotPool::~SnapshotPool() {
  std::vector<std::shared_ptr<SnapshotBuffers>> unused;
  std::map<uint64_t, State::Use> uses;
  {
    MutexLock lock(&state_->mutex);
    unused.swap(state_->free);
    uses.swap(state_->uses);
  }
  // So that their memory does not stay beside that of a later pool.
  for (const auto& use : uses) {
    if (use.second.lent) use.second.readers->Overtake(/*freed=*/true);
  }
}

void SnapshotPool::Add(SnapshotBuffers buffers) {
  MutexLock lock(&state_->mutex);
  state_->free.push_back(std::make_shared<SnapshotBuffers>(std::move(buffers)));
  state_->released.NotifyAll();
}

std::shared_ptr<Snapshot> SnapshotPool::AcquireWithin(absl::Duration patience) {
  return Acquire(patience, /*lent_too=*/false);
}

std::shared_ptr<Snapshot> SnapshotPool::TakeOverWithin(
    absl::Duration patience) {
  return Acquire(patience, /*lent_too=*/true);
}

std::shared_ptr<Snapshot> SnapshotPool::Acquire(absl::Duration patience,
                                                bool lent_too) {
  const absl::Time deadline = Clock::Real()->Now() + patience;
  std::shared_ptr<SnapshotBuffers> memory;
  State::Use overtaken;
  {
    MutexLock lock(&state_->mutex);
    while (true) {
      auto& uses = state_->uses;
      if (!state_->free.empty()) {
        memory = std::move(state_->free.back());
        state_->free.pop_back();
        break;
      }
      const auto lent =
          std::find_if(uses.begin(), uses.end(),
                       [](const auto& use) { return use.second.lent; });
      if (lent_too && lent != uses.end()) {
        overtaken = std::move(lent->second);
        memory = std::move(overtaken.memory);
        uses.erase(lent);
        break;
      }
      const absl::Duration left = deadline - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return nullptr;
      state_->released.WaitFor(&state_->mutex, left);
    }
  }
  if (overtaken.readers != nullptr)
    overtaken.readers->Overtake(/*freed=*/false);
  return Begin(state_, std::move(memory));
}

std::shared_ptr<Snapshot> SnapshotPool::Begin(
    const std::shared_ptr<State>& state,
    std::shared_ptr<SnapshotBuffers> memory) {
  // Whoever still reads the former version in shared memory has lost it.
  for (const Buffer* buffer : {memory->f32.get(), memory->narrowed.get()}) {
    const std::shared_ptr<Region> region = SharedBuffer::RegionOf(buffer);
    if (region != nullptr) region->BeginGeneration();
  }
  MutexLock lock(&state->mutex);
  const uint64_t number = ++state->last_use;
  SnapshotBuffers* const buffers = memory.get();
  auto lease = std::make_shared<Lease>(state, number, memory);
  std::shared_ptr<Snapshot> snapshot(
      new Snapshot(buffers, state->narrowed_dtype, std::move(lease)),
      [state, number](const Snapshot* snapshot) {
        delete snapshot;  // and the lease, if nothing is lent
        MutexLock lock(&state->mutex);
        const auto use = state->uses.find(number);
        if (use == state->uses.end()) return;
        use->second.lent = true;
        state->released.NotifyAll();
      });
  State::Use use;
  use.snapshot = snapshot;
  use.readers = snapshot->readers();
  use.memory = std::move(memory);
  state->uses.emplace(number, std::move(use));
  return snapshot;
}

bool SnapshotPool::Available() const {
  MutexLock lock(&state_->mutex);
  return !state_->free.empty();
}

bool SnapshotPool::Lends() const {
  MutexLock lock(&state_->mutex);
  return std::any_of(state_->uses.begin(), state_->uses.end(),
                     [](const auto& use) { return use.second.lent; });
}

std::vector<std::shared_ptr<const Snapshot>> SnapshotPool::InUse() const {
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
  MutexLock lock(&state_->mutex);
  for (const auto& use : state_->uses) {
    std::shared_ptr<const Snapshot> snapshot = use.second.snapshot.lock();
    if (snapshot != nullptr) snapshots.push_back(std::move(snapshot));
  }
  return snapshots;
}

}  // namespace agg
