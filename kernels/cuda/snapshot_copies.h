// Float32 snapshots that go to the host behind what is published at once.
#ifndef AGG_KERNELS_CUDA_SNAPSHOT_COPIES_H_
#define AGG_KERNELS_CUDA_SNAPSHOT_COPIES_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/buffer.h"
#include "kernels/cuda/chunk_plan.h"
#include "kernels/cuda/cuda_memory.h"

namespace agg::cuda {

// Copies from masters, each of which may be written again before its copy is
// made: the device keeps the order, and no thread of the host waits for it.
// Thread-safe. Allocates no memory of the device or for it.
class SnapshotCopies {
 public:
  // Most copies that can be unfinished: one for each memory of a server's
  // snapshots. A copy is unfinished until Finish, or Forget.
  static constexpr int kMaxCopies = 4;

  static absl::StatusOr<std::shared_ptr<SnapshotCopies>> Make();

  // Gives `stream`, which outlives this, the copies of `spans` from `master` to
  // `snapshot`. *deferred becomes true: Finish is to be called, and returns the
  // error, should a copy fail. False: too many others are unfinished, and the
  // caller waits for the stream; an error of giving it the copies is returned.
  // kStarted: the caller has given them to the stream; kOnDemand: Finish does.
  enum class When { kNow, kStarted, kOnDemand };
  absl::Status Start(const float* master, const Buffer& snapshot,
                     absl::Span<const Span> spans, cudaStream_t stream,
                     When when, bool* deferred);

  // Makes later work on `stream`, which writes `master`, wait for the copies
  // from it. Those that have failed cannot be made again from here on.
  absl::Status WaitToWrite(const float* master, cudaStream_t stream);

  // Does the work of Backend::FinishSnapshot.
  absl::Status Finish(const Buffer& snapshot);

  // Forgets the snapshot, whose memory goes. Waits for a copy that is under
  // way.
  void Forget(const char* snapshot);

 private:
  struct Copy {
    Event copied;
    char* snapshot = nullptr;  // null: none
    const float* master = nullptr;
    cudaStream_t stream = nullptr;
    std::vector<Span> spans;
    absl::Status started;
    bool overwritten = false;  // the master, perhaps
  };

  SnapshotCopies() = default;
  static void Enqueue(Copy* copy);
  static void Record(Copy* copy);
  // Returns the copy to this memory, or null. Called with mutex_ held, as what
  // follows.
  Copy* Find(const char* snapshot);
  absl::Status Retry(Copy* copy);

  std::mutex mutex_;
  Copy copies_[kMaxCopies];  // guarded by mutex_, but for waits for an event
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_SNAPSHOT_COPIES_H_
