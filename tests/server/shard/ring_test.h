// Two shards with Adam and two workers: what tests of recoveries begin with.
#ifndef AGG_TESTS_SERVER_SHARD_RING_TEST_H_
#define AGG_TESTS_SERVER_SHARD_RING_TEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_options.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/round/row_frames.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {

inline ShardOptions Adam() {
  ShardOptions options;
  options.max_workers = 3;
  options.workers = 2;
  options.life = 100;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.groups = {{"slow", 0.25f, 0.5f}};
  return options;
}

class RingTest : public testing::Test {
 protected:
  void Begin() { ring_.Begin(); }
  // The bits that an undisturbed run has.
  static Tensors Undisturbed(uint64_t rounds) {
    ShardRing ring(1, Adam(), RingTensors());
    ring.Begin();
    for (uint64_t round = 0; round < rounds; ++round) ring.RunRound(round);
    return *ring.Pull(rounds);
  }
  absl::Status Error(const Phase& phase) {
    return ring_.Run(0, phase).status();
  }

  Phase Recover(CopyAction home, const VersionId& target) {
    Phase phase = ring_.MakePhase(PhaseKind::kRecover);
    phase.recover.home = home;
    phase.recover.target = target;
    return phase;
  }

  SimDisk disk_;  // outlives the shards, which use it if they are told to
  ShardRing ring_{2, Adam(), RingTensors()};
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_SHARD_RING_TEST_H_
