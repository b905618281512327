#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/identities.h"
#include "server/base/clock.h"
#include "tests/server/base/hanging_disk.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kDigits(64, 'a');

TEST(DenyRulesTest, AreLines) {
  const auto good = ParseDenyRules(absl::StrCat(
      "# stolen on Friday\n\n identity  worker-7 \nsan spiffe://agg/w/7\n",
      "san\tspiffe://old/*\ncertificate ", kDigits, "\r\n"));
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(good->identities, ElementsAre("worker-7"));
  EXPECT_THAT(good->sans, ElementsAre("spiffe://agg/w/7", "spiffe://old/*"));
  EXPECT_THAT(good->certificates, ElementsAre(kDigits));
}

TEST(DenyRulesTest, FingerprintsMayHaveColonsAndCapitals) {
  std::string colons;
  for (int i = 0; i < 32; ++i) absl::StrAppend(&colons, i ? ":" : "", "AA");
  const auto rules = ParseDenyRules(absl::StrCat("certificate ", colons));
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_THAT(rules->certificates, ElementsAre(kDigits));
}

TEST(DenyRulesTest, AMistakeNamesItsLine) {
  for (const char* bad : {"identity", "token x", "san a*b", "certificate abc",
                          "Identity x", "worker-7"}) {
    const absl::Status status =
        ParseDenyRules(absl::StrCat("identity a\n", bad)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("line 2 is none of these; allowed: \"identity NAME\""));
  }
}

TEST(DenyFileTest, IsReadAgainAndKeepsWhatItHadWhereItCannotBe) {
  FakeClock clock;
  absl::StatusOr<std::string> text = std::string("identity a\n");
  const auto file =
      DenyFile::Open("/deny", &clock, [&](const std::string&) { return text; });
  ASSERT_TRUE(file.ok()) << file.status();
  const DenyFile::Rules first = (*file)->rules();
  EXPECT_THAT(first->identities, ElementsAre("a"));
  text = std::string("identity b\n");
  EXPECT_EQ((*file)->rules(), first);
  clock.Advance(absl::Seconds(1));
  EXPECT_THAT((*file)->rules()->identities, ElementsAre("b"));
  for (const absl::StatusOr<std::string>& bad :
       {absl::StatusOr<std::string>("identity\n"),
        absl::StatusOr<std::string>(absl::UnavailableError("gone"))}) {
    text = bad;
    clock.Advance(absl::Seconds(1));
    EXPECT_THAT((*file)->rules()->identities, ElementsAre("b"));
  }
  text = std::string();
  clock.Advance(absl::Seconds(1));
  EXPECT_TRUE((*file)->rules()->identities.empty());
}

// Who comes by when it is time for a look waits for a while, and nobody else.
TEST(DenyFileTest, ADiskThatHangsHoldsUpNobodyForLong) {
  FakeClock clock;
  const auto disk = std::make_shared<HangingDisk>();
  disk->SetText("identity a\n");
  const auto file = DenyFile::Open(
      "/deny", &clock, [disk](const std::string&) { return disk->Read(); });
  ASSERT_TRUE(file.ok()) << file.status();
  disk->Hang(true);
  clock.Advance(absl::Seconds(1));
  std::thread first([&] { (*file)->rules(); });
  disk->AwaitReads(2);  // the first thread's has begun
  EXPECT_THAT((*file)->rules()->identities, ElementsAre("a"));
  first.join();
  // Looks that are due are not begun, and change nothing.
  clock.Advance(absl::Seconds(1));
  EXPECT_THAT((*file)->rules()->identities, ElementsAre("a"));
  EXPECT_EQ(disk->num_reads(), 2);
  disk->SetText("identity b\n");
  disk->Hang(false);
  // The thread that was left behind ends at some time.
  while ((*file)->rules()->identities.count("b") == 0) {
    clock.Advance(absl::Seconds(1));
    std::this_thread::yield();
  }
}

TEST(DenyFileTest, OneThatIsNotThereIsAnErrorAtStart) {
  FakeClock clock;
  const absl::Status status = DenyFile::Open("/no/such/file", &clock).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"/no/such/file\": No such file"));
}

}  // namespace
}  // namespace agg
