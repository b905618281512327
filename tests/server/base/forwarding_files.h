// A FileSystem of tests that differs from another one in a method or two.
#ifndef AGG_TESTS_SERVER_BASE_FORWARDING_FILES_H_
#define AGG_TESTS_SERVER_BASE_FORWARDING_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/file_system.h"

namespace agg {

// Does what `files` does, which outlives it. As thread-safe as that.
class ForwardingFiles : public FileSystem {
 public:
  explicit ForwardingFiles(FileSystem* files) : files_(files) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    return files_->Create(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    return files_->Open(path);
  }
  absl::Status CreateFolder(const std::string& path) override {
    return files_->CreateFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_->Rename(from, to);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return files_->SyncFolder(path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    return files_->List(path);
  }
  absl::Status Remove(const std::string& path) override {
    return files_->Remove(path);
  }

 private:
  FileSystem* const files_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_BASE_FORWARDING_FILES_H_
