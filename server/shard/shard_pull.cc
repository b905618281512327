// Pulls of published versions, at once or when they are published: the Pull
// part of a ShardEngine.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/params/parameter_store.h"
#include "server/shard/shard_engine.h"

namespace agg {

ShardEngine::Pulls::Answer ShardEngine::AnswerPull(
    const Pulls::Request& request) const {
  const absl::Status status =
      epoch_.CheckOpen(request.epoch == 0 ? epoch_.number() : request.epoch);
  if (!status.ok()) return Pulls::Answer(status);
  if (open_round_ == nullptr || !open_round_->published()) {
    // Version 0 is the next one.
    if (request.latest || request.version == 0) return std::nullopt;
    return Pulls::Answer(absl::OutOfRangeError(
        absl::StrCat("version ", request.version,
                     " is not the next one; no version is published yet")));
  }
  const uint64_t current = open_round_->version();
  const uint64_t version = request.latest ? current : request.version;
  if (version > current && open_round_->finished()) {
    return Pulls::Answer(open_round_->FinishedError());
  }
  if (version == current + 1) {
    if (!request.partial || written_ == nullptr) return std::nullopt;
    return Pulls::Answer(PublishedVersion{
        epoch_.number(), version, compute_->layout(), written_, progress_});
  }
  if (version > current) {
    return Pulls::Answer(absl::OutOfRangeError(
        absl::StrCat("version ", version,
                     " is not the next one; current version ", current)));
  }
  std::shared_ptr<const Snapshot> snapshot = compute_->store()->Find(version);
  if (snapshot == nullptr) {
    return Pulls::Answer(absl::OutOfRangeError(absl::StrCat(
        "version ", version, " is gone; current version ", current)));
  }
  return Pulls::Answer(PublishedVersion{epoch_.number(), version,
                                        compute_->layout(), std::move(snapshot),
                                        /*progress=*/nullptr});
}

ShardEngine::Closures ShardEngine::EndProgress(const absl::Status& reason) {
  if (progress_ == nullptr) return {};
  written_ = nullptr;
  return {[progress = std::exchange(progress_, nullptr), reason] {
    progress->Fail(reason);
  }};
}

// Resolve calls back at once, with mutex_ held, which the analysis cannot see.
ShardEngine::Closures ShardEngine::ResolvePulls() {
  return pulls_.Resolve(
      [this](const Pulls::Request& request)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { return AnswerPull(request); });
}

int64_t ShardEngine::Pull(uint64_t epoch, uint64_t version, bool latest,
                          PullCallback callback, bool partial) {
  Pulls::Answer answer;
  {
    MutexLock lock(&mutex_);
    Pulls::Request request{epoch, version, latest, nullptr, partial};
    answer = AnswerPull(request);
    if (!answer.has_value()) {
      request.callback = std::move(callback);
      return pulls_.Add(std::move(request));
    }
  }
  callback(*std::move(answer));
  return 0;
}

void ShardEngine::CancelPull(int64_t id) {
  MutexLock lock(&mutex_);
  pulls_.Remove(id);
}

void ShardEngine::CountOvertakenPull() { ++overtaken_pulls_; }

void ShardEngine::CountPulledBytes(int64_t num_bytes, bool in_place,
                                   bool on_device) {
  MutexLock lock(&mutex_);
  totals_.pull_bytes += num_bytes;
  if (in_place) totals_.pull_bytes_in_place += num_bytes;
  if (on_device) totals_.pull_bytes_on_device += num_bytes;
}

}  // namespace agg
