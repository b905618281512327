// An HTML report of a run, made from its round logs.
#ifndef AGG_SERVER_TOOLS_RUN_REPORT_H_
#define AGG_SERVER_TOOLS_RUN_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/json.h"
#include "server/metrics/round_state.h"
#include "server/round/combination_names.h"
#include "server/round/round_report.h"
#include "server/round_log/round_record.h"
#include "server/status/round_point.h"

namespace agg {

// Rounds that a report's pictures show, at most: of more rounds they show every
// second, every fourth, and so on. Counts are those of all rounds.
inline constexpr size_t kMaxReportRounds = 4096;
// Changes of the combination that a report names, at most; it counts all.
inline constexpr size_t kMaxReportChanges = 20;
// Tensors with a line in the heatmap, at most: the largest ones.
inline constexpr int32_t kMaxReportTensors = 64;

// Takes logs in the order of their rounds. Not thread-safe.
class RunReport {
 public:
  // Reads a log to its end. RecordReader's errors, with the path; what came
  // before the damage has been taken. A record that was cut short at the end is
  // left out, and a note says so.
  absl::Status AddLog(const std::string& path);

  // What whoever reads the report has to know of the logs, in sentences: each
  // names its log. Empty if all was read.
  const std::vector<std::string>& notes() const { return notes_; }

  // One HTML file without external resources, the status page with this data.
  // FAILED_PRECONDITION without any round.
  absl::StatusOr<std::string> Html() const;

 private:
  void BeginRun(const RunDescription& run);
  void Add(const RoundReport& report);
  void NoteCombination(const RoundReport& report);
  void Keep(RoundPoint point);
  // Every combination of the run: in a few words, and in all.
  std::string CombinedText() const;
  std::string ChangesText() const;
  // The data of the page, as /status.json has it, and parts of it.
  std::string DataText() const;
  Json RoundsJson() const;
  Json RunJson() const;  // name and value of each line of the run's table
  void AddFacts(Json* lines) const;
  void AddNumbers(Json* lines) const;

  RunDescription run_;  // the last one
  int num_runs_ = 0;
  TensorSelection selection_;
  int64_t truncated_bytes_ = 0;
  std::vector<std::string> notes_;

  int64_t num_rounds_ = 0;  // with the last manifest
  int64_t applied_ = 0, skipped_ = 0, excluded_rows_ = 0;
  int64_t compensated_ = 0, adacons_fallbacks_ = 0;
  int64_t examples_ = 0;
  absl::Time first_finished_at_;
  RoundPoint newest_;
  RoundReport newest_applied_;
  // The combinations, each with the first round that it was in effect in.
  std::vector<std::pair<uint64_t, CombinationNames>> combinations_;
  size_t num_combinations_ = 0;     // also those that are not kept
  std::vector<RoundPoint> points_;  // every stride_-th round
  int64_t stride_ = 1;
};

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_RUN_REPORT_H_
