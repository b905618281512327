// The Coordinator service of proto/agg.proto. Every shard serves it; on others
// than shard 0 it says where the coordinator is.
#ifndef AGG_SERVER_RPC_COORDINATOR_SERVICE_H_
#define AGG_SERVER_RPC_COORDINATOR_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/agg.grpc.pb.h"
#include "proto/agg.pb.h"
#include "server/access/access_rules.h"
#include "server/access/caller_gate.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/job_conversion.h"
#include "server/rpc/manifest_book.h"

namespace agg {

// One worker's Attend stream: renewals in, events out.

// Translates between the stream and Coordinator::Attend, Renew and Detach; who
// attends, the coordinator knows.
class AttendStream : public BidiStream<v1::LeaseRenewal, v1::JobEvent> {
 public:
  // Whether the caller may use the session that it names.
  using CheckSession =
      std::function<absl::Status(uint64_t epoch, uint64_t session)>;

  // `coordinator` and `open` outlive the gRPC server. `check` is asked
  // once an epoch.
  static AttendStream* Start(Coordinator* coordinator, OpenStreams* open,
                             CheckSession check);
  // A stream that ends at once, with `reason`.
  static AttendStream* Refuse(const absl::Status& reason, OpenStreams* open);

 private:
  AttendStream(Coordinator* coordinator, OpenStreams* open, CheckSession check)
      : BidiStream(open), coordinator_(coordinator), check_(std::move(check)) {}

  void OnReadDone(bool ok) override;
  void OnEnded() override;
  absl::Status Handle(const v1::LeaseRenewal& renewal);

  Coordinator* const coordinator_;
  const CheckSession check_;
  v1::LeaseRenewal renewal_;
  uint64_t epoch_ = 0;    // of the last renewal that was the caller's
  uint64_t session_ = 0;  // of the first renewal; 0: not attended yet
  uint64_t number_ = 0;   // the coordinator's for this stream
};

// Why calls to the coordinator cannot be answered by `shard`, which is not
// shard 0: FAILED_PRECONDITION with the coordinator's address.
absl::Status NotTheCoordinator(const ShardIdentity& shard, const JobInfo& job);

// Join and Observe carry bytes: a manifest is parsed once it is known who sends
// it, and all replies share its bytes.
using CoordinatorMethods = v1::Coordinator::WithRawCallbackMethod_Join<
    v1::Coordinator::WithRawCallbackMethod_Observe<
        v1::Coordinator::CallbackService>>;

// Thread-safe. Translates; decides nothing but the protocol version, and
// whether the manifest fits into the messages between shards.
class CoordinatorService : public CoordinatorMethods {
 public:
  // `coordinator` is null on other shards than 0: every call gets
  // NotTheCoordinator. It, `open` and `gate` outlive the service, which
  // outlives its server.
  CoordinatorService(const ShardIdentity& self, const JobInfo& job,
                     Coordinator* coordinator, OpenStreams* open,
                     const CallerGate* gate);

  // Where the shards listen, once that is known (a port of 0 is any).
  void SetShards(const std::vector<std::string>& shards);

 private:
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Observe(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* reply) override;
  grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const v1::CommitRequest* request,
                                   v1::RoundOutcome* reply) override;
  grpc::ServerUnaryReactor* WaitRound(grpc::CallbackServerContext* context,
                                      const v1::WaitRequest* request,
                                      v1::RoundOutcome* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveReply* reply) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::StatusRequest*,
                                      v1::StatusReply* reply) override;

  // Whether the session is the caller's to use (P45). `epoch`: nothing is any.
  absl::Status CheckSession(const Caller& caller, std::optional<uint64_t> epoch,
                            uint64_t session, absl::string_view method) const;
  // What the caller asks for; errors as Join has them.
  absl::StatusOr<JoinCall> ReadJoin(const grpc::ByteBuffer* request,
                                    const Caller& caller, const JobInfo& job);
  grpc::ByteBuffer JoinReplyOf(const JoinResult& result, const JobInfo& job);
  void NoteJoin(const Caller& caller, int32_t rank,
                const absl::StatusOr<JoinResult>& result) const;
  std::shared_ptr<const JobInfo> job();

  Coordinator* const coordinator_;
  const absl::Status not_here_;  // why coordinator_ is null
  OpenStreams* const open_;
  const CallerGate* const gate_;
  ManifestBook manifests_;
  Mutex mutex_;
  std::shared_ptr<const JobInfo> job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_COORDINATOR_SERVICE_H_
