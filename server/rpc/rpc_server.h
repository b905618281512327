// The gRPC server of one shard: all services, health, reflection, limits. The
// rest of the server sees no gRPC.
#ifndef AGG_SERVER_RPC_RPC_SERVER_H_
#define AGG_SERVER_RPC_RPC_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/tls_options.h"
#include "server/access/caller_gate.h"
#include "server/base/call_counts.h"
#include "server/base/clock.h"
#include "server/base/field_error.h"
#include "server/coordinator/coordinator.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/job_conversion.h"
#include "server/shard/shard_engine.h"
#include "server/tls/tls_reload.h"

namespace agg {

// Who asks, and whom.
struct CoordinatorProbe {
  std::string address;  // "host:port" of shard 0, as workers know it
  std::string job;
  uint64_t life = 0;  // of the coordinator that asks
  TlsOptions tls = {};
  absl::Duration timeout = absl::Seconds(2);
  // What this process presents itself with, asked for each call (P45); null:
  // nothing.
  std::function<std::string()> token = {};
};

// Asks the address of shard 0 who coordinates the job there, so that a second
// shard 0 finds the first one before it touches any shard (P21). Returns text
// that names another coordinator of the job that answers at the address.
// "" if the one that asks answers itself, one of another job does, or nobody
// does within the timeout. Blocks; thread-safe.
std::string FindOtherCoordinator(const CoordinatorProbe& probe);

inline constexpr int kMaxConnections = 4096;

struct RpcServerOptions {
  std::string listen = "127.0.0.1:0";  // "host:port"; port 0: any
  // Identity of the shard. With a local_socket the server listens there, too.
  ShardIdentity self;
  // Workers get its `shards` in JoinReply; the entry of self.ordinal gets the
  // port that is listened on.
  JobInfo job;
  bool admin = true;    // serve proto/admin.proto
  std::string version;  // of the build, for it
  // What Admin.Describe answers: the configuration, and the process's metrics
  // in Prometheus' text format. `metrics` may be null: none.
  std::vector<FieldValue> config;
  std::function<std::string()> metrics;
  // What Admin.Drain calls; must not block. Null: Drain is refused.
  std::function<void()> on_drain_request;
  CallCounts* calls = nullptr;  // outlives the server; null: not counted
  // TLS of the port and the local socket, as MakeServerCredentials takes it.
  TlsReload* tls = nullptr;
  // Measures how long the coordinator may be away (P24).
  const Clock* clock = TickClock::Real();
  // Takes and gives what neighbours replicate and fetch; outlives the server.
  // Null: they are refused.
  NeighbourPeer* copies = nullptr;
  const CallerGate* gate = CallerGate::Open();  // outlives the server
  bool health = true;                           // serve grpc.health.v1
  bool reflection = true;                       // serve gRPC's reflection
  // Number of connections, of port and local socket, that may be open at a
  // time; fewer where the process may not have so many files.
  int max_connections = kMaxConnections;
  // Gets the shards' addresses by ordinal, as each coordinator that attaches
  // this one knows them; may be null. Called on one thread of the server.
  std::function<void(const std::vector<std::string>&)> on_shards;
};

// Health (grpc.health.v1) names. "" is the process: SERVING where /readyz says
// "ok". kLiveHealth is SERVING as long as the server answers, as /healthz.
inline constexpr char kLiveHealth[] = "agg.v1.Live";
inline constexpr char kCoordinatorHealth[] = "agg.v1.Coordinator";
inline constexpr char kShardHealth[] = "agg.v1.Shard";

// Thread-safe. gRPC calls run until Shutdown has returned.
class RpcServer {
 public:
  // `coordinator` is null on other shards than 0. Both outlive the server. All
  // health but kLiveHealth is NOT_SERVING. UNAVAILABLE if the address cannot be
  // listened on.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, ShardEngine* engine,
      Coordinator* coordinator);
  // Ends as Shutdown does, with no time left.
  ~RpcServer();

  int port() const;
  // Sets the health of a service. Does nothing without options.health.
  void SetServing(const std::string& service, bool serving);

  // Ends the epoch if its coordinator has been away for too long (P24). To be
  // called several times a second.
  void LookForCoordinator();
  // Ends all connections: clients connect again, if they are let in.
  // Thread-safe, until Shutdown.
  void EndConnections();
  // Ends those whose client's certificate is over, with a line in the log and
  // in the audit each. To be called about once a second.
  void EndExpired();
  // Tells the coordinator that this shard waits to be let go (P35).
  void AnnounceDraining();
  // Ends Push, Attend and Attach streams, open and to come, with `reason`.
  void EndStreams(const absl::Status& reason);
  // Takes no more calls; waits for those that run, until `deadline`, then
  // cancels them. REQUIRES: whatever unary calls wait for fails by itself
  // (Coordinator::Drain, ShardEngine::Lose). Idempotent.
  void Shutdown(absl::Time deadline);

 private:
  class Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_RPC_SERVER_H_
