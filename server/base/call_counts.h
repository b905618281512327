// How many gRPC calls have ended, by method and code. It stands between who
// counts (server/rpc) and who shows (server/metrics), so that neither needs the
// other.
#ifndef AGG_SERVER_BASE_CALL_COUNTS_H_
#define AGG_SERVER_BASE_CALL_COUNTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

struct CallCount {
  std::string method;  // "agg.v1.Shard/Push"
  std::string code;    // "OK", "UNAVAILABLE": gRPC's names
  uint64_t number = 0;
};

// Thread-safe.
class CallCounts {
 public:
  // What the calls of all methods that were not declared are counted as, so
  // that no caller can make up names.
  static constexpr char kOther[] = "other";

  // Makes the method's count of OK, 0, and lets it be counted by name.
  void Declare(const std::string& method);
  // A call has ended. `code`: gRPC's number; others than 0 to 16 are UNKNOWN.
  void Add(const std::string& method, int code);
  // What there is, by method and code. A code has no entry before its first
  // call, except OK.
  std::vector<CallCount> counts() const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> counts_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_CALL_COUNTS_H_
