// The last events of a job that somebody may have to account for: kept in
// memory, written to the log and, if one is configured, to a file.
#ifndef AGG_SERVER_ACCESS_AUDIT_TRAIL_H_
#define AGG_SERVER_ACCESS_AUDIT_TRAIL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/identities.h"
#include "server/base/clock.h"
#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"

namespace agg {

// Something that was done to a job, or refused, that an operator may have to
// account for later.
struct AuditEvent {
  absl::Time time;  // filled in by who keeps it
  // "join", "resume", "takeover", "denial", "lost" (a worker whose lease or
  // grace has run out), or the word that AdminService has for a change.
  std::string action;
  std::string who;       // the identity; "": nobody is asked who they are
  std::string from;      // the caller's address; "": the job itself
  int32_t rank = -1;     // below 0: of no rank
  uint64_t session = 0;  // 0: of none
  std::string detail;    // what was asked for
  std::string outcome;   // "OK", or an error with its code
  uint64_t times = 1;    // so many alike, in short order
};

// One JSON object in one line, of at most kMaxAuditBytes: texts that came over
// the network are cut, and what is no UTF-8, or a control character, is
// replaced or escaped.
std::string AuditLine(const AuditEvent& event);

// Limits of each text of an event, and of a whole line.
inline constexpr int kMaxAuditTextBytes = 256;
inline constexpr int kMaxAuditBytes = 16384;

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

// The file of audit lines. They are appended by a thread of its own, so that a
// slow disk holds nobody up; a line that would make the file longer than
// `max_bytes` goes into a new one, and the old one becomes PATH.1. A line that
// cannot be written is left out as a whole, and the log says why, once until a
// line is written again. The file is for its owner alone (0600). Thread-safe.
class AuditFile {
 public:
  static constexpr size_t kMaxWaiting = 1024;

  // At most `max_waiting` lines wait for the disk; further ones are lost, and
  // the log says how many. Errors name the path and the reason.
  static absl::StatusOr<std::unique_ptr<AuditFile>> Open(
      const AuditFileOptions& options, size_t max_waiting = kMaxWaiting);
  // Writes what waits.
  ~AuditFile();
  AuditFile(const AuditFile&) = delete;
  AuditFile& operator=(const AuditFile&) = delete;

  // Queues the line, which has no newline. Never waits for the disk.
  void Write(std::string line);
  // Number of lines that are not in the file.
  uint64_t num_errors() const { return num_errors_; }

 private:
  AuditFile(const AuditFileOptions& options, size_t max_waiting,
            FileDescriptor file);

  void Work();
  void AppendOrLog(const std::string& line);
  absl::Status Append(const std::string& line);
  absl::Status BeginNew();

  const AuditFileOptions options_;
  const size_t max_waiting_;
  // Used by the thread alone.
  FileDescriptor file_;
  std::string logged_;

  std::atomic<uint64_t> num_errors_{0};
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_lost_ ABSL_GUARDED_BY(mutex_) = 0;  // since the log said so
  std::thread thread_;                             // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_AUDIT_TRAIL_H_
