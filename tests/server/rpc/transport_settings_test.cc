// What a server does to connections, by HTTP/2 frames by hand. All that is
// waited for comes by itself; kPatience is for a server that does not do it.
#include "server/rpc/transport_settings.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>  // NOLINT
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kSoon = absl::Milliseconds(20);
constexpr int kPatienceSeconds = 30;

// RFC 9113 3.4 and 6.
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kSettings = 4, kPing = 6, kGoaway = 7;
constexpr uint8_t kAck = 1;

std::string FrameText(uint8_t kind, uint8_t flags, const std::string& payload) {
  std::string frame(9, '\0');
  frame[2] = static_cast<char>(payload.size());
  frame[3] = static_cast<char>(kind);
  frame[4] = static_cast<char>(flags);
  return frame + payload;
}

struct Http2Frame {
  uint8_t kind = 0;
  uint8_t flags = 0;
  std::string payload;
};

class Connection {
 public:
  explicit Connection(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    timeval patience = {};
    patience.tv_sec = kPatienceSeconds;
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Send(absl::string_view bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void Greet() { Send(std::string(kPreface) + FrameText(kSettings, 0, "")); }

  // False: the server has closed the connection.
  bool Read(Http2Frame* frame) {
    const std::string head = Take(9);
    if (head.size() < 9) return false;
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(head[i]); };
    frame->kind = byte(3);
    frame->flags = byte(4);
    frame->payload =
        Take(size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2));
    return true;
  }

  // Until the server closes it, answering pings; what its GOAWAYs say.
  std::string ReasonsOfEnd() {
    std::string reasons;
    Http2Frame frame;
    while (Read(&frame)) {
      if (frame.kind == kGoaway) reasons += frame.payload;
      if (frame.kind == kPing && frame.flags == 0) {
        // It may be closed already.
        const std::string answer = FrameText(kPing, kAck, frame.payload);
        send(fd_, answer.data(), answer.size(), MSG_NOSIGNAL);
      }
    }
    EXPECT_FALSE(timed_out_) << "the server does not close the connection";
    return reasons;
  }
  // The same, without any answer.
  void ExpectClosed() {
    Http2Frame frame;
    while (Read(&frame)) {
    }
    EXPECT_FALSE(timed_out_) << "the server does not close the connection";
  }

 private:
  std::string Take(size_t num_bytes) {
    std::string bytes(num_bytes, '\0');
    const ssize_t n = recv(fd_, &bytes[0], num_bytes, MSG_WAITALL);
    timed_out_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return bytes;
  }

  const int fd_;
  bool timed_out_ = false;
};

