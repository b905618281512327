// Files are compared by what they have: a time stamp may stay, or come back.
#include "server/tls/tls_reload.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
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

absl::Time ExpiryOfCertificate(absl::string_view pem) {
  const std::vector<Openssl<X509>> certificates = ParseCertificates(pem);
  return certificates.empty()
             ? absl::InfinitePast()
             : TimeOf(X509_get0_notAfter(certificates.front().get()));
}

TlsReload::TlsReload(TlsFiles files, absl::Duration every, const Clock* clock)
    : files_(std::move(files)), every_(every), clock_(clock) {}

absl::Status TlsReload::Open() {
  const absl::Time now = clock_->Now();
  absl::StatusOr<TlsContents> read = Read(kAtStart, now);
  MutexLock lock(&mutex_);
  looked_ = now;
  if (!read.ok()) return read.status();
  contents_ = *std::move(read);
  number_ += 1;
  return absl::OkStatus();
}

absl::StatusOr<TlsContents> TlsReload::Read(LookKind kind, absl::Time now) {
  using Contents = absl::StatusOr<TlsContents>;
  return calls_.Get<Contents>(
      kind,
      absl::StrCat("read \"", files_.certificate, "\" and what goes with it"),
      [files = files_, now] { return ReadTlsFiles(files, now); });
}

void TlsReload::LookIfDue() {
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(&mutex_);
    if (looking_ || now - looked_ < every_) return;
    looking_ = true;
  }
  // Without the lock: others go on with what there is.
  absl::StatusOr<TlsContents> read = Read(kAgain, now);
  MutexLock lock(&mutex_);
  Take(std::move(read));
  looked_ = now;
  looking_ = false;
}

void TlsReload::Take(absl::StatusOr<TlsContents> read) {
  std::string problem(read.status().message());
  if (!read.ok() && problem != warned_) {
    LogWarning("new TLS files cannot be used, those of before are: ", problem);
  }
  warned_ = std::move(problem);
  if (!read.ok()) return;
  if (*read == contents_) {
    contents_.expires = read->expires;  // of CAs that are valid by now
    return;
  }
  const bool distrusts =
      !contents_.ca.empty() && !StillTrusts(read->ca, contents_.ca);
  contents_ = *std::move(read);
  number_ += 1;
  if (distrusts && on_distrust_ != nullptr) on_distrust_();
  LogInfo("TLS files have changed: new connections get ", files_.certificate,
          ", valid until ", TimeText(contents_.expires.certificate));
}

void TlsReload::SetOnDistrust(std::function<void()> callback) {
  MutexLock lock(&mutex_);
  on_distrust_ = std::move(callback);
}

absl::optional<TlsContents> TlsReload::Next(uint64_t* seen) {
  LookIfDue();
  MutexLock lock(&mutex_);
  AGG_DCHECK(number_ != 0);
  if (*seen == number_) return absl::nullopt;
  *seen = number_;
  return contents_;
}

TlsExpiry TlsReload::Expires() {
  LookIfDue();
  MutexLock lock(&mutex_);
  AGG_DCHECK(number_ != 0);
  return contents_.expires;
}

}  // namespace agg
