#include "server/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;

std::string Notice(uint64_t num_dropped) {
  return absl::StrCat(num_dropped, " missing\n");
}

// A pipe of one page that the test reads when it likes.
class LineWriterTest : public testing::Test {
 protected:
  LineWriterTest() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(ends_[1], F_SETPIPE_SZ, 4096), 4096);
  }
  ~LineWriterTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }

  // Waits until `end` has come.
  std::string ReadUntil(const std::string& end) {
    std::string text;
    char bytes[4096];
    while (text.find(end) == std::string::npos) {
      const ssize_t count = read(ends_[0], bytes, sizeof(bytes));
      if (count <= 0) break;
      text.append(bytes, static_cast<size_t>(count));
    }
    return text;
  }

  int ends_[2];
};

TEST_F(LineWriterTest, LinesComeInTheirOrder) {
  LineWriter writer(ends_[1], Notice);
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    const std::string line = absl::StrCat("line ", i, "\n");
    writer.Write(line);
    expected += line;
  }
  EXPECT_EQ(ReadUntil("line 99\n"), expected);
  EXPECT_TRUE(writer.Flush(absl::Hours(1)));
  EXPECT_EQ(writer.num_dropped(), 0u);
}

// The sum of all that notices in `text` say.
uint64_t Missing(const std::string& text) {
  uint64_t sum = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    uint64_t number = 0;
    absl::string_view digits = line;
    if (absl::ConsumeSuffix(&digits, " missing") &&
        absl::SimpleAtoi(digits, &number)) {
      sum += number;
    }
  }
  return sum;
}

// 10,000 lines in a pipe of 4 KiB and a queue of 8 KiB that nobody reads: all
// calls return, and what is missing is counted and said in its place. The
// thread may write in the midst, so that two places miss lines.
TEST_F(LineWriterTest, NobodyReadsAndNobodyWaits) {
  LineWriter writer(ends_[1], Notice, 8192);
  for (int i = 0; i < 10000; ++i) writer.Write(absl::StrCat("line ", i, "\n"));
  const uint64_t num_dropped = writer.num_dropped();
  EXPECT_GT(num_dropped, 1000u);
  EXPECT_FALSE(writer.Flush(absl::ZeroDuration()));
  std::string text;
  while (Missing(text) < num_dropped) text += ReadUntil(" missing\n");
  EXPECT_EQ(Missing(text), num_dropped);
  EXPECT_EQ(text.substr(0, 14), "line 0\nline 1\n");
  writer.Write("later\n");
  EXPECT_THAT(ReadUntil("later\n"), HasSubstr("later\n"));
  EXPECT_TRUE(writer.Flush(absl::Hours(1)));
  EXPECT_EQ(writer.num_dropped(), num_dropped);
}

TEST_F(LineWriterTest, ALineLongerThanThePipeComesWhole) {
  LineWriter writer(ends_[1], Notice);
  const std::string line = std::string(8192, 'x') + "\n";
  writer.Write(line);
  EXPECT_EQ(ReadUntil("\n"), line);
}

TEST_F(LineWriterTest, AReaderThatHasGoneHoldsNobodyUp) {
  std::signal(SIGPIPE, SIG_IGN);  // as a server does
  close(ends_[0]);
  LineWriter writer(ends_[1], Notice);
  writer.Write("one\n");
  EXPECT_TRUE(writer.Flush(absl::Hours(1)));
  EXPECT_EQ(writer.num_dropped(), 1u);
  ends_[0] = dup(ends_[1]);  // for the destructor
}

// What is queued while the reader is away comes out at a crash, as far as he
// takes it.
TEST_F(LineWriterTest, ACrashWritesWhatIsQueued) {
  LineWriter writer(ends_[1], Notice);
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = absl::StrCat("line ", i, "\n");
    writer.Write(line);
    expected += line;
  }
  EXPECT_FALSE(writer.Flush(absl::ZeroDuration()));
  writer.FlushAtCrash(absl::ZeroDuration());  // the pipe is full: it returns
  EXPECT_EQ(ReadUntil("line 999\n").size(), expected.size());
}

// The thread writes the same lines at the same time, as it does when a process
// logs why it aborts. They may come twice, but the process has to end.
TEST_F(LineWriterTest, ACrashEndsWhileTheThreadWrites) {
  std::thread reader([this] {
    char bytes[4096];
    while (read(ends_[0], bytes, sizeof(bytes)) > 0) {
    }
  });
  {
    LineWriter writer(ends_[1], Notice);
    for (int i = 0; i < 3000; ++i) {
      writer.Write("why it aborts\n");
      writer.FlushAtCrash(absl::Hours(1));
    }
    EXPECT_TRUE(writer.Flush(absl::Hours(1)));
  }
  close(ends_[1]);
  reader.join();
  ends_[1] = dup(ends_[0]);  // for the destructor
}

TEST_F(LineWriterTest, WithoutAThreadALineIsWrittenAtOnceOrNotAtAll) {
  EXPECT_TRUE(WriteLineIfReady(ends_[1], "now\n"));
  EXPECT_EQ(ReadUntil("\n"), "now\n");
  while (WriteLineIfReady(ends_[1], std::string(1000, 'x') + "\n")) {
  }
  EXPECT_FALSE(WriteLineIfReady(ends_[1], "lost\n"));
}

}  // namespace
}  // namespace agg
