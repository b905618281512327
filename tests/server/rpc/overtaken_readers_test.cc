#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/rpc/connection_listener.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
