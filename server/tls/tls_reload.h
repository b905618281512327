// A server's TLS files, read again when they change.
#ifndef AGG_SERVER_TLS_TLS_RELOAD_H_
#define AGG_SERVER_TLS_TLS_RELOAD_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/base/clock.h"
#include "server/base/limited_calls.h"
#include "server/base/mutex.h"
#include "server/tls/tls_files.h"

namespace agg {

// Files are replaced one after the other, so that for a moment they do not go
// together: what cannot be used is logged once, and what was read before goes
// on. Thread-safe.
class TlsReload {
 public:
  // `every`: between two looks at the files. `clock` is the system's time.
  TlsReload(TlsFiles files, absl::Duration every, const Clock* clock);

  // Whether who connects is asked for a certificate.
  bool has_ca() const { return !files_.ca.empty(); }

  // Called when CAs are gone that were trusted before: who was let in by one of
  // them would not be now. Must neither block nor call back. The former one is
  // not called any more when this returns.
  void SetOnDistrust(std::function<void()> callback);

  // Reads them for the first time; ReadTlsFiles' errors.
  absl::Status Open();

  // What is to be used from now on by who has seen the contents of number
  // *seen, 0 for none, which becomes the new number. nullopt: there are no
  // newer ones. Reads files only after `every`. REQUIRES: Open was OK.
  absl::optional<TlsContents> Next(uint64_t* seen);

  // When what is in use expires; looks at the files as Next does, since nobody
  // may have connected since they were renewed. REQUIRES: Open was OK.
  TlsExpiry Expires();

 private:
  absl::StatusOr<TlsContents> Read(LookKind kind, absl::Time now);
  // Looks at the files if that is due and nobody else does; for LookLimits() at
  // most, where a disk hangs.
  void LookIfDue() ABSL_LOCKS_EXCLUDED(mutex_);
  void Take(absl::StatusOr<TlsContents> read)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TlsFiles files_;
  const absl::Duration every_;
  const Clock* const clock_;
  LimitedCalls calls_{LookLimits()};
  Mutex mutex_;
  std::function<void()> on_distrust_ ABSL_GUARDED_BY(mutex_);
  TlsContents contents_ ABSL_GUARDED_BY(mutex_);
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;  // of contents_; 0: none
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;
  std::string warned_ ABSL_GUARDED_BY(mutex_);  // the last reason in the log
};

// Whether each certificate of `before` is one of `now`, both PEM: then whoever
// was let in is still. False, too, for a text that cannot be read. Pure.
bool StillTrusts(absl::string_view now, absl::string_view before);

// SHA-256 of the first certificate of a PEM text, 64 hexadecimal digits in
// small letters; "" if there is none. Pure.
std::string CertificateFingerprint(absl::string_view pem);

// When that certificate expires; InfinitePast if there is none. Pure.
absl::Time ExpiryOfCertificate(absl::string_view pem);

}  // namespace agg

#endif  // AGG_SERVER_TLS_TLS_RELOAD_H_
