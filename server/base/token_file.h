// A file of bearer tokens, one a line: read anew when it has changed, so that
// tokens are replaced while processes run. Nothing here logs or returns a token
// but tokens().
#ifndef AGG_SERVER_BASE_TOKEN_FILE_H_
#define AGG_SERVER_BASE_TOKEN_FILE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/limited_calls.h"
#include "server/base/mutex.h"

namespace agg {

// Bytes of a token, and of a file.
inline constexpr int kMinTokenBytes = 16;
inline constexpr int kMaxTokenBytes = 512;
inline constexpr int kMaxTokenFileBytes = 65536;

// The tokens of such a file: lines without spaces around them; empty lines and
// those that begin with '#' count for nothing. INVALID_ARGUMENT names the line,
// and never what it says: too short, too long, or with bytes that no header of
// HTTP/2 may have.
absl::StatusOr<std::vector<std::string>> ParseTokens(absl::string_view text);

// Whether they are equal. Takes a time that depends on the lengths alone.
bool SameToken(absl::string_view a, absl::string_view b);

// Whether a file of that mode can be read, or changed, by others than who it is
// for: its owner, or, where this process is not the owner, the group by which
// it reads the file itself, as on Kubernetes.
bool OthersMayRead(unsigned mode, bool own);

// Thread-safe.
class TokenFile {
 public:
  using Tokens = std::shared_ptr<const std::vector<std::string>>;
  // The bytes of a file; an error with the reason, without the path. Called on
  // a thread that may be left behind: it owns what it uses, or that lives on.
  using Reader =
      std::function<absl::StatusOr<std::string>(const std::string& path)>;

  // The system's files: regular ones, up to a little more than
  // kMaxTokenFileBytes, without waiting.
  static Reader SystemReader();

  // How often it is looked at: a change counts so much later at most.
  static constexpr absl::Duration kLook = absl::Seconds(1);

  // Reads it. An error names `path` and the reason: it cannot be read, it has
  // no token, or as ParseTokens. One for which OthersMayRead is logged. `clock`
  // outlives it; `read` null: the system's. `calls`, of LookLimits(), runs the
  // reads: files that share one wait for a disk that hangs once, and not each;
  // null: the file has its own.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(
      const std::string& path, const Clock* clock, Reader read = nullptr,
      std::shared_ptr<LimitedCalls> calls = nullptr);

  // What is valid now, in the file's order; looks at the file if that is due. A
  // file that cannot be read any more, or is damaged, changes nothing, which is
  // logged once; one without tokens leaves none. One thread looks at a time:
  // others get what there was, and so does that thread behind LookLimits()
  // where a disk hangs.
  Tokens tokens();
  // The first one, which this process presents itself with; "": there is none.
  std::string first();

  const std::string& path() const { return path_; }

 private:
  TokenFile(std::string path, const Clock* clock, Reader read,
            std::shared_ptr<LimitedCalls> calls)
      : path_(std::move(path)),
        clock_(clock),
        read_(std::move(read)),
        calls_(std::move(calls)) {}

  absl::StatusOr<std::vector<std::string>> Read(LookKind kind);
  void Take(const absl::StatusOr<std::vector<std::string>>& read)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Clock* const clock_;
  const Reader read_;
  const std::shared_ptr<LimitedCalls> calls_;
  Mutex mutex_;
  Tokens tokens_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_);
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;
  std::string logged_ ABSL_GUARDED_BY(mutex_);  // the last error
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_TOKEN_FILE_H_
