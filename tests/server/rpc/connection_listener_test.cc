#include "server/rpc/connection_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/file_descriptor.h"
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

// Descriptors are numbers here, and each open one has an inode of its own.
class OpenConnectionsTest : public ::testing::Test {
 protected:
  bool Add(OpenConnections* open, int fd, const std::string& host) {
    NewConnection connection;
    connection.fd = fd;
    connection.host = host;
    connection.peer = absl::StrCat("ipv4:", host, ":", fd);
    return Add(open, connection);
  }
  bool Add(OpenConnections* open, const NewConnection& connection) {
    inodes_[connection.fd] = ++last_inode_;
    const bool added = open->Add(connection);
    if (!added) inodes_.erase(connection.fd);
    return added;
  }
  bool AddLocal(OpenConnections* open, int fd, int32_t process) {
    NewConnection connection;
    connection.fd = fd;
    connection.host = "unix";
    connection.peer = "unix:";
    connection.local = true;
    connection.process = process;
    return Add(open, connection);
  }
  std::unique_ptr<OpenConnections> Make(int most) {
    OpenConnections::Calls calls;
    calls.inode = [this](int fd) {
      const auto found = inodes_.find(fd);
      return found == inodes_.end() ? 0 : found->second;
    };
    calls.untaken = [this](int fd) { return untaken_[fd]; };
    calls.shut = [this](int fd, uint64_t inode) {
      EXPECT_EQ(inode, inodes_[fd]);
      shut_.push_back(fd);
    };
    return std::make_unique<OpenConnections>(most, &clock_, calls);
  }

  FakeClock clock_;
  uint64_t last_inode_ = 0;
  std::map<int, uint64_t> inodes_;
  std::map<int, int64_t> untaken_;
  std::vector<int> shut_;
};

TEST_F(OpenConnectionsTest, NoMoreThanThereArePlaces) {
  const auto open = Make(8);
  for (int fd = 0; fd < 8; ++fd) {
    EXPECT_TRUE(Add(open.get(), fd, absl::StrCat("host ", fd)));
  }
  EXPECT_FALSE(Add(open.get(), 8, "another"));
  EXPECT_EQ(open->size(), 8);
}

TEST_F(OpenConnectionsTest, PlacesOfClosedOnesAreGivenAgain) {
  const auto open = Make(4);
  for (int fd = 0; fd < 4; ++fd) ASSERT_TRUE(Add(open.get(), fd, "a"));
  ASSERT_FALSE(Add(open.get(), 9, "a"));
  inodes_.erase(1);
  inodes_[2] = 1000;  // closed, and a file of something else has the number
  EXPECT_FALSE(Add(open.get(), 9, "a"));  // it has just looked
  clock_.Advance(OpenConnections::kLook);
  EXPECT_TRUE(Add(open.get(), 9, "a"));
  EXPECT_EQ(open->size(), 3);
  EXPECT_TRUE(Add(open.get(), 1, "a"));
}

TEST_F(OpenConnectionsTest, ADescriptorThatIsGivenAgainCountsOnce) {
  const auto open = Make(2);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Add(open.get(), 3, "a"));
  EXPECT_EQ(open->size(), 1);
}

TEST_F(OpenConnectionsTest, TheLastPlacesAreForHostsWithFew) {
  const auto open = Make(256);
  int fd = 0;
  while (fd < 224) ASSERT_TRUE(Add(open.get(), fd++, "many"));
  EXPECT_FALSE(Add(open.get(), fd, "many"));
  for (int i = 0; i < OpenConnections::kFew; ++i) {
    ASSERT_TRUE(Add(open.get(), fd++, "few"));
  }
  EXPECT_FALSE(Add(open.get(), fd, "few"));
  EXPECT_TRUE(Add(open.get(), fd, "another"));
}

