#include "server/status/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>  // NOLINT
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "server/base/clock.h"
#include "server/tls/tls_reload.h"
#include "server/tls/tls_session.h"
#include "tests/server/status/http_get.h"
#include "tests/server/tls/test_certificates.h"

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

// What scanners of web servers ask for.
TEST_F(HttpServerTest, EveryAnswerHasTheHeaders) {
  const auto plain = HttpServer::Start("127.0.0.1", 0, [](const HttpRequest&) {
    HttpResponse response;
    response.status = 401;
    response.authenticate = {"Bearer", "Basic"};
    return response;
  });
  ASSERT_TRUE(plain.ok()) << plain.status();
  const std::string refused = Get((*plain)->port(), "/");
  EXPECT_THAT(
      refused,
      HasSubstr("\r\nWWW-Authenticate: Bearer\r\nWWW-Authenticate: Basic\r\n"));
  HttpClient garbage(port());
  garbage.Send("GET / HTTP/9.9\r\n\r\n");
  for (const std::string& answer :
       {refused, Get(port(), "/a"), Ask(port(), "POST", "/a"),
        garbage.ReadAll()}) {
    for (const char* header :
         {"Cache-Control: no-store", "X-Content-Type-Options: nosniff",
          "X-Frame-Options: DENY", "Referrer-Policy: no-referrer",
          "Cross-Origin-Resource-Policy: same-origin",
          "Content-Security-Policy: default-src 'none'"}) {
      EXPECT_THAT(answer, HasSubstr(absl::StrCat("\r\n", header)));
    }
    EXPECT_THAT(answer, Not(HasSubstr("\r\nServer:")));
    EXPECT_THAT(answer, Not(HasSubstr("Strict-Transport-Security")));
    const size_t policy = answer.find("Content-Security-Policy");
    EXPECT_EQ(answer.find("Content-Security-Policy", policy + 1),
              std::string::npos);
  }
}

TEST_F(HttpServerTest, AHandlerSeesWhoAsks) {
  const auto server =
      HttpServer::Start("127.0.0.1", 0, [](const HttpRequest& r) {
        HttpResponse response;
        response.body = absl::StrCat(r.from, " with '", r.authorization, "'");
        return response;
      });
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string answer =
      Ask((*server)->port(), "GET", "/", "Authorization: Bearer abc\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nipv4:127.0.0.1:"));
  EXPECT_THAT(answer, HasSubstr(" with 'Bearer abc'"));
  // Of two none is taken: one who looks at the other would see another caller.
  EXPECT_THAT(Ask((*server)->port(), "GET", "/",
                  "Authorization: Bearer abc\r\nAuthorization: Bearer d\r\n"),
              HasSubstr(" with ''"));
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

// One page, larger than any socket's buffers, and clients that are slow.
class SlowClientsTest : public ::testing::Test {
 protected:
  void Start(const HttpLimits& limits) {
    auto server = HttpServer::Start(
        "127.0.0.1", 0,
        [](const HttpRequest&) {
          HttpResponse response;
          response.body.assign(size_t{100} << 20, 'x');
          return response;
        },
        limits);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void Connect(const std::string& bytes) {
    clients_.push_back(std::make_unique<HttpClient>(server_->port()));
    ASSERT_TRUE(clients_.back()->connected());
    clients_.back()->Send(bytes);
  }

  std::unique_ptr<HttpServer> server_;
  std::vector<std::unique_ptr<HttpClient>> clients_;
};

// No limit of theirs is ever reached: a stop that waited for one would hang.
HttpLimits Patient() {
  HttpLimits limits;
  limits.threads = 2;
  limits.request = limits.answer = limits.patience = absl::Hours(1);
  return limits;
}

TEST_F(SlowClientsTest, DoNotHoldUpTheEnd) {
  Start(Patient());
  // More than are served: the rest waits in the kernel.
  for (int i = 0; i < 12; ++i) Connect(i % 2 == 0 ? "GET /a HT" : "");
  const int port = server_->port();
  server_ = nullptr;
  for (const auto& client : clients_) EXPECT_EQ(client->ReadAll(), "");
  EXPECT_FALSE(HttpClient(port).connected());
}

// Files of this process that are connections to its `port`, at the server's
// end.
int AcceptedAt(int port) {
  int accepted = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    int fd;
    sockaddr_in here = {}, there = {};
    socklen_t size = sizeof(here), peer_size = sizeof(there);
    if (absl::SimpleAtoi(entry.path().filename().string(), &fd) &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) == 0 &&
        getpeername(fd, reinterpret_cast<sockaddr*>(&there), &peer_size) == 0 &&
        here.sin_family == AF_INET && ntohs(here.sin_port) == port) {
      ++accepted;
    }
  }
  return accepted;
}

