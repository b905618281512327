// ShardPeer's plain values as messages of proto/agg.proto, and back.
#ifndef AGG_SERVER_RPC_PHASE_CONVERSION_H_
#define AGG_SERVER_RPC_PHASE_CONVERSION_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/agg.pb.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

// Bytes of a reason that one shard gives another, at most. It is the message of
// a status, so that it may be longer than the texts of workers.
inline constexpr int kMaxReasonBytes = 8192;

v1::SetSessionRequest ToProto(uint64_t epoch, const SessionChange& change);
SessionChange FromProto(const v1::SetSessionRequest& request);

// Numbers of a phase, or of its result, in one message, at most: far below what
// gRPC refuses, and small beside what is kept of them.
inline constexpr int64_t kMaxPhaseMessageBytes = int64_t{3} << 20;

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
  bool done_ = false;
  // How many of the step's lists have been sent.
  size_t coefficients_ = 0;
  size_t tensors_ = 0;
  size_t trust_ = 0;
};

// The first message of a phase. INVALID_ARGUMENT for one without a phase.
absl::StatusOr<Phase> FromProto(const v1::PhaseRequest& request);
// A later one. INVALID_ARGUMENT unless it is of the same phase, one with a
// step.
absl::Status AppendRequest(const v1::PhaseRequest& request, Phase* phase);

// A result as messages, likewise. Its Grams are shared, not copied.
class PhaseReplies {
 public:
  explicit PhaseReplies(PhaseResult result,
                        int64_t max_bytes = kMaxPhaseMessageBytes);
  // False when all have been made; the first one is there in any case. Each
  // has one entry or at most max_bytes; what is not a list of slices is in the
  // last one.
  bool Next(v1::PhaseReply* reply);

 private:
  const PhaseResult result_;
  const int64_t max_bytes_;
  bool done_ = false;
  size_t grams_ = 0;  // sent
  size_t norms_ = 0;
};

// Appends one message's share to *result; its Grams go to `sink`.
void AppendReply(const v1::PhaseReply& reply, const GramSink& sink,
                 PhaseResult* result);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_CONVERSION_H_
