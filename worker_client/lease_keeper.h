// Renews a worker's lease and hears the job's events.
#ifndef AGG_WORKER_CLIENT_LEASE_KEEPER_H_
#define AGG_WORKER_CLIENT_LEASE_KEEPER_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/agg.pb.h"
#include "server/base/clock.h"
#include "server/base/tick_clock.h"
#include "worker_client/cancel_source.h"
#include "worker_client/rpc_status.h"

namespace agg {

// What is held in one epoch.
struct Lease {
  std::shared_ptr<grpc::Channel> channel;
  uint64_t epoch = 0;
  uint64_t session = 0;
  absl::Duration duration;
  // A connection that breaks does not come back: the channel is to a socket
  // that ends with its process (P38).
  bool gone_if_broken = false;
  // Returns LeaseRenewal.transports as they are now; may be null. Called on the
  // keeper's thread.
  std::function<std::string()> transports;
  // Ends the lease with its reason, besides the end of the keeper; may be null.
  std::shared_ptr<CancelSource> over;
};

struct LeaseOptions {
  ShardName coordinator;
  Lease lease;  // the first one
  absl::Duration reconnect_window;
  // Measures the lease (P31): what this process spent frozen does not count, as
  // it does not count for the servers. Outlives the stream.
  const Clock* clock = TickClock::Real();
  // Hears every event but RENEWED, on this stream's thread.
  std::function<void(const v1::JobEvent&)> on_event;
  // Hears that a lease cannot be kept, and why. Answers, as late as it likes,
  // with the one to be kept from now on, or with nothing: the end. On this
  // stream's thread.
  std::function<absl::optional<Lease>(absl::Status)> on_lost;
};

// Holds the Attend stream open from a thread of its own, which is also what
// polls gRPC while the trainer computes: every 20 ms, so that it does not stand
// in the way of a thread that waits for a call. A lease is renewed at a third
// of its time; a coordinator that answers no renewal for the time of a lease is
// lost, and so is one that cannot be reached again within the window, or that
// has said that it shuts down and ends the stream.
class LeaseKeeper {
 public:
  explicit LeaseKeeper(LeaseOptions options);
  // Ends the stream and joins the thread: soon, whatever the far end does.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

 private:
  // Keeps the lease until it cannot; returns why.
  absl::Status Keep(const Lease& lease);
  // Returns why no renewal can be hoped for after a call that ended so; OK:
  // again.
  absl::Status GiveUp(const Lease& lease, const grpc::Status& status) const;
  void Loop();

  const LeaseOptions options_;
  absl::Time answered_;    // by the clock; the thread's alone
  bool draining_ = false;  // likewise: the coordinator said that it shuts down
  CancelSource stop_;
  std::thread thread_;  // last: runs as soon as it is made
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_LEASE_KEEPER_H_