TEST_F(OpenConnectionsTest, EndsTheConnectionOfACallByItsPeer) {
  const auto open = Make(8);
  NewConnection six;
  six.fd = 4;
  six.peer = "ipv6:[fe80::1%2]:50";
  ASSERT_TRUE(Add(open.get(), six));
  ASSERT_TRUE(Add(open.get(), 5, "10.0.0.1"));
  ASSERT_TRUE(AddLocal(open.get(), 6, 77));
  EXPECT_TRUE(open->End("ipv4:10.0.0.1:5"));
  EXPECT_THAT(shut_, ElementsAre(5));
  EXPECT_TRUE(open->End("ipv6:%5Bfe80::1%252%5D:50"));
  EXPECT_THAT(shut_, ElementsAre(5, 4));
  EXPECT_FALSE(open->End("ipv4:10.0.0.1:6"));
  EXPECT_FALSE(open->End("unix:"));
  inodes_[5] = 1000;  // closed, and the number is another file's
  EXPECT_FALSE(open->End("ipv4:10.0.0.1:5"));
  EXPECT_THAT(shut_, ElementsAre(5, 4));
}

TEST_F(OpenConnectionsTest, APeersNewConnectionIsTheOneThatIsEnded) {
  const auto open = Make(8);
  NewConnection connection;
  connection.fd = 3;
  connection.peer = "ipv4:10.0.0.1:99";
  ASSERT_TRUE(Add(open.get(), connection));
  connection.fd = 9;  // the first one is closed, and nobody has looked yet
  ASSERT_TRUE(Add(open.get(), connection));
  ASSERT_TRUE(Add(open.get(), 3, "another"));
  EXPECT_TRUE(open->End("ipv4:10.0.0.1:99"));
  EXPECT_THAT(shut_, ElementsAre(9));
}

