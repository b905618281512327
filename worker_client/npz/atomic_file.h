// A file that is at its path complete or not at all.
#ifndef AGG_WORKER_CLIENT_NPZ_ATOMIC_FILE_H_
#define AGG_WORKER_CLIENT_NPZ_ATOMIC_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace agg {

// Use: Open, write the file at part_path(), Commit. Errors are UNKNOWN with the
// system's reason, without the path. Thread-compatible; two at a time for one
// path disturb each other.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  // Removes what Commit has not completed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Makes the part, empty. A path that is a symbolic link stands for the file
  // it leads to. Refuses a path that leads to something other than a regular
  // file or, as a link, nowhere; and a part that is a symbolic link.
  absl::Status Open();
  // "PATH.part" (of a link: of the file), in the same folder: no rename leads
  // to another file system. Its file may be replaced by another one.
  const std::string& part_path() const { return part_path_; }
  // Makes it outlive a crash, then renames it. REQUIRES: Open, and what was
  // written is flushed and closed.
  absl::Status Commit();

 private:
  const std::string path_;
  const std::string part_path_;
  bool open_ = false;  // the part exists, and is this one's
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_NPZ_ATOMIC_FILE_H_
