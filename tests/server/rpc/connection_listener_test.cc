#include "server/rpc/connection_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

// One connection of TCP, and two of Unix sockets, one of which takes nothing.
class OvertakenReadersTest : public testing::Test {
 protected:
  OvertakenReadersTest() {
    OpenConnections::Calls calls;
    calls.inode = [](int fd) { return static_cast<uint64_t>(fd); };
    calls.untaken = [](int fd) { return fd == 4 ? 100 : 0; };
    calls.shut = [this](int fd, uint64_t) { shut_.push_back(fd); };
    connections_ = std::make_shared<OpenConnections>(10, &clock_, calls);
    connections_->Add({3, "10.0.0.1", "ipv4:10.0.0.1:50", false, 0});
    connections_->Add({4, "unix", "unix:", true, 104});
    connections_->Add({5, "unix", "unix:", true, 105});
    connections_->EndStuck(absl::Seconds(20));
    clock_.Advance(absl::Seconds(1));
    readers_ = std::make_unique<OvertakenReaders>(connections_, &clock_);
  }

  std::string Note(const std::string& who, const std::string& peer, bool cut) {
    testing::internal::CaptureStderr();
    readers_->Note({who, peer, 17, cut});
    return testing::internal::GetCapturedStderr();
  }

  FakeClock clock_;
  std::vector<int> shut_;
  std::shared_ptr<OpenConnections> connections_;
  std::unique_ptr<OvertakenReaders> readers_;
};

TEST_F(OvertakenReadersTest, AreNamedAndKeepTheirConnection) {
  EXPECT_THAT(Note("rank 3 (session 7)", "ipv4:10.0.0.1:50", false),
              AllOf(HasSubstr("rank 3 (session 7) (ipv4:10.0.0.1:50) does not "
                              "read: its pull of version 17 was ended"),
                    Not(HasSubstr("connection"))));
  EXPECT_THAT(shut_, IsEmpty());
}

TEST_F(OvertakenReadersTest, WhoCouldTakeOtherBytesForAVersionIsCutOff) {
  EXPECT_THAT(Note("a pull", "ipv4:10.0.0.1:50", true),
              HasSubstr("its connection is ended"));
  EXPECT_THAT(shut_, ElementsAre(3));
}

TEST_F(OvertakenReadersTest, OfUnixSocketsThoseThatTakeNothingAre) {
  EXPECT_THAT(Note("a pull", "unix:", true),
              AllOf(HasSubstr("(unix:, of process 104)"),
                    HasSubstr("its connection is ended")));
  EXPECT_THAT(shut_, ElementsAre(4));
}

TEST_F(OvertakenReadersTest, OneOfTcpThatIsGoneCostsNoUnixSocketItsConnection) {
  EXPECT_THAT(Note("a pull", "ipv4:10.0.0.1:51", true),
              Not(HasSubstr("its connection is ended")));
  EXPECT_THAT(shut_, IsEmpty());
}

TEST_F(OvertakenReadersTest, FillNoLog) {
  EXPECT_NE(Note("a", "", false), "");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Note("b", "", false), "");
  clock_.Advance(OvertakenReaders::kQuiet);
  EXPECT_THAT(Note("c", "", false),
              HasSubstr("so were 1000 other pulls since the last line"));
}

}  // namespace
}  // namespace agg
