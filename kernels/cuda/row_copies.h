// Copies landed rows to the device while others still land.
#ifndef AGG_KERNELS_CUDA_ROW_COPIES_H_
#define AGG_KERNELS_CUDA_ROW_COPIES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/copy_coalescer.h"
#include "kernels/cuda/cuda_memory.h"

namespace agg::cuda {

// Thread-safe. Copies of one row are made in the order in which they were
// asked for, so that a slice that lands again (its sender died in between)
// ends up as landed last.
class RowCopies {
 public:
  static absl::StatusOr<std::unique_ptr<RowCopies>> Make();

  // Starts copying bytes [begin, end) of a row from its pinned `host` memory
  // to `device`, at once or together with what lands behind it. An error is
  // kept for WaitOn. `host` and `device` identify the row until Forget.
  void Land(const char* host, char* device, const ByteSpan& span,
            int64_t alignment);

  // Makes later work on `stream` wait for everything landed so far. Returns
  // the first error of a copy since the last call; such copies are made again
  // by the next one, so that a repeat does not meet stale bytes.
  absl::Status WaitOn(cudaStream_t stream);

  // Waits for the row's copies and forgets it; its memory may go then.
  void Forget(const char* host);

 private:
  struct Row {
    char* device = nullptr;
    CopyCoalescer coalescer;
    std::vector<ByteSpan> failed;  // to be copied again
  };

  RowCopies(Stream stream, Event landed)
      : stream_(std::move(stream)), landed_(std::move(landed)) {}
  // Holds mutex_.
  void Start(const char* host, Row* row, const ByteSpan& span);

  const Stream stream_;
  const Event landed_;
  std::mutex mutex_;
  std::map<const char*, Row> rows_;  // guarded by mutex_; that have landed
  absl::Status error_;               // guarded by mutex_; the first one
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_ROW_COPIES_H_
