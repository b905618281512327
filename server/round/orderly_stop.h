// A shard is lost because somebody stopped it in good order: the epoch ends as
// well, but nothing is wrong. It is a mark on the status and not its text,
// which may say anything.
#ifndef AGG_SERVER_ROUND_ORDERLY_STOP_H_
#define AGG_SERVER_ROUND_ORDERLY_STOP_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace agg {

// UNAVAILABLE with the mark. The message begins with who stops: "shard 1
// (127.0.0.1:50052) is shutting down".
absl::Status OrderlyStop(absl::string_view message);

bool IsOrderlyStop(const absl::Status& reason);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_ORDERLY_STOP_H_
