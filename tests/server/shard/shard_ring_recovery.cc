// What a coordinator would decide and ask for between two epochs.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {
namespace {

CopyAction ActionFor(const ShardInventory& inventory, int32_t part,
                     const VersionId& target) {
  for (const CopyState& copy : inventory.copies) {
    if (copy.part != part) continue;
    if (copy.id == target) return CopyAction::kKeep;
    if (copy.whole && copy.prepared_by == target.made &&
        copy.id.version + 1 == target.version) {
      return CopyAction::kStep;
    }
  }
  return CopyAction::kVoid;
}

// P18, without frozen processes and abandoned pasts.
VersionId Decide(const std::vector<ShardInventory>& inventories) {
  VersionId newest;
  for (const ShardInventory& inventory : inventories) {
    for (const CopyState& copy : inventory.copies) {
      if (newest < copy.id) newest = copy.id;
    }
  }
  bool forward = true;
  uint64_t prepared_by = 0;
  for (const ShardInventory& inventory : inventories) {
    for (const CopyState& copy : inventory.copies) {
      if (!(copy.id == newest) || !copy.whole) forward = false;
      prepared_by = copy.prepared_by;
    }
  }
  return forward ? VersionId{prepared_by, newest.version + 1} : newest;
}

}  // namespace

void ShardRing::RecoverBefore(const VersionId& target) {
  SetManifest();
  for (int i = 0; i < num_shards(); ++i) {
    const int32_t before = (i + num_shards() - 1) % num_shards();
    Phase recover = MakePhase(PhaseKind::kRecover);
    recover.recover.target = target;
    recover.recover.home = ActionFor(inventories_[i], i, target);
    recover.recover.replica = ActionFor(inventories_[i], before, target);
    // The answer to the first one is lost.
    for (int repeat = 0; repeat < 2; ++repeat) {
      ASSERT_EQ(Run(i, recover).status(), absl::OkStatus()) << "shard " << i;
    }
  }
}

void ShardRing::RecoverTo(const VersionId& target) {
  RecoverBefore(target);
  Phase fetch = MakePhase(PhaseKind::kFetch);
  fetch.id = target;
  RunAll(fetch);
  RunAll(fetch);
}

VersionId ShardRing::Recover() {
  const VersionId target = Decide(inventories_);
  RecoverTo(target);
  Join(num_workers_);
  Phase open = MakePhase(PhaseKind::kOpen);
  open.id = target;
  RunAll(open);
  return target;
}

ShardRing::Arrays ShardRing::CopyOf(int ordinal, int32_t part,
                                    const VersionId& id) {
  Arrays arrays(3);
  CopySink sink;
  sink.slice = [&](const CopySlice& slice) {
    std::vector<float>& array =
        arrays[static_cast<int>(slice.array) -
               static_cast<int>(CopyArray::kParameters)];
    array.insert(array.end(), slice.values.begin(), slice.values.end());
    return absl::OkStatus();
  };
  sink.record = [](std::string) { return absl::OkStatus(); };
  EXPECT_EQ(engine(ordinal)->Fetch({epoch_, part, id}, sink), absl::OkStatus())
      << "part " << part << " of shard " << ordinal;
  return arrays;
}

void ShardRing::RecoverAll(CopyAction home, const VersionId& target,
                           const std::string& checkpoint) {
  Phase recover = MakePhase(PhaseKind::kRecover);
  recover.recover.target = target;
  recover.recover.home = home;
  recover.checkpoint = checkpoint;
  RunAll(recover);
  Phase open = MakePhase(PhaseKind::kOpen);
  open.id = target;
  RunAll(open);
}

}  // namespace agg