TEST_F(OpenConnectionsTest, LocalOnesWhoseOtherEndTakesNothingAreEnded) {
  const auto open = Make(8);
  ASSERT_TRUE(AddLocal(open.get(), 3, 103));    // takes nothing
  ASSERT_TRUE(AddLocal(open.get(), 4, 104));    // takes some
  ASSERT_TRUE(AddLocal(open.get(), 5, 105));    // nothing waits for it
  ASSERT_TRUE(Add(open.get(), 6, "10.0.0.1"));  // the kernel's
  untaken_ = {{3, 100}, {4, 100}, {5, 0}, {6, 100}};
  const absl::Duration timeout = absl::Seconds(20);
  for (int second = 0; second < 20; ++second) {
    EXPECT_THAT(open->EndStuck(timeout), IsEmpty());
    --untaken_[4];
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(open->Unread(), ElementsAre(103, 104));
  EXPECT_THAT(open->EndStuck(timeout), ElementsAre(103));
  EXPECT_THAT(shut_, ElementsAre(3));
  inodes_.erase(3);
  for (int second = 0; second < 30; ++second) {
    clock_.Advance(absl::Seconds(1));
    --untaken_[4];
    EXPECT_THAT(open->EndStuck(timeout), IsEmpty());
  }
  EXPECT_EQ(open->size(), 3);
}

TEST_F(OpenConnectionsTest, WhoTakesAllBeginsAnew) {
  const auto open = Make(8);
  ASSERT_TRUE(AddLocal(open.get(), 3, 103));
  const absl::Duration timeout = absl::Seconds(20);
  for (int second = 0; second < 100; ++second) {
    untaken_[3] = second % 15 == 0 ? 0 : 100;
    EXPECT_THAT(open->EndStuck(timeout), IsEmpty());
    clock_.Advance(absl::Seconds(1));
  }
}

TEST_F(OpenConnectionsTest, WhenMemoryIsWantedTheLastLookTells) {
  const auto open = Make(8);
  ASSERT_TRUE(AddLocal(open.get(), 3, 103));
  ASSERT_TRUE(AddLocal(open.get(), 4, 104));
  untaken_ = {{3, 100}, {4, 100}};
  EXPECT_THAT(open->EndUnread(), IsEmpty());  // nobody has looked before
  open->EndStuck(absl::Seconds(20));
  EXPECT_THAT(open->EndUnread(), IsEmpty());  // too short to tell
  clock_.Advance(OpenConnections::kLook);
  untaken_[4] = 99;
  EXPECT_THAT(open->EndUnread(), ElementsAre(103));
  EXPECT_THAT(shut_, ElementsAre(3));
  EXPECT_THAT(open->EndUnread(), IsEmpty());  // many readers, one connection
  EXPECT_THAT(shut_, ElementsAre(3));
}

// The descriptor's number is another file's by now, with as many bytes.
TEST_F(OpenConnectionsTest, AClosedOneHasNothingUnread) {
  const auto open = Make(8);
  ASSERT_TRUE(AddLocal(open.get(), 3, 103));
  untaken_ = {{3, 100}};
  open->EndStuck(absl::Seconds(20));
  clock_.Advance(OpenConnections::kLook);
  inodes_[3] = 1000;
  EXPECT_THAT(open->Unread(), IsEmpty());
  EXPECT_THAT(open->EndUnread(), IsEmpty());
  EXPECT_THAT(shut_, IsEmpty());
}

TEST(PeerOfTest, NamesTheOtherEndAsGrpcDoes) {
  sockaddr_storage address = {};
  auto& four = reinterpret_cast<sockaddr_in&>(address);
  four.sin_family = AF_INET;
  four.sin_port = htons(50051);
  inet_pton(AF_INET, "10.1.2.3", &four.sin_addr);
  EXPECT_EQ(PeerOf(address), "ipv4:10.1.2.3:50051");
  address = {};
  auto& six = reinterpret_cast<sockaddr_in6&>(address);
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(7);
  inet_pton(AF_INET6, "fe80::1", &six.sin6_addr);
  EXPECT_EQ(PeerOf(address), "ipv6:[fe80::1]:7");
  six.sin6_scope_id = 2;
  EXPECT_EQ(PeerOf(address), "ipv6:[fe80::1%2]:7");
  six.sin6_scope_id = 0;
  inet_pton(AF_INET6, "::ffff:10.1.2.3", &six.sin6_addr);
  EXPECT_EQ(PeerOf(address), "ipv4:10.1.2.3:7");
  address = {};
  address.ss_family = AF_UNIX;
  EXPECT_EQ(PeerOf(address), "unix:");
}

// Both ends of a connection of this process, and what the system says of it.
TEST(SystemCallsTest, AnEndIsSeenAndNothingGoesOutAnyMore) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const FileDescriptor near(ends[0]), far(ends[1]);
  const OpenConnections::Calls calls = OpenConnections::SystemCalls();
  EXPECT_EQ(calls.untaken(near.get()), 0);
  ASSERT_EQ(send(near.get(), "abc", 3, 0), 3);
  EXPECT_GT(calls.untaken(near.get()), 0);
  const uint64_t inode = calls.inode(near.get());
  calls.shut(near.get(), inode + 1);  // of another file: not touched
  ASSERT_EQ(send(near.get(), "d", 1, 0), 1);
  calls.shut(near.get(), inode);
  EXPECT_EQ(send(near.get(), "e", 1, MSG_NOSIGNAL), -1);
  char bytes[8];
  EXPECT_EQ(recv(far.get(), bytes, sizeof(bytes), 0), 4);
  EXPECT_EQ(recv(far.get(), bytes, sizeof(bytes), 0), 0);
  calls.shut(-1, inode);  // a closed one
}

TEST(SystemInodeTest, DiffersForOpenDescriptorsAndIsNoneForClosedOnes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const uint64_t inode = OpenConnections::SystemInode(ends[0]);
  EXPECT_NE(inode, 0);
  EXPECT_NE(inode, OpenConnections::SystemInode(0));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(OpenConnections::SystemInode(ends[0]), 0);
}

