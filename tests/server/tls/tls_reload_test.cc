#include "server/tls/tls_reload.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

class TlsReloadTest : public testing::Test {
 protected:
  TlsReloadTest() : clock_(absl::Now()) { ca_.Issue("one"); }

  // Of a reader of its own, from whom nothing is hidden.
  TlsContents Current() {
    uint64_t seen = 0;
    return *reload_.Next(&seen);
  }

  TestCa ca_;
  FakeClock clock_;
  TlsReload reload_{ca_.files("one"), absl::Seconds(60), &clock_};
};

TEST_F(TlsReloadTest, OpenSaysWhatIsWrong) {
  TlsReload other(ca_.files("none"), absl::Seconds(60), &clock_);
  EXPECT_TRUE(absl::IsInvalidArgument(other.Open()));
}

TEST_F(TlsReloadTest, EachReaderGetsTheContentsOnce) {
  ASSERT_TRUE(reload_.Open().ok());
  uint64_t first = 0, second = 0;
  EXPECT_TRUE(reload_.Next(&first).has_value());
  EXPECT_FALSE(reload_.Next(&first).has_value());
  EXPECT_TRUE(reload_.Next(&second).has_value());
}

TEST_F(TlsReloadTest, NewFilesComeAfterTheInterval) {
  ASSERT_TRUE(reload_.Open().ok());
  uint64_t seen = 0;
  const TlsContents before = *reload_.Next(&seen);
  ca_.Issue("one");
  clock_.Advance(absl::Seconds(59));
  EXPECT_FALSE(reload_.Next(&seen).has_value());
  clock_.Advance(absl::Seconds(1));
  const auto after = reload_.Next(&seen);
  ASSERT_TRUE(after.has_value());
  EXPECT_FALSE(*after == before);
  clock_.Advance(absl::Seconds(60));
  EXPECT_FALSE(reload_.Next(&seen).has_value());
}

// A key that is replaced before its certificate, a file that is gone: what was
// good stays, until all of it is good again.
TEST_F(TlsReloadTest, FilesThatDoNotGoTogetherAreNotTaken) {
  ASSERT_TRUE(reload_.Open().ok());
  uint64_t seen = 0;
  const TlsContents before = *reload_.Next(&seen);
  ca_.Write("one.key", "no key");
  clock_.Advance(absl::Minutes(1));
  EXPECT_FALSE(reload_.Next(&seen).has_value());
  EXPECT_TRUE(Current() == before);
  ca_.Issue("one");
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(reload_.Next(&seen).has_value());
  EXPECT_FALSE(Current() == before);
}

// Who was let in by a CA that is gone is out; one more CA is no reason.
TEST_F(TlsReloadTest, SaysThatACaIsGone) {
  ASSERT_TRUE(reload_.Open().ok());
  int calls = 0;
  reload_.SetOnDistrust([&] { ++calls; });
  const auto text = [](const std::string& path) {
    std::ifstream from(path);
    return std::string(std::istreambuf_iterator<char>(from), {});
  };
  const std::string first = text(ca_.ca());
  TestCa other("other CA");
  const std::string second = text(other.ca());
  const std::pair<std::string, int> kSteps[] = {
      {first + second, 0},   // added
      {second + first, 0},   // in another order
      {second, 1},           // the first one is gone
      {second + second, 1},  // nothing is
      {first, 2}};
  for (const auto& [cas, expected] : kSteps) {
    ca_.Write("ca.pem", cas);
    clock_.Advance(absl::Minutes(1));
    reload_.Expires();
    EXPECT_EQ(calls, expected);
  }
  reload_.SetOnDistrust(nullptr);
  ca_.Write("ca.pem", second);
  clock_.Advance(absl::Minutes(1));
  reload_.Expires();
  EXPECT_EQ(calls, 2);
}

TEST(TlsTrustTest, FingerprintsAreOfTheFirstCertificate) {
  TestCa ca;
  ca.Issue("a");
  ca.Issue("b");
  const auto text = [](const std::string& path) {
    std::ifstream from(path);
    return std::string(std::istreambuf_iterator<char>(from), {});
  };
  const std::string a = text(ca.path("a.pem"));
  const std::string b = text(ca.path("b.pem"));
  const std::string digest = CertificateFingerprint(a);
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(CertificateFingerprint(a + b), digest);
  EXPECT_NE(CertificateFingerprint(b), digest);
  EXPECT_EQ(CertificateFingerprint("no certificate"), "");
}

