// What the largest job has (proto/README.md, Limits): bounds for messages of
// one shard to another, so that a broken or hostile one costs a bounded amount
// of memory.
#ifndef AGG_SERVER_RPC_PHASE_LIMITS_H_
#define AGG_SERVER_RPC_PHASE_LIMITS_H_

#include <cstdint>

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
// A job's record has up to one number for each coefficient.
inline constexpr int64_t kMaxRecordBytes = kMaxStepBytes;
inline constexpr int64_t kMaxPhaseBytes = kMaxStepBytes + kMaxRecordBytes;

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_LIMITS_H_
