// Holds the lock for the writer's pointer alone: a disk is never waited for
// under it.
#include "server/shard/checkpoint_keeper.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_json.h"

namespace agg {
namespace {

using Steady = std::chrono::steady_clock;  // the system's may be set back

// Of a listing that came too late for the one who asked.
constexpr std::chrono::seconds kFresh(5);

absl::Status NotConfigured() {
  return absl::FailedPreconditionError(
      "no checkpoint.path is configured for this shard");
}

// An error is a part of what is reported: the job may need no checkpoint, and
// if it does, it says which folder it is.
CheckpointListing ListingOf(const absl::optional<CheckpointFolder>& folder) {
  CheckpointListing listing;
  if (!folder.has_value()) return listing;
  listing.folder = folder->job_path();
  absl::StatusOr<std::vector<CheckpointState>> states = folder->List();
  if (states.ok()) {
    listing.states = *std::move(states);
  } else {
    listing.error = std::string(states.status().message());
  }
  return listing;
}

}  // namespace

void CheckpointKeeper::SetFolder(CheckpointFolder folder, FileSystem* files,
                                 absl::optional<CheckpointFolder> other) {
  folder_ = std::move(folder);
  other_ = std::move(other);
  files_ = files;
}

CheckpointListing CheckpointKeeper::Look(
    const absl::optional<CheckpointFolder>& folder, Looking* looking) {
  if (!folder.has_value()) return {};
  MutexLock lock(&mutex_);
  const bool found =
      looking->found.has_value() && Steady::now() - looking->found_at < kFresh;
  if (!looking->on && !found) {
    looking->found.reset();
    if (looking->thread.joinable()) looking->thread.join();
    looking->on = true;
    looking->thread = std::thread([this, folder, looking] {
      CheckpointListing listing = ListingOf(folder);
      MutexLock lock(&mutex_);
      looking->found = std::move(listing);
      looking->found_at = Steady::now();
      looking->on = false;
      looked_.NotifyAll();
    });
  }
  const Steady::time_point deadline =
      Steady::now() + absl::ToChronoNanoseconds(kPatience);
  while (looking->on && Steady::now() < deadline) {
    looked_.WaitFor(&mutex_, absl::FromChrono(deadline - Steady::now()));
  }
  CheckpointListing listing;
  if (looking->found.has_value()) {
    listing = *std::move(looking->found);
    looking->found.reset();
    return listing;
  }
  listing.folder = folder->job_path();
  listing.error = absl::StrCat(
      "cannot list ", listing.folder, ": no answer within ",
      absl::FormatDuration(kPatience), " (a file system that hangs?)");
  return listing;
}

CheckpointListing CheckpointKeeper::List() {
  return Look(folder_, &own_looking_);
}

CheckpointListing CheckpointKeeper::ListOther() {
  return Look(other_, &other_looking_);
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

CheckpointKeeper::~CheckpointKeeper() {
  std::vector<std::thread> endings;
  {
    MutexLock lock(&mutex_);
    endings.swap(endings_);
    endings.push_back(std::move(own_looking_.thread));
    endings.push_back(std::move(other_looking_.thread));
  }
  for (std::thread& ending : endings) {
    if (ending.joinable()) ending.join();
  }
}

std::shared_ptr<CheckpointWriter> CheckpointKeeper::End() {
  std::shared_ptr<CheckpointWriter> writer;
  {
    MutexLock lock(&mutex_);
    writer = std::move(writer_);
    writer_ = nullptr;
  }
  if (writer == nullptr ||
      writer->progress().stage != CheckpointProgress::Stage::kWriting) {
    return writer;
  }
  MutexLock lock(&mutex_);
  endings_.emplace_back(
      [writer = std::move(writer)]() mutable { writer = nullptr; });
  return nullptr;
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

absl::Status CheckpointKeeper::Discard(const CheckpointId& id) {
  if (!configured()) return NotConfigured();
  const std::shared_ptr<CheckpointWriter> writer = this->writer();
  return writer == nullptr ? absl::OkStatus() : writer->Discard(id);
}

absl::Status CheckpointKeeper::Seal(const std::string& manifest_json, int keep,
                                    uint64_t line) {
  if (!configured()) return NotConfigured();
  const absl::StatusOr<CheckpointManifest> manifest =
      ParseCheckpointManifest(manifest_json);
  if (!manifest.ok()) return manifest.status();
  CheckpointFolder folder = *folder_;
  absl::Status status = folder.Seal(*manifest);
  if (!status.ok()) return status;
  // The new one is real: old ones that stay take room and nothing else.
  status = folder.Retire(keep, line);
  if (!status.ok()) {
    LogWarning("old checkpoints cannot be removed: ", status.ToString());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointKeeper::ReadManifest(
    const CheckpointId& id) const {
  if (!configured()) return NotConfigured();
  absl::StatusOr<CheckpointManifest> manifest =
      ReadCheckpointManifest(files_, folder_->PathOf(id), id);
  if (absl::IsNotFound(manifest.status()) && other_.has_value()) {
    manifest = ReadCheckpointManifest(files_, other_->PathOf(id), id);
  }
  if (!manifest.ok()) return manifest.status();
  return CheckpointManifestJson(*manifest);
}

absl::StatusOr<CheckpointReader> CheckpointKeeper::Open(
    const CheckpointManifest& manifest) const {
  if (!configured()) return NotConfigured();
  const bool other = other_.has_value() && manifest.job == other_->job();
  const CheckpointFolder& folder = other ? *other_ : *folder_;
  return CheckpointReader::Create(files_, folder.PathOf(manifest.id), manifest);
}

}  // namespace agg
