// What of the shards' memory this client has mapped, from epoch to epoch.
#ifndef AGG_WORKER_CLIENT_SHARD_REGIONS_H_
#define AGG_WORKER_CLIENT_SHARD_REGIONS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/region.pb.h"
#include "proto/shard_plan.h"
#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"
#include "worker_client/copy_threads.h"
#include "worker_client/device_parameters.h"
#include "worker_client/job_view.h"
#include "worker_client/row_region.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/version_region.h"

namespace agg {

// Memory of one shard's process that is mapped, for one session.
struct MappedRegions {
  std::shared_ptr<RowRegion> row;  // null: rows are sent
  std::map<uint32_t, std::shared_ptr<const VersionRegion>> versions;
  // Parameters on the shard's device, by the caller's device that reads them.
  std::map<int, std::shared_ptr<const DeviceParameters>> parameters;
  // Returns the parameters for `device`; null: none are mapped for it, or
  // copies to it fail.
  const DeviceParameters* ParametersOn(int device) const;
  bool any() const { return row != nullptr || !versions.empty(); }
};

// A shard is asked at first use, and again in another epoch (it may have
// forgotten the job), when its process or the session is another one, when it
// had no row to give yet, or when a tensor was met on another device. What it
// still has stays as it is mapped, and lasts as long as somebody uses it.
// Thread-safe.
class ShardRegions {
 public:
  // REQUIRES: router, copies and devices outlive this.
  ShardRegions(const ClientOptions& options, const ShardRouter* router,
               CopyThreads* copies, TensorDevices* devices)
      : allowed_(options.shared_memory && options.local_sockets),
        token_file_(options.token_file),
        router_(router),
        copies_(copies),
        devices_(devices),
        takes_devices_(options.cuda_rows),
        leaves_out_(HasOptional(router->manifest())),
        entries_(router->num_shards()) {}

  // Returns what is mapped of the shard; never null, but empty where nothing is
  // shared. May wait some seconds for the shard.
  std::shared_ptr<const MappedRegions> Get(const JobView& view, int shard);

  // Calls RowRegion::Begin for each of `shards`, which the row is pushed to
  // now. Returns where it is written, as `shards`; null where it is sent.
  // `devices`: GrowingRow::devices.
  struct Placed {
    std::vector<RowRegion*> regions;
    std::vector<std::shared_ptr<const MappedRegions>> owners;  // of these
  };
  Placed Begin(const JobView& view, const RowName& row,
               const std::vector<int>& shards, const std::set<int>& devices);
  // Calls RowRegion::Land: the shard has all of the row.
  void Land(const JobView& view, const RowName& row, int shard);

 private:
  struct Entry {
    uint64_t session = 0;
    uint64_t life = 0;
    uint64_t epoch = 0;   // of the last answer; 0: none
    int num_devices = 0;  // that were met by then
    uint32_t row_number = 0;
    bool row_later = false;
    std::shared_ptr<const MappedRegions> regions;
  };
  static bool HasOptional(const Manifest& manifest);
  // Asks and maps what fits; `entry` is the shard's, with session and life.
  // After an error it is as it was.
  absl::Status Ask(const JobView& view, int shard, Entry* entry) const;
  // Maps the answer's versions; one that `entry` has stays as it is mapped.
  static absl::Status MapVersions(const v1::RegionReply& reply,
                                  absl::Span<const FileDescriptor> descriptors,
                                  const Entry& entry, MappedRegions* mapped);
  // Maps what the answer has of the shard's device, for each device of the
  // caller's that reaches it; what does not fit is left out. `descriptors`:
  // those behind the versions'.
  void MapDevices(const v1::RegionReply& reply,
                  absl::Span<const FileDescriptor> descriptors,
                  const Entry& entry, MappedRegions* mapped) const;

  const bool allowed_;
  const std::string token_file_;
  const ShardRouter* const router_;
  CopyThreads* const copies_;
  TensorDevices* const devices_;
  const bool takes_devices_;
  // Whether rows may leave out tensors: a row is begun before it is known
  // whether it does.
  const bool leaves_out_;
  Mutex mutex_;  // held while a shard is asked
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_SHARD_REGIONS_H_
