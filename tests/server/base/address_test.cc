#include "server/base/address.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(AddressTest, GoodOnesRoundTrip) {
  for (const char* text : {"localhost:1", "127.0.0.1:50051", "[::1]:65535",
                           "agg-0.agg.default.svc.cluster.local:50051"}) {
    const absl::StatusOr<Address> address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(FormatAddress(*address), text);
  }
  EXPECT_EQ(ParseAddress("[::1]:5")->host, "::1");
}

TEST(AddressTest, BadOnes) {
  for (const char* text :
       {"", ":", "host", "host:", ":1", "host:0", "host:65536", "host:1x",
        "host:-1", "host: 1", "::1:5", "[::1]", "[x]:1", "[]:1", "ho st:1",
        "http://host:1", "host:99999999999999999999"}) {
    EXPECT_EQ(ParseAddress(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(AddressTest, HostsWithoutPort) {
  for (const char* text :
       {"localhost", "127.0.0.1", "::", "::1", "agg-0.agg.agg-server.svc"}) {
    const absl::StatusOr<std::string> host = ParseHost(text);
    ASSERT_TRUE(host.ok()) << host.status();
    EXPECT_EQ(*host, text);
  }
  EXPECT_EQ(*ParseHost("[::1]"), "::1");
  for (const char* text : {"", "[", "[]", "[::1", "::1]", "[localhost]", "a/b",
                           "127.0.0.1,0.0.0.0", "127.0.0.1 ", "+"}) {
    EXPECT_EQ(ParseHost(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(AddressTest, Loopback) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host :
       {"0.0.0.0", "10.0.0.1", "::", "localhost.org", "127.", "127.example.org",
        "127.0.0.1.example.org", "127.0.0.256", "128.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace agg
