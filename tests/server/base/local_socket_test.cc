#include "server/base/local_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"

namespace agg {
namespace {

// No other test's: they share the host's names.
std::string NewName() {
  std::random_device random;
  return LocalSocketName((uint64_t{random()} << 32) | random());
}

// Listens on the abstract name until it is destroyed.
class Listener {
 public:
  explicit Listener(const std::string& name)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const size_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(size)),
              0);
    EXPECT_EQ(listen(fd_, 4), 0);
  }
  ~Listener() { close(fd_); }

 private:
  const int fd_;
};

TEST(LocalSocketTest, NamesAreOfOneLife) {
  EXPECT_EQ(LocalSocketName(0x1020304050607), "agg-0001020304050607");
  EXPECT_EQ(LocalSocketTarget("agg-1"), "unix-abstract:agg-1");
  EXPECT_TRUE(IsLocalSocketName(LocalSocketName(~uint64_t{0})));
}

TEST(LocalSocketTest, ANameHasNothingThatAUriWouldChange) {
  for (const char* good : {"a", "A-1.b", "agg-0123456789abcdef"}) {
    EXPECT_TRUE(IsLocalSocketName(good)) << good;
  }
  for (const char* bad : {"", "a b", "a/b", "a%20", "a?b", "a#b", "a_b", "ä"}) {
    EXPECT_FALSE(IsLocalSocketName(bad)) << bad;
    EXPECT_FALSE(CanConnectLocally(bad)) << bad;
  }
  EXPECT_TRUE(IsLocalSocketName(std::string(64, 'a')));
  EXPECT_FALSE(IsLocalSocketName(std::string(65, 'a')));
  EXPECT_FALSE(IsLocalSocketName(std::string("a\0b", 3)));
}

TEST(LocalSocketTest, FindsWhoListens) {
  const std::string name = NewName();
  EXPECT_FALSE(CanConnectLocally(name));
  EXPECT_TRUE(CheckLocalListen(name).ok());
  {
    const Listener listener(name);
    EXPECT_TRUE(CanConnectLocally(name));
    EXPECT_TRUE(CanConnectLocally(name));
    const absl::Status taken = CheckLocalListen(name);
    EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(taken.message()),
                testing::HasSubstr("unix-abstract:" + name));
  }
  EXPECT_FALSE(CanConnectLocally(name));
  EXPECT_TRUE(CheckLocalListen(name).ok());
}

