// Some shards without a coordinator: the test is the coordinator, and says what
// each of them is asked for.
#ifndef AGG_TESTS_SERVER_SHARD_SHARD_RING_H_
#define AGG_TESTS_SERVER_SHARD_SHARD_RING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/shard_plan.h"
#include "server/base/file_system.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_options.h"
#include "server/shard/shard_engine.h"
#include "tests/server/round/row_frames.h"

namespace agg {

// Five tensors, an empty one among them, and one of the group "slow".
Manifest RingTensors();

// Workers have the ranks 0 and up, and sessions kFirstSession + rank in all
// epochs, as workers that resume.
class ShardRing {
 public:
  // Parameters and state of one copy.
  using Arrays = std::vector<std::vector<float>>;

  static constexpr uint64_t kFirstSession = 4096;

  // `options`: ordinal and num_shards are filled in; `life` is that of shard 0
  // in its first life, and counts on from there.
  ShardRing(int num_shards, const ShardOptions& options,
            const Manifest& manifest);
  ~ShardRing();

  // Gives all shards (those that come, too) checkpoints in /disk of `files`.
  void UseCheckpoints(FileSystem* files);
  // kill -9, and a new process.
  void Restart(int ordinal);
  // Neighbours cannot reach the shard any more; and they can again.
  void Cut(int ordinal, bool cut = true);

  int num_shards() const { return static_cast<int>(engines_.size()); }
  ShardEngine* engine(int ordinal) { return engines_[ordinal].get(); }
  const Manifest& manifest() const { return manifest_; }
  uint64_t epoch() const { return epoch_; }

  // A new epoch on all shards; keeps what they say.
  std::vector<ShardInventory> Attach();
  // A job of so many workers at version 0.
  void Begin(int num_workers = 2) {
    Attach();
    Join(num_workers);
    Seed();
  }
  // The manifest and that many workers' sessions, on all shards.
  void Join(int num_workers);
  void SetManifest();
  // Version 0. After Join.
  void Seed();
  void LandSeed();  // and nothing more
  // Worker `rank` pushes its row of the round, to all shards or to one. The
  // values are a function of round and rank.
  void Push(uint64_t round, int32_t rank);
  absl::StatusOr<FrameResult> PushTo(int ordinal, uint64_t round, int32_t rank);
  // Push by all workers, Close, Update, Publish.
  void RunRound(uint64_t round);

  // Recovers, with replication, after Attach: what becomes of each copy, as P18
  // says, the void ones fetched, the sessions of Join, open. Where the job goes
  // on.
  VersionId Recover();
  // The actions for `target` of the last Attach; and fetching.
  void RecoverBefore(const VersionId& target);
  void RecoverTo(const VersionId& target);
  // What the shard has of a part.
  Arrays CopyOf(int ordinal, int32_t part, const VersionId& id);
  // A phase of `round` on one shard, with what replication adds.
  absl::StatusOr<PhaseResult> RunOn(int ordinal, PhaseKind kind,
                                    uint64_t round);

  // A phase as the round of these workers takes it, for `change` to complete.
  Phase MakePhase(PhaseKind kind, uint64_t round = 0) const;
  absl::StatusOr<PhaseResult> Run(int ordinal, const Phase& phase) {
    return engines_[ordinal]->RunPhase(phase);
  }
  // Runs it on all shards, which has to work.
  void RunAll(const Phase& phase);
  // kRecover with one action of all homes, and kOpen.
  void RecoverAll(CopyAction home, const VersionId& target,
                  const std::string& checkpoint = "");

  // Tensors of all shards, at the version they have; "" text if some pull
  // fails.
  absl::StatusOr<Tensors> Pull(uint64_t version);

  // Asks until the part is written or has failed.
  CheckpointProgress WaitForPart(int ordinal);
  // The checkpoint of `id`, taken and sealed: its manifest.json.
  std::string TakeCheckpoint(const VersionId& id);

 private:
  class Link;
  std::unique_ptr<ShardEngine> NewEngine(int ordinal);

  ShardOptions options_;
  const Manifest manifest_;
  FileSystem* files_ = nullptr;
  uint64_t epoch_ = 0;
  int num_workers_ = 0;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<Link>> links_;  // to each shard
  std::vector<bool> cut_;
  std::vector<std::unique_ptr<ShardEngine>> engines_;
  std::vector<ShardInventory> inventories_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_SHARD_SHARD_RING_H_
