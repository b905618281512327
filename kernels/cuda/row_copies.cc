#include "kernels/cuda/row_copies.h"

#include <utility>

#include "kernels/cuda/cuda_status.h"

namespace agg::cuda {

absl::StatusOr<std::unique_ptr<RowCopies>> RowCopies::Make() {
  absl::StatusOr<Stream> stream = MakeStream();
  if (!stream.ok()) return stream.status();
  absl::StatusOr<Event> landed = MakeEvent();
  if (!landed.ok()) return landed.status();
  return std::unique_ptr<RowCopies>(
      new RowCopies(*std::move(stream), *std::move(landed)));
}

void RowCopies::Start(const char* host, Row* row, const ByteSpan& span) {
  const absl::Status status =
      CudaStatus(cudaMemcpyAsync(row->device + span.begin, host + span.begin,
                                 static_cast<size_t>(span.end - span.begin),
                                 cudaMemcpyHostToDevice, stream_.get()),
                 "cudaMemcpyAsync of a row", __FILE__, __LINE__);
  if (!status.ok()) row->failed.push_back(span);
  if (error_.ok()) error_ = status;
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

absl::Status RowCopies::WaitOn(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [host, row] : rows_) {
    for (const ByteSpan& span : std::exchange(row.failed, {})) {
      Start(host, &row, span);
    }
    if (const auto rest = row.coalescer.Take(); rest.has_value()) {
      Start(host, &row, *rest);
    }
  }
  absl::Status error = error_;
  error_ = absl::OkStatus();
  if (!error.ok()) return error;
  AGG_RETURN_IF_CUDA_ERROR(cudaEventRecord(landed_.get(), stream_.get()));
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream, landed_.get(), 0));
  return absl::OkStatus();
}

void RowCopies::Forget(const char* host) {
  const std::lock_guard<std::mutex> lock(mutex_);
  rows_.erase(host);
  const absl::Status status =
      CudaStatus(cudaStreamSynchronize(stream_.get()),
                 "cudaStreamSynchronize of row copies", __FILE__, __LINE__);
  if (error_.ok()) error_ = status;
}

}  // namespace agg::cuda
