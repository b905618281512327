// The words are in one place, so that the log, the status and the error of a
// worker's call say the same.
#include "server/coordinator/replica_watch.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"

namespace agg {

// Sorting, and one sentence.

namespace {

// "rank 2", "ranks 0, 1, 5 and 30 more".
std::string Ranks(const std::vector<int32_t>& ranks) {
  constexpr size_t kMaxNamed = 16;
  if (ranks.size() <= kMaxNamed) {
    return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                        absl::StrJoin(ranks, ", "));
  }
  const std::vector<int32_t> first(ranks.begin(), ranks.begin() + kMaxNamed);
  return absl::StrCat("ranks ", absl::StrJoin(first, ", "), " and ",
                      ranks.size() - kMaxNamed, " more");
}

bool MostAgree(const ReplicaGroups& replicas) {
  size_t num_ranks = 0;
  for (const auto& group : replicas.groups) num_ranks += group.size();
  return 2 * replicas.groups.front().size() > num_ranks;
}

}  // namespace

std::string ReplicaGroups::Text() const {
  if (!differ()) return "";
  std::string text = "workers' parameters differ: ";
  if (MostAgree(*this)) {
    absl::StrAppend(&text, Ranks(differing), " from those of ",
                    Ranks(groups.front()));
  } else {
    constexpr size_t kMaxGroups = 8;
    std::vector<std::string> parts;
    for (const auto& group : groups) {
      if (parts.size() == kMaxGroups) break;
      parts.push_back(Ranks(group));
    }
    absl::StrAppend(&text, absl::StrJoin(parts, " from those of "));
    if (groups.size() > kMaxGroups) {
      absl::StrAppend(&text, ", and ", groups.size() - kMaxGroups,
                      " more groups");
    }
    absl::StrAppend(&text, " (no majority says who is right)");
  }
  return absl::StrCat(text,
                      "; load the same checkpoint on all of them, with their "
                      "optimizers' states");
}

ReplicaGroups GroupReplicas(const RoundReport& report) {
  std::map<uint32_t, std::vector<int32_t>> by_digest;
  const size_t num_rows =
      std::min(report.rows.size(), report.parameters_digests.size());
  for (size_t i = 0; i < num_rows; ++i) {
    const uint32_t digest = report.parameters_digests[i];
    if (digest != 0) by_digest[digest].push_back(report.rows[i].rank);
  }
  ReplicaGroups replicas;
  for (auto& entry : by_digest) {
    std::vector<int32_t>& ranks = entry.second;
    std::sort(ranks.begin(), ranks.end());
    replicas.groups.push_back(std::move(ranks));
  }
  std::sort(replicas.groups.begin(), replicas.groups.end(),
            [](const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
              if (a.size() != b.size()) return a.size() > b.size();
              return a.front() < b.front();
            });
  if (!replicas.differ()) return replicas;
  for (size_t i = MostAgree(replicas) ? 1 : 0; i < replicas.groups.size();
       ++i) {
    replicas.differing.insert(replicas.differing.end(),
                              replicas.groups[i].begin(),
                              replicas.groups[i].end());
  }
  std::sort(replicas.differing.begin(), replicas.differing.end());
  return replicas;
}

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
