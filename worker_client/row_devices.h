// The caller's devices that copy to a shard's row on its device (P47).
#ifndef AGG_WORKER_CLIENT_ROW_DEVICES_H_
#define AGG_WORKER_CLIENT_ROW_DEVICES_H_

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_memory/device_stream.h"
#include "server/base/mutex.h"
#include "worker_client/device_row.h"

namespace agg {

// The devices that copy to one shard's row. Add and the two questions, has and
// has_any, are thread-safe; the rest is for one push at a time.
class RowDevices {
 public:
  // Adds the row as one of the devices sees it, for rows that begin from here
  // on; one that has failed is not replaced.
  void Add(std::shared_ptr<DeviceRow> row);
  bool has(int device) const;
  bool has_any() const;

  // Begins a row whose tensors these devices have: it goes to the shard's
  // device if all of them have a way to it, and there are any.
  void Begin(const std::set<int>& devices);
  bool used() const { return !current_.empty(); }
  // Returns the row as `device` sees it; null: it has no way.
  DeviceRow* Find(int device);
  // Returns one of those that copy. REQUIRES: used().
  DeviceRow* any() const { return current_.begin()->second.get(); }

  // The copies of some slices, by each device that has begun some.
  using Copies =
      std::vector<std::pair<DeviceRow*, std::unique_ptr<DeviceEvent>>>;
  // Marks the copies that `rows` have begun so far.
  static absl::StatusOr<Copies> Mark(const std::set<DeviceRow*>& rows);
  // Waits until they are done; once.
  static absl::Status Await(Copies copies);
  // Gives up after an error: no copy is under way any more; used() is false,
  // and none of these devices copies to this row again.
  void GiveUp();

 private:
  std::map<int, std::shared_ptr<DeviceRow>> current_;  // of the row that began
  mutable Mutex mutex_;
  // Null: copies of it have failed.
  std::map<int, std::shared_ptr<DeviceRow>> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_DEVICES_H_