TEST_F(SlowClientsTest, WaitInTheKernelBeyondTheLimit) {
  const HttpLimits limits = Patient();
  Start(limits);
  // And one that the thread which accepts has in its hand.
  const int most = limits.threads + 1;
  for (int i = 0; i < 12; ++i) Connect("");
  while (AcceptedAt(server_->port()) < most) std::this_thread::yield();
  // Time for one that would take more.
  for (int i = 0; i < 30; ++i) Connect("");
  EXPECT_EQ(AcceptedAt(server_->port()), most);
  server_ = nullptr;
}

// What a scan of ports leaves open, and what a broken client does.
TEST_F(SlowClientsTest, GiveWayToWhoSendsARequest) {
  HttpLimits limits = Patient();
  limits.patience = absl::ZeroDuration();
  Start(limits);
  for (const int number : {60, 600}) {
    for (int i = 0; i < number; ++i) Connect(i % 2 == 0 ? "" : "GET /a HT");
    HttpClient scraper(server_->port());
    scraper.Send("GET /metrics HTTP/1.1\r\n\r\n");
    EXPECT_EQ(scraper.Read(15), "HTTP/1.1 200 OK") << number;
  }
  // The oldest ones had to go first.
  EXPECT_EQ(clients_[0]->ReadAll(), "");
}

TEST_F(SlowClientsTest, DoNotCutOffAnAnswer) {
  HttpLimits limits = Patient();
  limits.patience = absl::ZeroDuration();
  Start(limits);
  for (int i = 0; i < limits.threads; ++i) {
    Connect("GET / HTTP/1.1\r\n\r\n");
    // From here on its thread waits for the client, or soon will.
    EXPECT_EQ(clients_.back()->Read(9), "HTTP/1.1 ");
  }
  for (int i = 0; i < 30; ++i) Connect("");
  EXPECT_GE(clients_[0]->ReadAll().size(), size_t{100} << 20);
}

TEST(AnswerTest, WhatIsSentIsTold) {
  std::atomic<int> num_sent{0};
  auto server =
      HttpServer::Start("127.0.0.1", 0, [&](const HttpRequest& request) {
        HttpResponse response;
        if (request.path == "/a") response.sent = [&] { ++num_sent; };
        if (request.path == "/large") {
          response.body.assign(size_t{100} << 20, 'x');
          response.sent = [&] { num_sent += 1000; };
        }
        return response;
      });
  ASSERT_TRUE(server.ok()) << server.status();
  // The connection ends after the call.
  EXPECT_THAT(Get((*server)->port(), "/a"), HasSubstr("200 OK"));
  EXPECT_EQ(num_sent, 1);
  EXPECT_THAT(Get((*server)->port(), "/b"), HasSubstr("200 OK"));
  EXPECT_EQ(num_sent, 1);
  {
    HttpClient leaves((*server)->port());
    leaves.Send("GET /large HTTP/1.1\r\n\r\n");
    EXPECT_EQ(leaves.Read(9), "HTTP/1.1 ");
  }
  server->reset();
  EXPECT_EQ(num_sent, 1);
}