// As one that takes the name of a shard on another host.
TEST(LocalSocketTest, AListenerOfAnotherUserIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = NewName();
  int ready[2];
  int over[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(over[1]);
    if (setuid(65534) != 0) _exit(1);
    const Listener listener(name);
    char byte = 0;
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    _exit(read(over[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(ready[1]);
  close(over[0]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(CanConnectLocally(name));
  EXPECT_FALSE(CheckLocalListen(name).ok());
  close(over[1]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ready[0]);
}

// A listener that accepts nobody must not hold up who asks.
TEST(LocalSocketTest, NeverWaits) {
  const std::string name = NewName();
  const Listener listener(name);
  int reached = 0;
  while (CanConnectLocally(name)) ASSERT_LT(++reached, 1000);
  EXPECT_GT(reached, 0);
}

int SendBuffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
  return bytes;
}

// Both ends of a connection to a socket of this name, which is made unique.
struct Connection {
  explicit Connection(const std::string& prefix) {
    std::random_device random;
    const std::string name = absl::StrCat(prefix, random(), random());
    const absl::StatusOr<FileDescriptor> listener = ListenLocally(name);
    EXPECT_TRUE(listener.ok()) << listener.status();
    absl::StatusOr<FileDescriptor> connected = ConnectLocally(name);
    EXPECT_TRUE(connected.ok()) << connected.status();
    client = *std::move(connected);
    server = FileDescriptor(accept(listener->get(), nullptr, nullptr));
    EXPECT_GE(server.get(), 0);
  }

  FileDescriptor client{-1};
  FileDescriptor server{-1};
};

TEST(LocalBuffersTest, BothEndsOfOurSocketsAreWidened) {
  const Connection connection("agg-test-");
  const int before = SendBuffer(connection.client.get());
  if (before >= kLocalBufferBytes) {
    GTEST_SKIP() << "net.core.wmem_default gives each socket " << before
                 << " bytes: none is widened";
  }
  WidenLocalBuffers();
  const int after = SendBuffer(connection.client.get());
  EXPECT_GT(after, before);  // how far net.core.wmem_max lets it
  EXPECT_EQ(SendBuffer(connection.server.get()), after);
  WidenLocalBuffers();
  EXPECT_EQ(SendBuffer(connection.client.get()), after);
}

TEST(LocalBuffersTest, OtherSocketsStayAsTheyAre) {
  const Connection other("other-");
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const FileDescriptor first(pair[0]);
  const FileDescriptor second(pair[1]);
  const int before = SendBuffer(first.get());
  WidenLocalBuffers();
  EXPECT_EQ(SendBuffer(first.get()), before);
  EXPECT_EQ(SendBuffer(other.client.get()), before);
  EXPECT_EQ(SendBuffer(other.server.get()), before);
}

using testing::HasSubstr;
using testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(1);

class DescriptorMessageTest : public testing::Test {
 protected:
  DescriptorMessageTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    near_ = FileDescriptor(ends[0]);
    far_ = FileDescriptor(ends[1]);
  }
  FileDescriptor near_;
  FileDescriptor far_;
};

TEST_F(DescriptorMessageTest, BytesAndDescriptorsArrive) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor in(ends[0]);
  const FileDescriptor out(ends[1]);
  const std::string bytes(3 << 20, 'a');  // more than a socket holds
  std::thread sender([&] {
    EXPECT_TRUE(
        SendMessage(near_.get(), bytes, {in.get(), out.get()}, kPatience).ok());
  });
  auto message = ReceiveMessage(far_.get(), bytes.size(), kPatience);
  sender.join();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->bytes, bytes);
  ASSERT_THAT(message->descriptors, SizeIs(2));
  EXPECT_EQ(write(message->descriptors[1].get(), "x", 1), 1);
  char read_back = 0;
  EXPECT_EQ(read(in.get(), &read_back, 1), 1);
  EXPECT_EQ(read_back, 'x');
  EXPECT_NE(fcntl(message->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(DescriptorMessageTest, AnEmptyOneIsAMessage) {
  ASSERT_TRUE(SendMessage(near_.get(), "", {}, kPatience).ok());
  EXPECT_EQ(ReceiveMessage(far_.get(), 0, kPatience)->bytes, "");
}

TEST_F(DescriptorMessageTest, WhatIsTooLongIsRefusedUnread) {
  ASSERT_TRUE(SendMessage(near_.get(), "12345", {}, kPatience).ok());
  const absl::Status refused =
      ReceiveMessage(far_.get(), 4, kPatience).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(refused.message(), HasSubstr("5 bytes; allowed: at most 4"));
}

TEST_F(DescriptorMessageTest, MoreDescriptorsThanAllowedAreRefused) {
  const std::vector<int> half(kMaxDescriptors / 2 + 1, near_.get());
  ASSERT_TRUE(SendMessage(near_.get(), "", half, kPatience).ok());
  ASSERT_TRUE(ReceiveMessage(far_.get(), 0, kPatience).ok());
  // Two empty messages as the bytes of one.
  const char length[] = {8, 0, 0, 0};
  ASSERT_EQ(send(near_.get(), length, sizeof(length), 0), 4);
  ASSERT_TRUE(SendMessage(near_.get(), "", half, kPatience).ok());
  ASSERT_TRUE(SendMessage(near_.get(), "", half, kPatience).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReceiveMessage(far_.get(), 8, kPatience).status()));
}

TEST_F(DescriptorMessageTest, SilenceEnds) {
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(ReceiveMessage(far_.get(), 8, kShort).status()));
  ASSERT_EQ(send(near_.get(), "\x08", 1, 0), 1);
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(ReceiveMessage(far_.get(), 8, kShort).status()));
  const std::string bytes(16 << 20, 'a');  // nobody reads
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(SendMessage(near_.get(), bytes, {}, kShort)));
}

TEST_F(DescriptorMessageTest, TheOtherEndMayBeGone) {
  far_ = FileDescriptor();
  EXPECT_TRUE(
      absl::IsUnavailable(ReceiveMessage(near_.get(), 8, kPatience).status()));
  EXPECT_TRUE(
      absl::IsUnavailable(SendMessage(near_.get(), "12", {}, kPatience)));
}

}  // namespace
}  // namespace agg
