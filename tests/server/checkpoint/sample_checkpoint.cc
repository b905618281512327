#include "tests/server/checkpoint/sample_checkpoint.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

constexpr int kStateArrays = 2;

// The last step of SplitMix64: a bit of the input changes half of the output.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Equal bits; a comparison of NaNs would be false.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

Manifest SmallTensors() {
  Manifest manifest;
  const std::vector<std::vector<int64_t>> shapes = {
      {3, 2}, {}, {0, 4}, {5}, {1}, {2, 2, 2}, {7}, {4}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    TensorSpec tensor;
    tensor.name = absl::StrCat("layer/", i);
    tensor.shape = shapes[i];
    tensor.group = i == 3 ? "bias" : "";
    tensor.optional = i == 4;
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

CheckpointManifest SampleManifest(const CheckpointId& id, int num_shards,
                                  const Manifest& tensors) {
  CheckpointManifest manifest;
  manifest.job = "job";
  manifest.id = id;
  manifest.history = 7;
  manifest.num_shards = num_shards;
  manifest.tensors = tensors;
  manifest.optimizer = "adam";
  manifest.num_state_arrays = kStateArrays;
  manifest.members = {{0, 0xfedcba9876543210, 3, "host \"a\"\n"},
                      {2, 41, 0, "\xc3\xa4<&>", "trainer"}};
  manifest.record = std::string("\0\xff record", 9);
  manifest.facts = "facts";
  manifest.config = "job: \"job\"\nworkers: 3\n";
  return manifest;
}

std::vector<float> SampleValues(const CheckpointId& id, const Slice& slice,
                                int array) {
  std::vector<float> values(slice.num_elements);
  const uint64_t seed = Mix(Mix(Mix(id.made) + id.version) + slice.tensor);
  for (int64_t i = 0; i < slice.num_elements; ++i) {
    auto bits = static_cast<uint32_t>(
        Mix(seed + static_cast<uint64_t>((slice.begin + i) * 3 + array)));
    // Parameters are finite: no others are saved.
    if (array == 0 && (bits >> 23 & 0xff) == 0xff) bits ^= uint32_t{1} << 23;
    std::memcpy(&values[i], &bits, sizeof(bits));
  }
  return values;
}

PartSource SampleSource(const CheckpointId& id, const ShardPlan* plan,
                        int ordinal) {
  PartSource source;
  source.plan = plan;
  source.ordinal = ordinal;
  source.num_arrays = 1 + kStateArrays;
  const auto buffer = std::make_shared<std::vector<float>>();
  source.values = [id, plan, buffer](
                      int32_t slice,
                      int array) -> absl::StatusOr<absl::Span<const float>> {
    *buffer = SampleValues(id, plan->slices[slice], array);
    return absl::MakeConstSpan(*buffer);
  };
  return source;
}

absl::Status WriteCheckpoint(CheckpointFolder* folder,
                             CheckpointManifest* manifest) {
  const absl::StatusOr<ShardPlan> plan =
      MakeShardPlan(manifest->tensors, manifest->num_shards);
  if (!plan.ok()) return plan.status();
  manifest->parts.clear();
  for (int i = 0; i < manifest->num_shards; ++i) {
    const absl::StatusOr<CheckpointPart> part =
        folder->WritePart(manifest->id, SampleSource(manifest->id, &*plan, i));
    if (!part.ok()) return part.status();
    manifest->parts.push_back(*part);
  }
  return folder->Seal(*manifest);
}

CheckpointFolder OpenFolder(FileSystem* files, const std::string& path,
                            uint64_t life) {
  absl::StatusOr<CheckpointFolder> folder =
      CheckpointFolder::Open(files, path, "job", life);
  EXPECT_TRUE(folder.ok()) << folder.status();
  return *std::move(folder);
}

RestoringJob SampleJob() {
  RestoringJob job;
  job.job = "job";
  job.optimizer = "adam";
  job.num_state_arrays = kStateArrays;
  return job;
}

absl::Status CheckSlices(CheckpointReader* reader, int num_shards) {
  const CheckpointManifest& manifest = reader->manifest();
  const absl::StatusOr<ShardPlan> plan =
      MakeShardPlan(manifest.tensors, num_shards);
  if (!plan.ok()) return plan.status();
  for (const std::vector<int32_t>& slices : plan->slices_of_shard) {
    for (const int32_t index : slices) {
      const Slice& slice = plan->slices[index];
      for (int array = 0; array <= manifest.num_state_arrays; ++array) {
        std::vector<float> values(slice.num_elements);
        const absl::Status status =
            reader->ReadSlice(index, array, absl::MakeSpan(values));
        if (!status.ok()) return status;
        if (!SameBits(values, SampleValues(manifest.id, slice, array))) {
          return absl::InternalError(absl::StrCat("slice ", index, " array ",
                                                  array, " has other values"));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace agg