TEST_F(SlowClientsTest, MayLeaveAnAnswerWhenTheServerEnds) {
  Start(Patient());
  Connect("GET / HTTP/1.1\r\n\r\n");
  // From here on its thread waits for the client, or soon will.
  EXPECT_EQ(clients_[0]->Read(9), "HTTP/1.1 ");
  server_ = nullptr;
  EXPECT_LT(clients_[0]->ReadAll().size(), size_t{100} << 20);
}

TEST_F(SlowClientsTest, GiveWayWhenTheirTimeIsUp) {
  HttpLimits limits = Patient();
  limits.request = limits.answer = absl::Milliseconds(1);
  Start(limits);
  for (int i = 0; i < 50; ++i) Connect(i % 2 == 0 ? "GET /a HT" : "");
  for (const auto& client : clients_) EXPECT_EQ(client->ReadAll(), "");
}

TEST_F(SlowClientsTest, LoseAnAnswerThatTheyDoNotTake) {
  HttpLimits limits = Patient();
  limits.answer = absl::Milliseconds(1);
  Start(limits);
  Connect("GET / HTTP/1.1\r\n\r\n");
  EXPECT_LT(clients_[0]->ReadAll().size(), size_t{100} << 20);
}

// A socket that is closed with unread bytes drops what it has yet to send.
TEST_F(HttpServerTest, BytesBeyondARequestDoNotCutItsAnswerOff) {
  HttpClient client(port());
  ASSERT_TRUE(client.Send("GET /a HTTP/1.1\r\n\r\n" + std::string(8000, 'x')));
  EXPECT_TRUE(absl::EndsWith(client.ReadAll(), std::string(1000, 'x')));
}

TEST_F(HttpServerTest, ARequestMayComeInPieces) {
  HttpClient client(port());
  for (const char* piece : {"GET /a HT", "TP/1.1\r\nHost: a\r\n\r", "\n"}) {
    ASSERT_TRUE(client.Send(piece));
  }
  EXPECT_THAT(client.ReadAll(), HasSubstr("path /a after 0\n"));
}

TEST_F(HttpServerTest, AnAddressThatCannotBeBoundHasAReason) {
  const auto start = [](const std::string& host, int port) {
    return std::string(
        HttpServer::Start(host, port,
                          [](const HttpRequest&) { return HttpResponse(); })
            .status()
            .message());
  };
  EXPECT_EQ(start("127.0.0.1", port()), "Address already in use");
  // TEST-NET-1 (RFC 5737): no machine has it.
  EXPECT_EQ(start("192.0.2.1", 0), "Cannot assign requested address");
  EXPECT_EQ(start("name with spaces", 0), "the host name has no address here");
}

TEST_F(HttpServerTest, MayStopBeforeItHasRun) {
  for (int i = 0; i < 20; ++i) {
    auto server = HttpServer::Start(
        "127.0.0.1", 0, [](const HttpRequest&) { return HttpResponse(); });
    ASSERT_TRUE(server.ok()) << server.status();
  }
}

// The HTTP server with TLS, asked by cpp-httplib's client and by one that is
// rude.

class HttpTlsTest : public ::testing::Test {
 protected:
  HttpTlsTest() : clock_(absl::Now()) {
    ca_.Issue("web");
    TlsFiles files = ca_.files("web");
    files.ca = "";
    reload_ = std::make_unique<TlsReload>(files, absl::Seconds(60), &clock_);
    EXPECT_TRUE(reload_->Open().ok());
    acceptor_ = *TlsAcceptor::Make(reload_.get());
    HttpTransport transport;
    transport.tls = acceptor_.get();
    transport.strict = true;
    Start(HttpLimits(), transport);
  }

