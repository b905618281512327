// The choice of a checkpoint, apart from the folders that are listed.
#include "server/checkpoint/checkpoint_state.h"

#include <map>

namespace agg {
namespace {

// What all processes together see of one checkpoint.
struct Sum {
  bool manifest = false;
  int num_shards = 0;
  bool contradiction = false;  // parts of different K: nobody writes that
  std::set<int> parts;

  bool complete() const {
    return manifest && !contradiction && num_shards > 0 &&
           parts.size() == static_cast<size_t>(num_shards);
  }
};

}  // namespace

absl::optional<CheckpointId> NewestCheckpoint(
    const std::vector<CheckpointState>& states,
    const std::set<CheckpointId>& refused) {
  std::map<CheckpointId, Sum> sums;
  for (const CheckpointState& state : states) {
    Sum& sum = sums[state.id];
    sum.manifest |= state.manifest;
    if (state.num_shards == 0) continue;
    sum.contradiction |=
        sum.num_shards != 0 && sum.num_shards != state.num_shards;
    sum.num_shards = state.num_shards;
    sum.parts.insert(state.parts.begin(), state.parts.end());
  }
  for (auto it = sums.rbegin(); it != sums.rend(); ++it) {
    if (it->second.complete() && refused.count(it->first) == 0) {
      return it->first;
    }
  }
  return absl::nullopt;
}

}  // namespace agg
