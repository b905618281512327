// A small job's checkpoints for tests: their content is a function of made and
// version, so that whoever finds one can say whether it is right.
#ifndef AGG_TESTS_SERVER_CHECKPOINT_SAMPLE_CHECKPOINT_H_
#define AGG_TESTS_SERVER_CHECKPOINT_SAMPLE_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/shard_plan.h"
#include "server/base/file_system.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/part_layout.h"

namespace agg {

// Eight tensors of few elements: a scalar and an empty one among them.
Manifest SmallTensors();

// A manifest of the job "job" with adam: all but the parts.
CheckpointManifest SampleManifest(const CheckpointId& id, int num_shards,
                                  const Manifest& tensors);

// Any bits, NaNs too.
std::vector<float> SampleValues(const CheckpointId& id, const Slice& slice,
                                int array);

// A shard's part with the values above. `plan` outlives it.
PartSource SampleSource(const CheckpointId& id, const ShardPlan* plan,
                        int ordinal);

// Writes all parts and seals. Sets manifest->parts.
absl::Status WriteCheckpoint(CheckpointFolder* folder,
                             CheckpointManifest* manifest);

// Opens PATH for "job", which has to work.
CheckpointFolder OpenFolder(FileSystem* files, const std::string& path,
                            uint64_t life);

// What the sample's job asks of a checkpoint.
RestoringJob SampleJob();

// OK if each slice of the plan for num_shards has the sample's bits.
absl::Status CheckSlices(CheckpointReader* reader, int num_shards);

}  // namespace agg

#endif  // AGG_TESTS_SERVER_CHECKPOINT_SAMPLE_CHECKPOINT_H_
