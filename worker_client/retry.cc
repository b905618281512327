// A connection that has worked for a while resets the pauses; frames that
// arrive damaged are tried again a few times at once.
#include "worker_client/retry.h"

#include <algorithm>

#include "worker_client/rpc_status.h"

namespace agg {

absl::optional<absl::Duration> RetryPolicy::AfterFailure(
    const grpc::Status& status, absl::Time now, absl::Duration connected) {
  if (status.error_code() == grpc::StatusCode::DATA_LOSS) {
    if (++damaged_ > kMaxDamaged) return absl::nullopt;
    return absl::ZeroDuration();
  }
  const bool limited = IsLimit(status);
  if (!limited && !IsConnectionLoss(status)) return absl::nullopt;
  if (connected >= kWorks) {  // the outage before this attempt is over
    first_loss_ = now;
    pause_ = absl::ZeroDuration();
  }
  first_loss_ = std::min(first_loss_, now);
  if (now - first_loss_ >= window_) return absl::nullopt;
  // The first retry is immediate: most lost connections were idle ones, and a
  // new one works.
  const absl::Duration pause = limited ? std::max(pause_, kLimitPause) : pause_;
  pause_ = std::min(std::max(2 * pause, absl::Milliseconds(50)),
                    absl::Milliseconds(500));
  return pause;
}

absl::optional<absl::Duration> RecoveryWindow::AfterFailure(
    absl::Time now, absl::Duration lasted) {
  if (lasted > works_) {
    first_loss_ = now;
    pause_ = absl::ZeroDuration();
  }
  first_loss_ = std::min(first_loss_, now);
  if (now - first_loss_ >= window_) return absl::nullopt;
  const absl::Duration pause = pause_;
  pause_ = std::min(std::max(2 * pause_, kFirstPause), kLastPause);
  return pause;
}

}  // namespace agg
