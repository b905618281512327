// Who is kept out although its credential is valid: a file that is read again,
// so that a stolen certificate is of no use within a second.
#ifndef AGG_SERVER_ACCESS_DENY_FILE_H_
#define AGG_SERVER_ACCESS_DENY_FILE_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/limited_calls.h"
#include "server/base/mutex.h"
#include "server/base/token_file.h"

namespace agg {

struct DenyRules {
  std::set<std::string> identities;
  std::vector<std::string> sans;  // as IdentityOptions::sans
  // SHA-256 of certificates, 64 hexadecimal digits in small letters.
  std::set<std::string> certificates;
};

// A line each: `identity NAME`, `san NAME` (with a * at its end: all that begin
// so), `certificate SHA256` (hexadecimal, with or without colons, of the
// certificate's DER, as `openssl x509 -fingerprint -sha256` prints it). Empty
// lines and those that begin with # count for nothing. INVALID_ARGUMENT names
// the line and what is allowed.
absl::StatusOr<DenyRules> ParseDenyRules(absl::string_view text);

// Thread-safe.
class DenyFile {
 public:
  using Rules = std::shared_ptr<const DenyRules>;

  // Reads it; an error names the path and the reason. `clock` outlives it;
  // `read` as TokenFile's, null: the system's files; `calls` as TokenFile's.
  static absl::StatusOr<std::unique_ptr<DenyFile>> Open(
      const std::string& path, const Clock* clock,
      const TokenFile::Reader& read = nullptr,
      std::shared_ptr<LimitedCalls> calls = nullptr);

  // Those of now: looks at the file each TokenFile::kLook. One that cannot be
  // read any more, or has a mistake, changes nothing, which is logged once. The
  // same object as long as nothing has changed. Waits for a disk as
  // TokenFile::tokens does.
  Rules rules();

 private:
  DenyFile(std::string path, const Clock* clock, TokenFile::Reader read,
           std::shared_ptr<LimitedCalls> calls);
  absl::StatusOr<std::string> Read(LookKind kind);
  void Take(absl::StatusOr<std::string> text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Clock* const clock_;
  const TokenFile::Reader read_;
  const std::shared_ptr<LimitedCalls> calls_;
  Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  Rules rules_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_);
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;
  std::string logged_ ABSL_GUARDED_BY(mutex_);  // the last error
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_DENY_FILE_H_
