#include "server/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/metrics.h"
#include "server/metrics/metrics_options.h"
#include "server/round/round_report.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// The whole answer to a GET, headers and body; empty if nothing listens.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
      0) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n",
                     "Connection: close\r\n\r\n");
    EXPECT_EQ(write(fd, request.data(), request.size()),
              static_cast<ssize_t>(request.size()));
    char bytes[4096];
    for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) > 0;) {
      answer.append(bytes, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest()
      : metrics_(
            MetricsOptions(), [] { return ShardStatus(); }, nullptr) {}

  absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& bind,
                                                       int port) {
    return MetricsServer::Start(bind, port, metrics_);
  }

  Metrics metrics_;
};

TEST_F(MetricsServerTest, ServesTheMetrics) {
  const auto server = Start("127.0.0.1", 0);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_GT((*server)->port(), 0);
  const std::string answer = Get((*server)->port(), "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\naggserver_rounds_total{job=\"default\","
                                "shard=\"0\",outcome=\"applied\"} 0\n"));
  RoundReport report;
  report.applied = true;
  metrics_.OnRound(report);
  EXPECT_THAT(Get((*server)->port(), "/metrics"),
              HasSubstr("outcome=\"applied\"} 1\n"));
  EXPECT_TRUE(
      absl::StartsWith(Get((*server)->port(), "/other"), "HTTP/1.1 404 "));
}

TEST_F(MetricsServerTest, StopsListeningWhenItIsGone) {
  auto metrics = std::make_unique<Metrics>(
      MetricsOptions(), [] { return ShardStatus(); }, nullptr);
  auto server = MetricsServer::Start("127.0.0.1", 0, *metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  metrics.reset();  // The server keeps what it needs.
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("aggserver_build_info"));
  server->reset();
  EXPECT_EQ(Get(port, "/metrics"), "");
}

TEST_F(MetricsServerTest, APortInUseIsNamed) {
  const auto first = Start("127.0.0.1", 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Start("127.0.0.1", (*first)->port());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", (*first)->port())));
}

TEST_F(MetricsServerTest, AnAddressOfAnotherMachineIsNamed) {
  // TEST-NET-1 (RFC 5737): no machine has it.
  const auto server = Start("192.0.2.1", 0);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("192.0.2.1:0"));
}

TEST_F(MetricsServerTest, WhatCannotBeAnAddressIsRefused) {
  for (const char* bind :
       {"", "127.0.0.1:80,0.0.0.0", "127.0.0.1 ", "a/b", "+"}) {
    const auto server = Start(bind, 0);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument)
        << bind;
    EXPECT_THAT(std::string(server.status().message()),
                HasSubstr("metrics.bind"));
  }
  for (const int port : {-1, 65536}) {
    const auto server = Start("127.0.0.1", port);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(server.status().message()),
                HasSubstr("metrics.port"));
  }
}

TEST_F(MetricsServerTest, TakesABareIpv6Address) {
  const auto server = Start("::1", 0);
  if (absl::IsUnavailable(server.status())) {
    GTEST_SKIP() << "no IPv6 loopback here: " << server.status();
  }
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->port(), 0);
}

}  // namespace
}  // namespace agg
