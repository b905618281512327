// Puts the services together. The class is a pimpl so that no header outside
// server/rpc sees gRPC.
#include "server/rpc/rpc_server.h"

#include <grpcpp/client_context.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.grpc.pb.h"
#include "proto/grpc_channel.h"
#include "proto/grpc_transport.h"
#include "server/access/access_rules.h"
#include "server/base/call_counts.h"
#include "server/base/field_error.h"
#include "server/base/file_descriptor.h"
#include "server/base/local_socket.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/connection_listener.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/row_reports.h"
#include "server/rpc/shard_control_service.h"
#include "server/rpc/shard_service.h"
#include "server/rpc/transport_settings.h"

namespace agg {

// One GetStatus call on a new connection. No answer, another job's or this
// process's own is not another coordinator.

std::string FindOtherCoordinator(const CoordinatorProbe& probe) {
  // A new connection each time: one that is kept may lead to a process that the
  // name does not lead to any more, and would be slow to try again.
  const auto stub = v1::Coordinator::NewStub(
      NewGrpcChannel(probe.address, probe.address, probe.tls, probe.token,
                     grpc::ChannelArguments()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + probe.timeout));
  v1::StatusReply reply;
  const grpc::Status status =
      stub->GetStatus(&context, v1::StatusRequest(), &reply);
  if (!status.ok() || reply.job() != probe.job ||
      reply.coordinator_life() == probe.life) {
    return "";
  }
  return absl::StrCat("another coordinator of job \"", reply.job(), "\" (life ",
                      absl::Hex(reply.coordinator_life(), absl::kZeroPad16),
                      ") answers at ", probe.address,
                      ", the address of shard 0");
}

namespace {

// How long a server that shuts down waits for readers that take nothing.
constexpr absl::Duration kLastAnswers = absl::Seconds(2);
// How often it looks whether they do.
constexpr absl::Duration kLookForReaders = absl::Milliseconds(100);

// gRPC has one set of these switches per process, and they are not
// thread-safe.
void EnablePlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Takes reflection, which is a plugin of every builder, out of one.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    const std::string name =
        grpc::reflection::ProtoServerReflectionPlugin().name();
    plugins->erase(
        std::remove_if(
            plugins->begin(), plugins->end(),
            [&](const std::unique_ptr<grpc::ServerBuilderPlugin>& plugin) {
              return plugin->name() == name;
            }),
        plugins->end());
  }
};

