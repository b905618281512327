// Asks, and sleeps in between: gRPC's timers, which end at whole milliseconds,
// are too coarse for a round of some of them.
#include "worker_client/mark_wait.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker_client/tensor_devices.h"

namespace agg {
namespace {

absl::StatusOr<bool> AllReached(absl::Span<const SharedMark> marks) {
  for (const SharedMark& mark : marks) {
    const absl::StatusOr<bool> reached = mark->Reached();
    if (!reached.ok()) return DeviceError(reached.status());
    if (!*reached) return false;
  }
  return true;
}

}  // namespace

absl::Duration MarkPauses::Next(absl::Time now) {
  begun_ = std::min(begun_, now);
  return std::clamp((now - begun_) / 16, kShortest, kLongest);
}

absl::Status MarkTimeout(const char* what) {
  return absl::DeadlineExceededError(absl::StrCat(
      what, ": the device has not done, within transfer_timeout, what its ",
      "default stream was given before the call; check whether a kernel of ",
      "this process hangs, or allow more time"));
}

absl::Status AwaitMarks(absl::Span<const SharedMark> marks, const char* what,
                        absl::Time deadline,
                        const std::function<absl::Status()>& cancelled) {
  MarkPauses pauses;
  while (true) {
    const absl::Status reason = cancelled();
    if (!reason.ok()) return reason;
    const absl::StatusOr<bool> reached = AllReached(marks);
    if (!reached.ok()) return reached.status();
    if (*reached) return absl::OkStatus();
    const absl::Time now = absl::Now();
    if (now >= deadline) return MarkTimeout(what);
    absl::SleepFor(std::min(pauses.Next(now), deadline - now));
  }
}

}  // namespace agg
