// One agg_server: a shard, and on ordinal 0 the coordinator, wired together.
#ifndef AGG_SERVER_SERVER_H_
#define AGG_SERVER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/backend_maker.h"
#include "proto/tls_options.h"
#include "server/base/address.h"
#include "server/base/call_counts.h"
#include "server/base/mutex.h"
#include "server/config/host_budget.h"
#include "server/config/options.h"
#include "server/http_rules.h"
#include "server/round/neighbour_peer.h"
#include "server/round/shard_options.h"
#include "server/rpc/remote_neighbour_peer.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Which address of its host a server listens on. It is loopback, unless `bind`
// (of --bind) names another. `address`: of the shard, as others know it.
std::string BindHost(const Address& address, const std::string& bind);

// INVALID_ARGUMENT if others could reach `host` without TLS, which `insecure`
// (security.insecure) alone allows.
absl::Status CheckBind(const std::string& host, bool tls, bool insecure);

// Whether anybody who reaches the port may do anything.
bool IsInsecure(const std::string& host, bool tls);

// Logs what is unsafe, or will not work, about listening on `host`.
void WarnAboutBind(const Address& address, const std::string& host, bool tls);

// A shard's place on the ring of second copies: its links to the shards behind
// and before it, and what these get from it. Connects when it is first used.
// Thread-safe.
class Neighbours {
 public:
  // `shards`: all addresses, two or more, by ordinal, called with `tls` and
  // `token` (RemoteNeighbourOptions). `engine` is given its neighbours, and
  // must end before this does, or not use them any more.
  Neighbours(const std::vector<std::string>& shards, int ordinal,
             const TlsOptions& tls, const std::function<std::string()>& token,
             ShardEngine* engine)
      : buddy_ordinal_(Ordinal(shards, ordinal, 1)),
        before_ordinal_(
            Ordinal(shards, ordinal, static_cast<int>(shards.size()) - 1)),
        buddy_(Link(shards, ordinal, buddy_ordinal_, tls, token)),
        before_(Link(shards, ordinal, before_ordinal_, tls, token)),
        copies_(engine) {
    engine->SetNeighbours(&buddy_, &before_);
  }

  // Where the coordinator says that the shards are, by ordinal.
  void SetShards(const std::vector<std::string>& shards) {
    buddy_.SetAddress(shards[buddy_ordinal_]);
    before_.SetAddress(shards[before_ordinal_]);
  }

  // What others may ask of this shard.
  NeighbourPeer* copies() { return &copies_; }

 private:
  static int Ordinal(const std::vector<std::string>& shards, int ordinal,
                     int distance) {
    return (ordinal + distance) % static_cast<int>(shards.size());
  }
  static RemoteNeighbourOptions Link(
      const std::vector<std::string>& shards, int ordinal, int neighbour,
      const TlsOptions& tls, const std::function<std::string()>& token) {
    RemoteNeighbourOptions link;
    link.self = ordinal;
    link.ordinal = neighbour;
    link.address = shards[neighbour];
    link.tls = tls;
    link.token = token;
    return link;
  }

  const int buddy_ordinal_;
  const int before_ordinal_;
  RemoteNeighbourPeer buddy_;
  RemoteNeighbourPeer before_;  // with two shards the same one as the buddy
  ShardCopies copies_;
};

// How much memory this process's shard may use, where the configuration leaves
// it open. Returns `configured`, with 80% of what is there in place of a 0
// (ARCHITECTURE.md, decision 13). Logs both budgets, and warns if the device
// has less free memory than its budget. Without a device, device_bytes stays as
// it is.
MemoryBudget CompleteBudget(const MemoryBudget& configured,
                            const HostMemory& host,
                            const DeviceMemoryUse& device);

// Declared alone, so that those who start a server do not include its parts.
class AccessParts;
struct Address;
class Backend;
class CheckpointFolder;
class Coordinator;
class FileSystem;
class Housekeeping;
class Neighbours;
class Observation;
class RegionServer;
class RemoteShardPeer;
class RpcServer;
class ShardEngine;
class TlsAcceptor;
class TlsReload;

