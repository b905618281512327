// A backend whose rows and master weights have a side on a "device": memory
// that other processes can map, and that is not the host's side.
#ifndef AGG_TESTS_SERVER_SHARD_TWO_SIDED_BACKEND_H_
#define AGG_TESTS_SERVER_SHARD_TWO_SIDED_BACKEND_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/dtype.h"
#include "kernels/row_format.h"
#include "server/base/mutex.h"
#include "server/base/shared_memory.h"
#include "server/shard/guarded_backend.h"

namespace agg {

// A row on the host, and its other side.
class TwoSidedBuffer : public Buffer {
 public:
  TwoSidedBuffer(std::unique_ptr<Buffer> own, char* host, int64_t num_bytes)
      : own_(std::move(own)),
        host_(host),
        num_bytes_(num_bytes),
        device_(*SharedMemory::Create(num_bytes, SharedMemory::Others::kWrite)),
        share_{device_->fd(), num_bytes, {}} {}

  char* host() const override { return host_; }
  int64_t num_bytes() const override { return num_bytes_; }
  char* device() const override { return device_->data(); }
  const DeviceShare* device_share() const override { return &share_; }

 private:
  const std::unique_ptr<Buffer> own_;  // null: the host's side is adopted
  char* const host_;
  const int64_t num_bytes_;
  const std::unique_ptr<SharedMemory> device_;
  const DeviceShare share_;
};

// The CPU backend on the rows' other side. What lands is copied there when it
// must be: before a call that computes, and by AwaitRows. Thread-safe.
class TwoSidedBackend : public GuardedBackend {
 public:
  TwoSidedBackend() : TwoSidedBackend(*MakeBackend("cpu", {1})) {}

  int64_t num_awaited() const {
    MutexLock lock(&mutex_);
    return num_awaited_;
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t num_bytes) override {
    auto own = GuardedBackend::Allocate(use, num_bytes);
    if (!own.ok() || use != BufferUse::kRow) return own;
    char* const host = (*own)->host();
    return {std::make_unique<TwoSidedBuffer>(*std::move(own), host, num_bytes)};
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) override {
    if (use != BufferUse::kRow) {
      return GuardedBackend::Adopt(use, host, num_bytes, registered);
    }
    return {std::make_unique<TwoSidedBuffer>(nullptr, host, num_bytes)};
  }
  void RowLanded(const Buffer& row, DType dtype,
                 const ElementRange& range) override {
    const int64_t begin = range.begin * DTypeBytes(dtype);
    const auto num_bytes =
        static_cast<size_t>(range.num_elements * DTypeBytes(dtype));
    MutexLock lock(&mutex_);
    copies_.push_back([to = row.device() + begin, from = row.host() + begin,
                       num_bytes] { std::memcpy(to, from, num_bytes); });
  }
  absl::Status AwaitRows() override {
    Copy();
    MutexLock lock(&mutex_);
    ++num_awaited_;
    return absl::OkStatus();
  }
  absl::Status Gram(const GramRequest& request) override {
    Sides sides(request.rows);
    GramRequest other = request;
    other.rows = sides.pointers;
    Copy();
    return GuardedBackend::Gram(other);
  }
  absl::Status Update(const UpdateRequest& request) override {
    Sides sides(request.rows);
    UpdateRequest other = request;
    other.rows = sides.pointers;
    Copy();
    return GuardedBackend::Update(other);
  }

 private:
  // The device's side as the CPU backend takes it.
  class Side : public Buffer {
   public:
    explicit Side(const Buffer& row) : row_(row) {}
    char* host() const override { return row_.device(); }
    int64_t num_bytes() const override { return row_.num_bytes(); }

   private:
    const Buffer& row_;
  };
  struct Sides {
    explicit Sides(absl::Span<const Buffer* const> rows) {
      for (const Buffer* row : rows) {
        owners.push_back(std::make_unique<Side>(*row));
        pointers.push_back(owners.back().get());
      }
    }
    std::vector<std::unique_ptr<Side>> owners;
    std::vector<const Buffer*> pointers;
  };

  explicit TwoSidedBackend(std::unique_ptr<Backend> cpu)
      : GuardedBackend(cpu.get()), cpu_(std::move(cpu)) {}

  void Copy() {
    std::vector<std::function<void()>> copies;
    {
      MutexLock lock(&mutex_);
      copies.swap(copies_);
    }
    for (const auto& copy : copies) copy();
  }

  const std::unique_ptr<Backend> cpu_;
  mutable Mutex mutex_;
  std::vector<std::function<void()>> copies_ ABSL_GUARDED_BY(mutex_);
  int64_t num_awaited_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_SHARD_TWO_SIDED_BACKEND_H_
