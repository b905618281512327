// Waits for float32 bytes that a backend copies behind what is published.
#ifndef AGG_SERVER_PARAMS_SNAPSHOT_FINISHER_H_
#define AGG_SERVER_PARAMS_SNAPSHOT_FINISHER_H_

#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "kernels/backend.h"
#include "server/base/mutex.h"
#include "server/params/snapshot.h"

namespace agg {

// A thread, from the first such snapshot on, so that neither who publishes nor
// who reads waits for a device. It holds each snapshot until its bytes are
// there: their memory is not used again before. Thread-safe.
class SnapshotFinisher {
 public:
  // `backend` outlives it.
  explicit SnapshotFinisher(Backend* backend) : backend_(backend) {}
  // When all bytes are there.
  ~SnapshotFinisher();
  SnapshotFinisher(const SnapshotFinisher&) = delete;
  SnapshotFinisher& operator=(const SnapshotFinisher&) = delete;

  // The backend has deferred its float32 bytes, and nobody reads it yet. A copy
  // that fails is tried once more, as a round's Close; then the readers of
  // float32 get UNAVAILABLE, and others notice nothing.
  void Add(std::shared_ptr<Snapshot> snapshot);

 private:
  void Run();

  Backend* const backend_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<const Snapshot>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // made by Add, which has one caller at a time
};

}  // namespace agg

#endif  // AGG_SERVER_PARAMS_SNAPSHOT_FINISHER_H_
