// A complete job in one process without gRPC: K shard engines over the CPU
// backend, one coordinator, a clock that the test turns, and workers.
#ifndef AGG_TESTS_SERVER_ROUND_LOCAL_CLUSTER_H_
#define AGG_TESTS_SERVER_ROUND_LOCAL_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/peer_group.h"
#include "server/round/neighbour_peer.h"
#include "server/shard/shard_engine.h"
#include "tests/server/round/faulty_peer.h"
#include "tests/server/round/reply.h"
#include "tests/server/round/row_frames.h"

namespace agg {

struct ClusterOptions {
  int num_shards = 1;
  CoordinatorOptions coordinator;
  ShardOptions shard;  // ordinal and num_shards are filled in
  bool real_clock = false;
  bool offers = false;  // shards offer closes (P44)
  // Null: the CPU backend.
  std::function<std::unique_ptr<Backend>()> make_backend;
  std::function<void(absl::Status)> on_device_lost;  // of any shard
  PeerGroup::Order order;  // of the coordinator's calls; null: in parallel
  // A folder for all shards' checkpoints; "": none.
  std::string checkpoint_path;
  // Each shard has one of its own below it, "0", "1", .., which exists.
  bool own_folders = false;
  FileSystem* files = nullptr;  // where they lie; null: the system's
};

// The rule of this name at learning rate 0.5, plain sgd, `workers` of them.
ClusterOptions MakeClusterOptions(int num_shards, int workers,
                                  const std::string& rule = "mean");
// One optimizer for the coordinator and the shards.
void SetOptimizer(const OptimizerOptions& optimizer, ClusterOptions* options);
// "t0", "t1", .. of these shapes.
Manifest MakeManifest(const std::vector<std::vector<int64_t>>& shapes);

class LocalCluster {
 public:
  // Attaches the shards at once, unless it has the real clock: then the
  // coordinator's thread runs.
  explicit LocalCluster(const ClusterOptions& options);
  ~LocalCluster();

  int num_shards() const { return options_.num_shards; }
  const ClusterOptions& options() const { return options_; }
  ShardEngine* engine(int ordinal) { return engines_[ordinal].get(); }
  FaultyPeer* peer(int ordinal) { return peers_[ordinal].get(); }
  Coordinator* coordinator() { return coordinator_.get(); }
  JobStatus Status() { return coordinator_->Status(); }
  void StopCoordinator() { coordinator_ = nullptr; }

  // --- kill -9, and the same command again. Without the real clock.
  // A shard other than 0: its memory is gone, and the coordinator hears of it.
  void RestartShard(int ordinal);
  // Shard 0: its memory and the coordinator's are gone.
  void RestartCoordinator();
  void RestartAll();
  // The connection to the shard is lost for longer than is waited for; its
  // memory stays.
  void LoseConnection(int ordinal);
  // Waits until so many checkpoints are sealed by this coordinator, or have
  // failed.
  void AwaitCheckpoints(uint64_t number);
  FakeClock* clock() { return &clock_; }
  std::vector<RoundReport> reports() const;

  // Runs the coordinator until nothing more is due now.
  void Settle();
  // Turns the clock on and settles.
  void Advance(absl::Duration duration);

  // The version from all shards, settling first. UNAVAILABLE "waiting" if a
  // shard has not published it yet.
  absl::StatusOr<Tensors> Pull(uint64_t version, DType dtype = DType::kF32);

 private:
  void StartShard(int ordinal);
  void StartCoordinator();

  const ClusterOptions options_;
  FakeClock clock_;
  uint64_t next_life_ = 1;
  const std::unique_ptr<FileSystem> files_ = MakeSystemFiles();
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<ShardEngine>> engines_;
  std::vector<std::unique_ptr<FaultyPeer>> peers_;
  std::vector<std::unique_ptr<NeighbourPeer>> copies_;  // by ordinal
  mutable Mutex mutex_;
  std::vector<RoundReport> reports_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Coordinator> coordinator_;
};

using OutcomeReply = Reply<absl::StatusOr<RoundResult>>;

// One life of a worker.
class LocalWorker {
 public:
  LocalWorker(LocalCluster* cluster, int32_t rank, const Manifest& manifest);

  // Settles (with the fake clock) or waits for the answer.
  absl::Status Join();
  // Joins after an epoch, with parameters of that version and the epoch that
  // made it.
  absl::Status Resume(uint64_t version, uint64_t made);
  const JoinResult& joined() const { return joined_; }
  int32_t rank() const { return rank_; }
  uint64_t session() const { return joined_.session; }

  FrameHeader Header(uint64_t round, PushKind kind = PushKind::kGradient);
  // Lands the row (or seed) on all shards; `shuffle` != 0: in another order.
  // OK once every shard with slices has acknowledged it.
  absl::Status Push(uint64_t round, const Tensors& tensors,
                    uint64_t shuffle = 0, const std::set<int32_t>& absent = {},
                    PushKind kind = PushKind::kGradient);
  // Lands the header's row (or seed) on these shards alone. The first error.
  absl::Status PushTo(const std::set<int>& shards, const FrameHeader& header,
                      const Tensors& tensors);
  OutcomeReply Commit(uint64_t round, RowInfo row = RowInfo(),
                      PushKind kind = PushKind::kGradient);
  // Pushes and commits; the caller settles.
  absl::Status Seed(const Tensors& tensors);
  absl::StatusOr<OutcomeReply> Contribute(uint64_t round,
                                          const Tensors& tensors);
  absl::Status Leave();

 private:
  LocalCluster* const cluster_;
  const int32_t rank_;
  const Manifest manifest_;
  const ShardPlan plan_;
  absl::Status Join(JoinCall call);

  JoinResult joined_;
};

// A worker that has joined.
LocalWorker Joined(LocalCluster* cluster, int32_t rank,
                   const Manifest& manifest);

// A seeded cluster with workers 0..n-1, all in round 0.
struct RunningJob {
  RunningJob(const ClusterOptions& options, const Manifest& manifest,
             int num_workers, const std::optional<Tensors>& seed = {});
  // All workers contribute RandomTensors of (round, rank); settles.
  void RunRound(uint64_t round);

  Manifest manifest;
  LocalCluster cluster;
  std::vector<LocalWorker> workers;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_ROUND_LOCAL_CLUSTER_H_
