// How often a client that waits to join looks for the reason.
#include "worker_client/join_call.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>  // NOLINT

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "worker_client/channel.h"

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

}  // namespace
}  // namespace agg
