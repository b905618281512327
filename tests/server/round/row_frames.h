// Gradient rows as frames, and a transport's part in landing them.
#ifndef AGG_TESTS_SERVER_ROUND_ROW_FRAMES_H_
#define AGG_TESTS_SERVER_ROUND_ROW_FRAMES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "server/ingest/frame.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Values of a manifest's tensors, in its order.
using Tensors = std::vector<std::vector<float>>;
// Whether both have the same tensors with the same bytes.
bool SameBits(const Tensors& a, const Tensors& b);

// Deterministic values in [-1, 1) for every seed.
Tensors RandomTensors(const Manifest& manifest, uint64_t seed);
// All elements `value`.
Tensors FilledTensors(const Manifest& manifest, float value);

// The wire bytes of a slice's values.
std::string SliceBytes(const Slice& slice, const Tensors& tensors, DType dtype);

struct TestFrame {
  FrameHeader header;
  std::string payload;
};

// One frame per slice of `shard` (so that any order can be tried), of a row
// or a seed. `base` has epoch, session, round, kind and dtype. Slices of
// tensors in `absent` are named as absent in one more frame.
std::vector<TestFrame> MakeFrames(const FrameHeader& base,
                                  const ShardPlan& plan, int shard,
                                  const Tensors& tensors,
                                  const std::set<int32_t>& absent = {});

// Begins, copies and checks like a transport, ends.
absl::StatusOr<FrameResult> LandFrame(ShardEngine* engine,
                                      const TestFrame& frame);
// The middle of it: copies (or skips) the payload and sets `landed`.
void CopyPayload(const TestFrame& frame, FrameLanding* landing);

// The tensors of one version, from what every shard published.
void ReadVersion(const PublishedVersion& version, DType dtype,
                 Tensors* tensors);

}  // namespace agg

#endif  // AGG_TESTS_SERVER_ROUND_ROW_FRAMES_H_
