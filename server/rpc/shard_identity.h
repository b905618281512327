// Who a shard is: what the services of one process say about it.
#ifndef AGG_SERVER_RPC_SHARD_IDENTITY_H_
#define AGG_SERVER_RPC_SHARD_IDENTITY_H_

#include <cstdint>
#include <string>

namespace agg {

// The coordinator must believe the same of each shard that it attaches.
struct ShardIdentity {
  int32_t ordinal = 0;
  int32_t num_shards = 1;
  std::string address;      // "host:port", for messages
  std::string fingerprint;  // of the config
  std::string backend;
  uint64_t life = 0;          // random bits of the process
  std::string local_socket;   // that it listens on besides its port (P38)
  std::string region_socket;  // where it hands out shared memory (P39)
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_SHARD_IDENTITY_H_
