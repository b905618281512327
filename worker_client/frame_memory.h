// The memory of frames that gRPC may still read.
#ifndef AGG_WORKER_CLIENT_FRAME_MEMORY_H_
#define AGG_WORKER_CLIENT_FRAME_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

// Keeps the buffers for narrowed rows, and counts the frames whose bytes gRPC
// may still read. Reused from push to push. Thread-safe.
class FrameMemory : public std::enable_shared_from_this<FrameMemory> {
 public:
  // The owner of one frame's bytes: counts the frame until it is released,
  // and then takes `staging` back.
  std::shared_ptr<const void> Hold(
      std::unique_ptr<std::vector<uint16_t>> staging);

  // A buffer for a frame: a released one, or a new one. Contents: undefined.
  std::unique_ptr<std::vector<uint16_t>> TakeStaging();

  int64_t frames_in_use() const;

 private:
  void Release(std::unique_ptr<std::vector<uint16_t>> staging);

  mutable Mutex mutex_;
  int64_t frames_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<std::vector<uint16_t>>> free_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_FRAME_MEMORY_H_
