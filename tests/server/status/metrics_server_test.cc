#include "server/status/metrics_server.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/metrics.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "tests/server/status/http_get.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; "
                                "charset=utf-8\r\n"));
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

TEST_F(MetricsServerTest, TellsWhoScrapesAndWhenItIsSent) {
  std::vector<std::string> told;
  MetricsPages pages;
  pages.on_scrape = [&](const std::string& from) {
    told.push_back(from.substr(0, from.rfind(':')));
    return [&] { told.emplace_back("sent"); };
  };
  auto server =
      MetricsServer::Start("127.0.0.1", 0, metrics_, std::move(pages));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->port(), "/metrics"), HasSubstr("200 OK"));
  EXPECT_THAT(Get((*server)->port(), "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(Ask((*server)->port(), "HEAD", "/metrics"), HasSubstr("200 OK"));
  server->reset();
  EXPECT_EQ(told, std::vector<std::string>({"ipv4:127.0.0.1", "sent"}));
}

TEST_F(MetricsServerTest, WithoutPagesThereAreNone) {
  const auto server = Start("127.0.0.1", 0);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  for (const char* path : {"/", "/status.json", "/trace.json"}) {
    EXPECT_TRUE(absl::StartsWith(Get(port, path), "HTTP/1.1 404 ")) << path;
  }
  EXPECT_THAT(Get(port, "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(Get(port, "/readyz"), HasSubstr("200 OK"));
}

TEST_F(MetricsServerTest, ServesThePages) {
  absl::Status ready = absl::UnavailableError("waiting_for_shards: shard 1");
  MetricsPages pages;
  pages.ready = [&] { return ready; };
  std::string note;
  pages.note = [&] { return note; };
  pages.status_json = [](uint64_t after) {
    return absl::StrCat("{\"after\":", after, "}");
  };
  pages.trace_json = [] { return std::string("{}"); };
  const auto server = MetricsServer::Start("127.0.0.1", 0, metrics_, pages);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_THAT(Get(port, "/healthz"), HasSubstr("200 OK"));
  std::string answer = Get(port, "/readyz");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 503 ")) << answer;
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nwaiting_for_shards: shard 1\n"));
  ready = absl::OkStatus();
  EXPECT_THAT(Get(port, "/readyz"), HasSubstr("\r\n\r\nok\n"));
  note = "the last 9 rounds were skipped";
  answer = Get(port, "/readyz");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer,
              HasSubstr("\r\n\r\nok: the last 9 rounds were skipped\n"));
  answer = Get(port, "/status.json?after=9");
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(answer, HasSubstr("{\"after\":9}"));
  EXPECT_THAT(Get(port, "/trace.json"), HasSubstr("\r\n\r\n{}"));
  answer = Get(port, "/");
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/html; charset=utf-8"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Security-Policy: default-src "
                                "'none'; script-src 'sha256-"));
  EXPECT_THAT(answer, HasSubstr("</html>"));
}

class GuardedServerTest : public MetricsServerTest {
 protected:
  GuardedServerTest() {
    pages_.ready = [] { return absl::UnavailableError("tensor a is bad"); };
    pages_.status_json = [](uint64_t) { return std::string("{\"a\":1}"); };
    pages_.trace_json = [] { return std::string("{\"a\":2}"); };
    pages_.admit = [this](const std::string& authorization,
                          const std::string& from) {
      asked_from_.push_back(from);
      if (authorization == "Bearer good") return absl::OkStatus();
      return authorization == "Bearer worker"
                 ? absl::PermissionDeniedError("role")
                 : absl::UnauthenticatedError("who?");
    };
  }

  std::string Ask(const std::string& path, const std::string& token) {
    const auto server = MetricsServer::Start("127.0.0.1", 0, metrics_, pages_);
    EXPECT_TRUE(server.ok()) << server.status();
    return agg::Ask(
        (*server)->port(), "GET", path,
        token.empty() ? ""
                      : absl::StrCat("Authorization: Bearer ", token, "\r\n"));
  }

  MetricsPages pages_;
  std::vector<std::string> asked_from_;
};

