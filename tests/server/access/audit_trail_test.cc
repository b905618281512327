#include "server/access/audit_trail.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>  // NOLINT
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/log.h"
#include "tests/server/base/no_large_files.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

AuditEvent Event(const std::string& action, const std::string& who) {
  AuditEvent event;
  event.action = action;
  event.who = who;
  event.from = "ipv4:10.0.0.1:1234";
  event.outcome = "OK";
  return event;
}

TEST(AuditLineTest, IsOneObjectInOneLineWhateverTheTextsAre) {
  AuditEvent event = Event("join", "a\n\"b\"");
  event.time = absl::FromUnixMillis(1763800000123);
  event.rank = 3;
  event.session = uint64_t{1} << 63;
  event.detail = "\x1b[2J\xff";
  const std::string line = AuditLine(event);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = nlohmann::json::parse(line);
  EXPECT_EQ(read["time"], "2025-11-22T08:26:40.123Z");
  EXPECT_EQ(read["who"], "a\n\"b\"");
  EXPECT_EQ(read["rank"], 3);
  EXPECT_EQ(read["session"], uint64_t{1} << 63);
  EXPECT_EQ(read["detail"], "\x1b[2J\xef\xbf\xbd");
}

// Whoever reads the file on a terminal reads what was sent, and nothing acts.
TEST(AuditLineTest, HasNothingThatATerminalObeys) {
  AuditEvent event = Event("denial",
                           "\xc2\x9b"
                           "31m\x7f");
  event.from =
      "\xe2\x80\xae"
      "txt.exe";
  event.detail = "\xe2\x80\xa8\xef\xbb\xbf\xf3\xa0\x80\x81\xc3\xa9";
  event.outcome = "\xe2\x81\xa6\xe2\x80\x8b.";
  const std::string line = AuditLine(event);
  EXPECT_NE(line.find("\"who\": \"\\u009b31m\\u007f\""), std::string::npos)
      << line;
  EXPECT_NE(line.find("\"from\": \"\\u202etxt.exe\""), std::string::npos);
  EXPECT_NE(line.find("\"detail\": \"\\u2028\\ufeff\\udb40\\udc01\xc3\xa9\""),
            std::string::npos);
  EXPECT_NE(line.find("\"outcome\": \"\\u2066\\u200b.\""), std::string::npos);
  const auto read = nlohmann::json::parse(line);
  EXPECT_EQ(read["from"], event.from);
  EXPECT_EQ(read["detail"], event.detail);
}

class AuditTrailTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  std::vector<std::string> lines_;
  AuditTrail trail_{
      &clock_, [this](const std::string& line) { lines_.push_back(line); }};
};

TEST_F(AuditTrailTest, KeepsTheNewestInTheirOrder) {
  for (size_t i = 0; i < AuditTrail::kMaxEvents + 5; ++i) {
    clock_.Advance(absl::Seconds(1));
    trail_.Note(Event("join", absl::StrCat(i)));
  }
  const std::vector<AuditEvent> all = trail_.Last(0);
  ASSERT_THAT(all, SizeIs(AuditTrail::kMaxEvents));
  EXPECT_EQ(all.front().who, "5");
  const std::vector<AuditEvent> last = trail_.Last(2);
  ASSERT_THAT(last, SizeIs(2));
  EXPECT_EQ(last.back().who, absl::StrCat(AuditTrail::kMaxEvents + 4));
  EXPECT_THAT(lines_, SizeIs(AuditTrail::kMaxEvents + 5));
}

TEST_F(AuditTrailTest, LongTextsAreCut) {
  AuditEvent event = Event("set_rule", "x");
  event.detail = std::string(100000, 'y');
  trail_.Note(event);
  EXPECT_THAT(trail_.Last(0)[0].detail, SizeIs(kMaxAuditTextBytes));
  EXPECT_LE(lines_[0].size(), size_t{kMaxAuditBytes});
}

