// A coordinator behind a loopback server is found, itself and others are told
// apart.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/rpc_server.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class CoordinatorProbeTest : public testing::Test {
 protected:
  CoordinatorProbeTest() { shard_.Serve(&coordinator_); }

  std::string Ask(uint64_t life, const std::string& job = "test") {
    return FindOtherCoordinator(
        {shard_.address(), job, life, TlsOptions(), absl::Seconds(20)});
  }

  LoopbackShard shard_{0, 1};
  FakeClock clock_;
  Coordinator coordinator_{
      CoordinatorOptions(), {shard_.engine()}, &clock_, nullptr};
};

TEST_F(CoordinatorProbeTest, FindsAnotherLifeOfTheJob) {
  const std::string other = Ask(kLoopbackLife + 1);
  EXPECT_THAT(other, HasSubstr(shard_.address()));
  EXPECT_THAT(other, HasSubstr("\"test\""));
}

TEST_F(CoordinatorProbeTest, ItselfAndOtherJobsAreNoOthers) {
  EXPECT_THAT(Ask(kLoopbackLife), IsEmpty());
  EXPECT_THAT(Ask(kLoopbackLife + 1, "another job"), IsEmpty());
}

TEST_F(CoordinatorProbeTest, NobodyThere) {
  const CoordinatorProbe probe = {shard_.address(), "test", 1};
  shard_.Stop();
  EXPECT_THAT(FindOtherCoordinator(probe), IsEmpty());
}

}  // namespace
}  // namespace agg
