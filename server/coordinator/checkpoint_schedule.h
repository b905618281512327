// When a job takes checkpoints, what became of them, and which shards wait for
// one: pure, so that it can be tested without shards and disks.
#ifndef AGG_SERVER_COORDINATOR_CHECKPOINT_SCHEDULE_H_
#define AGG_SERVER_COORDINATOR_CHECKPOINT_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/dcheck.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/outcome_waiters.h"
#include "server/coordinator/peer_group.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"

namespace agg {

// At most one checkpoint is under way. Thread-compatible.
class CheckpointSchedule {
 public:
  using Done = std::function<void(absl::StatusOr<TakenCheckpoint>)>;

  explicit CheckpointSchedule(const CheckpointOptions& options)
      : options_(options) {}

  // The job is at `id`, seeded or rewound to it, or it goes on: from here on
  // rounds and seconds count. `restored`: the checkpoint that it comes from.
  // `borrowed`: that one is another job's, and this one has none yet.
  void Begin(const VersionId& id, const std::optional<VersionId>& restored,
             absl::Time now, bool borrowed = false);
  // What was made of the checkpoints at a start, for people.
  void NoteRestore(const std::string& text) { counts_.restore = text; }
  // Whether to take one of `id` now, or to Skip it if one is under way.
  // `finished`: no version follows.
  bool Due(const VersionId& id, bool finished, absl::Time now) const;
  // When Due may become true without another version.
  absl::Time NextDue(const VersionId& id, bool finished) const;
  // Notes that a checkpoint of `id` has been begun; it ends in End.
  void Start(const VersionId& id, absl::Time now);
  DeferredCalls End(const absl::StatusOr<TakenCheckpoint>& result,
                    absl::Time now);
  // Notes that a checkpoint was due while another one was being written.
  void Skip(const VersionId& id, absl::Time now);

  // Asks for a checkpoint as soon as possible, whatever the options say. `done`
  // may be null.
  void Request(Done done);
  // Whether so few wait that one more may: kMaxWaiting at most.
  bool has_room() const { return waiting_.size() < kMaxWaiting; }
  static constexpr size_t kMaxWaiting = 64;
  // Refuses all requests, also those for a checkpoint that is given up.
  DeferredCalls Refuse(const absl::Status& reason);

  bool began() const { return tried_at_ != absl::InfiniteFuture(); }
  // The newest version that this process has sealed or gone on from.
  std::optional<VersionId> newest() const {
    return sealed_.made == 0 ? std::nullopt : std::make_optional(sealed_);
  }
  // Those that were sealed since the folders were listed, oldest first: of
  // `keep` versions, as the folders have them.
  const std::vector<VersionId>& kept() const { return kept_; }
  // Forgets these: the folders have been listed.
  void NoteListed() { kept_.clear(); }
  // Whether the newest complete one is of `id`.
  bool Has(const VersionId& id) const { return sealed_ == id; }
  bool busy() const { return busy_; }
  bool requested() const { return requested_; }
  CheckpointStatus Status(absl::Time now) const;

 private:
  bool enabled() const { return options_.enabled; }
  void Keep(const VersionId& id);

  const CheckpointOptions options_;
  bool busy_ = false;
  bool requested_ = false;
  std::vector<Done> waiting_;  // for the next one to begin
  std::vector<Done> taking_;   // for the one that is under way
  VersionId taking_id_;        // of the one that is under way
  VersionId tried_;            // the last attempt's, or where it began
  absl::Time tried_at_ = absl::InfiniteFuture();
  bool skipped_ = false;  // the last attempt was no attempt: tried_ was skipped
  VersionId sealed_;      // the newest; made 0: none
  absl::Time sealed_at_;
  std::vector<VersionId> kept_;
  CheckpointStatus counts_;  // its numbers and texts
};

// The shards that somebody stops in good order, and that serve until they are
// let go (P35).
//
// Handles one epoch, whose end serves all shards that wait then.
// Thread-compatible.
class Handover {
 public:
  // How long the job stands still for the checkpoint.
  static constexpr absl::Duration kLimit = absl::Seconds(30);

  enum class Step {
    kNone,            // nobody waits
    kTakeCheckpoint,  // request one, and say so by NoteRequest
    kWait,            // until a checkpoint has ended, or until deadline()
    kLetGo,           // end the epoch
  };

  // Shard `ordinal` waits in `epoch`. Nothing happens if the epoch is older
  // than the one that another shard waits in.
  void Add(uint64_t epoch, int ordinal);
  // Whether a shard waits in this epoch. REQUIRES: epoch != 0.
  bool on(uint64_t epoch) const {
    AGG_DCHECK(epoch != 0);
    return epoch_ == epoch;
  }
  // What to do next for a job that stands still at `id`, until a checkpoint
  // has exactly that. REQUIRES: a shard waits.
  Step Next(const CheckpointSchedule& checkpoints, const VersionId& id,
            absl::Time now) const;
  void NoteRequest() { requested_ = true; }
  // No round is in execution any more: from here on the limit counts.
  void StandStill(absl::Time now);
  absl::Time deadline() const { return deadline_; }
  // Lets all of them go: nobody waits any more. Returns their ordinals.
  std::set<int> Take();

 private:
  uint64_t epoch_ = 0;  // 0: nobody waits
  std::set<int> shards_;
  bool requested_ = false;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CHECKPOINT_SCHEDULE_H_
