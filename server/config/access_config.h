// The configuration's `security`, as the options of server/access: apart from
// options.cc since its fields are read together.
#ifndef AGG_SERVER_CONFIG_ACCESS_CONFIG_H_
#define AGG_SERVER_CONFIG_ACCESS_CONFIG_H_

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/access/identities.h"

namespace agg {

// Sets what the text leaves out.
void CompleteAccess(v1::JobConfig* config);

// INVALID_ARGUMENT with a line for each bad field; so are addresses of shards
// to which a token would go in clear text. No file is opened. REQUIRES: a
// config that WithDefaults has completed.
absl::StatusOr<AccessOptions> MakeAccessOptions(const v1::JobConfig& config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_ACCESS_CONFIG_H_
