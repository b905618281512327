// Round reports, and the description of a run, as records of the round log
// (proto/round_log.proto), and back. Also the fields that the numbers of a
// round have there.
#ifndef AGG_SERVER_ROUND_LOG_ROUND_RECORD_H_
#define AGG_SERVER_ROUND_LOG_ROUND_RECORD_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/round_log.pb.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"

namespace agg {

// What the rounds of one log have in common.
struct RunDescription {
  std::string job;
  std::string server_version;
  absl::Time started_at;  // of the server
  std::string config;     // text format, defaults included
  int32_t workers = 0;    // expected
  int32_t shards = 0;
  std::vector<std::pair<std::string, int64_t>> tensors;  // name, elements
  std::vector<std::pair<int32_t, std::string>> joined;   // rank, client
};

// Writes `value` into `*record`: into the field that is called as the number
// is, for those that proto/round_log.proto gives one, else into `numbers`. So
// existing logs and readers stay as they are, and a new number needs no field.
// A NaN is left out of `numbers`, where it is what a missing one is read as.
void LogNumber(const RoundNumber& number, double value,
               v1::RoundLogRecord* record);

// Reads it back; NaN for a record that is older than the number.
double LoggedNumber(const RoundNumber& number,
                    const v1::RoundLogRecord& record);

// Coefficients of a round that are written one by one, at most.
inline constexpr int kMaxLoggedCoefficients = 4096;

v1::RoundLogRecord ToProto(const RoundReport& report);
v1::RunDescription ToProto(const RunDescription& run);

// What the record holds of a report: orthogonalities, norms of tensors and
// coefficients have float32's digits, kappas per tensor and the cause of a
// fallback are NaN or unset, and coefficients that were left out are empty.
// Whatever the record says: lists that do not fit together come out short.
RoundReport FromProto(const v1::RoundLogRecord& record);
RunDescription FromProto(const v1::RunDescription& run);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_ROUND_RECORD_H_
