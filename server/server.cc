// Starts the parts in their order, and stops them; what each does is in its
// room.
#include "server/server.h"

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/backend.h"
#include "kernels/optimizer_table.h"
#include "server/access/access_rules.h"
#include "server/access/identities.h"
#include "server/access_parts.h"
#include "server/base/address.h"
#include "server/base/clock.h"
#include "server/base/field_error.h"
#include "server/base/file_system.h"
#include "server/base/limited_calls.h"
#include "server/base/local_socket.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/base/version.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/config/host_budget.h"
#include "server/coordinator/coordinator.h"
#include "server/housekeeping.h"
#include "server/http_rules.h"
#include "server/observation.h"
#include "server/round/round_report.h"
#include "server/round/shard_options.h"
#include "server/round/shard_peer.h"
#include "server/rpc/region_server.h"
#include "server/rpc/remote_shard_peer.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/region_grant.h"
#include "server/shard/shard_engine.h"
#include "server/tls/tls_files.h"
#include "server/tls/tls_reload.h"
#include "server/tls/tls_session.h"

namespace agg {

std::string BindHost(const Address& address, const std::string& bind) {
  if (!bind.empty()) return bind;
  return IsLoopback(address.host) && address.host != "localhost" ? address.host
                                                                 : "127.0.0.1";
}

bool IsInsecure(const std::string& host, bool tls) {
  return !tls && !IsLoopback(host);
}

absl::Status CheckBind(const std::string& host, bool tls, bool insecure) {
  if (insecure || !IsInsecure(host, tls)) return absl::OkStatus();
  return FieldError(
      "--bind", Quoted(host),
      "loopback without TLS; others with security { tls { .. } } in the job's "
      "configuration, or with security { insecure: true }, and then anyone who "
      "reaches the port can read and change the model");
}

void WarnAboutBind(const Address& address, const std::string& host, bool tls) {
  if (IsInsecure(host, tls)) {
    LogWarning("insecure: listening on ", host,
               " without TLS: tokens, gradients and parameters cross the "
               "network in clear text, and without identities anyone who "
               "reaches it can change the model");
  }
  if (IsLoopback(host) && !IsLoopback(address.host)) {
    LogWarning("listening on ", host, " only, but this shard's address is ",
               address.host, ": other hosts cannot reach it without --bind");
  }
}

// The host's and the device's budgets follow one rule: as configured, or a
// share of what is there.

namespace {

int64_t Complete(const char* what, int64_t configured_bytes,
                 int64_t granted_bytes, const std::string& source) {
  const bool configured = configured_bytes != 0;
  const int64_t budget_bytes =
      configured ? configured_bytes : DefaultBudget(granted_bytes);
  LogInfo(what, " budget: ", budget_bytes >> 20, " MiB, ",
          configured ? "as configured" : absl::StrCat("80% of the ", source));
  return budget_bytes;
}

}  // namespace

MemoryBudget CompleteBudget(const MemoryBudget& configured,
                            const HostMemory& host,
                            const DeviceMemoryUse& device) {
  MemoryBudget budget = configured;
  budget.host_bytes =
      Complete("memory", configured.host_bytes, host.bytes, host.source);
  if (host.bytes > 0 && configured.host_bytes > DefaultBudget(host.bytes)) {
    LogWarning(
        "memory_budget_bytes is ", configured.host_bytes,
        ", more than 80% of the ", host.source, " of ", host.bytes,
        " bytes: a plan that takes all of it leaves too little for code, "
        "stacks and the transport, and the kernel ends the process");
  }
  if (device.total_bytes == 0) return budget;
  budget.device_bytes = Complete("device memory", configured.device_bytes,
                                 device.total_bytes, "device");
  const int64_t free_bytes = device.total_bytes - device.used_bytes;
  if (free_bytes < budget.device_bytes) {
    LogWarning("the device memory budget is ", budget.device_bytes >> 20,
               " MiB, but only ", free_bytes >> 20, " of ",
               device.total_bytes >> 20, " MiB are free now");
  }
  return budget;
}

namespace {

// Random bits that tell this run of the process from every other one.
uint64_t NewLife() {
  std::random_device random;
  const uint64_t high = random();
  return (high << 32) | random() | 1;  // 0 means that there is none
}

JobInfo MakeJobInfo(const ServerOptions& options, uint64_t life) {
  JobInfo job;
  job.job = options.coordinator.job;
  job.workers = options.coordinator.workers;
  job.max_workers = options.coordinator.max_workers;
  job.lease = options.coordinator.lease;
  job.push_dtype = options.shard.push_dtype;
  job.pipelined = options.shard.pipelined;
  job.pull_dtype = options.shard.pull_dtype;
  job.optimizer = LineOf(options.shard.optimizer.kind).name;
  job.shards = options.shards;
  job.coordinator_life = life;
  return job;
}

}  // namespace

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
  std::unique_ptr<Server> server(new Server(options, start));
  AGG_RETURN_IF_ERROR(server->StartParts());
  return server;
}

