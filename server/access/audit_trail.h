// The last events of a job that somebody may have to account for: kept in
// memory, written to the log and, if one is configured, to a file.
#ifndef AGG_SERVER_ACCESS_AUDIT_TRAIL_H_
#define AGG_SERVER_ACCESS_AUDIT_TRAIL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/access/audit_event.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace agg {

// Bounded in bytes, whoever calls how often. Denials are kept apart from what
// was done, so that they push nothing of it out: those alike (identity, call,
// reason, host) within kTogether are one event with a count, and beyond
// kMaxNewDenials different ones in that time they are counted together. Such an
// event has a line when it begins, and if there were more of them one with the
// count when its time is over: the trail's end is that, too. Lines are in the
// log whatever its level is. Thread-safe.
class AuditTrail {
 public:
  static constexpr size_t kMaxEvents = 1000;
  static constexpr size_t kMaxDenials = 200;
  static constexpr absl::Duration kTogether = absl::Seconds(10);
  static constexpr int kMaxNewDenials = 50;

  // `clock`: the system's time; outlives it. `write` (may be null) gets each
  // line without a newline, must not block, and outlives it.
  using Write = std::function<void(const std::string& line)>;
  explicit AuditTrail(const Clock* clock, Write write = nullptr)
      : clock_(clock), write_(std::move(write)) {}
  ~AuditTrail();

  // Something was done, or its attempt has failed.
  void Note(AuditEvent event);
  // A call was refused. `event` says who, from where, what and why.
  void NoteDenial(AuditEvent event);
  // Writes what has its count by now. Note and NoteDenial do it by themselves:
  // to be called from time to time, where nothing else may happen.
  void CloseDenials();
  // The newest `limit` events (0: all), in the order of their times.
  std::vector<AuditEvent> Last(size_t limit) const;

 private:
  void WriteLine(const AuditEvent& event) const;
  void Keep(AuditEvent event, size_t most, std::deque<AuditEvent>* kept)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those that began `before` then.
  void CloseBefore(absl::Time before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CountsWithOthers(const AuditEvent& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const Write write_;
  mutable Mutex mutex_;
  std::deque<AuditEvent> events_ ABSL_GUARDED_BY(mutex_);   // oldest first
  std::deque<AuditEvent> denials_ ABSL_GUARDED_BY(mutex_);  // likewise
  size_t num_closed_ ABSL_GUARDED_BY(mutex_) = 0;  // the oldest of denials_
  absl::Time window_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int new_denials_ ABSL_GUARDED_BY(mutex_) = 0;  // since window_
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_AUDIT_TRAIL_H_
