// Hands a shard's shared memory to processes of its host (P39, P40).
#ifndef AGG_SERVER_RPC_REGION_SERVER_H_
#define AGG_SERVER_RPC_REGION_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/shard/region_grant.h"

namespace agg {

// Listens on an abstract Unix socket. Answers a process of this user or of root
// with one reply to one request (proto/region.proto), and closes the connection
// of any other one unread. One thread serves one process at a time, each for
// `patience` twice at most: a process that says nothing delays the others.
class RegionServer {
 public:
  // Grants what a process asks for, as ShardEngine::GrantRegions does.
  using Grant =
      std::function<absl::StatusOr<RegionGrant>(const RegionQuery& query)>;

  // `grant` is called on the thread, until the end of the object. UNAVAILABLE:
  // the name cannot be listened on.
  static absl::StatusOr<std::unique_ptr<RegionServer>> Start(
      const std::string& name, Grant grant,
      absl::Duration patience = absl::Seconds(1));
  // Waits for the thread, which may be serving.
  ~RegionServer();
  RegionServer(const RegionServer&) = delete;
  RegionServer& operator=(const RegionServer&) = delete;

 private:
  RegionServer(FileDescriptor listener, FileDescriptor stop, Grant grant,
               absl::Duration patience);

  void Loop();
  void Serve(int socket) const;
  absl::StatusOr<RegionGrant> Answer(const v1::RegionRequest& request) const;

  const FileDescriptor listener_;
  const FileDescriptor stop_;  // an eventfd: readable, the thread ends
  const Grant grant_;
  const absl::Duration patience_;
  std::thread thread_;  // last: runs as soon as it is made
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REGION_SERVER_H_
