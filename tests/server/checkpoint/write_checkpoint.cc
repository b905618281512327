// write_checkpoint PATH: a checkpoint of the job "job" whose values a reader in
// another language can compute (readme_test.py); prints its folder.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/base/file_system.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

int Write(const std::string& path) {
  const std::unique_ptr<FileSystem> files = MakeSystemFiles();
  auto folder = CheckpointFolder::Open(files.get(), path, "job", /*life=*/1);
  if (!folder.ok()) return Fail(folder.status());
  Manifest tensors = SmallTensors();
  tensors.tensors[3].shape = {2, kMaxSliceElements + 5};
  CheckpointManifest manifest = SampleManifest({1000, 20}, 3, tensors);
  const ShardPlan plan = *MakeShardPlan(tensors, 3);
  for (int i = 0; i < 3; ++i) {
    std::vector<float> values;
    PartSource source = SampleSource(manifest.id, &plan, i);
    source.values = [&](int32_t slice,
                        int array) -> absl::StatusOr<absl::Span<const float>> {
      const Slice& at = plan.slices[slice];
      values.clear();
      for (int64_t e = at.begin; e < at.begin + at.num_elements; ++e) {
        values.push_back(static_cast<float>(e + 1000 * at.tensor) +
                         0.25f * static_cast<float>(array));
      }
      return absl::MakeConstSpan(values);
    };
    const auto part = folder->WritePart(manifest.id, source);
    if (!part.ok()) return Fail(part.status());
    manifest.parts.push_back(*part);
  }
  const absl::Status sealed = folder->Seal(manifest);
  if (!sealed.ok()) return Fail(sealed);
  std::printf("%s\n", folder->PathOf(manifest.id).c_str());
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) { return argc == 2 ? agg::Write(argv[1]) : 2; }