TEST(PlacesForConnectionsTest, StayBelowTheLimitOfFiles) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GE(before.rlim_max, 1000);
  EXPECT_EQ(PlacesForConnections(10), 10);
  rlimit few = before;
  few.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(PlacesForConnections(400), 400);  // the soft limit was raised
  rlimit raised = {};
  getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_GE(raised.rlim_cur, 912);
  few.rlim_cur = 600;
  few.rlim_max = 600;  // from here on for good
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(PlacesForConnections(4096), 300);
}

TEST_F(OpenConnectionsTest, OneEndsWithItsCertificate) {
  const auto open = Make(8);
  ASSERT_TRUE(Add(open.get(), 3, "a"));
  ASSERT_TRUE(Add(open.get(), 4, "b"));
  ASSERT_TRUE(Add(open.get(), 5, "c"));
  EXPECT_FALSE(open->KnowsExpiry("ipv4:a:3"));
  EXPECT_TRUE(open->NoteExpiry("ipv4:a:3", clock_.Now() + absl::Seconds(10)));
  EXPECT_TRUE(open->NoteExpiry("ipv4:b:4", clock_.Now() + absl::Seconds(30)));
  EXPECT_TRUE(open->KnowsExpiry("ipv4:a:3"));
  EXPECT_THAT(open->EndExpired(), IsEmpty());
  clock_.Advance(absl::Seconds(10));
  EXPECT_FALSE(open->KnowsExpiry("ipv4:a:3"));
  EXPECT_THAT(open->EndExpired(), ElementsAre("ipv4:a:3"));
  EXPECT_THAT(open->EndExpired(), IsEmpty());
  EXPECT_THAT(shut_, ElementsAre(3));
  // Its first call comes when it is over already.
  EXPECT_FALSE(open->NoteExpiry("ipv4:c:5", clock_.Now()));
  EXPECT_THAT(open->EndExpired(), ElementsAre("ipv4:c:5"));
  // Its owner has left, and gRPC has closed it.
  ASSERT_TRUE(Add(open.get(), 6, "e"));
  EXPECT_TRUE(open->NoteExpiry("ipv4:e:6", clock_.Now() + absl::Seconds(1)));
  inodes_[6] = 1000;
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(open->EndExpired(), IsEmpty());
  // Of a connection that is gone by now.
  EXPECT_TRUE(open->NoteExpiry("ipv4:d:6", clock_.Now() + absl::Seconds(10)));
  clock_.Advance(absl::Seconds(10));
  EXPECT_THAT(open->EndExpired(), IsEmpty());
}

// They cannot be told apart by what a call says of them.
TEST_F(OpenConnectionsTest, UnixSocketsEndWithTheFirstCertificateOfThem) {
  const auto open = Make(8);
  ASSERT_TRUE(Add(open.get(), 3, "a"));
  ASSERT_TRUE(AddLocal(open.get(), 4, 77));
  ASSERT_TRUE(AddLocal(open.get(), 5, 78));
  EXPECT_TRUE(open->NoteExpiry("unix:", clock_.Now() + absl::Seconds(10)));
  EXPECT_TRUE(open->NoteExpiry("unix:", clock_.Now() + absl::Seconds(20)));
  EXPECT_FALSE(open->KnowsExpiry("unix:"));
  clock_.Advance(absl::Seconds(10));
  EXPECT_THAT(open->EndExpired(),
              ElementsAre("a Unix socket (all of these are ended)"));
  EXPECT_THAT(shut_, ElementsAre(4, 5));
  EXPECT_THAT(open->EndExpired(), IsEmpty());
}

// Of TCP and of Unix sockets.
TEST_F(OpenConnectionsTest, AllCanBeEnded) {
  const auto open = Make(8);
  ASSERT_TRUE(Add(open.get(), 3, "a"));
  ASSERT_TRUE(AddLocal(open.get(), 4, 77));
  open->EndAll();
  EXPECT_THAT(shut_, ElementsAre(3, 4));
}

}  // namespace
}  // namespace agg
