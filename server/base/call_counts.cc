#include "server/base/call_counts.h"

#include "absl/status/status.h"

namespace agg {
namespace {

constexpr int kOk = static_cast<int>(absl::StatusCode::kOk);
constexpr int kUnknown = static_cast<int>(absl::StatusCode::kUnknown);
constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

// absl's codes have gRPC's numbers and names.
std::string CodeName(int code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

}  // namespace

void CallCounts::Declare(const std::string& method) {
  MutexLock lock(&mutex_);
  counts_[{method, kOk}];
}

void CallCounts::Add(const std::string& method, int code) {
  const int known_code = code < 0 || code > kLastCode ? kUnknown : code;
  MutexLock lock(&mutex_);
  const bool declared = counts_.count({method, kOk}) != 0;
  ++counts_[{declared ? method : kOther, known_code}];
}

std::vector<CallCount> CallCounts::counts() const {
  std::vector<CallCount> counts;
  MutexLock lock(&mutex_);
  for (const auto& [key, number] : counts_) {
    counts.push_back({key.first, CodeName(key.second), number});
  }
  return counts;
}

}  // namespace agg
