// A disk in memory that behaves as badly as a real one may: it forgets what was
// not synced, file by file and name by name, and fails where a test says.
#ifndef AGG_TESTS_SERVER_BASE_SIM_DISK_H_
#define AGG_TESTS_SERVER_BASE_SIM_DISK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/base/file_system.h"

namespace agg {

// Operations are counted from 0: each call of FileSystem, WritableFile and
// ReadableFile but num_bytes. Not thread-safe. Outlives its files.
class SimDisk : public FileSystem {
 public:
  // Each has the empty folder "/".
  SimDisk();
  ~SimDisk() override;

  enum class Fault {
    kNone,
    kFail,       // nothing happens, and the error is returned
    kFailAfter,  // it is done, and the error is returned all the same
    kShort,      // an Append does half; else as kFail
    kDie,        // the process dies: an Append does half, and nothing after it
  };
  // What happens at operation `number`.
  void FailAt(int64_t number, Fault fault, absl::Status error);
  // No more faults: another process goes on with the disk as it is.
  void Recover() { fault_ = Fault::kNone; }
  int64_t num_operations() const { return num_operations_; }

  // The machine crashes and comes back. Of names (what is in which folder) and
  // of data (what is in which file) there is what was synced, or all, or what
  // was synced and, as it happened, a half of the changes since then: kSome, or
  // kOthers, the other half. Names that end in 0 and in 1 are in different
  // halves. What was "synced" by a second attempt after a failed one is lost.
  enum class Kept { kSynced, kAll, kSome, kOthers };
  void LosePower(Kept names, Kept data);

  // What a failing disk does, without an operation. REQUIRES: a file.
  void FlipBit(const std::string& path, int64_t bit);
  void Cut(const std::string& path, int64_t num_bytes);
  // Its bytes.
  std::string Bytes(const std::string& path) const;

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override;
  absl::Status CreateFolder(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override;
  absl::Status Remove(const std::string& path) override;

 private:
  friend class SimWritableFile;
  friend class SimReadableFile;
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  // Counts an operation: whether to carry it out, and what to return.
  struct Turn {
    bool act = true;
    bool half = false;
    absl::Status status;
  };
  Turn NextTurn();

  // Null if there is none.
  std::shared_ptr<Node> Find(const std::string& path) const;
  // The folder that a path is in, or NOT_FOUND; *name: the path's last name.
  absl::StatusOr<std::shared_ptr<Node>> Parent(const std::string& path,
                                               std::string* name) const;
  static std::shared_ptr<Node> Survivor(const std::string& name,
                                        const Node& node, Kept names,
                                        Kept data);

  std::shared_ptr<Node> root_;
  int64_t num_operations_ = 0;
  int64_t fault_at_ = 0;
  Fault fault_ = Fault::kNone;
  absl::Status error_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_BASE_SIM_DISK_H_
