// Streams that open and end in any order.
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/outcome_waiters.h"

namespace agg {
namespace {

using testing::SizeIs;

constexpr uint64_t kSession = 11;

class AttendanceTest : public testing::Test {
 protected:
  uint64_t Open(int stream, uint64_t session = kSession) {
    return attendance_.Open(
        session, [this, stream](const JobEvent&) { last_ = stream; });
  }
  // Which stream hears an event for the session.
  int Receiver() {
    last_ = 0;
    attendance_.CallbackOf(kSession)(JobEvent());
    return last_;
  }

  Attendance attendance_;
  int last_ = 0;
};

TEST_F(AttendanceTest, OneStream) {
  EXPECT_FALSE(attendance_.Attends(kSession));
  EXPECT_EQ(attendance_.CallbackOf(kSession), nullptr);
  const uint64_t stream = Open(1);
  EXPECT_TRUE(attendance_.Attends(kSession));
  EXPECT_EQ(Receiver(), 1);
  EXPECT_EQ(attendance_.Close(stream), kSession);
  EXPECT_FALSE(attendance_.Attends(kSession));
  EXPECT_EQ(attendance_.Close(stream), std::nullopt);
}

TEST_F(AttendanceTest, TheFormerStreamEndsAfterTheNextHasBegun) {
  const uint64_t former = Open(1);
  const uint64_t next = Open(2);
  EXPECT_EQ(Receiver(), 2);
  EXPECT_EQ(attendance_.Close(former), std::nullopt);
  EXPECT_EQ(Receiver(), 2);
  EXPECT_EQ(attendance_.Close(next), kSession);
}

TEST_F(AttendanceTest, TheNextStreamEndsFirst) {
  const uint64_t former = Open(1);
  const uint64_t next = Open(2);
  EXPECT_EQ(attendance_.Close(next), kSession);
  EXPECT_FALSE(attendance_.Attends(kSession));
  EXPECT_EQ(attendance_.Close(former), std::nullopt);
}

TEST_F(AttendanceTest, AForgottenSessionsStreamsMeanNothing) {
  const uint64_t stream = Open(1);
  Open(2, /*session=*/12);
  EXPECT_THAT(attendance_.AllCallbacks(), SizeIs(2));
  attendance_.Forget(kSession);
  EXPECT_EQ(attendance_.Close(stream), std::nullopt);
  EXPECT_THAT(attendance_.AllCallbacks(), SizeIs(1));
  attendance_.ForgetAll();
  EXPECT_FALSE(attendance_.Attends(12));
}

}  // namespace
}  // namespace agg
