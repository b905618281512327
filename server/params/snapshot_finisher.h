// Waits for float32 bytes that a backend copies behind what is published.
#ifndef AGG_SERVER_PARAMS_SNAPSHOT_FINISHER_H_
#define AGG_SERVER_PARAMS_SNAPSHOT_FINISHER_H_

#include <deque>
#include <functional>
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
  explicit SnapshotFinisher(Backend* backend);
  // Returns when all bytes are there. A reader that asks afterwards gets
  // OUT_OF_RANGE.
  ~SnapshotFinisher();
  SnapshotFinisher(const SnapshotFinisher&) = delete;
  SnapshotFinisher& operator=(const SnapshotFinisher&) = delete;

  // Takes a snapshot whose float32 bytes the backend has deferred, and that
  // nobody reads yet. A copy that fails is tried once more, as a round's Close
  // is; then those who wait for float32 get UNAVAILABLE, and others notice
  // nothing. For a reader that asks later it is tried again, until the
  // parameters are written.
  void Add(const std::shared_ptr<Snapshot>& snapshot);
  // Takes a snapshot whose bytes are only brought once a reader wants them
  // (UpdateRequest::snapshot_on_demand). If the parameters are written before
  // that, readers get OUT_OF_RANGE.
  void AddWhenAsked(const std::shared_ptr<Snapshot>& snapshot);

 private:
  // What readers ask, who may outlive the finisher.
  struct Queue {
    Mutex mutex;
    CondVar changed;
    std::deque<std::shared_ptr<const Snapshot>> waiting ABSL_GUARDED_BY(mutex);
    bool stopping ABSL_GUARDED_BY(mutex) = false;

    // Adds a snapshot; whether somebody will take it.
    bool Push(std::shared_ptr<const Snapshot> snapshot);
    // Waits for the next one; null: nothing is left, and nothing comes.
    std::shared_ptr<const Snapshot> Pop();
  };

  void Run();
  // Neither keeps the other: a reader that asks has the snapshot.
  std::function<void()> AskFor(
      const std::shared_ptr<const Snapshot>& snapshot) const;
  void StartThread();

  Backend* const backend_;
  const std::shared_ptr<Queue> queue_;
  std::thread thread_;  // made by the caller of both Adds, which are one's
};

}  // namespace agg

#endif  // AGG_SERVER_PARAMS_SNAPSHOT_FINISHER_H_
