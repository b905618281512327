// What anybody may ask, from any thread.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/recent_rounds.h"

namespace agg {

absl::StatusOr<JoinResult> Coordinator::Observe() const {
  MutexLock lock(&mutex_);
  return state_.Observe();
}

JobStatus Coordinator::Status() const {
  JobStatus status;
  {
    MutexLock lock(&mutex_);
    status = state_.Status(clock_->Now());
  }
  const std::string waiting = phase_watch_.WaitingText();
  if (!waiting.empty()) {
    absl::StrAppend(&status.message, status.message.empty() ? "" : "; ",
                    waiting);
  }
  status.phase_timeouts = phase_watch_.num_late();
  return status;
}

std::optional<RoundResult> Coordinator::LastOutcome() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().last_outcome();
}

std::vector<RoundRecord> Coordinator::Rounds() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().records();
}

std::vector<double> Coordinator::TensorOrthogonality() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().tensor_orthogonality();
}

bool Coordinator::finished() const {
  MutexLock lock(&mutex_);
  return state_.finished();
}

}  // namespace agg
