// The Coordinator service of proto/agg.proto. Every shard serves it; on others
// than shard 0 it says where the coordinator is. Beside it the services of
// reductions and of external rules, and the manifests that workers bring.
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
#include "proto/external_rule.grpc.pb.h"
#include "proto/external_rule.pb.h"
#include "proto/reduction.grpc.pb.h"
#include "proto/shared_manifest.h"
#include "server/access/access_rules.h"
#include "server/access/caller_gate.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/job_conversion.h"

namespace agg {

// What services have whose calls are for the coordinator.
class CoordinatorCalls {
 protected:
  // `coordinator` is null on other shards than 0: every call gets
  // NotTheCoordinator. It and `gate` outlive the service.
  CoordinatorCalls(const ShardIdentity& self, const JobInfo& job,
                   Coordinator* coordinator, const CallerGate* gate);

  // Who calls; AdmitCall's errors, and NotTheCoordinator.
  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context,
                               absl::string_view method) const;
  // Whether the session is the caller's to use (P45). `epoch`: nothing is any.
  absl::Status CheckSession(const Caller& caller, std::optional<uint64_t> epoch,
                            uint64_t session, absl::string_view method) const;

  Coordinator* const coordinator_;
  const absl::Status not_here_;  // why coordinator_ is null
  const CallerGate* const gate_;
};

// Serves the Reductions of proto/reduction.proto, on every shard; others than
// shard 0 say where the coordinator is.
//
// Thread-safe. Translates, and decides nothing.
class ReductionService : public v1::Reductions::CallbackService,
                         private CoordinatorCalls {
 public:
  // Takes what CoordinatorService takes.
  ReductionService(const ShardIdentity& self, const JobInfo& job,
                   Coordinator* coordinator, const CallerGate* gate)
      : CoordinatorCalls(self, job, coordinator, gate) {}

 private:
  grpc::ServerUnaryReactor* Reduce(grpc::CallbackServerContext* context,
                                   const v1::ReduceRequest* request,
                                   v1::ReduceReply* reply) override;
};

// Serves the external rules of proto/external_rule.proto, on every shard;
// others than shard 0 say where the coordinator is.
//
// Thread-safe. Translates; decides nothing but the protocol version.
class ExternalRuleService : public v1::ExternalRules::CallbackService,
                            private CoordinatorCalls {
 public:
  // Takes what CoordinatorService takes.
  ExternalRuleService(const ShardIdentity& self, const JobInfo& job,
                      Coordinator* coordinator, const CallerGate* gate)
      : CoordinatorCalls(self, job, coordinator, gate) {}

 private:
  grpc::ServerUnaryReactor* ServeRule(grpc::CallbackServerContext* context,
                                      const v1::ServeRuleRequest* request,
                                      v1::ServeRuleReply* reply) override;
};

// The manifests that workers bring: each is there once, however many bring it,
// and what they take is bounded before it is taken (P46).
//
// Thread-safe. Bytes are parsed by one call at a time.
class ManifestBook {
 public:
  // What manifests that differ from each other may take while somebody holds
  // them, of all callers and of one identity. Two of the largest fit into the
  // latter: 100,000 tensors with names of 80 bytes.
  static constexpr int64_t kMaxBytes = int64_t{128} << 20;
  static constexpr int64_t kMaxOwnBytes = int64_t{64} << 20;

  explicit ManifestBook(int64_t max_bytes = kMaxBytes,
                        int64_t max_own_bytes = kMaxOwnBytes)
      : max_bytes_(max_bytes), max_own_bytes_(max_own_bytes) {}

  // The manifest of these bytes (a v1::Manifest), which `identity` has sent:
  // the same object for the same manifest, as long as somebody holds it. Bytes
  // that were seen are not parsed again. INVALID_ARGUMENT: they are malformed,
  // or have more tensors than a manifest may have. A limit error
  // (field_error.h) if there is no room for it.
  absl::StatusOr<SharedManifest> Take(absl::string_view message,
                                      const std::string& identity);
  // Its bytes, which all who ask for it share while somebody holds it.
  std::shared_ptr<const std::string> MessageOf(const SharedManifest& manifest);

 private:
  struct Entry {
    std::weak_ptr<const Manifest> manifest;
    std::shared_ptr<const std::string> message;
    std::string identity;
    int64_t num_bytes = 0;
  };

  void ForgetUnheld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: nobody holds one with these bytes.
  std::shared_ptr<const Manifest> Find(absl::string_view message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRoom(int64_t num_bytes, const std::string& identity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_bytes_;
  const int64_t max_own_bytes_;
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // few
};

// One worker's Attend stream: renewals in, events out. Translates between the
// stream and Coordinator::Attend, Renew and Detach; who attends, the
// coordinator knows.
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
class CoordinatorService : public CoordinatorMethods, private CoordinatorCalls {
 public:
  // Takes what CoordinatorCalls takes; `open` outlives the service, too, which
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

  // What the caller asks for; errors as Join has them.
  absl::StatusOr<JoinCall> ReadJoin(const grpc::ByteBuffer* request,
                                    const Caller& caller, const JobInfo& job);
  grpc::ByteBuffer JoinReplyOf(const JoinResult& result, const JobInfo& job);
  void NoteJoin(const Caller& caller, int32_t rank,
                const absl::StatusOr<JoinResult>& result) const;
  std::shared_ptr<const JobInfo> job();

  OpenStreams* const open_;
  ManifestBook manifests_;
  Mutex mutex_;
  std::shared_ptr<const JobInfo> job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_COORDINATOR_SERVICE_H_
