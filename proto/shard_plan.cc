// Cuts tensors into slices, and places the largest first. Everything is an
// integer and every tie is decided, so that all processes agree.
#include "proto/shard_plan.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {
namespace {

constexpr size_t kMaxTensors = 100000;
constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxDimensions = 8;
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr int kMaxShards = 1024;

// Elements of one tensor; or -1 beyond kMaxElements.
int64_t CheckedNumElements(const TensorSpec& tensor) {
  int64_t num_elements = 1;
  for (int64_t dimension : tensor.shape) {
    if (dimension == 0) return 0;
  }
  for (int64_t dimension : tensor.shape) {
    if (dimension > kMaxElements / num_elements) return -1;
    num_elements *= dimension;
  }
  return num_elements;
}

absl::Status ValidateTensor(const TensorSpec& tensor, size_t index) {
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "manifest.tensors[", index, "].name has ", tensor.name.size(),
        " bytes; allowed: 1 to ", kMaxNameBytes));
  }
  if (tensor.group.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "manifest.tensors[", index, "].group has ", tensor.group.size(),
        " bytes; allowed: at most ", kMaxNameBytes));
  }
  if (tensor.shape.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", tensor.name, "\" has ", tensor.shape.size(),
                     " dimensions; allowed: at most ", kMaxDimensions));
  }
  for (int64_t dimension : tensor.shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.name, "\" has the dimension ",
                       dimension, "; allowed: 0 or more"));
    }
  }
  return absl::OkStatus();
}

std::string Describe(const TensorSpec& tensor) {
  return absl::StrCat("\"", tensor.name, "\" [",
                      absl::StrJoin(tensor.shape, ","), "] group \"",
                      tensor.group, "\"", tensor.optional ? " optional" : "");
}

bool SameTensor(const TensorSpec& a, const TensorSpec& b) {
  return a.name == b.name && a.shape == b.shape && a.group == b.group &&
         a.optional == b.optional;
}

// Greedy by size: the largest slice first, to the least loaded shard; ties go
// to the lower index, so that every process places alike.
void PlaceSlices(ShardPlan* plan) {
  std::vector<int32_t> order(plan->slices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [plan](int32_t a, int32_t b) {
    return plan->slices[a].num_elements > plan->slices[b].num_elements;
  });
  // The least (load, shard) is on top: looking through all shards for each
  // slice would take a second of CPU for the largest manifest.
  using Load = std::pair<int64_t, int32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> loads;
  for (int32_t shard = 0; shard < plan->num_shards; ++shard) {
    loads.push({0, shard});
  }
  for (int32_t index : order) {
    Slice& slice = plan->slices[index];
    const auto [load, shard] = loads.top();
    loads.pop();
    slice.shard = shard;
    loads.push({load + slice.num_elements, shard});
  }
  plan->slices_of_shard.resize(plan->num_shards);
  for (const Slice& slice : plan->slices) {
    plan->slices_of_shard[slice.shard].push_back(slice.index);
  }
}

}  // namespace

int64_t NumElements(const TensorSpec& tensor) {
  return CheckedNumElements(tensor);
}

int64_t NumElements(const Manifest& manifest) {
  int64_t num_elements = 0;
  for (const TensorSpec& tensor : manifest.tensors) {
    num_elements += NumElements(tensor);
  }
  return num_elements;
}

absl::Status ValidateManifest(const Manifest& manifest) {
  if (manifest.tensors.empty() || manifest.tensors.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("manifest has ", manifest.tensors.size(),
                     " tensors; allowed: 1 to ", kMaxTensors));
  }
  std::unordered_set<std::string> names;
  int64_t total = 0;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorSpec& tensor = manifest.tensors[i];
    absl::Status status = ValidateTensor(tensor, i);
    if (!status.ok()) return status;
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.name,
                       "\" is named twice; allowed: unique names"));
    }
    const int64_t num_elements = CheckedNumElements(tensor);
    if (num_elements < 0 || (total += num_elements) > kMaxElements) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.name, "\" brings the manifest over ",
                       kMaxElements, " elements, which is the most allowed"));
    }
  }
  return absl::OkStatus();
}

absl::Status CompareManifests(const Manifest& job, const Manifest& other) {
  const size_t common = std::min(job.tensors.size(), other.tensors.size());
  for (size_t i = 0; i < common; ++i) {
    if (SameTensor(job.tensors[i], other.tensors[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "manifest differs from the job's at tensor ", i, ": the job has ",
        Describe(job.tensors[i]), ", this one ", Describe(other.tensors[i])));
  }
  if (job.tensors.size() == other.tensors.size()) return absl::OkStatus();
  const bool job_longer = job.tensors.size() > common;
  const Manifest& longer = job_longer ? job : other;
  return absl::InvalidArgumentError(
      absl::StrCat("manifest differs from the job's at tensor ", common, ": ",
                   job_longer ? "only the job has " : "the job has no ",
                   Describe(longer.tensors[common])));
}

absl::StatusOr<ShardPlan> MakeShardPlan(const Manifest& manifest,
                                        int num_shards) {
  absl::Status status = ValidateManifest(manifest);
  if (!status.ok()) return status;
  if (num_shards < 1 || num_shards > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_shards is ", num_shards, "; allowed: 1 to ", kMaxShards));
  }
  ShardPlan plan;
  plan.num_shards = num_shards;
  plan.slices_of_tensor.resize(manifest.tensors.size());
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    const int64_t num_elements = NumElements(manifest.tensors[t]);
    for (int64_t begin = 0; begin < num_elements; begin += kMaxSliceElements) {
      Slice slice;
      slice.index = static_cast<int32_t>(plan.slices.size());
      slice.tensor = static_cast<int32_t>(t);
      slice.begin = begin;
      slice.num_elements = std::min(kMaxSliceElements, num_elements - begin);
      plan.slices_of_tensor[t].push_back(slice.index);
      plan.slices.push_back(slice);
    }
  }
  PlaceSlices(&plan);
  return plan;
}

}  // namespace agg
