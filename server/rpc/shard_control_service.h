// The ShardControl service of proto/control.proto: the coordinator's calls, and
// Replicate and Fetch, which are a neighbour's. Also what they need: the claim
// of a coordinator on a shard, the stream of a phase, and the watch for a
// coordinator that is away.
#ifndef AGG_SERVER_RPC_SHARD_CONTROL_SERVICE_H_
#define AGG_SERVER_RPC_SHARD_CONTROL_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/agg.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "proto/control.pb.h"
#include "server/access/caller_gate.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/copy_streams.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/phase_conversion.h"
#include "server/rpc/row_reports.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Whose calls a shard takes: the claim of one coordinator's life on it, from
// its first Attach stream until its last one has ended. Thread-compatible.
class ShardClaim {
 public:
  // A stream of `life` begins. `coordinator`: its address, for messages.
  // FAILED_PRECONDITION naming the holder, if another life holds the claim.
  // REQUIRES: life is not 0.
  absl::Status Take(uint64_t life, const std::string& coordinator);
  // A stream for which Take was OK has ended.
  void Release(uint64_t life);

  // An epoch is promised to one coordinator's life, also when its claim has
  // ended (P20): ABORTED if `epoch` was promised to another one.
  absl::Status CheckPromise(uint64_t epoch, uint64_t life) const;
  void Promise(uint64_t epoch, uint64_t life);

 private:
  uint64_t life_ = 0;  // 0: free
  int num_streams_ = 0;
  std::string coordinator_;
  uint64_t promised_epoch_ = 0;  // the last one; 0: none
  uint64_t promised_life_ = 0;
};

// Where phases run; all outlive the call.
struct PhaseExecutors {
  Executor* compute = nullptr;
  // Those that ask about a checkpoint's files, and seal it.
  Executor* files = nullptr;
  Executor* control = nullptr;  // those of what the job is
  Executor* memory = nullptr;   // kReserveRow
};

// The reactor of RunPhase: a phase in one or several messages, and its answer
// likewise. Owns itself until OnDone. A phase runs when its last message is
// there, and then to its end, though its caller may have gone.
class PhaseStream
    : public grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply> {
 public:
  // `engine` and `reports` outlive the call.
  static PhaseStream* Start(ShardEngine* engine,
                            const PhaseExecutors& executors,
                            RowReports* reports);

 private:
  PhaseStream(ShardEngine* engine, const PhaseExecutors& executors,
              RowReports* reports)
      : engine_(engine), executors_(executors), reports_(reports) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { delete this; }

  Executor* ExecutorOf(PhaseKind kind) const;
  absl::StatusOr<PhaseResult> Run();
  // INVALID_ARGUMENT (no phase, or another one than before),
  // RESOURCE_EXHAUSTED (more than any job needs).
  absl::Status TakeRequest();
  // Called once, even if the caller has gone: this is what ends the call.
  void Answer(const absl::StatusOr<PhaseResult>& result);
  void WriteNext();

  ShardEngine* const engine_;
  const PhaseExecutors executors_;
  RowReports* const reports_;
  std::atomic<bool> cancelled_{false};
  v1::PhaseRequest request_;  // being read
  PhaseAssembly assembly_;    // of the messages so far
  bool has_phase_ = false;
  v1::PhaseReply reply_;  // in flight
  std::optional<PhaseReplies> replies_;
};

// All methods by callbacks, as v1::ShardControl::CallbackService has them, but
// Fetch with raw bytes, so that a frame is not copied.
using ShardControlMethods = v1::ShardControl::WithRawCallbackMethod_Fetch<
    v1::ShardControl::WithCallbackMethod_Attach<
        v1::ShardControl::WithCallbackMethod_RunPhase<
            v1::ShardControl::WithCallbackMethod_Probe<
                v1::ShardControl::WithCallbackMethod_Replicate<
                    v1::ShardControl::Service>>>>>;

// Checks that a coordinator and a shard mean the same job: a pure function. OK,
// or FAILED_PRECONDITION naming what differs, with both values. Nobody may
// attach shard 0 over the network: its own process coordinates it.
// INVALID_ARGUMENT for a bad field; of an epoch too, that is over 2^52
// microseconds ahead of `now`: once promised, it would leave the job no higher
// number. Since the bound moves with the clock, there is always one.
absl::Status CheckAttach(const v1::AttachRequest& request,
                         const ShardIdentity& self, absl::Time now);

