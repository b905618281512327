// The reactor of RunPhase: a phase in one or several messages, and its answer
// likewise.
#ifndef AGG_SERVER_RPC_PHASE_STREAM_H_
#define AGG_SERVER_RPC_PHASE_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/agg.pb.h"
#include "server/round/phase.h"
#include "server/rpc/executor.h"
#include "server/rpc/phase_conversion.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Owns itself until OnDone. A phase runs when its last message is there, and
// then to its end, though its caller may have gone.
class PhaseStream
    : public grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply> {
 public:
  // The phase runs on `executor`; both outlive the call.
  static PhaseStream* Start(ShardEngine* engine, Executor* executor);

 private:
  PhaseStream(ShardEngine* engine, Executor* executor)
      : engine_(engine), executor_(executor) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override {}
  void OnDone() override { delete this; }

  // INVALID_ARGUMENT (no phase, or another one than before),
  // RESOURCE_EXHAUSTED (more than any job needs).
  absl::Status TakeRequest();
  // Called once, even if the caller has gone: this is what ends the call.
  void Answer(const absl::StatusOr<PhaseResult>& result);
  void WriteNext();

  ShardEngine* const engine_;
  Executor* const executor_;
  v1::PhaseRequest request_;  // being read
  Phase phase_;               // of the messages so far
  bool has_phase_ = false;
  int64_t phase_bytes_ = 0;
  v1::PhaseReply reply_;  // in flight
  std::optional<PhaseReplies> replies_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_STREAM_H_
