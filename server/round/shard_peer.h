// The coordinator's view of one shard: the phases of a round as blocking calls
// on plain values. The shard of the coordinator's own process implements it
// directly (server/shard), the others over gRPC (server/rpc).
#ifndef AGG_SERVER_ROUND_SHARD_PEER_H_
#define AGG_SERVER_ROUND_SHARD_PEER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/shard_plan.h"
#include "server/ingest/frame.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"

namespace agg {

// A phase of this kind in this epoch, which its caller fills in.
inline Phase PhaseOf(PhaseKind kind, uint64_t epoch) {
  Phase phase;
  phase.kind = kind;
  phase.epoch = epoch;
  return phase;
}

// What a Commit says is complete.
struct PushedRow {
  uint64_t epoch = 0;
  uint64_t session = 0;
  uint64_t round = 0;
  PushKind kind = PushKind::kGradient;
  uint32_t attempt = 0;
};

// A row that a shard has completely, of the epoch that is on.
struct CompleteRow {
  uint64_t session = 0;
  uint64_t round = 0;
  uint32_t attempt = 0;
  // Number of its first waves that are complete, in a pipelined job (P43); else
  // 0.
  int32_t waves = 0;
  absl::Duration ago = absl::ZeroDuration();  // since when, as it is told
};

// Takes a slice's Gram; called on the thread that runs the phase.
using GramSink = std::function<void(SliceGram)>;

// Thread-safe; calls block until the shard has answered. Errors: UNAVAILABLE
// when the shard is gone, ABORTED for a stale epoch, FAILED_PRECONDITION
// (memory budget, another fingerprint), INTERNAL for compute errors.
class ShardPeer {
 public:
  virtual ~ShardPeer() = default;

  // The highest epoch that the shard has promised; 0: none, or not known.
  virtual absl::StatusOr<uint64_t> Promise() { return 0; }
  // The shard promises `epoch`: it takes no calls of older ones, and says what
  // it holds. A seeded one shows nothing to workers until kOpen; what is not
  // seeded is forgotten, and open at once. `on_lost` is called at most once,
  // from any thread, when the shard is found to be gone; never after the next
  // Attach returned.
  virtual absl::StatusOr<ShardInventory> Attach(
      uint64_t epoch, std::function<void(absl::Status)> on_lost) = 0;
  // Gives the shard back, so that another coordinator may attach it. What
  // Attach was given is not called any more.
  virtual void LetGo() {}
  // `on_draining` is called, from any thread, when somebody stops the shard,
  // with the epoch in which it serves until it is let go (P35): perhaps more
  // than once. Before the first Attach. A peer of this process needs none.
  virtual void SetOnDraining(
      std::function<void(uint64_t epoch)> /*on_draining*/) {}
  // `on_complete` is called, from any thread, with rows whose frames asked for
  // it (P41), and of a pipelined job with each row that has more waves (P43);
  // perhaps more than once for each. Before the first Attach. A peer of this
  // process calls it for waves alone: what is complete CheckPushed knows.
  using OnComplete =
      std::function<void(uint64_t epoch, const std::vector<CompleteRow>& rows)>;
  virtual void SetOnComplete(OnComplete /*on_complete*/) {}
  // `on_offer` is called, from any thread, with a close that the shard offers
  // (P44), before `on_complete` is with the last of its rows. Before the first
  // Attach. A peer need not offer any.
  using OnOffer = std::function<void(uint64_t epoch,
                                     std::shared_ptr<const CloseOffer> offer)>;
  virtual void SetOnOffer(OnOffer /*on_offer*/) {}
  // Ends the epoch: every waiting and later call of a worker to the shard gets
  // `reason`, until the next Attach. Best effort.
  virtual void Lose(uint64_t epoch, const absl::Status& reason) = 0;
  // The job's record of the version that part 0 is at here; "": there is none.
  // Asked of the own process alone.
  virtual std::string Record() const { return ""; }
  virtual absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) = 0;
  // Runs the phase as RunPhase does, but Grams go to `sink` one by one, as they
  // arrive, and the result has none. After an error some may have gone there.
  virtual absl::StatusOr<PhaseResult> StreamPhase(const Phase& phase,
                                                  const GramSink& sink) {
    absl::StatusOr<PhaseResult> result = RunPhase(phase);
    if (!result.ok()) return result;
    for (size_t i = 0; i < result->grams.size(); ++i) sink(result->grams[i]);
    result->grams = GramList();
    return result;
  }
  // What the phases of a job's manifest, sessions and facts are asked for with.

  absl::Status SetManifest(uint64_t epoch, const Manifest& manifest);
  // The job's manifest, if the shard has it: FAILED_PRECONDITION otherwise.
  absl::StatusOr<Manifest> GetManifest(uint64_t epoch);
  // Frees what SetManifest has allocated, unless a worker has joined with the
  // manifest or the job is seeded.
  absl::Status ForgetManifest(uint64_t epoch);
  // Reserves memory for the row of `rank`, unless there is some: what
  // SetSession would allocate otherwise. May take long. It stays the rank's,
  // whoever joins as that rank. `session`: in a recovery, whose row it is to
  // be, since one that has a row of its own here needs none; 0: it has no
  // number yet. RESOURCE_EXHAUSTED when there is no such memory.
  absl::Status ReserveRow(uint64_t epoch, int32_t rank, uint64_t session);
  absl::Status SetSession(uint64_t epoch, const SessionChange& change);
  // Keeps facts that are newer than those it has (P37).
  absl::Status SetFacts(uint64_t epoch, const JobFacts& facts);

  // Whether a Commit of the push can be refused by what this process knows:
  // FAILED_PRECONDITION if slices of it are missing on this shard. Never waits,
  // and asks no other process.
  virtual absl::Status CheckPushed(const PushedRow& /*row*/) const {
    return absl::OkStatus();
  }

  // A number that moves while a phase that takes long makes progress there, as
  // far as is known here: with each piece of a checkpoint that is read, say.
  virtual uint64_t Progress() const { return 0; }

  // What runs on the shard in this epoch, and what is asked of it until the
  // next Attach, ends with `reason` at once; `on_lost` is not called. Nothing
  // can end what runs in the own process (server/housekeeping.h), so that the
  // default does nothing.
  virtual void GiveUp(uint64_t /*epoch*/, const absl::Status& /*reason*/) {}

  // "shard 1 (127.0.0.1:50052)", for messages.
  virtual std::string name() const = 0;
};

// UNAVAILABLE with a mark: a shard is lost because somebody stopped it in good
// order. The epoch ends as well, but nothing is wrong. The mark is not in the
// text, which may say anything. The message begins with who stops: "shard 1
// (127.0.0.1:50052) is shutting down".
absl::Status OrderlyStop(absl::string_view message);

bool IsOrderlyStop(const absl::Status& reason);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_SHARD_PEER_H_
