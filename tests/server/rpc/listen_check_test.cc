
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace agg
