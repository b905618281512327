// What is abandoned is forgotten in the same step, so that nobody resumes an
// epoch that is about to end.
#include "server/rpc/coordinator_watch.h"

#include "absl/strings/str_cat.h"
#include "server/rpc/broken_connection.h"

namespace agg {

void CoordinatorWatch::Begin(uint64_t epoch, uint64_t life) {
  MutexLock lock(&mutex_);
  if (epoch != epoch_) num_streams_ = 0;
  epoch_ = epoch;
  life_ = life;
  ++num_streams_;
}

absl::Status CoordinatorWatch::Resume(uint64_t epoch, uint64_t life) {
  MutexLock lock(&mutex_);
  if (epoch == 0 || epoch != epoch_ || life == 0 || life != life_) {
    return absl::AbortedError(absl::StrCat(
        "epoch ", epoch, " of this coordinator does not go on here"));
  }
  ++num_streams_;
  return absl::OkStatus();
}

void CoordinatorWatch::End(uint64_t epoch) {
  MutexLock lock(&mutex_);
  if (epoch != epoch_ || --num_streams_ > 0) return;
  away_since_ = life_ == 0 ? absl::InfinitePast() : clock_->Now();
}

std::optional<uint64_t> CoordinatorWatch::TakeAbandoned() {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mutex_);
  if (epoch_ == 0 || num_streams_ > 0 || now - away_since_ < kResumeTime) {
    return std::nullopt;
  }
  const uint64_t epoch = epoch_;
  epoch_ = 0;
  return epoch;
}

}  // namespace agg