TEST_F(AuditTrailTest, DenialsAlikeAreOneWithACount) {
  trail_.Note(Event("join", "good"));
  for (int i = 0; i < 1000; ++i) {
    AuditEvent denial = Event("", "eve");
    denial.from = absl::StrCat("ipv4:10.0.0.1:", i);  // new connections
    trail_.NoteDenial(denial);
  }
  std::vector<AuditEvent> all = trail_.Last(0);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[1].action, "denial");
  EXPECT_EQ(all[1].times, 1000);
  EXPECT_THAT(lines_, SizeIs(2));
  // Later it is said again.
  clock_.Advance(AuditTrail::kTogether);
  trail_.NoteDenial(Event("", "eve"));
  EXPECT_THAT(trail_.Last(0), SizeIs(3));
}

TEST_F(AuditTrailTest, AClosedCountIsInALineOfItsOwn) {
  const auto deny = [&](const std::string& who, int times) {
    for (int i = 0; i < times; ++i) trail_.NoteDenial(Event("", who));
  };
  deny("eve", 3);
  deny("once", 1);
  trail_.CloseDenials();
  EXPECT_THAT(lines_, SizeIs(2));
  clock_.Advance(AuditTrail::kTogether);
  trail_.CloseDenials();
  trail_.CloseDenials();
  ASSERT_THAT(lines_, SizeIs(3));
  const auto closed = nlohmann::json::parse(lines_[2]);
  EXPECT_EQ(closed["who"], "eve");
  EXPECT_EQ(closed["times"], 3);
  EXPECT_EQ(closed["time"], nlohmann::json::parse(lines_[0])["time"]);
  // The next event says it as well, before itself.
  deny("eve", 2);
  clock_.Advance(AuditTrail::kTogether);
  trail_.Note(Event("join", "good"));
  ASSERT_THAT(lines_, SizeIs(6));
  EXPECT_EQ(nlohmann::json::parse(lines_[4])["times"], 2);
}

TEST_F(AuditTrailTest, NoCountIsLostAtTheEndOrWhenThereAreTooMany) {
  size_t denied = 0;
  {
    AuditTrail trail(
        &clock_, [this](const std::string& line) { lines_.push_back(line); });
    for (size_t window = 0; window < 5; ++window) {
      for (int i = 0; i < 2 * AuditTrail::kMaxNewDenials; ++i, ++denied) {
        trail.NoteDenial(Event("", absl::StrCat(window, " ", i / 2)));
      }
      clock_.Advance(AuditTrail::kTogether);
    }
  }
  size_t counted = 0;
  for (const std::string& line : lines_) {
    const auto read = nlohmann::json::parse(line);
    // The event's first line counted one of them already.
    counted += read.contains("times") ? read["times"].get<size_t>() - 1 : 1;
  }
  EXPECT_EQ(counted, denied);
}

TEST_F(AuditTrailTest, TheLogHasLinesWhateverItsLevelIs) {
  SetLogLevel(LogLevel::kError);
  testing::internal::CaptureStderr();
  trail_.Note(Event("join", "good"));
  const std::string log = testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kInfo);
  EXPECT_THAT(log, HasSubstr(" I ] audit: {\"time\": \""));
}

TEST_F(AuditTrailTest, DenialsFromEverywherePushNothingElseOut) {
  trail_.Note(Event("join", "good"));
  constexpr int kMany = 20000;
  for (int i = 0; i < kMany; ++i) {
    AuditEvent denial = Event("", "");
    denial.from = absl::StrCat("ipv4:10.0.", i / 200, ".", i % 200, ":1");
    trail_.NoteDenial(denial);
  }
  const std::vector<AuditEvent> all = trail_.Last(0);
  EXPECT_EQ(all.front().who, "good");
  EXPECT_THAT(all, SizeIs(1 + AuditTrail::kMaxNewDenials + 1));
  EXPECT_THAT(lines_, SizeIs(1 + AuditTrail::kMaxNewDenials + 1));
  uint64_t counted = 0;
  for (const AuditEvent& event : all) counted += event.times;
  EXPECT_EQ(counted, 1 + kMany);
}

