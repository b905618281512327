// A shard's backend that counts errors and notices a lost device. Apart from
// the engine because calls come from several places of it.
#ifndef AGG_SERVER_SHARD_GUARDED_BACKEND_H_
#define AGG_SERVER_SHARD_GUARDED_BACKEND_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace agg {

// Passes every call on to another backend. An error with UNAVAILABLE means that
// the device is lost (kernels/backend.h). Thread-safe.
class GuardedBackend : public Backend {
 public:
  // `backend` and `progress` outlive it. `progress` (may be null) moves with
  // each call that ends, so that a phase of many calls is not taken for one
  // that hangs (P31).
  explicit GuardedBackend(Backend* backend, Progress* progress = nullptr)
      : backend_(backend), progress_(progress) {}

  // The error of the first call that found the device lost, once; OK before
  // and after.
  absl::Status TakeLostDevice();
  int64_t num_errors() const { return num_errors_; }

  absl::string_view name() const override { return backend_->name(); }
  std::string description() const override { return backend_->description(); }
  MemoryNeeds memory_needs(int64_t num_rows) const override {
    return backend_->memory_needs(num_rows);
  }
  DeviceMemoryUse device_memory_use() const override {
    return backend_->device_memory_use();
  }
  double gram_products_at_once() const override {
    return backend_->gram_products_at_once();
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t num_bytes) override;
  // Memory that cannot be registered is no error.
  absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) override;
  void RowLanded(const Buffer& row, DType dtype,
                 const ElementRange& range) override {
    backend_->RowLanded(row, dtype, range);
  }
  absl::Status AwaitRows() override { return Watch(backend_->AwaitRows()); }
  absl::Status Load(const OptimizerOptions& optimizer, const Buffer& snapshot,
                    Buffer* master, Buffer* state0, Buffer* state1,
                    Buffer* narrowed_snapshot, DType narrowed_dtype) override;
  absl::Status Read(const Buffer& state, absl::Span<float> values) override;
  absl::Status Write(absl::Span<const float> values, Buffer* state) override;
  absl::Status Gram(const GramRequest& request) override;
  absl::Status Update(const UpdateRequest& request) override;
  absl::Status Combine(const UpdateRequest& request) override;
  absl::Status Step(const UpdateRequest& request) override;
  absl::Status FinishSnapshot(const Buffer& snapshot) override;
  absl::Status Norms(const UpdateRequest& request,
                     absl::Span<RangeNorms> norms) override;

 protected:
  // A call has ended: counts `status` if it is an error; returns it.
  absl::Status Watch(absl::Status status);

 private:
  Backend* const backend_;
  Progress* const progress_;
  Mutex computing_;  // during one call of it
  std::atomic<int64_t> num_errors_{0};
  Mutex mutex_;
  bool device_lost_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lost_device_ ABSL_GUARDED_BY(mutex_);  // until it is taken
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_GUARDED_BACKEND_H_
