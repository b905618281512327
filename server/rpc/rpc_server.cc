// Puts the services together. The class is a pimpl so that no header outside
// server/rpc sees gRPC.
#include "server/rpc/rpc_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/byte_buffer_frame.h"
#include "proto/grpc_lifetime.h"
#include "proto/transport_limits.h"
#include "server/base/local_socket.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/call_counter.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/flow_windows.h"
#include "server/rpc/listen_check.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/row_reports.h"
#include "server/rpc/server_credentials.h"
#include "server/rpc/shard_control_service.h"
#include "server/rpc/shard_service.h"

namespace agg {
namespace {

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

// Calls that one connection may have open. A worker has fewer than ten; those
// beyond the limit wait in the client's gRPC until others have ended.
constexpr int kMaxStreamsPerConnection = 256;
// Names and values of a call's headers. A status message that is cut has at
// most three quarters of it, percent-encoded.
constexpr int kMaxMetadataBytes = 8192;

// Bytes that a peer may send on one stream before they are read: as many as the
// memory plan counts for a worker's frames. gRPC would have the window grow
// with what a connection carries, to tens of MiB on one host: a server of 8
// workers then took 1.20 of its plan, and now 0.93, in the same time. A stream
// gets at most this in one round trip of the network, 400 MB/s at 20 ms.
constexpr int kStreamWindowBytes = kMaxMessageBytes;

// For a TLS handshake and the first bytes of HTTP/2: who says nothing has no
// place here.
constexpr int kHandshakeMs = 20000;

// Memory that gRPC may hold for connections, before a session is known. Twice
// what the memory plan counts for frames (two of 4 MiB per worker), since a
// message may have 8 MiB, and room for those who only watch or pull.
size_t TransportBytes(int32_t max_workers) {
  constexpr size_t kPerWorker = 2 * size_t{kMaxMessageBytes};
  constexpr size_t kForOthers = size_t{256} << 20;
  return kForOthers + static_cast<size_t>(max_workers) * kPerWorker;
}

void SetLimits(const RpcServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_BDP_PROBE,
      WindowsGrow(options.job.pipelined, options.listen));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kStreamWindowBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE,
                              kMaxHttp2FrameBytes);
  grpc::ResourceQuota quota("agg_server");
  quota.Resize(TransportBytes(options.job.max_workers));
  builder->SetResourceQuota(quota);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kHandshakeMs);
  // Two servers on one port must be an error, not a lottery.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Finds dead hosts; leases find dead workers.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  // Clients ping every 10 s while they wait; that is not abuse.
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
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
        shard_({engine, &open_, /*cache=*/nullptr, &reports_, coordinator,
                NotTheCoordinator(options.self, options.job), options.gate}),
        control_(options.self, engine, options.copies, options.on_shards,
                 &open_, &reports_, options.gate, options.clock),
        coordinator_(options.self, options.job, coordinator, &open_,
                     options.gate) {
    if (options.admin) {
      admin_ = std::make_unique<AdminService>(
          AdminOptions{options.self, options.job, options.version,
                       options.on_drain_request, options.gate},
          coordinator);
    }
  }

  absl::Status Listen(const RpcServerOptions& options) {
    const absl::Status status = CheckListen(options.listen);
    if (!status.ok()) return status;
    KeepGrpcInitialized();
    EnablePlugins();
    grpc::ServerBuilder builder;
    AddStandardServices(options, &builder);
    SetLimits(options, &builder);
    if (options.calls != nullptr) {
      CountCalls(options.admin, options.calls, &builder);
    }
    builder.AddListeningPort(options.listen, NewCredentials(options), &port_);
    if (!options.self.local_socket.empty()) {
      builder.AddListeningPort(LocalSocketTarget(options.self.local_socket),
                               NewCredentials(options));
    }
    builder.RegisterService(&shard_);
    builder.RegisterService(&control_);
    builder.RegisterService(&coordinator_);
    if (admin_ != nullptr) builder.RegisterService(admin_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", options.listen, ": gRPC's lines above say why"));
    }
    if (options.health) {
      server_->GetHealthCheckService()->SetServingStatus(false);
    }
    for (const char* service : {"", kCoordinatorHealth, kShardHealth}) {
      SetServing(service, false);
    }
    SetServing(kLiveHealth, true);
    if (is_coordinator_) {
      std::vector<std::string> shards = options.job.shards;
      shards[options.self.ordinal] =
          WithPort(shards[options.self.ordinal], port_);
      coordinator_.SetShards(shards);
    }
    return absl::OkStatus();
  }

  void SetServing(const std::string& service, bool serving) {
    grpc::HealthCheckServiceInterface* const health =
        server_->GetHealthCheckService();
    if (health != nullptr) health->SetServingStatus(service, serving);
  }

  void Shutdown(absl::Time deadline) {
    if (server_ != nullptr) server_->Shutdown(absl::ToChronoTime(deadline));
  }

  int port() const { return port_; }
  ShardControlService* control() { return &control_; }
  OpenStreams* open() { return &open_; }

 private:
  std::shared_ptr<grpc::ServerCredentials> NewCredentials(
      const RpcServerOptions& options) {
    credentials_.push_back(MakeServerCredentials(options.tls));
    return credentials_.back();
  }

  const bool is_coordinator_;
  OpenStreams open_;
  RowReports reports_;
  ShardService shard_;
  ShardControlService control_;
  CoordinatorService coordinator_;
  std::unique_ptr<AdminService> admin_;
  int port_ = 0;
  std::vector<std::shared_ptr<grpc::ServerCredentials>>
      credentials_;                       // by port
  std::unique_ptr<grpc::Server> server_;  // last: ends before the services
};

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() { Shutdown(absl::Now()); }

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, ShardEngine* engine,
    Coordinator* coordinator) {
  auto impl = std::make_unique<Impl>(options, engine, coordinator);
  const absl::Status status = impl->Listen(options);
  if (!status.ok()) return status;
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

int RpcServer::port() const { return impl_->port(); }

void RpcServer::SetServing(const std::string& service, bool serving) {
  impl_->SetServing(service, serving);
}

void RpcServer::LookForCoordinator() { impl_->control()->LookForCoordinator(); }

void RpcServer::AnnounceDraining() { impl_->control()->AnnounceDraining(); }

void RpcServer::EndStreams(const absl::Status& reason) {
  impl_->open()->EndAll(reason);
}

void RpcServer::Shutdown(absl::Time deadline) { impl_->Shutdown(deadline); }

}  // namespace agg
