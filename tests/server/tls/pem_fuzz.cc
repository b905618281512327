// Any bytes as the PEM files of TLS: refused with the field and the file, or
// what OpenSSL can read. Behind a first byte of 'D' they are a certificate's
// DER, which the PEM is made of here.
#include <openssl/pem.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/tls/openssl_handles.h"
#include "server/tls/tls_files.h"

namespace {

// A file in memory, as long as it lives.
class File {
 public:
  explicit File(absl::string_view bytes) : fd_(memfd_create("pem", 0)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) !=
                       static_cast<ssize_t>(bytes.size())) {
      __builtin_trap();
    }
  }
  ~File() { close(fd_); }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

std::string PemOf(absl::string_view der) {
  return absl::StrCat("-----BEGIN CERTIFICATE-----\n", absl::Base64Escape(der),
                      "\n-----END CERTIFICATE-----\n");
}

void Try(absl::string_view pem) {
  const File file(pem);
  agg::TlsFiles files;
  files.certificate = files.key = files.ca = file.path();
  const absl::Time now = absl::FromUnixSeconds(1796000000);
  for (const int which : {0, 1, 2}) {
    agg::TlsFiles some = files;
    if (which == 1) some.ca = "";
    if (which == 2) some.certificate = some.key = "";
    const auto contents = agg::ReadTlsFiles(some, now);
    if (contents.ok()) continue;
    if (!absl::StrContains(contents.status().message(), file.path())) {
      __builtin_trap();
    }
  }
  for (const auto& certificate : agg::ParseCertificates(pem)) {
    const std::string names = agg::NamesOf(certificate.get());
    const std::string text =
        agg::NameText(X509_get_subject_name(certificate.get()));
    for (const char c : absl::StrCat(names, text)) {
      if (static_cast<unsigned char>(c) < 0x20) __builtin_trap();
    }
    (void)agg::TimeText(agg::TimeOf(X509_get0_notAfter(certificate.get())));
  }
  (void)agg::ParseKey(pem);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  Try(absl::StartsWith(bytes, "D") ? PemOf(bytes.substr(1))
                                   : std::string(bytes));
  return 0;
}
