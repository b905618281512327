// A file that is at its path complete or not at all: every program's output
// goes through here, so that none replaces a device or a pipe by a file.
#ifndef AGG_SERVER_BASE_ATOMIC_FILE_H_
#define AGG_SERVER_BASE_ATOMIC_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agg {

// The path that a rename may replace: `path`, or the file to which it leads as
// a symbolic link. UNKNOWN with the reason, without the path, if it leads to
// something other than a regular file (a device, a pipe, a socket, a folder)
// or, as a link, nowhere.
absl::StatusOr<std::string> OutputPath(const std::string& path);

// Writes a complete file, or leaves what there was. UNKNOWN with the reason,
// without the path.
absl::Status WriteFile(const std::string& path, absl::string_view bytes);

// Such an error for people: INVALID_ARGUMENT "NAME is "PATH" (REASON);
// allowed: ...". `name`: of the flag or field.
absl::Status OutputError(absl::string_view name, const std::string& path,
                         const absl::Status& error);

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

  // Makes the part, empty. Refuses what OutputPath refuses, and a part that is
  // a symbolic link.
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

#endif  // AGG_SERVER_BASE_ATOMIC_FILE_H_
