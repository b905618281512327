// Files are compared by what they have: a time stamp may stay, or come back.
#include "server/tls/tls_reload.h"

#include <utility>

#include "server/base/log.h"
#include "server/tls/openssl_handles.h"
#include "server/tls/tls_trust.h"

namespace agg {

TlsReload::TlsReload(TlsFiles files, absl::Duration every, const Clock* clock)
    : files_(std::move(files)), every_(every), clock_(clock) {}

absl::Status TlsReload::Open() {
  MutexLock lock(&mutex_);
  looked_ = clock_->Now();
  absl::StatusOr<TlsContents> read = ReadTlsFiles(files_, looked_);
  if (!read.ok()) return read.status();
  contents_ = *std::move(read);
  number_ += 1;
  return absl::OkStatus();
}

void TlsReload::Look(absl::Time now) {
  looked_ = now;
  absl::StatusOr<TlsContents> read = ReadTlsFiles(files_, now);
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
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  if (now - looked_ >= every_) Look(now);
  if (*seen == number_) return absl::nullopt;
  *seen = number_;
  return contents_;
}

TlsExpiry TlsReload::Expires() {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  if (now - looked_ >= every_) Look(now);
  return contents_.expires;
}

}  // namespace agg