Server::Server(const ServerOptions& options, const StartOptions& start)
    : options_(options), start_(start), life_(NewLife()) {}

Server::~Server() {
  if (tls_ != nullptr) tls_->SetOnDistrust(nullptr);
  Drain(absl::Now());
  if (observation_ != nullptr) observation_->StopServing();
  // A phase that hangs on another shard must not hold up this one's end.
  for (auto& peer : remote_peers_) {
    peer->Close(absl::UnavailableError("shutting down"));
  }
  coordinator_ = nullptr;
}

absl::Status Server::StartParts() {
  const absl::StatusOr<Address> address =
      ParseAddress(options_.shards[start_.ordinal]);
  if (!address.ok()) return address.status();
  bind_host_ = BindHost(*address, start_.bind);
  absl::Status status = Secure(*address);
  if (status.ok()) status = StartAccess();
  if (status.ok()) ChooseLocalSocket();
  if (status.ok()) status = OpenCheckpoints();
  if (status.ok()) status = StartEngine();
  if (status.ok()) StartRegions();
  if (status.ok()) status = StartObservation();
  if (status.ok()) StartCoordinator();
  if (status.ok()) status = StartMetrics();
  if (status.ok()) status = StartRpc(start_.port.value_or(address->port));
  if (!status.ok()) return status;
  // Where ports are chosen when processes start, only the last one's
  // configuration has them all. Else each shard's own says it: on another host
  // an address may read differently.
  if (start_.port == 0) {
    for (auto& peer : remote_peers_) peer->SetShards(KnownShards());
  }
  // Last: from here on the coordinator's thread and health use all parts.
  if (coordinator_ != nullptr) coordinator_->Start();
  housekeeping_ = std::make_unique<Housekeeping>(
      engine_.get(), coordinator_.get(), rpc_.get(), access_->audit(),
      options_.coordinator.phase_timeout, [this] {
        WriteDueLines();
        access_->Recheck();
        rpc_->EndExpired();
        // Nobody may connect who would have it looked at.
        if (tls_ != nullptr) tls_->Expires();
      });
  return absl::OkStatus();
}

