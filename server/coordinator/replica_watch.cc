// The words are in one place, so that the log, the status and the error of a
// worker's call say the same.
#include "server/coordinator/replica_watch.h"

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace agg {

void ReplicaWatch::Note(uint64_t round, const ReplicaGroups& replicas) {
  if (replicas.differ()) {
    const bool is_new = replicas.differing != differing_;
    differing_ = replicas.differing;
    text_ = replicas.Text();
    last_round_ = round;
    if (is_new) LogWarning("round ", round, ": ", text_);
  } else if (!differing_.empty() && round - last_round_ >= kQuietRounds) {
    differing_.clear();
    LogInfo("round ", round, ": no worker's parameters have differed for ",
            kQuietRounds, " rounds");
  }
}

std::string ReplicaWatch::Text() const {
  if (differing_.empty()) return "";
  return absl::StrCat("in round ", last_round_, " ", text_);
}

std::string ReplicaWatch::FailureText() const {
  if (!fails_ || differing_.empty()) return "";
  return absl::StrCat("it failed: ", Text(), " (on_divergence)");
}

}  // namespace agg
