#include "server/round_log/round_log.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/round_log.pb.h"
#include "server/round_log/record_file.h"
#include "tests/server/round_log/logged_rounds.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Contents {
  std::vector<int> rounds;
  std::vector<int> described;  // rounds with a run
  int64_t truncated_bytes = 0;
  absl::Status status;
};

Contents Read(const std::string& path) {
  Contents contents;
  absl::StatusOr<RecordReader> reader = RecordReader::Open(path);
  contents.status = reader.status();
  v1::RoundLogRecord record;
  while (contents.status.ok()) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    contents.status = more.status();
    if (!more.ok() || !*more) break;
    contents.rounds.push_back(static_cast<int>(record.round()));
    if (record.has_run()) contents.described.push_back(contents.rounds.back());
  }
  if (reader.ok()) contents.truncated_bytes = reader->truncated_bytes();
  return contents;
}

// Writes the rounds [first, last] and closes the log.
RoundLogStatus Log(const std::string& path, int first, int last,
                   int64_t max_bytes = int64_t{1} << 30) {
  absl::StatusOr<std::unique_ptr<RoundLog>> log =
      RoundLog::Open({path, max_bytes});
  EXPECT_TRUE(log.ok()) << log.status();
  if (!log.ok()) return {};
  (*log)->SetRun(SomeRun());
  for (int round = first; round <= last; ++round) {
    (*log)->Append(SomeRound(static_cast<uint64_t>(round)));
  }
  // Its end writes what waits; the counts before that are a lower bound.
  while ((*log)->Status().records + (*log)->Status().errors <
         static_cast<uint64_t>(last - first + 1)) {
  }
  return (*log)->Status();
}