// First, since a job that cannot see its checkpoints must not begin anew. A
// folder that is not there is a mistake; one that cannot be read, or does not
// answer, is waited for by the job if it needs it: this shard's copies may be
// in other processes' memory.
absl::Status Server::OpenCheckpoints() {
  const std::string& path = options_.checkpoint_path;
  if (path.empty()) return absl::OkStatus();
  files_ = LimitFiles(MakeSystemFiles());
  absl::StatusOr<CheckpointFolder> folder = CheckpointFolder::Make(
      files_.get(), path, options_.coordinator.job, life_);
  const absl::Status status = folder.ok() ? folder->Probe() : folder.status();
  if (absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
      absl::IsFailedPrecondition(status)) {
    return FieldError("checkpoint.path", Quoted(path),
                      absl::StrCat("a folder that exists and can be read (",
                                   status.message(), ")"));
  }
  checkpoints_ = std::make_unique<CheckpointFolder>(*std::move(folder));
  const std::string& other = options_.coordinator.checkpoint.restore_job;
  if (other.empty()) return absl::OkStatus();
  AGG_ASSIGN_OR_RETURN(
      CheckpointFolder lender,
      CheckpointFolder::Make(files_.get(), path, other, life_));
  lender_ = std::make_unique<CheckpointFolder>(std::move(lender));
  return absl::OkStatus();
}

