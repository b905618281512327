// What a round log has done so far: plain values, without protobuf.
#ifndef AGG_SERVER_ROUND_LOG_ROUND_LOG_STATUS_H_
#define AGG_SERVER_ROUND_LOG_ROUND_LOG_STATUS_H_

#include <cstdint>

namespace agg {

struct RoundLogStatus {
  uint64_t records = 0;  // written since the start
  uint64_t errors = 0;   // rounds that are not in the log
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_ROUND_LOG_STATUS_H_