TEST(RoundLogTest, ARestartGoesOn) {
  const std::string path = FreshPath("restart.binlog");
  EXPECT_EQ(Log(path, 0, 2).records, 3u);
  Log(path, 3, 4);
  const Contents contents = Read(path);
  EXPECT_TRUE(contents.status.ok()) << contents.status;
  EXPECT_THAT(contents.rounds, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(contents.described, ElementsAre(0, 3));
  EXPECT_EQ(contents.truncated_bytes, 0);
}

TEST(RoundLogTest, TheFormatIsTheDocumentedOne) {
  const std::string path = FreshPath("format.binlog");
  Log(path, 0, 0);
  const std::string bytes = FileBytes(path);
  // One record, longer than 127 bytes: a length of two bytes, low bits first.
  ASSERT_GT(bytes.size(), 130u);
  const size_t length = (static_cast<unsigned char>(bytes[0]) & 0x7f) |
                        (static_cast<unsigned char>(bytes[1]) << 7);
  EXPECT_EQ(length, bytes.size() - 2);
  v1::RoundLogRecord record;
  ASSERT_TRUE(record.ParseFromString(bytes.substr(2)));
  EXPECT_EQ(record.run().job(), "digits");
}

TEST(RoundLogTest, EveryCutIsToleratedAndRepaired) {
  const std::string whole_path = FreshPath("whole.binlog");
  Log(whole_path, 0, 0);
  const size_t first_record = FileBytes(whole_path).size();
  Log(whole_path, 1, 1);
  const std::string whole = FileBytes(whole_path);
  const std::string path = FreshPath("cut.binlog");
  for (size_t size = first_record; size < whole.size(); size += 37) {
    WriteFileBytes(path, whole.substr(0, size));
    Contents contents = Read(path);
    EXPECT_TRUE(contents.status.ok()) << size << contents.status;
    EXPECT_THAT(contents.rounds, ElementsAre(0));
    EXPECT_EQ(contents.truncated_bytes,
              static_cast<int64_t>(size - first_record));
    Log(path, 9, 9);
    contents = Read(path);
    EXPECT_TRUE(contents.status.ok()) << size << contents.status;
    EXPECT_THAT(contents.rounds, ElementsAre(0, 9));
  }
}

TEST(RoundLogTest, WhatIsNoLogIsLeftAlone) {
  const std::string path = FreshPath("other.txt");
  for (const std::string& bytes :
       {std::string("something else, and of some length at that: a file that "
                    "the operator would miss"),
        std::string("5\nlines\n"), std::string("no"), std::string(1, '\0'),
        std::string("\xff\xff\xff\xff\xff\xff", 6),
        // A record, but without a run before it.
        std::string("\x02\x10\x01", 3)}) {
    WriteFileBytes(path, bytes);
    const absl::Status status = RoundLog::Open({path, 1 << 20}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << bytes;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_EQ(FileBytes(path), bytes);
    const Contents contents = Read(path);
    EXPECT_TRUE(absl::IsDataLoss(contents.status)) << contents.status;
    EXPECT_THAT(std::string(contents.status.message()), HasSubstr("at byte 0"));
  }
}

TEST(RoundLogTest, DamageIsFoundAndPlaced) {
  const std::string path = FreshPath("damaged.binlog");
  Log(path, 0, 0);
  const size_t first_record = FileBytes(path).size();
  Log(path, 1, 1);
  std::string bytes = FileBytes(path);
  bytes[first_record + 2] = '\x07';  // a field of a type that is none
  WriteFileBytes(path, bytes);
  const Contents contents = Read(path);
  EXPECT_TRUE(absl::IsDataLoss(contents.status)) << contents.status;
  EXPECT_THAT(contents.rounds, ElementsAre(0));
  EXPECT_THAT(std::string(contents.status.message()),
              HasSubstr(absl::StrCat("at byte ", first_record)));
}

TEST(RoundLogTest, AFullFileMakesRoomForANewOne) {
  const std::string path = FreshPath("full.binlog");
  Log(path, 0, 0);
  const int64_t one = static_cast<int64_t>(FileBytes(path).size());
  Log(path, 1, 3, 3 * one);
  const Contents old = Read(path + ".1");
  const Contents now = Read(path);
  EXPECT_TRUE(old.status.ok()) << old.status;
  EXPECT_TRUE(now.status.ok()) << now.status;
  ASSERT_FALSE(now.rounds.empty());
  ASSERT_FALSE(old.rounds.empty());
  EXPECT_LE(FileBytes(path + ".1").size(), static_cast<size_t>(3 * one));
  // Nothing is lost in between, and each file can be read by itself.
  EXPECT_EQ(old.rounds.front(), 0);
  EXPECT_EQ(old.rounds.back() + 1, now.rounds.front());
  EXPECT_EQ(now.rounds.back(), 3);
  EXPECT_EQ(now.described.front(), now.rounds.front());
}

TEST(RoundLogTest, WhatCannotBeWrittenIsCountedAndForgiven) {
  const std::string path = FreshPath("limited.binlog");
  Log(path, 0, 0);
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  absl::StatusOr<std::unique_ptr<RoundLog>> log =
      RoundLog::Open({path, int64_t{1} << 30});
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->SetRun(SomeRun());
  // There is room for ten bytes of the next record.
  struct rlimit unlimited = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  struct rlimit limited = unlimited;
  limited.rlim_cur = static_cast<rlim_t>(info.st_size) + 10;
  // What is logged of it meanwhile has a file of its own, which is short.
  testing::internal::CaptureStderr();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  (*log)->Append(SomeRound(1));
  while ((*log)->Status().errors == 0) {
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  (*log)->Append(SomeRound(2));
  while ((*log)->Status().records == 0) {
  }
  log->reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("1 rounds are missing from it so far"));
  const Contents contents = Read(path);
  EXPECT_TRUE(contents.status.ok()) << contents.status;
  EXPECT_THAT(contents.rounds, ElementsAre(0, 2));
  EXPECT_THAT(contents.described, ElementsAre(0, 2));
}

TEST(RoundLogTest, APathThatCannotBeWrittenIsNamed) {
  const std::string path = "/no/such/folder/rounds.binlog";
  const absl::Status status = RoundLog::Open({path, 1 << 20}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(RoundLog::Open({testing::TempDir(), 1 << 20}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(RecordFileTest, RotatesTheFileThatALinkLeadsToAndKeepsTheLink) {
  const std::string file_path = FreshPath("linked.binlog");
  const std::string path = FreshPath("link.binlog");
  std::ofstream(file_path).close();
  std::filesystem::create_symlink(file_path, path);
  auto file = RecordFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("x").ok());
  ASSERT_TRUE((*file)->Rotate().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_TRUE(std::filesystem::is_empty(file_path));
  EXPECT_FALSE(std::filesystem::is_empty(file_path + ".1"));
}

// A standby opens the log of the shard 0 that it waits for.
TEST(RecordFileTest, WhatAnotherProcessWritesMeanwhileStays) {
  const std::string path = FreshPath("shared.binlog");
  v1::RoundLogRecord record;
  const auto text = [&record](const std::string& job) {
    record.mutable_run()->set_job(job);
    return record.SerializeAsString();
  };
  auto former = RecordFile::Open(path);
  ASSERT_TRUE(former.ok()) << former.status();
  ASSERT_TRUE((*former)->Append(text("a")).ok());
  // In the middle of a record.
  const std::string message = text("b");
  std::ofstream out(path, std::ios::app | std::ios::binary);
  out << static_cast<char>(message.size()) << message.substr(0, 1)
      << std::flush;
  auto standby = RecordFile::Open(path);
  ASSERT_TRUE(standby.ok()) << standby.status();
  out << message.substr(1) << std::flush;
  ASSERT_TRUE((*former)->Append(text("c")).ok());
  ASSERT_TRUE((*standby)->Append(text("d")).ok());
  // And after a rotation by the former.
  ASSERT_TRUE((*former)->Rotate().ok());
  ASSERT_TRUE((*former)->Append(text("e")).ok());
  ASSERT_TRUE((*standby)->Append(text("f")).ok());
  const auto jobs = [](const std::string& file) {
    std::string all;
    auto reader = RecordReader::Open(file);
    v1::RoundLogRecord next;
    while (reader.ok() && reader->Next(&next).value_or(false)) {
      all += next.run().job();
    }
    return all;
  };
  EXPECT_EQ(jobs(path + ".1"), "abcd");
  EXPECT_EQ(jobs(path), "ef");
}

// Its own count of bytes would say that the young file is full.
TEST(RoundLogTest, AStandbyKeepsTheFileThatTheFormerOneHasRotated) {
  const std::string path = FreshPath("taken_over.binlog");
  Log(path, 0, 0);
  auto standby =
      RoundLog::Open({path, static_cast<int64_t>(FileBytes(path).size()) + 1});
  ASSERT_TRUE(standby.ok()) << standby.status();
  (*standby)->SetRun(SomeRun());
  {
    auto former = RecordFile::Open(path);
    ASSERT_TRUE(former.ok()) << former.status();
    ASSERT_TRUE((*former)->Rotate().ok());
  }
  (*standby)->Append(SomeRound(1));
  standby->reset();
  EXPECT_THAT(Read(path + ".1").rounds, ElementsAre(0));
  EXPECT_THAT(Read(path).rounds, ElementsAre(1));
}

TEST(RecordFileTest, RefusesALinkThatLeadsNowhere) {
  const std::string path = FreshPath("nowhere.binlog");
  const std::string target = FreshPath("no.binlog");
  std::filesystem::create_symlink(target, path);
  const absl::Status status = RecordFile::Open(path).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()), HasSubstr("leads nowhere"));
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST(RecordFileTest, DoesNotRotateOverAPipe) {
  const std::string path = FreshPath("rotated.binlog");
  const std::string pipe = path + ".1";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  auto file = RecordFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("x").ok());
  const absl::Status status = (*file)->Rotate();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(pipe));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ((*file)->num_bytes(), 2);
  EXPECT_TRUE((*file)->Append("y").ok());  // into the file as it was
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
}

TEST(RecordFileTest, RefusesWhatNoReaderTakes) {
  const std::string path = FreshPath("large.binlog");
  auto file = RecordFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE((*file)->Append("").ok());
  EXPECT_FALSE((*file)->Append(std::string(kMaxRecordBytes + 1, 'x')).ok());
  EXPECT_EQ((*file)->num_bytes(), 0);
}

}  // namespace
}  // namespace agg