absl::Status Server::StartEngine() {
  BackendOptions backend_options = options_.backend_options;
  if (backend_options.num_threads == 0) {
    backend_options.num_threads = GrantedCpus(AffinityCpus());
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      start_.make_backend(options_.backend, backend_options);
  if (!backend.ok()) {
    return absl::Status(backend.status().code(),
                        absl::StrCat("backend is \"", options_.backend,
                                     "\": ", backend.status().message()));
  }
  backend_ = *std::move(backend);
  LogInfo("backend: ", backend_->description());
  ShardOptions shard = options_.shard;
  shard.ordinal = start_.ordinal;
  shard.life = life_;
  shard.memory_budget = CompleteBudget(shard.memory_budget, GrantedMemory(),
                                       backend_->device_memory_use());
  engine_ = std::make_unique<ShardEngine>(
      shard, backend_.get(),
      [this](const absl::Status& status) { OnDeviceLost(status); });
  if (shard.replicated) {
    neighbours_ = std::make_unique<Neighbours>(
        options_.shards, start_.ordinal, options_.security.peers,
        access_->own_token(), engine_.get());
  }
  if (checkpoints_ == nullptr) return absl::OkStatus();
  const absl::Status listed = engine_->SetCheckpointFolder(
      *checkpoints_, files_.get(),
      lender_ == nullptr ? absl::nullopt
                         : absl::optional<CheckpointFolder>(*lender_));
  if (!listed.ok()) {
    LogError("checkpoints cannot be seen: ", listed.message(),
             "; the job goes on if it needs none of them");
  }
  return absl::OkStatus();
}

void Server::OnDeviceLost(const absl::Status& status) {
  LogError(status.message());
  {
    MutexLock lock(&mutex_);
    device_lost_ = status;
  }
  if (start_.on_device_lost != nullptr) start_.on_device_lost(status);
}

absl::Status Server::StartObservation() {
  Exposure exposure;
  exposure.insecure = IsInsecure(bind_host_, options_.security.tls()) ||
                      (ServesMetrics() && http_.insecure);
  exposure.shows_tensors = http_.shows_tensors;
  AGG_ASSIGN_OR_RETURN(
      observation_,
      Observation::Make(options_, start_.ordinal, engine_.get(), exposure));
  observation_->SetCalls(&calls_);
  observation_->SetDenials(access_->denials());
  observation_->SetAuditErrors([this] { return access_->audit_errors(); });
  observation_->SetTls(tls_.get());
  return absl::OkStatus();
}

void Server::StartCoordinator() {
  if (start_.ordinal != 0) return;
  std::vector<ShardPeer*> peers = {engine_.get()};
  for (size_t i = 1; i < options_.shards.size(); ++i) {
    RemoteShardOptions remote;
    remote.ordinal = static_cast<int32_t>(i);
    remote.num_shards = static_cast<int32_t>(options_.shards.size());
    remote.address = options_.shards[i];
    remote.tls = options_.security.peers;
    remote.fingerprint = options_.fingerprint;
    remote.coordinator_life = life_;
    remote.coordinator = options_.shards[0];
    remote.file_timeout = options_.coordinator.phase_timeout;
    remote.token = access_->own_token();
    remote_peers_.push_back(std::make_unique<RemoteShardPeer>(remote));
    peers.push_back(remote_peers_.back().get());
  }
  coordinator_ = std::make_unique<Coordinator>(
      options_.coordinator, std::move(peers), TickClock::Real(),
      [this](const RoundReport& report) { observation_->OnRound(report); },
      [probe = CoordinatorProbe{options_.shards[0], options_.coordinator.job,
                                life_, options_.security.peers,
                                absl::Seconds(2), access_->own_token()}] {
        return FindOtherCoordinator(probe);
      });
  coordinator_->SetOnRestored(
      [this](const VersionId& id) { access_->NoteRestored(id); });
  coordinator_->SetOnLost(
      [this](const Departure& departure, const std::string& what) {
        access_->NoteLost(departure, what);
      });
  coordinator_->SetOnSuperseded([this](const absl::Status& status) {
    if (start_.on_superseded != nullptr) start_.on_superseded(status);
  });
  observation_->SetCoordinator(coordinator_.get());
}

absl::Status Server::Ready() const {
  {
    MutexLock lock(&mutex_);
    if (draining_) return absl::UnavailableError("shutting down");
  }
  const ShardStatus shard = engine_->Status();
  if (coordinator_ == nullptr) {
    return ReadinessOf(shard, nullptr, options_.shards[0]);
  }
  JobStatus job = coordinator_->Status();
  if (!http_.shows_tensors) job.message.clear();  // it may name tensors
  return ReadinessOf(shard, &job, options_.shards[0]);
}

absl::Status Server::StartRpc(int port) {
  RpcServerOptions rpc;
  rpc.listen = FormatAddress({bind_host_, port});
  rpc.self = {start_.ordinal,
              static_cast<int32_t>(options_.shards.size()),
              options_.shards[start_.ordinal],
              options_.fingerprint,
              std::string(backend_->name()),
              life_,
              local_socket_,
              region_socket_};
  rpc.job = MakeJobInfo(options_, life_);
  rpc.job.local_socket = local_socket_;
  rpc.job.region_socket = region_socket_;
  rpc.admin = start_.admin;
  rpc.version = kVersion;
  rpc.config = options_.fields;
  rpc.metrics = [this] { return observation_->Exposed(); };
  rpc.on_drain_request = start_.on_drain_request;
  rpc.calls = &calls_;
  rpc.tls = tls_.get();
  rpc.gate = access_->gate();
  rpc.health = options_.access.health;
  rpc.reflection = options_.access.reflection;
  rpc.max_connections = options_.access.max_connections;
  if (neighbours_ != nullptr) {
    rpc.copies = neighbours_->copies();
    rpc.on_shards = [this](const std::vector<std::string>& shards) {
      neighbours_->SetShards(shards);
    };
  }
  AGG_ASSIGN_OR_RETURN(
      rpc_, RpcServer::Start(rpc, engine_.get(), coordinator_.get()));
  EndConnectionsWithTheirCa();
  LogInfo(name(), " listens on ", FormatAddress({bind_host_, rpc_->port()}));
  if (!local_socket_.empty()) {
    LogInfo("workers of this host may use ", LocalSocketTarget(local_socket_));
  }
  if (!region_socket_.empty()) {
    LogInfo("workers of this host and user may share memory");
  }
  return absl::OkStatus();
}

void Server::EndConnectionsWithTheirCa() {
  if (tls_ == nullptr) return;
  tls_->SetOnDistrust([rpc = rpc_.get()] {
    LogWarning(
        "a CA is gone from client_ca: all connections are ended, and who is "
        "trusted connects again");
    rpc->EndConnections();
  });
}

std::vector<std::string> Server::KnownShards() const {
  std::vector<std::string> shards = options_.shards;
  const absl::StatusOr<Address> own = ParseAddress(shards[start_.ordinal]);
  if (own.ok()) {
    shards[start_.ordinal] = FormatAddress({own->host, rpc_->port()});
  }
  return shards;
}

// A stop in good order: what is asked for is answered first, and a part of the
// job that only this shard has is handed over (P35).

void Server::NoteStop(const std::string& reason) const {
  access_->NoteStop(reason);
}

void Server::BeginStop() const { observation_->BeginStop(); }

void Server::AwaitLastScrapes(absl::Duration limit) const {
  // Housekeeping has ended, and this may take minutes.
  WriteDueLines();
  observation_->AwaitLastScrapes(limit);
}

void Server::Drain(absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    if (draining_) {
      // Another caller drains already. When it has returned nothing runs any
      // more.
      while (!drained_) changed_.Wait(&mutex_);
      return;
    }
    draining_ = true;
    changed_.NotifyAll();
  }
  DrainParts(deadline);
  MutexLock lock(&mutex_);
  drained_ = true;
  changed_.NotifyAll();
}

