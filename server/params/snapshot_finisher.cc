// One snapshot after the other: a device copies them in that order.
#include "server/params/snapshot_finisher.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/line_limits.h"
#include "server/base/log.h"

namespace agg {
namespace {

absl::Status Finish(Backend* backend, const Buffer& f32) {
  absl::Status status = backend->FinishSnapshot(f32);
  if (status.ok()) return status;
  if (!absl::IsFailedPrecondition(status))
    status = backend->FinishSnapshot(f32);
  if (status.ok()) return status;
  if (absl::IsFailedPrecondition(status)) {
    return absl::OutOfRangeError(
        absl::StrCat("this version is gone as float32; pull the newest one: ",
                     status.message()));
  }
  return absl::UnavailableError(absl::StrCat(
      "this version could not be copied as float32: ", status.message()));
}

}  // namespace

bool SnapshotFinisher::Queue::Push(std::shared_ptr<const Snapshot> snapshot) {
  MutexLock lock(&mutex);
  if (stopping) return false;
  waiting.push_back(std::move(snapshot));
  changed.NotifyAll();
  return true;
}

std::shared_ptr<const Snapshot> SnapshotFinisher::Queue::Pop() {
  MutexLock lock(&mutex);
  while (waiting.empty() && !stopping) changed.Wait(&mutex);
  if (waiting.empty()) return nullptr;
  std::shared_ptr<const Snapshot> snapshot = std::move(waiting.front());
  waiting.pop_front();
  return snapshot;
}

SnapshotFinisher::SnapshotFinisher(Backend* backend)
    : backend_(backend), queue_(std::make_shared<Queue>()) {}

SnapshotFinisher::~SnapshotFinisher() {
  {
    MutexLock lock(&queue_->mutex);
    queue_->stopping = true;
    queue_->changed.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void SnapshotFinisher::StartThread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void SnapshotFinisher::Add(const std::shared_ptr<Snapshot>& snapshot) {
  snapshot->Defer();
  queue_->Push(snapshot);
  StartThread();
}

void SnapshotFinisher::AddWhenAsked(const std::shared_ptr<Snapshot>& snapshot) {
  StartThread();
  snapshot->DeferUntilAsked(AskFor(snapshot));
}

std::function<void()> SnapshotFinisher::AskFor(
    const std::shared_ptr<const Snapshot>& snapshot) const {
  return [weak = std::weak_ptr<Queue>(queue_),
          asked = std::weak_ptr<const Snapshot>(snapshot)] {
    const std::shared_ptr<Queue> queue = weak.lock();
    const std::shared_ptr<const Snapshot> wanted = asked.lock();
    if (wanted == nullptr) return;
    if (queue != nullptr && queue->Push(wanted)) return;
    wanted->Finish(absl::OutOfRangeError(
        "this version is gone as float32: the shard has let go of its "
        "parameters; pull the newest one"));
  };
}

void SnapshotFinisher::Run() {
  std::weak_ptr<const Snapshot> told;  // of its failure
  for (;;) {
    const std::shared_ptr<const Snapshot> snapshot = queue_->Pop();
    if (snapshot == nullptr) return;
    const absl::Status status = Finish(backend_, *snapshot->buffers()->f32);
    if (absl::IsUnavailable(status)) {
      if (told.lock() != snapshot) {
        LogWarningOf(WithoutNumbers(status.message()), status.message());
      }
      told = snapshot;
      snapshot->FailUntilAsked(status, AskFor(snapshot));
    } else {
      snapshot->Finish(status);
    }
  }
}

}  // namespace agg
