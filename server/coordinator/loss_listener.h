// Hands news of shards (one is lost, is being stopped, has rows completely) on
// to a coordinator while there is one.
#ifndef AGG_SERVER_COORDINATOR_LOSS_LISTENER_H_
#define AGG_SERVER_COORDINATOR_LOSS_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

// Peers outlive the coordinator and may call from any thread at any time; so
// they hold this object, shared, and not the coordinator. Thread-safe.
class LossListener {
 public:
  using Callback = std::function<void(uint64_t epoch, const absl::Status&)>;
  using DrainingCallback = std::function<void(uint64_t epoch, int ordinal)>;
  using CompleteCallback = std::function<void(uint64_t epoch, int ordinal,
                                              const std::vector<CompleteRow>&)>;

  using OfferCallback = std::function<void(uint64_t epoch, int ordinal,
                                           std::shared_ptr<const CloseOffer>)>;

  explicit LossListener(Callback on_loss,
                        DrainingCallback on_draining = nullptr,
                        CompleteCallback on_complete = nullptr,
                        OfferCallback on_offer = nullptr)
      : on_loss_(std::move(on_loss)),
        on_draining_(std::move(on_draining)),
        on_complete_(std::move(on_complete)),
        on_offer_(std::move(on_offer)) {}

  // Calls `on_loss`, with no lock held, unless Stop was called before.
  void Notify(uint64_t epoch, const absl::Status& reason);
  // Calls `on_draining` in the same way: shard `ordinal` waits to be let go.
  void NotifyDraining(uint64_t epoch, int ordinal);
  // Calls `on_complete` in the same way: the shard has these rows (P41).
  void NotifyComplete(uint64_t epoch, int ordinal,
                      const std::vector<CompleteRow>& rows);
  // Calls `on_offer` in the same way: the shard offers a close (P44).
  void NotifyOffer(uint64_t epoch, int ordinal,
                   std::shared_ptr<const CloseOffer> offer);
  // When this returns, no callback runs, and none will be called.
  // REQUIRES: not called from within one.
  void Stop();

 private:
  void Call(const std::function<void()>& callback);

  const Callback on_loss_;
  const DrainingCallback on_draining_;
  const CompleteCallback on_complete_;
  const OfferCallback on_offer_;
  Mutex mutex_;
  CondVar calls_ended_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;  // that run now
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_LOSS_LISTENER_H_
