// A job's checkpoints in one folder: written part by part, sealed, listed,
// retired. server/checkpoint/README.md has the layout and what each crash
// leaves.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/file_system.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/checkpoint/part_layout.h"

namespace agg {

// Processes may share the folder, and each shard may have one of its own: what
// is done here is right for both. Thread-safe, if `files` is: it keeps nothing
// but paths. Errors of the disk are those of FileSystem and name the file; each
// ends the one checkpoint that it happened to, and no file is tried twice.
class CheckpointFolder {
 public:
  // `life`: of this process, random. INVALID_ARGUMENT: a job's name that is no
  // name of a folder. Looks at no disk. `files` outlives it.
  static absl::StatusOr<CheckpointFolder> Make(FileSystem* files,
                                               const std::string& path,
                                               const std::string& job,
                                               uint64_t life);
  // Makes the folder as Make does, and returns Probe's error if there is one.
  static absl::StatusOr<CheckpointFolder> Open(FileSystem* files,
                                               const std::string& path,
                                               const std::string& job,
                                               uint64_t life);
  // Whether `path` can be listed. It has to exist: an empty folder in the place
  // of a missing volume would look like a job without checkpoints.
  absl::Status Probe() const;

  // Writes a shard's part, in the place of one that is there.
  absl::StatusOr<CheckpointPart> WritePart(const CheckpointId& id,
                                           const PartSource& source);

  // Makes a checkpoint real: the last file. REQUIRES: WritePart of all K parts
  // has succeeded, here or in other processes' folders. INVALID_ARGUMENT: the
  // manifest would not read back as it is, or its text has more than
  // `max_bytes` (tests lower it). Nothing is written then.
  absl::Status Seal(const CheckpointManifest& manifest,
                    int64_t max_bytes = kMaxManifestBytes);

  // Removes, of the checkpoints that were made in epoch `line` or later, all
  // sealed ones but the newest of `keep` (1 or more) distinct versions, and
  // those that were never sealed and are older than a sealed one. A version
  // that is there twice is one that a job went on from: the newer one has the
  // same bits. What is older than `line` belongs to a job that has begun anew
  // since, and stays until a person removes it. Goes on after an error; returns
  // the first one.
  absl::Status Retire(int keep, uint64_t line = 0);

  // Whether a part of that name is there, or cannot be looked for.
  bool MayHavePart(const CheckpointId& id, const std::string& part_file) const;

  // Removes one shard's part of a checkpoint that was never sealed, and the
  // checkpoint's folder if nothing else is in it.
  absl::Status Discard(const CheckpointId& id, const std::string& part_file);

  // Says in the folder that the job begins anew in `epoch` by an operator's
  // word: checkpoints that were made before stay, and count for nothing. It is
  // on the disk when this returns OK; a repeat changes nothing.
  absl::Status BeginAnew(uint64_t epoch);

  // What this process can see, oldest first. Names only: nothing is read. A
  // folder that cannot be listed is an error, lest an older checkpoint be
  // taken; so is a `path` that is gone. `begun_anew` (may be null): the highest
  // epoch of BeginAnew; 0: none.
  absl::StatusOr<std::vector<CheckpointState>> List(
      uint64_t* begun_anew = nullptr) const;

  // Returns PATH/JOB/NAME of a checkpoint.
  std::string PathOf(const CheckpointId& id) const;
  const std::string& job_path() const { return job_path_; }  // PATH/JOB
  const std::string& job() const { return job_; }

 private:
  CheckpointFolder(FileSystem* files, std::string path, std::string job,
                   uint64_t life)
      : files_(files),
        path_(std::move(path)),
        job_(std::move(job)),
        job_path_(path_ + "/" + job_),
        life_(life) {}

  absl::Status MakeFolder(const std::string& folder) const;
  absl::Status RemoveCheckpoint(const CheckpointState& state) const;

  FileSystem* files_;
  std::string path_;
  std::string job_;
  std::string job_path_;
  uint64_t life_;
};

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_FOLDER_H_