// What differs from process to process of a job.
struct StartOptions {
  // Makes the configured backend; required. Called once, by Start.
  BackendMaker make_backend;
  int ordinal = 0;
  std::string bind;                 // "": loopback
  std::optional<int> port;          // in place of the configured one; 0: any
  std::optional<int> metrics_port;  // in place of the configured one; 0: any
  bool admin = true;                // serve proto/admin.proto
  // Ends the process as SIGTERM does. Called by the admin service, at most
  // once; must not block. If null, the service refuses to drain.
  std::function<void()> on_drain_request;
  // The backend's device is lost: the job's epoch is over, and this process
  // should end, since only a new one can use a device again. Called at most
  // once; must not block; may be null.
  std::function<void(const absl::Status&)> on_device_lost;
  // Another process coordinates the job now (P21): this one should end. Called
  // at most once; must not block; may be null.
  std::function<void(const absl::Status&)> on_superseded;
};

// Several may live in one process. Thread-safe.
class Server {
 public:
  // Listens before it returns; the job's shards are attached in the
  // background. INVALID_ARGUMENT (ordinal, backend, bind), UNAVAILABLE (the
  // port is in use, the device is missing).
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, const StartOptions& start);
  // Drains with no time left.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  int metrics_port() const;  // 0 when metrics are off

  // Notes that a drain for this reason follows, which no caller has asked for:
  // it is audited here, where a caller's is audited already.
  void NoteStop(const std::string& reason) const;
  // Makes scrapes say from here on that the process stops in good order.
  void BeginStop() const;
  // Keeps the metrics port open until those who scrape it regularly have seen
  // that, for `limit` at most. To be called after Drain.
  void AwaitLastScrapes(absl::Duration limit) const;
  // Health turns NOT_SERVING first; then a round in execution is finished, a
  // shard other than 0 serves until the coordinator lets it go (P35), what
  // waits is refused with UNAVAILABLE, and calls end by `deadline`.
  // Returns when nothing runs any more, also the second of two callers, with
  // the first one's deadline.
  void Drain(absl::Time deadline);
  // Returns when Drain has been called.
  void Wait();

 private:
  Server(const ServerOptions& options, const StartOptions& start);

  absl::Status StartParts();
  absl::Status StartAccess();
  void ChooseLocalSocket();
  absl::Status Secure(const Address& address);
  absl::Status OpenCheckpoints();
  absl::Status StartEngine();
  void StartRegions();
  absl::Status StartObservation();
  void StartCoordinator();  // on ordinal 0
  bool ServesMetrics() const;
  absl::Status StartMetrics();
  void EndConnectionsWithTheirCa();
  // Returns a function that takes a Host header, and the address that it came
  // from, and checks whether it names this port.
  std::function<absl::Status(const std::string&, const std::string&)>
  HostCheck();
  absl::Status StartRpc(int port);
  // Addresses of the shards, with the port that was chosen here.
  std::vector<std::string> KnownShards() const;
  void OnDeviceLost(const absl::Status& status);
  void DrainParts(absl::Time deadline);
  void AwaitHandover(absl::Time deadline);  // on other ordinals than 0
  // OK, or why this process cannot serve a job now.
  absl::Status Ready() const;
  std::string name() const;  // "shard 1 (host:port)", for messages

  const ServerOptions options_;
  const StartOptions start_;
  const uint64_t life_;  // random, of this process's run; never 0
  std::string bind_host_;
  HttpRules http_;
  std::string local_socket_;   // "": none
  std::string region_socket_;  // "": none

  // Members that stand before the parts, since those call back until they are
  // destroyed.
  mutable Mutex mutex_;
  CondVar changed_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status device_lost_ ABSL_GUARDED_BY(mutex_);  // OK: it is not

  // Parts in the order of their construction; they are destroyed in the other
  // order, except for what ~Server says.
  CallCounts calls_;
  std::unique_ptr<TlsReload> tls_;         // null without TLS
  std::unique_ptr<TlsAcceptor> http_tls_;  // null without TLS there
  std::unique_ptr<AccessParts> access_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<CheckpointFolder> checkpoints_;  // null: none configured
  std::unique_ptr<CheckpointFolder> lender_;       // of restore_job; null: none
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ShardEngine> engine_;
  std::unique_ptr<RegionServer> regions_;   // null: no memory is shared
  std::unique_ptr<Neighbours> neighbours_;  // null without replication
  std::unique_ptr<Observation> observation_;
  std::vector<std::unique_ptr<RemoteShardPeer>> remote_peers_;
  std::unique_ptr<Coordinator> coordinator_;  // null unless ordinal 0
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<Housekeeping> housekeeping_;  // null once it drains
};

}  // namespace agg

#endif  // AGG_SERVER_SERVER_H_
