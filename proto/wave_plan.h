// The waves in which a pipelined round goes over its tensors (P43 in
// README.md): a pure function of the manifest, which the coordinator and all
// shards compute.
#ifndef AGG_PROTO_WAVE_PLAN_H_
#define AGG_PROTO_WAVE_PLAN_H_

#include <cstdint>
#include <vector>

#include "proto/shard_plan.h"

namespace agg {

// Waves at most: each costs a few calls to every shard.
inline constexpr int kMaxWaves = 32;
// Elements of a wave at least, but for the last one: small tensors go together.
inline constexpr int64_t kMinWaveElements = int64_t{1} << 20;

// Tensors [begin, end) of the manifest.
struct Wave {
  int32_t begin = 0;
  int32_t end = 0;
};

inline bool operator==(const Wave& a, const Wave& b) {
  return a.begin == b.begin && a.end == b.end;
}

// All tensors, in the order of the manifest: one wave or more, none of them
// without a tensor. REQUIRES: ValidateManifest(manifest).ok().
std::vector<Wave> MakeWaves(const Manifest& manifest);

}  // namespace agg

#endif  // AGG_PROTO_WAVE_PLAN_H_
