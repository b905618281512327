// Hands news of lost shards, and of those that are stopped, on to a coordinator
// while there is one.
#ifndef AGG_SERVER_COORDINATOR_LOSS_LISTENER_H_
#define AGG_SERVER_COORDINATOR_LOSS_LISTENER_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"

namespace agg {

// Peers outlive the coordinator and may call from any thread at any time; so
// they hold this object, shared, and not the coordinator. Thread-safe.
class LossListener {
 public:
  using Callback = std::function<void(uint64_t epoch, const absl::Status&)>;
  using DrainingCallback = std::function<void(uint64_t epoch, int ordinal)>;

  explicit LossListener(Callback on_loss,
                        DrainingCallback on_draining = nullptr)
      : on_loss_(std::move(on_loss)), on_draining_(std::move(on_draining)) {}

  // Calls `on_loss`, with no lock held, unless Stop was called before.
  void Notify(uint64_t epoch, const absl::Status& reason);
  // Likewise `on_draining`: shard `ordinal` waits to be let go.
  void NotifyDraining(uint64_t epoch, int ordinal);
  // When this returns, no callback runs, and none will be called.
  // REQUIRES: not called from within one.
  void Stop();

 private:
  void Call(const std::function<void()>& callback);

  const Callback on_loss_;
  const DrainingCallback on_draining_;
  Mutex mutex_;
  CondVar calls_ended_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;  // that run now
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_LOSS_LISTENER_H_
