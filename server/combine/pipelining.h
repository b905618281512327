// Which combinations allow each tensor to be published by itself (P43).
#ifndef AGG_SERVER_COMBINE_PIPELINING_H_
#define AGG_SERVER_COMBINE_PIPELINING_H_

#include "absl/status/status.h"
#include "server/combine/options.h"

namespace agg {

// INVALID_ARGUMENT naming each field by which a tensor's result would depend on
// other tensors, its value, and what a pipelined job allows: the rule's scope
// and state, outliers, clip_norm, step_scale.
absl::Status CheckPipelining(const CombineOptions& options);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_PIPELINING_H_
