#include <arpa/inet.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "server/base/clock.h"
#include "server/base/local_socket.h"
#include "server/base/mutex.h"
#include "server/rpc/connection_listener.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Listens on a port of loopback.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, any, size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, any, &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Listener() { close(fd_); }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

std::string MessageOf(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  return std::string(status.message());
}

TEST(ListenCheckTest, APortThatIsLetGoIsFreeAgain) {
  EXPECT_TRUE(ListenOn("127.0.0.1:0").ok());
  std::string address;
  {
    Listener listener;
    address = listener.address();
  }
  EXPECT_TRUE(ListenOn(address).ok());
  EXPECT_TRUE(ListenOn(address).ok());
}

TEST(ListenCheckTest, ANameIsResolved) {
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, nullptr, &found) != 0) {
    GTEST_SKIP() << "this host does not know the name localhost (/etc/hosts)";
  }
  freeaddrinfo(found);
  EXPECT_TRUE(ListenOn("localhost:0").ok());
}

TEST(ListenCheckTest, TellsAPortInUseFromAnAddressOfAnotherHost) {
  Listener listener;
  EXPECT_THAT(MessageOf(ListenOn(listener.address()).status()),
              AllOf(HasSubstr("cannot listen on " + listener.address()),
                    HasSubstr("Address already in use"), HasSubstr("--port")));
  // TEST-NET-1 of RFC 5737: no host's.
  EXPECT_THAT(
      MessageOf(ListenOn("192.0.2.1:0").status()),
      AllOf(HasSubstr("Cannot assign requested address"), HasSubstr("--bind")));
  EXPECT_THAT(MessageOf(ListenOn("no-such-host.invalid:0").status()),
              HasSubstr("cannot listen on no-such-host.invalid:0: "));
}

TEST(ListenCheckTest, APrivilegedPortIsNotCalledInUse) {
  EXPECT_THAT(
      MessageOf(ListenError("127.0.0.1:80", EACCES)),
      AllOf(HasSubstr("cannot listen on 127.0.0.1:80: Permission denied"),
            HasSubstr("below 1024")));
}

// A connection is found by what gRPC calls its other end, and gRPC finds it
// broken once it is ended.

// Notes who attends, and keeps each stream until it breaks.
class Hall : public v1::Coordinator::CallbackService {
 public:
  std::string AwaitPeer() {
    MutexLock lock(&mutex_);
    while (peer_.empty()) changed_.Wait(&mutex_);
    return std::exchange(peer_, "");
  }

 private:
  class Stream
      : public grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent> {
   public:
    Stream() { StartRead(&renewal_); }
    void OnReadDone(bool) override { Finish(grpc::Status::OK); }
    void OnDone() override { delete this; }

   private:
    v1::LeaseRenewal renewal_;
  };

  grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent>* Attend(
      grpc::CallbackServerContext* context) override {
    MutexLock lock(&mutex_);
    peer_ = context->peer();
    changed_.NotifyAll();
    return new Stream;
  }

  Mutex mutex_;
  CondVar changed_;
  std::string peer_ ABSL_GUARDED_BY(mutex_);
};

class EndedConnectionTest : public testing::Test {
 protected:
  void Serve(const std::string& address, const std::string& local = "") {
    grpc::ServerBuilder builder;
    builder.RegisterService(&hall_);
    const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor>
        acceptor = builder.experimental().AddExternalConnectionAcceptor(
            grpc::ServerBuilder::experimental_type::ExternalConnectionType::
                FROM_FD,
            grpc::InsecureServerCredentials());
    server_ = builder.BuildAndStart();
    ConnectionListener::Parts parts;
    auto ports = ListenOn(address);
    ASSERT_TRUE(ports.ok()) << ports.status();
    port_ = PortOf(ports->front());
    parts.ports = *std::move(ports);
    if (!local.empty()) {
      parts.local_sockets.push_back(*ListenLocally(local));
    }
    parts.open = open_;
    parts.take = [acceptor](int listener, int fd, bool) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
          connection;
      connection.listener_fd = listener;
      connection.fd = fd;
      acceptor->HandleNewConnection(&connection);
    };
    listener_ = std::make_unique<ConnectionListener>(std::move(parts));
  }
  ~EndedConnectionTest() override {
    listener_ = nullptr;
    if (server_ != nullptr) server_->Shutdown();
  }

  // A call to the target, and whether its connection could be ended.
  bool Attend(const std::string& target) {
    const auto stub = v1::Coordinator::NewStub(
        grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    const auto stream = stub->Attend(&context);
    const bool ended = open_->End(hall_.AwaitPeer());
    if (!ended) stream->WritesDone();
    v1::JobEvent event;
    EXPECT_FALSE(stream->Read(&event));
    EXPECT_EQ(stream->Finish().ok(), !ended);
    return ended;
  }

  Hall hall_;
  const std::shared_ptr<OpenConnections> open_ =
      std::make_shared<OpenConnections>(10, Clock::Real());
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<ConnectionListener> listener_;
};

TEST_F(EndedConnectionTest, IsThatOfTheCall) {
  Serve("127.0.0.1:0");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Attend(absl::StrCat("127.0.0.1:", port_)));
  }
}

TEST_F(EndedConnectionTest, MayComeToASocketOfBothKinds) {
  Serve("0.0.0.0:0");
  EXPECT_TRUE(Attend(absl::StrCat("127.0.0.1:", port_)));
}

TEST_F(EndedConnectionTest, MayBeIpv6) {
  if (!ListenOn("[::1]:0").ok()) GTEST_SKIP() << "this machine has no ::1";
  Serve("[::1]:0");
  EXPECT_TRUE(Attend(absl::StrCat("[::1]:", port_)));
}

TEST_F(EndedConnectionTest, IsNotAnyOneOfAUnixSocket) {
  const std::string name = LocalSocketName(0x7e57c0de00000000u + getpid());
  Serve("127.0.0.1:0", name);
  EXPECT_FALSE(Attend(LocalSocketTarget(name)));
}

}  // namespace
}  // namespace agg
