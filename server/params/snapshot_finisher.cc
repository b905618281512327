// One snapshot after the other: a device copies them in that order.
#include "server/params/snapshot_finisher.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace agg {
namespace {

absl::Status Finish(Backend* backend, const Buffer& f32) {
  if (backend->FinishSnapshot(f32).ok()) return absl::OkStatus();
  const absl::Status status = backend->FinishSnapshot(f32);
  if (status.ok()) return status;
  LogWarning("a version has no float32 copy: ", status.ToString());
  return absl::UnavailableError(absl::StrCat(
      "this version could not be copied as float32: ", status.message()));
}

}  // namespace

SnapshotFinisher::~SnapshotFinisher() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void SnapshotFinisher::Add(std::shared_ptr<Snapshot> snapshot) {
  snapshot->Defer();
  {
    MutexLock lock(&mutex_);
    waiting_.push_back(std::move(snapshot));
    changed_.NotifyAll();
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void SnapshotFinisher::Run() {
  for (;;) {
    std::shared_ptr<const Snapshot> snapshot;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (waiting_.empty()) return;
      snapshot = std::move(waiting_.front());
      waiting_.pop_front();
    }
    snapshot->Finish(Finish(backend_, *snapshot->buffers()->f32));
  }
}

}  // namespace agg
