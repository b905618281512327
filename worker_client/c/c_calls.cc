// Answers are the thread's own, so that no lock is needed for them.
#include "worker_client/c/c_calls.h"

#include <utility>

namespace agg {

CallAnswer& ThisThreads() {
  thread_local CallAnswer answer;
  return answer;
}

int32_t Fail(int32_t code, absl::string_view message) {
  ThisThreads().error = std::string(message);
  return code;
}

int32_t CodeOf(const absl::Status& status) {
  ThisThreads().error.clear();
  if (status.ok()) return AGG_OK;
  return Fail(static_cast<int32_t>(status.code()), status.message());
}

absl::Status Answered(absl::StatusOr<RoundOutcome> outcome, agg_outcome* out) {
  if (!outcome.ok()) return outcome.status();
  OutcomeStore& store = ThisThreads().outcome;
  store = StoreOf(*std::move(outcome));
  return Fill(store, out);
}

}  // namespace agg