TEST_F(AuditTrailTest, DenialsAreBounded) {
  for (int i = 0; i < 2000; ++i) {
    clock_.Advance(AuditTrail::kTogether);
    trail_.NoteDenial(Event("", absl::StrCat(i)));
  }
  EXPECT_THAT(trail_.Last(0), SizeIs(AuditTrail::kMaxDenials));
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// Of a file that is not there: some keep what earlier runs have left.
std::string PathOf(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  unlink(path.c_str());
  unlink((path + ".1").c_str());
  return path;
}

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(AuditFileTest, LinesAreAppendedAndTheFileIsItsOwnersAlone) {
  const std::string path = PathOf("audit");
  for (const char* line : {"{\"a\":1}", "{\"b\":2}"}) {
    const auto file = AuditFile::Open({path, 1 << 20});
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->Write(line);
  }
  EXPECT_EQ(Read(path), "{\"a\":1}\n{\"b\":2}\n");
  struct stat about;
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600);
}

TEST(AuditFileTest, AFullFileGivesWayToANewOne) {
  const std::string path = PathOf("full");
  {
    const auto file = AuditFile::Open({path, 10});
    ASSERT_TRUE(file.ok()) << file.status();
    for (const char* line : {"11111", "22222", "33333"}) (*file)->Write(line);
  }
  EXPECT_EQ(Read(path), "33333\n");
  EXPECT_EQ(Read(path + ".1"), "22222\n");
}

TEST(AuditFileTest, ALineThatDoesNotFitLeavesNothingOfItself) {
  const std::string path = PathOf("disk");
  const std::string a(600000, 'a');
  {
    const NoLargeFiles full(1000000);
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    for (const std::string& line : {a, std::string(600000, 'b')}) {
      (*file)->Write(line);
    }
  }
  {
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->Write("c");
  }
  EXPECT_TRUE(Read(path) == a + "\nc\n");
}

TEST(AuditFileTest, ADiskThatIsFullAgainIsLoggedAgain) {
  const std::string path = PathOf("again");
  const std::string large(2000000, 'x');
  std::string logged;
  {
    const NoLargeFiles full(1000000, &logged);
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->num_errors(), 0u);
    for (const std::string& line : {large, large, std::string("y"), large}) {
      (*file)->Write(line);
    }
    while ((*file)->num_errors() < 3) std::this_thread::yield();
  }
  EXPECT_EQ(CountOf("the audit file cannot be written", logged), 2);
  EXPECT_TRUE(Read(path) == "y\n");
}

TEST(AuditFileTest, LinesThatFindNoRoomAreLogged) {
  const std::string path = PathOf("slow");
  testing::internal::CaptureStderr();
  {
    const auto file = AuditFile::Open({path, 1 << 30}, /*max_waiting=*/0);
    ASSERT_TRUE(file.ok()) << file.status();
    for (int i = 0; i < 3; ++i) (*file)->Write("x");
    EXPECT_EQ((*file)->num_errors(), 3u);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the audit file has lost 3 lines: "));
  EXPECT_EQ(Read(path), "");
}

TEST(AuditFileTest, AFileThatOthersCutShortIsNotMadeLongAgain) {
  const std::string path = PathOf("cut");
  std::ofstream(path) << std::string(600000, 'a');
  {
    const NoLargeFiles full(1000000);
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(truncate(path.c_str(), 0), 0);
    (*file)->Write(std::string(2000000, 'b'));
    (*file)->Write("c");
  }
  EXPECT_TRUE(Read(path) == "c\n");
}

TEST(AuditFileTest, WhatCannotBeOpenedIsNamed) {
  const auto file = AuditFile::Open({"/nowhere/audit", 10});
  EXPECT_THAT(file.status().message(),
              HasSubstr("security.audit.path is \"/nowhere/audit\": "));
}

}  // namespace
}  // namespace agg
