// Each file is read once, so that what was checked is what is used.
#include "server/tls/tls_files.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/field_error.h"
#include "server/base/file_descriptor.h"
#include "server/tls/openssl_handles.h"

namespace agg {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr absl::string_view kCertificate =
    "a PEM file with a certificate that is valid now, and its intermediates";
constexpr absl::string_view kKey =
    "a PEM file with the certificate's private key, without a password";
constexpr absl::string_view kCa =
    "a PEM file with certificates of CAs, one of them valid now";

absl::Status Wrong(const std::string& field, const std::string& path,
                   absl::string_view allowed, absl::string_view why) {
  const absl::Status error =
      FieldError(field, Quoted(path), absl::StrCat(allowed, " (", why, ")"));
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.valid()) return error;
  const absl::StatusCode code = CodeOfRefusedFile(errno);
  return code == absl::StatusCode::kPermissionDenied
             ? absl::Status(code, error.message())
             : error;
}

// "" and the reason in *why if it cannot be read.
std::string Read(const std::string& path, std::string* why) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "re"), &std::fclose);
  if (file == nullptr) {
    *why = std::strerror(errno);
    return "";
  }
  std::string text(kMaxBytes + 1, '\0');
  errno = 0;
  text.resize(std::fread(&text[0], 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    *why = std::strerror(errno);
  } else if (text.empty()) {
    *why = "it is empty";
  } else if (text.size() > kMaxBytes) {
    *why = "it has more than 1 MiB";
  }
  return why->empty() ? text : "";
}

// "" if it is valid at `now`.
std::string WhyNotValid(const X509* certificate, absl::Time now) {
  const absl::Time from = TimeOf(X509_get0_notBefore(certificate));
  const absl::Time to = TimeOf(X509_get0_notAfter(certificate));
  if (now > to) return absl::StrCat("it expired on ", TimeText(to));
  if (now >= from) return "";
  return absl::StrCat("it is valid from ", TimeText(from), " on, and now is ",
                      TimeText(now));
}

// "" if a handshake may show these certificates: OpenSSL refuses keys and
// digests that its security level finds too weak.
std::string WhyNotUsed(const std::vector<Openssl<X509>>& chain) {
  const Openssl<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  bool used = context != nullptr &&
              SSL_CTX_use_certificate(context.get(), chain[0].get()) == 1;
  for (size_t i = 1; used && i < chain.size(); ++i) {
    used = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  if (used) return "";
  return absl::StrCat("OpenSSL refuses it: ",
                      reason == nullptr ? "no reason given" : reason);
}

absl::Status TakeCertificate(const TlsFiles& files, absl::Time now,
                             TlsContents* contents, Openssl<X509>* own) {
  std::string why;
  contents->certificate = Read(files.certificate, &why);
  std::vector<Openssl<X509>> chain = ParseCertificates(contents->certificate);
  if (why.empty() && chain.empty()) why = "no certificate in PEM can be read";
  if (why.empty()) why = WhyNotValid(chain[0].get(), now);
  if (why.empty()) why = WhyNotUsed(chain);
  if (!why.empty()) {
    return Wrong(files.certificate_field, files.certificate, kCertificate, why);
  }
  contents->expires.certificate = TimeOf(X509_get0_notAfter(chain[0].get()));
  *own = std::move(chain[0]);
  return absl::OkStatus();
}

absl::Status TakeKey(const TlsFiles& files, const X509* own,
                     TlsContents* contents) {
  std::string why;
  contents->key = Read(files.key, &why);
  const Openssl<EVP_PKEY> key = ParseKey(contents->key);
  if (why.empty() && key == nullptr) {
    why = "no private key in PEM can be read";
  }
  if (why.empty() && X509_check_private_key(own, key.get()) != 1) {
    why = absl::StrCat("it is not the key of ", files.certificate);
  }
  return why.empty() ? absl::OkStatus()
                     : Wrong(files.key_field, files.key, kKey, why);
}

absl::Status TakeCa(const TlsFiles& files, absl::Time now,
                    TlsContents* contents) {
  std::string why;
  contents->ca = Read(files.ca, &why);
  const std::vector<Openssl<X509>> roots = ParseCertificates(contents->ca);
  if (why.empty() && roots.empty()) why = "no certificate in PEM can be read";
  std::string invalid;
  bool any = false;
  for (const Openssl<X509>& root : roots) {
    const std::string one = WhyNotValid(root.get(), now);
    any |= one.empty();
    if (one.empty()) {
      contents->expires.ca = std::min(contents->expires.ca,
                                      TimeOf(X509_get0_notAfter(root.get())));
    }
    if (invalid.empty()) invalid = one;
  }
  if (why.empty() && !any) why = invalid;
  return why.empty() ? absl::OkStatus()
                     : Wrong(files.ca_field, files.ca, kCa, why);
}

}  // namespace

absl::StatusOr<TlsContents> ReadTlsFiles(const TlsFiles& files,
                                         absl::Time now) {
  TlsContents contents;
  absl::Status status;
  if (!files.certificate.empty()) {
    Openssl<X509> own;
    status = TakeCertificate(files, now, &contents, &own);
    if (status.ok()) status = TakeKey(files, own.get(), &contents);
  }
  if (status.ok() && !files.ca.empty()) {
    status = TakeCa(files, now, &contents);
  }
  if (!status.ok()) return status;
  return contents;
}

absl::Status CheckTlsOptions(const TlsOptions& tls, absl::Time now) {
  if (!tls.any() && tls.server_name.empty()) return absl::OkStatus();
  if (tls.ca.empty()) {
    return FieldError("tls.ca", "\"\"",
                      "the file of the CA that signed the servers' "
                      "certificates, for any TLS");
  }
  if (tls.certificate.empty() != tls.key.empty()) {
    return tls.key.empty()
               ? FieldError("tls.key", "\"\"", "the key of tls.certificate")
               : FieldError("tls.certificate", "\"\"",
                            "the certificate of tls.key");
  }
  TlsFiles files;
  files.certificate = tls.certificate;
  files.key = tls.key;
  files.ca = tls.ca;
  const absl::Status status = ReadTlsFiles(files, now).status();
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

}  // namespace agg
