// What the rounds of one log have in common.
#ifndef AGG_SERVER_ROUND_LOG_RUN_DESCRIPTION_H_
#define AGG_SERVER_ROUND_LOG_RUN_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace agg {

struct RunDescription {
  std::string job;
  std::string server_version;
  absl::Time started_at;  // of the server
  std::string config;     // text format, defaults included
  int32_t workers = 0;    // expected
  int32_t shards = 0;
  std::vector<std::pair<std::string, int64_t>> tensors;  // name, elements
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_RUN_DESCRIPTION_H_
