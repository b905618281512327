
#include <sys/socket.h>

#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "server/base/local_socket.h"

namespace agg {
namespace {

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

}  // namespace
}  // namespace agg
