#include "server/status/http_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

// The server's end of a connection is `fds_[0]`, the client's `fds_[1]`.
class HttpStreamTest : public ::testing::Test {
 protected:
  HttpStreamTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds_), 0); }
  ~HttpStreamTest() override {
    close(fds_[0]);
    close(fds_[1]);
  }

  void Send(const std::string& bytes) {
    ASSERT_EQ(::write(fds_[1], bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  // Up to `num_bytes`, as httplib reads them.
  static std::string Read(HttpStream* stream, size_t num_bytes) {
    std::string bytes;
    char byte;
    while (bytes.size() < num_bytes && stream->read(&byte, 1) == 1) {
      bytes.push_back(byte);
    }
    return bytes;
  }

  int fds_[2];
};

constexpr absl::Duration kEver = absl::Hours(1);

TEST_F(HttpStreamTest, ReadsWhatComesAndThenTheEnd) {
  HttpStream stream(fds_[0], 100, kEver, kEver);
  Send("ab");
  EXPECT_EQ(Read(&stream, 2), "ab");
  Send("c");
  EXPECT_EQ(Read(&stream, 1), "c");
  ::shutdown(fds_[1], SHUT_WR);
  char byte;
  EXPECT_EQ(stream.read(&byte, 1), 0);
}

TEST_F(HttpStreamTest, ReadsNoMoreThanItsLimit) {
  HttpStream stream(fds_[0], 5, kEver, kEver);
  Send("abcdefgh");
  EXPECT_EQ(Read(&stream, 100), "abcde");
}

TEST_F(HttpStreamTest, TimesAreOfAllReadsAndOfAllWrites) {
  // No byte is too late for a time that is up already.
  HttpStream stream(fds_[0], 100, absl::ZeroDuration(), absl::ZeroDuration());
  Send("a");
  char byte;
  EXPECT_EQ(stream.read(&byte, 1), -1);
  EXPECT_FALSE(stream.is_readable());
  EXPECT_EQ(stream.write("a", 1), -1);
  EXPECT_FALSE(stream.is_writable());
}

TEST_F(HttpStreamTest, AClientThatTakesNothingEndsAWrite) {
  HttpStream stream(fds_[0], 100, kEver, absl::Milliseconds(1));
  const std::string bytes(size_t{1} << 20, 'x');
  ssize_t num_written = 0;
  while (num_written >= 0) num_written = stream.write(bytes.data(), 1 << 20);
  EXPECT_EQ(num_written, -1);
}

TEST_F(HttpStreamTest, AShutDownEndsReadsAndWrites) {
  HttpStream stream(fds_[0], 100, kEver, kEver);
  ::shutdown(fds_[0], SHUT_RDWR);
  char byte;
  EXPECT_EQ(stream.read(&byte, 1), 0);
  EXPECT_EQ(stream.write("a", 1), -1);
}

TEST_F(HttpStreamTest, DrainsWhatIsUnreadWithoutWaiting) {
  HttpStream stream(fds_[0], 100, kEver, kEver);
  Send(std::string(10000, 'x'));
  stream.Drain();
  char byte;
  EXPECT_EQ(recv(fds_[0], &byte, 1, MSG_DONTWAIT), -1);
}

}  // namespace
}  // namespace agg
