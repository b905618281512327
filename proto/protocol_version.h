// The version of proto/agg.proto that this release speaks. Clients, shards and
// the coordinator send it first, and refuse another one.
#ifndef AGG_PROTO_PROTOCOL_VERSION_H_
#define AGG_PROTO_PROTOCOL_VERSION_H_

#include <cstdint>

namespace agg {

inline constexpr uint32_t kProtocolVersion = 1;

}  // namespace agg

#endif  // AGG_PROTO_PROTOCOL_VERSION_H_