void Server::DrainParts(absl::Time deadline) {
  if (housekeeping_ != nullptr) housekeeping_->StopServing();
  if (coordinator_ == nullptr) AwaitHandover(deadline);
  housekeeping_ = nullptr;
  if (coordinator_ != nullptr) coordinator_->Drain(deadline);
  absl::Status reason = OrderlyStop(absl::StrCat(name(), " is shutting down"));
  {
    MutexLock lock(&mutex_);
    if (!device_lost_.ok()) reason = device_lost_;
  }
  if (engine_ != nullptr) engine_->Lose(0, reason);
  if (rpc_ == nullptr) return;  // it could not start
  rpc_->EndStreams(reason);
  rpc_->Shutdown(deadline);
  // Those that wait to be let go need not wait for this object's end.
  for (auto& peer : remote_peers_) {
    peer->Close(absl::UnavailableError("shutting down"));
  }
}

void Server::AwaitHandover(absl::Time deadline) {
  constexpr absl::Duration kPeriod = absl::Milliseconds(20);
  if (rpc_ == nullptr || absl::Now() >= deadline) return;
  const ShardStatus before = engine_->Status();
  if (!before.attached) return;  // nobody counts on it
  LogInfo("draining: waiting until the coordinator ends epoch ", before.epoch);
  rpc_->AnnounceDraining();
  for (;;) {
    const ShardStatus shard = engine_->Status();
    if (!shard.attached || shard.epoch != before.epoch) return;
    MutexLock lock(&mutex_);
    if (absl::Now() >= deadline) break;
    changed_.WaitFor(&mutex_, kPeriod);
  }
  LogWarning("the coordinator has not let go of this shard in time");
}

void Server::Wait() {
  MutexLock lock(&mutex_);
  while (!draining_) changed_.Wait(&mutex_);
}

// What a server offers to processes of its host alone: a Unix socket for all
// calls (P38), and its memory (P39, P40). And where it is found.

absl::Status Server::StartAccess() {
  AccessOptions options = options_.access;
  // Shards of one host have one configuration, and write a file each.
  if (start_.ordinal > 0 && !options.audit.path.empty()) {
    absl::StrAppend(&options.audit.path, ".shard", start_.ordinal);
  }
  absl::StatusOr<std::unique_ptr<AccessParts>> access =
      AccessParts::Make(options);
  if (access.ok()) access_ = *std::move(access);
  return access.status();
}

// A host without such sockets serves over TCP alone.
void Server::ChooseLocalSocket() {
  if (!options_.unix_socket) return;
  const std::string name = LocalSocketName(life_);
  const absl::Status status = CheckLocalListen(name);
  if (status.ok()) {
    local_socket_ = name;
  } else {
    LogWarning(status.message(), "; workers of this host use TCP");
  }
}

