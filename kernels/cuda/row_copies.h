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
#include "absl/types/span.h"
#include "kernels/cuda/copy_journal.h"
#include "kernels/cuda/cuda_memory.h"

namespace agg::cuda {

// Thread-safe. Copies of one row are made in the order in which they were
// asked for, so that a slice that lands again (its sender died in between)
// ends up as landed last.
class RowCopies {
 public:
  static absl::StatusOr<std::unique_ptr<RowCopies>> Make();

  // Counts one row more, until Forget.
  void AddRow();
  int64_t num_rows();

  // Starts copying bytes [begin, end) of a row from its pinned `host` memory
  // to `device`, at once or together with what lands behind it. An error is
  // kept for the next wait. `host` and `device` identify the row until Forget.
  void Land(const char* host, char* device, const ByteSpan& span,
            int64_t alignment);

  // Makes later work on `consumer` wait for everything landed so far. Returns
  // the first error of a copy since the last call; such copies are made again
  // by the next one, so that a repeat does not meet stale bytes. REQUIRES: the
  // same stream at every call, of WaitFor, too.
  absl::Status WaitForAll(cudaStream_t consumer);

  // Makes later work on `consumer` wait as WaitForAll does, but for `spans` of
  // the rows alone, or for little more: what lands after them goes on landing.
  absl::Status WaitFor(cudaStream_t consumer,
                       absl::Span<const char* const> hosts,
                       absl::Span<const ByteSpan> spans);

  // Waits on the host for everything landed so far, and tells streams nothing
  // of it: the other waits are as they would be. Errors as of WaitForAll.
  // Others need not wait for that.
  absl::Status Await();

  // Waits for the row's copies and forgets it; its memory may go then. Others
  // need not wait for that.
  void Forget(const char* host);

 private:
  struct Row {
    char* device = nullptr;
    CopyCoalescer coalescer;
    CopyJournal journal;
    std::vector<ByteSpan> failed;  // to be copied again
    bool has_failed = false;  // ever: some of it may be copied without an event
    int64_t last_copy = 0;    // 0: none
  };

  RowCopies(Stream stream, std::vector<Event> copied)
      : stream_(std::move(stream)), copied_(std::move(copied)) {}

  // The following are called with mutex_ held.
  void Start(const char* host, Row* row, const ByteSpan& span);
  // Starts what the row keeps back, for its size or after an error.
  void StartRest(const char* host, Row* row);
  absl::Status TakeError();
  absl::Status WaitForCopy(cudaStream_t consumer, int64_t copy);

  const Stream stream_;
  // Events that are recorded after each copy, in turns: those of the last
  // copies.
  const std::vector<Event> copied_;
  std::mutex mutex_;                 // guards what follows
  std::map<const char*, Row> rows_;  // that have landed
  int64_t num_rows_ = 0;
  int64_t num_copies_ = 0;   // made
  int64_t num_awaited_ = 0;  // of them, by a stream
  int64_t num_arrived_ = 0;  // of them, as Await knows
  absl::Status error_;       // the first one
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_ROW_COPIES_H_