// Knows since when a shard is without its coordinator (P24): a class of its
// own, so that it can be tested without streams. Counts the Attach streams of
// the newest epoch: the coordinator may be back on a new stream before the end
// of the broken one is seen. Thread-safe.
class CoordinatorWatch {
 public:
  // `clock` outlives it, and should leave out what the process spent frozen
  // (P31).
  explicit CoordinatorWatch(const Clock* clock) : clock_(clock) {}

  // A stream has begun `epoch`, or has attached it once more. `life`: of the
  // coordinator.
  void Begin(uint64_t epoch, uint64_t life);
  // A stream wants to go on with `epoch`. ABORTED unless this coordinator has
  // begun it here, and it has not been taken by TakeAbandoned.
  absl::Status Resume(uint64_t epoch, uint64_t life);
  // A stream for which Begin or Resume was called has ended.
  void End(uint64_t epoch);
  // The epoch whose coordinator has been away for kResumeTime; once.
  std::optional<uint64_t> TakeAbandoned();

 private:
  const Clock* const clock_;
  Mutex mutex_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none, or abandoned
  uint64_t life_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time away_since_ ABSL_GUARDED_BY(mutex_);  // if there is no stream
};

// Calls that change the epoch run in order on one thread, phases on another,
// those about a checkpoint's files on a third, reservations of rows on a
// fourth: all may take long, and gRPC's callback threads must not wait.
class ShardControlService : public ShardControlMethods {
 public:
  using OnShards = std::function<void(const std::vector<std::string>&)>;

  // What is pointed to outlives the service, which outlives its server. For
  // `copies` and `on_shards` see RpcServerOptions.
  ShardControlService(const ShardIdentity& self, ShardEngine* engine,
                      NeighbourPeer* copies, OnShards on_shards,
                      OpenStreams* open, RowReports* reports,
                      const CallerGate* gate, const Clock* clock);

  // Both are thread-safe. Ends the epoch if its coordinator is away for too
  // long; tells it what has been held back (P44), and of a phase's progress.
  void LookForCoordinator();
  void AnnounceDraining();  // says that the shard waits to be let go (P35)

 private:
  class AttachStream;

  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachReply>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Probe(grpc::CallbackServerContext* context,
                                  const v1::ProbeRequest*,
                                  v1::ProbeReply* reply) override;
  grpc::ServerBidiReactor<v1::PhaseRequest, v1::PhaseReply>* RunPhase(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::CopyFrame>* Replicate(
      grpc::CallbackServerContext* context, v1::ReplicateReply*) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override;

  // Begins each call: whether it is let in. Its end will come from this shard.
  absl::Status Admit(grpc::CallbackServerContext* context,
                     absl::string_view method) const;
  // ShardClaim::Take; a refusal is logged.
  absl::Status TakeClaim(uint64_t life, const std::string& coordinator);
  // Begins the epoch, what the shard holds goes to *reply; or lets it go on.
  absl::Status BeginEpoch(uint64_t epoch, uint64_t life,
                          v1::AttachReply* reply);
  absl::Status ResumeEpoch(uint64_t epoch, uint64_t life);
  void SayProgress();
  void EndStream(uint64_t epoch);  // one for which either of them was OK
  std::string name() const;

  const ShardIdentity self_;
  ShardEngine* const engine_;
  const OnShards on_shards_;
  OpenStreams* const open_;
  RowReports* const reports_;
  const CallerGate* const gate_;
  const Clock* const clock_;
  ShardClaim claim_;                    // used on the control thread alone
  uint64_t last_refused_life_ = 0;      // the same
  std::weak_ptr<AttachStream> stream_;  // the newest; the same
  bool draining_ = false;               // the same
  std::atomic<uint64_t> said_progress_{0};
  CoordinatorWatch watch_;
  // Last, so that they end first: what they run uses the others.
  Executor control_;
  Executor compute_;
  Executor files_;
  Executor memory_;
  CopyStreams copies_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_SHARD_CONTROL_SERVICE_H_
