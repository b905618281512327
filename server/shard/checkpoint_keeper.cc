// Holds the lock for the writer's pointer alone: a disk is never waited for
// under it.
#include "server/shard/checkpoint_keeper.h"

#include <utility>

#include "server/base/log.h"
#include "server/checkpoint/checkpoint_json.h"

namespace agg {
namespace {

absl::Status NotConfigured() {
  return absl::FailedPreconditionError(
      "no checkpoint.path is configured for this shard");
}

}  // namespace

void CheckpointKeeper::SetFolder(CheckpointFolder folder, FileSystem* files) {
  folder_ = std::move(folder);
  files_ = files;
}

absl::StatusOr<std::vector<CheckpointState>> CheckpointKeeper::List() const {
  if (!configured()) return std::vector<CheckpointState>();
  return folder_->List();
}

absl::Status CheckpointKeeper::Begin(const ShardArrays& arrays) {
  if (!configured()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<CheckpointWriter>> writer =
      CheckpointWriter::Create(*folder_, arrays);
  if (!writer.ok()) return writer.status();
  MutexLock lock(&mutex_);
  writer_ = *std::move(writer);
  return absl::OkStatus();
}

std::shared_ptr<CheckpointWriter> CheckpointKeeper::End() {
  MutexLock lock(&mutex_);
  return std::move(writer_);
}

std::shared_ptr<CheckpointWriter> CheckpointKeeper::writer() const {
  MutexLock lock(&mutex_);
  return writer_;
}

absl::Status CheckpointKeeper::Capture(
    const CheckpointId& id, const CheckpointWriter::CopyArray& copy) {
  const std::shared_ptr<CheckpointWriter> writer = this->writer();
  if (writer == nullptr) return NotConfigured();
  const CheckpointProgress before = writer->progress();
  const bool repeated =
      before.id == id && (before.stage == CheckpointProgress::Stage::kWriting ||
                          before.stage == CheckpointProgress::Stage::kWritten);
  return repeated ? absl::OkStatus() : writer->Capture(id, copy);
}

CheckpointProgress CheckpointKeeper::progress() const {
  const std::shared_ptr<CheckpointWriter> writer = this->writer();
  return writer == nullptr ? CheckpointProgress() : writer->progress();
}

absl::Status CheckpointKeeper::Seal(const std::string& manifest_json,
                                    int keep) {
  if (!configured()) return NotConfigured();
  const absl::StatusOr<CheckpointManifest> manifest =
      ParseCheckpointManifest(manifest_json);
  if (!manifest.ok()) return manifest.status();
  CheckpointFolder folder = *folder_;
  absl::Status status = folder.Seal(*manifest);
  if (!status.ok()) return status;
  // The new one is real: old ones that stay take room and nothing else.
  status = folder.Retire(keep);
  if (!status.ok()) {
    LogWarning("old checkpoints cannot be removed: ", status.ToString());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointKeeper::ReadManifest(
    const CheckpointId& id) const {
  if (!configured()) return NotConfigured();
  const absl::StatusOr<CheckpointManifest> manifest =
      ReadCheckpointManifest(files_, folder_->PathOf(id), id);
  if (!manifest.ok()) return manifest.status();
  return CheckpointManifestJson(*manifest);
}

absl::StatusOr<CheckpointReader> CheckpointKeeper::Open(
    const CheckpointManifest& manifest) const {
  if (!configured()) return NotConfigured();
  return CheckpointReader::Create(files_, folder_->PathOf(manifest.id),
                                  manifest);
}

}  // namespace agg
