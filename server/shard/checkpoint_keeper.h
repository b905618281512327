// A shard's checkpoints: the folder they lie in, and the writer for the arrays
// of the manifest at hand. Apart from the engine, since a disk may be slow:
// what is here waits for no phase, and no phase waits for what is here but a
// copy.
#ifndef AGG_SERVER_SHARD_CHECKPOINT_KEEPER_H_
#define AGG_SERVER_SHARD_CHECKPOINT_KEEPER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/base/clock.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/checkpoint/checkpoint_writer.h"

namespace agg {

// Thread-safe, but for SetFolder, which comes before all other calls. Without a
// folder there are no checkpoints: what asks for one is FAILED_PRECONDITION.
class CheckpointKeeper {
 public:
  ~CheckpointKeeper();
  // `files` outlives it. `other`: of the job that checkpoint.restore_job names;
  // it is only read.
  void SetFolder(CheckpointFolder folder, FileSystem* files,
                 absl::optional<CheckpointFolder> other);
  bool configured() const { return folder_.has_value(); }
  // What this process can read, oldest first; none without a folder. A folder
  // that takes longer than kPatience has an error now, and its listing, which
  // goes on, is the answer to a later call: the coordinator asks again and
  // again, and waits for no disk. Of two calls at once both get the answer.
  CheckpointListing List();
  // The job's and the other's, at the same time.
  std::pair<CheckpointListing, CheckpointListing> ListAll();
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // Takes the memory of one copy for a manifest that is there now.
  // RESOURCE_EXHAUSTED: there is no such memory.
  absl::Status Begin(const ShardArrays& arrays);
  // Ends what Begin began: the manifest is gone. What is returned is memory, to
  // be dropped without locks; null where a disk is being written to, which may
  // take its time: that ends on a thread of its own.
  std::shared_ptr<CheckpointWriter> End();

  // Copies the arrays as CheckpointWriter::Capture does; a repeat for the same
  // version is OK.
  absl::Status Capture(const CheckpointId& id,
                       const CheckpointWriter::CopyArray& copy);
  CheckpointProgress progress() const;
  // Makes the checkpoint with this manifest.json real, and lets the oldest go
  // as CheckpointFolder::Retire says. That these cannot be removed is logged.
  absl::Status Seal(const std::string& manifest_json, int keep, uint64_t line);
  // Calls CheckpointFolder::BeginAnew.
  absl::Status BeginAnew(uint64_t epoch);
  // Removes this shard's part of a checkpoint that was never sealed.
  absl::Status Discard(const CheckpointId& id);

  // The text of a checkpoint's manifest.json, which may be the other job's.
  // Errors name the file; DATA_LOSS: it is damaged.
  absl::StatusOr<std::string> ReadManifest(const CheckpointId& id) const;
  // Checks that the parts that this shard, `ordinal` of `num_shards`, would
  // load are whole, as the manifest says. `progress`: as CheckpointReader has
  // it.
  absl::Status Verify(const std::string& manifest_json, int ordinal,
                      int num_shards, Progress* progress) const;
  // The parts that this process can read of a checkpoint.
  absl::StatusOr<CheckpointReader> Open(
      const CheckpointManifest& manifest) const;

 private:
  std::shared_ptr<CheckpointWriter> writer() const;
  // One folder's listing, on a thread while it takes its time. Who waits for it
  // has a share of its own: another one may have begun the next one meanwhile.
  struct Listing {
    bool done = false;
    bool told = false;  // to somebody; the next call begins another one
    CheckpointListing found;
    std::chrono::steady_clock::time_point found_at;
  };
  struct Looking {
    std::thread thread;
    std::shared_ptr<Listing> listing;  // null: nobody has asked yet
  };
  std::shared_ptr<Listing> Begin(const absl::optional<CheckpointFolder>& folder,
                                 Looking* looking)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  CheckpointListing Await(const CheckpointFolder& folder, Listing* listing,
                          std::chrono::steady_clock::time_point until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::optional<CheckpointFolder> folder_;
  absl::optional<CheckpointFolder> other_;
  FileSystem* files_ = nullptr;
  mutable Mutex mutex_;
  CondVar looked_;
  Looking own_looking_ ABSL_GUARDED_BY(mutex_);
  Looking other_looking_ ABSL_GUARDED_BY(mutex_);
  // Writer for the manifest at hand; null without a folder or a manifest.
  std::shared_ptr<CheckpointWriter> writer_ ABSL_GUARDED_BY(mutex_);
  // Each ends a former writer; a disk that hangs ends each call of it in time.
  // Those that are done go with the next one.
  struct Ending {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  std::vector<Ending> endings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_CHECKPOINT_KEEPER_H_