// As above: rows and versions are sent.
void Server::StartRegions() {
  if (!options_.shard.shared_memory || local_socket_.empty()) return;
  if (!access_->offers_regions()) {
    LogInfo("workers share no memory: some identities have certificates and ",
            "no token, and the socket of shared memory takes tokens alone");
    return;
  }
  const std::string name = RegionSocketName(life_);
  absl::StatusOr<std::unique_ptr<RegionServer>> regions =
      RegionServer::Start(name, [this](const RegionQuery& query) {
        return access_->GrantRegions(engine_.get(), query);
      });
  if (!regions.ok()) {
    LogWarning(regions.status().message(), "; workers share no memory");
    return;
  }
  regions_ = *std::move(regions);
  region_socket_ = name;
}

int Server::port() const { return rpc_->port(); }
int Server::metrics_port() const { return observation_->port(); }

std::string Server::name() const {
  return absl::StrCat("shard ", start_.ordinal, " (",
                      options_.shards[start_.ordinal], ")");
}

// Who may connect to a server at all.

namespace {

std::string OwnHostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

// What is wrong with the files is said here, and not by each connection.
absl::Status Server::Secure(const Address& address) {
  const SecuritySettings& security = options_.security;
  AGG_RETURN_IF_ERROR(CheckBind(bind_host_, security.tls(), security.insecure));
  WarnAboutBind(address, bind_host_, security.tls());
  http_ = RulesOfHttp(security, options_.metrics.bind, bind_host_);
  if (!security.tls()) return absl::OkStatus();
  tls_ = std::make_unique<TlsReload>(security.files, security.reload,
                                     Clock::Real());
  AGG_RETURN_IF_ERROR(tls_->Open());
  AGG_RETURN_IF_ERROR(CheckTlsOptions(security.peers, absl::Now()));
  LogInfo("TLS with ", security.files.certificate,
          tls_->has_ca() ? "; who connects shows a certificate of "
                         : "; nobody is asked for a certificate",
          security.files.ca);
  return absl::OkStatus();
}

bool Server::ServesMetrics() const {
  return start_.metrics_port.has_value() || options_.metrics.port != 0;
}

std::function<absl::Status(const std::string&, const std::string&)>
Server::HostCheck() {
  return [this, names = HostsOf(options_.security, http_.bind, options_.shards,
                                OwnHostName())](const std::string& host,
                                                const std::string& from) {
    const absl::Status status = CheckHostHeader(host, names);
    if (!status.ok()) access_->NoteHost(status, from);
    return status;
  };
}

absl::Status Server::StartMetrics() {
  if (!ServesMetrics()) return absl::OkStatus();
  absl::Status status = CheckHttp(http_, options_.security);
  if (!status.ok()) return status;
  WarnAboutHttp(http_);
  HttpTransport transport;
  transport.strict = http_.strict;
  if (http_.tls) {
    AGG_ASSIGN_OR_RETURN(http_tls_, TlsAcceptor::Make(tls_.get()));
    transport.tls = http_tls_.get();
  }
  MetricsPages pages;
  pages.ready = [this] { return Ready(); };
  pages.open_health = options_.access.health;
  if (http_.asks) {
    pages.admit = [this](const std::string& authorization,
                         const std::string& from) {
      return access_->AdmitReader(authorization, from, kHttpPages);
    };
    pages.admit_scrape = [this](const std::string& authorization,
                                const std::string& from) {
      return access_->AdmitReader(authorization, from, kHttpMetrics);
    };
    if (!access_->has_reader()) {
      LogWarning(
          "nobody can read metrics and status page: no identity with "
          "the role observer or admin, or metrics, has a token_file");
    }
  }
  if (!http_.asks && !http_.tls) pages.admit_host = HostCheck();
  return observation_->Serve(
      http_.bind,
      start_.metrics_port.value_or(
          HttpPort(options_.metrics.port, options_.shards, start_.ordinal)),
      std::move(pages), transport);
}

}  // namespace agg