  void Start(const HttpLimits& limits, const HttpTransport& transport) {
    auto server = HttpServer::Start(
        "127.0.0.1", 0,
        [](const HttpRequest& r) {
          HttpResponse response;
          response.body = r.path == "/large"
                              ? std::string(5 << 20, 'x')
                              : absl::StrCat(r.path, " for ", r.authorization);
          return response;
        },
        limits, transport);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  httplib::Result Get(const std::string& path,
                      const httplib::Headers& headers = {}) {
    httplib::SSLClient client("localhost", server_->port());
    client.set_ca_cert_path(ca_.ca().c_str());
    client.enable_server_certificate_verification(true);
    client.set_read_timeout(120);
    return client.Get(path, headers);
  }

  TestCa ca_;
  FakeClock clock_;
  std::unique_ptr<TlsReload> reload_;
  std::unique_ptr<TlsAcceptor> acceptor_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, AnswersWhoTrustsItsCa) {
  const httplib::Result answer =
      Get("/a", {{"Authorization", "Bearer 0123456789abcdef"}});
  ASSERT_TRUE(answer) << httplib::to_string(answer.error());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "/a for Bearer 0123456789abcdef");
  EXPECT_FALSE(answer->has_header("Server"));
  // Other programs' ports are on localhost, too.
  EXPECT_FALSE(answer->has_header("Strict-Transport-Security"));
  EXPECT_EQ(Get("/a", {{"Host", "shard-0.example"}})
                ->get_header_value("Strict-Transport-Security"),
            "max-age=31536000");
  const TestCa other("another CA");
  httplib::SSLClient stranger("localhost", server_->port());
  stranger.set_ca_cert_path(other.ca().c_str());
  stranger.enable_server_certificate_verification(true);
  EXPECT_FALSE(stranger.Get("/a"));
}

TEST_F(HttpTlsTest, ALargeAnswerComesWhole) {
  const httplib::Result answer = Get("/large");
  ASSERT_TRUE(answer) << httplib::to_string(answer.error());
  EXPECT_EQ(answer->body, std::string(5 << 20, 'x'));
}

TEST_F(HttpTlsTest, PlainHttpGetsNothing) {
  EXPECT_THAT(agg::Get(server_->port(), "/a"), Not(HasSubstr("/a for")));
  EXPECT_TRUE(Get("/a"));
}

TEST_F(HttpTlsTest, NewFilesAndDamagedOnesEndNoService) {
  ca_.Issue("web");
  clock_.Advance(absl::Seconds(60));
  EXPECT_TRUE(Get("/a"));
  // A file that is damaged meanwhile changes nothing.
  ca_.Write("web.pem", "no certificate");
  clock_.Advance(absl::Seconds(60));
  EXPECT_TRUE(Get("/a"));
}

TEST_F(HttpTlsTest, WhoShakesNoHandsIsSentAway) {
  HttpTransport transport;
  transport.tls = acceptor_.get();
  HttpLimits limits;
  limits.request = absl::Milliseconds(1);
  Start(limits, transport);
  for (const char* bytes : {"", "\x16", "\x16\x03\x01\x02"}) {
    HttpClient client(server_->port());
    client.Send(bytes);
    EXPECT_EQ(client.ReadAll(), "");
  }
}

// As without TLS: SlowClientsTest.GiveWayToWhoSendsARequest.
TEST_F(HttpTlsTest, WhoShakesNoHandsGivesWay) {
  HttpTransport transport;
  transport.tls = acceptor_.get();
  HttpLimits limits;
  limits.threads = 2;
  limits.request = absl::Hours(1);
  limits.patience = absl::ZeroDuration();
  Start(limits, transport);
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < 60; ++i) {
    silent.push_back(std::make_unique<HttpClient>(server_->port()));
    silent.back()->Send(i % 2 == 0 ? "" : "\x16\x03\x01\x02");
  }
  const httplib::Result answer = Get("/a");
  ASSERT_TRUE(answer) << httplib::to_string(answer.error());
  EXPECT_EQ(answer->status, 200);
}

TEST_F(HttpTlsTest, BytesWithoutEndAreNotRead) {
  HttpClient client(server_->port());
  // Handshake records of one zero each: OpenSSL waits for a complete message.
  const std::string record("\x16\x03\x01\x00\x01\x01", 6);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += record;
  bool taken = true;
  for (int i = 0; taken && i < 100000; ++i) taken = client.Send(many);
  EXPECT_FALSE(taken);
  EXPECT_TRUE(Get("/a"));
}

}  // namespace
}  // namespace agg
