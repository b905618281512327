#include "server/server.h"

#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/backend.h"
#include "server/base/address.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/base/version.h"
#include "server/config/memory_budget.h"
#include "server/coordinator/coordinator.h"
#include "server/housekeeping.h"
#include "server/observation.h"
#include "server/rpc/remote_shard_peer.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/shard_engine.h"

namespace agg {
namespace {

JobInfo MakeJobInfo(const ServerOptions& options) {
  JobInfo job;
  job.job = options.coordinator.job;
  job.workers = options.coordinator.workers;
  job.max_workers = options.coordinator.max_workers;
  job.lease = options.coordinator.lease;
  job.push_dtype = options.shard.push_dtype;
  job.pull_dtype = options.shard.pull_dtype;
  job.shards = options.shards;
  return job;
}

// The address to bind: never wider than loopback unless asked to be.
std::string BindHost(const Address& address, const std::string& bind) {
  if (!bind.empty()) return bind;
  return IsLoopback(address.host) && address.host != "localhost" ? address.host
                                                                 : "127.0.0.1";
}

void WarnAboutBind(const Address& address, const std::string& host) {
  if (!IsLoopback(host)) {
    LogWarning("listening on ", host, " without TLS: whoever reaches this ",
               "port can read and change the model");
  } else if (!IsLoopback(address.host)) {
    LogWarning("listening on ", host, " only, but this shard's address is ",
               address.host, ": other hosts cannot reach it without --bind");
  }
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, const StartOptions& start)
      : options_(options), start_(start) {}

  absl::Status Start() {
    const absl::StatusOr<Address> address =
        ParseAddress(options_.shards[start_.ordinal]);
    if (!address.ok()) return address.status();
    address_ = *address;
    if (start_.port.has_value()) address_.port = *start_.port;
    host_ = BindHost(address_, start_.bind);
    WarnAboutBind(address_, host_);
    absl::Status status = StartEngine();
    if (status.ok()) status = StartObservation();
    if (status.ok()) StartCoordinator();
    if (status.ok()) status = StartMetrics();
    if (status.ok()) status = StartRpc();
    if (!status.ok()) return status;
    if (coordinator_ != nullptr) coordinator_->Start();
    housekeeping_ = std::make_unique<Housekeeping>(
        engine_.get(), coordinator_.get(), rpc_.get());
    return absl::OkStatus();
  }

  ~Impl() {
    Drain(absl::Now());
    if (observation_ != nullptr) observation_->StopServing();
    // A phase that hangs on another shard must not hold up this one's end.
    for (auto& peer : remote_peers_) {
      peer->Close(absl::UnavailableError("shutting down"));
    }
    coordinator_ = nullptr;
  }

  void Drain(absl::Time deadline) {
    {
      MutexLock lock(&mutex_);
      if (draining_) return;
      draining_ = true;
      changed_.NotifyAll();
    }
    housekeeping_ = nullptr;  // health is NOT_SERVING from here on
    if (coordinator_ != nullptr) coordinator_->Drain(deadline);
    absl::Status reason =
        absl::UnavailableError(absl::StrCat(name(), " is shutting down"));
    {
      MutexLock lock(&mutex_);
      if (!device_lost_.ok()) reason = device_lost_;
    }
    if (engine_ != nullptr) engine_->Lose(0, reason);
    if (rpc_ == nullptr) return;
    rpc_->EndStreams(reason);
    rpc_->Shutdown(deadline);
  }

  void Wait() {
    MutexLock lock(&mutex_);
    while (!draining_) changed_.Wait(&mutex_);
  }

  int port() const { return rpc_->port(); }
  int metrics_port() const { return observation_->port(); }

 private:
  std::string name() const {
    return absl::StrCat("shard ", start_.ordinal, " (",
                        options_.shards[start_.ordinal], ")");
  }

  absl::Status StartEngine() {
    absl::StatusOr<std::unique_ptr<Backend>> backend =
        start_.make_backend(options_.backend, options_.backend_options);
    if (!backend.ok()) {
      return absl::Status(backend.status().code(),
                          absl::StrCat("backend is \"", options_.backend,
                                       "\": ", backend.status().message()));
    }
    backend_ = *std::move(backend);
    LogInfo("backend: ", backend_->description());
    ShardOptions shard = options_.shard;
    shard.ordinal = start_.ordinal;
    FillBudget(&shard.memory_budget);
    engine_ = std::make_unique<ShardEngine>(
        shard, backend_.get(),
        [this](const absl::Status& status) { OnDeviceLost(status); });
    return absl::OkStatus();
  }

  void OnDeviceLost(const absl::Status& status) {
    LogError(status.message());
    {
      MutexLock lock(&mutex_);
      device_lost_ = status;
    }
    if (start_.on_device_lost != nullptr) start_.on_device_lost(status);
  }

