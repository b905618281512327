// The phases of a round, as the coordinator asks shards for them: plain values.
#ifndef AGG_SERVER_ROUND_PHASE_H_
#define AGG_SERVER_ROUND_PHASE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/shard_plan.h"
#include "server/base/dcheck.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/round/recovery.h"

namespace agg {

// A worker's gradient in a round.
struct RoundRow {
  int32_t rank = 0;
  uint64_t session = 0;  // whose bytes count
  uint32_t attempt = 0;  // which of its gradients (P5)
};

inline bool operator==(const RoundRow& a, const RoundRow& b) {
  return a.rank == b.rank && a.session == b.session && a.attempt == b.attempt;
}

// One slice's Gram matrix of the round's rows.
struct SliceGram {
  int32_t slice = 0;
  std::vector<double> hi;  // packed upper triangle (kernels/backend.h)
  std::vector<double> lo;  // empty unless compensated
};

// Slices' Grams that copies share: those of a round are megabytes, and a shard
// keeps them for a repeat while they are on their way.
class GramList {
 public:
  GramList() = default;
  GramList(std::vector<SliceGram> grams)  // NOLINT: as the vector it holds
      : grams_(std::make_shared<std::vector<SliceGram>>(std::move(grams))) {}

  size_t size() const { return grams_ == nullptr ? 0 : grams_->size(); }
  bool empty() const { return size() == 0; }
  const SliceGram& operator[](size_t i) const { return (*grams_)[i]; }
  // REQUIRES: no copy has been made.
  void push_back(SliceGram gram) {
    AGG_DCHECK(grams_ == nullptr || grams_.use_count() == 1);
    if (grams_ == nullptr) grams_ = std::make_shared<std::vector<SliceGram>>();
    grams_->push_back(std::move(gram));
  }

