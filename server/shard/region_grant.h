// What of a shard's memory another process may map, as plain values.
#ifndef AGG_SERVER_SHARD_REGION_GRANT_H_
#define AGG_SERVER_SHARD_REGION_GRANT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/dtype.h"
#include "server/params/shared_buffer.h"

namespace agg {

// Who asks: a worker's session, or 0 for an observer, which gets no row.
struct RegionQuery {
  uint64_t session = 0;
  uint64_t epoch = 0;         // 0: any
  uint64_t life = 0;          // of what the shard holds
  bool takes_int8 = false;    // knows where the scales of a row of int8 lie
  bool takes_device = false;  // may map memory of a device
  std::string token = {};     // that it has sent; "": none
};

struct GrantedRegion {
  DType dtype = DType::kF32;
  std::shared_ptr<Region> region;  // its descriptor is open as long as this is
};

// Memory of the backend's device.
struct GrantedDevice {
  DType dtype = DType::kF32;
  uint32_t number = 0;
  int64_t num_bytes = 0;  // elements of dtype
  DeviceShare share;      // its descriptor is open as long as `owner` is
  std::shared_ptr<const void> owner;
  std::shared_ptr<Region> head;  // its generation; null: a row has none
};

struct RegionGrant {
  std::vector<GrantedRegion> row;  // one, or none
  std::vector<GrantedRegion> versions;
  // Given to who takes it, one or none: the row on the device, if there is a
  // row, and the float32 parameters (P47, P48).
  std::vector<GrantedDevice> row_device;
  std::vector<GrantedDevice> parameters_device;
  // Bytes, where each of the shard's slices lies in the row, in their order.
  std::vector<uint64_t> row_offsets;
  // There is a row for the session to have, and it cannot have it yet: until
  // the round ends a former session's is in it, or takes the memory.
  bool row_later = false;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_REGION_GRANT_H_
