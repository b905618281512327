// The HTTP server with TLS, asked by cpp-httplib's client and by one that is
// rude.
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "server/base/clock.h"
#include "server/status/http_server.h"
#include "server/tls/tls_reload.h"
#include "server/tls/tls_session.h"
#include "tests/server/status/http_get.h"
#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
