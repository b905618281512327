// How long a call that an epoch's end has failed waits for the reason.
#include "worker_client/membership.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT

#include "tests/worker_client/recovery_fixture.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// Stands still; who calls Persist may do something each time that it looks.
class LookedAtClock : public Clock {
 public:
  absl::Time Now() const override {
    if (std::this_thread::get_id() == watched_ && on_look_) on_look_();
    return clock_.Now();
  }
  void Advance(absl::Duration duration) { clock_.Advance(duration); }
  // REQUIRES: Persist is not called meanwhile.
  void Watch(std::function<void()> on_look) { on_look_ = std::move(on_look); }

 private:
  const std::thread::id watched_ = std::this_thread::get_id();
  FakeClock clock_;
  std::function<void()> on_look_;
};

class MembershipTest : public RecoveryTest {
 protected:
  void Open() {
    ClientOptions options = Options();
    options.recovery_window = absl::ZeroDuration();
    auto opened = Membership::Open(options, &clock);
    ASSERT_TRUE(opened.ok()) << opened.status();
    membership = *std::move(opened);
  }

  absl::Status Persist() {
    return membership->Persist(
        absl::InfiniteFuture(),
        [](const Membership::View&) { return absl::AbortedError("stale"); });
  }

  LookedAtClock clock;  // outlives the membership
  std::unique_ptr<Membership> membership;
  int looks = 0;
};

TEST_F(MembershipTest, TheReasonThatComesMeanwhileIsSaid) {
  ASSERT_NO_FATAL_FAILURE(Open());
  job.End(kReason, /*said=*/false);
  clock.Watch([this] {
    // When the call began, when the wait did, and then in it.
    if (++looks == 3) job.End(kReason);
    // Without a reason this ends, too, but far later than it can come.
    clock.Advance(absl::Milliseconds(1));
  });
  const absl::Status status = Persist();
  clock.Watch(nullptr);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kReason));
  EXPECT_GE(looks, 3);
}

TEST_F(MembershipTest, WithoutAReasonTheCallFailsAfterTwoSeconds) {
  ASSERT_NO_FATAL_FAILURE(Open());
  job.End(kReason, /*said=*/false);
  clock.Watch([this] {
    if (++looks > 2) clock.Advance(absl::Milliseconds(500));
  });
  EXPECT_EQ(Persist(), absl::AbortedError("stale"));
  clock.Watch(nullptr);
  EXPECT_EQ(looks, 2 + 4);  // at 0.5, 1, 1.5 and 2 s
}

TEST_F(MembershipTest, ACallWhoseEpochGoesOnWaitsForNothing) {
  ASSERT_NO_FATAL_FAILURE(Open());
  clock.Watch([this] { ++looks; });
  EXPECT_EQ(Persist(), absl::AbortedError("stale"));
  clock.Watch(nullptr);
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace agg