 private:
  std::shared_ptr<std::vector<SliceGram>> grams_;  // null: none
};

// Squared L2 norms over one slice, of the parameters and of the step that the
// optimizer would take, for a trust ratio.
struct SliceNorms {
  int32_t slice = 0;
  double parameter_norm_squared = 0.0;
  double update_norm_squared = 0.0;
};

// Coefficients and scalars of one optimizer step.
struct StepPlan {
  bool per_tensor = false;
  // The tensors that the step is about, ascending: those that the shard has
  // slices of. Empty: all of the manifest.
  std::vector<int32_t> tensors;
  // Segments x P, row-major, columns in the order of the round's rows; a
  // segment for each of `tensors`, one unless per_tensor. In a wave NaN leaves
  // the row out of the tensor, and a tensor without rows stays as it is.
  std::vector<double> coefficients;
  std::vector<int32_t> excluded_ranks;  // their rows are in no sum
  double learning_rate = 0.0;
  std::vector<double> group_rates;  // in its place, by GroupOptions::place
  int64_t step = 1;  // 1-based, of applied ones since the state was new
  bool renews_state = false;  // makes the optimizer's state new before it
  std::vector<float> trust;   // for each of `tensors`; empty: 1
  // No `tensors` are none, and all others stay as they are. Set by the shard.
  bool partial = false;
};

// Which bytes become which version.
struct PublishPlan {
  uint64_t version = 0;
  bool unchanged = false;  // skipped round: the same bytes, the next number
  bool seed = false;       // version 0 from seed_session's landed slices
  uint64_t seed_session = 0;
  uint32_t seed_attempt = 0;
};

// A worker's session begins, changes role, or ends.
struct SessionChange {
  uint64_t session = 0;
  int32_t rank = 0;
  uint64_t replaces = 0;   // former session of the rank, 0: none
  bool keep_row = false;   // it has committed, so its landed row stays
  bool remove = false;     // the session is over
  bool seed_role = false;  // its Seed is the one that counts
  // What later calls of the ended session get: NOT_FOUND with this if it was
  // removed, ABORTED with this if it was replaced or evicted.
  std::string reason;
  bool evicted = false;   // removed by an operator, or it has left
  bool finished = false;  // no session: the job has, and no version follows
  // What others have to know of a session that begins, should this process and
  // the coordinator be lost.
  uint64_t first_round = 0;
  std::string client;
  std::string identity = {};  // to whom it belongs (P45); "": to anybody
};

enum class PhaseKind : uint8_t {
  kClose,
  kCompensatedGram,
  kNorms,
  kUpdate,
  kPublish,
  kAbandon,
  kLoadSeed,  // the seed becomes the home's arrays, and nobody sees it yet
  // Recovery, in this order (P19): copies reach the target or are void; void
  // ones are fetched; the home shows the target to workers.
  kRecover,
  kFetch,
  kOpen,
  // Checkpoints (P30): a copy of the arrays, how far its file is, the manifest.
  kCapture,
  kCheckpointProgress,
  kSeal,
  kReadManifest,  // of a checkpoint that the shard has reported
  kVerify,        // what the shard would load of it: nothing is changed
  // What the job is, as ShardPeer says. Only who sets or forgets the manifest
  // waits for a phase that runs.
  kSetManifest,
  kGetManifest,
  kForgetManifest,
  kReserveRow,
  kSetSession,
  kSetFacts
};

// Whether the phase is about what the job is, and not about a version.
inline bool IsOfJob(PhaseKind kind) { return kind >= PhaseKind::kSetManifest; }

// Names of the kinds, in order, as in PhaseRequest of proto/control.proto.
inline constexpr const char* kPhaseNames[] = {
    "close",        "compensated_gram", "norms",
    "update",       "publish",          "abandon",
    "load_seed",    "recover",          "fetch",
    "open",         "capture",          "checkpoint_progress",
    "seal",         "read_manifest",    "verify",
    "set_manifest", "get_manifest",     "forget_manifest",
    "reserve_row",  "set_session",      "set_facts"};
static_assert(std::size(kPhaseNames) ==
              static_cast<size_t>(PhaseKind::kSetFacts) + 1);

inline const char* PhaseName(PhaseKind kind) {
  return kPhaseNames[static_cast<size_t>(kind)];
}

// What a shard is asked to do. A repeat gives the same result and changes
// nothing: of (epoch, round, wave, kind), or of what the job is (ShardPeer).
struct Phase {
  PhaseKind kind = PhaseKind::kClose;
  uint64_t epoch = 0;
  uint64_t round = 0;
  // kClose, kCompensatedGram, kUpdate, kAbandon: about this wave alone (P43),
  // counted from 1; 0: about the round.
  int32_t wave = 0;
  // kClose: those that count, by rank. kCompensatedGram, kNorms, kUpdate: the
  // round is closed with these first, which the shard has offered (P44); none:
  // it is closed already.
  std::vector<RoundRow> rows;
  std::vector<int32_t> tensors;  // kCompensatedGram, ascending
  StepPlan step;                 // kNorms, kUpdate
  PublishPlan publish;           // kPublish, kLoadSeed
  // kUpdate of a round without replication: publish.version is published at
  // once, so that no kPublish is needed.
  bool publishes = false;
  // The replica's step (no coefficients), in kUpdate with replication, and the
  // job's record of the next version for those who have a copy of part 0; null:
  // none.
  StepPlan replica_step;
  std::shared_ptr<const std::string> record;
  RecoverPlan recover;  // kRecover
  VersionId id;         // kFetch, kOpen, kCapture, kReadManifest
  // Its manifest.json: kSeal, kVerify, and kRecover with kLoad.
  std::string checkpoint;
  int keep = 1;       // kSeal: distinct versions that stay
  uint64_t line = 0;  // kSeal: older ones are another line's, and stay
  // kSeal without a checkpoint: `id` was never sealed, and its part goes. Or
  // what was made before `line` counts for nothing, which the folder says from
  // then on.
  bool begins_anew = false;
  std::shared_ptr<const Manifest> manifest;  // kSetManifest; not null there
  SessionChange session;  // kSetSession; kReserveRow: its rank and session
  JobFacts facts;         // kSetFacts
};

// What narrowing a version to pull_dtype has lost of this shard's part.
struct NarrowingLoss {
  // The first slice (of the plan) with a finite value that is infinite then;
  // -1: none.
  int32_t slice = -1;
  uint64_t num_infinite = 0;  // such values, all of them
  // Counts in a part of the values, another part in each round: those that are
  // not zero, and those of them that narrowing makes zero.
  uint64_t num_compared = 0;
  uint64_t num_vanished = 0;
};

// What a shard answers; a field is empty unless its phase is named.
struct PhaseResult {
  // kClose: rows that lack slices here, though they were committed. Then
  // nothing was computed, and only kAbandon can follow. Ascending.
  std::vector<int32_t> incomplete_ranks;
  // kClose without incomplete ranks: per row of the phase, the CRC32C over the
  // CRC32Cs of its slices here (CommitRequest.row_crc32c of proto/agg.proto).
  std::vector<uint32_t> row_crc32c;
  GramList grams;                 // kClose, kCompensatedGram; ascending slice
  std::vector<SliceNorms> norms;  // kNorms; ascending slice
  // kUpdate: the first slice (of the plan) with a parameter that is not finite
  // after it; -1: there is none.
  int32_t not_finite_slice = -1;
  NarrowingLoss narrowing;        // as not_finite_slice
  CheckpointProgress checkpoint;  // kCheckpointProgress
  std::string manifest;           // kReadManifest: the file's text
  std::shared_ptr<const Manifest> job_manifest;  // kGetManifest
  double seconds = 0.0;  // compute time inside the shard
};

// A shard's close of a round before anybody has asked for it (P44): what kClose
// with these rows would answer.
struct CloseOffer {
  uint64_t round = 0;
  std::vector<RoundRow> rows;  // by rank
  PhaseResult result;
};

// Shards' offers for one round, by ordinal; null, or none at all: there is
// none.
using CloseOffers = std::vector<std::shared_ptr<const CloseOffer>>;

}  // namespace agg

#endif  // AGG_SERVER_ROUND_PHASE_H_