class TransportSettingsTest : public ::testing::Test {
 protected:
  ~TransportSettingsTest() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }
  void Start(const TransportSettings& settings) {
    grpc::ServerBuilder builder;
    ApplyTransportSettings(settings, &builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  grpc::CallbackGenericService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(TransportSettingsTest, AConnectionWithoutACallEnds) {
  TransportSettings settings;
  settings.idle = kSoon;
  Start(settings);
  Connection connection(port_);
  connection.Greet();
  EXPECT_THAT(connection.ReasonsOfEnd(), HasSubstr("enter idle"));
}

TEST_F(TransportSettingsTest, WhoDoesNotGreetIsClosed) {
  TransportSettings settings;
  settings.handshake = kSoon;
  Start(settings);
  Connection silent(port_);
  Connection slow(port_);
  slow.Send(absl::string_view(kPreface, 10));
  silent.ExpectClosed();
  slow.ExpectClosed();
}

TEST_F(TransportSettingsTest, WhoDoesNotAnswerAPingIsClosed) {
  TransportSettings settings;
  settings.keepalive = settings.keepalive_answer = kSoon;
  Start(settings);
  Connection connection(port_);
  connection.Greet();
  connection.ExpectClosed();
}

TEST_F(TransportSettingsTest, PingsGoOnAsLongAsTheyAreAnswered) {
  TransportSettings settings;
  settings.keepalive = kSoon;
  Start(settings);
  Connection connection(port_);
  connection.Greet();
  for (int pings = 0; pings < 5;) {
    Http2Frame frame;
    ASSERT_TRUE(connection.Read(&frame)) << "after " << pings << " pings";
    if (frame.kind != kPing || frame.flags != 0) continue;
    connection.Send(FrameText(kPing, kAck, frame.payload));
    ++pings;
  }
}

TEST_F(TransportSettingsTest, WhoFloodsItWithPingsIsClosed) {
  Start(TransportSettings());
  const std::string ping = FrameText(kPing, 0, "12345678");
  const auto pings = [&](int number) {
    std::string all;
    for (int i = 0; i < number; ++i) all += ping;
    return all;
  };
  Connection flood(port_);
  flood.Greet();
  flood.Send(pings(2 * kMaxPingStrikes));
  EXPECT_THAT(flood.ReasonsOfEnd(), HasSubstr("too_many_pings"));
  // Fewer are answered.
  Connection other(port_);
  other.Greet();
  other.Send(pings(kMaxPingStrikes));
  for (int answers = 0; answers < kMaxPingStrikes;) {
    Http2Frame frame;
    ASSERT_TRUE(other.Read(&frame)) << "after " << answers << " answers";
    ASSERT_NE(frame.kind, kGoaway) << frame.payload;
    if (frame.kind == kPing && frame.flags == kAck) ++answers;
  }
}

TEST(FlowWindowsTest, GrowWhereOtherHostsMayCome) {
  for (const char* const listen :
       {"0.0.0.0:50051", "10.231.7.1:0", "[::]:50051", "[fd00::1]:50051",
        "agg-0.agg.agg-server.svc:50051"}) {
    EXPECT_TRUE(WindowsGrow(/*pipelined=*/false, listen)) << listen;
  }
  for (const char* const listen :
       {"127.0.0.1:0", "127.0.0.2:50051", "localhost:50051", "[::1]:50051"}) {
    EXPECT_FALSE(WindowsGrow(/*pipelined=*/false, listen)) << listen;
  }
}

TEST(FlowWindowsTest, GrowInAPipelinedJob) {
  EXPECT_TRUE(WindowsGrow(/*pipelined=*/true, "127.0.0.1:50051"));
}

TEST(GrpcLogTest, ErrorsAreWarningsOfTheLog) {
  gpr_log_verbosity_init();  // as grpc_init does
  LogGrpcErrors();
  testing::internal::CaptureStderr();
  gpr_log("a/b/file.cc", 7, GPR_LOG_SEVERITY_ERROR, "Handshake of %s\n", "x");
  gpr_log("a/b/file.cc", 8, GPR_LOG_SEVERITY_INFO, "nothing");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(" W "));
  EXPECT_THAT(log, HasSubstr("gRPC: Handshake of x (file.cc:7)"));
  EXPECT_THAT(log, Not(HasSubstr("nothing")));
}

// GRPC_VERBOSITY and GRPC_TRACE.
TEST(GrpcLogTest, WhatSomebodyAsksForIsLoggedToo) {
  LogGrpcErrors();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  testing::internal::CaptureStderr();
  for (int i = 0; i <= 10; ++i) {
    gpr_log("a/file.cc", i, GPR_LOG_SEVERITY_DEBUG, "step");
  }
  gpr_log("a/file.cc", 99, GPR_LOG_SEVERITY_INFO, "of %s\n", "interest");
  const std::string log = testing::internal::GetCapturedStderr();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  EXPECT_THAT(log, HasSubstr(" I "));
  EXPECT_THAT(log, HasSubstr("gRPC: step (file.cc:10)"));
  EXPECT_THAT(log, HasSubstr("gRPC: of interest (file.cc:99)"));
}

}  // namespace
}  // namespace agg
