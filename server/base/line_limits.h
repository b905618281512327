// Holds back lines of a log that somebody else can cause as often as they like:
// a worker whose every gradient is NaN, a peer that connects again and again.
#ifndef AGG_SERVER_BASE_LINE_LIMITS_H_
#define AGG_SERVER_BASE_LINE_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/log_record.h"

namespace agg {

struct HeldLine {
  LogRecord record;
  absl::Time said;  // by the wall clock, which is what the line shows
};

// Writes the first of the lines that share a reason, and then one in each
// kInterval: the newest of those that came meanwhile, with the number of the
// others. So the end of a flood is written, too, a little later.
// Thread-compatible.
class LineLimits {
 public:
  static constexpr absl::Duration kInterval = absl::Minutes(1);
  // Reasons that are known at a time: what peers send may stand in one. Those
  // beyond are one reason for each place where lines are logged, so that the
  // flood of one place does not hold back what others have to say.
  static constexpr size_t kMaxReasons = 256;

  // Whether the record is to be written `now`; it then gets the number of those
  // before it that never will be. Else it is kept, with the time `said`.
  bool Take(absl::string_view reason, LogRecord* record, absl::Time now,
            absl::Time said);
  // The records whose time has come `now`, in the order in which they were
  // said; absl::InfiniteFuture(): all that are kept. To be called from time to
  // time.
  std::vector<HeldLine> TakeDue(absl::Time now);
  // Number of records that never will be written.
  uint64_t num_dropped() const { return num_dropped_; }

 private:
  struct Reason {
    absl::Time written;
    HeldLine newest;        // of those that are held back
    uint64_t num_held = 0;  // with `newest`
  };

  // The reason's entry, or what stands for it.
  Reason* Find(absl::string_view reason, const LogRecord& record,
               absl::Time now);

  std::map<std::string, Reason, std::less<>> reasons_;
  uint64_t num_dropped_ = 0;
};

// `text` with # for each number in it: what lines about different rounds,
// versions or ports have in common.
std::string WithoutNumbers(absl::string_view text);

}  // namespace agg

#endif  // AGG_SERVER_BASE_LINE_LIMITS_H_
