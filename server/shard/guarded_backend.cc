// Every call goes through Watch, which counts errors and keeps the first
// that says that the device is lost. Those that compute wait for each other: a
// neighbour may fetch a copy while a phase runs (P15), and a backend takes one
// call at a time. (FinishSnapshot goes beside them.)
#include "server/shard/guarded_backend.h"

#include <utility>

namespace agg {

absl::Status GuardedBackend::Watch(absl::Status status) {
  if (progress_ != nullptr) progress_->Note();
  if (status.ok()) return status;
  ++num_errors_;
  MutexLock lock(&mutex_);
  if (absl::IsUnavailable(status) && !device_lost_) {
    device_lost_ = true;
    lost_device_ = status;
  }
  return status;
}

absl::Status GuardedBackend::TakeLostDevice() {
  MutexLock lock(&mutex_);
  return std::exchange(lost_device_, absl::OkStatus());
}

absl::StatusOr<std::unique_ptr<Buffer>> GuardedBackend::Allocate(
    BufferUse use, int64_t num_bytes) {
  absl::StatusOr<std::unique_ptr<Buffer>> buffer =
      backend_->Allocate(use, num_bytes);
  Watch(buffer.status()).IgnoreError();
  return buffer;
}

absl::StatusOr<std::unique_ptr<Buffer>> GuardedBackend::Adopt(
    BufferUse use, char* host, int64_t num_bytes, absl::Status* registered) {
  absl::StatusOr<std::unique_ptr<Buffer>> buffer =
      backend_->Adopt(use, host, num_bytes, registered);
  Watch(buffer.status()).IgnoreError();
  return buffer;
}

absl::Status GuardedBackend::Load(const OptimizerOptions& optimizer,
                                  const Buffer& snapshot, Buffer* master,
                                  Buffer* state0, Buffer* state1,
                                  Buffer* narrowed_snapshot,
                                  DType narrowed_dtype) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Load(optimizer, snapshot, master, state0, state1,
                              narrowed_snapshot, narrowed_dtype));
}

absl::Status GuardedBackend::Read(const Buffer& state,
                                  absl::Span<float> values) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Read(state, values));
}

absl::Status GuardedBackend::Write(absl::Span<const float> values,
                                   Buffer* state) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Write(values, state));
}

absl::Status GuardedBackend::Gram(const GramRequest& request) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Gram(request));
}

absl::Status GuardedBackend::Update(const UpdateRequest& request) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Update(request));
}

absl::Status GuardedBackend::Combine(const UpdateRequest& request) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Combine(request));
}

absl::Status GuardedBackend::Step(const UpdateRequest& request) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Step(request));
}

absl::Status GuardedBackend::FinishSnapshot(const Buffer& snapshot) {
  return Watch(backend_->FinishSnapshot(snapshot));
}

absl::Status GuardedBackend::Norms(const UpdateRequest& request,
                                   absl::Span<RangeNorms> norms) {
  const MutexLock lock(&computing_);
  return Watch(backend_->Norms(request, norms));
}

}  // namespace agg
