// All shards of the job at once: one call each, in parallel.
#ifndef AGG_SERVER_COORDINATOR_PEER_GROUP_H_
#define AGG_SERVER_COORDINATOR_PEER_GROUP_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"

namespace agg {

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
