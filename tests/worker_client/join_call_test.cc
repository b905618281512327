// How often a client that waits to join looks for the reason.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>  // NOLINT

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "proto/status_conversion.h"
#include "server/base/field_error.h"
#include "server/base/file_descriptor.h"
#include "worker_client/channel.h"
#include "worker_client/membership.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// Hangs up on each connection once it has heard its first byte.
class HangsUp {
 public:
  HangsUp() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 100), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~HangsUp() { Stop(); }

  const std::string& address() const { return address_; }
  // The connections that began with TLS's first byte.
  int Stop() {
    if (thread_.joinable()) {
      shutdown(listener_.get(), SHUT_RDWR);
      thread_.join();
    }
    return hellos_;
  }

 private:
  void Run() {
    while (true) {
      const FileDescriptor peer(accept(listener_.get(), nullptr, nullptr));
      if (!peer.valid()) return;
      unsigned char first = 0;
      if (recv(peer.get(), &first, 1, 0) == 1 && first == 0x16) ++hellos_;
    }
  }

  const FileDescriptor listener_;
  std::string address_;
  int hellos_ = 0;
  std::thread thread_;
};

// Not with each attempt: that would be a connection more each half second.
TEST(JoinCallTest, TheReasonIsLookedForOnceWhereNobodyListens) {
  HangsUp server;
  ClientOptions options;
  options.observer = true;
  options.connect_timeout = absl::Seconds(2);
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(server.address());
  const auto stub = v1::Coordinator::NewStub(channel);
  const absl::Status status =
      JoinJob(options, {0, server.address()}, channel.get(), stub.get())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tried for connect_timeout, 2s"));
  EXPECT_EQ(server.Stop(), 1);
}

// A coordinator that has as many callers as it takes, for a while.
class Full : public v1::Coordinator::Service {
 public:
  explicit Full(int refusals) : refusals_(refusals) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  const std::string& address() const { return address_; }
  int calls() const { return calls_; }

  grpc::Status Observe(grpc::ServerContext*, const v1::ObserveRequest*,
                       v1::JoinReply*) override {
    if (++calls_ > refusals_) return grpc::Status::OK;
    return ToGrpcStatus(
        LimitError("max_waiting_calls", "all callers", "4", "4"));
  }

 private:
  const int refusals_;
  std::atomic<int> calls_{0};
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

absl::Status Observe(const std::string& address, absl::Duration timeout) {
  ClientOptions options;
  options.observer = true;
  options.connect_timeout = timeout;
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
  const auto stub = v1::Coordinator::NewStub(channel);
  return JoinJob(options, {0, address}, channel.get(), stub.get()).status();
}

// 20 ms, 40 ms and so on up to 500 ms apart: 8 times in two seconds.
TEST(JoinCallTest, WhoIsRefusedByALimitPausesBetweenCalls) {
  Full server(/*refusals=*/1 << 30);
  const absl::Status status = Observe(server.address(), absl::Seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("max_waiting_calls of all callers is 4; allowed: 4"));
  EXPECT_LE(server.calls(), 20);
}

TEST(JoinCallTest, WhoIsRefusedByALimitComesAgain) {
  Full server(/*refusals=*/2);
  EXPECT_TRUE(Observe(server.address(), absl::Minutes(2)).ok());
  EXPECT_EQ(server.calls(), 3);
}

}  // namespace
}  // namespace agg
