// The round log of a running job: reports in, records on disk.
#ifndef AGG_SERVER_ROUND_LOG_ROUND_LOG_H_
#define AGG_SERVER_ROUND_LOG_ROUND_LOG_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/round/round_report.h"
#include "server/round_log/record_file.h"
#include "server/round_log/round_log_status.h"
#include "server/round_log/round_record.h"

namespace agg {

struct RoundLogOptions {
  std::string path;
  // A record that would make the file larger goes into a new one; the old one
  // becomes PATH.1. At least one record is written in any case.
  int64_t max_bytes = int64_t{1} << 30;
};

// A thread of its own writes; nothing here makes a round wait or fail. What
// cannot be written (no space, an I/O error, a disk so slow that 256 rounds
// wait) is lost and counted, and the server's log says so once a minute.
// Thread-safe.
class RoundLog {
 public:
  // RecordFile::Open's errors.
  static absl::StatusOr<std::unique_ptr<RoundLog>> Open(
      const RoundLogOptions& options);
  // Writes what waits.
  ~RoundLog();

  // Describes the rounds to come.
  void SetRun(const RunDescription& run);
  void Append(const RoundReport& report);

  RoundLogStatus Status() const;

 private:
  struct Entry {
    std::shared_ptr<const RunDescription> run;
    RoundReport report;
  };

  RoundLog(const RoundLogOptions& options, std::unique_ptr<RecordFile> file);

  void Work();
  absl::Status Write(const Entry& entry);
  void Count(const absl::Status& status);

  const RoundLogOptions options_;
  // Used by the thread alone.
  const std::unique_ptr<RecordFile> file_;
  std::shared_ptr<const RunDescription> written_run_;
  absl::Time logged_at_ = absl::InfinitePast();
  uint64_t logged_errors_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const RunDescription> run_ ABSL_GUARDED_BY(mutex_);
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  RoundLogStatus status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_ROUND_LOG_H_