  void FillBudget(MemoryBudget* budget) const {
    const HostMemory host = GrantedMemory();
    FillBudget("memory", host.bytes, host.source, &budget->host_bytes);
    const DeviceMemoryUse device = backend_->device_memory_use();
    if (device.total_bytes == 0) return;
    FillBudget("device memory", device.total_bytes, "device",
               &budget->device_bytes);
    const int64_t free_bytes = device.total_bytes - device.used_bytes;
    if (free_bytes < budget->device_bytes) {
      LogWarning("the device memory budget is ", budget->device_bytes >> 20,
                 " MiB, but only ", free_bytes >> 20, " of ",
                 device.total_bytes >> 20, " MiB are free now");
    }
  }

  static void FillBudget(const char* what, int64_t granted_bytes,
                         const std::string& source, int64_t* budget_bytes) {
    const bool configured = *budget_bytes != 0;
    if (!configured) *budget_bytes = DefaultBudget(granted_bytes);
    LogInfo(what, " budget: ", *budget_bytes >> 20, " MiB, ",
            configured ? "as configured" : "80% of the " + source);
  }

  absl::Status StartObservation() {
    absl::StatusOr<std::unique_ptr<Observation>> observation =
        Observation::Make(options_, start_.ordinal, engine_.get());
    if (!observation.ok()) return observation.status();
    observation_ = *std::move(observation);
    return absl::OkStatus();
  }

  void StartCoordinator() {
    if (start_.ordinal != 0) return;
    std::vector<ShardPeer*> peers = {engine_.get()};
    for (size_t i = 1; i < options_.shards.size(); ++i) {
      RemoteShardOptions remote;
      remote.ordinal = static_cast<int32_t>(i);
      remote.num_shards = static_cast<int32_t>(options_.shards.size());
      remote.address = options_.shards[i];
      remote.fingerprint = options_.fingerprint;
      remote_peers_.push_back(std::make_unique<RemoteShardPeer>(remote));
      peers.push_back(remote_peers_.back().get());
    }
    coordinator_ = std::make_unique<Coordinator>(
        options_.coordinator, std::move(peers), Clock::Real(),
        [this](const RoundReport& report) { observation_->OnRound(report); });
    observation_->SetCoordinator(coordinator_.get());
  }

  absl::Status StartMetrics() {
    const int configured = options_.metrics.port;
    if (!start_.metrics_port.has_value() && configured == 0) {
      return absl::OkStatus();
    }
    const std::string& bind = options_.metrics.bind;
    return observation_->Serve(bind.empty() ? host_ : bind,
                               start_.metrics_port.value_or(configured),
                               [this] { return Ready(); });
  }

  // As the health of the process over gRPC, with the reason.
  absl::Status Ready() {
    {
      MutexLock lock(&mutex_);
      if (draining_) return absl::UnavailableError("shutting down");
    }
    const ShardStatus shard = engine_->Status();
    if (coordinator_ == nullptr) {
      if (HealthOf(shard, nullptr).process) return absl::OkStatus();
      return absl::UnavailableError(absl::StrCat(
          "not attached to the coordinator (", options_.shards[0], ") yet"));
    }
    const JobStatus job = coordinator_->Status();
    if (HealthOf(shard, &job).process) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(job.phase, job.message.empty() ? "" : ": ", job.message));
  }

  absl::Status StartRpc() {
    RpcServerOptions rpc;
    rpc.listen = FormatAddress({host_, address_.port});
    rpc.self = {start_.ordinal, static_cast<int32_t>(options_.shards.size()),
                options_.shards[start_.ordinal], options_.fingerprint,
                std::string(backend_->name())};
    rpc.job = MakeJobInfo(options_);
    rpc.admin = start_.admin;
    rpc.version = kVersion;
    rpc.on_drain_request = start_.on_drain_request;
    absl::StatusOr<std::unique_ptr<RpcServer>> server =
        RpcServer::Start(rpc, engine_.get(), coordinator_.get());
    if (!server.ok()) return server.status();
    rpc_ = *std::move(server);
    LogInfo(name(), " listens on ", FormatAddress({host_, rpc_->port()}));
    return absl::OkStatus();
  }

  const ServerOptions options_;
  const StartOptions start_;
  Address address_;
  std::string host_;  // bound

  // What the parts below call back for comes before them.
  Mutex mutex_;
  CondVar changed_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status device_lost_ ABSL_GUARDED_BY(mutex_);

  // In the order of construction; destroyed the other way round, except for
  // what ~Impl says.
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ShardEngine> engine_;
  std::unique_ptr<Observation> observation_;
  std::vector<std::unique_ptr<RemoteShardPeer>> remote_peers_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<Housekeeping> housekeeping_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, const StartOptions& start) {
  const int num_shards = static_cast<int>(options.shards.size());
  if (start.ordinal < 0 || start.ordinal >= num_shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ordinal is ", start.ordinal, "; allowed: 0 to ", num_shards - 1));
  }
  if (start.make_backend == nullptr) {
    return absl::InvalidArgumentError("make_backend is missing");
  }
  auto impl = std::make_unique<Impl>(options, start);
  const absl::Status status = impl->Start();
  if (!status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

int Server::port() const { return impl_->port(); }
int Server::metrics_port() const { return impl_->metrics_port(); }
void Server::Drain(absl::Time deadline) { impl_->Drain(deadline); }
void Server::Wait() { impl_->Wait(); }

}  // namespace agg
