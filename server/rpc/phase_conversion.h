// Phases and their results as messages of proto/agg.proto, and back. Requests
// are put together again in phase_assembly.h.
#ifndef AGG_SERVER_RPC_PHASE_CONVERSION_H_
#define AGG_SERVER_RPC_PHASE_CONVERSION_H_

#include <cstddef>
#include <cstdint>

#include "proto/control.pb.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"
#include "server/rpc/phase_limits.h"

namespace agg {

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
