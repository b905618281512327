// What a client knows of its job in one epoch: replaced as one when the next
// epoch is there, so that no call mixes two of them.
#ifndef AGG_WORKER_CLIENT_JOB_VIEW_H_
#define AGG_WORKER_CLIENT_JOB_VIEW_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/agg.grpc.pb.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "worker_client/client_event.h"
#include "worker_client/client_types.h"
#include "worker_client/retry.h"
#include "worker_client/row_ledger.h"

namespace agg {

// Whether a worker's parameters are still good in an epoch.
enum class Standing {
  kGood,
  kRewound,     // they are of a past that was given up
  kNewSession,  // good, but its session had ended: it has joined again
  kUnseeded,    // the job has none any more
};

// The parameters that a worker computes on.
struct HeldVersion {
  bool any = false;  // seeded, or pulled one
  uint64_t version = 0;
  uint64_t made = 0;     // by which epoch; 0: not known
  uint64_t session = 0;  // that had them
  uint64_t view = 0;     // the serial number of the view they came with
};

// What the coordinator says of a round, as the client's plain value.
RoundOutcome OutcomeOf(const v1::RoundOutcome& message);

// Nothing for RENEWED, and for a kind that a later version of the protocol has.
std::optional<ClientEvent::Kind> KindOf(const v1::JobEvent& event);

// Immutable, but for the two cancel sources and what is heard of versions and
// shared memory. Thread-safe.
class JobView {
 public:
  using Channels = std::vector<std::shared_ptr<grpc::Channel>>;  // by ordinal

  // The first one, from the answer to Join or Observe on `coordinator`.
  JobView(const ClientOptions& options, v1::JoinReply reply,
          std::shared_ptr<grpc::Channel> coordinator);
  // The one after `before`: shards of another process or at another address get
  // new channels, and so new DNS answers. `held`: the worker's, when it asked.
  JobView(const ClientOptions& options, v1::JoinReply reply,
          std::shared_ptr<grpc::Channel> coordinator, const JobView& before,
          const HeldVersion& held);

  uint64_t serial() const { return serial_; }  // 0, 1, ..
  const v1::JoinReply& reply() const { return reply_; }
  uint64_t epoch() const { return reply_.epoch(); }
  uint64_t session() const { return reply_.session(); }
  ShardLives lives() const;
  // How often the job has gone back, or lost all, between the first view and
  // this one: also where parameters were pulled since.
  uint64_t num_rewinds() const { return num_rewinds_; }
  // What the worker's parameters of another view are worth in this one.
  Standing standing(const HeldVersion& held) const {
    return held.view == serial_ ? Standing::kGood : standing_;
  }
  // How often, up to this view, parameters of the view before were not good, or
  // not known to be, as an observer's never are. In views with the same past
  // versions of the same number have the same bytes.
  uint64_t past() const { return past_; }
  const std::vector<ShardName>& names() const { return names_; }
  // Whether shard `ordinal` is reached over its Unix socket.
  bool local(size_t ordinal) const { return targets_[ordinal].local; }
  // Whether its memory, and its device's, is mapped; until then: as before.
  void NoteShared(size_t ordinal, bool shared, bool device = false) const;
  // "cuda", "shm", "unix" or "tcp": how bytes travel to and from the shard.
  std::string transport(size_t ordinal) const;
  // LeaseRenewal.transports; "" until it was said of all shards.
  std::string transports() const;
  // The first one is the coordinator's, too.
  const Channels& push_channels() const { return push_channels_; }
  const Channels& pull_channels() const { return pull_channels_; }
  v1::Coordinator::StubInterface* coordinator() const { return stub_.get(); }

  // Cancelled when the epoch, the session or the client is over: for all calls.
  CancelSource* over() const { return &over_; }
  // Cancelled when this worker gets the seed role; for waiting for the seed.
  CancelSource* seed_wait() const { return &seed_wait_; }
  bool seed_role() const { return !seed_wait_.status().ok(); }
  void TakeSeedRole() const;

  // Whether this client has heard that `version` is published.
  bool published(uint64_t version) const { return version < num_published_; }
  void NotePublished(uint64_t version) const;

  // FAILED_PRECONDITION if the job is set up differently than in `before`.
  absl::Status CheckSameJob(const JobView& before) const;

 private:
  struct Target {
    std::string address;  // as MakeChannel takes it
    bool local = false;   // a Unix socket
  };
  // A Unix socket that can be reached comes before `address`.
  Target ChooseTarget(const ClientOptions& options, int ordinal,
                      const std::string& address) const;
  // Whether `before` has channels to the same process of the shard, there.
  bool SameTarget(const JobView* before, size_t ordinal) const;
  void OpenChannels(const ClientOptions& options,
                    const std::shared_ptr<grpc::Channel>& coordinator,
                    const JobView* before);

  const v1::JoinReply reply_;
  const uint64_t serial_;
  const Standing standing_;
  const uint64_t num_rewinds_;
  const uint64_t past_;
  std::vector<ShardName> names_;  // by ordinal, as the other lists
  std::vector<Target> targets_;
  Channels push_channels_;
  Channels pull_channels_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  mutable CancelSource over_;
  mutable CancelSource seed_wait_;
  mutable std::atomic<uint64_t> num_published_{0};  // the newest known + 1
  mutable Mutex mutex_;
  mutable std::map<size_t, std::string> shared_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_JOB_VIEW_H_
