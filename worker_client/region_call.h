// Asks a shard of this host for its shared memory (proto/region.proto).
#ifndef AGG_WORKER_CLIENT_REGION_CALL_H_
#define AGG_WORKER_CLIENT_REGION_CALL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"

namespace agg {

// A reply, of which nothing is checked but that it has as many descriptors as
// its regions take.
struct RegionAnswer {
  v1::RegionReply reply;
  std::vector<FileDescriptor> descriptors;
};

// On the Unix socket `name`, of a process of this user or of root. Ends within
// some seconds. UNAVAILABLE: nobody is there, as on another host; the shard's
// refusal; INTERNAL: it is no answer.
absl::StatusOr<RegionAnswer> AskForRegions(const std::string& name,
                                           const v1::RegionRequest& request);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_REGION_CALL_H_