void AddStandardServices(const RpcServerOptions& options,
                         grpc::ServerBuilder* builder) {
  if (!options.health) {
    builder->SetOption(
        std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  }
  if (!options.reflection) {
    builder->SetOption(std::make_unique<WithoutReflection>());
  }
}

// Something that no service has seen was refused, as all callers together have
// reached a limit.
void NoteLimit(const CallerGate* gate, DenialReason reason,
               const std::string& from, const std::string& method, int most) {
  Caller nobody;
  nobody.from = from;
  gate->NoteDenial(
      nobody, reason, method,
      LimitError(std::string(DenialName(reason)), "all callers",
                 absl::StrCat(most), absl::StrCat(most, " at a time")));
}

void AddInterceptors(const RpcServerOptions& options,
                     const std::shared_ptr<OpenConnections>& connections,
                     grpc::ServerBuilder* builder) {
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      creators;
  if (options.calls != nullptr) {
    creators.push_back(CountCalls(options.admin, options.calls));
  }
  if (options.tls != nullptr && options.tls->has_ca()) {
    creators.push_back(NoteCertificates(connections));
  }
  creators.push_back(LimitOtherCalls([gate = options.gate](
                                         const std::string& from,
                                         const std::string& method) {
    NoteLimit(gate, DenialReason::kOtherCalls, from, method, kMaxOtherCalls);
  }));
  builder->experimental().SetInterceptorCreators(std::move(creators));
}

// `address` with another port.
std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

class RpcServer::Impl {
 public:
  Impl(const RpcServerOptions& options, ShardEngine* engine,
       Coordinator* coordinator)
      : is_coordinator_(coordinator != nullptr),
        connections_(std::make_shared<OpenConnections>(
            PlacesForConnections(options.max_connections), Clock::Real())),
        readers_(std::make_shared<OvertakenReaders>(connections_)),
        shard_({engine, &open_, /*cache=*/nullptr, &reports_, coordinator,
                NotTheCoordinator(options.self, options.job), options.gate,
                readers_}),
        control_(options.self, engine, options.copies, options.on_shards,
                 &open_, &reports_, options.gate, options.clock),
        coordinator_(options.self, options.job, coordinator, &open_,
                     options.gate),
        reductions_(options.self, options.job, coordinator, options.gate),
        external_rules_(options.self, options.job, coordinator, options.gate),
        gate_(options.gate) {
    if (options.admin) {
      admin_ = std::make_unique<AdminService>(
          AdminOptions{options.self, options.job, options.version,
                       options.config, options.metrics,
                       options.on_drain_request, options.gate},
          coordinator);
    }
  }

  absl::Status Listen(const RpcServerOptions& options) {
    ConnectionListener::Parts listener;
    AGG_RETURN_IF_ERROR(OpenSockets(options, &listener));
    KeepGrpcInitialized();
    EnablePlugins();
    grpc::ServerBuilder builder;
    AddStandardServices(options, &builder);
    TransportSettings transport;
    transport.max_workers = options.job.max_workers;
    transport.windows_grow = WindowsGrow(options.job.pipelined, options.listen);
    ApplyTransportSettings(transport, &builder);
    AddInterceptors(options, connections_, &builder);
    builder.SetContextAllocator(std::make_unique<CallContexts>());
    const std::shared_ptr<Acceptor> port = AddAcceptor(options, &builder);
    const std::shared_ptr<Acceptor> local = AddAcceptor(options, &builder);
    builder.RegisterService(&shard_);
    builder.RegisterService(&control_);
    builder.RegisterService(&coordinator_);
    builder.RegisterService(&reductions_);
    builder.RegisterService(&external_rules_);
    if (admin_ != nullptr) builder.RegisterService(admin_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::UnavailableError(absl::StrCat(
          "cannot serve on ", options.listen, ": gRPC's lines above say why"));
    }
    BeginHealth();
    if (is_coordinator_) {
      std::vector<std::string> shards = options.job.shards;
      shards[options.self.ordinal] =
          WithPort(shards[options.self.ordinal], port_);
      coordinator_.SetShards(shards);
    }
    listener.take = [port, local](int listener_fd, int fd, bool is_local) {
      Acceptor::NewConnectionParameters connection;
      connection.listener_fd = listener_fd;
      connection.fd = fd;
      (is_local ? local : port)->HandleNewConnection(&connection);
    };
    listener_ = std::make_unique<ConnectionListener>(std::move(listener));
    return absl::OkStatus();
  }

  void SetServing(const std::string& service, bool serving) {
    grpc::HealthCheckServiceInterface* const health =
        server_->GetHealthCheckService();
    if (health != nullptr) health->SetServingStatus(service, serving);
  }

  // Answers what is asked, and lets readers take their versions, until the
  // deadline. When nobody has taken a frame for kLastAnswers, connections end:
  // gRPC could not even cancel a call whose bytes are stuck in a socket.
  void Shutdown(absl::Time deadline) {
    listener_ = nullptr;
    if (server_ == nullptr) return;
    std::thread ending;
    try {
      ending = std::thread([this, deadline] { EndStuckReaders(deadline); });
    } catch (const std::system_error&) {  // there is no thread
      connections_->EndAll();
    }
    server_->Shutdown(absl::ToChronoTime(deadline));
    {
      MutexLock lock(&mutex_);
      shut_ = true;
      changed_.NotifyAll();
    }
    if (ending.joinable()) ending.join();
  }

  void EndConnections() { connections_->EndAll(); }

  void EndExpired() {
    for (const std::string& peer : connections_->EndExpired()) {
      LogWarningOf("expired", "the certificate of ", peer,
                   " has expired: its connection is ended");
      Caller nobody;
      nobody.from = peer;
      gate_->NoteDenial(
          nobody, DenialReason::kExpired, "connection",
          absl::UnauthenticatedError("the client's certificate has expired"));
    }
  }

  int port() const { return port_; }
  ShardControlService* control() { return &control_; }
  OpenStreams* open() { return &open_; }

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  void EndStuckReaders(absl::Time deadline) {
    int64_t taken = readers_->num_taken();
    absl::Time since = absl::Now();
    MutexLock lock(&mutex_);
    while (!shut_) {
      const absl::Time now = absl::Now();
      if (const int64_t by_now = readers_->num_taken(); by_now != taken) {
        taken = by_now;
        since = now;
      }
      if (now >= std::min(deadline, since + kLastAnswers)) {
        connections_->EndAll();
        return;
      }
      changed_.WaitFor(&mutex_, kLookForReaders);
    }
  }

  // Listens, but takes no connections yet.
  absl::Status OpenSockets(const RpcServerOptions& options,
                           ConnectionListener::Parts* parts) {
    AGG_ASSIGN_OR_RETURN(std::vector<FileDescriptor> ports,
                         ListenOn(options.listen));
    parts->ports = std::move(ports);
    port_ = PortOf(parts->ports.front());
    parts->open = connections_;
    if (connections_->most() < options.max_connections) {
      LogWarning("security.limits.max_connections is ", options.max_connections,
                 ", for which this process may not have enough files: ",
                 connections_->most(), " it is");
    }
    parts->on_refused = [gate = options.gate,
                         most = connections_->most()](const std::string& host) {
      NoteLimit(gate, DenialReason::kConnections, host, "connection", most);
    };
    if (options.self.local_socket.empty()) return absl::OkStatus();
    AGG_ASSIGN_OR_RETURN(FileDescriptor local,
                         ListenLocally(options.self.local_socket));
    parts->local_sockets.push_back(std::move(local));
    return absl::OkStatus();
  }

  void BeginHealth() {
    grpc::HealthCheckServiceInterface* const health =
        server_->GetHealthCheckService();
    if (health != nullptr) health->SetServingStatus(false);
    for (const char* service : {"", kCoordinatorHealth, kShardHealth}) {
      SetServing(service, false);
    }
    SetServing(kLiveHealth, true);
  }

  std::shared_ptr<Acceptor> AddAcceptor(const RpcServerOptions& options,
                                        grpc::ServerBuilder* builder) {
    credentials_.push_back(MakeServerCredentials(options.tls));
    return builder->experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        credentials_.back());
  }

  const bool is_coordinator_;
  // Shared with what may end connections later than the services do.
  const std::shared_ptr<OpenConnections> connections_;
  OpenStreams open_;
  const std::shared_ptr<OvertakenReaders> readers_;
  RowReports reports_;
  ShardService shard_;
  ShardControlService control_;
  CoordinatorService coordinator_;
  ReductionService reductions_;
  ExternalRuleService external_rules_;
  const CallerGate* const gate_;
  std::unique_ptr<AdminService> admin_;
  int port_ = 0;
  std::vector<std::shared_ptr<grpc::ServerCredentials>>
      credentials_;                               // by port
  std::unique_ptr<grpc::Server> server_;          // ends before the services
  std::unique_ptr<ConnectionListener> listener_;  // null once it shuts down
  Mutex mutex_;
  CondVar changed_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;  // no call is open any more
};

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() { Shutdown(absl::Now()); }

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, ShardEngine* engine,
    Coordinator* coordinator) {
  auto impl = std::make_unique<Impl>(options, engine, coordinator);
  AGG_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

int RpcServer::port() const { return impl_->port(); }

void RpcServer::SetServing(const std::string& service, bool serving) {
  impl_->SetServing(service, serving);
}

void RpcServer::LookForCoordinator() { impl_->control()->LookForCoordinator(); }

void RpcServer::EndConnections() { impl_->EndConnections(); }

void RpcServer::EndExpired() { impl_->EndExpired(); }

void RpcServer::AnnounceDraining() { impl_->control()->AnnounceDraining(); }

void RpcServer::EndStreams(const absl::Status& reason) {
  impl_->open()->EndAll(reason);
}

void RpcServer::Shutdown(absl::Time deadline) { impl_->Shutdown(deadline); }

}  // namespace agg
