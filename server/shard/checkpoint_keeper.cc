// Holds the lock for the writer's pointer alone: a disk is never waited for
// under it.
#include "server/shard/checkpoint_keeper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"

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
  absl::StatusOr<std::vector<CheckpointState>> states =
      folder->List(&listing.begun_anew);
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

std::shared_ptr<CheckpointKeeper::Listing> CheckpointKeeper::Begin(
    const absl::optional<CheckpointFolder>& folder, Looking* looking) {
  if (!folder.has_value()) return nullptr;
  std::shared_ptr<Listing>& last = looking->listing;
  if (last != nullptr &&
      (!last->done ||
       (!last->told && Steady::now() - last->found_at < kFresh))) {
    return last;
  }
  if (looking->thread.joinable()) looking->thread.join();
  last = std::make_shared<Listing>();
  looking->thread = std::thread([this, folder, listing = last] {
    CheckpointListing found = ListingOf(folder);
    MutexLock lock(&mutex_);
    listing->found = std::move(found);
    listing->found_at = Steady::now();
    listing->done = true;
    looked_.NotifyAll();
  });
  return last;
}

CheckpointListing CheckpointKeeper::Await(const CheckpointFolder& folder,
                                          Listing* listing,
                                          Steady::time_point until) {
  while (!listing->done && Steady::now() < until) {
    looked_.WaitFor(&mutex_, absl::FromChrono(until - Steady::now()));
  }
  if (listing->done) {
    listing->told = true;
    return listing->found;
  }
  CheckpointListing late;
  late.folder = folder.job_path();
  late.error = absl::StrCat("cannot list ", late.folder, ": no answer within ",
                            absl::FormatDuration(kPatience),
                            " (a file system that hangs?)");
  return late;
}

CheckpointListing CheckpointKeeper::List() {
  MutexLock lock(&mutex_);
  const std::shared_ptr<Listing> own = Begin(folder_, &own_looking_);
  if (own == nullptr) return {};
  return Await(*folder_, own.get(),
               Steady::now() + absl::ToChronoNanoseconds(kPatience));
}

std::pair<CheckpointListing, CheckpointListing> CheckpointKeeper::ListAll() {
  MutexLock lock(&mutex_);
  const std::shared_ptr<Listing> own = Begin(folder_, &own_looking_);
  const std::shared_ptr<Listing> other = Begin(other_, &other_looking_);
  const Steady::time_point until =
      Steady::now() + absl::ToChronoNanoseconds(kPatience);
  std::pair<CheckpointListing, CheckpointListing> all;
  if (own != nullptr) all.first = Await(*folder_, own.get(), until);
  if (other != nullptr) all.second = Await(*other_, other.get(), until);
  return all;
}

absl::Status CheckpointKeeper::Begin(const ShardArrays& arrays) {
  if (!configured()) return absl::OkStatus();
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointWriter> writer,
                       CheckpointWriter::Create(*folder_, arrays));
  MutexLock lock(&mutex_);
  writer_ = std::move(writer);
  return absl::OkStatus();
}

CheckpointKeeper::~CheckpointKeeper() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    for (Ending& ending : endings_) threads.push_back(std::move(ending.thread));
    endings_.clear();
    threads.push_back(std::move(own_looking_.thread));
    threads.push_back(std::move(other_looking_.thread));
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
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
  // A thread that is over holds its stack until somebody joins it.
  const auto over =
      std::partition(endings_.begin(), endings_.end(),
                     [](const Ending& ending) { return !ending.done->load(); });
  for (auto ending = over; ending != endings_.end(); ++ending) {
    ending->thread.join();
  }
  endings_.erase(over, endings_.end());
  Ending ending;
  ending.done = std::make_shared<std::atomic<bool>>(false);
  ending.thread =
      std::thread([writer = std::move(writer), done = ending.done]() mutable {
        writer = nullptr;
        *done = true;
      });
  endings_.push_back(std::move(ending));
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
  AGG_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                       ParseCheckpointManifest(manifest_json));
  CheckpointFolder folder = *folder_;
  AGG_RETURN_IF_ERROR(folder.Seal(manifest));
  // The new one is real: old ones that stay take room and nothing else.
  absl::Status status = folder.Retire(keep, line);
  if (!status.ok()) {
    LogWarningOf("retire",
                 "old checkpoints cannot be removed: ", status.ToString());
  }
  return absl::OkStatus();
}

absl::Status CheckpointKeeper::BeginAnew(uint64_t epoch) {
  if (!configured()) return NotConfigured();
  CheckpointFolder folder = *folder_;
  return folder.BeginAnew(epoch);
}

absl::Status CheckpointKeeper::Verify(const std::string& manifest_json,
                                      int ordinal, int num_shards,
                                      Progress* progress) const {
  AGG_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                       ParseCheckpointManifest(manifest_json));
  AGG_ASSIGN_OR_RETURN(CheckpointReader reader, Open(manifest));
  reader.SetProgress(progress);
  // Where their number has changed each shard reads from all parts, and these
  // are copies in its own folder.
  const bool same_number = manifest.num_shards == num_shards;
  absl::Status status;
  for (int part = 0; part < manifest.num_shards && status.ok(); ++part) {
    if (!same_number || part == ordinal) status = reader.VerifyPart(part);
  }
  return status;
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
