// Streams that open and end in any order.
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/outcome_waiters.h"

namespace agg {
namespace {

using testing::SizeIs;

constexpr uint64_t kSession = 11;

class EventStreamsTest : public testing::Test {
 protected:
  uint64_t Open(int stream, uint64_t session = kSession) {
    return event_streams_.Open(
        session, [this, stream](const JobEvent&) { last_ = stream; });
  }
  // Which stream hears an event for the session.
  int Receiver() {
    last_ = 0;
    event_streams_.CallbackOf(kSession)(JobEvent());
    return last_;
  }

  EventStreams event_streams_;
  int last_ = 0;
};

TEST_F(EventStreamsTest, OneStream) {
  EXPECT_FALSE(event_streams_.Attends(kSession));
  EXPECT_EQ(event_streams_.CallbackOf(kSession), nullptr);
  const uint64_t stream = Open(1);
  EXPECT_TRUE(event_streams_.Attends(kSession));
  EXPECT_EQ(Receiver(), 1);
  EXPECT_EQ(event_streams_.Close(stream), kSession);
  EXPECT_FALSE(event_streams_.Attends(kSession));
  EXPECT_EQ(event_streams_.Close(stream), std::nullopt);
}

TEST_F(EventStreamsTest, TheFormerStreamEndsAfterTheNextHasBegun) {
  const uint64_t former = Open(1);
  const uint64_t next = Open(2);
  EXPECT_EQ(Receiver(), 2);
  EXPECT_EQ(event_streams_.Close(former), std::nullopt);
  EXPECT_EQ(Receiver(), 2);
  EXPECT_EQ(event_streams_.Close(next), kSession);
}

TEST_F(EventStreamsTest, TheNextStreamEndsFirst) {
  const uint64_t former = Open(1);
  const uint64_t next = Open(2);
  EXPECT_EQ(event_streams_.Close(next), kSession);
  EXPECT_FALSE(event_streams_.Attends(kSession));
  EXPECT_EQ(event_streams_.Close(former), std::nullopt);
}

TEST_F(EventStreamsTest, AForgottenSessionsStreamsMeanNothing) {
  const uint64_t stream = Open(1);
  Open(2, /*session=*/12);
  EXPECT_THAT(event_streams_.AllCallbacks(), SizeIs(2));
  event_streams_.Forget(kSession);
  EXPECT_EQ(event_streams_.Close(stream), std::nullopt);
  EXPECT_THAT(event_streams_.AllCallbacks(), SizeIs(1));
  event_streams_.ForgetAll();
  EXPECT_FALSE(event_streams_.Attends(12));
}

}  // namespace
}  // namespace agg
