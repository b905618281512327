// The reactor of RunPhase: a phase in one or several messages, and its answer
// likewise.
#ifndef AGG_SERVER_RPC_PHASE_STREAM_H_
#define AGG_SERVER_RPC_PHASE_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "server/round/phase.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/phase_conversion.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Where phases run; all outlive the call.
struct PhaseExecutors {
  Executor* compute = nullptr;
  // Those that ask about a checkpoint's files, and seal it.
  Executor* files = nullptr;
};

// Owns itself until OnDone. A phase runs when its last message is there, and
// then to its end, though its caller may have gone.
class PhaseStream
    : public grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply> {
 public:
  // `engine` outlives the call.
  static PhaseStream* Start(ShardEngine* engine,
                            const PhaseExecutors& executors);

 private:
  PhaseStream(ShardEngine* engine, const PhaseExecutors& executors)
      : engine_(engine), executors_(executors) {}

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
  const PhaseExecutors executors_;
  v1::PhaseRequest request_;  // being read
  PhaseAssembly assembly_;    // of the messages so far
  bool has_phase_ = false;
  v1::PhaseReply reply_;  // in flight
  std::optional<PhaseReplies> replies_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_STREAM_H_
