// A checkpoint that was damaged, or was made to be damaging: refused naming the
// file, or read within its bounds. With the sums as they were, what is read is
// what was written.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/crc32c.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/checkpoint/checkpoint_input.pb.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

constexpr CheckpointId kId{1000, 20};
constexpr int kNumShards = 2;
constexpr char kFolder[] = "/disk/job/1000-20";

void Put(SimDisk* disk, const std::string& path, const std::string& bytes) {
  auto file = disk->Create(path);
  if (!file.ok() || !(*file)->Append(bytes).ok()) __builtin_trap();
}

void Apply(const fuzz::Damage& damage, std::string* bytes) {
  if (bytes->empty()) return;
  size_t at = damage.at() % bytes->size();
  if (damage.from_end()) at = bytes->size() - 1 - at;
  (*bytes)[at] =
      static_cast<char>((*bytes)[at] ^ static_cast<char>(damage.mask()));
  bytes->insert(at, damage.inserts());
  bytes->erase(at, damage.cuts() % 256);
}

Manifest TensorsOf(const fuzz::CheckpointInput& input) {
  Manifest tensors = input.without_tensors() ? Manifest() : SmallTensors();
  for (const v1::CheckpointTensor& sent : input.manifest().tensors()) {
    TensorSpec tensor;
    tensor.name = sent.name();
    tensor.shape.assign(sent.shape().begin(), sent.shape().end());
    tensor.group = sent.group();
    tensor.optional = sent.optional();
    tensors.tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// The manifest of the sample, with what the input sets.
CheckpointManifest Changed(CheckpointManifest manifest,
                           const fuzz::CheckpointInput& input) {
  const v1::CheckpointManifest& sent = input.manifest();
  manifest.tensors = TensorsOf(input);
  if (!sent.job().empty()) manifest.job = sent.job();
  if (sent.history() != 0) manifest.history = sent.history();
  if (sent.shards() != 0) manifest.num_shards = static_cast<int>(sent.shards());
  if (!sent.optimizer().empty()) manifest.optimizer = sent.optimizer();
  if (sent.state_arrays() != 0) {
    manifest.num_state_arrays = static_cast<int>(sent.state_arrays());
  }
  if (input.without_parts()) manifest.parts.clear();
  for (const v1::CheckpointPart& part : sent.parts()) {
    manifest.parts.push_back({part.file(), part.bytes(), part.crc32c()});
  }
  if (input.without_members()) manifest.members.clear();
  for (const v1::CheckpointMember& member : sent.members()) {
    manifest.members.push_back({member.rank(), member.session(),
                                member.first_round(), member.client(),
                                member.identity()});
  }
  if (!sent.record().empty()) manifest.record = sent.record();
  if (!sent.facts().empty()) manifest.facts = sent.facts();
  if (!sent.config().empty()) manifest.config = sent.config();
  return manifest;
}

// As a shard and agg_pull read it.
void ReadAll(SimDisk* disk, bool keeps_sums) {
  const auto manifest = ReadCheckpointManifest(disk, kFolder, kId);
  if (!manifest.ok()) {
    if (manifest.status().message().empty()) __builtin_trap();
    return;
  }
  auto reader = CheckpointReader::Create(disk, kFolder, *manifest);
  if (!reader.ok()) return;
  bool good = true;
  for (int i = 0; i < manifest->num_shards; ++i) {
    good = reader->VerifyPart(i).ok() && good;
  }
  bool read = true;
  for (const Slice& slice : reader->plan().slices) {
    if (slice.num_elements > 4096) continue;  // the file cannot have it
    std::vector<float> values(slice.num_elements);
    for (int array = 0; array <= manifest->num_state_arrays; ++array) {
      read =
          reader->ReadSlice(slice.index, array, absl::MakeSpan(values)).ok() &&
          read;
    }
  }
  const bool intact = keeps_sums && good && read;
  if (!intact ||
      !(manifest->tensors.tensors.size() == SmallTensors().tensors.size())) {
    return;
  }
  if (!CompareManifests(SmallTensors(), manifest->tensors).ok()) return;
  if (!CheckSlices(&*reader, kNumShards).ok()) __builtin_trap();
}

// The good checkpoint; writing it takes longer than an input.
struct Sample {
  Sample() {
    SimDisk disk;
    if (!disk.CreateFolder("/disk").ok()) __builtin_trap();
    CheckpointFolder folder = OpenFolder(&disk, "/disk", 1);
    if (!WriteCheckpoint(&folder, &manifest).ok()) __builtin_trap();
    for (const CheckpointPart& part : manifest.parts) {
      parts.push_back(disk.Bytes(absl::StrCat(kFolder, "/", part.file)));
    }
  }
  CheckpointManifest manifest = SampleManifest(kId, kNumShards, SmallTensors());
  std::vector<std::string> parts;
};

void Run(const fuzz::CheckpointInput& input) {
  static const Sample* const sample = new Sample();
  SimDisk disk;
  for (const char* folder : {"/disk", "/disk/job", kFolder}) {
    if (!disk.CreateFolder(folder).ok()) __builtin_trap();
  }
  CheckpointManifest manifest = Changed(sample->manifest, input);
  for (size_t i = 0; i < sample->parts.size(); ++i) {
    const std::string path =
        absl::StrCat(kFolder, "/", sample->manifest.parts[i].file);
    std::string bytes = sample->parts[i];
    for (const fuzz::Damage& damage : input.damages()) {
      if (damage.file() % (kNumShards + 1) == i + 1) Apply(damage, &bytes);
    }
    Put(&disk, path, bytes);
    if (input.keeps_sums() || i >= manifest.parts.size()) continue;
    manifest.parts[i].num_bytes = static_cast<int64_t>(bytes.size());
    manifest.parts[i].crc32c = Crc32c(bytes);
  }
  std::string text = CheckpointManifestJson(manifest);
  for (const fuzz::Damage& damage : input.damages()) {
    if (damage.file() % (kNumShards + 1) == 0) Apply(damage, &text);
  }
  if (!input.keeps_sums()) {
    const std::string checked = text.substr(0, text.rfind(", \"crc32c\": "));
    text = absl::StrCat(checked, ", \"crc32c\": ", Crc32c(checked), "}\n");
  }
  Put(&disk, absl::StrCat(kFolder, "/manifest.json"), text);
  ReadAll(&disk, input.keeps_sums());
}

}  // namespace
}  // namespace agg

AGG_FUZZ_MESSAGE(agg::fuzz::CheckpointInput, agg::Run)
