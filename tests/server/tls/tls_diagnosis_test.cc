// What whole jobs cannot show (tests/e2e/tls_test.cc): a server whose
// certificate is bad, one that says nothing, and gRPC's own words.
#include "server/tls/tls_diagnosis.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/agg.grpc.pb.h"
#include "server/base/file_descriptor.h"
#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Answers with `files`, whatever is wrong with them.
class TlsServer {
 public:
  explicit TlsServer(const TlsFiles& files, bool ask = false) {
    grpc::SslServerCredentialsOptions options(
        ask ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
            : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    options.pem_root_certs = TextOf(files.ca);
    options.pem_key_cert_pairs.push_back(
        {TextOf(files.key), TextOf(files.certificate)});
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options),
                             &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  v1::Coordinator::Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Takes connections, and says nothing on them.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const raw = reinterpret_cast<sockaddr*>(&any);
    socklen_t size = sizeof(any);
    EXPECT_EQ(bind(socket_.get(), raw, size), 0);
    EXPECT_EQ(getsockname(socket_.get(), raw, &size), 0);
    port_ = ntohs(any.sin_port);
  }
  void Listen() { EXPECT_EQ(listen(socket_.get(), 8), 0); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const FileDescriptor socket_;
  int port_ = 0;
};

class TlsDiagnosisTest : public testing::Test {
 protected:
  TlsDiagnosisTest() { ca_.Issue("one"); }

  static std::string Diagnose(const std::string& address,
                              const TlsOptions& tls) {
    TlsTarget target = {address, "127.0.0.1", tls};
    target.limit = absl::Seconds(30);  // nobody waits for it but one test
    return DiagnoseTls(target);
  }

  TestCa ca_;
};

TEST_F(TlsDiagnosisTest, NothingIsWrong) {
  const TlsServer open(ca_.files("one"));
  EXPECT_EQ(Diagnose(open.address(), ca_.options("")), "");
  const TlsServer asking(ca_.files("one"), /*ask=*/true);
  EXPECT_EQ(Diagnose(asking.address(), ca_.options("one")), "");
}

TEST_F(TlsDiagnosisTest, TheServersCertificateHasExpired) {
  TestRequest old;
  old.to = absl::FromCivil(absl::CivilDay(2020, 5, 17), absl::UTCTimeZone());
  old.from = old.to - absl::Hours(1);
  ca_.Issue("old", old);
  const TlsServer server(ca_.files("old"));
  EXPECT_THAT(Diagnose(server.address(), ca_.options("")),
              HasSubstr("the certificate of " + server.address() +
                        " expired on 2020-05-17 00:00:00 UTC"));
}

TEST_F(TlsDiagnosisTest, TheServersCertificateIsNotValidYet) {
  TestRequest early;
  early.from = absl::Now() + absl::Hours(1);
  early.to = absl::Now() + absl::Hours(2);
  ca_.Issue("early", early);
  const TlsServer server(ca_.files("early"));
  EXPECT_THAT(Diagnose(server.address(), ca_.options("")),
              AllOf(HasSubstr(server.address() + " is valid from "),
                    HasSubstr("clocks")));
}

// A server may name any number of CAs, and a line of a log is for people.
TEST_F(TlsDiagnosisTest, AFewOfTheServersCasAreNamed) {
  std::string many = TextOf(ca_.ca());
  for (int i = 0; i < 20; ++i) {
    many += TextOf(TestCa(absl::StrCat("CA ", i)).ca());
  }
  ca_.Write("many.pem", many);
  TlsFiles files = ca_.files("one");
  files.ca = ca_.path("many.pem");
  const TlsServer server(files, /*ask=*/true);
  TestCa stranger("a stranger");
  stranger.Issue("one");
  TlsOptions tls = stranger.options("one");
  tls.ca = ca_.ca();
  const std::string text = Diagnose(server.address(), tls);
  EXPECT_THAT(text, AllOf(HasSubstr("refuses the certificate"),
                          HasSubstr("it takes those signed by \"CN = test CA"),
                          HasSubstr(" and 17 more")));
  EXPECT_LT(text.size(), 1000u);
}

// A CA that was made anew, with the same name.
TEST_F(TlsDiagnosisTest, TheNameOfTheCaAndAnotherKey) {
  TestCa again;
  const TlsServer server(ca_.files("one"));
  EXPECT_THAT(Diagnose(server.address(), again.options("")),
              HasSubstr("is not signed by a CA of " + again.ca()));
}

TEST_F(TlsDiagnosisTest, ItsOwnFilesComeFirst) {
  TlsOptions tls = ca_.options("one");
  tls.key = ca_.path("none.key");
  EXPECT_THAT(Diagnose("127.0.0.1:1", tls),
              HasSubstr("tls.key is \"" + tls.key));
}

TEST_F(TlsDiagnosisTest, NobodyListens) {
  const SilentServer server;
  EXPECT_EQ(Diagnose(server.address(), ca_.options("")), "");
  EXPECT_EQ(Diagnose("no address", ca_.options("")), "");
}

TEST_F(TlsDiagnosisTest, AServerThatSaysNothingIsNotWaitedForForEver) {
  SilentServer server;
  server.Listen();
  TlsTarget target = {server.address(), "127.0.0.1", ca_.options("")};
  target.limit = absl::Milliseconds(1);
  EXPECT_EQ(DiagnoseTls(target), "");
}

TEST_F(TlsDiagnosisTest, OnlyForWhatIsNoConnection) {
  const TlsServer server(ca_.files("one"));
  const TlsTarget target = {server.address(), "127.0.0.1", TlsOptions()};
  EXPECT_THAT(WhyNotConnected("failed to connect to all addresses", target),
              HasSubstr("speaks TLS"));
  EXPECT_EQ(WhyNotConnected("the job has finished", target), "");
}

}  // namespace
}  // namespace agg
