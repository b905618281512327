// A backend whose float32 snapshots come behind what is published, as late as a
// test wants.
#ifndef AGG_TESTS_SERVER_SHARD_DEFERRING_BACKEND_H_
#define AGG_TESTS_SERVER_SHARD_DEFERRING_BACKEND_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "server/base/mutex.h"
#include "server/shard/guarded_backend.h"

namespace agg {

// When the bytes come, of all backends that share it. Thread-safe.
class DeferralGate {
 public:
  void Close() { Set(true, 0); }
  void Open() { Set(false, 0); }
  // The next waits end with an error.
  void Fail(int num_waits) { Set(false, num_waits); }
  bool closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }

  // Waits that have ended.
  int64_t num_passed() const {
    MutexLock lock(&mutex_);
    return num_passed_;
  }

  absl::Status Pass() {
    MutexLock lock(&mutex_);
    while (closed_) changed_.Wait(&mutex_);
    ++num_passed_;
    if (num_failing_ == 0) return absl::OkStatus();
    --num_failing_;
    return absl::InternalError("no copy");
  }

 private:
  void Set(bool closed, int num_failing) {
    MutexLock lock(&mutex_);
    closed_ = closed;
    num_failing_ = num_failing;
    changed_.NotifyAll();
  }
  mutable Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int num_failing_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_passed_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The CPU's results. Until FinishSnapshot what was deferred is full of NaNs; of
// what nobody has asked for, the next Update or Step leaves nothing else.
class DeferringBackend : public GuardedBackend {
 public:
  // `gate` outlives it.
  explicit DeferringBackend(DeferralGate* gate)
      : DeferringBackend(gate, *MakeBackend("cpu", {1})) {}

  absl::Status Update(const UpdateRequest& request) override {
    LoseUnasked();
    const absl::Status status = GuardedBackend::Update(request);
    if (status.ok()) Defer(request);
    return status;
  }
  absl::Status Step(const UpdateRequest& request) override {
    LoseUnasked();
    const absl::Status status = GuardedBackend::Step(request);
    if (status.ok()) Defer(request);
    return status;
  }
  absl::Status FinishSnapshot(const Buffer& snapshot) override {
    const absl::Status status = gate_->Pass();
    if (!status.ok()) return status;
    MutexLock lock(&mutex_);
    const auto found = deferred_.find(snapshot.host());
    if (found == deferred_.end()) return absl::OkStatus();
    const std::string& bytes = found->second.bytes;
    if (bytes.empty()) return absl::FailedPreconditionError("written again");
    std::memcpy(snapshot.host(), bytes.data(), bytes.size());
    deferred_.erase(found);
    return absl::OkStatus();
  }

 private:
  DeferringBackend(DeferralGate* gate, std::unique_ptr<Backend> cpu)
      : GuardedBackend(cpu.get()), cpu_(std::move(cpu)), gate_(gate) {}

  void Defer(const UpdateRequest& request) {
    if (request.snapshot_deferred == nullptr) return;
    *request.snapshot_deferred = true;
    char* const host = request.snapshot->host();
    const auto num_bytes = static_cast<size_t>(request.snapshot->num_bytes());
    MutexLock lock(&mutex_);
    deferred_[host] = {std::string(host, num_bytes),
                       request.snapshot_on_demand};
    std::memset(host, 0xff, num_bytes);
  }
  void LoseUnasked() {
    MutexLock lock(&mutex_);
    for (auto& [host, snapshot] : deferred_) {
      if (snapshot.on_demand) snapshot.bytes.clear();
    }
  }

  struct Deferred {
    std::string bytes;  // none: lost
    bool on_demand = false;
  };

  const std::unique_ptr<Backend> cpu_;
  DeferralGate* const gate_;
  Mutex mutex_;
  std::map<const char*, Deferred> deferred_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_SHARD_DEFERRING_BACKEND_H_
