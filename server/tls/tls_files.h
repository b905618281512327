// The PEM files of TLS, looked at before anybody uses them: what is wrong with
// them is said by name, where a handshake would only fail.
#ifndef AGG_SERVER_TLS_TLS_FILES_H_
#define AGG_SERVER_TLS_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/tls_options.h"

namespace agg {

// Paths; "": none. The fields are what errors call them.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string ca;
  std::string certificate_field = "tls.certificate";
  std::string key_field = "tls.key";
  std::string ca_field = "tls.ca";
};

// InfiniteFuture for a file that is not there.
struct TlsExpiry {
  absl::Time certificate = absl::InfiniteFuture();  // the own one
  // First expiry among those CAs of the file that are valid now: a peer that
  // has a certificate of that CA is out then.
  absl::Time ca = absl::InfiniteFuture();
};

// What the files have, in PEM; "" for a file that is not there.
struct TlsContents {
  std::string certificate;  // the first is one's own, then intermediates
  std::string key;
  std::string ca;
  TlsExpiry expires;

  bool operator==(const TlsContents& other) const {
    return certificate == other.certificate && key == other.key &&
           ca == other.ca;
  }
};

// Reads and checks them. INVALID_ARGUMENT "field is "path"; allowed: ... (why
// not)": a file that cannot be read or has over 1 MiB, no PEM, a key that is
// not the certificate's or has a password, a certificate that is not valid at
// `now` or too weak for OpenSSL, CAs none of which is valid. PERMISSION_DENIED,
// in the same words, for a file that this process may not read. Thread-safe.
absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files, absl::Time now);

// Checks the files of a client. The same errors, and INVALID_ARGUMENT if it has
// a certificate or a key without the rest. OK without TLS.
absl::Status CheckTlsOptions(const TlsOptions& tls, absl::Time now);

}  // namespace agg

#endif  // AGG_SERVER_TLS_TLS_FILES_H_
