// The words are in one place, so that the log, the status and the error of a
// worker's call say the same.
#include "server/coordinator/floor_watch.h"

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace agg {
namespace {

// "1 of at least 2 workers (min_workers)".
std::string Count(int32_t num_in, const CloseOptions& options) {
  return absl::StrCat(num_in, " of at least ", options.min_workers,
                      " workers (min_workers)");
}

}  // namespace

void FloorWatch::Note(const CloseSnapshot& snapshot, absl::Time now) {
  const bool was_below = below();
  const int32_t former = num_in_;
  num_in_ = snapshot.num_in;
  if (!IsBelowFloor(options_, snapshot)) {
    below_since_ = absl::InfiniteFuture();
    if (was_below && !snapshot.all_left) {
      LogInfo(num_in_, " workers are in, as min_workers (",
              options_.min_workers, ") asks: the job goes on");
    }
    return;
  }
  if (!was_below) below_since_ = now;
  if (!was_below || num_in_ != former) LogWarning("the job ", Text());
}

std::string FloorWatch::Text() const {
  if (!below()) return "";
  const std::string count = Count(num_in_, options_);
  switch (options_.floor_policy) {
    case FloorPolicy::kWait:
      return absl::StrCat("waits: ", count,
                          "; no round closes until more have joined");
    case FloorPolicy::kWarn:
      return absl::StrCat("goes on with ", count);
    case FloorPolicy::kFail:
      return absl::StrCat(
          "waits: ", count, "; unless more join it ends at ",
          absl::FormatTime("%H:%M:%S", below_since_ + options_.floor_timeout,
                           absl::UTCTimeZone()),
          " UTC");
  }
  return count;
}

std::string FloorWatch::FailureText() const {
  return absl::StrCat(
      "it failed: for ", absl::FormatDuration(options_.floor_timeout),
      " (floor_timeout_seconds) there were only ", Count(num_in_, options_));
}

}  // namespace agg
