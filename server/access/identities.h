// Who a caller is, of what its connection proves: the identities of the
// configuration, and who is kept out although its credential is valid.
#ifndef AGG_SERVER_ACCESS_IDENTITIES_H_
#define AGG_SERVER_ACCESS_IDENTITIES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/access/access_rules.h"
#include "server/access/call_limits.h"
#include "server/base/call_counts.h"
#include "server/base/clock.h"
#include "server/base/limited_calls.h"
#include "server/base/mutex.h"
#include "server/base/token_file.h"

namespace agg {

// Who is kept out although its credential is valid: a file that is read again,
// so that a stolen certificate is of no use within a second.
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

struct IdentityOptions {
  std::string name;
  // Names in a certificate (SPIFFE URIs, DNS names): complete, or a beginning
  // with one `*` behind it.
  std::vector<std::string> sans;
  std::string token_file;  // "": it has no token
  Roles roles;
  CallLimits limits = {};
};

// The name of the identity that is made of AccessOptions::shard_token_file.
inline constexpr char kShardIdentity[] = "shard";

struct AuditFileOptions {
  std::string path;  // "": none
  int64_t max_bytes = int64_t{64} << 20;
};

// proto/config.proto, `security`, as plain values.
struct AccessOptions {
  std::vector<IdentityOptions> identities;  // empty: everybody may everything
  std::string shard_token_file;             // "": shards have certificates
  std::string denied_file;                  // "": nobody is denied
  bool health = true;      // grpc.health.v1 answers, whoever asks
  bool reflection = true;  // likewise gRPC's reflection
  AuditFileOptions audit;
  CallLimits limits;  // of all callers together
  int32_t max_connections = 4096;

  bool on() const { return !identities.empty(); }
};

// What a connection says of its other end.
struct Credentials {
  std::optional<std::string> token;  // of `authorization: Bearer TOKEN`
  std::vector<std::string> sans;     // of a certificate that was verified
  // SHA-256 of that certificate, hexadecimal; "": there is none, or it is not
  // wanted (Identities::wants_fingerprints).
  std::string fingerprint;
};

// Returns the token of "Bearer TOKEN", the scheme in any case; nothing if it is
// not that.
std::optional<std::string> BearerToken(absl::string_view authorization);

// Returns the token of "Bearer TOKEN", or the password of "Basic
// base64(USER:TOKEN)", as browsers send it, whoever the user is. Nothing if it
// is neither.
std::optional<std::string> HttpToken(absl::string_view authorization);

// Whether the name in a certificate is one that the pattern (as above) means.
bool SanMatches(absl::string_view pattern, absl::string_view san);

// Thread-safe.
class Identities {
 public:
  // Opens the token files; errors name the field and the reason, never a token.
  // A token that two of them have is INVALID_ARGUMENT; should there be one
  // later, it is that of the first identity in their order.
  // `clock` outlives it. `read` null: the system's files.
  static absl::StatusOr<std::unique_ptr<Identities>> Make(
      const AccessOptions& options, const Clock* clock,
      const TokenFile::Reader& read = nullptr);

  // UNAUTHENTICATED, and *reason: it has no credential, a token that is not
  // valid, a certificate of no identity, or one that the deny list has, as it
  // may have the identity. A token counts before a
  // certificate, and the first identity in their order before others.
  absl::StatusOr<Caller> Resolve(const Credentials& credentials,
                                 DenialReason* reason);

  // Whether Credentials::fingerprint is looked at, now or by a later deny list.
  bool wants_fingerprints() const;
  // Changes whenever the files have changed, which it looks at where that is
  // due: then somebody who was let in may not be any more.
  uint64_t Look();

  // What this process presents itself to other shards with; null: by its
  // certificate alone.
  TokenFile* own_token() const { return own_token_; }
  // Whether some worker or observer has a certificate alone, so that nothing
  // can say who it is where there is no TLS: on the socket of shared memory.
  bool needs_certificates() const { return needs_certificates_; }
  // Whether somebody can read pages of the HTTP port, which takes tokens alone.
  bool has_reader() const;

 private:
  struct Entry {
    std::string field;  // of the token file, for errors
    IdentityOptions options;
    std::unique_ptr<TokenFile> tokens;  // null: none
  };

  Identities() = default;
  absl::Status Add(const std::string& field, IdentityOptions options,
                   const Clock* clock, const TokenFile::Reader& read);
  // Whether those before it have none of its tokens.
  absl::Status CheckShared(const Entry& entry) const;
  bool Denied(const Entry& entry, const Credentials& credentials) const;
  const Entry* FindToken(absl::string_view token) const;
  const Entry* FindSan(const std::vector<std::string>& sans) const;

  // One for all files: a call that asks each of them waits for a disk once.
  const std::shared_ptr<LimitedCalls> calls_ =
      std::make_shared<LimitedCalls>(LookLimits());
  std::vector<Entry> entries_;
  std::unique_ptr<DenyFile> denied_;  // null: nobody is
  Mutex mutex_;
  // What the files had when Look was called last, which keeps them.
  std::vector<std::shared_ptr<const void>> seen_ ABSL_GUARDED_BY(mutex_);
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
  TokenFile* own_token_ = nullptr;
  bool needs_certificates_ = false;
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_IDENTITIES_H_
