// OpenSSL's objects with an owner, and its certificates' facts as text.
#ifndef AGG_SERVER_TLS_OPENSSL_HANDLES_H_
#define AGG_SERVER_TLS_OPENSSL_HANDLES_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agg {

struct OpensslFree {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(X509* p) const { X509_free(p); }
};
template <typename T>
using Openssl = std::unique_ptr<T, OpensslFree>;

// All certificates of a PEM text, in order; empty if one cannot be read.
std::vector<Openssl<X509>> ParseCertificates(absl::string_view pem);

// Null if there is none, or it needs a password.
Openssl<EVP_PKEY> ParseKey(absl::string_view pem);

// The time, or InfinitePast for one that is not well-formed.
absl::Time TimeOf(const ASN1_TIME* time);

// "2026-11-23 08:15:00 UTC".
std::string TimeText(absl::Time time);

// All of the name, as of "CN = a". Here and below bytes that are no text are
// escaped, and what is long is cut.
std::string NameText(const X509_NAME* name);

// "DNS:a, IP Address:127.0.0.1": whom the certificate is for; "" for nobody.
std::string NamesOf(const X509* certificate);

}  // namespace agg

#endif  // AGG_SERVER_TLS_OPENSSL_HANDLES_H_
