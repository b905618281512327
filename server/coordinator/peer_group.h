// All shards of the job at once: one call each, in parallel. Also which shards
// are waited for, and the news of shards for a coordinator.
#ifndef AGG_SERVER_COORDINATOR_PEER_GROUP_H_
#define AGG_SERVER_COORDINATOR_PEER_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

// A shard that has taken longer for a phase than it may without progress.
struct LatePhase {
  int shard = 0;
  uint64_t epoch = 0;
  // "shard 1 (h:2) has not answered phase close of round 7 within 10m", or "has
  // made no progress in phase recover of round 0 for 10m".
  std::string text;
};

// Which shards a phase waits for, and since when: for the deadline of a phase
// and for people who look. Apart from RoundEngine because the loop that runs
// the engine is what may be stuck. Thread-safe.
class PhaseWatch {
 public:
  // `shards`: their names, by ordinal. `clock` outlives it, and should leave
  // out what the process spent frozen (P31).
  PhaseWatch(const Clock* clock, absl::Duration timeout,
             std::vector<std::string> shards);

  // A phase is asked of a shard, from construction to destruction.
  class Call {
   public:
    Call(PhaseWatch* watch, int shard, const Phase& phase);
    // Another call that may take long, by its name.
    Call(PhaseWatch* watch, int shard, const char* name, uint64_t epoch);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    PhaseWatch* const watch_;
    const int shard_;
  };

  // Each late call once. `progress`: of each shard (ShardPeer::Progress), by
  // ordinal; a call is late when that has not moved for the timeout (P31).
  std::vector<LatePhase> TakeLate(const std::vector<uint64_t>& progress = {});
  // Late calls of each shard so far, by ordinal.
  std::vector<uint64_t> num_late() const;
  // "round 7 has waited 12s for shard 1 (h:2) (phase close)"; "" when no shard
  // has been waited for longer than 5 s.
  std::string WaitingText() const;

 private:
  struct Running {
    bool on = false;
    bool said = false;  // by TakeLate
    std::string name;   // "phase close of round 7"
    std::string kind;   // "phase close"
    uint64_t epoch = 0;
    uint64_t round = 0;
    absl::Time since;
    std::optional<uint64_t> progress;  // as TakeLate saw it last
    bool moved = false;                // it has moved since then,
    absl::Time moved_at;               // the last time then
  };

  void Begin(int shard, Running running);

  const Clock* const clock_;
  const absl::Duration timeout_;
  const std::vector<std::string> shards_;
  mutable Mutex mutex_;
  std::vector<Running> running_ ABSL_GUARDED_BY(mutex_);  // by ordinal
  std::vector<uint64_t> num_late_ ABSL_GUARDED_BY(mutex_);
};

// Hands news of shards (one is lost, is being stopped, has rows completely) on
// to a coordinator while there is one. Peers outlive the coordinator and may
// call from any thread at any time; so they hold this object, shared, and not
// the coordinator. Thread-safe.
class ShardEvents {
 public:
  using Callback = std::function<void(uint64_t epoch, const absl::Status&)>;
  using DrainingCallback = std::function<void(uint64_t epoch, int ordinal)>;
  using CompleteCallback = std::function<void(uint64_t epoch, int ordinal,
                                              const std::vector<CompleteRow>&)>;

  using OfferCallback = std::function<void(uint64_t epoch, int ordinal,
                                           std::shared_ptr<const CloseOffer>)>;

  explicit ShardEvents(Callback on_loss, DrainingCallback on_draining = nullptr,
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

// One thread per peer but the last; the caller's thread serves the last one
// that is called: a peer of another process, if there is one, so that the
// wake-up of a thread comes beside the way there and back. Used by one thread
// at a time.
class PeerGroup {
 public:
  // All ordinals of so many peers, in the order of their calls.
  using Order = std::function<std::vector<int>(int size)>;

  // `peers` by ordinal; they outlive the group. With `order` there are no
  // threads: the caller's makes one call after the other, so that a simulation
  // can repeat itself.
  explicit PeerGroup(std::vector<ShardPeer*> peers, Order order = nullptr);
  ~PeerGroup();

  int size() const { return static_cast<int>(peers_.size()); }
  ShardPeer* peer(int ordinal) const { return peers_[ordinal]; }
  std::vector<std::string> names() const;  // by ordinal

  // Runs call(ordinal, peer) for every peer and waits for all of them. Returns
  // all errors as one, in the order of the ordinals, each message after its
  // peer's name. The code is UNAVAILABLE if any of them is (a lost shard ends
  // the epoch, whatever else went wrong), else that of the first. The message
  // is bounded: 8 errors, 400 bytes of each.
  // Not for those that `skipped` says; none, or by ordinal.
  absl::Status ForEach(const std::function<absl::Status(int, ShardPeer*)>& call,
                       const std::vector<bool>& skipped = {});

 private:
  void Work(int ordinal);
  absl::Status AllErrors() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<ShardPeer*> peers_;
  const Order order_;
  Mutex mutex_;
  CondVar changed_;
  const std::function<absl::Status(int, ShardPeer*)>* call_
      ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<bool> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> statuses_ ABSL_GUARDED_BY(mutex_);
  int num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_PEER_GROUP_H_
