// One event per unfinished copy. The host waits for it in Finish alone; what
// writes the master waits for it on the device.
#include "kernels/cuda/snapshot_copies.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_status.h"

namespace agg::cuda {
namespace {

absl::Status CopySpans(const float* master, char* snapshot,
                       absl::Span<const Span> spans, cudaStream_t stream) {
  for (const Span& span : spans) {
    const absl::Status status = CopyToHost(
        reinterpret_cast<const char*>(master), snapshot,
        {span.begin * 4, (span.begin + span.num_elements) * 4}, stream);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<SnapshotCopies>> SnapshotCopies::Make() {
  std::shared_ptr<SnapshotCopies> copies(new SnapshotCopies);
  for (Copy& copy : copies->copies_) {
    absl::StatusOr<Event> event = MakeEvent();
    if (!event.ok()) return event.status();
    copy.copied = *std::move(event);
  }
  return copies;
}

SnapshotCopies::Copy* SnapshotCopies::Find(const char* snapshot) {
  for (Copy& copy : copies_) {
    if (copy.snapshot == snapshot) return &copy;
  }
  return nullptr;
}

void SnapshotCopies::Enqueue(Copy* copy) {
  copy->started =
      CopySpans(copy->master, copy->snapshot, copy->spans, copy->stream);
  if (copy->started.ok()) return Record(copy);
  // CUDA keeps an error for the next call that asks; Finish deals with it.
  cudaGetLastError();
}

void SnapshotCopies::Record(Copy* copy) {
  copy->started =
      CudaStatus(cudaEventRecord(copy->copied.get(), copy->stream),
                 "cudaEventRecord of a snapshot's copy", __FILE__, __LINE__);
  if (!copy->started.ok()) cudaGetLastError();
}

absl::Status SnapshotCopies::Start(const float* master, const Buffer& snapshot,
                                   absl::Span<const Span> spans,
                                   cudaStream_t stream, When when,
                                   bool* deferred) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Copy* copy = Find(snapshot.host());  // one that failed and was given up
  for (Copy& other : copies_) {
    if (copy == nullptr && other.snapshot == nullptr) copy = &other;
  }
  *deferred = copy != nullptr;
  if (!*deferred) {
    return when == When::kStarted
               ? absl::OkStatus()
               : CopySpans(master, snapshot.host(), spans, stream);
  }
  copy->snapshot = snapshot.host();
  copy->master = master;
  copy->stream = stream;
  copy->spans.assign(spans.begin(), spans.end());
  copy->overwritten = false;
  switch (when) {
    case When::kNow:
      Enqueue(copy);
      break;
    case When::kStarted:
      Record(copy);
      break;
    case When::kOnDemand:
      copy->started = absl::UnavailableError("nobody has asked for it");
      break;
  }
  return absl::OkStatus();
}

absl::Status SnapshotCopies::WaitToWrite(const float* master,
                                         cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Copy& copy : copies_) {
    if (copy.snapshot == nullptr || copy.master != master) continue;
    copy.overwritten = true;
    if (!copy.started.ok()) continue;
    AGG_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream, copy.copied.get(), 0));
  }
  return absl::OkStatus();
}

absl::Status SnapshotCopies::Retry(Copy* copy) {
  if (!copy->overwritten) Enqueue(copy);
  if (copy->started.ok()) return absl::OkStatus();
  // Some of the spans may be on their way to memory that the caller gives up.
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(copy->stream));
  if (!copy->overwritten) return copy->started;
  return absl::FailedPreconditionError(
      absl::StrCat("the parameters have changed since, and a snapshot has not "
                   "been copied: ",
                   copy->started.message()));
}

absl::Status SnapshotCopies::Finish(const Buffer& snapshot) {
  cudaEvent_t copied = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Copy* const copy = Find(snapshot.host());
    if (copy == nullptr) return absl::OkStatus();
    if (!copy->started.ok()) {
      const absl::Status status = Retry(copy);
      if (!status.ok()) return status;
    }
    copied = copy->copied.get();
  }
  // Without the lock: an Update goes on meanwhile.
  AGG_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(copied));
  const std::lock_guard<std::mutex> lock(mutex_);
  Copy* const copy = Find(snapshot.host());
  if (copy != nullptr) copy->snapshot = nullptr;
  return absl::OkStatus();
}

void SnapshotCopies::Forget(const char* snapshot) {
  cudaEvent_t copied = nullptr;
  cudaStream_t stream = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Copy* const copy = Find(snapshot);
    if (copy == nullptr) return;
    stream = copy->stream;
    if (copy->started.ok()) copied = copy->copied.get();
  }
  // Of a copy that could not be started some of the spans may be under way.
  const cudaError_t error = copied != nullptr ? cudaEventSynchronize(copied)
                                              : cudaStreamSynchronize(stream);
  if (error != cudaSuccess) cudaGetLastError();  // who computes next finds it
  const std::lock_guard<std::mutex> lock(mutex_);
  Copy* const copy = Find(snapshot);
  if (copy != nullptr) copy->snapshot = nullptr;
}

}  // namespace agg::cuda
