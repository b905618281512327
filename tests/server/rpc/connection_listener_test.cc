#include "server/rpc/connection_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/mutex.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

FileDescriptor Connect(int port) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(
      connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  return fd;
}

// Keeps what is taken, and what is refused.
class ConnectionListenerTest : public ::testing::Test {
 protected:
  void Start(const std::string& address, int most) {
    ConnectionListener::Parts parts;
    auto ports = ListenOn(address);
    ASSERT_TRUE(ports.ok()) << ports.status();
    parts.ports = *std::move(ports);
    port_ = PortOf(parts.ports.front());
    parts.open = std::make_shared<OpenConnections>(most, Clock::Real());
    parts.take = [this](int, int fd, bool local) {
      MutexLock lock(&mutex_);
      EXPECT_FALSE(local);
      taken_.emplace_back(fd);
      changed_.NotifyAll();
    };
    parts.on_refused = [this](const std::string& host) {
      MutexLock lock(&mutex_);
      refused_.push_back(host);
      changed_.NotifyAll();
    };
    listener_ = std::make_unique<ConnectionListener>(std::move(parts));
  }
  void AwaitTaken(size_t number) {
    MutexLock lock(&mutex_);
    while (taken_.size() < number) changed_.Wait(&mutex_);
  }
  void AwaitRefused() {
    MutexLock lock(&mutex_);
    while (refused_.empty()) changed_.Wait(&mutex_);
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<FileDescriptor> taken_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> refused_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<ConnectionListener> listener_;
};

TEST_F(ConnectionListenerTest, TakesSoManyAndClosesTheNext) {
  Start("127.0.0.1:0", 2);
  const FileDescriptor first = Connect(port_);
  const FileDescriptor second = Connect(port_);
  AwaitTaken(2);
  const FileDescriptor third = Connect(port_);
  AwaitRefused();
  char byte;
  EXPECT_EQ(recv(third.get(), &byte, 1, 0), 0);
  listener_ = nullptr;
  MutexLock lock(&mutex_);
  EXPECT_EQ(refused_[0], "127.0.0.1");
  EXPECT_EQ(taken_.size(), 2);
}

TEST_F(ConnectionListenerTest, AllAddressesAreOfBothKinds) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "localhost:0"}) {
    Start(address, 2);
    const FileDescriptor four = Connect(port_);
    AwaitTaken(1);
    listener_ = nullptr;
    MutexLock lock(&mutex_);
    taken_.clear();
  }
}

TEST(ListenOnTest, APortInUseIsAnErrorWithAdvice) {
  const auto first = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  const std::string address =
      absl::StrCat("127.0.0.1:", PortOf(first->front()));
  const auto second = ListenOn(address);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              ::testing::AllOf(HasSubstr(address), HasSubstr("ss -ltnp")));
}

TEST(ListenOnTest, ANameWithoutAnAddressIsAnError) {
  EXPECT_EQ(ListenOn("no.such.host.invalid:1").status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace agg
