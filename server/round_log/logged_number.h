// Where the round log has each of a round's numbers.
#ifndef AGG_SERVER_ROUND_LOG_LOGGED_NUMBER_H_
#define AGG_SERVER_ROUND_LOG_LOGGED_NUMBER_H_

#include "proto/round_log.pb.h"
#include "server/round/round_numbers.h"

namespace agg {

// The first numbers have fields of their own, which are called as the number
// is; every later one is an entry of `numbers` (proto/round_log.proto). So
// existing logs and readers stay as they are, and a new number needs no field.

// Writes `value` into `*record`.
void LogNumber(const RoundNumber& number, double value,
               v1::RoundLogRecord* record);

// Reads it back; NaN for a record that is older than the number.
double LoggedNumber(const RoundNumber& number,
                    const v1::RoundLogRecord& record);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_LOGGED_NUMBER_H_
