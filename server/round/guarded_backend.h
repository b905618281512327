// A shard's backend with a watch on its errors.
#ifndef AGG_SERVER_ROUND_GUARDED_BACKEND_H_
#define AGG_SERVER_ROUND_GUARDED_BACKEND_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace agg {

// Passes every call on, counts those that fail, and reports a lost device.
// Thread-safe as far as the other one is.
class GuardedBackend : public Backend {
 public:
  // `backend` outlives it. `on_device_lost` is called once, by the thread
  // whose call was the first to get UNAVAILABLE; null: nobody wants to know.
  GuardedBackend(Backend* backend,
                 std::function<void(absl::Status)> on_device_lost)
      : backend_(backend), on_device_lost_(std::move(on_device_lost)) {}

  int64_t num_errors() const { return num_errors_; }

  absl::string_view name() const override { return backend_->name(); }
  std::string description() const override { return backend_->description(); }
  MemoryNeeds memory_needs(int64_t num_rows) const override {
    return backend_->memory_needs(num_rows);
  }
  DeviceMemoryUse device_memory_use() const override {
    return backend_->device_memory_use();
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t num_bytes) override;
  void RowLanded(const Buffer& row, DType dtype,
                 const ElementRange& range) override {
    backend_->RowLanded(row, dtype, range);
  }
  absl::Status Load(const OptimizerOptions& optimizer, const Buffer& snapshot,
                    Buffer* master, Buffer* state0, Buffer* state1,
                    Buffer* narrowed_snapshot, DType narrowed_dtype) override;
  absl::Status Gram(const GramRequest& request) override;
  absl::Status Update(const UpdateRequest& request) override;
  absl::Status Norms(const UpdateRequest& request,
                     absl::Span<RangeNorms> norms) override;

 private:
  absl::Status Watch(absl::Status status);

  Backend* const backend_;
  const std::function<void(absl::Status)> on_device_lost_;
  std::atomic<int64_t> num_errors_{0};
  std::atomic<bool> device_lost_{false};
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_GUARDED_BACKEND_H_
