#include "server/http_rules.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = HttpSettings::Tensors;

SecuritySettings Tls() {
  SecuritySettings security;
  security.files.certificate = "c";
  return security;
}

TEST(HttpRulesTest, LoopbackByDefault) {
  EXPECT_EQ(RulesOfHttp({}, "", "0.0.0.0").bind, "127.0.0.1");
  EXPECT_EQ(RulesOfHttp({}, "", "::1").bind, "::1");
  EXPECT_EQ(RulesOfHttp({}, "10.0.0.1", "127.0.0.1").bind, "10.0.0.1");
}

// A page of another site has its own name point here.
TEST(HttpRulesTest, OtherNamesAreRefused) {
  SecuritySettings security;
  security.http.hosts = {"Monitoring.example"};
  const std::vector<std::string> names =
      HostsOf(security, "bound.example", {"shard-0.job:1", "10.0.0.1:2"}, "me");
  for (const char* good :
       {"", "127.0.0.1:9464", "10.1.2.3", "[::1]:80", "[fe80::1]",
        "localhost:9464", "LOCALHOST", "a.localhost:1", "shard-0.job:9464",
        "SHARD-0.JOB", "me:1", "me.", "bound.example:1",
        "monitoring.EXAMPLE:443"}) {
    EXPECT_EQ(CheckHostHeader(good, names), absl::OkStatus()) << good;
  }
  for (const char* bad :
       {"evil.example", "evil.example:9464", "127.0.0.1.evil.example",
        "localhost.evil.example:1", "notlocalhost", "shard-0.job.evil", "?",
        ":80", "1", "0x7f000001:1", "[::1", "evil\xe2\x80\xae"}) {
    const absl::Status status = CheckHostHeader(bad, names);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << bad;
  }
  EXPECT_EQ(std::string(CheckHostHeader("a\xe2\x80\xae", names).message()),
            "Host is \"a\\u202e\"; allowed: an address, localhost, the names "
            "of the job's shards, and those of security.http.hosts");
  EXPECT_EQ(CheckHostHeader("evil.example", {"*"}), absl::OkStatus());
}

// One configuration is for all shards.
TEST(HttpRulesTest, ShardsOfOneHostHaveAPortEach) {
  const std::vector<std::string> local = {"127.0.0.1:1", "localhost:2",
                                          "[::1]:3"};
  EXPECT_EQ(HttpPort(9464, local, 0), 9464);
  EXPECT_EQ(HttpPort(9464, local, 1), 9465);
  EXPECT_EQ(HttpPort(9464, local, 2), 9466);
  const std::vector<std::string> hosts = {"a:1", "b:1", "a:2", "c:1", "b:2"};
  EXPECT_EQ(HttpPort(80, hosts, 1), 80);
  EXPECT_EQ(HttpPort(80, hosts, 2), 81);
  EXPECT_EQ(HttpPort(80, hosts, 3), 80);
  EXPECT_EQ(HttpPort(80, hosts, 4), 81);
}

TEST(HttpRulesTest, BeyondLoopbackItTakesTlsOrThatItIsMeant) {
  SecuritySettings security;
  EXPECT_TRUE(CheckHttp(RulesOfHttp(security, "", ""), security).ok());
  const HttpRules open = RulesOfHttp(security, "0.0.0.0", "127.0.0.1");
  EXPECT_TRUE(open.insecure);
  const absl::Status refused = CheckHttp(open, security);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("metrics.bind is \"0.0.0.0\"; allowed: loopback"),
                    HasSubstr("http { insecure: true }")));
  security.http.insecure = true;
  EXPECT_TRUE(CheckHttp(open, security).ok());
  const SecuritySettings tls = Tls();
  const HttpRules safe = RulesOfHttp(tls, "0.0.0.0", "0.0.0.0");
  EXPECT_TRUE(safe.tls);
  EXPECT_FALSE(safe.insecure);
  EXPECT_TRUE(CheckHttp(safe, tls).ok());
}

TEST(HttpRulesTest, TlsIsWhereGrpcHasIt) {
  SecuritySettings security = Tls();
  EXPECT_TRUE(RulesOfHttp(security, "", "").tls);
  security.http.insecure = true;
  const HttpRules plain = RulesOfHttp(security, "10.0.0.1", "10.0.0.1");
  EXPECT_FALSE(plain.tls);
  EXPECT_TRUE(plain.insecure);
}

// "localhost" is the name of other programs, too, which have no TLS.
TEST(HttpRulesTest, BrowsersAreBoundToTlsBeyondLoopbackAlone) {
  EXPECT_TRUE(RulesOfHttp(Tls(), "0.0.0.0", "").strict);
  EXPECT_FALSE(RulesOfHttp(Tls(), "", "").strict);
  EXPECT_FALSE(RulesOfHttp({}, "0.0.0.0", "").strict);
}

TEST(HttpRulesTest, NamesOfTensorsAreForThisHostAndForThoseWhoAreKnown) {
  SecuritySettings security = Tls();
  EXPECT_TRUE(RulesOfHttp(security, "", "").shows_tensors);
  EXPECT_FALSE(RulesOfHttp(security, "0.0.0.0", "").shows_tensors);
  security.http.asks = true;
  EXPECT_TRUE(RulesOfHttp(security, "0.0.0.0", "").shows_tensors);
  security.http.tensors = Tensors::kHidden;
  EXPECT_FALSE(RulesOfHttp(security, "", "").shows_tensors);
  security.http = HttpSettings();
  security.http.tensors = Tensors::kShown;
  EXPECT_TRUE(RulesOfHttp(security, "0.0.0.0", "").shows_tensors);
}

TEST(HttpRulesTest, TheLogSaysIt) {
  testing::internal::CaptureStderr();
  WarnAboutHttp(RulesOfHttp({}, "", ""));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  WarnAboutHttp(RulesOfHttp({}, "0.0.0.0", ""));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("insecure: metrics and status page"),
                    HasSubstr("for everybody who reaches them")));
}

}  // namespace
}  // namespace agg
