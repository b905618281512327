// A shard's view of its checkpoint folder when something is wrong with it.
#ifndef AGG_TESTS_SIM_TORN_FILES_H_
#define AGG_TESTS_SIM_TORN_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/file_system.h"
#include "tests/server/base/forwarding_files.h"

namespace agg {

enum class Torn : uint8_t {
  kNone,
  kEmpty,       // nothing is in it
  kOlder,       // the newest checkpoint is not
  kOtherK,      // its parts are of one shard more
  kUnreadable,  // EACCES
  kHanging,     // no answer in time
  kBadPart      // EIO in the middle of a load
};

// Not thread-safe, as a SimDisk. `files` outlives it.
class TornFiles : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  void Tear(Torn torn) { torn_ = torn; }

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    if (torn_ == Torn::kBadPart && absl::StrContains(path, "/part-")) {
      return absl::UnknownError(path + ": input/output error");
    }
    return ForwardingFiles::Open(path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    if (torn_ == Torn::kUnreadable) {
      return absl::PermissionDeniedError(path + ": permission denied");
    }
    if (torn_ == Torn::kHanging) {
      return absl::DeadlineExceededError(path + ": no answer");
    }
    absl::StatusOr<std::vector<std::string>> names =
        ForwardingFiles::List(path);
    if (!names.ok()) return names;
    const bool of_the_job = !names->empty() &&
                            absl::StrContains(names->front(), "-") &&
                            !absl::StrContains(names->front(), ".");
    if (torn_ == Torn::kEmpty && of_the_job) names->clear();
    // Names have their length in common, as long as versions have one digit.
    if (torn_ == Torn::kOlder && of_the_job) names->pop_back();
    if (torn_ == Torn::kOtherK) {
      for (std::string& name : *names) {
        const size_t of = name.rfind("-of-");
        if (of == std::string::npos || !absl::EndsWith(name, ".npz")) continue;
        const int shards = std::stoi(name.substr(of + 4, 5));
        name = absl::StrCat(name.substr(0, of + 8), shards + 1, ".npz");
      }
    }
    return names;
  }

 private:
  Torn torn_ = Torn::kNone;
};

}  // namespace agg

#endif  // AGG_TESTS_SIM_TORN_FILES_H_
