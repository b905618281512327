// The memory of a shard whose device is one of the fake driver's, as it is
// handed out (P39, P47, P48), for a FakeJob of one shard.
#ifndef AGG_TESTS_WORKER_CLIENT_DEVICE_SHARD_H_
#define AGG_TESTS_WORKER_CLIENT_DEVICE_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "proto/shard_plan.h"
#include "server/base/shared_memory.h"
#include "tests/worker_client/fake_job.h"
#include "tests/worker_client/region_giver.h"

namespace agg {

// Reads a slice from the side that its frame names. Thread-safe.
class DeviceShard {
 public:
  // `tell` changes what is handed out.
  using Tell = std::function<void(RegionGift* gift)>;
  explicit DeviceShard(const Manifest& manifest, DType push_dtype = DType::kF32,
                       Tell tell = nullptr);

  // Options of a job with this shard.
  FakeJob::Options Options();

  struct Counts {
    int requests = 0;      // for memory
    int takes_device = 0;  // of them
    int frames = 0;        // with in_place; each slice counts as one
    int frames_on_device = 0;
    int pulls = 0;  // with in_place
    int pulls_on_device = 0;
  };
  Counts counts() const;
  // Where the row's slice is on the device.
  const char* OnDevice(int slice) const;
  // Pulls by way of the host find versions in shared memory, too.
  void PlaceVersions();
  // The next pull from shared memory, or on the device, finds another
  // generation than it was told.
  void OverwriteNext();

 private:
  RegionGift Give(const v1::RegionRequest& request);
  std::string Read(const v1::FrameMeta& meta, int slice);
  bool Place(const v1::PullRequest& request,
             const std::function<std::string(int)>& bytes,
             v1::PullFrame* frame);

  const ShardPlan plan_;
  const DType dtype_;
  const Tell tell_;
  std::vector<uint64_t> offsets_;            // of the row, by slice
  std::vector<uint64_t> parameter_offsets_;  // likewise
  int64_t row_bytes_ = 0;
  int64_t parameter_bytes_ = 0;
  std::shared_ptr<const DeviceContext> context_;
  std::unique_ptr<SharedMemory> row_, version_, page_;
  std::unique_ptr<SharedDeviceMemory> row_device_, parameters_;
  mutable std::mutex mutex_;
  Counts counts_;
  uint64_t generation_ = 1;
  bool overwrites_ = false;
  bool places_versions_ = false;
  std::unique_ptr<RegionGiver> giver_;  // last
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_DEVICE_SHARD_H_
