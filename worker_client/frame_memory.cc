// Buffers are used again: a frame of the next push takes one that is released.
#include "worker_client/frame_memory.h"

#include <utility>

namespace agg {

std::shared_ptr<const void> FrameMemory::Hold(
    std::unique_ptr<std::vector<uint16_t>> staging) {
  {
    MutexLock lock(&mutex_);
    ++frames_in_use_;
  }
  // The deleter keeps this object alive: gRPC may release a frame after the
  // client is destroyed.
  std::shared_ptr<FrameMemory> self = shared_from_this();
  std::vector<uint16_t>* raw = staging.release();
  return std::shared_ptr<const void>(this, [self, raw](const void*) {
    self->Release(std::unique_ptr<std::vector<uint16_t>>(raw));
  });
}

std::unique_ptr<std::vector<uint16_t>> FrameMemory::TakeStaging() {
  MutexLock lock(&mutex_);
  if (free_.empty()) return std::make_unique<std::vector<uint16_t>>();
  std::unique_ptr<std::vector<uint16_t>> staging = std::move(free_.back());
  free_.pop_back();
  return staging;
}

int64_t FrameMemory::frames_in_use() const {
  MutexLock lock(&mutex_);
  return frames_in_use_;
}

void FrameMemory::Release(std::unique_ptr<std::vector<uint16_t>> staging) {
  MutexLock lock(&mutex_);
  --frames_in_use_;
  if (staging != nullptr) free_.push_back(std::move(staging));
}

}  // namespace agg
