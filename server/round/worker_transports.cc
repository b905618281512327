// What a worker sends is counted and said again in the server's own words, so
// that nothing of it is kept.
#include "server/round/worker_transports.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

size_t IndexOf(absl::string_view word) {
  const auto found =
      std::find(kTransportNames.begin(), kTransportNames.end(), word);
  if (found == kTransportNames.end()) return kTransportNames.size() - 1;
  return static_cast<size_t>(found - kTransportNames.begin());
}

std::string CountsText(const WorkerTransports& transports) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kTransportNames.size(); ++i) {
    if (transports.shards[i] == 0) continue;
    parts.push_back(absl::StrCat(transports.shards[i], " ",
                                 std::string(kTransportNames[i])));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

absl::StatusOr<WorkerTransports> ParseTransports(absl::string_view text,
                                                 int num_shards) {
  WorkerTransports transports;
  if (text.empty()) return transports;
  const int64_t num_words = 1 + std::count(text.begin(), text.end(), ' ');
  if (num_words != num_shards) {
    return FieldError("transports", absl::StrCat("of ", num_words, " words"),
                      absl::StrCat("none, or one per shard, ", num_shards));
  }
  std::string by_ordinal;
  size_t last = 0;
  bool same = true;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t index = IndexOf(text.substr(begin, end - begin));
    if (begin > 0) {
      same = same && index == last;
      by_ordinal += ' ';
    }
    by_ordinal += std::string(kTransportNames[index]);
    ++transports.shards[index];
    last = index;
    begin = end + 1;
  }
  if (same) {
    transports.text = std::string(kTransportNames[last]);
  } else if (by_ordinal.size() <= WorkerTransports::kMaxBytes) {
    transports.text = by_ordinal;
  } else {
    transports.text = CountsText(transports);
  }
  return transports;
}

}  // namespace agg
