// Round reports as records of the round log (proto/round_log.proto), and back.
#ifndef AGG_SERVER_ROUND_LOG_ROUND_RECORD_H_
#define AGG_SERVER_ROUND_LOG_ROUND_RECORD_H_

#include "proto/round_log.pb.h"
#include "server/round/round_report.h"
#include "server/round_log/run_description.h"

namespace agg {

// Coefficients of a round that are written one by one, at most.
inline constexpr int kMaxLoggedCoefficients = 4096;

v1::RoundLogRecord ToProto(const RoundReport& report);
v1::RunDescription ToProto(const RunDescription& run);

// What the record holds of a report: orthogonalities and coefficients have
// float32's digits, kappas per tensor and the cause of a fallback are NaN or
// unset, and coefficients that were left out are empty. Whatever the record
// says: lists that do not fit together come out short.
RoundReport FromProto(const v1::RoundLogRecord& record);
RunDescription FromProto(const v1::RunDescription& run);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_ROUND_RECORD_H_