TEST_F(GuardedServerTest, MetricsMayBeForMore) {
  pages_.admit_scrape = [](const std::string& authorization,
                           const std::string&) {
    return authorization == "Bearer scraper" ? absl::OkStatus()
                                             : absl::UnauthenticatedError("");
  };
  EXPECT_THAT(Ask("/metrics", "scraper"),
              HasSubstr("\naggserver_rounds_total"));
  for (const char* path : {"/", "/status.json", "/trace.json"}) {
    EXPECT_TRUE(absl::StartsWith(Ask(path, "scraper"), "HTTP/1.1 401 "));
  }
}

TEST_F(MetricsServerTest, AnswersToItsOwnNamesAlone) {
  std::vector<std::string> asked;
  MetricsPages pages;
  pages.status_json = [](uint64_t) { return std::string("{\"a\":1}"); };
  pages.admit_host = [&](const std::string& host, const std::string&) {
    asked.push_back(host);
    return host == "good:1" ? absl::OkStatus()
                            : absl::PermissionDeniedError("Host is another's");
  };
  const auto server =
      MetricsServer::Start("127.0.0.1", 0, metrics_, std::move(pages));
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ask = [&](absl::string_view path, absl::string_view hosts) {
    HttpClient client((*server)->port());
    client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\n", hosts, "\r\n"));
    return client.ReadAll();
  };
  for (const char* path : {"/", "/status.json", "/metrics", "/readyz"}) {
    const std::string refused = ask(path, "Host: evil.example\r\n");
    EXPECT_TRUE(absl::StartsWith(refused, "HTTP/1.1 421 ")) << refused;
    EXPECT_THAT(refused, HasSubstr("Host is another's"));
    EXPECT_THAT(refused, Not(HasSubstr("{\"a\"")));
  }
  EXPECT_THAT(ask("/status.json", "Host: good:1\r\n"), HasSubstr("{\"a\":1}"));
  // Two of them are none.
  ask("/", "Host: good:1\r\nHost: good:1\r\n");
  EXPECT_EQ(asked.back(), "?");
}

TEST_F(GuardedServerTest, PagesAreForThoseWhoMay) {
  for (const char* path :
       {"/", "/metrics", "/status.json", "/trace.json", "/none"}) {
    for (const char* token : {"", "bad"}) {
      const std::string refused = Ask(path, token);
      EXPECT_TRUE(absl::StartsWith(refused, "HTTP/1.1 401 ")) << refused;
      EXPECT_THAT(refused, HasSubstr("\r\nWWW-Authenticate: Bearer realm="));
      EXPECT_THAT(refused, HasSubstr("\r\nWWW-Authenticate: Basic realm="));
      EXPECT_THAT(refused, Not(HasSubstr("aggserver_")));
      EXPECT_THAT(refused, Not(HasSubstr("{\"a\"")));
    }
    EXPECT_TRUE(absl::StartsWith(Ask(path, "worker"), "HTTP/1.1 403 "));
  }
  EXPECT_THAT(Ask("/metrics", "good"), HasSubstr("\naggserver_rounds_total"));
  EXPECT_THAT(Ask("/", "good"), HasSubstr("</html>"));
  EXPECT_THAT(Ask("/none", "good"), HasSubstr(" 404 "));
  EXPECT_THAT(asked_from_[0], HasSubstr("ipv4:127.0.0.1:"));
}

TEST_F(GuardedServerTest, HealthIsForEverybodyInOneWord) {
  EXPECT_THAT(Ask("/healthz", ""), HasSubstr("\r\n\r\nok\n"));
  const std::string answer = Ask("/readyz", "");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 503 ")) << answer;
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nno\n"));
  EXPECT_TRUE(asked_from_.empty());
  EXPECT_THAT(Ask("/readyz", "good"), HasSubstr("tensor a is bad"));
  EXPECT_THAT(Ask("/readyz", "bad"), HasSubstr(" 401 "));
  pages_.open_health = false;
  EXPECT_THAT(Ask("/healthz", ""), HasSubstr(" 401 "));
  EXPECT_THAT(Ask("/readyz", ""), HasSubstr(" 401 "));
  EXPECT_THAT(Ask("/healthz", "good"), HasSubstr("\r\n\r\nok\n"));
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
              HasSubstr(absl::StrCat("127.0.0.1:", (*first)->port(),
                                     ": Address already in use")));
}

TEST_F(MetricsServerTest, AnAddressOfAnotherMachineIsNamed) {
  // TEST-NET-1 (RFC 5737): no machine has it.
  const auto server = Start("192.0.2.1", 0);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("192.0.2.1:0: Cannot assign"));
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
