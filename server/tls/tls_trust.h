// Whom a set of CAs still trusts, and by what a certificate is known.
#ifndef AGG_SERVER_TLS_TLS_TRUST_H_
#define AGG_SERVER_TLS_TLS_TRUST_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agg {

// Whether each certificate of `before` is one of `now`, both PEM: then whoever
// was let in is still. False, too, for a text that cannot be read. Pure.
bool StillTrusts(absl::string_view now, absl::string_view before);

// SHA-256 of the first certificate of a PEM text, 64 hexadecimal digits in
// small letters; "" if there is none. Pure.
std::string CertificateFingerprint(absl::string_view pem);

// When that certificate expires; InfinitePast if there is none. Pure.
absl::Time CertificateExpiry(absl::string_view pem);

}  // namespace agg

#endif  // AGG_SERVER_TLS_TLS_TRUST_H_
