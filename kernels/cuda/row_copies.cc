// Starts copies as rows land and keeps one event per copy, so that a Gram waits
// for the copies of its own slices and not for those that came after them.
#include "kernels/cuda/row_copies.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_status.h"

namespace agg::cuda {
namespace {

// How many of the last copies can be waited for one by one; instead of an older
// one, the oldest of these is waited for. They are a GiB of copies of the size
// that copy_journal.h makes.
constexpr int64_t kNumEvents = 1024;
// From as many on, looking each one up takes longer than waiting for all
// copies.
constexpr size_t kManySpans = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<RowCopies>> RowCopies::Make() {
  absl::StatusOr<Stream> stream = MakeStream();
  if (!stream.ok()) return stream.status();
  std::vector<Event> copied;
  for (int i = 0; i < kNumEvents; ++i) {
    absl::StatusOr<Event> event = MakeEvent();
    if (!event.ok()) return event.status();
    copied.push_back(*std::move(event));
  }
  return std::unique_ptr<RowCopies>(
      new RowCopies(*std::move(stream), std::move(copied)));
}

void RowCopies::Start(const char* host, Row* row, const ByteSpan& span) {
  absl::Status status = CopyToDevice(host, row->device, span, stream_.get());
  const int64_t copy = num_copies_ + 1;
  if (status.ok()) {
    status = CudaStatus(
        cudaEventRecord(copied_[copy % kNumEvents].get(), stream_.get()),
        "cudaEventRecord of a row's copy", __FILE__, __LINE__);
  }
  if (status.ok()) {
    num_copies_ = copy;
    row->last_copy = copy;
    row->journal.Add(span, copy);
  } else {
    row->failed.push_back(span);
    row->has_failed = true;
    if (error_.ok()) error_ = status;
    // CUDA keeps the error for the next call that asks; it is dealt with here.
    cudaGetLastError();
  }
}

void RowCopies::Land(const char* host, char* device, const ByteSpan& span,
                     int64_t alignment) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Row& row = rows_[host];
  row.device = device;
  for (const ByteSpan& ready : row.coalescer.Add(span, alignment)) {
    Start(host, &row, ready);
  }
}

void RowCopies::StartRest(const char* host, Row* row) {
  for (const ByteSpan& span : std::exchange(row->failed, {})) {
    Start(host, row, span);
  }
  if (const auto rest = row->coalescer.Take(); rest.has_value()) {
    Start(host, row, *rest);
  }
}

absl::Status RowCopies::TakeError() {
  return std::exchange(error_, absl::OkStatus());
}

absl::Status RowCopies::WaitForCopy(cudaStream_t consumer, int64_t copy) {
  // Events are used again after kNumEvents copies. Copies are made in order, so
  // for a copy whose event is gone the oldest one that is left will do.
  copy = std::max(copy, num_copies_ - kNumEvents + 1);
  if (copy <= num_awaited_) return absl::OkStatus();
  AGG_RETURN_IF_CUDA_ERROR(
      cudaStreamWaitEvent(consumer, copied_[copy % kNumEvents].get(), 0));
  num_awaited_ = copy;
  for (auto& [host, row] : rows_) row.journal.ForgetUpTo(copy);
  return absl::OkStatus();
}

absl::Status RowCopies::WaitForAll(cudaStream_t consumer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [host, row] : rows_) StartRest(host, &row);
  const absl::Status error = TakeError();
  return error.ok() ? WaitForCopy(consumer, num_copies_) : error;
}

absl::Status RowCopies::WaitFor(cudaStream_t consumer,
                                absl::Span<const char* const> hosts,
                                absl::Span<const ByteSpan> spans) {
  if (spans.size() > kManySpans) return WaitForAll(consumer);
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t last = 0;
  for (const char* host : hosts) {
    const auto row = rows_.find(host);
    if (row == rows_.end()) continue;
    StartRest(host, &row->second);
    for (const ByteSpan& span : spans) {
      last = std::max(last, row->second.journal.LastCopyOf(span));
    }
  }
  const absl::Status error = TakeError();
  if (!error.ok() || last == 0) return error;
  return WaitForCopy(consumer, last);
}

absl::Status RowCopies::Await() {
  int64_t last_copy = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [host, row] : rows_) StartRest(host, &row);
    const absl::Status error = TakeError();
    if (!error.ok() || num_arrived_ == num_copies_) return error;
    last_copy = num_copies_;
  }
  // If the event is another copy's by now, that one comes after this one.
  AGG_RETURN_IF_CUDA_ERROR(cuda::Await(copied_[last_copy % kNumEvents].get()));
  const std::lock_guard<std::mutex> lock(mutex_);
  num_arrived_ = std::max(num_arrived_, last_copy);
  return absl::OkStatus();
}

void RowCopies::AddRow() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++num_rows_;
}

int64_t RowCopies::num_rows() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_rows_;
}

void RowCopies::Forget(const char* host) {
  bool failed = false;
  int64_t last_copy = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --num_rows_;
    const auto row = rows_.find(host);
    if (row == rows_.end()) return;
    failed = row->second.has_failed;
    last_copy = row->second.last_copy;
    rows_.erase(row);
  }
  // Without the lock: other rows land meanwhile. If the event is another copy's
  // by now, that one comes after this row's.
  absl::Status status;
  if (failed) {
    status =
        CudaStatus(cudaStreamSynchronize(stream_.get()),
                   "cudaStreamSynchronize of row copies", __FILE__, __LINE__);
  } else if (last_copy > 0) {
    status =
        CudaStatus(cudaEventSynchronize(copied_[last_copy % kNumEvents].get()),
                   "cudaEventSynchronize of a row's copy", __FILE__, __LINE__);
  }
  if (status.ok()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_.ok()) error_ = status;
}

}  // namespace agg::cuda
