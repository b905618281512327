// What the largest job has (proto/README.md, Limits): bounds for what one shard
// sends to another, in both directions, so that a broken or hostile one costs a
// bounded amount of memory.
#ifndef AGG_SERVER_RPC_PHASE_LIMITS_H_
#define AGG_SERVER_RPC_PHASE_LIMITS_H_

#include <cstdint>

#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {

inline constexpr int64_t kMaxPhaseTensors = 100000;
inline constexpr int kMaxPhaseWorkers = 512;
inline constexpr int kMaxPhaseShards = 1024;

// Numbers of a phase, or of its result, in one message, at most: far below what
// gRPC refuses, and small beside what is kept of them.
inline constexpr int64_t kMaxPhaseMessageBytes = int64_t{3} << 20;
// The coefficients of an update, its tensors and their trust ratios.
inline constexpr int64_t kMaxStepBytes =
    8 * (int64_t{kMaxPhaseWorkers} + 2) * kMaxPhaseTensors;
// A step goes with a record, and a plan of a recovery with a manifest, which is
// longer than a record.
inline constexpr int64_t kMaxPhaseBytes = kMaxStepBytes + kMaxManifestBytes;

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_LIMITS_H_
