#include "server/base/token_file.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "tests/server/base/hanging_disk.h"

namespace agg {
namespace {

TEST(OthersMayReadTest, TheGroupIsForWhoIsNotTheOwner) {
  EXPECT_FALSE(OthersMayRead(0600, /*own=*/true));
  EXPECT_TRUE(OthersMayRead(0640, true));
  EXPECT_FALSE(OthersMayRead(0440, /*own=*/false));
  for (const unsigned mode : {0460u, 0404u, 0442u}) {
    EXPECT_TRUE(OthersMayRead(mode, false)) << mode;
  }
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOne[] = "one-0123456789abcdef";
constexpr char kTwo[] = "two-0123456789abcdef";

TEST(ParseTokensTest, TakesLinesWithoutCommentsAndSpaces) {
  const auto tokens =
      ParseTokens(absl::StrCat("# old\n\n  ", kOne, " \r\n", kTwo));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre(kOne, kTwo));
}

TEST(ParseTokensTest, ErrorsNameTheLineAndNotTheToken) {
  for (const std::string& bad :
       {std::string("s3cret"), std::string(kMaxTokenBytes + 1, 'x'),
        std::string("has a space in it 123"),
        std::string("caf\xc3\xa9-0123456789abc")}) {
    const auto tokens = ParseTokens(absl::StrCat(kOne, "\n", bad));
    EXPECT_FALSE(tokens.ok()) << bad;
    EXPECT_THAT(tokens.status().message(), HasSubstr("line 2"));
    EXPECT_THAT(tokens.status().message(), Not(HasSubstr(bad)));
  }
}

TEST(ParseTokensTest, TheShortestAndTheLongestAreTaken) {
  EXPECT_TRUE(ParseTokens(std::string(kMinTokenBytes, 'x')).ok());
  EXPECT_TRUE(ParseTokens(std::string(kMaxTokenBytes, 'x')).ok());
  EXPECT_FALSE(ParseTokens(std::string(kMaxTokenFileBytes + 1, '\n')).ok());
}

TEST(SameTokenTest, OnlyEqualOnesAre) {
  EXPECT_TRUE(SameToken(kOne, kOne));
  EXPECT_FALSE(SameToken(kOne, kTwo));
  EXPECT_FALSE(SameToken("", kOne));
  EXPECT_FALSE(SameToken(kOne, ""));
  // A repetition has the same characters at every place modulo its length.
  EXPECT_FALSE(SameToken("abab", "ab"));
  EXPECT_FALSE(SameToken("ab", "abab"));
}

// A file whose bytes a test sets.
class TokenFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<TokenFile> Open() {
    auto file = TokenFile::Open("/tokens", &clock_, [this](const std::string&) {
      ++reads_;
      return bytes_;
    });
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

  FakeClock clock_;
  absl::StatusOr<std::string> bytes_ = std::string(kOne);
  int reads_ = 0;
};

TEST_F(TokenFileTest, AChangeCountsAtTheNextLook) {
  const auto file = Open();
  bytes_ = absl::StrCat(kTwo, "\n", kOne);
  EXPECT_EQ(file->first(), kOne);
  clock_.Advance(TokenFile::kLook);
  EXPECT_THAT(*file->tokens(), ElementsAre(kTwo, kOne));
  EXPECT_EQ(file->first(), kTwo);
}

TEST_F(TokenFileTest, TheFileIsReadOnceInATimeHoweverOftenItIsAskedFor) {
  const auto file = Open();
  for (int i = 0; i < 100; ++i) file->tokens();
  EXPECT_EQ(reads_, 1);
  clock_.Advance(TokenFile::kLook);
  for (int i = 0; i < 100; ++i) file->tokens();
  EXPECT_EQ(reads_, 2);
}

TEST_F(TokenFileTest, AFileThatCannotBeReadOrIsDamagedChangesNothing) {
  const auto file = Open();
  bytes_ = absl::NotFoundError("gone");
  clock_.Advance(TokenFile::kLook);
  EXPECT_EQ(file->first(), kOne);
  bytes_ = std::string("short");
  clock_.Advance(TokenFile::kLook);
  EXPECT_EQ(file->first(), kOne);
}

TEST_F(TokenFileTest, AFileThatWasEmptiedLeavesNoToken) {
  const auto file = Open();
  bytes_ = std::string("# nobody\n");
  clock_.Advance(TokenFile::kLook);
  EXPECT_THAT(*file->tokens(), ElementsAre());
  EXPECT_EQ(file->first(), "");
}

TEST(HangingTokenFileTest, HoldsUpNobodyForLong) {
  FakeClock clock;
  const auto disk = std::make_shared<HangingDisk>();
  disk->SetText(kOne);
  const auto file = TokenFile::Open(
      "/tokens", &clock, [disk](const std::string&) { return disk->Read(); });
  ASSERT_TRUE(file.ok()) << file.status();
  disk->Hang(true);
  clock.Advance(TokenFile::kLook);
  std::thread first([&] { (*file)->tokens(); });
  disk->AwaitReads(2);
  EXPECT_EQ((*file)->first(), kOne);
  first.join();
  clock.Advance(TokenFile::kLook);
  EXPECT_EQ((*file)->first(), kOne);
  EXPECT_EQ(disk->num_reads(), 2);
  disk->SetText(kTwo);
  disk->Hang(false);
  while ((*file)->first() != kTwo) {
    clock.Advance(TokenFile::kLook);
    std::this_thread::yield();
  }
}

TEST(TokenFileOpenTest, ErrorsNameThePathAndTheReason) {
  const FakeClock clock;
  const auto missing = TokenFile::Open("/nowhere/tokens", &clock);
  EXPECT_THAT(missing.status().message(), HasSubstr("\"/nowhere/tokens\": "));
  const auto folder = TokenFile::Open("/", &clock);
  EXPECT_THAT(folder.status().message(), HasSubstr("not a regular file"));
  const auto empty = TokenFile::Open(
      "/x", &clock, [](const std::string&) { return std::string(); });
  EXPECT_THAT(empty.status().message(), HasSubstr("no token"));
}

}  // namespace
}  // namespace agg
