// What one shard says to another, as messages of proto/control.proto, and back:
// phases and their results, and what travels with Attach.
#ifndef AGG_SERVER_RPC_PHASE_CONVERSION_H_
#define AGG_SERVER_RPC_PHASE_CONVERSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"

namespace agg {

// What the largest job has (proto/README.md, Limits): bounds for what one shard
// sends to another, in both directions, so that a broken or hostile one costs a
// bounded amount of memory.
inline constexpr int64_t kMaxPhaseTensors = 100000;
inline constexpr int kMaxPhaseWorkers = 512;
inline constexpr int kMaxPhaseShards = 1024;

// Numbers of a phase, or of its result, in one message, at most: far below what
// gRPC refuses, and small beside what is kept of them.
inline constexpr int64_t kMaxPhaseMessageBytes = int64_t{3} << 20;
// The coefficients of an update, its tensors and their trust ratios.
inline constexpr int64_t kMaxStepBytes =
    8 * (int64_t{kMaxPhaseWorkers} + 2) * kMaxPhaseTensors;
// A step goes with a record, and a plan of a recovery with a manifest, which is
// longer than a record.
inline constexpr int64_t kMaxPhaseBytes = kMaxStepBytes + kMaxManifestBytes;

// A phase put together from the messages in which it travels. Nothing that is
// read is believed. Thread-compatible.
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
  absl::Status CheckSize() const;

  Phase phase_;
  std::string record_;
  v1::PhaseRequest::PhaseCase case_ = v1::PhaseRequest::PHASE_NOT_SET;
  int64_t num_bytes_ = 0;  // of all messages
};

// Makes what a shard offers of a message (P44). Null if that has more rows than
// a job has workers, or other numbers of rows and of checksums: it counts for
// nothing then. Grams are looked at by who adds them up.
std::shared_ptr<const CloseOffer> FromProto(const v1::CloseOffer& message);

// Bytes of JobFacts.text, at most.
inline constexpr int kMaxFactsBytes = 1 << 20;
// Checkpoints that a shard reports, at most: the newest ones.
inline constexpr int kMaxReportedCheckpoints = 1024;
// Sessions that have ended and are reported, at most.
inline constexpr int kMaxEndedSessions = 65536;

// Sets the fields of *reply that say what the shard holds when it promises an
// epoch.
void AddInventory(ShardInventory inventory, v1::AttachReply* reply);
// Reads it back, and bounds all of it before anybody decides by it.
// INVALID_ARGUMENT naming the field, if the reply says more than a shard of
// `num_shards` can hold, or says it of a part that there is not.
absl::StatusOr<ShardInventory> FromProto(const v1::AttachReply& reply,
                                         int num_shards);

// Rows that are complete on the shard (P41), and what it offers (P44; null:
// nothing), in a message of their own.
v1::AttachReply ReportOf(const std::vector<CompleteRow>& rows,
                         const CloseOffer* offer = nullptr);
std::vector<CompleteRow> CompleteRowsOf(const v1::AttachReply& reply);

// Bytes of a reason that one shard gives another, at most. It is the message of
// a status, so that it may be longer than the texts of workers.
inline constexpr int kMaxReasonBytes = 8192;

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
  std::vector<size_t> sent_;  // of each list and text that may be cut
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

  const PhaseResult result_;
  const int64_t max_bytes_;
  bool done_ = false;
  size_t grams_ = 0;  // sent
  size_t norms_ = 0;
  std::vector<size_t> sent_;  // of the manifest
};

// Appends one message's share to *result; its Grams go to `sink`.
void AppendReply(const v1::PhaseReply& reply, const GramSink& sink,
                 PhaseResult* result);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_CONVERSION_H_
