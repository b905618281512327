#include "server/status/http_server.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "tests/server/status/http_get.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    auto server = HttpServer::Start("127.0.0.1", 0, [](const HttpRequest& r) {
      HttpResponse response;
      response.body = absl::StrCat("path ", r.path, " after ", r.after, "\n",
                                   std::string(1000, 'x'));
      response.content_security_policy = "default-src 'none'";
      return response;
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  int port() const { return server_->port(); }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndCloses) {
  const std::string answer = Get(port(), "/a?after=17");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer,
              HasSubstr("\r\nContent-Security-Policy: default-src 'none'\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\npath /a after 17\n"));
  for (const char* query : {"", "?after=", "?after=x", "?after=-1",
                            "?after=99999999999999999999999", "?before=3"}) {
    EXPECT_THAT(Get(port(), absl::StrCat("/a", query)),
                HasSubstr("path /a after 0\n"))
        << query;
  }
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  const std::string answer = Ask(port(), "HEAD", "/a");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n")) << answer;
  EXPECT_THAT(answer, HasSubstr("Content-Length: 1016\r\n"));
}

TEST_F(HttpServerTest, OtherMethodsAreRefusedUnread) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    // The body that is announced is never waited for.
    const std::string answer =
        Ask(port(), method, "/a", "Content-Length: 1000000000\r\n");
    EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 405 ")) << answer;
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("path")));
  }
}

TEST_F(HttpServerTest, RangesAreIgnored) {
  const std::string answer =
      Ask(port(), "GET", "/a", "Range: bytes=0-,0-,0-,0-,0-\r\n");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_LT(answer.size(), 2000u);
}

TEST_F(HttpServerTest, GarbageIsRefused) {
  for (const std::string& bytes :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\r\n\r\n", 10)}) {
    HttpClient client(port());
    client.Send(bytes);
    EXPECT_THAT(client.ReadAll(), Not(HasSubstr("200 OK"))) << bytes;
  }
  EXPECT_THAT(Get(port(), "/a"), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, ARequestHasALimit) {
  // One header after another, forever: more than is ever read.
  HttpClient client(port());
  ASSERT_TRUE(client.Send("GET /a HTTP/1.1\r\n"));
  const std::string header = "X-Header: " + std::string(100, 'x') + "\r\n";
  bool taken = true;
  for (int i = 0; taken && i < 1000000; ++i) taken = client.Send(header);
  EXPECT_FALSE(taken);  // the server has hung up
  EXPECT_THAT(Get(port(), "/a"), HasSubstr("200 OK"));
}

// Time stands still: no limit of theirs is ever reached.
TEST(SilentConnectionsTest, KeepNobodyWaiting) {
  const FakeClock clock;
  auto server = HttpServer::Start(
      "127.0.0.1", 0, [](const HttpRequest&) { return HttpResponse(); },
      &clock);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<HttpClient>((*server)->port()));
    ASSERT_TRUE(clients.back()->connected());
    if (i % 2 == 0) clients.back()->Send("GET /a HT");
    if (i % 10 != 9) continue;
    EXPECT_THAT(Get((*server)->port(), "/healthz"), HasSubstr("200 OK")) << i;
  }
}

TEST_F(HttpServerTest, StopsAtOnceWithSilentConnections) {
  // More than there are threads, some in the middle of a request.
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port()));
    ASSERT_TRUE(clients.back()->connected());
    if (i % 2 == 0) clients.back()->Send("GET /a HT");
  }
  const int old_port = port();
  const absl::Time start = absl::Now();
  server_ = nullptr;
  // Their time would be up after five seconds; it takes milliseconds.
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_FALSE(HttpClient(old_port).connected());
}

TEST_F(HttpServerTest, MayStopBeforeItHasRun) {
  for (int i = 0; i < 20; ++i) {
    auto server = HttpServer::Start(
        "127.0.0.1", 0, [](const HttpRequest&) { return HttpResponse(); });
    ASSERT_TRUE(server.ok()) << server.status();
  }
}

}  // namespace
}  // namespace agg
