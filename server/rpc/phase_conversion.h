// Phases and their results as messages of proto/agg.proto, and back.
#ifndef AGG_SERVER_RPC_PHASE_CONVERSION_H_
#define AGG_SERVER_RPC_PHASE_CONVERSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/control.pb.h"
#include "server/checkpoint/checkpoint_progress.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "server/rpc/phase_limits.h"

namespace agg {

// A phase put together from the messages in which it travels. Apart from the
// other direction: here nothing that is read is believed.

// Thread-compatible.
class PhaseAssembly {
 public:
  // Adds the first message, then the later ones. INVALID_ARGUMENT: none of the
  // phases, a later message of another phase than the first, or a field's
  // value; RESOURCE_EXHAUSTED: more than any job needs.
  absl::Status Add(const v1::PhaseRequest& request);
  // The phase of the messages so far; its record comes with Take.
  const Phase& phase() const { return phase_; }
  // Takes all of it. To be called once, and last.
  Phase Take();

 private:
  absl::Status Begin(const v1::PhaseRequest& request);
  absl::Status Append(const v1::PhaseRequest& request);
  absl::Status CheckSize() const;

  Phase phase_;
  std::string record_;
  v1::PhaseRequest::PhaseCase kind_ = v1::PhaseRequest::PHASE_NOT_SET;
  int64_t num_bytes_ = 0;  // of all messages
};

// A round's rows and a shard's offer to close it (P44) as messages of
// proto/control.proto, and back.

using RoundRowField = google::protobuf::RepeatedPtrField<v1::RoundRow>;

void AddRows(const std::vector<RoundRow>& rows, RoundRowField* out);
std::vector<RoundRow> FromProto(const RoundRowField& rows);

v1::CloseOffer ToProto(const CloseOffer& offer);
// Null if the message has more rows than a job has workers, or other numbers of
// rows and of checksums: it counts for nothing then. Grams are looked at by who
// adds them up.
std::shared_ptr<const CloseOffer> FromProto(const v1::CloseOffer& message);

// Phases of recoveries and checkpoints: their plain values as messages of
// proto/agg.proto, and back.

v1::PhaseRequest::Version ToProto(const VersionId& id);
VersionId FromProto(const v1::PhaseRequest::Version& id);

// Makes the message without the checkpoint's text, which may need several
// messages.
v1::PhaseRequest::Recover ToProto(const RecoverPlan& plan);
// INVALID_ARGUMENT naming the field: an unknown action, a replica that would be
// loaded, facts that are too long.
absl::StatusOr<RecoverPlan> FromProto(const v1::PhaseRequest::Recover& recover);

v1::CheckpointProgress ToProto(const CheckpointProgress& progress);
// A stage that this release does not know is a failed checkpoint.
CheckpointProgress FromProto(const v1::CheckpointProgress& progress);

// What a shard holds when it promises an epoch, as messages of proto/agg.proto
// and back. Apart from phases: it travels with Attach, and all of it is bounded
// before anybody decides by it.

// Bytes of JobFacts.text, at most.
inline constexpr int kMaxFactsBytes = 1 << 20;
// Checkpoints that a shard reports, at most: the newest ones.
inline constexpr int kMaxReportedCheckpoints = 1024;
// Sessions that have ended and are reported, at most.
inline constexpr int kMaxEndedSessions = 65536;

v1::JobFacts ToProto(const JobFacts& facts);
// INVALID_ARGUMENT for a text of more than kMaxFactsBytes.
absl::StatusOr<JobFacts> FromProto(const v1::JobFacts& facts);

// Sets the fields of *reply that say what the shard holds, and none else.
void AddInventory(const ShardInventory& inventory, v1::AttachReply* reply);
// INVALID_ARGUMENT naming the field, if the reply says more than a shard of
// `num_shards` can hold, or says it of a part that there is not.
absl::StatusOr<ShardInventory> FromProto(const v1::AttachReply& reply,
                                         int num_shards);

// Rows that are complete on the shard (P41), and what it offers (P44; null:
// nothing), in a message of their own.
v1::AttachReply ReportOf(const std::vector<CompleteRow>& rows,
                         const CloseOffer* offer = nullptr);
std::vector<CompleteRow> CompleteRowsOf(const v1::AttachReply& reply);

// A change of sessions as a message of proto/agg.proto, and back.

// Bytes of a reason that one shard gives another, at most. It is the message of
// a status, so that it may be longer than the texts of workers.
inline constexpr int kMaxReasonBytes = 8192;

v1::SetSessionRequest ToProto(uint64_t epoch, const SessionChange& change);
SessionChange FromProto(const v1::SetSessionRequest& request);

// How much of a step's lists has been sent.
class StepParts {
 public:
  // Adds at most *room numbers to *out, and takes them off *room. Whether that
  // is all.
  bool Append(const StepPlan& step, size_t* room, v1::StepPlan* out);

 private:
  size_t coefficients_ = 0;
  size_t tensors_ = 0;
  size_t trust_ = 0;
};

// A phase as messages, one after another: each is made when it is sent. An
// update of 10,000 tensors for 512 workers has 41 MB of coefficients.
class PhaseRequests {
 public:
  // `phase` outlives it. The limit is a parameter for tests alone.
  explicit PhaseRequests(const Phase& phase,
                         int64_t max_bytes = kMaxPhaseMessageBytes)
      : phase_(phase), max_bytes_(max_bytes) {}
  // False when all have been made; the first one is there in any case.
  bool Next(v1::PhaseRequest* request);

 private:
  const Phase& phase_;
  const int64_t max_bytes_;
  bool first_ = true;
  bool done_ = false;
  // What has been sent; of texts, bytes.
  StepParts step_;
  StepParts replica_step_;
  size_t checkpoint_ = 0;
  size_t record_ = 0;
};

// A result as messages, likewise. Its Grams are shared, not copied.
class PhaseReplies {
 public:
  explicit PhaseReplies(PhaseResult result,
                        int64_t max_bytes = kMaxPhaseMessageBytes);
  // False when all have been made; the first one is there in any case. Each
  // has one entry or at most max_bytes; what is not a list of slices is in the
  // last one.
  bool Next(v1::PhaseReply* reply);
  // Whether all have been made.
  bool done() const { return done_; }

 private:
  // The next Grams and norms; false: there are more than the message takes.
  bool AddSlices(v1::PhaseReply* reply, int64_t* bytes);
  // What the last message has.
  void AddRest(v1::PhaseReply* reply) const;

  const PhaseResult result_;
  const int64_t max_bytes_;
  bool done_ = false;
  size_t grams_ = 0;  // sent
  size_t norms_ = 0;
  size_t manifest_ = 0;  // bytes
};

// Appends one message's share to *result; its Grams go to `sink`.
void AppendReply(const v1::PhaseReply& reply, const GramSink& sink,
                 PhaseResult* result);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_CONVERSION_H_
