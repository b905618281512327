// A coordinator beside another one of its job: it waits, touches no shard, and
// goes on when the other one has gone (P21).
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/base/job_phase.h"
#include "server/coordinator/coordinator.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"
#include "tests/server/round/faulty_peer.h"

namespace agg {
namespace {

using testing::HasSubstr;

// Counts what a coordinator asks for.
class CountingPeer : public IdlePeer {
 public:
  CountingPeer() : IdlePeer("shard 0 (test)") {}
  absl::StatusOr<ShardInventory> Attach(
      uint64_t, std::function<void(absl::Status)>) override {
    ++num_attached;
    if (!attach_status.ok()) return attach_status;
    return ShardInventory();
  }
  void LetGo() override { ++num_let_go; }

  absl::Status attach_status;
  int num_attached = 0;
  int num_let_go = 0;
};

class StandbyTest : public testing::Test {
 protected:
  CountingPeer peer_;
  FakeClock clock_;
  int num_asked_ = 0;
  std::string other_ = "another one answers at h:1";
  Coordinator coordinator_{
      CoordinatorOptions(), {&peer_}, &clock_, nullptr, [this] {
        ++num_asked_;
        return other_;
      }};
};

TEST_F(StandbyTest, WaitsUntilTheOtherOneHasGone) {
  EXPECT_TRUE(coordinator_.RunOnce());
  EXPECT_FALSE(coordinator_.RunOnce());
  EXPECT_EQ(num_asked_, 1);
  const JobStatus status = coordinator_.Status();
  EXPECT_EQ(status.phase, JobPhase::kWaitingForShards);
  EXPECT_THAT(status.message, HasSubstr("standby: another one answers at h:1"));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(coordinator_.RunOnce());
  EXPECT_EQ(num_asked_, 2);
  EXPECT_EQ(peer_.num_attached, 0);
  other_ = "";
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(coordinator_.RunOnce());
  EXPECT_EQ(peer_.num_attached, 1);
  EXPECT_EQ(coordinator_.Status().phase, JobPhase::kUnseeded);
  EXPECT_EQ(coordinator_.Status().message, "");
  EXPECT_EQ(peer_.num_let_go, 0);
}

// With two shards one promise may be forgotten between the first look and the
// last promise (tests/sim/README.md 6).
TEST_F(StandbyTest, LooksOnceMoreAfterTheLastPromise) {
  other_ = "";
  EXPECT_TRUE(coordinator_.RunOnce());
  EXPECT_EQ(num_asked_, 2);
  EXPECT_EQ(peer_.num_attached, 1);
}

// It was frozen, and another process has its address now.
TEST_F(StandbyTest, WhoIsReplacedEndsOnce) {
  other_ = "";
  std::vector<absl::Status> ends;
  coordinator_.SetOnSuperseded(
      [&](const absl::Status& status) { ends.push_back(status); });
  EXPECT_TRUE(coordinator_.RunOnce());
  coordinator_.CheckAddress();
  EXPECT_TRUE(ends.empty());
  other_ = "another one answers at h:1";
  coordinator_.CheckAddress();
  coordinator_.CheckAddress();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_THAT(std::string(ends[0].message()),
              HasSubstr("superseded: another one answers at h:1"));
}

TEST_F(StandbyTest, AStandbyIsNotSuperseded) {
  std::vector<absl::Status> ends;
  coordinator_.SetOnSuperseded(
      [&](const absl::Status& status) { ends.push_back(status); });
  EXPECT_TRUE(coordinator_.RunOnce());
  coordinator_.CheckAddress();
  EXPECT_TRUE(ends.empty());
}

TEST_F(StandbyTest, WhoDoesNotGetAllShardsLetsGoOfAll) {
  other_ = "";
  peer_.attach_status = absl::FailedPreconditionError("held by h:2");
  EXPECT_TRUE(coordinator_.RunOnce());
  EXPECT_EQ(peer_.num_let_go, 1);
  EXPECT_THAT(coordinator_.Status().message, HasSubstr("held by h:2"));
}

}  // namespace
}  // namespace agg