TEST(TlsTrustTest, ExpiryIsOfTheFirstCertificate) {
  TestCa ca;
  TestRequest request;
  request.to = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + 777);
  ca.Issue("a", request);
  std::ifstream from(ca.path("a.pem"));
  const std::string a(std::istreambuf_iterator<char>(from), {});
  EXPECT_EQ(ExpiryOfCertificate(a), request.to);
  EXPECT_EQ(ExpiryOfCertificate("no certificate"), absl::InfinitePast());
}

// Nobody connects here: who asks when it is over must not hear of files that
// were replaced long ago.
TEST_F(TlsReloadTest, ExpiresSaysWhatIsInUse) {
  TestRequest request;
  request.to = clock_.Now() + absl::Hours(20);
  ca_.Issue("one", request);
  ASSERT_TRUE(reload_.Open().ok());
  const auto near = [](absl::Time a, absl::Time b) {
    return absl::AbsDuration(a - b) < absl::Seconds(2);
  };
  EXPECT_TRUE(near(reload_.Expires().certificate, request.to));
  EXPECT_GT(reload_.Expires().ca, clock_.Now());
  EXPECT_LT(reload_.Expires().ca, absl::InfiniteFuture());
  const absl::Time before = request.to;
  request.to += absl::Hours(20);
  ca_.Issue("one", request);
  EXPECT_TRUE(near(reload_.Expires().certificate, before));
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(near(reload_.Expires().certificate, request.to));
  // New files that cannot be used are not in use.
  ca_.Write("one.key", "no key");
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(near(reload_.Expires().certificate, request.to));
}

TEST_F(TlsReloadTest, WithoutAFileThereIsNoEnd) {
  TlsFiles files = ca_.files("one");
  files.ca = "";
  TlsReload other(files, absl::Seconds(60), &clock_);
  ASSERT_TRUE(other.Open().ok());
  EXPECT_EQ(other.Expires().ca, absl::InfiniteFuture());
  EXPECT_LT(other.Expires().certificate, absl::InfiniteFuture());
}

TEST_F(TlsReloadTest, AWarningIsLoggedOnce) {
  ASSERT_TRUE(reload_.Open().ok());
  uint64_t seen = 0;
  ca_.Write("one.key", "no key");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Minutes(1));
    reload_.Next(&seen);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t first = log.find("new TLS files cannot be used");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("new TLS files cannot be used", first + 1),
            std::string::npos)
      << log;
  EXPECT_THAT(log, testing::HasSubstr(ca_.path("one.key")));
}

// A pipe that nobody writes into is as a disk that hangs.
TEST_F(TlsReloadTest, AFileThatHangsHoldsUpNoHandshakeForLong) {
  constexpr absl::Duration kEvery = absl::Milliseconds(1);
  TlsReload reload(ca_.files("one"), kEvery, &clock_);
  ASSERT_TRUE(reload.Open().ok());
  uint64_t seen = 0;
  const TlsContents before = *reload.Next(&seen);
  const std::string key = ca_.files("one").key;
  ASSERT_EQ(std::rename(key.c_str(), (key + ".aside").c_str()), 0);
  ASSERT_EQ(mkfifo(key.c_str(), 0600), 0);
  clock_.Advance(kEvery);
  EXPECT_FALSE(reload.Next(&seen).has_value());
  uint64_t none = 0;
  EXPECT_TRUE(*reload.Next(&none) == before);
  ASSERT_EQ(std::rename((key + ".aside").c_str(), (key + ".new").c_str()), 0);
  // Lets go of who hangs, with an empty file.
  const int writer = open(key.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  close(writer);
  ASSERT_EQ(std::rename((key + ".new").c_str(), key.c_str()), 0);
  ca_.Issue("one");
  // The thread that was left behind ends at some time.
  while (!reload.Next(&seen).has_value()) {
    clock_.Advance(kEvery);
    std::this_thread::yield();
  }
}

}  // namespace
}  // namespace agg
