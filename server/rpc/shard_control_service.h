// The ShardControl service of proto/agg.proto: the coordinator's calls.
#ifndef AGG_SERVER_RPC_SHARD_CONTROL_SERVICE_H_
#define AGG_SERVER_RPC_SHARD_CONTROL_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/agg.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "server/access/caller_gate.h"
#include "server/base/clock.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/coordinator_watch.h"
#include "server/rpc/copy_streams.h"
#include "server/rpc/executor.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/row_reports.h"
#include "server/rpc/shard_claim.h"
#include "server/rpc/shard_control_methods.h"
#include "server/rpc/shard_identity.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Calls that change the epoch run in order on one thread, phases on another,
// those about a checkpoint's files on a third, reservations of rows on a
// fourth: all may take long, and gRPC's callback threads must not wait. Attach
// is in shard_control_service.cc, the rest in shard_control_calls.cc.
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
  grpc::ServerUnaryReactor* SetManifest(grpc::CallbackServerContext* context,
                                        const v1::SetManifestRequest* request,
                                        v1::SetManifestReply* reply) override;
  grpc::ServerUnaryReactor* ReserveRow(grpc::CallbackServerContext* context,
                                       const v1::ReserveRowRequest* request,
                                       v1::ReserveRowReply* reply) override;
  grpc::ServerUnaryReactor* SetSession(grpc::CallbackServerContext* context,
                                       const v1::SetSessionRequest* request,
                                       v1::SetSessionReply* reply) override;
  grpc::ServerUnaryReactor* Probe(grpc::CallbackServerContext* context,
                                  const v1::ProbeRequest*,
                                  v1::ProbeReply* reply) override;
  grpc::ServerUnaryReactor* GetManifest(grpc::CallbackServerContext* context,
                                        const v1::GetManifestRequest* request,
                                        v1::Manifest* reply) override;
  grpc::ServerUnaryReactor* SetFacts(grpc::CallbackServerContext* context,
                                     const v1::SetFactsRequest* request,
                                     v1::SetFactsReply* reply) override;
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
