#include "server/tls/tls_trust.h"

#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/tls/openssl_handles.h"

namespace agg {
namespace {

std::string FingerprintOf(const X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest, &size) != 1) return "";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace

bool StillTrusts(absl::string_view now, absl::string_view before) {
  const std::vector<Openssl<X509>> former = ParseCertificates(before);
  std::set<std::string> trusted;
  for (const Openssl<X509>& one : ParseCertificates(now)) {
    trusted.insert(FingerprintOf(one.get()));
  }
  if (former.empty() || trusted.empty()) return false;
  for (const Openssl<X509>& one : former) {
    if (trusted.count(FingerprintOf(one.get())) == 0) return false;
  }
  return true;
}

std::string CertificateFingerprint(absl::string_view pem) {
  const std::vector<Openssl<X509>> certificates = ParseCertificates(pem);
  return certificates.empty() ? "" : FingerprintOf(certificates.front().get());
}

absl::Time CertificateExpiry(absl::string_view pem) {
  const std::vector<Openssl<X509>> certificates = ParseCertificates(pem);
  return certificates.empty()
             ? absl::InfinitePast()
             : TimeOf(X509_get0_notAfter(certificates.front().get()));
}

}  // namespace agg
