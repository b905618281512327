#include "server/checkpoint/checkpoint_state.h"

#include <vector>

#include "gtest/gtest.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {
namespace {

constexpr CheckpointId kA{1, 50};
constexpr CheckpointId kB{2, 10};

bool Is(const absl::optional<CheckpointId>& found, const CheckpointId& id) {
  return found.has_value() && *found == id;
}

TEST(NewestCheckpointTest, TheEpochGoesBeforeTheVersion) {
  const std::vector<CheckpointState> states = {{kB, 1, {0}, true},
                                               {kA, 1, {0}, true}};
  EXPECT_TRUE(Is(NewestCheckpoint(states, {}), kB));
  EXPECT_TRUE(Is(NewestCheckpoint(states, {kB}), kA));
  EXPECT_FALSE(NewestCheckpoint(states, {kA, kB}).has_value());
}

TEST(NewestCheckpointTest, ProcessesCompleteEachOther) {
  // One has the manifest, each its own part.
  EXPECT_TRUE(
      Is(NewestCheckpoint({{kB, 2, {0}, true}, {kB, 2, {1}, false}}, {}), kB));
  // All share one folder.
  EXPECT_TRUE(
      Is(NewestCheckpoint({{kB, 2, {0, 1}, true}, {kB, 2, {0, 1}, true}}, {}),
         kB));
}

TEST(NewestCheckpointTest, WithoutManifestOrPartItIsNotComplete) {
  EXPECT_FALSE(NewestCheckpoint({}, {}).has_value());
  EXPECT_FALSE(NewestCheckpoint({{kB, 2, {0, 1}, false}}, {}).has_value());
  EXPECT_FALSE(NewestCheckpoint({{kB, 2, {1}, true}}, {}).has_value());
  EXPECT_FALSE(NewestCheckpoint({{kB, 0, {}, true}}, {}).has_value());
  EXPECT_FALSE(NewestCheckpoint({{kB, 1, {0}, true}, {kB, 2, {1}, true}}, {})
                   .has_value());
}

}  // namespace
}  // namespace agg
